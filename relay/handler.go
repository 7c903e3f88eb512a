package relay

import (
	"bytes"
	"errors"

	"google.golang.org/grpc/codes"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/internal/plant"
	"github.com/serry-dev/serry/wire"
	"github.com/serry-dev/serry/wire/rpc"
	"github.com/serry-dev/serry/wire/stream"
)

// handler is the side of a relay that clients see. It implements [rpc.Handler].
type handler Relay

// Open implements [rpc.Handler].
func (h *handler) Open(conn rpc.Conn) {
	r := (*Relay)(h)
	r.mu.Lock()
	defer r.mu.Unlock()
	c := &client{conn: conn, calls: make(map[rpc.CallID]*held), carries: make(map[*life]struct{})}
	c.surplus = len(r.mu.clients) >= r.cfg.Limits.Connections
	r.mu.clients[conn] = c
	c.prompt = r.openLane(c)
}

// Serve implements [rpc.Handler].
func (h *handler) Serve(conn rpc.Conn, call rpc.CallID, method string, body []byte) {
	r := (*Relay)(h)
	if method == wire.LeadMethod && !r.cfg.Operators {
		conn.Reply(call, nil, rpc.Status{Code: codes.PermissionDenied, Message: "a relay passes on no call of an operator: ask a server"})
		return
	}
	who, ok := wire.Peek(method, body)
	if !ok && !who.Kind.Row().Once {
		who.Kind = 0 // the service will say what is wrong with it; the relay cannot tell whose call it is
	}
	if who.Kind != coord.KindHeartbeat { // which are answered here, nearly all
		body = bytes.Clone(body)
	}
	r.mu.Lock()
	answer, st, done := r.take(conn, request{call, method, body, who})
	r.mu.Unlock()
	if done {
		conn.Reply(call, answer, st)
	}
}

// Served implements [rpc.Handler].
func (h *handler) Served(rpc.Conn) { h.host.Flush() }

// Cancel implements [rpc.Handler]. A call that the client gave up does not hold back the watermark, and a
// registration is withdrawn at the service (A-SIDE-7, C-REG-15).
func (h *handler) Cancel(conn rpc.Conn, call rpc.CallID) {
	r := (*Relay)(h)
	r.mu.Lock()
	if c := r.mu.clients[conn]; c != nil {
		if k := c.calls[call]; k != nil {
			r.drop(c, call, k)
		}
	}
	r.mu.Unlock()
	r.host.Flush()
}

// Close implements [rpc.Handler].
func (h *handler) Close(conn rpc.Conn, err error) {
	r := (*Relay)(h)
	how := stream.Closed
	if errors.Is(err, rpc.ErrNotReading) {
		how = stream.NotReading
	}
	r.mu.Lock()
	if c := r.mu.clients[conn]; c != nil {
		r.end(c, how)
	}
	r.mu.Unlock()
	r.host.Flush()
}

// A request is a call of a client.
type request struct {
	call   rpc.CallID
	method string
	body   []byte // of a heartbeat: valid until Serve returns
	who    wire.Caller
}

// take answers a call at once, or holds it and passes it on. It needs Relay.mu. The life of the caller is noted
// first, also for a call that is then refused: it is alive.
func (r *Relay) take(conn rpc.Conn, q request) (body []byte, st rpc.Status, done bool) {
	c := r.mu.clients[conn]
	if c == nil {
		return nil, rpc.Status{}, false // the connection has just ended
	}
	var l *life
	switch q.who.Kind {
	case coord.KindRegisterTask:
		l = r.mu.lives.register(c, q.who)
	case coord.KindHeartbeat:
		l = r.mu.lives.find(q.who)
	default:
		l = c.lifeOf(q.who, &r.mu.lives)
	}
	if l != nil {
		c.carry(l)
		r.reopen(l)
	}
	k := &held{shape: q.who.Shape, kind: q.who.Kind, service: q.who.Service, life: l, version: q.who.Version}
	if k.service == 0 && l != nil && k.kind != coord.KindRegisterTask {
		k.service = l.service
	}
	if body, st, done = r.answer(q, k); done {
		return body, st, true
	}
	err := r.admit(c, k.kind.Row())
	if err == nil && q.who.Watches() {
		body, done, err = r.watch(c, q, k)
	} else if err == nil {
		err = r.forward(c, q, k)
	}
	if err != nil {
		body, st = k.refuse(err)
		return body, st, true
	}
	return body, rpc.Status{}, done
}

// answer says how the relay answers a call itself, if it does: the call is of an epoch that is over, the service
// was given up, or it is a heartbeat that the table can answer.
func (r *Relay) answer(q request, k *held) (body []byte, st rpc.Status, done bool) {
	o := &r.mu.outage
	if body, st, done = k.older(o.service); done { // A-SIDE-9
		return body, st, true
	}
	if o.gaveUp && k.kind != coord.KindRegisterTask {
		return nil, wire.OutOfReach(), true
	}
	if k.kind != coord.KindHeartbeat || k.life == nil {
		return nil, rpc.Status{}, false
	}
	r.host.Heard(k.life.name())
	return k.life.beat(q.who, o.service, o.down)
}

// admit says whether the limits allow another call to wait.
func (r *Relay) admit(c *client, row coord.Row) error {
	switch l := r.cfg.Limits; {
	case row.Vital: // C-LIM-1
	case c.surplus:
		return &serry.LimitError{Limit: "connections of a relay", Max: int64(l.Connections)}
	case len(c.calls) >= l.Calls:
		return &serry.LimitError{Limit: "calls waiting on one connection of a relay", Max: int64(l.Calls)}
	case r.mu.held >= l.CallsInAll:
		return &serry.LimitError{Limit: "calls waiting at a relay", Max: int64(l.CallsInAll)}
	}
	return nil
}

// forward passes a call on and holds it until the service has answered it. A call that must not take effect
// twice gets a request id here, unless its client gave it one.
func (r *Relay) forward(c *client, q request, k *held) error {
	body := q.body
	if k.kind == coord.KindHeartbeat {
		body = bytes.Clone(body)
	}
	row := k.kind.Row()
	k.lane = r.lane(c, row)
	up := stream.Call{
		Conn: k.lane.id, ID: q.call, Watermark: k.lane.numbers.Watermark(),
		Stamp:  stream.Stamp{Life: serry.Life{Task: q.who.Task, Incarnation: q.who.Incarnation}},
		Method: q.method, Body: body, Vital: row.Vital,
	}
	if k.life != nil {
		up.Stamp = stream.Stamp{Life: k.life.name(), Service: k.life.service}
	}
	if !q.who.Identified && row.Once {
		k.number = k.lane.numbers.Next()
		up.Number = k.number
	}
	if err := r.host.Call(up); err != nil {
		k.lane.numbers.Deliver(k.number)
		return err
	}
	if r.cfg.Planted.Has(plant.EarlyWatermark) {
		k.lane.numbers.Deliver(k.number)
	}
	c.calls[q.call] = k
	r.mu.held++
	if k.kind == coord.KindPollForError && k.life != nil {
		k.life.polls[pollKey{c, q.call}] = struct{}{}
		k.life.poll, k.life.resumes = pollKey{c, q.call}, k.shape.Dialect == wire.Serry
	}
	return nil
}

// end forgets a connection that has closed, and tells the service. Its calls are given up without an answer:
// there is no client to read one.
func (r *Relay) end(c *client, how stream.Ending) {
	delete(r.mu.clients, c.conn)
	for call, k := range c.calls {
		r.finish(c, call, k)
	}
	r.closeLanes(c, how)
	for l := range c.carries {
		if r.mu.lives.leave(l) {
			r.unfollow(l.incarnation)
			r.reportClosed(l, how)
		}
	}
	if len(r.mu.clients) == 0 {
		r.mu.watches.forget(r)
	}
}

// reportClosed tells the service that the last connection of l has closed, if its error poll is unanswered:
// then the client cannot live on (C-LOST-4). The stream repeats that to every later leader until one has
// said that the life is not connected: a leader that has never heard of the connection would otherwise wait
// for the heartbeat timeout. It needs Relay.mu.
func (r *Relay) reportClosed(l *life, how stream.Ending) {
	if l.poll != (pollKey{}) && (!l.told || l.state == serry.Connected) {
		l.reported = true
		r.host.Closed(stream.Closure{Life: l.name(), How: how, Resumes: l.resumes})
	}
	for old := r.mu.lives.evict(); old != nil; old = r.mu.lives.evict() {
		r.reopen(old)
	}
}

// unfollow lets later leaders not hear of a life by this relay: it has no connection here, and may have one to
// another relay. It needs Relay.mu.
func (r *Relay) unfollow(incarnation serry.Incarnation) {
	if !r.cfg.Planted.Has(plant.StaleFollow) {
		r.host.Unfollow(incarnation)
	}
}

// reopen takes the report back: the life has called again, or is forgotten. It needs Relay.mu.
func (r *Relay) reopen(l *life) {
	if l.reported {
		l.reported = false
		r.host.Reopened(l.incarnation)
	}
}
