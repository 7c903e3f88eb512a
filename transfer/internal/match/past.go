package match

import "hash/maphash"

// A record is what is remembered of a transfer that has ended on this side.
type record struct {
	side
	number   Number // 0 for a receive that no offer came for
	verdict  Verdict
	unposted bool // of a receive: the sender ended before it was posted
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
// transfer looks for one record and adds another, on both sides, so the window is made to be cheap: records lie in a row, and chains by which
// they are found stay in a near cache. A map of Go costs five times as much, which is a fifth of a small transfer.
type window struct {
	limit   int
	seed    maphash.Seed // that no peer knows
	records []record     // a ring, once there are as many as the limit
	links   []chainLink  // of each record
	oldest  int          // where the ring begins
	chains  []int32      // by hash: 1 + the place of the first record, or 0; as many as a power of two
}

// A chainLink says how a record is found.
type chainLink struct {
	hash  uint32
	next  int32 // in the chain: 1 + a place, or 0
	found bool  // it can be found
}

func (w *window) hash(id ID, send bool) uint32 {
	return uint32(maphash.Comparable(w.seed, side{id, send}))
}

// chain is where the chain begins that has the records with a hash.
func (w *window) chain(hash uint32) *int32 { return &w.chains[hash&uint32(len(w.chains)-1)] }

// find returns the record of a half, or nil. It is valid until the next one is added.
func (w *window) find(id ID, send bool) *record {
	if len(w.chains) == 0 {
		return nil
	}
	if i := w.place(side{id, send}, w.hash(id, send)); i >= 0 {
		return &w.records[i]
	}
	return nil
}

// place is where the record of a half is, or -1.
func (w *window) place(s side, hash uint32) int {
	for i := *w.chain(hash); i > 0; i = w.links[i-1].next {
		if w.links[i-1].hash == hash && w.records[i-1].side == s {
			return int(i - 1)
		}
	}
	return -1
}

// add keeps a record, and returns the one that leaves, if one does.
func (w *window) add(r record) (old record, left bool) {
	if len(w.records) < w.limit && len(w.records) >= len(w.chains)/2 {
		w.grow()
	}
	hash := w.hash(r.id, r.send)
	if i := w.place(r.side, hash); i >= 0 {
		w.unlink(i)
	}
	place := len(w.records)
	if place < w.limit {
		w.records, w.links = append(w.records, r), append(w.links, chainLink{})
	} else {
		place = w.oldest
		w.oldest = (place + 1) % w.limit
		if old, left = w.records[place], w.links[place].found; left {
			w.unlink(place)
		}
		w.records[place] = r
	}
	w.link(place, hash)
	return old, left
}

// forget drops a record that was found.
func (w *window) forget(r *record) { w.unlink(w.place(r.side, w.hash(r.id, r.send))) }

// link has the record at a place be found.
func (w *window) link(place int, hash uint32) {
	first := w.chain(hash)
	w.links[place] = chainLink{hash: hash, next: *first, found: true}
	*first = int32(place + 1)
}

// unlink has the record at a place not be found any more.
func (w *window) unlink(place int) {
	l := &w.links[place]
	next := w.chain(l.hash)
	for int(*next) != place+1 {
		next = &w.links[*next-1].next
	}
	*next, l.found = l.next, false
}

// grow makes the chains twice as many.
func (w *window) grow() {
	if w.chains == nil {
		w.seed = maphash.MakeSeed()
	}
	w.chains = make([]int32, max(64, 2*len(w.chains)))
	for i, l := range w.links {
		if l.found {
			w.link(i, l.hash)
		}
	}
}
