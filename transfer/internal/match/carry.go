package match

// Small data are carried by offers. A receive that waits takes them from there, and its verdict is the answer: the transfer
// takes one round trip. Where no receive was posted the receiver drops what an offer carries, so a sender that is first still
// occupies nothing but its offer there (TR-MAT-7); when the receive is posted, the receiver asks for an offer that carries the
// data.
//
// Only so many bytes are under way without an answer (Config.Carry), of data that were asked for and of others: those that were
// not asked for may find no receive, and have no answer for long, and must not hold up the others. Data that were not asked for
// and find no room are offered without being carried. Data that were asked for wait for room, in order.
type cargo struct {
	unasked, asked int64   // bytes that have no answer
	queue          []*send // whose data were asked for, and find no room
}

// room says whether an offer may carry so many bytes more. Data that are larger than all room go alone.
func (m *Machine) room(under, bytes int64) bool { return under == 0 || under+bytes <= m.cfg.Carry }

// load takes room for the data of a send, if there is any and there is contact.
func (m *Machine) load(s *send) bool {
	under := &m.cargo.unasked
	if s.met {
		under = &m.cargo.asked
	}
	if !m.contact || !m.room(*under, s.Shape.Bytes) {
		return false
	}
	*under += s.Shape.Bytes
	s.loaded = under
	return true
}

// unload gives the room of a send back: the receiver has answered, or the answer will not be waited for. Sends that wait for
// room go on.
func (m *Machine) unload(s *send) {
	if s.loaded == nil {
		return
	}
	*s.loaded -= s.Shape.Bytes
	s.loaded = nil
	for len(m.cargo.queue) > 0 && m.room(m.cargo.asked, m.cargo.queue[0].Shape.Bytes) {
		next := m.cargo.queue[0]
		m.cargo.queue[0] = nil
		m.cargo.queue = m.cargo.queue[1:]
		if next.queued && !next.over && next.wish == nil {
			next.queued, next.asked = false, 0
			next.ask()
		}
	}
}

// carryNothing forgets what offers carried, because contact is lost.
func (m *Machine) carryNothing() {
	for _, s := range m.sends {
		s.loaded, s.queued = nil, false
	}
	m.cargo = cargo{}
}

// wanted hears that the receiver has memory, and wants the data by an offer.
func (s *send) wanted() {
	m := s.machine
	m.unload(s)
	s.meet()
	s.step = m.now
	switch {
	case s.queued:
	case s.Place.Known() || len(m.cargo.queue) == 0 && m.room(m.cargo.asked, s.Shape.Bytes):
		s.asked = 0
		s.ask()
	default:
		s.queued = true
		m.cargo.queue = append(m.cargo.queue, s)
	}
}
