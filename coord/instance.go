package coord

import (
	"cmp"
	"slices"

	"github.com/serry-dev/serry"
)

// How an instance of a barrier opens, fills and ends, and what is remembered of it.

// openBarrier begins an instance. Its deadline is that of the call that opens it; the timeouts of
// the other members do not count (C-BAR-7).
func (m *Machine) openBarrier(b *barrier, counter int64, deadline Time) {
	m.touch()
	b.counter, b.open = counter, true
	b.slots, b.arrived, b.first = make([]slot, m.size(b)), 0, serry.TaskID{}
	b.since, b.deadline = m.now, deadline
	m.ep.weigh(b)
	m.nextTurn(b)
	m.listOpen(b)
}

// listOpen puts an open barrier where its deadline, and where its members, find it.
func (m *Machine) listOpen(b *barrier) {
	turn := barrierTurn{b, b.turn}
	m.ep.deadlines.tree.ReplaceOrInsert(b)
	if b.members == nil {
		m.ep.open.add(turn)
	}
	for _, at := range b.members {
		m.ep.tasks[at].open.add(turn)
	}
}

// closeBarrier takes the open instance out of the set of open ones. The lists of its members drop
// it by themselves, because it takes its next turn.
func (m *Machine) closeBarrier(b *barrier) {
	m.touch()
	m.ep.deadlines.tree.Delete(b) // by its turn, before it takes the next
	b.open = false
	b.slots = nil
	m.nextTurn(b)
}

// wait makes w the call that stands for the member in the open instance (C-BAR-9, C-REG-10). An
// older call of the same member ends, because one answer is enough, and a client that calls again
// has given the first call up. The arrival stays.
func (m *Machine) wait(b *barrier, t *task, w *waiter) {
	s := &b.slots[b.position(t)]
	if old := s.w; old != nil && old != w {
		if b.kind == registerBarrier {
			m.answer(old, nil, serry.ErrSuperseded)
		} else {
			m.answer(old, nil, &serry.BarrierError{ID: b.id, Counter: b.counter, Task: t.id, Err: serry.ErrSuperseded})
		}
	}
	s.w = w
}

// arrive counts a member once, and ends the instance with the last (C-BAR-13). When all have met,
// none of them is out of step any more (C-SYNC-4).
func (m *Machine) arrive(b *barrier, t *task, a arrival) {
	m.touch()
	if b.first.IsZero() {
		b.first = t.id
	}
	s := &b.slots[b.position(t)]
	if !s.arrived { // a member that calls twice counts once
		s.arrived = true
		b.arrived++
	}
	a.at = t.at
	s.arrival, s.restarted = a, false
	if b.arrived == len(b.slots) {
		for u := range m.membersOf(b) {
			u.unsynced = false
		}
		m.finish(b, nil)
	} else {
		m.planScan()
	}
}

// takeBack undoes an arrival.
func (b *barrier) takeBack(s *slot) {
	*s = slot{}
	b.arrived--
	if b.arrived == 0 {
		b.first = serry.TaskID{}
	}
}

// finish ends the open instance, answers every call that waits, and only then lets the
// consequences come (C-BAR-14, C-ORD-4): a member must hear how its barrier ended before it hears
// what follows from that.
func (m *Machine) finish(b *barrier, err error) {
	slots := b.slots
	missing := m.missing(b) // while the slots are there
	m.closeBarrier(b)
	m.hasEnded(b, err)
	b.remember(slots)
	m.ep.weigh(b)
	for m.ep.weight > maxWeight && m.forgetBarrier() {
		// Many barriers of many tasks have failed: the oldest results go.
	}
	// The result is stored by now, so a call that is answered below and repeated at once finds
	// it.
	m.note(Note{What: "barrier ended", Barrier: b.id, Counter: b.counter, Count: b.arrived, Of: len(slots), Since: b.since, Err: err})
	switch {
	case b.kind == registerBarrier && err == nil:
		m.allRegistered(slots)
	case b.kind == shutdownBarrier && err == nil:
		m.allLeave(b, slots)
	case b.kind == shutdownBarrier:
		m.shutdownFailedForAll(b, slots, missing)
	default:
		if b.kind == deviceBarrier {
			m.joinDevices()
		}
		for i := range slots {
			if w := slots[i].w; w != nil {
				result, err := m.outcome(w, b.instance)
				m.answer(w, result, err)
			}
		}
		if b.kind == registerBarrier {
			m.registrationFailed(err)
		}
	}
}

// remember keeps of the slots what repeated calls will need (C-BAR-24). The common case, in which
// everyone arrived with the right counter, needs no list: see arrivalOf.
func (b *barrier) remember(slots []slot) {
	b.everyone = true
	for i := range slots {
		b.everyone = b.everyone && slots[i].arrived && !slots[i].restarted && slots[i].sent == b.counter
	}
	if b.everyone {
		b.past = nil
		return
	}
	for i := range slots {
		if slots[i].arrived {
			b.arrivals = append(b.arrivals, slots[i].arrival)
		}
	}
}

// outcome is the answer of an instance that has ended to a call.
func (m *Machine) outcome(w *waiter, i instance) (Result, error) {
	switch {
	case i.err != nil:
		return nil, i.err
	case w.kind == waitDevices:
		return AllDevices{Devices: m.ep.joined}, nil
	}
	return Passed{Counter: i.counter}, nil
}

// repeated finds the instance that a call repeats: the same life of the member, with the same
// counter, has arrived there last (C-REQ-4). So a caller without request ids may ask again after
// its connection broke, and hears how that instance ended, also if the next one has begun.
func (b *barrier) repeated(t *task, a arrival) *instance {
	if i, last, ok := b.lastArrival(t); ok && last.inc == a.inc && last.sent == a.sent {
		return i
	}
	return nil
}

// hasMet says whether this life of the task has arrived at the barrier before. A restarted member
// has not.
func (b *barrier) hasMet(t *task, inc serry.Incarnation) bool {
	_, last, ok := b.lastArrival(t)
	return ok && last.inc == inc
}

// lastArrival finds where a task arrived last: in the present instance, or else in the latest
// earlier one that is remembered.
func (b *barrier) lastArrival(t *task) (*instance, arrival, bool) {
	if b.fixed && b.position(t) < 0 {
		return nil, arrival{}, false
	}
	if b.open {
		if s := b.slots[b.position(t)]; s.arrived {
			return &b.instance, s.arrival, true
		}
	} else if a, ok := b.instance.arrivalOf(t); ok {
		return &b.instance, a, true
	}
	for i := len(b.past) - 1; i >= 0; i-- {
		if a, ok := b.past[i].arrivalOf(t); ok {
			return &b.past[i], a, true
		}
	}
	return nil, arrival{}, false
}

// arrivalOf says how a member arrived at an instance that has ended. Where everyone did, the
// version tells whether it was its present life: the instance ended at a version, and a life that
// registered at a later one was not there.
func (i *instance) arrivalOf(t *task) (arrival, bool) {
	if i.everyone {
		return arrival{at: t.at, inc: t.inc, sent: i.counter}, t.registered <= i.ended
	}
	at, ok := slices.BinarySearchFunc(i.arrivals, t.at, func(a arrival, at index) int { return int(a.at - at) })
	if !ok {
		return arrival{}, false
	}
	return i.arrivals[at], true
}

// expire ends a barrier whose time is over, with the names of the members that are missing
// (C-BAR-15).
func (m *Machine) expire(b *barrier) { m.finish(b, m.barrierError(b, serry.ErrTimeout)) }

// leaveBarriers takes a task that failed, left or restarted out of every open barrier. Where it
// cannot come back the barrier fails (C-BAR-16), whether the task had arrived or not: the others
// expect it to go on with them. Where it can, the barrier waits for it, and its arrival is taken
// back (C-BAR-18). With ExcludeUnsynced the arrival is kept and marked, so that a barrier which
// waits only for restarted tasks can pass without them (C-SYNC-2).
//
// The register barrier is left alone: arrivals there are withdrawn by the end of their calls
// (C-REG-15). So is the shutdown barrier for a task whose process ended well, which counts as
// arrived there.
//
// The end of one barrier may end others, by a failed shutdown for example. So the list is made
// first, and an entry that is over when its turn comes is passed over.
func (m *Machine) leaveBarriers(t *task, reason error) {
	for _, turn := range m.openOf(t) {
		b := turn.barrier
		if turn.over() || b.kind == registerBarrier || b.kind == shutdownBarrier && t.exited {
			continue
		}
		if !t.recoverable {
			err := m.barrierError(b, serry.ErrMemberLost)
			err.Task, err.Reason = t.id, reason
			m.finish(b, err)
			continue
		}
		// The barrier goes on without the arrival. The call that waits, if one does, is of a
		// process that is gone or has been replaced.
		s := &b.slots[b.position(t)]
		old := s.w
		s.w = nil
		switch {
		case s.arrived && m.cfg.ExcludeUnsynced: // C-SYNC-2
			s.restarted = true
		case s.arrived:
			b.takeBack(s)
		}
		m.answer(old, nil, &serry.BarrierError{ID: b.id, Counter: b.counter, Task: t.id, Reason: reason, Err: serry.ErrWithdrawn})
	}
}

// openOf lists the open barriers that a task is a member of, in the order they were opened. Those
// of all tasks are in one list of the epoch, so that to open one does not touch ten thousand
// lists.
func (m *Machine) openOf(t *task) []barrierTurn {
	return inTurn(slices.Concat(t.open.live(), m.ep.open.live()))
}

// allOpen lists all open barriers in the order they were opened. The tree of deadlines has them
// all, but in its own order.
func (m *Machine) allOpen() []barrierTurn {
	var all []barrierTurn
	m.ep.deadlines.tree.Ascend(func(b *barrier) bool {
		all = append(all, barrierTurn{b, b.turn})
		return true
	})
	return inTurn(all)
}

func inTurn(all []barrierTurn) []barrierTurn {
	slices.SortFunc(all, func(a, b barrierTurn) int { return cmp.Compare(a.at, b.at) })
	return all
}
