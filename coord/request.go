package coord

import (
	"errors"
	"strconv"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/plant"
)

// Request ids. A call whose reply was lost with a connection, or with a leader, is sent again,
// and must not act twice: a counter would be incremented by two, and a repeated arrival at one
// barrier would count for the next. So calls of serry's own stream carry an id, and the machine
// keeps what became of each until its sender says that the answer has arrived (C-REQ-1 to
// C-REQ-3). The table is part of the state: it is in snapshots, and a successor answers a
// repeated call as its predecessor did.

// enter accepts a call. It is not fresh if its request id shows that it was accepted before; then
// enter has dealt with it (C-REQ-2):
//
//   - the number is not above the watermark: the sender has the answer, so this copy was under way for long and
//     gets no reply
//   - it was answered: the same answer again
//   - it waits: the new copy takes the place of the old one, silently; an error to the old one would reach the
//     sender under the id for which it still waits
//
// A vital call is never refused for a limit (C-LIM-1).
func (m *Machine) enter(ev Event, c Call) (w *waiter, fresh bool) {
	row := ev.kind().Row()
	// Calls without an id act whenever they come: reads, and all calls of stock clients.
	w = &waiter{req: c.Req, id: c.ID, task: c.Task, inc: c.Incarnation, replayed: c.Replayed}
	if c.ID.Requester == 0 || !row.Once || m.cfg.has(plant.NoRequestTable) || m.comesLate(w) {
		w.id = RequestID{}
		return w, true
	}
	if err := m.mayEnter(w, row); err != nil && !row.Vital {
		m.reply(c.Req, nil, err)
		return nil, false
	}
	// Every call carries the watermark of its sender, so results are freed also where no
	// Acknowledge comes.
	r := m.requester(w)
	m.delivered(r, c.ID.Watermark)
	switch old := r.calls[c.ID.Number]; {
	case c.ID.Number <= r.watermark:
		return nil, false
	case old == nil || m.outlived(old, ev):
		if len(r.calls) >= m.cfg.Limits.RequestResults && !row.Vital {
			m.reply(c.Req, nil, &serry.LimitError{Limit: "request-results", Max: int64(m.cfg.Limits.RequestResults)})
			return nil, false
		}
		r.calls[c.ID.Number] = w
		m.touch()
		return w, true
	case old.answered:
		m.reply(c.Req, old.result, old.err)
	default: // it waits: the new handle takes the place of the old one, silently
		if old.kind == waitRegister || old.kind == waitNewcomer { // its cancellation will have to be found
			m.touch()
		}
		delete(m.waiting, old.req)
		if old.req = c.Req; c.Req != 0 {
			m.waiting[c.Req] = old
		}
	}
	return nil, false
}

// comesLate says whether a call comes from a life of which nothing is kept any more, because
// another has taken its place (C-REQ-3). Every method refuses it as stale. If that refusal were
// remembered, nothing would ever free it: the life has departed, and will not acknowledge it.
func (m *Machine) comesLate(w *waiter) bool {
	return m.ep.requesters[w.id.Requester] == nil && m.replaced(w)
}

// outlived says whether a registration, now repeated, was accepted, and its life was lost since
// then. The answer that is kept would make the caller a member that has failed; the repeated call
// may come back instead (C-REG-6).
func (m *Machine) outlived(old *waiter, ev Event) bool {
	again, registers := ev.(RegisterTask)
	if !registers || !old.answered || old.err != nil {
		return false
	}
	t := m.task(again.Task)
	return t != nil && t.inc == again.Incarnation && t.state == serry.Failed && errors.Is(t.err, serry.ErrTaskDead)
}

// Taken says whether a call was accepted before, by its request id (C-REQ-2). An owner that
// refuses calls for reasons of its own must not refuse such a call: it may have had its effect,
// and its sender would be told that it had none.
func (m *Machine) Taken(c Call) bool {
	r := m.ep.requesters[c.ID.Requester]
	return r != nil && (r.calls[c.ID.Number] != nil || c.ID.Number <= r.watermark)
}

// mayEnter says whether the limits allow a call with an id. A repeated call is always allowed.
// The limit on waiting calls is checked here, before anything is kept, because a refusal must
// leave no trace: how many calls wait is not in the journal, so a successor that replays it could
// not tell why the call was refused.
func (m *Machine) mayEnter(w *waiter, row Row) error {
	r := m.ep.requesters[w.id.Requester]
	if l := m.cfg.Limits.Requesters; r == nil && len(m.ep.requesters) >= l {
		return &serry.LimitError{Limit: "requesters", Max: int64(l)}
	}
	if r != nil && (r.calls[w.id.Number] != nil || w.id.Number <= r.watermark) || w.id.Number <= w.id.Watermark {
		return nil
	}
	if row.Limited() {
		return m.mayWait(w)
	}
	return nil
}

// checkLength refuses lists of tasks that are longer than any cluster. An answer about states has
// an entry for each task of the list, so there the list may be no longer than this cluster.
func (m *Machine) checkLength(ev Event) error {
	n, most := 0, MaxTasks
	switch ev := ev.(type) {
	case Barrier:
		n = len(ev.Tasks)
	case GetAliveTasks:
		n = len(ev.Tasks)
	case GetTaskState:
		n, most = len(ev.Tasks), len(m.ep.tasks)
	}
	if n > most {
		return &serry.InvalidError{What: "a list of " + strconv.Itoa(n) + " tasks is longer than the cluster can be, " + strconv.Itoa(most)}
	}
	return nil
}

// A requester is a sender of calls with request ids: a client, or one connection of a relay.
// Results are kept until they are acknowledged.
type requester struct {
	inc       serry.Incarnation // whose departure ends it, or 0
	watermark uint64            // all numbers up to here were answered and delivered
	calls     map[uint64]*waiter
}

// requester finds or makes the record of the sender of w, a call with an id.
func (m *Machine) requester(w *waiter) *requester {
	r := m.ep.requesters[w.id.Requester]
	if r == nil {
		r = &requester{calls: make(map[uint64]*waiter)}
		m.ep.requesters[w.id.Requester] = r
		m.touch()
	}
	if w.inc != 0 && r.inc != w.inc {
		m.ep.requestersOf.remove(r.inc, w.id.Requester)
		m.ep.requestersOf.add(w.inc, w.id.Requester)
		r.inc = w.inc
		m.touch()
	}
	return r
}

// dropRequester frees everything that is kept for a requester. Calls of it that wait in alive
// sets may be abandoned by that.
func (m *Machine) dropRequester(id uint64) {
	if r := m.ep.requesters[id]; r != nil {
		m.ep.requestersOf.remove(r.inc, id)
		delete(m.ep.requesters, id)
		m.ep.givenUp = true
		m.touch()
	}
}

// dropRequesters frees what was kept for the calls of a life that is over (C-REQ-3). The order
// does not matter: nothing is answered here.
func (m *Machine) dropRequesters(inc serry.Incarnation) {
	for id := range m.ep.requestersOf[inc] {
		m.dropRequester(id)
	}
}

// requestersOf finds the requesters of a life, so that its end costs no look at those of others.
// Incarnation 0 means that the life is not known.
type requestersOf map[serry.Incarnation]map[uint64]struct{}

func (of requestersOf) add(inc serry.Incarnation, id uint64) {
	if inc == 0 {
		return
	}
	if of[inc] == nil {
		of[inc] = make(map[uint64]struct{}, 1)
	}
	of[inc][id] = struct{}{}
}

func (of requestersOf) remove(inc serry.Incarnation, id uint64) {
	if delete(of[inc], id); len(of[inc]) == 0 {
		delete(of, inc)
	}
}

// remember puts a call that was accepted in another epoch into the table of this one: the
// registration that opens an epoch comes in the epoch before.
func (m *Machine) remember(w *waiter) {
	if w.id.Requester != 0 {
		m.requester(w).calls[w.id.Number] = w
	}
}

// acknowledge frees results that have arrived (C-REQ-3). A farewell is the last word of a
// requester.
func (m *Machine) acknowledge(ev Acknowledge) {
	r := m.ep.requesters[ev.Requester]
	switch {
	case r == nil:
	case ev.Farewell:
		m.dropRequester(ev.Requester)
	default:
		m.delivered(r, ev.Watermark)
	}
}

// delivered frees the results up to a watermark. It looks at the numbers up to there or at the
// calls that are kept, whichever are fewer: a requester may skip numbers, and one call that waits
// for long holds up the watermark of thousands after it. A call that still waits is not freed:
// its requester has given it up, and it goes when it is answered.
func (m *Machine) delivered(r *requester, watermark uint64) {
	if watermark <= r.watermark {
		return
	}
	free := func(n uint64, w *waiter) {
		if w != nil && w.answered {
			delete(r.calls, n)
		}
	}
	if watermark-r.watermark <= uint64(len(r.calls)) {
		for n := r.watermark + 1; n <= watermark; n++ {
			free(n, r.calls[n])
		}
	} else {
		for n, w := range r.calls {
			if n <= watermark {
				free(n, w)
			}
		}
	}
	r.watermark = watermark
	m.ep.givenUp = true
	m.touch()
}

// forget takes a call out of the table of request ids, so that it can come again as a new one.
// That is right only for calls that left nothing behind.
func (m *Machine) forget(w *waiter) {
	if m.remembered(w) {
		delete(m.ep.requesters[w.id.Requester].calls, w.id.Number)
		m.touch()
	}
}

// remembered says whether a call is in the table of request ids, so that a repeated call finds
// it.
func (m *Machine) remembered(w *waiter) bool {
	r := m.ep.requesters[w.id.Requester]
	return r != nil && r.calls[w.id.Number] == w
}
