// Package history judges what the clients of a coordination service saw: whether there is an order of
// events that explains all of it. Fleets in virtual time and soaks of real processes share it.
//
// A test makes one [Clock] and notes, for every call of every client, when it began and how and when it
// ended. Then it asks: [CheckKeys] for values and counters, [CheckBarriers] for barriers, [CheckRounds]
// and [LiveHistory.Check] for live sets, [CheckWatches] for versions. Each returns nil, or an error that
// says which of the calls cannot all be true. Nothing here knows how the service works.
//
// A call that was never answered, because its client died or because the test ended, may have had its
// effect at any time after it began, or never. So may one that was refused because its caller had been
// replaced meanwhile, which says nothing of what came of it before. Any other call that was refused had no
// effect; it is not part of a history.
package history

import "sync/atomic"

// A Moment is a place in the order of everything that was noted. Zero is no moment: a call that never
// returned.
type Moment int64

// A Clock gives out moments, each after all that were given out before. It may be used from any
// goroutine, and the zero value is ready.
type Clock struct{ last atomic.Int64 }

// Now is the next moment. A moment taken before a call is sent, and one taken after its answer came,
// enclose what happened.
func (c *Clock) Now() Moment { return Moment(c.last.Add(1)) }

// forever is after every moment.
const forever = Moment(1<<63 - 1)

// A Span is how long a call took.
type Span struct {
	Call   Moment
	Return Moment // zero: it never did
}

// end is the latest moment at which the call can have had its effect.
func (s Span) end() Moment {
	if s.Return == 0 {
		return forever
	}
	return s.Return
}

// overlaps says whether there is a moment at which both calls were under way.
func (s Span) overlaps(o Span) bool { return s.Call <= o.end() && o.Call <= s.end() }
