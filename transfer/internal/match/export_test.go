package match

// Held says how much a machine remembers: transfers that have ended, offers without a receive, sends whose end the receiver
// may not know, alarms.
func (m *Machine) Held() (past, offers, unagreed, alarms int) {
	return len(m.past.records), len(m.offers), len(m.unagreed), m.alarms.Len() - m.alarms.off
}

// Add and Missing are those of ranges.
func (s Ranges) Add(r Range) Ranges     { return s.add(r) }
func (s Ranges) Missing(n int64) Ranges { return s.missing(n) }
func (s Ranges) Within(n int64) bool    { return s.within(n) }
