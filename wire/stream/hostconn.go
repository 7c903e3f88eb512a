package stream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/wire/conn"
)

// A hostConn is one connection of a host to a server.
type hostConn struct {
	host    *Host
	address string
	began   time.Time
	pipe    *pipe
	frames  frameReader
	over    chan struct{} // closed when the reader has ended

	// Owned by the reader until answered is closed.
	answered chan struct{} // the server has said whether it leads
	welcome  welcome
	redirect *redirect // or nil
	err      error     // why there is neither

	codec codec // owned by the reader
	news  bool  // owned by the reader: the sink was told something since the last read
}

// Reasons why a connection is not used.
var (
	errDeposed = errors.New("stream: the server leads no more")
	errSilent  = errors.New("stream: no sign of life")
	errOrder   = errors.New("stream: frame out of order")
)

// out is the pipe of l, or nil if there is no connection.
func (l *hostConn) out() *pipe {
	if l == nil {
		return nil
	}
	return l.pipe
}

// An attempt is the end of an attempt to connect.
type attempt struct {
	conn   *hostConn // welcomed, or nil
	to     *redirect
	err    error
	silent string // the address, if it did not answer in time
}

// connect makes a connection and waits until the server has said whether it leads.
func (h *Host) connect(ctx context.Context, address string) attempt {
	nc, err := conn.Dial(ctx, address, Protocol, conn.DialOptions{TLS: h.cfg.TLS, Connect: h.cfg.Dial})
	if err != nil {
		return attempt{err: notSpoken(err)}
	}
	l := &hostConn{
		host: h, address: address, began: time.Now(), pipe: newPipe(nc, h.base, h.cfg.Planted),
		over: make(chan struct{}), answered: make(chan struct{}),
	}
	l.frames = frameReader{handler: l, limit: hostLimits}
	hi := h.hello()
	l.pipe.greet(&hi, hi.support)
	h.work.Go(l.read)
	l.pipe.Flush()
	var a attempt
	select {
	case <-l.answered:
		if l.err == nil && l.redirect == nil {
			return attempt{conn: l}
		}
		a = attempt{to: l.redirect, err: cmp.Or(l.err, ErrStandby)}
	case <-ctx.Done():
		a.err = fmt.Errorf("%s does not answer: %w", address, context.Cause(ctx))
	}
	l.pipe.Fail(a.err)
	return a
}

// notSpoken turns a failed agreement on a protocol into ErrNotSpoken.
func notSpoken(err error) error {
	if errors.Is(err, conn.ErrProtocol) {
		return fmt.Errorf("%w: %w", ErrNotSpoken, err)
	}
	return err
}

// hello is the first frame that the host sends on a connection.
func (h *Host) hello() hello {
	h.mu.Lock()
	defer h.mu.Unlock()
	return hello{supportOf(h.cfg.Version), h.session, h.cfg.Kind, h.mu.store, h.mu.term}
}

// hostLimits says which frames a host takes, and how long they may be.
func hostLimits(t frameType) frameLimit {
	switch t {
	case frameReply:
		return bodyLimit
	case frameWelcome, frameRedirect, frameRefusal, frameAck, frameStanding, frameEpoch:
		return plainLimit
	}
	return frameLimit{}
}

// read reads the connection to its end.
func (l *hostConn) read() {
	err := l.pipe.read(&l.frames)
	if cause := l.pipe.Err(); cause != nil {
		err = cause
	}
	if !l.frames.greeted && !errors.Is(err, ErrNotSpoken) {
		err = fmt.Errorf("%w, %w: %w", ErrNotSpoken, ErrHungUp, err)
	}
	l.pipe.Fail(err)
	l.pipe.Wait()
	if !l.settled() {
		l.err = err
		close(l.answered)
	}
	close(l.over)
	select {
	case l.host.ended <- l:
	case <-l.host.life.Done():
	}
}

// settled says whether the server has said whether it leads.
func (l *hostConn) settled() bool {
	select {
	case <-l.answered:
		return true
	default:
		return false
	}
}

// admit implements frameHandler.
func (l *hostConn) admit(t frameType, _ []byte, _ int) (bool, error) {
	if !l.settled() {
		return false, errOrder
	}
	return true, nil
}

// frame implements frameHandler.
func (l *hostConn) frame(t frameType, head, body []byte, own bool) error {
	c := &l.codec
	c.read(head)
	if !l.settled() {
		return l.first(t, c)
	}
	switch t {
	case frameReply:
		var r Reply
		if r.fields(c); c.bad {
			return errFrame
		}
		if r.Body = body; !own {
			r.Body = append([]byte(nil), body...)
		}
		l.reply(r)
		return nil
	case frameAck:
		var a ack
		if a.fields(c); !c.bad {
			l.sawTerm(a.term)
			l.host.acknowledged(a.seq)
		}
	case frameStanding:
		var s Standing
		if s.fields(c); !c.bad {
			l.standing(s)
		}
	case frameEpoch:
		var e epoch
		if e.fields(c); !c.bad {
			l.epoch(e.service)
		}
	default:
		return errOrder
	}
	return c.err()
}

// first handles the frame that says whether the server leads.
func (l *hostConn) first(t frameType, c *codec) error {
	switch t {
	case frameWelcome:
		return l.welcomed(c)
	case frameRedirect:
		var to redirect
		if to.fields(c); c.bad {
			return errFrame
		}
		l.redirect = &to
	case frameRefusal:
		var r refusal
		if r.fields(c); c.bad {
			return errFrame
		}
		if r.version.Major != l.host.cfg.Version.Major {
			return &VersionError{Server: r.version, Host: l.host.cfg.Version}
		}
		return fmt.Errorf("stream: the server refuses this host: %s", r.why)
	default:
		return errOrder
	}
	close(l.answered)
	return nil
}

// welcomed handles the welcome of a server that leads.
func (l *hostConn) welcomed(c *codec) error {
	l.welcome.fields(c)
	if ours := l.host.cfg.Version; l.welcome.incompatible(ours) {
		return &VersionError{Server: l.welcome.version, Host: ours}
	}
	if c.bad {
		return errFrame
	}
	if err := l.host.adopt(l); err != nil {
		return err
	}
	close(l.answered)
	return nil
}

// outdated says whether a term is below the highest that the host has seen (C-TERM-1). Terms of two stores
// cannot be compared: a leader of another store is that of a service that has begun anew. host.mu is held.
func (l *hostConn) outdated(term uint64) bool {
	return l.welcome.store == l.host.mu.store && term < l.host.mu.term
}

// inUse says whether l is the connection that the sink hears of. What comes on a connection after another one
// was adopted is older than what the sink heard then: it might lead the sink back to an epoch that is over. A
// call whose answer is dropped for that reason has been sent again. host.mu is held. A caller that goes on to
// tell the sink holds host.sinkMu as well, so that no connection is adopted in between.
func (l *hostConn) inUse() bool { return l.host.mu.current == l }

// served implements frameHandler.
func (l *hostConn) served() {
	if l.news {
		l.news = false
		l.host.sinkMu.Lock()
		defer l.host.sinkMu.Unlock()
		l.host.cfg.Sink.Flush()
	}
}

// reply ends a call, unless it comes from a leader of a former term (C-TERM-1).
func (l *hostConn) reply(r Reply) {
	h := l.host
	l.sawTerm(r.Term)
	h.sinkMu.Lock()
	defer h.sinkMu.Unlock()
	h.mu.Lock()
	ok := l.inUse() && !l.outdated(r.Term) && h.forget(r.Conn, r.Call) != nil
	h.mu.Unlock()
	if ok {
		l.news = true
		h.cfg.Sink.Reply(r)
	}
}

// standing passes on what a leader knows of a life.
func (l *hostConn) standing(s Standing) {
	h := l.host
	h.sinkMu.Lock()
	defer h.sinkMu.Unlock()
	h.mu.Lock()
	if !l.inUse() || l.outdated(l.welcome.term) {
		h.mu.Unlock()
		return
	}
	switch s.State {
	case serry.Disconnected:
		delete(h.mu.followed, s.Incarnation)
	case serry.Connected:
		h.know(s.Life)
	}
	if s.State != serry.Connected {
		h.forgetClosure(s.Incarnation)
		h.mu.exits = slices.DeleteFunc(h.mu.exits, func(e exit) bool {
			return e.life.Incarnation == s.Incarnation || e.life.Incarnation == 0 && e.life.Task.Index == s.Task.Index
		})
	}
	h.mu.Unlock()
	l.news = true
	h.cfg.Sink.Standing(s)
}

// epoch passes on that another epoch has opened.
func (l *hostConn) epoch(service serry.Incarnation) {
	h := l.host
	h.sinkMu.Lock()
	defer h.sinkMu.Unlock()
	h.mu.Lock()
	ok := l.inUse() && !l.outdated(l.welcome.term)
	h.mu.Unlock()
	if !ok {
		return
	}
	l.news = true
	h.cfg.Sink.Epoch(service)
}
