package relay

import (
	"slices"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/wire"
	"github.com/serry-dev/serry/wire/rpc"
	"github.com/serry-dev/serry/wire/stream"
)

// A client is one local connection. All of it is guarded by Relay.mu.
type client struct {
	conn    rpc.Conn
	surplus bool // it came when there were as many connections as allowed

	prompt  *lane // for calls that the service answers as soon as it can
	waiting *lane // for calls that wait for other tasks; nil until there is one

	calls   map[rpc.CallID]*held // without an answer
	lives   []*life              // that registered here, in this order
	carries map[*life]struct{}   // that have called here
}

// A lane is one virtual connection of a client upstream, and as such a requester. A watermark cannot
// pass a call that is open, and the service keeps all results above it, up to a limit. A barrier may be
// open for hours. So calls that wait have a lane of their own: they hold back the watermark of each
// other, but not of the calls that a task makes by the thousand meanwhile (C-REQ-3).
type lane struct {
	id      stream.ConnID
	numbers stream.Numbers
}

// A held call is one that has no answer yet.
type held struct {
	lane    *lane             // by which it was passed on, or nil
	shape   wire.Shape        // how its answer is written
	kind    coord.Kind        // of the call, or 0 for one that cannot be read
	number  uint64            // of its request id, or 0
	service serry.Incarnation // the epoch it belongs to, or 0
	life    *life             // the caller, or nil
	watch   *watch            // that will answer it, or nil: the service does
	version int64             // of a watch: what the caller knows
}

// lifeOf says whose call this is: of the life that the call names, or else of the one that registered on this
// connection (C-INC-6). A call without a task is of the only task that registered here. It is nil if that
// cannot be told.
func (c *client) lifeOf(who wire.Caller, known *lives) *life {
	if who.Shape.Dialect != wire.TF || who.Incarnation != 0 {
		return known.of[who.Incarnation]
	}
	var found *life
	for _, l := range c.lives {
		switch {
		case !who.Task.IsZero() && l.task != who.Task:
		case who.Task.IsZero() && found != nil && found.task != l.task:
			return nil
		default:
			found = l
		}
	}
	return found
}

// carry notes that a life has called on this connection.
func (c *client) carry(l *life) {
	if _, ok := c.carries[l]; !ok {
		c.carries[l] = struct{}{}
		l.open++
	}
}

// forget takes back a registration here: the service has refused it.
func (c *client) forget(l *life) {
	c.lives = slices.DeleteFunc(c.lives, func(other *life) bool { return other == l })
}

// A reply is on its way to a client.
type reply struct {
	conn   rpc.Conn
	call   rpc.CallID
	body   []byte
	status rpc.Status
}

// send delivers replies, one write for each connection. It is called without Relay.mu: a transport may call the
// handler back from there.
func send(replies []reply) {
	flush := make(map[rpc.Conn]struct{})
	for _, p := range replies {
		p.conn.Reply(p.call, p.body, p.status)
		flush[p.conn] = struct{}{}
	}
	for c := range flush {
		c.Flush()
	}
}

// finish forgets a call that has been answered, or that its client has given up. It needs Relay.mu.
func (r *Relay) finish(c *client, call rpc.CallID, h *held) {
	delete(c.calls, call)
	r.mu.held--
	if h.kind == coord.KindPollForError && h.life != nil {
		delete(h.life.polls, pollKey{c, call})
	}
	if h.watch != nil {
		h.watch.leave()
	}
	if l := h.lane; l != nil && l.numbers.Deliver(h.number) {
		r.host.Delivered(l.id, l.numbers.Watermark())
	}
}

// release answers waiting calls in place of the service: those for which end has an answer. It needs Relay.mu,
// and returns what to send.
func (r *Relay) release(end func(*held) (body []byte, st rpc.Status, ok bool)) []reply {
	var replies []reply
	for _, c := range r.mu.clients {
		for call, h := range c.calls {
			if body, st, ok := end(h); ok {
				replies = append(replies, reply{c.conn, call, body, st})
				r.drop(c, call, h)
			}
		}
	}
	return replies
}

// lane is the one for a call with such a row, which is opened when it is needed. It needs Relay.mu.
func (r *Relay) lane(c *client, row coord.Row) *lane {
	if !row.Once || !row.Limited() {
		return c.prompt
	}
	if c.waiting == nil {
		c.waiting = r.openLane(c)
	}
	return c.waiting
}

// openLane opens a virtual connection for a client, and closeLanes ends all that it has. They need Relay.mu.
func (r *Relay) openLane(c *client) *lane {
	l := &lane{id: newConnID()}
	r.mu.byID[l.id] = c
	r.host.Open(l.id)
	return l
}

func (r *Relay) closeLanes(c *client, how stream.Ending) {
	for _, l := range []*lane{c.prompt, c.waiting} {
		if l != nil {
			delete(r.mu.byID, l.id)
			r.host.Shut(l.id, how)
		}
	}
}

// drop ends a call without the service, and tells it that no caller waits for the result. It needs Relay.mu.
func (r *Relay) drop(c *client, call rpc.CallID, h *held) {
	r.finish(c, call, h)
	if h.lane != nil {
		r.host.Cancel(h.lane.id, call)
	}
}

// refuse is the answer to the call with an error.
func (h *held) refuse(err error) ([]byte, rpc.Status) {
	return h.shape.Encode(coord.Reply{Err: err})
}

// older says whether the call belongs to an epoch before the present one, and how it is answered then
// (C-EPOCH-5).
func (h *held) older(present serry.Incarnation) (body []byte, st rpc.Status, ok bool) {
	if present == 0 || h.service == 0 || h.service == present {
		return nil, rpc.Status{}, false
	}
	body, st = h.refuse(&serry.MismatchError{Requested: h.service, Current: present})
	return body, st, true
}
