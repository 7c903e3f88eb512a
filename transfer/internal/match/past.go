package match

import "hash/maphash"

// A record is what is remembered of a transfer that has ended on this side.
type record struct {
	side
	number   Number // 0 for a receive that no offer came for
	verdict  Verdict
	unposted bool // of a receive: the sender ended before it was posted

	// Of the window.
	found bool // it can be
	hash  uint32
	next  int32 // in its chain: 1 + a place, or 0
}

// A side is one half of a transfer.
type side struct {
	id   ID
	send bool
}

// A parting is a send that has ended, and whose receiver may not know the end: it is asked to end by the wish until it agrees.
type parting struct {
	machine *Machine
	id      ID
	number  Number
	ref     Ref
	verdict Verdict // that the program was told
	wish    Verdict
	asked   int
	alarm   alarm
}

// part has the receiver of a send that has ended be asked to agree. The first time is up to the caller.
func (m *Machine) part(p *parting) {
	p.machine, p.alarm.act = m, p.ask
	m.unagreed[p.number] = p
}

func (p *parting) ask() {
	m := p.machine
	m.tell(Message{Kind: Cancel, Number: p.number, ID: p.id, Verdict: p.wish})
	m.alarms.set(&p.alarm, m.again(&p.asked))
}

// agreed ends the questions, as far as there are any.
func (m *Machine) agreed(n Number) {
	if p := m.unagreed[n]; p != nil {
		delete(m.unagreed, n)
		m.alarms.set(&p.alarm, Never)
	}
}

// remember keeps a record, and drops the oldest beyond the limit.
func (m *Machine) remember(r record) {
	if old, left := m.past.add(r); left && old.send {
		m.agreed(old.number)
	}
}

// A window has the records of the last transfers that have ended. A key that has left it is not recognised any more (TR-MAT-3). Every
// transfer looks for one record and adds another, on both sides, so the window is made to be cheap: records lie in a row, and a table that
// stays in a near cache has chains of them by hash. A map of Go costs ten times as much, which is a fifth of a small transfer.
type window struct {
	limit   int
	seed    maphash.Seed // that no peer knows
	records []record     // a ring, once there are as many as the limit
	oldest  int          // where the ring begins
	chains  []int32      // by hash: 1 + the place of the first record, or 0; as many as a power of two
}

func (w *window) hash(s side) uint32 { return uint32(maphash.Comparable(w.seed, s)) }

// chain is where the chain begins that has the records with a hash.
func (w *window) chain(hash uint32) *int32 { return &w.chains[hash&uint32(len(w.chains)-1)] }

// find returns the record of a half, or nil. It is valid until the next one is added.
func (w *window) find(id ID, send bool) *record {
	if len(w.chains) == 0 {
		return nil
	}
	s := side{id, send}
	hash := w.hash(s)
	for i := *w.chain(hash); i > 0; i = w.records[i-1].next {
		if r := &w.records[i-1]; r.hash == hash && r.side == s {
			return r
		}
	}
	return nil
}

// add keeps a record, and returns the one that leaves, if one does.
func (w *window) add(r record) (old record, left bool) {
	if earlier := w.find(r.id, r.send); earlier != nil {
		w.forget(earlier)
	}
	place := len(w.records)
	if place < w.limit {
		w.records = append(w.records, r)
		if place >= len(w.chains)/2 {
			w.grow()
		}
	} else {
		place = w.oldest
		w.oldest = (place + 1) % w.limit
		if old, left = w.records[place], w.records[place].found; left {
			w.forget(&w.records[place])
		}
		w.records[place] = r
	}
	w.link(place)
	return old, left
}

// link has the record at a place be found.
func (w *window) link(place int) {
	r := &w.records[place]
	r.found, r.hash = true, w.hash(r.side)
	first := w.chain(r.hash)
	r.next, *first = *first, int32(place+1)
}

// forget drops a record that was found.
func (w *window) forget(r *record) {
	next := w.chain(r.hash)
	for &w.records[*next-1] != r {
		next = &w.records[*next-1].next
	}
	*next, r.found = r.next, false
}

// grow makes the chains twice as many.
func (w *window) grow() {
	if w.chains == nil {
		w.seed = maphash.MakeSeed()
	}
	w.chains = make([]int32, max(64, 2*len(w.chains)))
	for i := range w.records {
		if w.records[i].found {
			w.link(i)
		}
	}
}
