package offer

import (
	"container/heap"
	"time"
)

// deadlines is a heap of what expires: each *offer and each waiting Ticket that has an end. One with the same time as
// another expires after it if it was added later.
type deadlines struct {
	all    []deadline
	places map[any]int // where in all
	added  uint64      // how many ever were
}

type deadline struct {
	at    time.Time
	order uint64
	what  any // an *offer or a Ticket
}

// add has something expire at a time. It must not be there yet.
func (d *deadlines) add(what any, at time.Time) {
	d.added++
	heap.Push(d, deadline{at, d.added, what})
}

// remove has something not expire. It need not be there.
func (d *deadlines) remove(what any) {
	if i, ok := d.places[what]; ok {
		heap.Remove(d, i)
	}
}

// first is when the next one expires.
func (d *deadlines) first() (at time.Time, ok bool) {
	if len(d.all) == 0 {
		return time.Time{}, false
	}
	return d.all[0].at, true
}

// due removes the first one that expires until now, and returns it, or nil.
func (d *deadlines) due(now time.Time) any {
	if at, ok := d.first(); !ok || at.After(now) {
		return nil
	}
	return heap.Pop(d).(deadline).what
}

// Len implements [heap.Interface].
func (d *deadlines) Len() int { return len(d.all) }

// Less implements [heap.Interface].
func (d *deadlines) Less(i, j int) bool {
	a, b := d.all[i], d.all[j]
	if !a.at.Equal(b.at) {
		return a.at.Before(b.at)
	}
	return a.order < b.order
}

// Swap implements [heap.Interface].
func (d *deadlines) Swap(i, j int) {
	d.all[i], d.all[j] = d.all[j], d.all[i]
	d.places[d.all[i].what], d.places[d.all[j].what] = i, j
}

// Push implements [heap.Interface].
func (d *deadlines) Push(x any) {
	last := x.(deadline)
	d.places[last.what] = len(d.all)
	d.all = append(d.all, last)
}

// Pop implements [heap.Interface].
func (d *deadlines) Pop() any {
	last := d.all[len(d.all)-1]
	d.all = d.all[:len(d.all)-1]
	delete(d.places, last.what)
	return last
}
