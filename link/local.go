package link

import (
	"net"
	"sync"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/wire/conn"
)

// A Local connects the Nets of one process that have it in their options, without sockets. They speak the
// same protocol as over sockets, handshake included. The zero value is ready to use.
//
// As [Options.Segments] it lets them lend segments to each other, however they are connected.
type Local struct {
	mu   sync.Mutex
	nets map[serry.Life]*Net // guarded by mu
}

// add makes a Net known. x may be nil, as for remove and find.
func (x *Local) add(n *Net) {
	if x == nil {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.nets == nil {
		x.nets = make(map[serry.Life]*Net)
	}
	x.nets[n.life] = n
}

func (x *Local) remove(n *Net) {
	if x == nil {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.nets[n.life] == n {
		delete(x.nets, n.life)
	}
}

// find returns the Net of a life of this process, or nil.
func (x *Local) find(peer serry.Life) *Net {
	if x == nil {
		return nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.nets[peer]
}

// dial connects to a Net of this process, or returns nil if the life is not one of them.
func (x *Local) dial(peer serry.Life) net.Conn {
	n := x.find(peer)
	if n == nil {
		return nil
	}
	mine, theirs := conn.Loop("local")
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.mu.closed {
		return nil
	}
	n.work.Go(func() {
		c := conn.New(theirs)
		c.SetDeadline(time.Now().Add(handshakeTime))
		if n.serve(c); !c.Detached() {
			c.Close()
		}
	})
	return mine
}
