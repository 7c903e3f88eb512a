package mesh

import (
	"slices"
	"sort"

	"github.com/serry-dev/serry"
)

// A loadQueue chooses among the holders of one block: for each request one of the
// same task if there is any, and the least loaded of those that remain.
type loadQueue struct {
	places []int32           // by task, then in mesh order
	tasks  []serry.TaskIndex // of all positions
	load   []int             // bytes given, by index into places
	heap   []int32           // indexes into places, least loaded first
	where  []int32           // position of each index in heap
}

func (q *loadQueue) reset(places []int32, tasks []serry.TaskIndex) {
	q.places, q.tasks = places, tasks
	n := len(places)
	q.load = slices.Grow(q.load[:0], n)[:n]
	q.heap = slices.Grow(q.heap[:0], n)[:n]
	q.where = slices.Grow(q.where[:0], n)[:n]
	for i := range n {
		q.load[i], q.heap[i], q.where[i] = 0, int32(i), int32(i)
	}
}

// take picks a holder for a request of a task and loads it.
func (q *loadQueue) take(task serry.TaskIndex, bytes int) int {
	best := int(q.heap[0])
	if len(q.places) > 1 {
		near := sort.Search(len(q.places), func(i int) bool { return q.tasks[q.places[i]] >= task })
		for i := near; i < len(q.places) && q.tasks[q.places[i]] == task; i++ {
			if i == near || q.load[i] < q.load[best] {
				best = i
			}
		}
		q.load[best] += bytes
		q.sink(int(q.where[best]))
	}
	return int(q.places[best])
}

// sink restores the heap after the load at position i grew.
func (q *loadQueue) sink(i int) {
	for {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(q.heap); child++ {
			if q.less(q.heap[child], q.heap[least]) {
				least = child
			}
		}
		if least == i {
			return
		}
		q.heap[i], q.heap[least] = q.heap[least], q.heap[i]
		q.where[q.heap[i]], q.where[q.heap[least]] = int32(i), int32(least)
		i = least
	}
}

func (q *loadQueue) less(a, b int32) bool {
	return q.load[a] < q.load[b] || q.load[a] == q.load[b] && a < b
}
