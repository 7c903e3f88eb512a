package coord

import (
	"errors"
	"slices"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/plant"
)

// An index is the place of a task among all tasks of the epoch. Barriers and groups name their
// members by it: four bytes instead of a name, and no look-up to find the task.
type index int32

// A task is what the machine knows of one task.
//
// Three facts about a task are easily confused. Its state says where it stands with the service.
// left says that it went politely; a task that never came is disconnected, too, but has not left.
// departed says that its process cannot call any more; it is seen from outside, and decides when
// the next epoch may open (C-EPOCH-3). A task may have left and still call, because a client
// sends heartbeats until it is destroyed.
type task struct {
	id serry.TaskID // set when the epoch opens, then constant
	at index

	state       serry.TaskState
	inc         serry.Incarnation // 0 until it first registers
	err         *serry.TaskError  // why it failed, or nil
	recoverable bool
	since       Time  // when it took its state
	grace       Time  // after it left: until when its calls are still taken (C-ST-3)
	registered  int64 // the version at which this incarnation came
	left        bool  // it has left, and not come back
	exited      bool  // it left by ending well, without a word
	departed    bool  // no call of this incarnation can come any more
	unsynced    bool  // it restarted and has not met the others since (C-SYNC-1)
	poll        *waiter
	devices     []byte

	groups lazyList[*group]      // alive sets that it is in
	open   lazyList[barrierTurn] // open barriers that name it; those of all tasks are in none of these
}

// task finds a task of the present epoch, or nil if the cluster has no such task.
func (m *Machine) task(id serry.TaskID) *task {
	row, ok := m.ep.base[id.Job]
	if !ok || id.Index < 0 || id.Index >= row.tasks {
		return nil
	}
	return m.ep.tasks[int(row.first)+id.Index]
}

// caller finds the task that makes a call. A life that has been replaced must not act for the one
// that replaced it (C-INC-3): it may hang for minutes, and then arrive at a barrier in the name
// of a process that has not reached it. A call that names no incarnation is of the present life,
// as in the reference service.
func (m *Machine) caller(w *waiter) (*task, error) {
	t := m.task(w.task)
	switch {
	case t == nil:
		return nil, serry.ErrUnknownTask
	case w.inc != 0 && t.inc != 0 && w.inc != t.inc && !m.cfg.has(plant.IgnoreIncarnation):
		return nil, serry.ErrStale
	}
	return t, nil
}

// activeCaller is caller for calls that a stopped service refuses.
func (m *Machine) activeCaller(w *waiter) (*task, error) {
	if m.stopped {
		return nil, serry.ErrStopped
	}
	return m.caller(w)
}

// replaced says whether a call that names no task comes from a life that has been replaced
// (C-INC-6). Its incarnation alone tells: incarnations are random, so two tasks never have the
// same.
func (m *Machine) replaced(w *waiter) bool {
	at, known := m.ep.known[w.inc]
	return known && w.inc != 0 && m.ep.tasks[at].inc != w.inc && !m.cfg.has(plant.IgnoreIncarnation)
}

// adopt stores the incarnation with which a task registers. The life that it replaces may still
// run. Its error poll tells it: nothing else does in a job whose tasks may come back, where its
// heartbeats are good ones (C-HB-5). As with any error, polls hear of it last (C-ORD-3).
//
// What the former life had is dropped, because everything that it repeats from now on is refused
// as stale: its calls in alive sets, and the results kept for its request ids (C-REQ-3).
func (m *Machine) adopt(t *task, inc serry.Incarnation) {
	m.ep.recount(t, -1)
	if t.inc != inc {
		m.replacedPolls = append(m.replacedPolls, t.poll)
		t.poll = nil
		m.dropAliveCalls(t)
		m.dropRequesters(t.inc)
		t.inc = inc
		t.registered = m.version + 1
	}
	t.departed, t.left, t.exited = false, false, false
	m.ep.recount(t, +1)
	m.ep.known[inc] = t.at
	if len(m.ep.known) > len(m.ep.tasks)+maxFormerLives {
		m.forgetLives()
	}
}

// maxFormerLives is how many lives that were replaced an epoch remembers. One that is forgotten
// is taken for a new life if it registers again, and its calls that name no task are not refused
// any more.
const maxFormerLives = 1 << 16

// forgetLives forgets half of the lives that were replaced, so that a task which restarts for
// days costs no memory. Incarnations are random, so that any half is as good as another; this one
// is the same in every machine, because the lives are sorted first.
func (m *Machine) forgetLives() {
	var former []serry.Incarnation
	for inc, at := range m.ep.known {
		if m.ep.tasks[at].inc != inc {
			former = append(former, inc)
		}
	}
	slices.Sort(former)
	for _, inc := range former[:len(former)/2] {
		delete(m.ep.known, inc)
	}
}

// connect makes a task a living member (C-ST-2). The detectors begin to expect heartbeats of it
// when they see the Changed effect.
func (m *Machine) connect(t *task) {
	t.state, t.err, t.since = serry.Connected, nil, m.now
	m.changed(t)
	m.bump()
	m.note(Note{What: "task connected", Task: t.id, Incarnation: t.inc})
}

// fail puts a task in state Failed, with everything that follows, in this order: its barriers,
// alive sets, watchers (C-ST-5). The first error stays (C-ST-4): a later one is mostly a
// consequence of it.
//
// Other tasks do not fail by this. Whether they hear of it is decided by propagate, which the
// callers of fail call after it, once for all tasks that failed together.
func (m *Machine) fail(t *task, err *serry.TaskError) {
	if t.state == serry.Failed {
		return
	}
	err.Task = t.id
	if err.Incarnation == 0 {
		err.Incarnation = t.inc
	}
	t.state, t.err, t.since = serry.Failed, err, m.now
	m.changed(t)
	m.bump()
	m.note(Note{What: "task failed", Task: t.id, Incarnation: t.inc, Err: err})
	m.leaveBarriers(t, err)
	m.recheckGroups(t)
}

// disconnect lets a task leave (C-ST-6). For another heartbeat timeout its heartbeats and polls
// are taken as those of a member: a client ends its threads some time after it has said goodbye
// (C-SHUT-10).
func (m *Machine) disconnect(t *task) {
	t.state, t.err, t.since = serry.Disconnected, nil, m.now
	t.grace = saturate(m.now, m.cfg.HeartbeatTimeout)
	m.ep.recount(t, -1)
	t.left = true
	m.ep.recount(t, +1)
	m.changed(t)
	m.bump()
	m.note(Note{What: "task left", Task: t.id, Incarnation: t.inc})
	m.leaveBarriers(t, serry.ErrLeft)
	m.recheckGroups(t)
	m.endPoll(t, serry.ErrLeft)
}

// withinGrace says whether a disconnected task may still call (C-SHUT-10).
func (m *Machine) withinGrace(t *task) bool { return t.left && m.now <= t.grace }

// changed tells the owner what its table of the task must show (C-HB-8).
func (m *Machine) changed(t *task) {
	m.emit(Changed{Task: t.id, State: t.state, Incarnation: t.inc, Err: t.err})
}

// propagate tells an error of the source tasks to all tasks (C-PROP). Watchers
// hear of the failure before polls do (C-ORD-3).
//
// There are two ways to tell. Once any task has polled for errors, the error answers all polls,
// and the other tasks stay as they are: their clients end by themselves (C-PROP-2). In a job
// without polls, every task is put in state Failed, so that its next heartbeat says so
// (C-PROP-3).
func (m *Machine) propagate(err error, sources []*task) {
	if m.contained(sources) {
		return
	}
	m.notifyWatchers()
	// What follows changes the epoch once. A second error of a failed job changes nothing here,
	// and must not make a record of its event.
	ep := m.ep
	if !ep.failed || ep.failure == nil || ep.polling && ep.pollError == nil {
		m.touch()
	}
	ep.failed = true
	if ep.failure == nil {
		ep.failure = err
		m.note(Note{What: "job failed", Err: err})
	}
	if !ep.polling { // C-PROP-3
		for _, t := range ep.tasks {
			m.fail(t, &serry.TaskError{Reason: err, Err: serry.ErrPeerFailed})
		}
		return
	}
	if ep.pollError == nil { // C-PROP-2: only the first is ever delivered
		ep.pollError = err
		for _, t := range ep.tasks {
			m.endPoll(t, err)
		}
	}
}

// contained says whether failures of these tasks are not told to the others (C-PROP-1): all of
// them may come back, or their jobs may fail without the rest. An error without a source concerns
// all tasks.
func (m *Machine) contained(sources []*task) bool {
	if m.cfg.Recoverable {
		return true
	}
	for _, t := range sources {
		if !t.recoverable && !slices.Contains(m.cfg.RecoverableJobs, t.id.Job) {
			return false
		}
	}
	return len(sources) > 0
}

// endReplacedPolls tells the lives that were replaced in this step, at its end (C-ORD-3).
func (m *Machine) endReplacedPolls() {
	for _, w := range m.replacedPolls {
		m.answer(w, nil, serry.ErrStale)
	}
	clear(m.replacedPolls)
	m.replacedPolls = m.replacedPolls[:0]
}

// endPoll answers the poll of a task, if it has one. A poll never succeeds: to a client its end
// means that the job has ended, and the error says how.
func (m *Machine) endPoll(t *task, err error) {
	m.answer(t.poll, nil, err)
	t.poll = nil
}

// serve waits for the first error of the job (C-POLL). The first poll of an epoch changes how
// errors are told from then on (C-PROP-2), whatever is answered to it.
func (ev PollForError) serve(m *Machine, w *waiter) (Result, error) {
	if m.stopped {
		return nil, serry.ErrStopped
	}
	if !m.cfg.ErrorsByBeat && !m.ep.polling {
		m.ep.polling = true
		m.touch()
	}
	t, err := m.caller(w)
	switch {
	case err != nil:
		return nil, err
	case t.state == serry.Disconnected && !m.withinGrace(t):
		return nil, serry.ErrNotRegistered
	case t.state == serry.Failed:
		return nil, alreadyFailed(t)
	case m.ep.pollError != nil:
		return nil, m.ep.pollError
	case m.cfg.ErrorsByBeat: // C-POLL-11
		return nil, serry.ErrCancelled
	}
	m.endPoll(t, serry.ErrSuperseded)
	t.poll = w
	return m.hold(w, waitPoll)
}

// serve judges a heartbeat that the owner's table did not answer (C-HB). Good heartbeats never
// come here, so most of these are of a life that the service does not expect. In a job whose
// tasks cannot come back, that is the proof of a second process with the same task, and the end
// of the job (C-HB-5).
func (ev Heartbeat) serve(m *Machine, w *waiter) (Result, error) {
	t := m.task(ev.Task)
	switch {
	case m.stopped:
		return nil, serry.ErrStopped
	case t == nil:
		return nil, serry.ErrUnknownTask
	case m.formerLives[ev.Incarnation] && m.isUnknown(ev.Incarnation): // C-EPOCH-5
		return nil, &serry.MismatchError{Requested: m.formerService, Current: m.ep.service}
	case t.state == serry.Failed:
		return nil, alreadyFailed(t)
	case t.state == serry.Disconnected && !m.withinGrace(t):
		return nil, serry.ErrNotRegistered
	case m.cfg.ErrorsByBeat && m.replaced(w): // no poll would tell it
		return nil, serry.ErrStale
	case ev.Incarnation == t.inc || t.recoverable:
		return Registered{Service: m.ep.service}, nil
	}
	err := &serry.TaskError{Task: t.id, Incarnation: t.inc, Was: t.inc, Now: ev.Incarnation, Err: serry.ErrWrongBeat}
	m.fail(t, err)
	m.propagate(err, []*task{t})
	return nil, err
}

// alreadyFailed is the answer to a task that calls as if nothing had happened.
func alreadyFailed(t *task) error {
	return &serry.TaskError{Task: t.id, Incarnation: t.inc, Reason: t.err, Err: serry.ErrAlreadyFailed}
}

// isUnknown says whether no task of this epoch has registered with an incarnation.
func (m *Machine) isUnknown(inc serry.Incarnation) bool {
	_, known := m.ep.known[inc]
	return !known
}

// unavailable says whether the error is one that a heartbeat time-out leaves, or looks like one:
// a task may come back from it (C-REG-6).
func unavailable(err *serry.TaskError) bool {
	const codeUnavailable = 14
	return errors.Is(err, serry.ErrTaskDead) || errors.Is(err, serry.ErrReported) && err.Code == codeUnavailable
}

// ofCluster says whether the error came upon all tasks at once. Then no task can come back alone.
func ofCluster(err *serry.TaskError) bool {
	return slices.Contains([]error{serry.ErrPeerFailed, serry.ErrRegistrationFailed, serry.ErrShutdownFailed}, err.Err)
}
