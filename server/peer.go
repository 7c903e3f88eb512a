package server

import (
	"slices"
	"sync/atomic"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/wire"
	"github.com/serry-dev/serry/wire/rpc"
)

// A peer is what the server remembers of one connection: a connection of the network, or a virtual one that
// a stream carries. Four kinds of goroutines use it, so its fields are grouped by which of them may touch them.
//
// A peer outlives its connection. Items in the queue and waiting calls point to it until the owner has stepped
// connClosed; after that no call of it is stepped any more.
type peer struct {
	// Set once.
	conn    rpc.Conn
	surplus bool // it came when there were as many connections as allowed

	// Counted by handlers and by the queue: vital calls in the queue. They are never refused for the limits
	// of the queue, so they need a bound of their own (see vitalCalls).
	vital atomic.Int64

	// Written by the owner, read by handlers: the lives that this connection carries. The list is replaced
	// as a whole and never changed in place, so that a handler may read it without a lock.
	lives atomic.Pointer[[]carried]

	// Owned by the owner.
	calls  map[rpc.CallID]*waiter // calls that wait
	shared map[shareKey]*waiter   // waiting gets that equal ones may join
	closed bool                   // the transport has ended

	waitingBytes int64 // requests of calls that wait

	// Owned by the performer: the wave has replies for the connection that are not flushed.
	inWave bool
}

// carried is a life that has called on a connection. A connection may carry several: a relay of another make,
// or a test, may speak for many tasks on one; and a process that starts anew may inherit the connection.
type carried struct {
	serry.Life

	// The life registered on this connection, so that calls without an incarnation are its own (C-INC-6).
	registered bool

	// The epoch that accepted the registration, or 0.
	service serry.Incarnation
}

// A shareKey tells which waiting gets of a connection are the same question. The shape is part of it, because
// the answer is encoded once for all callers.
type shareKey struct {
	caller  serry.Life
	service serry.Incarnation
	key     string
	shape   wire.Shape
}

// newPeer makes the peer of a connection that has just opened.
func newPeer(c rpc.Conn, surplus bool) *peer {
	return &peer{
		conn:    c,
		surplus: surplus,
		calls:   make(map[rpc.CallID]*waiter),
		shared:  make(map[shareKey]*waiter),
	}
}

// carried are the lives that the connection carries. The caller must not change the slice.
func (p *peer) carried() []carried {
	if list := p.lives.Load(); list != nil {
		return *list
	}
	return nil
}

// stranger says whether the connection carries no life. Any goroutine may ask.
func (p *peer) stranger() bool { return len(p.carried()) == 0 }

// carries says whether l has called on this connection before. A heartbeat is answered without the owner only
// then: the first call of a life on a connection is what the detector must hear of.
func (p *peer) carries(l serry.Life) bool {
	return slices.ContainsFunc(p.carried(), func(c carried) bool { return c.Life == l })
}

// identify says whose calls without an incarnation these are (C-INC-6). Dialect TF names the incarnation only
// where a task registers or beats. All its other calls are of the life that registered on this connection;
// of the present one, if there are two of a task. A call that names no task either is of the only task that
// registered here; if several did, it is of none.
func (p *peer) identify(e *epoch, task serry.TaskID) (incarnation, service serry.Incarnation) {
	var found carried
	for _, c := range p.carried() {
		if !c.registered || !task.IsZero() && c.Task != task {
			continue
		}
		if task.IsZero() && !found.Task.IsZero() && found.Task != c.Task {
			return 0, 0
		}
		if found.Incarnation == 0 || !e.present(found.Life) {
			found = c
		}
	}
	return found.Incarnation, found.service
}

// carry notes that l has called on this connection. Earlier lives of the task are taken out, unless keep
// says that they go on: a process that was started anew does not speak for the one before it.
//
// Only the owner changes the list, here and in admitted, so to load it, change a copy and store that needs no
// lock.
func (p *peer) carry(l serry.Life, registered bool, keep func(serry.Life) bool) (added bool, replaced []serry.Life) {
	list := slices.Clone(p.carried())
	if i := slices.IndexFunc(list, func(c carried) bool { return c.Life == l }); i >= 0 {
		list[i].registered = list[i].registered || registered
		p.lives.Store(&list)
		return false, nil
	}
	list = slices.DeleteFunc(list, func(c carried) bool {
		gone := c.Task == l.Task && !keep(c.Life)
		if gone {
			replaced = append(replaced, c.Life)
		}
		return gone
	})
	list = append(list, carried{Life: l, registered: registered})
	p.lives.Store(&list)
	return true, replaced
}

// admitted notes which epoch accepted the registration of l. Calls of dialect TF do not name their epoch, so
// this is how the service knows that one belongs to an epoch that is over (C-EPOCH-5).
func (p *peer) admitted(l serry.Life, service serry.Incarnation) {
	list := slices.Clone(p.carried())
	for i := range list {
		if list[i].Life == l {
			list[i].service = service
		}
	}
	p.lives.Store(&list)
}
