package detect

import (
	"slices"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
)

// Config is what a [Detector] is told once.
type Config struct {
	// Grace is how long a life may take to come back on another connection after its last one closed.
	Grace time.Duration

	// Silence is how long a task may send no heartbeat: the heartbeat timeout plus slack.
	Silence time.Duration
}

// A Task is what a detector knows of a task: the life that it has, and the state that the machine gave it.
type Task struct {
	serry.Life // with incarnation 0: the task has not registered
	State      serry.TaskState
	Departed   bool // the machine knows that this life is over for good
}

// Watched says whether the silence of the task means anything: a connected task can be lost by it, and
// any other life can depart by it, once.
func (t *Task) Watched() bool {
	return t.State == serry.Connected || t.Incarnation != 0 && !t.Departed
}

// A Detector collects observations about lives and concludes which of them are lost or have departed.
// H names a host: one relay or one client at the other end of a stream.
type Detector[H comparable] struct {
	silence time.Duration // set once: Config.Silence

	// The tasks of the present epoch, by job; nil after the service has stopped. They follow the machine step
	// by step, and are the owner's own copy of its states: what handlers see is older.
	tasks map[string][]Task

	// How each life is connected. A life that registers has a link before it is the present one of its task,
	// and one that was replaced keeps its link while a connection carries it.
	links map[serry.Life]*link

	// Lives without a connection, whose grace runs: of stock clients, and of clients that resume their
	// streams. entries numbers all of them.
	closed  [2]closings
	entries uint64

	// Which life came by which host, from either side.
	hosts   map[H]*host
	hostsOf map[serry.Life][]H

	// Connected lives that no connection carries, without evidence against them; and those of them
	// that the machine has not been told of (see DepartIdle).
	idle, untold map[serry.Life]bool

	// What was concluded and not returned by Next. The lives in revisit come after it: they lost their
	// state while no connection carried them.
	pending []conclusion
	revisit []serry.Life
}

// A conclusion is one step towards an event. Exactly one of its fields is set.
type conclusion struct {
	suspects   []suspect    // what they are guilty of depends on their state at that time
	departures []serry.Life // over for good
	event      coord.Event
}

// A suspect is a life with an observation against it.
type suspect struct {
	serry.Life
	lost     bool // enough to call it lost if it is connected
	evidence string
}

// New makes a detector that knows of no task. The first [Detector.Opened] names them.
func New[H comparable](c Config) *Detector[H] {
	return &Detector[H]{
		silence: c.Silence,
		links:   make(map[serry.Life]*link),
		closed:  [2]closings{{grace: coord.Time(c.Grace)}, {grace: coord.Time(max(c.Grace, resumeGrace))}},
		hosts:   make(map[H]*host),
		hostsOf: make(map[serry.Life][]H),
		idle:    make(map[serry.Life]bool),
		untold:  make(map[serry.Life]bool),
	}
}

// Opened says that an epoch has opened with these jobs and with every task disconnected. opener is the
// life whose registration opened it, or zero.
//
// Lives of the former epoch that no connection carries are forgotten: nothing that they do matters any more. So
// is which hosts follow which lives, because no standing of theirs will change. The opener, and lives whose
// registration waits, are about to be the first lives of the new epoch, so theirs is kept.
func (d *Detector[H]) Opened(jobs []coord.Job, opener serry.Life) {
	d.tasks = make(map[string][]Task, len(jobs))
	for _, j := range jobs {
		tasks := make([]Task, j.Tasks)
		for i := range tasks {
			tasks[i].Task = serry.TaskID{Job: j.Name, Index: i}
		}
		d.tasks[j.Name] = tasks
	}
	for l := range d.idle {
		d.forget(l)
	}
	for l := range d.hostsOf {
		if l != opener && !d.registers(l) {
			d.Unfollow(l)
		}
	}
}

// Stopped says that the service has stopped: from now on it knows no task.
func (d *Detector[H]) Stopped() { d.tasks = nil }

// Task finds a task of the present epoch, or returns nil. The caller must not change it.
func (d *Detector[H]) Task(id serry.TaskID) *Task {
	job := d.tasks[id.Job]
	if id.Index < 0 || id.Index >= len(job) {
		return nil
	}
	return &job[id.Index]
}

// Present says whether l is the life that its task has now.
func (d *Detector[H]) Present(l serry.Life) bool {
	t := d.Task(l.Task)
	return t != nil && t.Incarnation == l.Incarnation && l.Incarnation != 0
}

// connected says whether l is the present life of a connected task.
func (d *Detector[H]) connected(l serry.Life) bool {
	return d.Present(l) && d.Task(l.Task).State == serry.Connected
}

// Changed takes over what the machine says of a task. Both its former life and the present one are looked at
// again: a life that no connection carries departs as soon as it is not connected any more.
func (d *Detector[H]) Changed(l serry.Life, state serry.TaskState, now coord.Time) {
	t := d.Task(l.Task)
	if t == nil {
		return
	}
	before := t.Life
	*t = Task{Life: l, State: state}
	d.stateChanged(before, now)
	if before != l {
		d.stateChanged(l, now)
	}
}

// stateChanged looks again at a life: if no connection carries it, and its grace is over, it may have departed.
// Within the grace the end of that will tell.
func (d *Detector[H]) stateChanged(l serry.Life, now coord.Time) {
	if n := d.links[l]; n != nil && n.open == 0 && (n.over || n.since+d.closings(n).grace <= now) {
		d.revisit = append(d.revisit, l)
	}
}

// Returned takes back that a life has departed: it has called again.
func (d *Detector[H]) Returned(l serry.Life) {
	if d.Present(l) {
		d.Task(l.Task).Departed = false
	}
}

// Await expects a life that a former leader knew. That no connection carries it is no evidence, because
// its connections broke with that leader (C-LOST-6). It gets the grace of clients that resume, whatever
// it is. A life that had departed is not expected.
func (d *Detector[H]) Await(l serry.Life, departed bool, now coord.Time) {
	if !d.Present(l) {
		return
	}
	if departed {
		d.Task(l.Task).Departed = true
		return
	}
	d.close(l, &link{resumes: true}, now, "")
}

// Next returns the next event for the machine, or nil. The machine's answer to an event may lead to
// more, so Changed must be called for all that the event changes before Next is called again.
func (d *Detector[H]) Next() coord.Event {
	for {
		c, ok := d.conclusion()
		if !ok {
			return nil
		}
		switch {
		case c.event != nil:
			return c.event
		case c.departures != nil:
			return d.depart(c.departures)
		}
		if ev := d.judge(c.suspects); ev != nil {
			return ev
		}
	}
}

// conclusion takes the oldest conclusion. The lives to revisit are one of their own, so that what one
// verdict leads to is one more event, not one for each life.
func (d *Detector[H]) conclusion() (c conclusion, ok bool) {
	if len(d.pending) > 0 {
		c, d.pending = d.pending[0], d.pending[1:]
		return c, true
	}
	for _, l := range d.revisit {
		if n := d.links[l]; n != nil && n.open == 0 {
			c.suspects = append(c.suspects, suspect{Life: l})
		}
	}
	d.revisit = d.revisit[:0]
	return c, c.suspects != nil
}

// judge turns suspects into events: the losses first, and the departures next. Losses that were found
// together are one event, so that survivors hear of them together.
//
// The state of a life decides what a suspicion means. A connected life with evidence against it is lost. A
// connected life without is idle: it may be a client that can do without a connection. Any other life has
// departed, unless its registration waits: then it is about to come, not to go.
func (d *Detector[H]) judge(suspects []suspect) coord.Event {
	var lost coord.Lost
	var gone []serry.Life
	for _, s := range suspects {
		connected := d.connected(s.Life)
		switch {
		case connected && s.lost:
			lost.Tasks = append(lost.Tasks, coord.Loss{Life: s.Life, Evidence: s.evidence})
		case connected:
			d.setIdle(s.Life)
		case !d.registers(s.Life):
			gone = append(gone, s.Life)
		}
	}
	switch {
	case lost.Tasks == nil && gone == nil:
		return nil
	case lost.Tasks == nil:
		return d.depart(gone)
	case gone != nil:
		d.pending = slices.Insert(d.pending, 0, conclusion{departures: gone})
	}
	return lost
}

// depart marks lives as over for good and forgets those that no connection carries.
func (d *Detector[H]) depart(gone []serry.Life) coord.Event {
	for _, l := range gone {
		if d.Present(l) {
			d.Task(l.Task).Departed = true
		}
		if d.forget(l); d.links[l] == nil {
			d.Unfollow(l)
		}
	}
	return coord.Departed{Tasks: gone}
}

// suspect concludes that something must be said of lives.
func (d *Detector[H]) suspect(found []suspect) {
	if len(found) > 0 {
		d.pending = append(d.pending, conclusion{suspects: found})
	}
}

// Accused takes the word of a witness that needs no other evidence: the present life of a task is lost, whatever
// carries it.
func (d *Detector[H]) Accused(task serry.TaskID, evidence string) {
	if t := d.Task(task); t != nil && t.Incarnation != 0 {
		d.suspect([]suspect{{t.Life, true, evidence}})
	}
}

// setIdle notes a connected life that no connection carries, and notIdle takes that back. A life that is idle
// already is not told of again.
func (d *Detector[H]) setIdle(l serry.Life) {
	if !d.idle[l] {
		d.idle[l], d.untold[l] = true, true
	}
}

func (d *Detector[H]) notIdle(l serry.Life) {
	delete(d.idle, l)
	delete(d.untold, l)
}

// DepartIdle lets connected lives depart that no connection carries. They may be clients that can do
// without a connection for a while, or hosts that are cut off, so the caller does this only when their
// departure decides something: the job has failed, and a task wants to register for the next epoch
// (C-EPOCH-2b). The machine is told of each of them once.
func (d *Detector[H]) DepartIdle() {
	if len(d.untold) == 0 {
		return
	}
	gone := sorted(d.untold)
	clear(d.untold)
	d.pending = append(d.pending, conclusion{event: coord.Departed{Tasks: gone}})
}

// DepartFormer lets the present life of l's task depart, if l is another one that has tried to register,
// the present one is not connected, and every stream that it came by is a client's and broken. Its
// process may resume the stream for a while; but it would only hear that it has failed or left, and the
// process that was started in its place waits for it.
func (d *Detector[H]) DepartFormer(l serry.Life) {
	t := d.Task(l.Task)
	if t == nil || t.Incarnation == 0 || t.Incarnation == l.Incarnation || t.Departed {
		return
	}
	if t.State != serry.Connected && d.adrift(t.Life) {
		d.suspect([]suspect{{Life: t.Life}})
	}
}
