package server

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/detect"
	"github.com/serry-dev/serry/wire"
	"github.com/serry-dev/serry/wire/rpc"
	"github.com/serry-dev/serry/wire/serrypb"
)

// A handler takes calls from transports, decodes them, and queues them for the owner. It answers itself what
// needs no decision of the machine: good heartbeats, calls that cannot be read, calls beyond a limit, and
// questions about the leadership.
//
// Many goroutines use a handler at a time, one for each connection that has something to read. They share
// nothing but what is atomic here, and they never wait: a handler that waited for the journal would leave
// heartbeats unread.
type handler struct {
	// Set in New, then constant.
	limits   Limits
	binding  binding        // of certificates to tasks
	term     uint64         // Config.Term
	takeover *wire.Takeover // or nil
	address  string         // Config.Address
	clock    clock
	queue    *queue
	stats    *stats
	help     func() // owner.help

	inquiries *inquiries // of commands, about what processes of the job know

	// Each takes one value: a person wants a hand-over, or the end of the service. nil where the server
	// refuses that by itself, see Server.HandoverAsked and Server.StopAsked.
	handoverAsked, stopAsked chan struct{}

	epoch atomic.Pointer[epoch] // published by the performer
	req   atomic.Uint64         // the last request number given out
	mute  atomic.Bool           // another server continues: no more answers from here
	peers sync.Map              // rpc.Conn -> *peer
	open  atomic.Int64          // connections
}

// Open implements [rpc.Handler]. A connection beyond the limit is served all the same, but for calls that
// may be refused: a stock client whose connection is refused dies.
func (h *handler) Open(c rpc.Conn) {
	n := h.open.Add(1)
	h.peers.Store(c, newPeer(c, n > int64(h.limits.Connections)))
}

// Close implements [rpc.Handler]. What the end of a connection means for the lives on it, the detector decides.
func (h *handler) Close(c rpc.Conn, err error) {
	p := h.drop(c)
	if p == nil {
		return
	}
	evidence := detect.ConnectionClosed
	if errors.Is(err, rpc.ErrNotReading) {
		evidence = detect.NotReading
	}
	// The error is that the server has ended, which has no use for the command.
	_ = h.queue.push(connClosed{p, evidence})
}

// drop forgets a connection, and returns its peer, or nil if another goroutine has dropped it.
func (h *handler) drop(c rpc.Conn) *peer {
	v, ok := h.peers.LoadAndDelete(c)
	if !ok {
		return nil
	}
	h.open.Add(-1)
	h.inquiries.connClosed(c)
	return v.(*peer)
}

// Cancel implements [rpc.Handler]. The machine forgets the call, unless it has answered it already; a reply that
// is on its way then finds no caller, which transports ignore.
func (h *handler) Cancel(c rpc.Conn, call rpc.CallID) {
	h.inquiries.cancel(callKey{c, call})
	if v, ok := h.peers.Load(c); ok {
		_ = h.queue.push(callCancelled{v.(*peer), call})
	}
}

// Serve implements [rpc.Handler].
func (h *handler) Serve(c rpc.Conn, call rpc.CallID, method string, body []byte) {
	h.serve(c, call, method, body, envelope{})
}

// serve takes a call that came directly, or in an envelope by a stream.
//
// The order of the checks matters:
//
//  1. Questions about the leadership and inquiries do not concern the machine. They are dealt with at once, so
//     that people get answers while the journal stands still.
//  2. The certificate is judged before the call can have any effect (see binding.judge).
//  3. A good heartbeat ends here. It must be of a life that has called on this connection before; else the
//     owner has to note the connection first.
//  4. Digests of large values are computed on this goroutine, because the owner's turn is too short for them.
//  5. Limits are checked by enqueue and, under its lock, by the queue.
func (h *handler) serve(c rpc.Conn, call rpc.CallID, method string, body []byte, env envelope) {
	v, ok := h.peers.Load(c)
	if !ok {
		return // the connection has just ended
	}
	if method == wire.LeadMethod {
		h.lead(c, call, body)
		return
	}
	if h.inquiries.serve(callKey{c, call}, method, body) {
		if _, ok := h.peers.Load(c); !ok { // a silent host was dropped meanwhile
			h.inquiries.connClosed(c)
		}
		return
	}
	p, e := v.(*peer), h.epoch.Load()
	// The epoch is read once: the call is decoded, judged and answered by one view of the job.
	req := coord.Req(h.req.Add(1))
	ev, shape, err := e.codec.Decode(method, body, h.origin(p, e, req, method, env))
	to := origin{peer: p, call: call, shape: shape, stats: h.stats.of(shape)}
	to.stats.received(len(body))
	if err != nil {
		to.answer(nil, shape.Refuse(err))
		return
	}
	caller, _ := coord.CallOf(ev)
	kind := coord.KindOf(ev)
	ev, allowed := h.binding.judge(c, ev)
	if !allowed {
		why := h.binding.refusal(kind.Row().Name, caller.Task)
		if kind == coord.KindRegisterTask {
			// Without room for the command the refusal is not noted: the client comes again.
			_ = h.queue.put(item{command: denied{p, caller, errNotBound{why}}}, true)
		}
		to.answer(nil, why)
		return
	}
	if kind == coord.KindHeartbeat && p.carries(serry.Life{Task: caller.Task, Incarnation: caller.Incarnation}) && e.beat(caller, h.clock.now()) {
		to.answer(shape.Encode(coord.Reply{Result: coord.Registered{Service: e.service}}))
		return
	}
	it := item{event: ev, from: to, req: req, vital: kind.Row().Vital, bytes: int64(len(body)), stranger: p.stranger()}
	if h.handoverAsked != nil && len(body) > coord.AsideBytes { // there is a journal
		it.blobs = blobsOf(ev)
	}
	// A server that hands over refuses nothing: the call is for the successor, which its caller will find.
	if err := h.enqueue(it, len(e.tasks)); err != nil && !h.mute.Load() {
		to.answer(refusal(shape, err))
	}
}

// Served implements [rpc.Handler]: the calls that one read has brought are queued, and this goroutine now steps
// the machine through them, if no other does.
func (h *handler) Served(rpc.Conn) { h.help() }

// origin is what the codec must know of a call besides its bytes. Next is the incarnation of an epoch that
// the call may open: the machine must not draw random numbers, so each event that could need one brings it.
func (h *handler) origin(p *peer, e *epoch, req coord.Req, method string, env envelope) wire.Origin {
	o := wire.Origin{Req: req, ID: env.id, Identify: func(t serry.TaskID) (own, service serry.Incarnation) {
		return env.identify(p, e, t)
	}}
	if strings.HasSuffix(method, "/RegisterTask") || method == serrypb.CoordinationService_Do_FullMethodName {
		o.Next = newIncarnation()
	}
	return o
}

// vitalCalls is how many vital calls one connection may have in the queue, in a job of so many tasks. Vital
// calls pass the limits of the queue, so without this bound one peer could fill the memory. A client has one
// registration, one heartbeat and one poll under way, and repeats them every few seconds; a relay has as many
// clients as the job has tasks, at most. What is beyond is a flood, and no client that could die of the
// answer.
func vitalCalls(tasks int) int64 { return int64(1024 + 8*tasks) }

// enqueue puts a call into the queue, or says which limit refuses it. A vital call counts for its connection
// from here until it has been stepped (see queue.stepped).
func (h *handler) enqueue(it item, tasks int) error {
	p := it.from.peer
	switch {
	case !it.vital && p.surplus:
		return &serry.LimitError{Limit: "connections", Max: int64(h.limits.Connections)}
	case !it.vital:
		return h.queue.put(it, true)
	case p.vital.Add(1) > vitalCalls(tasks):
		p.vital.Add(-1)
		return &serry.LimitError{Limit: "vital calls of a connection in the queue", Max: vitalCalls(tasks)}
	}
	err := h.queue.put(it, false)
	if err != nil {
		p.vital.Add(-1)
	}
	return err
}

// answer ends a call from the handler, without the owner. The transport flushes after the calls that came
// together.
func (o origin) answer(body []byte, st rpc.Status) {
	o.stats.answered(st.Code, len(body))
	o.peer.conn.Reply(o.call, body, st)
}

// refusal is the answer to a call that does not reach the machine: it is beyond a limit, or the service ends.
func refusal(s wire.Shape, err error) ([]byte, rpc.Status) {
	if errors.Is(err, serry.ErrStopped) {
		return nil, wire.ShutDown()
	}
	return s.Encode(coord.Reply{Err: err})
}

// newIncarnation draws a number for an epoch of the service, never zero. It must be random: a client knows by it
// that the service it talks to is the one that it registered with.
func newIncarnation() serry.Incarnation {
	for {
		var b [8]byte
		rand.Read(b[:])
		if n := binary.NativeEndian.Uint64(b[:]); n != 0 {
			return serry.Incarnation(n)
		}
	}
}
