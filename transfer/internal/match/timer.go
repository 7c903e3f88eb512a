package match

import (
	"container/heap"
	"math"
	"time"
)

// Time is the time since the engine began.
type Time = time.Duration

// Never is later than all that happens.
const Never Time = math.MaxInt64

// An alarm is the next time at which something acts.
type alarm struct {
	at    Time
	seq   uint64 // so that those of the same time act in the order in which they were set
	place int    // in the heap, from 1 on; 0 if it is not set
	act   func()
}

// alarms has all that are set, the earliest first.
type alarms struct {
	heap  []*alarm
	count uint64
}

// set sets an alarm to a time. Never takes it back.
func (q *alarms) set(a *alarm, at Time) {
	switch {
	case a.place > 0 && at == Never:
		heap.Remove(q, a.place-1)
	case a.place > 0 && at != a.at:
		a.at = at
		heap.Fix(q, a.place-1)
	case a.place == 0 && at < Never:
		q.count++
		a.at, a.seq = at, q.count
		heap.Push(q, a)
	}
}

// next is the first time at which something acts.
func (q *alarms) next() Time {
	if len(q.heap) == 0 {
		return Never
	}
	return q.heap[0].at
}

// ring has the first alarm act.
func (q *alarms) ring() { heap.Pop(q).(*alarm).act() }

// Len implements heap.Interface.
func (q *alarms) Len() int { return len(q.heap) }

// Less implements heap.Interface.
func (q *alarms) Less(i, j int) bool {
	a, b := q.heap[i], q.heap[j]
	return a.at < b.at || a.at == b.at && a.seq < b.seq
}

// Swap implements heap.Interface.
func (q *alarms) Swap(i, j int) {
	q.heap[i], q.heap[j] = q.heap[j], q.heap[i]
	q.heap[i].place, q.heap[j].place = i+1, j+1
}

// Push implements heap.Interface.
func (q *alarms) Push(x any) {
	a := x.(*alarm)
	q.heap = append(q.heap, a)
	a.place = len(q.heap)
}

// Pop implements heap.Interface.
func (q *alarms) Pop() any {
	last := len(q.heap) - 1
	a := q.heap[last]
	q.heap[last] = nil
	q.heap = q.heap[:last]
	a.place = 0
	return a
}
