package storm

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/internal/lab/history"
	"github.com/serry-dev/serry/wire"
	"github.com/serry-dev/serry/wire/rpc"
)

// calls are what programs do at one point beside their step: the rarer calls of the service. Plans and
// programs draw them from streams of their own, so that the rest of a schedule is what it is without them.
type calls struct {
	dirs    int  // calls on directories
	states  bool // how the tasks and the service are
	suspect bool // evidence against another task, which is too weak to matter, or of another life
	cancel  bool // a barrier that one task cancels
	devices bool // a meeting of all tasks about their devices
}

// roomyBuffer is the least that connections of a large fleet take at once: the states of dozens of tasks,
// asked for by each, would take longer than a schedule lasts through a smaller one.
const roomyBuffer = 4 << 10

// drawCalls adds the rarer calls to half of all plans.
func (p *plan) drawCalls(r *rand.Rand) {
	if r.IntN(2) == 0 {
		return
	}
	p.watches = r.IntN(2) == 0
	if p.fleet() && p.net.buffer > 0 {
		p.net.buffer = max(p.net.buffer, roomyBuffer)
	}
	for range p.program {
		p.calls = append(p.calls, calls{
			dirs: r.IntN(4), states: r.IntN(4) == 0, suspect: p.mode != fatal && r.IntN(4) == 0,
			cancel:  p.mode == steady && !p.recoverable && r.IntN(3) == 0, // C-BAR-21: else 0 is the next instance
			devices: p.mode == steady && p.members == 0 && r.IntN(3) == 0, // package client has no such call
		})
	}
	if p.mode != steady && r.IntN(2) == 0 {
		p.faults = append(p.faults, p.drawFault(r, lastWords[p.mode]))
	}
}

// lastWords are the ways in which a task says that it ends.
var lastWords = map[mode][]kind{
	fatal:    {reportError},
	comeback: {reportError, resetTask},
	rounds:   {reportError, resetTask},
}

// more makes the rarer calls of a step.
func (p *proc) more(step int) {
	if step >= len(p.world.plan.calls) {
		return
	}
	c := p.world.plan.calls[step]
	p.directories(c.dirs)
	if c.states {
		p.states()
	}
	if c.suspect {
		p.suspect()
	}
	if c.cancel {
		p.abandon(step)
	}
	if c.devices {
		p.devices()
	}
}

// directories makes calls on a directory that other tasks use, too. Its keys are those of [proc.keys], and
// some in a directory below, which is removed as a whole now and then.
func (p *proc) directories(n int) {
	dir := p.shared("k")
	for range n {
		key := fmt.Sprintf("%s/%d", deeper(dir), p.extra.IntN(2))
		value := fmt.Sprintf("%d/%d", p.life, p.extra.IntN(1000))
		switch p.extra.IntN(6) {
		case 0:
			p.put(history.Delete, deeper(dir), "")
		case 1:
			p.put(history.Insert, key, value)
		case 2, 3:
			p.put(history.Overwrite, key, value)
		case 4:
			p.sizes(dir)
		default:
			p.list(dir)
		}
	}
}

// deeper is the directory below one that tasks share.
func deeper(dir string) string { return dir + "/d" }

// keysOf are the keys of a directory that tasks share.
func keysOf(dir string) (keys []string) {
	for _, d := range []string{dir, deeper(dir)} {
		keys = append(keys, d+"/0", d+"/1")
	}
	return keys
}

// list asks for everything in a directory. That says of each of its keys what a get would have said.
func (p *proc) list(dir string) {
	if p.over() {
		return
	}
	p.does("list " + dir)
	span := history.Span{Call: p.world.clock.Now()}
	var entries []serry.Entry
	if p.member != nil {
		var err error
		if entries, err = p.member.KV().List(p.ctx, dir); err != nil {
			p.memberDied("list", err)
			return
		}
	} else {
		result, ok := p.ask("list", coord.GetKeyValueDir{Call: p.who(), Dir: dir})
		if !ok {
			return
		}
		entries = result.(coord.Entries).Entries
	}
	span.Return = p.world.clock.Now()
	there := make(map[string]string)
	for _, e := range entries {
		there[e.Key] = brief(e.Value)
	}
	p.saw(span, history.Get, dir, there)
}

// sizes asks which keys a directory has. Package client has no such call: the command serry makes it.
func (p *proc) sizes(dir string) {
	if p.over() || p.member != nil {
		return
	}
	p.does("list of keys of " + dir)
	span := history.Span{Call: p.world.clock.Now()}
	result, ok := p.ask("list of keys", coord.ListKeys{Call: p.who(), Dir: dir})
	if !ok {
		return
	}
	span.Return = p.world.clock.Now()
	there := make(map[string]string)
	for _, k := range result.(coord.Sizes).Keys {
		there[k.Key] = ""
	}
	p.saw(span, history.Has, dir, there)
}

// saw notes what a process was told of a whole directory: of every key in it whether it is there, and with
// which value.
func (p *proc) saw(span history.Span, action history.KeyAction, dir string, there map[string]string) {
	keys := keysOf(dir)
	for key := range there {
		if !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	for _, key := range keys {
		value, is := there[key]
		p.sawKey(span, action, key, value, is)
	}
}

// sawKey notes what a process was told of one key by a call that was not about this key alone.
func (p *proc) sawKey(span history.Span, action history.KeyAction, key, value string, is bool) {
	p.world.mu.Lock()
	defer p.world.mu.Unlock()
	p.world.mu.report.Keys = append(p.world.mu.report.Keys, history.KeyCall{
		Span: span, Client: int(p.life), Action: action, Key: named(p.epoch, key), Found: value, Absent: !is,
	})
}

// ask makes a call whose only good end is success.
func (p *proc) ask(what string, ev coord.Event) (coord.Result, bool) {
	result, st, ok := p.call(ev)
	if ok && !st.OK() {
		p.died(what, st)
	}
	return result, ok && st.OK()
}

// states asks how the caller and the service are.
func (p *proc) states() {
	if p.over() || p.member != nil {
		return
	}
	p.does("states")
	began := p.world.clock.Now()
	result, ok := p.ask("states", coord.GetTaskState{Call: p.who(), Tasks: []serry.TaskID{{Job: job, Index: p.task}}})
	if !ok {
		return
	}
	info := result.(*coord.Picture).Tasks[0]
	if p.world.plan.mode != fatal && !p.mayBe(info.State, uint64(info.Incarnation), began) {
		p.world.amiss("task %d life %d is said to be %v in life %d", p.task, p.life, info.State, info.Incarnation)
	}
	p.status()
}

// mayBe says whether an answer of the service about the task of the process can be true. A process that is
// not doomed is connected, in its own life. The service tells the truth to a former life as well: that may be
// told of a successor, whose registration it may not have noticed yet. But no process is told of a life
// before its own, or of its own life once a successor had registered before it asked. Lives are numbered
// in the order in which they begin; 0 is that of a task without one.
func (p *proc) mayBe(state serry.TaskState, life uint64, began history.Moment) bool {
	p.mu.Lock()
	doomed, replaced := p.mu.doomed, p.mu.replaced
	p.mu.Unlock()
	switch {
	case !doomed:
		return state == serry.Connected && life == p.life
	case life == 0:
		return state != serry.Connected
	case replaced != 0 && replaced < began:
		return p.life < life && life <= p.world.last(p.task).life
	}
	return p.life <= life && life <= p.world.last(p.task).life
}

// status asks for the status of the service, as people do by the command serry.
func (p *proc) status() {
	path, body, err := wire.StatusQuery{}.Request()
	if err != nil {
		panic(err) // the query is empty
	}
	_, answered := p.port.send(path, body)
	select {
	case a := <-answered:
		s, err := wire.ReadStatus(a.body)
		if !a.status.OK() || err != nil || serry.Incarnation(s.Service) != p.service || s.Size != p.world.plan.tasks {
			p.world.amiss("task %d: the status is %v, %v, of service %d with %d tasks; want %d with %d",
				p.task, a.status, err, s.Service, s.Size, p.service, p.world.plan.tasks)
		}
	case <-p.port.gone:
	}
}

// suspect speaks against another task, in a way that must not matter: what was seen proves nothing, or is
// said of a life that the task never had.
func (p *proc) suspect() {
	if p.over() {
		return
	}
	p.does("suspect")
	peer := p.extra.IntN(p.world.plan.tasks)
	ev := coord.Suspect{Call: p.who(), Peer: serry.Life{Task: serry.TaskID{Job: job, Index: peer}}, Evidence: "a storm"}
	if ev.Hard = p.extra.IntN(2) == 0; ev.Hard {
		ev.Peer.Incarnation = 1
	} else {
		ev.Peer.Incarnation = serry.Incarnation(p.world.last(peer).life)
	}
	if p.member == nil {
		p.ask("suspect", ev)
	} else if err := p.member.Suspect(p.ctx, ev.Peer.Task, ev.Peer.Incarnation, serry.Evidence{Hard: ev.Hard, Detail: ev.Evidence}); err != nil {
		p.memberDied("suspect", err)
	}
}

// together is within which time tasks come to a barrier that is cancelled about then.
const together = 20 * time.Millisecond

// abandon meets the others at a barrier that the first task cancels, before or after the last has come. All
// must hear the same.
func (p *proc) abandon(step int) {
	if p.over() {
		return
	}
	id := "cancelled" + strconv.Itoa(step)
	soon := time.Duration(p.extra.Int64N(int64(together)))
	if p.task == 0 {
		p.world.work.Go(func() {
			if p.pause(soon) {
				p.cancels(id)
			}
		})
	} else if !p.pause(soon) {
		return
	}
	p.does("barrier " + id)
	c := history.BarrierCall{ID: named(p.epoch, id), Members: p.world.everybody(), Member: p.task, Life: p.life}
	c.Call = p.world.clock.Now()
	ev := coord.Barrier{Call: p.who(), ID: id, Timeout: time.Hour}
	var err error
	var st rpc.Status
	if p.member != nil {
		err = p.member.Barrier(p.ctx, id, serry.BarrierOptions{Timeout: time.Hour})
	} else {
		var ok bool
		if _, st, ok = p.call(ev); ok {
			err = p.dialect().Error(st.Code, st.Message, st.Details)
		}
	}
	switch {
	case p.over():
	case err == nil:
		c.Return, c.Passed = p.world.clock.Now(), true
	case errors.Is(err, serry.ErrCancelled):
		c.Return, c.Failed = p.world.clock.Now(), err.Error()
	case p.member != nil:
		p.memberDied("barrier "+id, err)
	default:
		p.died("barrier "+id, st)
	}
	p.noteBarrier(c)
}

// cancels cancels a barrier. If the service says that it did, then no task has passed.
func (p *proc) cancels(id string) {
	c := history.BarrierCall{ID: named(p.epoch, id), Members: p.world.everybody(), Member: -1, Life: p.life}
	c.Call = p.world.clock.Now()
	if p.member != nil {
		if p.member.CancelBarrier(p.ctx, id) != nil {
			return // too late, or too early
		}
	} else if _, st, ok := p.call(coord.CancelBarrier{Call: p.who(), ID: id}); !ok || !st.OK() {
		return
	}
	c.Return, c.Failed = p.world.clock.Now(), "cancelled"
	p.noteBarrier(c)
}

func (p *proc) noteBarrier(c history.BarrierCall) {
	p.world.mu.Lock()
	defer p.world.mu.Unlock()
	p.world.mu.report.Barriers = append(p.world.mu.report.Barriers, c)
}

// devices meets all tasks and hears what each has. Every task has the device of its number, whichever life
// it is in (C-WAT-3).
func (p *proc) devices() {
	if p.over() {
		return
	}
	p.does("devices")
	result, ok := p.ask("devices", coord.WaitForAllTasks{Call: p.who(), Devices: deviceOf(p.task)})
	if !ok {
		return
	}
	var want []byte
	for _, t := range p.world.everybody() {
		want = append(want, deviceOf(t)...)
	}
	if got := result.(coord.AllDevices).Devices; string(got) != string(want) {
		p.world.amiss("task %d: the devices are %q; want %q", p.task, got, want)
	}
}

// deviceOf is what a task says of its devices: a message with one field.
func deviceOf(task int) []byte {
	text := "device " + strconv.Itoa(task)
	return append([]byte{1<<3 | 2, byte(len(text))}, text...)
}

// lastWord lets a task say that it ends, and end. An error that it reports ends the job where tasks cannot
// come back; else nothing but the task, which comes back.
func (w *world) lastWord(k kind, task int, back time.Duration) {
	p := w.last(task)
	if !w.ready() || !p.registered() {
		w.after(50*time.Millisecond, func() { w.lastWord(k, task, back) })
		return
	}
	if p.over() || !w.mayKill(1) {
		return
	}
	w.struck(k)
	w.note("task %d life %d: %s", task, p.life, k)
	w.casualty()
	p.replacing()
	w.living.Add(1)
	w.work.Go(func() {
		defer w.living.Done()
		defer w.returned()
		var ev coord.Event = coord.ResetTask{Call: p.who()}
		if k == reportError {
			w.reports(task)
			ev = coord.ReportError{Call: p.who(), Code: int(codes.Internal), Text: reportedText(task)}
		}
		p.call(ev)
		if !p.kill(string(k)) && !p.diedItself() || !w.plan.recoverable {
			return // what killed it brings its next life, too
		}
		w.pass(back, nil)
		if w.last(task) == p {
			w.succeed(p, p.host)
		}
	})
}

// diedItself says whether the process ended of an error that it heard.
func (p *proc) diedItself() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.heard
}

func reportedText(task int) string {
	return "the reactor of task " + strconv.Itoa(task) + " is too hot"
}

// reports notes that a task reports an error, and reported says whether an error is such a one.
func (w *world) reports(task int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.reporters[task] = true
}

func (w *world) reported(e *serry.TaskError) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.reporters[e.Task.Index] && e.Text == reportedText(e.Task.Index)
}
