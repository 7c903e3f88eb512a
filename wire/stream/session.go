package stream

import (
	"errors"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/wire/rpc"
)

// A Session is one host, for as long as the server hears from it. Its methods may be called from any goroutine.
type Session struct {
	// Set once.
	server *Server
	number uint64
	kind   Kind
	remote net.Addr // of its first connection

	pipe  atomic.Pointer[pipe]       // of the current connection, or nil
	conn  atomic.Pointer[serverConn] // the current connection, or the last one
	heard atomic.Int64               // when the host last showed that it lives, on an earlier connection
	seq   atomic.Uint64              // of the last beat
	told  time.Duration              // owned by the scanner: how much silence the handler has been told of

	in     sync.Mutex // held while a frame is handled; guards what follows
	conns  map[ConnID]*Conn
	round  uint64 // counts connections; tells what came on which
	closed bool
}

// Kind says what kind of host it is.
func (n *Session) Kind() Kind { return n.kind }

// RemoteAddr is the address of the first connection of the host.
func (n *Session) RemoteAddr() net.Addr { return n.remote }

// Conns are the virtual connections of a session that is over.
func (n *Session) Conns() []*Conn {
	n.in.Lock()
	defer n.in.Unlock()
	return slices.Collect(maps.Values(n.conns))
}

// Standing queues what the service knows of a life. It is sent with the next Flush.
func (n *Session) Standing(s Standing) {
	n.pipe.Load().send(&s)
}

// Flush sends what is queued for the host. It never blocks.
func (n *Session) Flush() {
	if p := n.pipe.Load(); p != nil {
		p.Flush()
	}
}

// Break ends the connection of a host that sends more than the server can handle. The host may resume on
// another connection.
func (n *Session) Break(err error) {
	if p := n.pipe.Load(); p != nil {
		p.Fail(err)
	}
}

// PeerURIs are the URI names in the certificate that the host showed.
func (n *Session) PeerURIs() []string {
	if in := n.conn.Load(); in != nil {
		return in.uris
	}
	return nil
}

// attach makes in the connection of the session, in place of another.
func (n *Session) attach(in *serverConn) error {
	n.in.Lock()
	defer n.in.Unlock()
	if n.closed {
		return errSilent // it was closed after the caller had found it in the table
	}
	n.round++
	n.conn.Store(in)
	if old := n.pipe.Swap(in.pipe); old != nil {
		old.Fail(errReplaced)
	}
	n.server.cfg.Handler.Online(n)
	return nil
}

// detach notes the end of a connection. The session goes on without one.
func (n *Session) detach(p *pipe) {
	n.heard.Store(max(n.heard.Load(), p.heard.Load()))
	if !n.pipe.CompareAndSwap(p, nil) {
		return
	}
	n.in.Lock()
	defer n.in.Unlock()
	if !n.closed && n.pipe.Load() == nil { // it may have resumed between the swap and the lock
		n.server.cfg.Handler.Offline(n)
	}
}

// waiting says whether the reader waits for memory. Then the server does not read, and the host is not silent.
func (n *Session) waiting() bool {
	in := n.conn.Load()
	return in != nil && in.frames.waiting.Load()
}

func (n *Session) ack(p *pipe) {
	a := ack{n.seq.Load(), n.server.cfg.Term}
	p.send(&a)
}

// close ends the session, which is not in the table any more.
func (n *Session) close(err error) {
	n.in.Lock()
	n.closed = true
	n.in.Unlock()
	if p := n.pipe.Load(); p != nil {
		p.Fail(err)
	}
}

// bye ends the session because the host said so.
func (n *Session) bye() error {
	if n.server.forget(n) {
		n.closed = true
		for id, c := range n.conns {
			delete(n.conns, id)
			n.server.cfg.Handler.Shut(c, Closed)
		}
		n.server.cfg.Handler.Bye(n)
	}
	return errBye
}

// Reasons why a connection ends without an error.
var (
	errReplaced = errors.New("stream: resumed on another connection")
	errBye      = errors.New("stream: the host said goodbye")
)

// open begins a virtual connection, or keeps one that the host opens again after a resumption.
func (n *Session) open(id ConnID) error {
	c := n.conns[id]
	if c == nil {
		if len(n.conns) >= maxConns {
			return &serry.LimitError{Limit: "connections of a host", Max: maxConns}
		}
		c = &Conn{session: n, id: id, open: make(map[rpc.CallID]uint64)}
		n.conns[id] = c
		n.server.cfg.Handler.Open(c)
	}
	c.round = n.round
	return nil
}

// synced follows all that a host repeats after a resumption: what it did not repeat has ended.
func (n *Session) synced() {
	for id, c := range n.conns {
		if c.round != n.round {
			delete(n.conns, id)
			n.server.cfg.Handler.Shut(c, Closed)
			continue
		}
		for _, call := range c.stale(n.round) {
			n.server.cfg.Handler.Cancel(c, call)
		}
	}
}

// A Conn is one virtual connection. It implements [rpc.Conn].
type Conn struct {
	session *Session // set once
	id      ConnID   // set once
	round   uint64   // guarded by session.in: of the last time it was opened

	mu   sync.Mutex
	open map[rpc.CallID]uint64 // guarded by mu: calls without a reply, and in which round they came last
}

// ID is the number of the connection.
func (c *Conn) ID() ConnID { return c.id }

// Session is the host that opened the connection.
func (c *Conn) Session() *Session { return c.session }

// begin notes a call, and says whether it is a new one.
func (c *Conn) begin(call rpc.CallID, round uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, again := c.open[call]
	c.open[call] = round
	return !again
}

// end notes that a call is over, and says whether it was open until now.
func (c *Conn) end(call rpc.CallID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, open := c.open[call]
	delete(c.open, call)
	return open
}

// stale ends and returns the calls that were not repeated in a round.
func (c *Conn) stale(round uint64) (calls []rpc.CallID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for call, last := range c.open {
		if last != round {
			calls = append(calls, call)
			delete(c.open, call)
		}
	}
	return calls
}

// Reply implements [rpc.Conn]. While the host is not connected replies are dropped: it will ask again.
func (c *Conn) Reply(call rpc.CallID, body []byte, st rpc.Status) {
	if !c.end(call) {
		return
	}
	c.reply(call, body, st)
}

func (c *Conn) reply(call rpc.CallID, body []byte, st rpc.Status) {
	p := c.session.pipe.Load()
	if p == nil {
		return // before a large body is summed
	}
	r := Reply{Conn: c.id, Call: call, Term: c.session.server.cfg.Term, Status: st, Body: body}
	if !st.OK() {
		r.Body = nil
	}
	size := smallFrame + len(st.Message) + len(st.Details)
	info := bodyInfoOf(r.Body) // without the lock of the pipe: to sum a large body takes a while
	p.add(size, func(b []byte) []byte { return appendReply(b, &r, info) }, r.Body)
}

// Flush implements [rpc.Conn].
func (c *Conn) Flush() { c.session.Flush() }

// RemoteAddr implements [rpc.Conn].
func (c *Conn) RemoteAddr() net.Addr { return c.session.remote }

// PeerURIs are the URI names in the certificate that the host showed.
func (c *Conn) PeerURIs() []string { return c.session.PeerURIs() }

// refuse answers a call that the handler does not get.
func (c *Conn) refuse(call rpc.CallID, code codes.Code, why string) {
	c.reply(call, nil, rpc.Status{Code: code, Message: why})
}
