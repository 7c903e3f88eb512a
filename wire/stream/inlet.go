package stream

import (
	"fmt"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/plant"
)

// An inlet reads one connection of a session. It belongs to the goroutine that serves it.
type inlet struct {
	server  *Server
	pipe    *pipe
	cut     cutter
	uris    []string // set once: of the peer's certificate
	session *Session // nil before the hello
	job     string   // the last one read
	call    Call     // the one that is handed on
}

// admit implements taker.
func (in *inlet) admit(t frameType, head []byte, body int) (bool, error) {
	n := in.session
	if n == nil {
		return false, errOrder
	}
	if t != frameCall {
		return true, nil
	}
	n.in.Lock()
	defer n.in.Unlock()
	f := fields{b: head}
	call, method := readCall(&f, &in.job)
	if f.bad {
		return false, errFrame
	}
	c, err := in.connOf(&call)
	if err != nil {
		return false, err
	}
	_, ok := in.method(c, &call, method, int64(body))
	return ok, nil
}

// frame implements taker.
func (in *inlet) frame(t frameType, head, body []byte, own bool) error {
	f := fields{b: head}
	if in.session == nil {
		return in.hello(t, &f)
	}
	n, h := in.session, in.server.cfg.Handler
	n.in.Lock()
	defer n.in.Unlock()
	if n.pipe.Load() != in.pipe || n.closed {
		return errReplaced
	}
	switch t {
	case frameCall:
		return in.take(&f, body)
	case frameOpen:
		if id := ConnID(f.id()); !f.bad {
			if err := n.open(id); err != nil {
				return err
			}
		}
	case frameCancel:
		k := readCancel(&f)
		if c := n.conns[k.conn]; c != nil && c.end(k.call) {
			h.Cancel(c, k.call)
		}
	case frameShut:
		s := readShut(&f)
		if c := n.conns[s.conn]; c != nil {
			delete(n.conns, s.conn)
			h.Shut(c, s.how)
		}
	case frameBeat:
		if t := readBeat(&f, &in.job); !f.bad {
			in.beat(t)
		}
	case frameFollow:
		if lives := readLives(&f, &in.job); !f.bad && !in.server.cfg.Planted.Has(plant.DropFollow) {
			h.Follow(n, lives)
		}
	case frameExited:
		if e := readExit(&f, &in.job); !f.bad {
			h.Exited(n, e.life, e.cause)
		}
	case frameClosed:
		if c := readClosure(&f, &in.job); !f.bad {
			h.Closed(n, c)
		}
	case frameSynced:
		n.synced()
	case frameBye:
		return n.bye()
	default:
		return errOrder
	}
	return f.err()
}

// served implements taker.
func (in *inlet) served() {
	if in.session != nil {
		in.server.cfg.Handler.Served(in.session)
	}
}

// hello takes the first frame of a connection.
func (in *inlet) hello(t frameType, f *fields) error {
	if t != frameHello {
		return errOrder
	}
	cfg, h := in.server.cfg, readHello(f)
	if h.foreign(cfg.Version) {
		return in.refuse(&VersionError{Server: cfg.Version, Host: h.version})
	}
	if f.bad || h.kind != Relay && h.kind != Client {
		return errFrame
	}
	if h.store == cfg.Store && h.term > cfg.Term { // another server leads by now (C-TERM-1)
		in.greet(func(b []byte) []byte { return appendRedirect(b, redirect{}) })
		return errBye
	}
	n, err := in.server.session(h, in.pipe.nc)
	if err != nil {
		return err
	}
	in.pipe.nc.SetReadDeadline(time.Time{})
	w := welcome{speechOf(cfg.Version), cfg.Term, cfg.Service(), cfg.Store}
	in.greet(func(b []byte) []byte { return w.appendOptional(appendWelcome(b, w)) })
	if err := n.attach(in); err != nil {
		return err
	}
	in.session = n
	in.catchUp(w.service)
	return nil
}

// catchUp tells of epochs that opened after the welcome was written and before the session had this
// connection: [Server.Epoch] has told a former one, or none. It looks again after each, because the next may
// have been told meanwhile, and must come last.
func (in *inlet) catchUp(said serry.Incarnation) {
	for now := in.server.cfg.Service(); now != said; now = in.server.cfg.Service() {
		said = now
		in.pipe.add(smallFrame, func(b []byte) []byte { return appendEpoch(b, said) }, nil)
	}
}

// greet queues the first words of the server.
func (in *inlet) greet(write func([]byte) []byte) {
	in.pipe.add(len(Preface)+2*smallFrame, func(b []byte) []byte { return write(append(b, Preface...)) }, nil)
}

// refuse tells a host why the server does not serve it, and ends the connection.
func (in *inlet) refuse(err *VersionError) error {
	in.greet(func(b []byte) []byte { return appendRefusal(b, refusal{err.Server, err.Error()}) })
	return fmt.Errorf("%w: %w", errBye, err)
}

// take takes a call: one that still waits was repeated, and is not handed on.
func (in *inlet) take(f *fields, body []byte) error {
	call, method := readCall(f, &in.job)
	if f.bad {
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
func (in *inlet) connOf(call *Call) (*Conn, error) {
	c := in.session.conns[call.Conn]
	if c == nil {
		return nil, errOrder
	}
	return c, nil
}

// method finds the method of a call, and refuses the call where there is none, or with too long a body.
func (in *inlet) method(c *Conn, call *Call, method []byte, body int64) (name string, ok bool) {
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

// beat takes a beat, and acknowledges it.
func (in *inlet) beat(t beat) {
	n := in.session
	n.seq.Store(t.seq)
	if len(t.heard) > 0 {
		in.server.cfg.Handler.Heard(n, t.heard)
	}
	for _, m := range t.marks {
		in.server.cfg.Handler.Delivered(m.requester, m.watermark)
	}
	n.ack(in.pipe)
}
