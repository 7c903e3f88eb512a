package stream

import (
	"fmt"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/plant"
)

// A serverConn is one connection of a session, as the server reads it. It belongs to the goroutine that
// serves it.
type serverConn struct {
	server  *Server
	pipe    *pipe
	frames  frameReader
	uris    []string // set once: of the peer's certificate
	session *Session // nil before the hello
	codec   codec
	call    Call // that the handler is given
}

// admit implements frameHandler.
func (in *serverConn) admit(t frameType, head []byte, body int) (bool, error) {
	n := in.session
	if n == nil {
		return false, errOrder
	}
	if t != frameCall {
		return true, nil
	}
	n.in.Lock()
	defer n.in.Unlock()
	in.codec.read(head)
	call, method := readCall(&in.codec)
	if in.codec.bad {
		return false, errFrame
	}
	c, err := in.connOf(&call)
	if err != nil {
		return false, err
	}
	_, ok := in.method(c, &call, method, int64(body))
	return ok, nil
}

// frame implements frameHandler.
func (in *serverConn) frame(t frameType, head, body []byte, own bool) error {
	c := &in.codec
	c.read(head)
	if in.session == nil {
		return in.hello(t)
	}
	n, h := in.session, in.server.cfg.Handler
	n.in.Lock()
	defer n.in.Unlock()
	if n.pipe.Load() != in.pipe || n.closed {
		return errReplaced
	}
	switch t {
	case frameCall:
		return in.take(body)
	case frameOpen:
		var o open
		if o.fields(c); !c.bad {
			if err := n.open(o.conn); err != nil {
				return err
			}
		}
	case frameCancel:
		var k cancelled
		k.fields(c)
		if conn := n.conns[k.conn]; conn != nil && conn.end(k.call) {
			h.Cancel(conn, k.call)
		}
	case frameShut:
		var s shut
		s.fields(c)
		if conn := n.conns[s.conn]; conn != nil {
			delete(n.conns, s.conn)
			h.Shut(conn, s.how)
		}
	case frameBeat:
		var t beat
		if t.fields(c); !c.bad {
			in.beat(t)
		}
	case frameFollow:
		var f follow
		if f.fields(c); !c.bad && !in.server.cfg.Planted.Has(plant.DropFollow) {
			h.Follow(n, f.lives)
		}
	case frameExited:
		var e exit
		if e.fields(c); !c.bad {
			h.Exited(n, e.life, e.cause)
		}
	case frameClosed:
		var l Closure
		if l.fields(c); !c.bad {
			h.Closed(n, l)
		}
	case frameSynced:
		n.synced()
	case frameBye:
		return n.bye()
	default:
		return errOrder
	}
	return c.err()
}

// served implements frameHandler.
func (in *serverConn) served() {
	if in.session != nil {
		in.server.cfg.Handler.Served(in.session)
	}
}

// hello handles the first frame of a connection.
func (in *serverConn) hello(t frameType) error {
	if t != frameHello {
		return errOrder
	}
	var h hello
	h.fields(&in.codec)
	cfg := in.server.cfg
	if h.incompatible(cfg.Version) {
		return in.refuse(&VersionError{Server: cfg.Version, Host: h.version})
	}
	if in.codec.bad || h.kind != Relay && h.kind != Client {
		return errFrame
	}
	if h.store == cfg.Store && h.term > cfg.Term { // another server leads by now (C-TERM-1)
		in.pipe.greet(new(redirect), support{})
		return errBye
	}
	n, err := in.server.session(h, in.pipe.nc)
	if err != nil {
		return err
	}
	in.pipe.nc.SetReadDeadline(time.Time{})
	w := welcome{supportOf(cfg.Version), cfg.Term, cfg.Service(), cfg.Store}
	in.pipe.greet(&w, w.support)
	if err := n.attach(in); err != nil {
		return err
	}
	in.session = n
	in.catchUp(w.service)
	return nil
}

// catchUp tells the host of an epoch that opened after the welcome was written and before the session had
// this connection: [Server.Epoch] has told an earlier connection, or none. catchUp looks once more after each
// frame: another epoch may have opened meanwhile, and the host must hear of the last one last.
func (in *serverConn) catchUp(said serry.Incarnation) {
	for now := in.server.cfg.Service(); now != said; now = in.server.cfg.Service() {
		said = now
		in.pipe.send(&epoch{said})
	}
}

// refuse tells a host why the server does not serve it, and ends the connection.
func (in *serverConn) refuse(err *VersionError) error {
	in.pipe.greet(&refusal{err.Server, err.Error()}, support{})
	return fmt.Errorf("%w: %w", errBye, err)
}

// take hands a call to the handler, unless the handler has it already: then the host has sent it again.
func (in *serverConn) take(body []byte) error {
	call, method := readCall(&in.codec)
	if in.codec.bad {
		return errFrame
	}
	c, err := in.connOf(&call)
	if err != nil {
		return err
	}
	name, ok := in.method(c, &call, method, int64(len(body)))
	if !ok || !c.begin(call.ID, in.session.round) {
		return nil
	}
	in.call = call
	in.call.Method, in.call.Body = name, body
	in.server.cfg.Handler.Call(c, &in.call)
	in.call.Body = nil
	return nil
}

// connOf finds the connection of a call.
func (in *serverConn) connOf(call *Call) (*Conn, error) {
	c := in.session.conns[call.Conn]
	if c == nil {
		return nil, errOrder
	}
	return c, nil
}

// method finds the method of a call, and refuses the call where there is none, or with too long a body.
func (in *serverConn) method(c *Conn, call *Call, method []byte, body int64) (name string, ok bool) {
	name, most, ok := in.server.methodLimit(method)
	switch {
	case !ok:
		c.refuse(call.ID, codes.Unimplemented, "unknown method "+string(method))
	case body > most:
		err := &serry.LimitError{Limit: "bytes of a request", Max: most}
		c.refuse(call.ID, codes.ResourceExhausted, err.Error())
		ok = false
	}
	return name, ok
}

// beat handles a beat, and acknowledges it.
func (in *serverConn) beat(t beat) {
	n := in.session
	n.seq.Store(t.seq)
	if len(t.heard) > 0 {
		in.server.cfg.Handler.Heard(n, t.heard)
	}
	for _, m := range t.watermarks {
		in.server.cfg.Handler.Delivered(m.requester, m.number)
	}
	n.ack(in.pipe)
}
