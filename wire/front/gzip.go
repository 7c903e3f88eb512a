package front

import (
	"errors"

	"google.golang.org/grpc/codes"

	"github.com/serry-dev/serry/wire/conn"
	"github.com/serry-dev/serry/wire/internal/h2"
	"github.com/serry-dev/serry/wire/rpc"
)

// Limits on messages that gzip expands. A peer pays for the bytes that it sends, and gzip makes a thousand of
// one: so what it makes has a budget of its own, and a message beyond freeExpansion must be worth its size.
const (
	expandedBytes = 64 << 20  // of all messages that are being expanded; one may go on beyond it
	freeExpansion = 64 << 20  // bytes that any message may expand to
	maxExpansion  = 32        // times its size that a larger one may
	quickBytes    = 256 << 10 // that a stranger's message may expand to without waiting for its turn
)

// expand expands the message of a request and hands it to the handler. Expanding is work that costs the peer next to
// nothing, so strangers get one processor for it, all together.
func (c *connection) expand(r *request, body []byte) error {
	if c.stranger() && !h2.Small(body, quickBytes) {
		c.srv.turn.Lock()
		defer c.srv.turn.Unlock()
		if c.over() { // while it waited
			return c.refuse(r, rpc.Status{Code: codes.Canceled, Message: "connection closed"}, true)
		}
	}
	share := c.srv.expanded.Share(noWaiter{})
	defer share.Release()
	limit := min(r.head.method.limit, max(freeExpansion, maxExpansion*int64(len(body))))
	plain, err := h2.Gunzip(body, limit, share.Reserve)
	switch {
	case errors.Is(err, h2.ErrTooLarge):
		return c.refuse(r, *tooLarge(limit), true)
	case errors.Is(err, h2.ErrNoRoom):
		c.srv.count.refused[refusedMemory].Add(1)
		return c.refuse(r, rpc.Status{Code: codes.ResourceExhausted, Message: "gzip: too many messages are being expanded"}, true)
	case err != nil:
		return c.refuse(r, rpc.Status{Code: codes.Internal, Message: "gzip: " + err.Error()}, true)
	}
	c.dispatch(r, plain)
	conn.Recycle(plain)
	return nil
}

// over says whether the connection has been closed.
func (c *connection) over() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.Cause() != nil
}

// noWaiter is told of room in a budget, and does not try again: its message was refused.
type noWaiter struct{}

func (noWaiter) Resume() {}
