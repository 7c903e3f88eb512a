package server

import (
	"slices"
	"sync/atomic"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/wire"
	"github.com/serry-dev/serry/wire/rpc"
)

// A peer is what the server remembers of one connection.
type peer struct {
	conn    rpc.Conn // set once
	surplus bool     // set once: it came when there were as many connections as allowed

	vital atomic.Int64 // calls in the queue that must not be refused

	// Written by the owner, read by handlers: the lives this connection carried. Never changed in
	// place.
	lives atomic.Pointer[[]carried]

	// Owned by the owner.
	calls  map[rpc.CallID]*waiter // all that wait
	shared map[shareKey]*waiter   // waiting gets that others may join
	closed bool
	inWave bool // replies of this wave want a flush
}

// carried is a life that a connection has spoken for.
type carried struct {
	serry.Life
	registered bool              // it registered here, so that calls without a name are its own (C-INC-6)
	service    serry.Incarnation // the epoch that took the registration, or 0
}

// A shareKey tells which waiting gets of a connection are the same question.
type shareKey struct {
	asker   serry.Life
	service serry.Incarnation
	key     string
	shape   wire.Shape
}

func newPeer(c rpc.Conn, surplus bool) *peer {
	return &peer{
		conn:    c,
		surplus: surplus,
		calls:   make(map[rpc.CallID]*waiter),
		shared:  make(map[shareKey]*waiter),
	}
}

func (p *peer) carried() []carried {
	if list := p.lives.Load(); list != nil {
		return *list
	}
	return nil
}

// carries says whether l has spoken on this connection before.
func (p *peer) carries(l serry.Life) bool {
	return slices.ContainsFunc(p.carried(), func(c carried) bool { return c.Life == l })
}

// identify says whose calls without an incarnation these are (C-INC-6): the life of the task that
// registered on this connection, the present one if there are two. Without a task, it is the life
// of the only task that registered here, if there is just one.
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

// admitted notes which epoch took the registration of l.
func (p *peer) admitted(l serry.Life, service serry.Incarnation) {
	list := slices.Clone(p.carried())
	for i := range list {
		if list[i].Life == l {
			list[i].service = service
		}
	}
	p.lives.Store(&list)
}
