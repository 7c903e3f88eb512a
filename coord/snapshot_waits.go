package coord

import (
	"cmp"
	"maps"
	"slices"

	"github.com/serry-dev/serry"
)

// What a snapshot holds of barriers, alive sets and newcomers, and of the calls that wait there.
//
// A call that waits is written only if a later event can find it again: by its request id, or because
// a cancellation in the journal names its Req. Of all other calls the arrival is what counts, and
// it is written with the barrier or the set. After Resume their callers ask again and are found
// by task and incarnation.
//
// barriers writes the three barriers of the service, and those of clients in the order of their
// ids. Open ones are put back into the lists of their members and into the tree of deadlines in
// the order in which they were opened, because replies follow that order.
func (c *coder) barriers(m *Machine) {
	ep := m.ep
	for _, b := range []*barrier{ep.register, ep.shutdown, ep.devices} {
		c.barrier(m, b)
	}
	ascending(c, &ep.barriers, func(id string, b **barrier) {
		if c.reading {
			*b = newBarrier(id, userBarrier)
		}
		c.barrier(m, *b)
	})
	if !c.reading || c.err != nil {
		return
	}
	// Ids are in the order of their bytes here. The lists of members must be in the order in
	// which the barriers were opened, because that is the order in which a failure ends them.
	slices.SortFunc(c.open, func(a, b *barrier) int { return cmp.Compare(a.turn, b.turn) })
	for i, b := range c.open {
		if b.turn > m.turns || i > 0 && b.turn <= c.open[i-1].turn {
			c.failf("barrier %q is number %d of %d", b.id, b.turn, m.turns)
			return
		}
		m.listOpen(b)
	}
}

// endedBarriers writes in which order the barriers have ended, which is the order in which they
// are forgotten. It stands at the end of a snapshot, since snapshots of earlier builds end before
// it: there the order is that of the ids, which is as good as any.
func (c *coder) endedBarriers(m *Machine) {
	if c.reading && (c.err != nil || len(c.b) == 0) {
		for _, id := range slices.Sorted(maps.Keys(m.ep.barriers)) {
			if b := m.ep.barriers[id]; !b.open {
				m.ep.ended.add(m.nextTurn(b))
			}
		}
		return
	}
	// Turns are written and not only the order: later turns must be above them, in every machine
	// alike.
	c.flags(&m.ep.forgot)
	var ended []*barrier
	for _, id := range slices.Sorted(maps.Keys(m.ep.barriers)) {
		if b := m.ep.barriers[id]; !b.open {
			unsigned(c, &b.turn)
			ended = append(ended, b)
		}
	}
	if !c.reading {
		return
	}
	slices.SortFunc(ended, func(a, b *barrier) int { return cmp.Compare(a.turn, b.turn) })
	for i, b := range ended {
		if b.turn > m.turns || i > 0 && b.turn <= ended[i-1].turn {
			c.failf("barrier %q ended as number %d of %d", b.id, b.turn, m.turns)
			return
		}
		m.ep.ended.add(barrierTurn{b, b.turn})
	}
}

// barrier lists the fields of a barrier, and the slots of its open instance. A barrier that is
// open although all have come, or has members that its kind cannot have, is an error.
func (c *coder) barrier(m *Machine, b *barrier) {
	some := b.members != nil
	c.flags(&b.fixed, &b.open, &some)
	if some {
		c.members(m.ep, &b.members)
	}
	c.instance(m.ep, &b.instance)
	list(c, &b.past, func(i *instance) { c.instance(m.ep, i) })
	if c.reading {
		m.ep.weigh(b)
	}
	if some && b.kind != userBarrier && b.kind != shutdownBarrier || len(b.past) > maxPast {
		c.failf("barrier %q has members or a past that it cannot have", b.id)
	}
	if !b.open || c.err != nil {
		return
	}
	// The open instance. Its slots are written in the order of the members, so their numbers need
	// not be.
	unsigned(c, &b.turn)
	c.task(&b.first)
	signed(c, &b.since)
	signed(c, &b.deadline)
	// A slot takes a byte or more, so there cannot be more members than bytes are left.
	if c.reading {
		if m.size(b) > len(c.b) {
			c.fail(errShort)
			return
		}
		b.slots = make([]slot, m.size(b))
		c.open = append(c.open, b)
	}
	for t := range m.membersOf(b) {
		c.slot(m, b, t)
	}
	if b.arrived == len(b.slots) {
		c.failf("barrier %q is open though all have come", b.id)
	}
}

// members writes some tasks in ascending order, at least one.
func (c *coder) members(ep *epoch, p *[]index) {
	last := index(-1)
	list(c, p, func(at *index) {
		c.index(ep, at)
		if *at <= last {
			c.failf("member %d is out of order", *at)
		}
		last = *at
	})
	if len(*p) == 0 {
		c.failf("no members")
	}
}

// instance lists the fields of an instance: what a repeated call needs to hear how it ended.
func (c *coder) instance(ep *epoch, i *instance) {
	signed(c, &i.counter)
	c.error(&i.err)
	signed(c, &i.ended)
	c.flags(&i.everyone)
	list(c, &i.arrivals, func(a *arrival) {
		c.index(ep, &a.at)
		c.arrival(a)
	})
}

func (c *coder) arrival(a *arrival) {
	unsigned(c, &a.inc)
	signed(c, &a.sent)
}

// slot writes the place of a member in the open instance: whether it has arrived, and the call
// that waits there if it can be found again. At the register barrier, every arrival has a call,
// because arrivals there end with their calls (C-REG-15).
func (c *coder) slot(m *Machine, b *barrier, t *task) {
	s := &b.slots[b.position(t)]
	waits := s.w != nil && (b.kind == registerBarrier || m.remembered(s.w))
	c.flags(&s.arrived, &s.restarted, &waits)
	if s.arrived {
		c.arrival(&s.arrival)
	}
	if waits {
		if c.reading {
			s.w = &waiter{task: t.id, inc: s.inc, kind: b.waitKind()}
		}
		c.waiter(m, s.w)
	}
	// A call waits only for a member that has arrived, and the register barrier has no other
	// arrivals.
	if !s.arrived && (waits || s.restarted) || s.arrived && !waits && b.kind == registerBarrier {
		c.failf("%v at barrier %q: arrived %v, waits %v", t.id, b.id, s.arrived, waits)
	}
	if c.reading && s.arrived {
		s.at = t.at
		b.arrived++
	}
}

// waitKind is how calls wait at the barrier, and so what their cancellation means.
func (b *barrier) waitKind() waitKind {
	switch b.kind {
	case registerBarrier:
		return waitRegister
	case shutdownBarrier:
		return waitShutdown
	case deviceBarrier:
		return waitDevices
	}
	return waitBarrier
}

// waiter writes how a waiting call is found again: by its request id, and by its Req where a
// cancellation in the journal may name it. A call that is no longer in the table of request ids
// is written like one without an id; only a newcomer keeps it, for the table of the next epoch.
func (c *coder) waiter(m *Machine, w *waiter) {
	remembered, id := m.remembered(w), w.id
	if !remembered && w.kind != waitNewcomer {
		id = RequestID{} // it is like a call without an id: no repeated call finds it
	}
	c.flags(&remembered)
	unsigned(c, &id.Requester)
	unsigned(c, &id.Number)
	if c.reading {
		w.id = id
	}
	// These calls end with their cancellation, which is journaled and names the Req. The
	// cancellation of all others changes nothing that a journal holds.
	if w.kind == waitRegister || w.kind == waitNewcomer || w.kind == waitAlive && !remembered {
		unsigned(c, &w.req)
	}
	if c.reading && c.err == nil {
		c.keepWaiter(m, w, remembered)
	}
}

// keepWaiter puts a call that was read where cancellations and repeated calls look for it.
func (c *coder) keepWaiter(m *Machine, w *waiter, remembered bool) {
	if w.req != 0 {
		if m.waiting[w.req] != nil {
			c.failf("two calls wait as #%d", w.req)
		}
		m.waiting[w.req] = w
	}
	if !remembered {
		return
	}
	// The requester was read before; it has no other call of this number, answered or not.
	r := m.ep.requesters[w.id.Requester]
	if r == nil || r.calls[w.id.Number] != nil {
		c.failf("call %d of requester %d waits, which cannot be", w.id.Number, w.id.Requester)
		return
	}
	r.calls[w.id.Number] = w
}

// groups writes the alive sets in the order in which they were made.
func (c *coder) groups(m *Machine) {
	all := m.ep.order.live()
	list(c, &all, func(p **group) {
		if c.reading {
			*p = new(group)
		}
		c.group(m, *p)
		if !c.reading || c.err != nil {
			return
		}
		if m.ep.groups[(*p).key] != nil {
			c.failf("one alive set is there twice")
		}
		m.addGroup(*p)
	})
	m.ep.givenUp = m.ep.givenUp || c.reading // which calls were given up is not known here
}

// group writes an alive set: the tasks in it, what they said, and the calls that wait. A call
// without an id is written, too, although no caller finds it again: whether a set is abandoned
// depends on it, and so whether there is room for another set.
func (c *coder) group(m *Machine, g *group) {
	var unknown []serry.TaskID
	var waiting []*waiter
	for _, id := range g.asked {
		if m.task(id) == nil {
			unknown = append(unknown, id)
		}
	}
	// Calls that are cancelled, or whose requester was dropped, are left out: they decide nothing
	// any more.
	for _, w := range g.waiters.all {
		if !w.answered && (m.remembered(w) || w.id.Requester == 0) {
			waiting = append(waiting, w)
		}
	}
	slices.SortFunc(unknown, serry.TaskID.Compare)
	unknown = slices.Compact(unknown)
	c.members(m.ep, &g.members)
	list(c, &unknown, c.task)
	// The list that the first caller wrote is not kept. A list in the order of tasks means the
	// same set.
	if c.reading {
		if len(g.members) > len(c.b) {
			c.fail(errShort)
			return
		}
		g.key = groupKey(g.members, unknown)
		g.calls = make([]aliveCall, len(g.members))
		for _, at := range g.members {
			g.asked = append(g.asked, m.ep.tasks[at].id)
		}
		g.asked = append(g.asked, unknown...)
	}
	for i := range g.calls {
		c.aliveCall(&g.calls[i])
	}
	list(c, &waiting, func(p **waiter) {
		if c.reading {
			*p = &waiter{kind: waitAlive}
			g.waiters.add(*p)
		}
		w := *p
		c.task(&w.task)
		c.waiter(m, w)
		if t := m.task(w.task); c.reading && t != nil && g.has(t) {
			g.calls[g.position(t)].by.add(w)
		}
	})
}

// aliveCall writes what a member of a set said, and in which life.
func (c *coder) aliveCall(a *aliveCall) {
	c.flags(&a.asked)
	if a.asked {
		unsigned(c, &a.inc)
		c.value(&a.word)
	}
}

// newcomers writes the registrations that wait for the next epoch, with everything that they will
// need there.
func (c *coder) newcomers(m *Machine) {
	var waiting []*waiter
	for _, w := range m.ep.newcomers.all {
		if !w.answered {
			waiting = append(waiting, w)
		}
	}
	list(c, &waiting, func(p **waiter) {
		if c.reading {
			*p = &waiter{kind: waitNewcomer}
		}
		// The registration is written without its call: Req and request id stand with the waiter.
		w := *p
		c.waiter(m, w)
		c.task(&w.register.Task)
		unsigned(c, &w.register.Incarnation)
		c.flags(&w.register.Recoverable)
		unsigned(c, &w.register.Next)
		if c.reading {
			w.task, w.inc = w.register.Task, w.register.Incarnation
			m.ep.newcomers.add(w)
		}
	})
}
