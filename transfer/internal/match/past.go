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
// transfer enters two of them, so they are made to be cheap: records lie in a row, and are found by a hash under a seed that no peer knows.
// Of two halves with the same hash the earlier one would leave the window early, which is as likely as a damaged message with the right
// checksum.
type window struct {
	limit   int
	seed    maphash.Seed
	records []record // a ring, once there are as many as the limit
	oldest  int      // where the ring begins
	places  map[uint64]int
}

func (w *window) hash(s side) uint64 { return maphash.Comparable(w.seed, s) }

// find returns the record of a half, or nil. It is valid until the next one is added.
func (w *window) find(id ID, send bool) *record {
	if len(w.places) == 0 {
		return nil
	}
	s := side{id, send}
	if i, ok := w.places[w.hash(s)]; ok && w.records[i].side == s {
		return &w.records[i]
	}
	return nil
}

// add keeps a record, and returns the one that leaves, if one does.
func (w *window) add(r record) (old record, left bool) {
	if w.places == nil {
		w.places, w.seed = make(map[uint64]int), maphash.MakeSeed()
	}
	place := len(w.records)
	if place < w.limit {
		w.records = append(w.records, r)
	} else {
		place = w.oldest
		w.oldest = (place + 1) % w.limit
		old = w.records[place]
		w.records[place] = r
		hash := w.hash(old.side)
		if left = w.places[hash] == place; left {
			delete(w.places, hash)
		}
	}
	w.places[w.hash(r.side)] = place
	return old, left
}

// forget drops a record that was found.
func (w *window) forget(r *record) { delete(w.places, w.hash(r.side)) }
