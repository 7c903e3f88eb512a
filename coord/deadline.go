package coord

import (
	"math"
	"time"

	"github.com/google/btree"
)

// saturate adds a duration to a time. What would overflow is as far away as time goes: clients
// may send any timeout, and a deadline that wrapped around would lie in the past and end the
// barrier at once. A negative duration counts as none.
func saturate(t Time, d time.Duration) Time {
	if d = max(d, 0); d > time.Duration(math.MaxInt64-t) {
		return math.MaxInt64
	}
	return t + Time(d)
}

// deadlines orders open barriers by deadline, and those with the same deadline by when they were
// opened. So deadlines fire in one order in every machine, and the next one is found without a
// search. A barrier keeps its deadline and its turn as long as it is in here: they are how it is
// found again when it ends before its deadline, as nearly all do.
type deadlines struct{ tree *btree.BTreeG[*barrier] }

func newDeadlines() deadlines {
	return deadlines{btree.NewG(32, func(a, b *barrier) bool {
		return a.deadline < b.deadline || a.deadline == b.deadline && a.turn < b.turn
	})}
}

// next is the earliest deadline, if there is one.
func (d deadlines) next() (Time, bool) {
	if b, ok := d.tree.Min(); ok {
		return b.deadline, true
	}
	return never, false
}

// due is the barrier whose deadline is at that time, or nil.
func (d deadlines) due(at Time) *barrier {
	if b, ok := d.tree.Min(); ok && b.deadline <= at {
		return b
	}
	return nil
}
