package coord

import "time"

// tickInterval is how much service time may pass without a record while a deadline is pending.
// After a fail-over a barrier can time out that much later than it would have, and not more.
const tickInterval = Time(time.Second)

// Journaled says what of the last Step a journal must hold, written by [AppendRecord] at
// [Machine.Now] before any effect of that Step leaves (C-LOG-1): the event itself if it changed
// state, else a Tick if deadlines fired, or if a second has passed while one is pending
// (C-TIME-1). Of reads, watches, good heartbeats and refused calls it is nothing.
//
// The records alone, stepped in their order, bring another machine of the same Config to the same
// state.
func (m *Machine) Journaled() (ev Event, ok bool) { return m.record, m.record != nil }

// Now is the service time of the last Step: the time with which its record is written.
func (m *Machine) Now() Time { return m.now }

// Present is what an owner needs to draw its tables after [Restore] and replay: the epoch, and
// every task whose state differs from that of a fresh epoch. No call is answered by it.
func (m *Machine) Present() []Effect {
	all := []Effect{Opened{Epoch: m.number, Service: m.ep.service, Jobs: m.ep.jobs}}
	for _, t := range m.ep.tasks {
		if t.inc != 0 || t.state != 0 {
			all = append(all, Changed{Task: t.id, State: t.state, Incarnation: t.inc, Err: t.err})
		}
	}
	return all
}

// touch notes that the present event changes what a snapshot holds. Every place that changes such
// state calls it, even where it seems that a caller must have done so: an event that changes
// state and leaves no record would be undone by the next fail-over, after clients have seen its
// effect. TestEveryChangeIsJournaled plays all events and compares snapshots to show that no
// place is missing.
func (m *Machine) touch() { m.touched = true }

// noteRecord decides what to journal of a step, before its consequences: these follow from the
// record when it is replayed.
func (m *Machine) noteRecord(ev Event, fired bool) {
	m.record = nil
	_, pending := m.Deadline()
	switch {
	case m.touched:
		m.record = ev
	case fired, pending && m.now-m.logged >= tickInterval:
		m.record = Tick{}
	}
	if m.record != nil {
		m.logged = m.now
	}
}
