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

// A line is one connection of a host to a server.
type line struct {
	host    *Host
	address string
	began   time.Time
	pipe    *pipe
	cut     cutter
	over    chan struct{} // closed when the reader has ended

	// Owned by the reader until answered is closed.
	answered chan struct{} // the server has said whether it leads
	welcome  welcome
	redirect *redirect // or nil
	err      error     // why there is neither

	job  string // owned by the reader: the last one read
	news bool   // owned by the reader: the sink was told something in this wave
}

// Reasons why a line is not used.
var (
	errDeposed = errors.New("stream: the server leads no more")
	errSilent  = errors.New("stream: no sign of life")
	errOrder   = errors.New("stream: frame out of order")
)

// out is where output goes, or nil.
func (l *line) out() *pipe {
	if l == nil {
		return nil
	}
	return l.pipe
}

// An attempt is the end of an attempt to connect.
type attempt struct {
	line   *line // welcomed, or nil
	to     *redirect
	err    error
	silent string // the address, if it did not answer in time
}

// connect makes a line and waits until the server has said whether it leads.
func (h *Host) connect(ctx context.Context, address string) attempt {
	nc, err := conn.Dial(ctx, address, Protocol, conn.DialOptions{TLS: h.cfg.TLS, Connect: h.cfg.Dial})
	if err != nil {
		return attempt{err: notSpoken(err)}
	}
	l := &line{
		host: h, address: address, began: time.Now(), pipe: newPipe(nc, h.base, h.cfg.Planted),
		over: make(chan struct{}), answered: make(chan struct{}),
	}
	l.cut = cutter{taker: l, room: hostRoom}
	hi := h.hello()
	l.pipe.add(len(Preface)+2*smallFrame, func(b []byte) []byte {
		return hi.appendOptional(appendHello(append(b, Preface...), hi))
	}, nil)
	h.work.Go(l.read)
	l.pipe.Flush()
	var a attempt
	select {
	case <-l.answered:
		if l.err == nil && l.redirect == nil {
			return attempt{line: l}
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

// hello is what the host says first on a connection.
func (h *Host) hello() hello {
	h.mu.Lock()
	defer h.mu.Unlock()
	return hello{speechOf(h.cfg.Version), h.session, h.cfg.Kind, h.mu.store, h.mu.term}
}

// hostRoom says which frames a host takes.
func hostRoom(t frameType) room {
	switch t {
	case frameReply:
		return ample
	case frameWelcome, frameRedirect, frameRefusal, frameAck, frameStanding, frameEpoch:
		return plain
	}
	return room{}
}

// read reads the line to its end.
func (l *line) read() {
	err := l.pipe.read(&l.cut)
	if cause := l.pipe.Err(); cause != nil {
		err = cause
	}
	if !l.cut.greeted && !errors.Is(err, ErrNotSpoken) {
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
func (l *line) settled() bool {
	select {
	case <-l.answered:
		return true
	default:
		return false
	}
}

// admit implements taker.
func (l *line) admit(t frameType, _ []byte, _ int) (bool, error) {
	if !l.settled() {
		return false, errOrder
	}
	return true, nil
}

// frame implements taker.
func (l *line) frame(t frameType, head, body []byte, own bool) error {
	f := fields{b: head}
	if !l.settled() {
		return l.first(t, &f)
	}
	switch t {
	case frameReply:
		r := readReply(&f)
		if f.bad {
			return errFrame
		}
		if r.Body = body; !own {
			r.Body = append([]byte(nil), body...)
		}
		l.reply(r)
		return nil
	case frameAck:
		if a := readAck(&f); !f.bad {
			l.raise(a.term)
			l.host.acknowledged(a.seq)
		}
	case frameStanding:
		if s := readStanding(&f, &l.job); !f.bad {
			l.standing(s)
		}
	case frameEpoch:
		if service := f.id(); !f.bad {
			l.epoch(service)
		}
	default:
		return errOrder
	}
	return f.err()
}

// first takes the frame that says whether the server leads.
func (l *line) first(t frameType, f *fields) error {
	switch t {
	case frameWelcome:
		return l.welcomed(f)
	case frameRedirect:
		to := readRedirect(f)
		if f.bad {
			return errFrame
		}
		l.redirect = &to
	case frameRefusal:
		r := readRefusal(f)
		if f.bad {
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

// welcomed takes the word of a server that leads.
func (l *line) welcomed(f *fields) error {
	l.welcome = readWelcome(f)
	if ours := l.host.cfg.Version; l.welcome.foreign(ours) {
		return &VersionError{Server: l.welcome.version, Host: ours}
	}
	if f.bad {
		return errFrame
	}
	if err := l.host.adopt(l); err != nil {
		return err
	}
	close(l.answered)
	return nil
}

// former says whether a term is below the highest that the host has seen (C-TERM-1). Terms of two stores
// cannot be compared: a line of another store is that of a service that has begun anew. host.mu is held.
func (l *line) former(term uint64) bool {
	return l.welcome.store == l.host.mu.store && term < l.host.mu.term
}

// inUse says whether l is the line that the sink hears of. What a line brings after another has taken its
// place is older than what the sink was told with the other: it might lead the sink back to an epoch that is
// over. A call whose answer is dropped for that was sent again. host.mu is held, and host.sinking too where
// the sink is told something for it, so that no line is adopted in between.
func (l *line) inUse() bool { return l.host.mu.line == l }

// served implements taker.
func (l *line) served() {
	if l.news {
		l.news = false
		l.host.sinking.Lock()
		defer l.host.sinking.Unlock()
		l.host.cfg.Sink.Flush()
	}
}

// reply ends a call, unless it comes from a leader of a former term (C-TERM-1).
func (l *line) reply(r Reply) {
	h := l.host
	l.raise(r.Term)
	h.sinking.Lock()
	defer h.sinking.Unlock()
	h.mu.Lock()
	ok := l.inUse() && !l.former(r.Term) && h.forget(r.Conn, r.Call) != nil
	h.mu.Unlock()
	if ok {
		l.news = true
		h.cfg.Sink.Reply(r)
	}
}

// standing passes on what a leader knows of a life.
func (l *line) standing(s Standing) {
	h := l.host
	h.sinking.Lock()
	defer h.sinking.Unlock()
	h.mu.Lock()
	if !l.inUse() || l.former(l.welcome.term) {
		h.mu.Unlock()
		return
	}
	switch s.State {
	case serry.Disconnected:
		delete(h.mu.known, s.Incarnation)
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
func (l *line) epoch(service uint64) {
	h := l.host
	h.sinking.Lock()
	defer h.sinking.Unlock()
	h.mu.Lock()
	ok := l.inUse() && !l.former(l.welcome.term)
	h.mu.Unlock()
	if !ok {
		return
	}
	l.news = true
	h.cfg.Sink.Epoch(serry.Incarnation(service))
}
