package relay

import (
	"cmp"
	"maps"
	"slices"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/wire/rpc"
	"github.com/serry-dev/serry/wire/stream"
)

// A connection that closes while the service is out of reach, or about to be, must not go unnoticed:
// the next leader has never heard of it, and would wait for the heartbeat timeout. So a life whose last
// connection has closed with its error poll unanswered (C-LOST-4) is mourned: each new connection to the
// service is told again that there was such a connection, and how it ended, until the service says that
// the life is connected no more.

// mourn notes that the last connection of l has closed. It needs Relay.mu.
func (r *Relay) mourn(l *life, how stream.Ending) {
	if l.poll != nil && (!l.said || l.state == serry.Connected) {
		r.mu.mourned[l] = how
	}
	for old := r.mu.lives.evict(); old != nil; old = r.mu.lives.evict() {
		delete(r.mu.mourned, old)
	}
}

// retell tells a connection to the service of the lives that are mourned. It needs Relay.mu.
func (r *Relay) retell() {
	byOrder := func(a, b *life) int { return cmp.Compare(a.order, b.order) }
	for _, l := range slices.SortedFunc(maps.Keys(r.mu.mourned), byOrder) {
		id := newConnID()
		r.host.Open(id)
		err := r.host.Call(stream.Call{
			Conn: id, ID: rpc.CallID(1), Stamp: stream.Stamp{Life: l.name(), Service: l.service},
			Method: l.poll.method, Body: l.poll.body, Vital: true,
		})
		if err == nil {
			r.host.Shut(id, r.mu.mourned[l])
		}
	}
}
