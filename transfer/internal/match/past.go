package match

// A record is what is remembered of a transfer that has ended on this side.
type record struct {
	id       ID
	send     bool
	number   Number // 0 for a receive that no offer came for
	ref      Ref
	verdict  Verdict
	wish     Verdict // of a send that the receiver may not know the end of: what it is asked to end by
	unposted bool    // of a receive: the sender ended before it was posted
	asked    int
	machine  *Machine
	alarm    alarm
}

// ask tells the receiver that the sender has ended, until it agrees.
func (r *record) ask() {
	m := r.machine
	m.tell(Message{Kind: Cancel, Number: r.number, ID: r.id, Verdict: r.wish})
	m.alarms.set(&r.alarm, m.again(&r.asked))
}

// remember keeps a record, and drops the oldest beyond the limit.
func (m *Machine) remember(r *record) {
	for _, old := range m.past.add(r) {
		m.alarms.set(&old.alarm, Never)
		if m.unagreed[old.number] == old {
			delete(m.unagreed, old.number)
		}
	}
}

// A window has the records of the last transfers that have ended. A key that has left it is not recognised any more
// (TR-MAT-3).
type window struct {
	limit   int
	records map[side]*record
	order   []*record // the oldest first; those that were forgotten have no place in records
}

// A side is one half of a transfer.
type side struct {
	id   ID
	send bool
}

func (w *window) find(id ID, send bool) *record { return w.records[side{id, send}] }

// add keeps a record, and returns those that leave.
func (w *window) add(r *record) (left []*record) {
	if w.records == nil {
		w.records = make(map[side]*record)
	}
	w.records[side{r.id, r.send}] = r
	w.order = append(w.order, r)
	for len(w.order) > w.limit {
		old := w.order[0]
		w.order[0] = nil
		w.order = w.order[1:]
		if at := (side{old.id, old.send}); w.records[at] == old {
			delete(w.records, at)
			left = append(left, old)
		}
	}
	return left
}

// forget drops a record.
func (w *window) forget(r *record) { delete(w.records, side{r.id, r.send}) }
