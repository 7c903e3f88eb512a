package pact

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/serry-dev/serry"
)

// A world is a job in virtual time: a store, barriers, and tasks that make steps and calls, each of
// which takes a while. One seed, or one table of choices, gives one history.
type world struct {
	luck luck
	cfg  Config
	now  time.Time
	stop time.Time // from then on there are no faults

	keys     []serry.Entry // sorted
	barriers map[string]*barrier
	tasks    []*task

	calls  int // so far
	faults int
	tally  tally
	trace  func(format string, args ...any) // or nil

	careless bool // the store lets a key be created twice
}

// A luck chooses what is left open.
type luck interface {
	fault(w *world, t *task, c Command) fault
	latency(t *task) time.Duration // of a call
	pace(t *task) time.Duration    // of a step
	downtime() time.Duration
	coin() bool
}

// A fault is what happens to a call.
type fault int

const (
	none        fault = iota
	failBefore        // the call fails and has no effect
	failAfter         // the call has its effect and fails
	crashBefore       // the task dies, and the call has no effect
	crashAfter        // the task dies after the call had its effect
	faultKinds  = int(crashAfter)
)

// A tally says what histories consisted of.
type tally struct {
	agreed, ended, failed, restarts, faults, saves int
}

func (t *tally) add(o tally) {
	t.agreed += o.agreed
	t.ended += o.ended
	t.failed += o.failed
	t.restarts += o.restarts
	t.faults += o.faults
	t.saves += o.saves
}

// A task makes steps, takes part in the protocol, and may die and come back.
type task struct {
	index int
	life  int // 0: the first
	alive bool
	back  time.Time // if it is not: when it comes back

	pact    *Pact
	command Command
	busy    bool // command is under way
	arrived bool // of Meet
	ready   time.Time

	step     int64 // the next one
	stepAt   time.Time
	waits    bool // it was told to hold
	made     []madeStep
	postings []*posted
}

// A madeStep is a step that a life of a task has made.
type madeStep struct {
	step    int64
	verdict Verdict
	at      time.Time
}

// A posted is a notice to a task.
type posted struct {
	notice  Notice
	at      time.Time
	posting Posting
	begun   bool
	done    bool
	life    int
	ready   time.Time
}

// A barrier is one that tasks meet at.
type barrier struct {
	arrived []bool
	first   time.Time
	over    bool
	err     error
}

var epoch = time.Date(2026, 11, 15, 20, 30, 0, 0, time.UTC)

// newWorld makes a job. cfg has its lead and its patience, which is also that of barriers.
func newWorld(l luck, tasks int, cfg Config, faultsUntil time.Duration) *world {
	w := &world{luck: l, cfg: cfg, now: epoch, stop: epoch.Add(faultsUntil), barriers: make(map[string]*barrier)}
	for i := range tasks {
		t := &task{index: i, step: 1}
		w.tasks = append(w.tasks, t)
		w.start(t)
	}
	return w
}

// start begins a life.
func (w *world) start(t *task) {
	t.alive, t.busy, t.arrived, t.waits = true, false, false, false
	cfg := w.cfg
	cfg.Task = fmt.Sprintf("worker-%d", t.index)
	t.pact = New(cfg)
	t.stepAt = w.now.Add(w.luck.pace(t))
}

// crash ends a life. The service lets barriers fail that the task had come to, or keeps them open.
func (w *world) crash(t *task) {
	t.alive, t.back = false, w.now.Add(w.luck.downtime())
	t.life++
	w.tally.restarts++
	for _, id := range slices.Sorted(maps.Keys(w.barriers)) {
		if b := w.barriers[id]; !b.over && w.luck.coin() {
			b.over, b.err = true, serry.ErrMemberLost
		}
	}
}

// post plans a notice.
func (w *world) post(task int, in, deadline time.Duration) {
	at := w.now.Add(in)
	t := w.tasks[task]
	t.postings = append(t.postings, &posted{at: at, ready: at, notice: Notice{Deadline: at.Add(deadline), Source: "test"}})
}

// run plays until the job is calm, or until it is clear that it never will be.
func (w *world) run() error {
	for turns := 0; ; turns++ {
		if err := w.check(); err != nil {
			return err
		}
		if w.calm() {
			return w.judge()
		}
		if turns > 100_000 {
			return errors.New("the tasks come to no end")
		}
		next, ok := w.next()
		if !ok {
			return errors.New("all tasks wait for ever")
		}
		if next.at.After(w.now) {
			w.now = next.at
		}
		w.do(next)
	}
}

// An event is something that a task does at a time.
type event struct {
	at   time.Time
	task *task
	kind eventKind
	post *posted // of posts
}

type eventKind int

const (
	restarts eventKind = iota
	calls
	steps
	posts
)

// next is what happens next.
func (w *world) next() (first event, some bool) {
	consider := func(e event) {
		if !some || e.at.Before(first.at) {
			first, some = e, true
		}
	}
	for _, t := range w.tasks {
		if !t.alive {
			consider(event{at: t.back, task: t, kind: restarts})
			continue
		}
		if at, ok := w.callDue(t); ok {
			consider(event{at: at, task: t, kind: calls})
		}
		if held := t.pact.holds && t.step >= t.pact.from; !held || !t.waits {
			consider(event{at: t.stepAt, task: t, kind: steps})
		}
		for _, p := range t.postings {
			if !p.done && t.pact.Ready() {
				consider(event{at: p.ready, task: t, kind: posts, post: p})
			}
		}
	}
	return first, some
}

func (w *world) do(e event) {
	switch e.kind {
	case restarts:
		w.start(e.task)
	case calls:
		w.advance(e.task)
	case steps:
		w.makeStep(e.task)
	case posts:
		w.advancePosting(e.task, e.post)
	}
}

func (w *world) makeStep(t *task) {
	v := t.pact.Step(t.step)
	if t.waits = v == Hold; t.waits {
		return
	}
	t.made = append(t.made, madeStep{t.step, v, w.now})
	w.tell("%v task %d makes step %d: %v", w.now.Sub(epoch), t.index, t.step, v)
	if v == Save {
		w.tally.saves++
	}
	t.step++
	t.stepAt = w.now.Add(w.luck.pace(t))
}

// callDue says when the protocol of a task goes on.
func (w *world) callDue(t *task) (time.Time, bool) {
	if !t.busy {
		return w.now, true
	}
	c := t.command
	switch c.Do {
	case Rest:
		return c.Until, true
	case Pass:
		if c := t.pact.Next(w.now); c.Do != Pass {
			return w.now, true
		}
		return c.Until, !c.Until.IsZero()
	case Wait:
		if _, ok := w.find(c.Key); ok {
			return t.ready, true
		}
		return c.Until, !c.Until.IsZero()
	case Meet:
		b := w.barriers[c.Key]
		if _, ok := w.find(c.Unless); ok || !t.arrived || b.over {
			return t.ready, true
		}
		return b.first.Add(w.cfg.Patience), true
	}
	return t.ready, true
}

// advance begins a call of a task, or ends one.
func (w *world) advance(t *task) {
	if !t.busy {
		t.command, t.busy, t.arrived = t.pact.Next(w.now), true, false
		t.ready = w.now.Add(w.luck.latency(t))
		return
	}
	if t.command.Do == Rest || t.command.Do == Pass {
		t.busy = false
		return
	}
	if t.command.Do == Meet && !t.arrived {
		w.arrive(t)
		return
	}
	reply, fault := w.call(t, t.command)
	w.tellCall(t, t.command, reply, fault)
	if fault >= crashBefore {
		w.crash(t)
		return
	}
	t.busy = false
	t.pact.Heard(w.now, reply)
	for _, n := range t.pact.Notes() {
		switch n.Kind {
		case Agreed:
			w.tally.agreed++
		case Failed:
			w.tally.failed++
		case Ended:
			w.tally.ended++
		}
	}
}

// arrive lets a task come to a barrier, where it then waits.
func (w *world) arrive(t *task) {
	t.arrived = true
	b := w.barriers[t.command.Key]
	if b == nil {
		b = &barrier{arrived: make([]bool, len(w.tasks)), first: w.now}
		w.barriers[t.command.Key] = b
	}
	if b.over {
		return
	}
	b.arrived[t.index] = true
	b.over = !slices.Contains(b.arrived, false)
}

// call makes a call, with a fault or without.
func (w *world) call(t *task, c Command) (Reply, fault) {
	w.calls++
	f := none
	if w.now.Before(w.stop) {
		f = w.luck.fault(w, t, c)
	}
	if f != none {
		w.faults++
		w.tally.faults++
	}
	if f == failBefore || f == crashBefore {
		return Reply{Err: errTest}, f
	}
	r := w.serve(c)
	if f == failAfter {
		return Reply{Err: errTest}, f
	}
	return r, f
}

var errTest = errors.New("the call failed")

// serve is what the service does with a call.
func (w *world) serve(c Command) (r Reply) {
	at, found := w.find(c.Key)
	switch c.Do {
	case Wait:
		if found {
			r.Value = w.keys[at].Value
		}
	case List:
		for _, e := range w.keys[at:] {
			if !strings.HasPrefix(e.Key, c.Key) {
				break
			}
			if strings.HasPrefix(e.Key[len(c.Key):], "/") {
				r.Entries = append(r.Entries, e)
			}
		}
	case Create, Put:
		switch {
		case !found:
			w.keys = slices.Insert(w.keys, at, serry.Entry{Key: c.Key, Value: c.Value})
		case c.Do == Create && !w.careless:
			r.Err = serry.ErrExists
		default:
			w.keys[at].Value = c.Value
		}
	case Delete:
		w.keys = slices.DeleteFunc(w.keys, func(e serry.Entry) bool {
			return e.Key == c.Key || strings.HasPrefix(e.Key, c.Key+"/")
		})
	case Meet:
		r = w.meet(c)
	}
	return r
}

// meet is the end of a wait at a barrier.
func (w *world) meet(c Command) Reply {
	b := w.barriers[c.Key]
	at, found := w.find(c.Unless)
	switch {
	case b.over && b.err == nil:
		return Reply{}
	case found:
		return Reply{Value: w.keys[at].Value}
	case !b.over:
		b.over, b.err = true, serry.ErrTimeout
	}
	return Reply{Err: b.err}
}

func (w *world) find(key string) (int, bool) {
	return slices.BinarySearchFunc(w.keys, key, func(e serry.Entry, k string) int { return strings.Compare(e.Key, k) })
}

// advancePosting makes a call for a notice. The notifier of a task posts again what could not be posted,
// and so does a task that restarts.
func (w *world) advancePosting(t *task, p *posted) {
	p.ready = w.now.Add(w.luck.latency(t))
	if !p.begun || p.life != t.life {
		posting, err := t.pact.Post(w.now, p.notice)
		if err != nil {
			p.done = true
			return
		}
		p.posting, p.begun, p.life, p.at = posting, true, t.life, w.now
		return
	}
	c, more := p.posting.Next()
	if !more {
		p.done = true
		return
	}
	reply, fault := w.call(t, c)
	w.tellCall(t, c, reply, fault)
	if fault >= crashBefore {
		w.crash(t)
		return
	}
	if p.posting.Heard(reply) != nil {
		t.pact.Withdraw(p.notice)
		p.begun = false
	}
}

func (w *world) tell(format string, args ...any) {
	if w.trace != nil {
		w.trace(format, args...)
	}
}

func (w *world) tellCall(t *task, c Command, r Reply, f fault) {
	if w.trace == nil {
		return
	}
	w.tell("%v task %d: %v %s %q -> %q %d entries, error %v, fault %d", w.now.Sub(epoch), t.index,
		[]string{"", "", "", "wait", "list", "create", "put", "delete", "meet"}[c.Do], c.Key, c.Value, r.Value, len(r.Entries), r.Err, f)
}
