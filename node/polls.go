package node

import (
	"sync"

	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/wire"
	"github.com/serry-dev/serry/wire/rpc"
)

// polls stands between the transport and the relay and knows which calls are error polls. When the node
// ends it answers them with what a client outlives: one that loses its poll with its connection dies at
// once (A-HA-7).
type polls struct {
	rpc.Handler // of the relay

	mu struct {
		sync.Mutex
		open map[rpc.Conn][]rpc.CallID // of connections that polled; answered ones stay until they close
	}
}

func newPolls(next rpc.Handler) *polls {
	p := &polls{Handler: next}
	p.mu.open = make(map[rpc.Conn][]rpc.CallID)
	return p
}

// maxPolls is how many polls of a connection are remembered. A client has one at a time.
const maxPolls = 64

// Serve implements [rpc.Handler].
func (p *polls) Serve(c rpc.Conn, call rpc.CallID, method string, body []byte) {
	if who, ok := wire.Peek(method, body); ok && who.Kind == coord.KindPollForError {
		p.mu.Lock()
		if list := p.mu.open[c]; len(list) < maxPolls {
			p.mu.open[c] = append(list, call)
		}
		p.mu.Unlock()
	}
	p.Handler.Serve(c, call, method, body)
}

// Close implements [rpc.Handler].
func (p *polls) Close(c rpc.Conn, err error) {
	p.mu.Lock()
	delete(p.mu.open, c)
	p.mu.Unlock()
	p.Handler.Close(c, err)
}

// release ends all polls as a service does that ends. A poll that was answered does not hear it.
func (p *polls) release() {
	p.mu.Lock()
	open := p.mu.open
	p.mu.open = make(map[rpc.Conn][]rpc.CallID)
	p.mu.Unlock()
	for c, calls := range open {
		for _, call := range calls {
			c.Reply(call, nil, wire.PollEnded())
		}
		c.Flush()
	}
}
