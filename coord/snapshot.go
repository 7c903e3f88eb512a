package coord

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/serry-dev/serry"
)

// Snapshot writes down everything that later steps depend on, as of the last event that was to be
// journaled. Machines that stepped the same records write the same bytes, whatever else they were
// asked (C-LOG-3). Large values are handed to aside, as in [AppendRecord].
//
// That the bytes depend on the records alone is what makes a snapshot comparable: a standby can
// check that it is in the same state as the leader, and tests do so after every event. So nothing
// may be written that a read, a refused call or a good heartbeat can change.
//
// Waiting calls are in it where they can be found again: those with a request id, and
// registrations, which act when others come. All others left what they did, and their callers ask
// anew.
//
// A journal begins with a snapshot of the machine as [New] made it, which says which service
// incarnation and which jobs it began with.
func (m *Machine) Snapshot(aside func(value []byte) Ref) []byte {
	return m.AppendSnapshot(nil, aside)
}

// AppendSnapshot is [Machine.Snapshot] behind other bytes. A large state is written once, and
// moved once to make room for the part that is known in the end only; nothing of it is copied to
// another place. A job may hold gigabytes of keys, and a second copy of them could be the end of
// the process.
//
// The form of a snapshot:
//
//	version, size of the body          uvarints
//	number of outcomes, the outcomes   each error and result once (pool.go)
//	time, version, epoch number, ...   the fields of the machine, in the order of coder.machine
//	the epoch                          its tasks, lives, requesters, barriers, sets, newcomers, keys
//	checksum                           of everything before it
func (m *Machine) AppendSnapshot(dst []byte, aside func(value []byte) Ref) []byte {
	start := len(dst)
	c := &coder{b: slices.Grow(dst, m.ep.keys.written(aside != nil)), aside: aside, pool: newPool()}
	c.machine(m)
	if c.err != nil {
		panic(fmt.Sprintf("coord: the machine cannot be written: %v", c.err))
	}
	size := &coder{}
	size.count(len(c.pool.numbers))
	front := append(size.b, c.pool.written...)
	front = append(beforeBody(nil, m.cfg.written(), len(front)+len(c.b)-start), front...)
	b := slices.Insert(c.b, start, front...)
	return binary.LittleEndian.AppendUint32(b, checksum(b[start:]))
}

// written is about how many bytes the keys take in a snapshot, and a little more, so that the
// buffer does not have to grow.
func (s *store) written(aside bool) int {
	const perKey = 16 // lengths, the form of the value
	size := 64 << 10
	s.tree.Ascend(func(e Entry) bool {
		size += len(e.Key) + perKey
		if n := len(e.Value); n <= AsideBytes || !aside {
			size += n
		}
		return true
	})
	return size
}

// Restore makes a machine from a snapshot. Records that were journaled after it are stepped next,
// and then [Resume]. Of cfg the settings count; jobs and service are those of the snapshot.
//
// It takes any bytes, and never more memory than a multiple of their number. A snapshot that no
// machine can have written is an error, and never a machine that breaks later: every number that
// is used as an index, and every order that is relied on, is checked where it is read.
func Restore(cfg Config, snapshot []byte, fetch func(Ref) ([]byte, error)) (*Machine, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg.Limits = cfg.Limits.withDefaults()
	// One snapshot and nothing else: bytes behind it mean that two files were mixed up.
	body, rest, err := unseal(snapshot, cfg.readable(), "snapshot")
	if err == nil && len(rest) > 0 {
		err = errors.New("goes on after its end")
	}
	if err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	c := &coder{b: body, reading: true, fetch: fetch, pool: newPool()}
	m := &Machine{cfg: cfg, waiting: make(map[Req]*waiter)}
	c.readPool()
	c.machine(m)
	if c.err == nil && len(c.b) > 0 {
		c.err = errors.New("goes on after its end")
	}
	if c.err != nil {
		return nil, fmt.Errorf("snapshot: %w", c.err)
	}
	return m, nil
}

// machine lists the fields of m: all but the calls that wait for callers which are gone after a
// restart, and what can be derived from the rest. The time is that of the last journaled event. A
// later one is not in the journal, and a successor goes on from where the journal ends
// (C-TIME-1).
func (c *coder) machine(m *Machine) {
	c.now(&m.logged)
	if c.reading {
		m.now = m.logged
	}
	c.flags(&m.stopped)
	signed(c, &m.version)
	signed(c, &m.number)
	unsigned(c, &m.turns)
	unsigned(c, &m.formerService)
	ascending(c, &m.formerLives, func(_ serry.Incarnation, is *bool) { *is = true })
	c.epoch(m)
}

// ascending writes a map in the order of its keys, and reads only what is in that order: so one
// state has one form, and a key cannot come twice.
func ascending[K cmp.Ordered, V any](c *coder, p *map[K]V, each func(K, *V)) {
	keys := slices.Sorted(maps.Keys(*p))
	list(c, &keys, func(k *K) {
		switch k := any(k).(type) {
		case *serry.Incarnation:
			unsigned(c, k)
		case *uint64:
			unsigned(c, k)
		case *string:
			c.string(k)
		default: // a mistake in this package
			panic(fmt.Sprintf("coord: keys by %T", k))
		}
	})
	if c.reading {
		*p = make(map[K]V, len(keys))
	}
	for i, k := range keys {
		if c.err != nil {
			return
		}
		if i > 0 && k <= keys[i-1] {
			c.failf("%v is out of order", k)
			return
		}
		v := (*p)[k]
		each(k, &v)
		if c.reading {
			(*p)[k] = v
		}
	}
}

// epoch lists the fields of the present epoch. The order is the format; what comes later may
// refer to what came before: requesters to lives, barriers and groups to tasks and requesters.
func (c *coder) epoch(m *Machine) {
	var service serry.Incarnation
	var jobs []Job
	if !c.reading {
		service, jobs = m.ep.service, m.ep.jobs
	}
	unsigned(c, &service)
	c.jobs(&jobs)
	if c.reading && !c.newEpoch(m, service, jobs) {
		return
	}
	ep := m.ep
	c.flags(&ep.registered, &ep.failed, &ep.polling)
	c.error(&ep.failure)
	c.error(&ep.pollError)
	signed(c, &ep.nextScan)
	for _, t := range ep.tasks {
		c.taskFields(t)
	}
	c.value(&ep.joined)
	ascending(c, &ep.known, func(_ serry.Incarnation, at *index) { c.index(ep, at) })
	ascending(c, &ep.requesters, func(id uint64, r **requester) {
		c.requester(id, r)
		if c.reading {
			ep.requestersOf.add((*r).inc, id)
		}
	})
	c.barriers(m)
	c.groups(m)
	c.newcomers(m)
	c.keys(&ep.keys)
	c.changes(&ep.changes)
	c.endedBarriers(m)
	// What is derived from the fields is counted again.
	if c.reading && c.err == nil {
		for _, t := range ep.tasks {
			ep.keys.bytes += int64(len(t.devices))
			ep.recount(t, +1)
		}
	}
}

// newEpoch makes an empty epoch to be filled. It is refused if the bytes that are left cannot
// hold so many tasks: a few bytes must not make a cluster of a million.
func (c *coder) newEpoch(m *Machine, service serry.Incarnation, jobs []Job) bool {
	if c.err != nil {
		return false
	}
	if err := ValidateJobs(jobs); err != nil {
		c.fail(err)
		return false
	}
	total := 0
	for _, j := range jobs {
		total += j.Tasks
	}
	if total > len(c.b) || service == 0 {
		c.fail(errShort)
		return false
	}
	m.ep = newEpoch(service, jobs, m.cfg)
	return true
}

// taskFields lists what is kept of a task. The lists in which it is found are made again from the
// barriers and groups.
func (c *coder) taskFields(t *task) {
	signed(c, &t.state)
	unsigned(c, &t.inc)
	c.taskError(&t.err)
	c.flags(&t.recoverable, &t.left, &t.exited, &t.departed, &t.unsynced)
	signed(c, &t.since)
	signed(c, &t.grace)
	signed(c, &t.registered)
	c.value(&t.devices)
	// A task has an error if and only if it has failed. Handlers rely on that.
	if t.state < serry.Disconnected || t.state > serry.Failed || (t.state == serry.Failed) != (t.err != nil) {
		c.failf("task %v is in %v with error %v", t.id, t.state, t.err)
	}
}

// index writes the index of a task, and checks that there is such a task.
func (c *coder) index(ep *epoch, p *index) {
	signed(c, p)
	if *p < 0 || int(*p) >= len(ep.tasks) {
		c.failf("task %d of %d", *p, len(ep.tasks))
		*p = 0
	}
}

// requester writes the results that are kept. Calls that wait are written where they wait, and
// put into the table from there.
func (c *coder) requester(id uint64, p **requester) {
	if c.reading {
		*p = new(requester)
	}
	r := *p
	unsigned(c, &r.inc)
	unsigned(c, &r.watermark)
	// The order of r.calls does not matter: answered is written in the order of its numbers.
	answered := make(map[uint64]*waiter)
	for n, w := range r.calls {
		if w.answered {
			answered[n] = w
		}
	}
	ascending(c, &answered, func(n uint64, p **waiter) {
		if c.reading {
			*p = &waiter{id: RequestID{Requester: id, Number: n}, answered: true}
		}
		c.outcome(*p)
	})
	if c.reading {
		r.calls = answered
	}
}

// outcome writes the result or the error of an answered call, as a number of the pool.
func (c *coder) outcome(w *waiter) {
	var x any = w.result
	if w.err != nil {
		x = w.err
	}
	c.shared(&x)
	if !c.reading {
		return
	}
	switch x := x.(type) {
	case error:
		w.err = x
	case Result:
		w.result = x
	default:
		c.failf("an answer that is none")
	}
}

// keys writes all entries in order. Reading, it counts their bytes again.
func (c *coder) keys(s *store) {
	var all []Entry
	if !c.reading {
		all = make([]Entry, 0, s.tree.Len())
		s.tree.Ascend(func(e Entry) bool {
			all = append(all, e)
			return true
		})
	}
	// Reading, keys must ascend: the tree is the same however it was filled, but a key that came
	// twice would be counted twice.
	last := ""
	list(c, &all, func(e *Entry) {
		if e.Value == nil {
			e.Value = []byte{}
		}
		c.string(&e.Key)
		c.value(&e.Value)
		if !c.reading || c.err != nil {
			return
		}
		if s.tree.Len() > 0 && e.Key <= last {
			c.failf("key %q is out of order", e.Key)
			return
		}
		last = e.Key
		s.tree.ReplaceOrInsert(*e)
		s.bytes += int64(len(e.Key) + len(e.Value))
	})
}

// changes writes the history of the store, in which revisions follow one another, so that the
// first one is enough.
func (c *coder) changes(h *changes) {
	signed(c, &h.oldest)
	list(c, &h.log, func(k *keyChange) { c.string(&k.key) })
	if !c.reading {
		return
	}
	// The revision is not written: it is that of the last change in the history.
	if h.revision = h.oldest + int64(len(h.log)); h.oldest < 0 || h.revision < h.oldest {
		c.failf("history from %d on", h.oldest)
	}
	for i := range h.log {
		h.log[i].revision = h.oldest + int64(i) + 1
		h.bytes += len(h.log[i].key)
	}
}
