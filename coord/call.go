package coord

import (
	"errors"
	"slices"
	"strconv"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/plant"
)

// A waiter is a call that has been taken and, as long as it is held, where its answer goes.
type waiter struct {
	req      Req // 0: nobody waits for the reply
	id       RequestID
	task     serry.TaskID
	inc      serry.Incarnation
	kind     waitKind
	list     *waiters // that it is in, or nil
	key      string   // of a get: as the caller wrote it; of a watch of keys: the directory
	counted  bool     // against the limits on waiters
	answered bool
	result   Result // once answered, for calls with an id
	err      error
	register RegisterTask // of a newcomer
	replayed bool
}

// A waitKind says what a held call waits for, and so what its cancellation means.
type waitKind int

const (
	waitNothing waitKind = iota
	waitRegister
	waitNewcomer
	waitPoll
	waitWatch
	waitGet
	waitKeys
	waitBarrier
	waitShutdown
	waitDevices
	waitAlive
)

// waiters is a list of held calls in the order they came. A cancelled call stays in it until half
// of the list is dead, so that 100,000 abandoned gets cost their cancellation nothing.
type waiters struct {
	all  []*waiter
	dead int
}

func (l *waiters) add(w *waiter) {
	w.list = l
	l.all = append(l.all, w)
}

func (l *waiters) live() int { return len(l.all) - l.dead }

// first is the oldest call that is still waiting.
func (l *waiters) first() *waiter {
	return l.all[slices.IndexFunc(l.all, func(w *waiter) bool { return !w.answered })]
}

// bury notes that one of the calls was cancelled.
func (l *waiters) bury() {
	if l.dead++; 2*l.dead > len(l.all) {
		l.all = slices.DeleteFunc(l.all, func(w *waiter) bool { return w.answered })
		l.dead = 0
	}
}

// take empties the list and returns who was in it, cancelled calls left out.
func (l *waiters) take() []*waiter {
	all := slices.DeleteFunc(l.all, func(w *waiter) bool { return w.answered })
	*l = waiters{}
	for _, w := range all {
		w.list = nil
	}
	return all
}

// enter takes a call. It is not fresh if its request id shows that it was taken before; then it
// has been dealt with (C-REQ-2). A vital one is never refused for a limit (C-LIM-1).
func (m *Machine) enter(ev Event, c Call) (w *waiter, fresh bool) {
	row := ev.kind().Row()
	w = &waiter{req: c.Req, id: c.ID, task: c.Task, inc: c.Incarnation, replayed: c.Replayed}
	if c.ID.Requester == 0 || !row.Once || m.cfg.has(plant.NoRequestTable) || m.comesLate(w) {
		w.id = RequestID{}
		return w, true
	}
	if err := m.mayEnter(w, row); err != nil && !row.Vital {
		m.reply(c.Req, nil, err)
		return nil, false
	}
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
	default: // the new handle takes the place of the old one, silently
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

// comesLate says whether a call comes from a life of which nothing is kept any more, because another has
// taken its place (C-REQ-3). Every method refuses it as stale. If that were remembered, nothing would ever
// end it: the life has departed.
func (m *Machine) comesLate(w *waiter) bool {
	return m.ep.requesters[w.id.Requester] == nil && m.replaced(w)
}

// outlived says whether a registration, now repeated, was accepted, and its life was lost since then. The
// answer of then would make the caller a member that has failed; this one may come back (C-REG-6).
func (m *Machine) outlived(old *waiter, ev Event) bool {
	again, registers := ev.(RegisterTask)
	if !registers || !old.answered || old.err != nil {
		return false
	}
	t := m.task(again.Task)
	return t != nil && t.inc == again.Incarnation && t.state == serry.Failed && errors.Is(t.err, serry.ErrTaskDead)
}

// Taken says whether a call was taken before, by its request id (C-REQ-2). An owner that refuses calls for
// reasons of its own must not refuse such a one: it may have had its effect.
func (m *Machine) Taken(c Call) bool {
	r := m.ep.requesters[c.ID.Requester]
	return r != nil && (r.calls[c.ID.Number] != nil || c.ID.Number <= r.watermark)
}

// mayEnter says whether a call with an id may be taken. What it asks of waiting calls it asks before
// anything is kept, because a refusal for them must leave no trace: no journal has it.
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

// checkLength refuses lists of tasks that are longer than any cluster. Who asks for states gets an entry
// for each task that it lists, so there the list is no longer than this cluster.
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

// A requester is who sends calls with request ids. Results are kept until they are acknowledged.
type requester struct {
	inc       serry.Incarnation // whose departure ends it, or 0
	watermark uint64            // all numbers up to here were answered and delivered
	calls     map[uint64]*waiter
}

// requester finds or makes the record of who sends w, a call with an id.
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

// dropRequester frees everything that is kept for a requester.
func (m *Machine) dropRequester(id uint64) {
	if r := m.ep.requesters[id]; r != nil {
		m.ep.requestersOf.remove(r.inc, id)
		delete(m.ep.requesters, id)
		m.ep.givenUp = true
		m.touch()
	}
}

// dropRequesters frees what was kept for the calls of a life that is over (C-REQ-3).
func (m *Machine) dropRequesters(inc serry.Incarnation) {
	for id := range m.ep.requestersOf[inc] {
		m.dropRequester(id)
	}
}

// requestersOf finds the requesters of a life, so that its end costs no look at those of others. Life 0
// is none.
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

// remember puts a call that was taken in another epoch into the table of this one.
func (m *Machine) remember(w *waiter) {
	if w.id.Requester != 0 {
		m.requester(w).calls[w.id.Number] = w
	}
}

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

// delivered frees the results up to a watermark. It looks at the numbers up to there or at the calls that
// are kept, whichever are fewer: a requester may skip numbers, and one call that waits for long holds up
// those of thousands after it.
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
func (m *Machine) forget(w *waiter) {
	if m.remembered(w) {
		delete(m.ep.requesters[w.id.Requester].calls, w.id.Number)
		m.touch()
	}
}

// remembered says whether a call is in the table of request ids.
func (m *Machine) remembered(w *waiter) bool {
	r := m.ep.requesters[w.id.Requester]
	return r != nil && r.calls[w.id.Number] == w
}

// hold keeps a call for a later answer.
func (m *Machine) hold(w *waiter, kind waitKind) {
	w.kind = kind
	if w.req == 0 {
		return
	}
	m.waiting[w.req] = w
	switch kind {
	case waitRegister, waitNewcomer, waitPoll, waitShutdown: // vital
	default:
		w.counted = true
		m.ep.held[w.inc]++
		m.ep.heldInAll++
	}
}

// mayWait says whether the limits allow another held call of this caller. Registrations, polls
// and shutdowns are not asked (C-LIM-1).
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

// answer ends a call. A call is answered once; later answers are dropped.
func (m *Machine) answer(w *waiter, result Result, err error) {
	if w == nil || w.answered {
		return
	}
	m.unhold(w)
	w.answered = true
	if w.id.Requester != 0 {
		w.result, w.err = result, err
		m.touch()
		if r := m.ep.requesters[w.id.Requester]; r != nil && w.id.Number <= r.watermark && r.calls[w.id.Number] == w {
			delete(r.calls, w.id.Number) // it was given up, so nobody will ask for the result
		}
	}
	m.reply(w.req, result, err)
}

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

func (m *Machine) reply(req Req, result Result, err error) {
	if req != 0 {
		m.emit(Reply{Req: req, Result: result, Err: err})
	}
}

// cancel frees the waiter of a call that nobody waits for any more. What it did stays done:
// arrivals survive, but for one at the register barrier (C-WIRE-6, C-REG-15).
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
	case waitPoll:
		if t := m.task(w.task); t != nil && t.poll == w {
			t.poll = nil
		}
	case waitNewcomer, waitWatch, waitGet, waitKeys:
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

// leaveList takes a cancelled call out of the list it waits in.
func (m *Machine) leaveList(w *waiter) {
	l := w.list
	if l == nil || !w.answered {
		return
	}
	m.forget(w)
	l.bury()
	switch {
	case l.live() > 0:
	case w.kind == waitGet:
		delete(m.ep.gets, normalise(w.key))
	case w.kind == waitKeys:
		delete(m.ep.changes.watchers, watchedAs(w.key))
	}
}
