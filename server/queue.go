package server

import (
	"sync"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/wire"
	"github.com/serry-dev/serry/wire/rpc"
)

// An item is one thing for the owner to do: a call to step the machine with, or a word of ours.
type item struct {
	event coord.Event // or nil
	from  origin      // of a call
	req   coord.Req   // of a call
	vital bool        // a call that must not be refused
	bytes int64       // of a call, counted by the queue
	at    coord.Time  // when it was put into the queue
	word  any         // with a nil event: one of the types below; with one: its values that will lie aside, or nil
}

// An origin is where a call came from and how its reply is written.
type origin struct {
	peer  *peer
	call  rpc.CallID
	shape wire.Shape
	stats *methodStats
}

// Words of ours to the owner.
type (
	withdrawn struct { // a client gave up a call
		peer *peer
		call rpc.CallID
	}
	ended struct { // the transport of a connection has ended
		peer     *peer
		evidence string // what that is against its tasks
	}

	silences struct { // seats of an epoch that have been silent too long
		epoch *epoch
		seats []*seat
	}
	exited struct { // the process of a task has ended
		task  serry.TaskID
		cause string // empty if it ended well
	}
	accused struct { // somebody who knows says that a task is lost
		task     serry.TaskID
		evidence string
	}
	viewing struct{ answer chan<- coord.View }
	leaving struct { // another goes on from here
		saved chan<- struct{} // told when it can
		polls bool            // polls end here, because the process does
	}
	ordered struct { // an event of the operator, done once its effects have left
		event coord.Event
		done  chan<- struct{}
	}
)

// mostItems is how many items may wait before streams that bring more are broken (see hosts.tell). Only a
// peer that floods the server while its journal stands still gets there: calls are refused long before,
// and peers in order have little else to say.
const mostItems = 1 << 20

// A queue holds items for the owner. Any goroutine may push; only who has the owner's turn drains.
//
// An item counts against the limits until it has been stepped, not only until it is drained: while the
// journal stands still, the owner keeps what it has drained.
type queue struct {
	wake   chan struct{} // has room for one: tells run that there is something to do
	limits Limits        // set once
	clock  clock         // set once

	mu struct {
		sync.Mutex
		items   []item
		waiting int   // items that were put and not stepped
		bytes   int64 // of them
		closed  bool
	}
}

func newQueue(l Limits, c clock) *queue {
	return &queue{wake: make(chan struct{}, 1), limits: l, clock: c}
}

// push appends a word of ours, and wakes the owner for it. The error is ErrStopped.
func (q *queue) push(word any) error {
	err := q.put(item{word: word}, false)
	q.nudge()
	return err
}

// put appends it for whoever calls owner.help next, with the time at which it came. The time is taken
// under the lock, so that items are in the order of their times. What must not be refused is taken
// whatever the limits; it is bounded by the number of connections and tasks. The error is ErrStopped or
// a LimitError.
func (q *queue) put(it item, refusable bool) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.mu.closed:
		return serry.ErrStopped
	case refusable && q.mu.waiting >= q.limits.QueueEvents:
		return &serry.LimitError{Limit: "queue events", Max: int64(q.limits.QueueEvents)}
	case refusable && q.mu.bytes+it.bytes > q.limits.QueueBytes:
		return &serry.LimitError{Limit: "queue bytes", Max: q.limits.QueueBytes}
	}
	it.at = q.clock.now()
	q.mu.items = append(q.mu.items, it)
	q.mu.waiting++
	q.mu.bytes += it.bytes
	return nil
}

func (q *queue) nudge() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// drain returns everything that was put since the last drain, and whether more can come. spare becomes
// the room for what comes next.
func (q *queue) drain(spare []item) (items []item, open bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	items = q.mu.items
	q.mu.items = spare[:0]
	return items, !q.mu.closed
}

// stepped gives back what items, which were drained, had of the limits.
func (q *queue) stepped(items []item) {
	bytes := int64(0)
	for i := range items {
		bytes += items[i].bytes
		if items[i].vital {
			items[i].from.peer.vital.Add(-1)
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mu.waiting -= len(items)
	q.mu.bytes -= bytes
}

// close lets nothing more in. The owner ends when it has drained the rest.
func (q *queue) close() {
	q.mu.Lock()
	q.mu.closed = true
	q.mu.Unlock()
	q.nudge()
}

// length is how many items have not been stepped yet.
func (q *queue) length() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.mu.waiting
}
