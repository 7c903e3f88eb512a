package server

import (
	"sync"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/wire"
	"github.com/serry-dev/serry/wire/rpc"
)

// An item is one entry of the owner's queue: a call of a client, or a command.
type item struct {
	at coord.Time // when it was put into the queue; items are in the order of these times

	// Of a call.
	event    coord.Event
	from     origin
	req      coord.Req
	vital    bool   // the call must not be refused (C-LIM-1)
	bytes    int64  // of the request: what counts against Limits.QueueBytes
	stranger bool   // of a stranger: the bytes count against Limits.StrangerBytes, too
	blobs    []blob // the large values of the event, with their digests; nil without a journal

	command command // or nil: the item is a call
}

// A command is anything but a call that the owner must do. Transports, hosts, the scanner and the methods
// of [Server] make commands, because only the owner may touch the machine. commands.go has those of the
// server itself, hosts.go those of hosts.
type command interface{ do(o *owner) }

// An origin is where a call came from and how its reply is written. It is all that a reply needs, so a call that
// is answered holds on to nothing else.
type origin struct {
	peer  *peer
	call  rpc.CallID
	shape wire.Shape
	stats *methodStats
}

// maxQueuedItems is how many items may wait before streams that bring more are broken (see hosts.order).
// Only a peer that floods the server while its journal stands still gets there: calls are refused long
// before, and peers in order have little else to say.
const maxQueuedItems = 1 << 20

// A queue holds items for the owner. Any goroutine may push; only the goroutine that has the owner's turn
// drains.
//
// An item counts against the limits until it has been stepped, not only until it is drained: while the
// journal stands still, the owner keeps what it has drained, and memory is what the limits are for.
//
// There are two ways in. push is for goroutines that have nothing else to do: it wakes the owner. put is
// for goroutines that read a connection: they add all that came with one read and then take the owner's
// turn themselves (see [owner.help]), which saves waking another goroutine.
type queue struct {
	wake   chan struct{} // has room for one: tells run that there is something to do
	limits Limits        // set once
	clock  clock         // set once

	mu struct {
		sync.Mutex
		items         []item
		waiting       int   // items that were put and not stepped
		bytes         int64 // of them
		strangerBytes int64 // of them, those of strangers
		closed        bool
	}
}

// newQueue makes an empty queue. wake holds one token: a second one would tell the owner nothing new, since it takes
// all items whenever it wakes.
func newQueue(l Limits, c clock) *queue {
	return &queue{wake: make(chan struct{}, 1), limits: l, clock: c}
}

// push appends a command, and wakes the owner for it. The error is ErrStopped.
func (q *queue) push(c command) error {
	err := q.put(item{command: c}, false)
	q.nudge()
	return err
}

// put appends an item for the goroutine that calls owner.help next. The time is taken under the lock, so
// that items are in the order of their times. An item that must not be refused is taken whatever the
// limits; the number of connections and tasks bounds how many there can be. The error is ErrStopped or a
// LimitError. The limit on strangers lets one request pass if it is alone, however large: otherwise a stranger
// could never make a call that is larger than the limit.
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
	case refusable && it.stranger && q.mu.strangerBytes > 0 && q.mu.strangerBytes+it.bytes > q.limits.StrangerBytes:
		return &serry.LimitError{Limit: "queue bytes of strangers", Max: q.limits.StrangerBytes}
	}
	it.at = q.clock.now()
	q.mu.items = append(q.mu.items, it)
	q.mu.waiting++
	q.mu.bytes += it.bytes
	if it.stranger {
		q.mu.strangerBytes += it.bytes
	}
	return nil
}

// nudge wakes owner.run. One pending wake-up is enough: run looks at everything when it wakes.
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

// stepped gives back what items, which were drained, had of the limits. Whether an item counts as one of a
// stranger was decided when it was queued. So this gives back exactly what put took, although the connection
// may carry a life by now.
func (q *queue) stepped(items []item) {
	bytes, ofStrangers := int64(0), int64(0)
	for i := range items {
		bytes += items[i].bytes
		if items[i].stranger {
			ofStrangers += items[i].bytes
		}
		if items[i].vital {
			items[i].from.peer.vital.Add(-1)
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mu.waiting -= len(items)
	q.mu.bytes -= bytes
	q.mu.strangerBytes -= ofStrangers
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
