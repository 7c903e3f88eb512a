package coord

import (
	"errors"
	"fmt"
	"slices"

	"github.com/serry-dev/serry"
)

// Consistent says what of the machine contradicts itself: counts and indexes against what they count and
// find, and calls that wait where nothing will answer them.
func (m *Machine) Consistent() error {
	c := &checker{m: m, ep: m.ep, found: make(map[*waiter]bool)}
	return errors.Join(c.lists(), c.groups(), c.barriers(), c.calls(), c.requesters(), c.tasks(), c.store())
}

// A checker looks at a machine.
type checker struct {
	m     *Machine
	ep    *epoch
	found map[*waiter]bool // calls that something will answer
}

// Lives is how many lives of tasks are known.
func (m *Machine) Lives() int { return len(m.ep.known) }

// Revision is the last one of the store, for tests that watch keys.
func (m *Machine) Revision() int64 { return m.ep.changes.revision }

// Counter is the instance in which a barrier is, or -1, and whether it is open.
func (m *Machine) Counter(id string) (counter int64, open bool) {
	if b := m.ep.barriers[id]; b != nil {
		return b.counter, b.open
	}
	return -1, false
}

// list checks a list of calls, and notes those that wait in it.
func (c *checker) list(name string, l *waiters) error {
	dead := 0
	for _, w := range l.all {
		switch {
		case w.list != l:
			return fmt.Errorf("%s: a call is in another list", name)
		case w.answered:
			dead++
		default:
			c.found[w] = true
		}
	}
	if dead != l.dead {
		return fmt.Errorf("%s: %d of %d calls are over, %d are counted", name, dead, len(l.all), l.dead)
	}
	return nil
}

func (c *checker) lists() error {
	errs := []error{c.list("newcomers", &c.ep.newcomers), c.list("watchers", &c.ep.watchers)}
	for key, l := range c.ep.gets {
		errs = append(errs, c.list("gets of "+key, l))
		if l.live() == 0 {
			errs = append(errs, fmt.Errorf("no get waits for %q, which has a list", key))
		}
	}
	for dir, l := range c.ep.changes.watchers {
		errs = append(errs, c.list("watchers of "+dir, l))
		if l.live() == 0 {
			errs = append(errs, fmt.Errorf("nobody watches %q, which has a list", dir))
		}
	}
	if n := len(c.ep.changes.fresh); n > 0 {
		errs = append(errs, fmt.Errorf("%d changes were not told", n))
	}
	return errors.Join(errs...)
}

func (c *checker) groups() error {
	order := c.ep.order.live()
	if len(order) != len(c.ep.groups) {
		return fmt.Errorf("%d alive sets, %d in order", len(c.ep.groups), len(order))
	}
	for i, g := range order {
		if err := c.list(fmt.Sprint("alive set ", i), &g.waiters); err != nil {
			return err
		}
		if c.ep.groups[g.key] != g {
			return fmt.Errorf("alive set %d is not found by its key", i)
		}
		for _, at := range g.members {
			if !slices.Contains(c.ep.tasks[at].groups.live(), g) {
				return fmt.Errorf("alive set %d is not found by member %d", i, at)
			}
		}
	}
	return nil
}

func (c *checker) barriers() error {
	all := []*barrier{c.ep.register, c.ep.shutdown, c.ep.devices}
	ended := 0
	for _, b := range c.ep.barriers {
		all = append(all, b)
		if !b.open {
			ended++
		}
	}
	open, weight := 0, 0
	for _, b := range all {
		weight += b.instance.weight()
		for i := range b.past {
			weight += b.past[i].weight()
		}
		if b.open {
			open++
		}
		if err := c.barrier(b); err != nil {
			return fmt.Errorf("barrier %q: %w", b.id, err)
		}
	}
	if n := c.ep.deadlines.tree.Len(); n != open {
		return fmt.Errorf("%d barriers are open, %d have a deadline", open, n)
	}
	if n := len(c.ep.ended.live()); n != ended {
		return fmt.Errorf("%d barriers have ended, %d are in order", ended, n)
	}
	if weight != c.ep.weight {
		return fmt.Errorf("barriers weigh %d, %d are counted", weight, c.ep.weight)
	}
	return nil
}

func (c *checker) barrier(b *barrier) error {
	if !b.open {
		if b.slots != nil {
			return errors.New("it has ended and has slots")
		}
		return nil
	}
	arrived := 0
	for t := range c.m.membersOf(b) {
		s := b.slots[b.position(t)]
		if s.arrived {
			arrived++
		}
		if s.w != nil && s.w.answered {
			return fmt.Errorf("an answered call stands for %v", t.id)
		}
		if s.w != nil {
			c.found[s.w] = true
		}
		if !slices.Contains(c.m.openOf(t), barrierTurn{b, b.turn}) {
			return fmt.Errorf("it is not found by %v", t.id)
		}
	}
	if arrived != b.arrived || arrived == len(b.slots) {
		return fmt.Errorf("%d of %d have arrived, %d are counted", arrived, len(b.slots), b.arrived)
	}
	return nil
}

// calls checks what is known of all calls that wait, after the places where they do were looked at.
func (c *checker) calls() error {
	for _, t := range c.ep.tasks {
		if t.poll != nil {
			c.found[t.poll] = true
		}
	}
	for req, w := range c.m.waiting {
		if w.answered || w.req != req || !c.found[w] {
			return fmt.Errorf("#%d waits as #%d: answered %v, will be answered %v", req, w.req, w.answered, c.found[w])
		}
	}
	counted, held := 0, make(map[serry.Incarnation]int)
	for w := range c.found {
		if w.counted {
			counted++
			held[w.inc]++
		}
	}
	if counted != c.ep.heldInAll {
		return fmt.Errorf("%d calls wait, %d are counted", counted, c.ep.heldInAll)
	}
	for inc, n := range c.ep.held {
		if held[inc] != n {
			return fmt.Errorf("%d calls of life %d wait, %d are counted", held[inc], inc, n)
		}
	}
	return nil
}

func (c *checker) requesters() error {
	listed := 0
	for inc, ids := range c.ep.requestersOf {
		listed += len(ids)
		for id := range ids {
			if r := c.ep.requesters[id]; r == nil || r.inc != inc {
				return fmt.Errorf("requester %d is listed for life %d", id, inc)
			}
		}
	}
	for id, r := range c.ep.requesters {
		if r.inc != 0 {
			listed--
		}
		for n, w := range r.calls {
			if w.answered && n <= r.watermark {
				return fmt.Errorf("the result of call %d of requester %d is kept below its watermark %d", n, id, r.watermark)
			}
		}
	}
	if listed != 0 {
		return fmt.Errorf("%d more requesters are listed by life than there are", listed)
	}
	return nil
}

func (c *checker) tasks() error {
	var want epoch
	for _, t := range c.ep.tasks {
		want.recount(t, +1)
		if at, ok := c.ep.known[t.inc]; t.inc != 0 && (!ok || at != t.at) {
			return fmt.Errorf("life %d of %v is not known", t.inc, t.id)
		}
	}
	if want.left != c.ep.left || want.present != c.ep.present {
		return fmt.Errorf("%d tasks have left and %d are there, %d and %d are counted", want.left, want.present, c.ep.left, c.ep.present)
	}
	return nil
}

func (c *checker) store() error {
	var size int64
	c.ep.keys.tree.Ascend(func(e Entry) bool {
		size += int64(len(e.Key) + len(e.Value))
		return true
	})
	for _, t := range c.ep.tasks {
		size += int64(len(t.devices))
	}
	h := &c.ep.changes
	last := make(map[string]int64)
	for _, ch := range h.log {
		last[ch.key] = ch.revision
	}
	switch {
	case size != c.ep.keys.bytes:
		return fmt.Errorf("%d bytes of keys and devices, %d are counted", size, c.ep.keys.bytes)
	case len(h.log) != int(h.revision-h.oldest):
		return fmt.Errorf("%d changes from %d to %d", len(h.log), h.oldest, h.revision)
	case h.last != nil && h.last.Len() != len(last):
		return fmt.Errorf("%d keys have changed, %d are listed", len(last), h.last.Len())
	}
	return nil
}
