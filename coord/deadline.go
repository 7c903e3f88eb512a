package coord

import (
	"container/heap"
	"math"
	"time"
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
// search.
//
// Every barrier knows where it stands in the heap (heapAt), so that a barrier that ends before its
// deadline, as nearly all do, is taken out without a search, too.
type deadlines struct{ heap []*barrier }

func (d *deadlines) push(b *barrier) { heap.Push((*deadlineHeap)(&d.heap), b) }

func (d *deadlines) remove(b *barrier) { heap.Remove((*deadlineHeap)(&d.heap), b.heapAt) }

// next is the earliest deadline, if there is one.
func (d *deadlines) next() (Time, bool) {
	if len(d.heap) == 0 {
		return never, false
	}
	return d.heap[0].deadline, true
}

// due is the barrier whose deadline is at that time, or nil.
func (d *deadlines) due(at Time) *barrier {
	if next, ok := d.next(); ok && next <= at {
		return d.heap[0]
	}
	return nil
}

// A deadlineHeap implements heap.Interface.
type deadlineHeap []*barrier

func (h deadlineHeap) Len() int { return len(h) }

func (h deadlineHeap) Less(i, j int) bool {
	if h[i].deadline != h[j].deadline {
		return h[i].deadline < h[j].deadline
	}
	return h[i].turn < h[j].turn
}

func (h deadlineHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].heapAt, h[j].heapAt = i, j
}

func (h *deadlineHeap) Push(x any) {
	b := x.(*barrier)
	b.heapAt = len(*h)
	*h = append(*h, b)
}

func (h *deadlineHeap) Pop() any {
	old := *h
	b := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return b
}
