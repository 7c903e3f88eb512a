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
	bytes int64       // of a call, counted by the queue
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
	leaving struct{ saved chan<- struct{} } // another goes on from here; told when it can
	ordered struct {                        // an event of the operator, done once its effects have left
		event coord.Event
		done  chan<- struct{}
	}
)

// A queue holds items for the owner. Any goroutine may push; only who has the owner's turn drains.
type queue struct {
	wake   chan struct{} // has room for one: tells run that there is something to do
	limits Limits        // set once

	mu struct {
		sync.Mutex
		items  []item
		bytes  int64
		closed bool
	}
}

func newQueue(l Limits) *queue {
	return &queue{wake: make(chan struct{}, 1), limits: l}
}

// push appends a word of ours, and wakes the owner for it. The error is ErrStopped.
func (q *queue) push(word any) error {
	err := q.put(item{word: word}, false)
	q.nudge()
	return err
}

// put appends it for whoever calls owner.help next. What must not be refused is taken whatever the
// limits; it is bounded by the number of connections and tasks. The error is ErrStopped or a
// LimitError.
func (q *queue) put(it item, refusable bool) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.mu.closed:
		return serry.ErrStopped
	case refusable && len(q.mu.items) >= q.limits.QueueEvents:
		return &serry.LimitError{Limit: "queue events", Max: int64(q.limits.QueueEvents)}
	case refusable && q.mu.bytes+it.bytes > q.limits.QueueBytes:
		return &serry.LimitError{Limit: "queue bytes", Max: q.limits.QueueBytes}
	}
	q.mu.items = append(q.mu.items, it)
	q.mu.bytes += it.bytes
	return nil
}

func (q *queue) nudge() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// drain returns everything queued, and whether more can come. spare becomes the room for what
// comes next.
func (q *queue) drain(spare []item) (items []item, open bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	items = q.mu.items
	q.mu.items = spare[:0]
	q.mu.bytes = 0
	return items, !q.mu.closed
}

// close lets nothing more in. The owner ends when it has drained the rest.
func (q *queue) close() {
	q.mu.Lock()
	q.mu.closed = true
	q.mu.Unlock()
	q.nudge()
}

func (q *queue) length() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.mu.items)
}
