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
	place int    // in the heap, from 1 on; 0 if it is not there
	off   bool   // it is in the heap, but was taken back
	act   func()
}

// alarms has all that are set, the earliest first. One that is taken back, as most are, stays in the heap until its time comes, or too many are
// such: to take each out by itself costs more than all else about it. So next may be early.
type alarms struct {
	heap  []*alarm
	count uint64
	off   int // how many of the heap were taken back
}

// maxOff is how many alarms that were taken back the heap has beside as many that are set.
const maxOff = 64

// set sets an alarm to a time. Never takes it back.
func (q *alarms) set(a *alarm, at Time) {
	switch {
	case at == Never && a.place > 0 && !a.off:
		a.off = true
		if q.off++; q.off == q.Len() || q.off > q.Len()-q.off+maxOff {
			q.sweep()
		}
	case at == Never:
	case a.place == 0:
		q.count++
		a.at, a.seq = at, q.count
		heap.Push(q, a)
	case a.off:
		q.count++
		q.off--
		a.at, a.seq, a.off = at, q.count, false
		heap.Fix(q, a.place-1)
	case at != a.at:
		a.at = at
		heap.Fix(q, a.place-1)
	}
}

// sweep drops the alarms that were taken back.
func (q *alarms) sweep() {
	set := q.heap[:0]
	for _, a := range q.heap {
		if a.off {
			a.off, a.place = false, 0
			continue
		}
		set = append(set, a)
		a.place = len(set)
	}
	clear(q.heap[len(set):])
	q.heap, q.off = set, 0
	heap.Init(q)
}

// next is the first time at which something may act.
func (q *alarms) next() Time {
	if len(q.heap) == 0 {
		return Never
	}
	return q.heap[0].at
}

// ring has the first alarm act, unless it was taken back.
func (q *alarms) ring() {
	a := heap.Pop(q).(*alarm)
	if a.off {
		a.off = false
		q.off--
		return
	}
	a.act()
}

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
