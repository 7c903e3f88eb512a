package coord

import (
	"cmp"
	"maps"
	"slices"

	"github.com/serry-dev/serry"
)

// What a snapshot holds of barriers, alive sets and newcomers, and of the calls that wait there.

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
	slices.SortFunc(c.open, func(a, b *barrier) int { return cmp.Compare(a.turn, b.turn) })
	for i, b := range c.open {
		if b.turn > m.turns || i > 0 && b.turn <= c.open[i-1].turn {
			c.failf("barrier %q is number %d of %d", b.id, b.turn, m.turns)
			return
		}
		m.listOpen(b)
	}
}

// endedBarriers writes in which order the barriers have ended, which is the order in which they are
// forgotten. It stands at the end of a snapshot. Some of version 1 and 2 end before it; there the order is
// that of the ids.
func (c *coder) endedBarriers(m *Machine) {
	if c.reading && (c.err != nil || len(c.b) == 0) {
		for _, id := range slices.Sorted(maps.Keys(m.ep.barriers)) {
			if b := m.ep.barriers[id]; !b.open {
				m.ep.ended.add(m.nextTurn(b))
			}
		}
		return
	}
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
	unsigned(c, &b.turn)
	c.task(&b.first)
	signed(c, &b.since)
	signed(c, &b.deadline)
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

// members writes some tasks in order.
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

// slot writes the place of a member in the open instance.
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
	if !s.arrived && (waits || s.restarted) || s.arrived && !waits && b.kind == registerBarrier {
		c.failf("%v at barrier %q: arrived %v, waits %v", t.id, b.id, s.arrived, waits)
	}
	if c.reading && s.arrived {
		s.at = t.at
		b.arrived++
	}
}

// waitKind is how calls wait at the barrier.
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

// waiter writes how a waiting call is found again: by its id, and by its handle where a cancellation
// in the journal may name it.
func (c *coder) waiter(m *Machine, w *waiter) {
	remembered, id := m.remembered(w), w.id
	if !remembered && w.kind != waitNewcomer {
		id = RequestID{} // it is like one without: nobody finds it
	}
	c.flags(&remembered)
	unsigned(c, &id.Requester)
	unsigned(c, &id.Number)
	if c.reading {
		w.id = id
	}
	if w.kind == waitRegister || w.kind == waitNewcomer || w.kind == waitAlive && !remembered {
		unsigned(c, &w.req)
	}
	if c.reading && c.err == nil {
		c.place(m, w, remembered)
	}
}

// place puts a waiting call where those look who want it.
func (c *coder) place(m *Machine, w *waiter, remembered bool) {
	if w.req != 0 {
		if m.waiting[w.req] != nil {
			c.failf("two calls wait as #%d", w.req)
		}
		m.waiting[w.req] = w
	}
	if !remembered {
		return
	}
	r := m.ep.requesters[w.id.Requester]
	if r == nil || r.calls[w.id.Number] != nil {
		c.failf("call %d of requester %d waits, which cannot be", w.id.Number, w.id.Requester)
		return
	}
	r.calls[w.id.Number] = w
}

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

// group writes an alive set: who is in it, who has asked, and whose calls wait. A call without an id is
// written, too, although nobody finds it again: whether a set is abandoned depends on it.
func (c *coder) group(m *Machine, g *group) {
	var strangers []serry.TaskID
	var waiting []*waiter
	for _, id := range g.asked {
		if m.task(id) == nil {
			strangers = append(strangers, id)
		}
	}
	for _, w := range g.waiters.all {
		if !w.answered && (m.remembered(w) || w.id.Requester == 0) {
			waiting = append(waiting, w)
		}
	}
	slices.SortFunc(strangers, serry.TaskID.Compare)
	strangers = slices.Compact(strangers)
	c.members(m.ep, &g.members)
	list(c, &strangers, c.task)
	if c.reading {
		if len(g.members) > len(c.b) {
			c.fail(errShort)
			return
		}
		g.key = groupKey(g.members, strangers)
		g.calls = make([]aliveCall, len(g.members))
		for _, at := range g.members {
			g.asked = append(g.asked, m.ep.tasks[at].id)
		}
		g.asked = append(g.asked, strangers...)
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

func (c *coder) aliveCall(a *aliveCall) {
	c.flags(&a.asked)
	if a.asked {
		unsigned(c, &a.inc)
		c.value(&a.word)
	}
}

// newcomers writes the registrations that wait for the next epoch.
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
