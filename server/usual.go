package server

import (
	"slices"

	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/wire"
)

// Both bounds are small on purpose. The median of 32 barriers follows a job that changes its pace, say from
// training to evaluation, within 16 of them. Classes beyond the bound have no usual time, which only means that
// a late barrier is not called late.
const (
	usualKept    = 32  // barriers of one class whose times are kept
	usualClasses = 256 // classes; a job with more has no usual time for the rest
)

// A usual knows how long barriers take, from the first arrival to the last, by class: what their ids have in
// common but for numbers. A barrier that is open for much longer is worth a word. It belongs to the owner, and
// begins anew with each server that leads.
type usual struct {
	took map[string]*times
}

// times are the last ones of a class. seen counts all barriers of the class; the ring has the newest of them,
// whose order does not matter for a median.
type times struct {
	ring [usualKept]coord.Time
	seen int
}

// ended takes note of a barrier that has passed. One that failed says nothing about how long the next may take: it
// ended by a time-out or a death.
func (u *usual) ended(n coord.Note, now coord.Time) {
	if n.Barrier == "" || n.Err != nil {
		return
	}
	if u.took == nil {
		u.took = make(map[string]*times)
	}
	class := wire.Class(n.Barrier)
	t := u.took[class]
	if t == nil {
		if len(u.took) >= usualClasses {
			return
		}
		t = new(times)
		u.took[class] = t
	}
	t.ring[t.seen%usualKept] = now - n.Since
	t.seen++
}

// of is the median time of the barriers in the class of one, or 0 if none has passed. The median, unlike the mean,
// is not moved by the one barrier that waited for a checkpoint.
func (u *usual) of(barrier string) coord.Time {
	t := u.took[wire.Class(barrier)]
	if t == nil {
		return 0
	}
	sorted := slices.Sorted(slices.Values(t.ring[:min(t.seen, usualKept)]))
	return sorted[len(sorted)/2]
}
