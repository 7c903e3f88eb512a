package coord

import (
	"slices"

	"github.com/serry-dev/serry"
)

// A waiter is a call that the machine has accepted. As long as the call is held, the waiter says
// where its answer goes; if the call has a request id, the waiter stays after the answer, to give
// it once more.
//
// A waiter is never a goroutine: a machine with a hundred thousand waiting gets has a hundred
// thousand of these structs, and the answer to all of them is one loop. It is in up to three
// places: in waiting, by its Req; in the list or the barrier at which it waits; and in the table
// of request ids. The end of a call takes it out of the first, and marks it as answered for the
// lists; it stays in the table until it is acknowledged.
type waiter struct {
	req      Req // 0: no caller waits for the reply
	id       RequestID
	task     serry.TaskID
	inc      serry.Incarnation
	kind     waitKind
	list     *waiters // that it is in, or nil
	key      string   // of a get: as the caller wrote it; of a watch of keys: the directory; of one of tasks: the job
	counted  bool     // against the limits on waiters
	answered bool
	result   Result // once answered, for calls with an id
	err      error
	register RegisterTask // of a newcomer
	replayed bool
}

// over says whether a list may forget the call.
func (w *waiter) over() bool { return w.answered }

// A waitKind says what a held call waits for, and so what its cancellation means. Barriers,
// shutdowns and devices need no case there: their arrival stays, and the slot keeps the waiter
// for a repeated call.
type waitKind int

const (
	waitNothing  waitKind = iota
	waitRegister          // for the others, at the register barrier
	waitNewcomer          // for the next epoch
	waitPoll              // for the first error of the job
	waitWatch             // for a change of the tasks
	waitGet               // for a value
	waitKeys              // for a change of keys
	waitBarrier
	waitShutdown
	waitDevices
	waitAlive
)

// waiters is a list of held calls in the order they came. A cancelled call stays in it until half
// of the list is cancelled, so that 100,000 abandoned gets cost their cancellation nothing.
type waiters struct {
	all  []*waiter
	dead int
}

// add appends a call.
func (l *waiters) add(w *waiter) {
	w.list = l
	l.all = append(l.all, w)
}

// live is how many calls still wait.
func (l *waiters) live() int { return len(l.all) - l.dead }

// first is the oldest call that is still waiting.
func (l *waiters) first() *waiter {
	return l.all[slices.IndexFunc(l.all, func(w *waiter) bool { return !w.answered })]
}

// noteCancelled counts a call of the list that was cancelled.
func (l *waiters) noteCancelled() {
	if l.dead++; 2*l.dead > len(l.all) {
		l.all = slices.DeleteFunc(l.all, (*waiter).over)
		l.dead = 0
	}
}

// take empties the list and returns the calls that were in it, cancelled ones left out.
func (l *waiters) take() []*waiter {
	all := slices.DeleteFunc(l.all, (*waiter).over)
	*l = waiters{}
	for _, w := range all {
		w.list = nil
	}
	return all
}

// hold keeps a call for a later answer. It returns what serve returns for such a call: nothing.
//
// A call without a Req counts where it waits, like any other: it has arrived at its barrier, or
// is in its list. Only no reply will leave for it.
func (m *Machine) hold(w *waiter, kind waitKind) (Result, error) {
	w.kind = kind
	if w.req == 0 {
		return nil, nil
	}
	m.waiting[w.req] = w
	switch kind {
	case waitRegister, waitNewcomer, waitPoll, waitShutdown: // vital: no limit counts them
	default:
		w.counted = true
		m.ep.held[w.inc]++
		m.ep.heldInAll++
	}
	return nil, nil
}

// mayWait says whether the limits allow another held call of this caller. Registrations, polls
// and shutdowns are not asked (C-LIM-1). Nor are calls from a journal: they were accepted when
// they came.
func (m *Machine) mayWait(w *waiter) error {
	switch l := m.cfg.Limits; {
	case w.replayed:
		return nil
	case m.ep.heldInAll >= l.Waiters:
		return &serry.LimitError{Limit: "waiters", Max: int64(l.Waiters)}
	case m.ep.held[w.inc] >= l.TaskWaiters && w.inc != 0:
		return &serry.LimitError{Limit: "task-waiters", Max: int64(l.TaskWaiters)}
	}
	return nil
}

// answer ends a call with a result or an error. A call is answered once; later answers are
// dropped. So a handler may answer a call that the end of a barrier has answered on the way,
// without asking.
func (m *Machine) answer(w *waiter, result Result, err error) {
	if w == nil || w.answered {
		return
	}
	if err != nil {
		result = nil
	}
	m.unhold(w)
	w.answered = true
	if w.id.Requester != 0 {
		w.result, w.err = result, err
		m.touch()
		if r := m.ep.requesters[w.id.Requester]; r != nil && w.id.Number <= r.watermark && r.calls[w.id.Number] == w {
			delete(r.calls, w.id.Number) // the requester gave it up, and will not ask for the result
		}
	}
	m.reply(w.req, result, err)
}

// unhold takes a call out of the counts against the limits, and out of the calls that a
// cancellation finds by their Req. It is the first step of every end of a call: an answer, a
// cancellation, a withdrawn registration.
func (m *Machine) unhold(w *waiter) {
	delete(m.waiting, w.req)
	if w.counted {
		w.counted = false
		m.ep.heldInAll--
		if m.ep.held[w.inc]--; m.ep.held[w.inc] <= 0 {
			delete(m.ep.held, w.inc)
		}
	}
}

// reply lets a reply leave, unless no caller waits for it.
func (m *Machine) reply(req Req, result Result, err error) {
	if req != 0 {
		m.emit(Reply{Req: req, Result: result, Err: err})
	}
}

// cancel frees the waiter of a call that its caller has given up. What the call did stays done:
// arrivals survive, but for one at the register barrier (C-WIRE-6, C-REG-15).
//
// A barrier must keep the arrival of a caller whose connection broke, since it may come back
// through another connection and ask again. A registration must not: the barrier would connect a
// process that may be dead.
func (m *Machine) cancel(req Req) {
	w := m.waiting[req]
	if w == nil {
		return
	}
	m.unhold(w)
	w.req = 0
	switch w.kind {
	case waitRegister:
		m.withdraw(w)
	case waitPoll: // a client that repeats its poll is told the same, so nothing else is kept
		if t := m.task(w.task); t != nil && t.poll == w {
			t.poll = nil
		}
	case waitNewcomer, waitWatch, waitGet, waitKeys: // these have done nothing yet
		if w.kind == waitNewcomer {
			m.touch()
		}
		w.answered = true
		m.leaveList(w)
	case waitAlive:
		m.ep.givenUp = true
		if w.id.Requester == 0 { // which sets are abandoned is what a journal says (forgetAbandoned)
			m.touch()
			w.answered = true
			m.leaveList(w)
		}
	}
}

// leaveList takes a cancelled call out of the list it waits in, and the list away if it was the
// last.
func (m *Machine) leaveList(w *waiter) {
	l := w.list
	if l == nil || !w.answered {
		return
	}
	m.forget(w)
	l.noteCancelled()
	switch {
	case l.live() > 0:
	case w.kind == waitGet:
		delete(m.ep.gets, normalise(w.key))
	case w.kind == waitKeys:
		delete(m.ep.changes.watchers, watchedAs(w.key))
	}
}
