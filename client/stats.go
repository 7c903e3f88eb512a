package client

import "sync/atomic"

// Stats are what a member has done so far.
type Stats struct {
	Calls   uint64 // made by the program, each counted once
	Repeats uint64 // of them sent again, after the service was away
	Beats   uint64 // heartbeats sent
	Outages uint64 // times in which the service was away
}

type counters struct{ calls, repeats, beats, outages atomic.Uint64 }

// Stats returns the counters of the member.
func (m *Member) Stats() Stats {
	c := &m.count
	return Stats{Calls: c.calls.Load(), Repeats: c.repeats.Load(), Beats: c.beats.Load(), Outages: c.outages.Load()}
}
