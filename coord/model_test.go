package coord_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
)

// A model is the machine in its simplest form, for one epoch of a few tasks without the register and
// the shutdown barrier: plain maps and lists that are searched from one end to the other. It knows
// nothing of how the machine remembers things, and says of each event only who is answered, and what.
type model struct {
	recoverable bool
	now         coord.Time
	tasks       []*modelTask
	lives       map[serry.Incarnation]int
	polling     bool
	told        string // the error that polls get

	keys     map[string]string
	gets     []modelCall
	watchers []coord.Req
	groups   []*modelGroup
	barriers map[string]*modelBarrier
	opened   []*modelBarrier // in the order they were opened

	answers map[coord.Req]string // of the present event
	pending map[coord.Req]bool   // calls without an answer that somebody waits for
	changed bool
}

type modelTask struct {
	state serry.TaskState
	inc   serry.Incarnation
	lost  bool       // why it failed
	left  coord.Time // negative: never
	poll  coord.Req
}

// A modelCall waits: of a task, for a key.
type modelCall struct {
	req  coord.Req
	task int
	key  string
}

type modelGroup struct {
	set   []int
	calls []modelCall
	asked map[int]serry.Incarnation
}

// A modelBarrier keeps all instances it ever had.
type modelBarrier struct {
	id        string
	members   []int // nil until known
	instances []*modelInstance
}

type modelInstance struct {
	open     bool
	result   string
	deadline coord.Time
	arrivals map[int]modelArrival
	waiting  map[int]coord.Req
}

type modelArrival struct {
	inc  serry.Incarnation
	sent int64
}

const (
	modelTasks = 3
	modelGrace = coord.Time(2 * time.Second)
)

func newModel(recoverable bool) *model {
	m := &model{
		recoverable: recoverable, lives: make(map[serry.Incarnation]int), keys: make(map[string]string),
		barriers: make(map[string]*modelBarrier), pending: make(map[coord.Req]bool),
	}
	for range modelTasks {
		m.tasks = append(m.tasks, &modelTask{left: -1})
	}
	return m
}

// step says who is answered because of ev, and what, as describe would put it.
func (m *model) step(now coord.Time, ev coord.Event) map[coord.Req]string {
	m.answers = make(map[coord.Req]string)
	m.now = now
	m.expire()
	call, isCall := coord.CallOf(ev)
	if isCall {
		m.pending[call.Req] = true
	}
	m.apply(ev, call.Task.Index, call.Req)
	m.notify()
	return m.answers
}

// notify answers watchers if something has changed.
func (m *model) notify() {
	if !m.changed {
		return
	}
	m.changed = false
	for _, req := range m.watchers {
		m.answer(req, m.picture())
	}
	m.watchers = nil
}

func (m *model) apply(ev coord.Event, t int, req coord.Req) {
	switch ev := ev.(type) {
	case coord.RegisterTask:
		m.register(t, ev.Incarnation, req)
	case coord.ReportError:
		if m.tasks[t].state != serry.Connected {
			m.answer(req, serry.ErrNotConnected.Error())
			return
		}
		m.fail(t, false)
		m.propagate(taskText(serry.ErrReported))
		m.answer(req, "ok")
	case coord.ResetTask:
		m.reset(t, req)
	case coord.PollForError:
		m.poll(t, req)
	case coord.WatchTasks:
		if ev.Version >= 0 { // the present one
			m.watchers = append(m.watchers, req)
			return
		}
		m.answer(req, m.picture())
	case coord.Barrier:
		m.barrier(ev, t, req)
	case coord.CancelBarrier:
		m.cancelBarrier(ev, req)
	case coord.GetAliveTasks:
		m.alive(ev, t, req)
	case coord.Lost:
		if m.tasks[ev.Tasks[0].Task.Index].state == serry.Connected {
			m.fail(ev.Tasks[0].Task.Index, true)
			m.propagate("dead")
		}
	case coord.Cancel:
		m.forget(ev.Req)
	default:
		m.applyKey(ev, req)
	}
}

func (m *model) answer(req coord.Req, text string) {
	if m.pending[req] {
		m.answers[req] = text
		delete(m.pending, req)
	}
}

func (m *model) register(t int, inc serry.Incarnation, req coord.Req) {
	k := m.tasks[t]
	switch owner, known := m.lives[inc]; {
	case known && (owner != t || k.inc != inc):
		m.answer(req, serry.ErrStale.Error())
		return
	case k.state == serry.Failed && !(m.recoverable && (inc != k.inc || k.lost)):
		m.propagate(taskText(serry.ErrAlreadyFailed))
		m.answer(req, taskText(serry.ErrAlreadyFailed))
		return
	case k.state == serry.Connected && k.inc != inc && !m.recoverable:
		m.fail(t, false)
		m.propagate(taskText(serry.ErrRestarted))
		m.answer(req, taskText(serry.ErrRestarted))
		return
	}
	m.lives[inc] = t
	if k.inc != inc {
		m.answer(k.poll, serry.ErrStale.Error())
		m.dropAlive(t)
		k.inc = inc
		if m.recoverable {
			m.leaveBarriers(t)
		}
	}
	k.state, k.left, m.changed = serry.Connected, -1, true
	m.answer(req, "ok")
}

// fail puts a task in error. One that was lost may come back as it was.
func (m *model) fail(t int, lost bool) {
	k := m.tasks[t]
	if k.state == serry.Failed {
		return
	}
	k.state, k.lost, k.left, m.changed = serry.Failed, lost, -1, true
	m.leaveBarriers(t)
	m.checkGroups()
}

func (m *model) reset(t int, req coord.Req) {
	k := m.tasks[t]
	if k.state == serry.Disconnected {
		m.answer(req, serry.ErrLeft.Error())
		return
	}
	k.state, k.left, m.changed = serry.Disconnected, m.now, true
	m.leaveBarriers(t)
	m.checkGroups()
	m.answer(k.poll, serry.ErrLeft.Error())
	m.answer(req, "ok")
}

func (m *model) propagate(text string) {
	if m.recoverable {
		return
	}
	m.notify() // C-ORD-3
	switch {
	case !m.polling:
		for t := range m.tasks {
			m.fail(t, false)
		}
	case m.told == "":
		m.told = text
		for _, k := range m.tasks {
			m.answer(k.poll, text)
		}
	}
}

func (m *model) poll(t int, req coord.Req) {
	k := m.tasks[t]
	m.polling = true
	switch {
	case k.state == serry.Disconnected && (k.left < 0 || m.now > k.left+modelGrace):
		m.answer(req, serry.ErrNotRegistered.Error())
	case k.state == serry.Failed:
		m.answer(req, taskText(serry.ErrAlreadyFailed))
	case m.told != "":
		m.answer(req, m.told)
	default:
		m.answer(k.poll, serry.ErrSuperseded.Error())
		k.poll = req
	}
}

// forget drops a call. What it did stays done.
func (m *model) forget(req coord.Req) {
	delete(m.pending, req)
	m.gets = slices.DeleteFunc(m.gets, func(c modelCall) bool { return c.req == req })
	m.watchers = slices.DeleteFunc(m.watchers, func(r coord.Req) bool { return r == req })
}

func (m *model) picture() string {
	var shown []string
	for t, k := range m.tasks {
		shown = append(shown, fmt.Sprintf("%d:%v/%d", t, k.state, k.inc))
	}
	return strings.Join(shown, " ")
}

func (m *model) applyKey(ev coord.Event, req coord.Req) {
	switch ev := ev.(type) {
	case coord.InsertKeyValue:
		if _, ok := m.keys[ev.Key]; ok && !ev.Overwrite {
			m.answer(req, serry.ErrExists.Error())
			return
		}
		m.set(ev.Key, string(ev.Value))
		m.answer(req, "ok")
	case coord.GetKeyValue:
		if v, ok := m.keys[ev.Key]; ok {
			m.answer(req, v)
			return
		}
		m.gets = append(m.gets, modelCall{req: req, key: ev.Key})
	case coord.TryGetKeyValue:
		if v, ok := m.keys[ev.Key]; ok {
			m.answer(req, v)
			return
		}
		m.answer(req, serry.ErrNotFound.Error())
	case coord.IncrementKeyValue:
		n := 0
		if v, ok := m.keys[ev.Key]; ok {
			var err error
			if n, err = strconv.Atoi(v); err != nil {
				m.answer(req, serry.ErrNotNumber.Error())
				return
			}
		}
		m.set(ev.Key, strconv.Itoa(n+int(ev.By)))
		m.answer(req, m.keys[ev.Key])
	case coord.DeleteKeyValue:
		maps.DeleteFunc(m.keys, func(k, _ string) bool { return k == ev.Key || strings.HasPrefix(k, ev.Key+"/") })
		m.answer(req, "ok")
	case coord.GetKeyValueDir:
		var found []string
		for _, k := range slices.Sorted(maps.Keys(m.keys)) {
			if strings.HasPrefix(k, ev.Dir+"/") {
				found = append(found, k+"="+m.keys[k])
			}
		}
		m.answer(req, strings.Join(found, " "))
	}
}

func (m *model) set(key, value string) {
	m.keys[key] = value
	m.gets = slices.DeleteFunc(m.gets, func(c modelCall) bool {
		if c.key == key {
			m.answer(c.req, value)
		}
		return c.key == key
	})
}
