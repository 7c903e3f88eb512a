package link

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/pause"
	"github.com/serry-dev/serry/wire/conn"
)

const (
	firstRetry = 10 * time.Millisecond // so that there are several within Timing.Redial
	lastRetry  = 2 * time.Second
	headStart  = 3 * time.Second // of a socket of this host: one that leads nowhere is refused at once, and a busy host is slow to answer
)

// A dialling is the making of a link from this side. The lock of the link guards it.
type dialling struct {
	cancel  context.CancelCauseFunc
	busy    bool // connections are being made now
	met     bool // the peer has answered, and may take the link for made before this side does
	full    bool // the last attempt was refused, because the peer has as many links as it may have
	waiting int  // calls of Net.Link
	began   time.Duration
}

// dial begins to make the link. mu of the net is held.
func (l *Link) dial() {
	ctx, cancel := context.WithCancelCause(l.net.ctx)
	l.mu.Lock()
	l.mu.dial = &dialling{cancel: cancel, began: l.net.now()}
	l.mu.Unlock()
	l.net.work.Go(func() {
		defer cancel(nil)
		if err := l.connect(ctx); err != nil {
			l.stillborn(err)
		}
	})
}

// join counts a caller that waits for the link.
func (l *Link) join() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.dial != nil {
		l.mu.dial.waiting++
	}
}

// errAbandoned is why a link is not made that no caller waits for any more. A caller that comes at that
// moment makes another.
var errAbandoned = errors.New("no caller waits for the link")

// leave ends the wait. A link that no caller waits for is not made, unless the peer has answered: it would see a
// connection break, and suspect this process.
func (l *Link) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if d := l.mu.dial; d != nil && d.waiting > 0 {
		if d.waiting--; d.waiting == 0 && l.mu.state == forming && !d.met {
			d.cancel(errAbandoned)
		}
	}
}

// setMet notes that the peer has answered, or that the attempt is over. A link that no caller waits for is given up
// then, if it was not made.
func (l *Link) setMet(met bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := l.mu.dial
	if d == nil || d.met == met {
		return
	}
	if d.met = met; !met && d.waiting == 0 {
		d.cancel(errAbandoned)
	}
}

// stillborn ends a link that cannot be made, unless the peer has made it meanwhile.
func (l *Link) stillborn(err error) {
	l.mu.Lock()
	adopted := l.mu.dial == nil
	l.mu.Unlock()
	if !adopted {
		l.end(err)
	}
}

// connect tries to make the connections until it succeeds, or can never succeed.
func (l *Link) connect(ctx context.Context) error {
	n := l.net
	if l.peer == n.life {
		return l.connectSelf()
	}
	for delay := firstRetry; ; delay = min(2*delay, lastRetry) {
		err := l.attempt(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("link to %v: %w", l.peer.Task, context.Cause(ctx))
		}
		if final := n.final(l.peer, err); final != nil {
			return final
		}
		n.log.Debug("link not made yet", "peer", l.peer.Task, "err", err)
		l.setFull(err)
		if err := pause.For(ctx, delay/2+rand.N(delay)); err != nil {
			return fmt.Errorf("link to %v: %w, after %w", l.peer.Task, err, err)
		}
	}
}

// errYielded is why a link is not made whose peer has no place for it: another link has taken its place here. Its callers try again
// later. Otherwise processes that are full of links to each other which cannot be made would wait for ever.
var errYielded = errors.New("the peer has no place for the link, and another one has taken its place here")

// pauseYielded waits before a link that has yielded is tried again.
func pauseYielded(ctx context.Context) bool {
	return pause.For(ctx, lastRetry/2+rand.N(lastRetry)) == nil
}

// setFull notes whether an attempt has failed because the peer has as many links as it may have.
func (l *Link) setFull(err error) {
	r, ok := errors.AsType[*RefusedError](err)
	l.mu.Lock()
	defer l.mu.Unlock()
	if d := l.mu.dial; d != nil {
		d.full = ok && r.Code == Busy
	}
}

// setBusy notes that connections are being made, and says whether the link is still to be made from here.
func (l *Link) setBusy(busy bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.dial == nil || l.mu.state != forming {
		return false
	}
	l.mu.dial.busy = busy
	return true
}

// attempt makes all connections once.
func (l *Link) attempt(ctx context.Context) error {
	n := l.net
	addresses, err := n.lookup(ctx, l.peer)
	if err != nil {
		return err
	}
	if !l.setBusy(true) {
		return errCrossed
	}
	defer l.setBusy(false)
	ctx, cancel := context.WithTimeout(ctx, handshakeTime)
	defer cancel()
	n.mu.Lock()
	lastSet := n.know(l.peer).lastSet
	n.mu.Unlock()
	set, lanes := random(), firstBulk+n.opt.Lanes
	control, address, err := n.dialAny(ctx, addresses, func() hello { return n.hello(l.peer, controlLane, lanes, set, lastSet) })
	if err != nil {
		return err
	}
	l.setMet(true)
	defer l.setMet(false)
	conns := make([]*conn.Conn, lanes)
	conns[controlLane] = control
	err = l.connectLanes(ctx, conns, address, set)
	if err == nil && !l.adopt(set, conns) {
		err = errCrossed
	}
	if err != nil {
		for _, c := range conns {
			if c != nil {
				c.Close()
			}
		}
	}
	return err
}

// connectLanes makes the connections besides control, all at once.
func (l *Link) connectLanes(ctx context.Context, conns []*conn.Conn, address string, set uint64) error {
	errs := make(chan error)
	for i := smallLane; i < len(conns); i++ {
		go func() {
			c, err := l.net.dialOne(ctx, address, l.net.hello(l.peer, i, len(conns), set, 0))
			conns[i] = c
			errs <- err
		}()
	}
	var first error
	for range len(conns) - smallLane {
		if err := <-errs; err != nil && first == nil {
			first = err
		}
	}
	return first
}

// adopt makes the connections those of the link, unless a set of the peer has taken their place.
func (l *Link) adopt(set uint64, conns []*conn.Conn) bool {
	l.mu.Lock()
	if l.mu.dial == nil || l.mu.state != forming {
		l.mu.Unlock()
		return false
	}
	l.mu.dial = nil
	l.prepare(set, len(conns), conns[controlLane])
	for i, c := range conns {
		l.lanes[i] = newLane(l, i, c, c)
	}
	l.mu.Unlock()
	l.start()
	return true
}

// prepare sets what a link needs besides its lanes. The lock is held.
func (l *Link) prepare(set uint64, lanes int, c net.Conn) {
	l.set = set
	l.lanes = make([]*lane, lanes)
	l.remote = remoteOf(c)
	for f, mode := range map[Family]Checksum{Collective: l.net.opt.Collective, Transfer: l.net.opt.Transfer} {
		l.checks[f] = mode == Always || mode == BetweenHosts && !sameHost(c)
	}
}

// remoteOf is the address of the peer, for people. A process that dialled a socket of this host has none.
func remoteOf(c net.Conn) string {
	if a := c.RemoteAddr(); a.Network() != "unix" {
		return a.String()
	} else if name := a.String(); strings.HasPrefix(name, "@serry") {
		return "unix:" + name
	}
	return "unix"
}

// sameHost says whether a connection stays on this host: both of its ends have the same address, or it needs none.
func sameHost(c net.Conn) bool {
	remote, ok := c.RemoteAddr().(*net.TCPAddr)
	if !ok || remote.IP.IsLoopback() {
		return true
	}
	local, ok := c.LocalAddr().(*net.TCPAddr)
	return ok && local.IP.Equal(remote.IP)
}

// forms says whether connections of a set are being collected.
func (l *Link) forms(set uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.state == forming && l.set == set && l.lanes != nil
}

// accept begins to collect the connections of a set that the peer dials. mu of the net is held.
func (l *Link) accept(h *hello, c net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.prepare(h.set, int(h.lanes), c)
	time.AfterFunc(handshakeTime, func() { l.incomplete(h.set) })
}

// incomplete gives up a set that the peer has begun to dial, unless the link is up. A process that waits for the link dials the peer
// again, and learns whether it has failed.
func (l *Link) incomplete(set uint64) {
	l.mu.Lock()
	gone := l.mu.state == forming && l.set == set
	l.mu.Unlock()
	if gone {
		l.end(&LossError{Peer: l.peer, Reason: errIncomplete, Err: ErrTransport})
	}
}

var errIncomplete = errors.New("not all of its connections came")

// attach adds a connection that the peer has dialled.
func (l *Link) attach(index, lanes int, set uint64, in, out *conn.Conn) {
	l.mu.Lock()
	if l.mu.state == up && l.set == set && index == len(l.lanes) && len(l.mu.guests) < maxGuests {
		l.addGuest(in)
		l.mu.Unlock()
		return
	}
	if l.mu.state != forming || l.set != set || len(l.lanes) != lanes || l.lanes[index] != nil {
		l.mu.Unlock()
		in.Close()
		return
	}
	l.lanes[index] = newLane(l, index, in, out)
	l.mu.attached++
	complete := l.mu.attached == lanes
	l.mu.Unlock()
	if complete {
		l.start()
	}
}

// connectSelf makes a link of a process to itself: what it writes comes back in memory.
func (l *Link) connectSelf() error {
	ins, outs := make([]*conn.Conn, firstBulk+l.net.opt.Lanes), make([]*conn.Conn, firstBulk+l.net.opt.Lanes)
	for i := range ins {
		a, b := conn.Loop("self")
		ins[i], outs[i] = conn.New(a), conn.New(b)
	}
	l.mu.Lock()
	if l.mu.state != forming {
		l.mu.Unlock()
		return nil
	}
	l.mu.dial = nil
	l.prepare(random(), len(ins), ins[0])
	for i := range ins {
		l.lanes[i] = newLane(l, i, ins[i], outs[i])
	}
	l.mu.Unlock()
	l.start()
	return nil
}

// dialAny connects to the first of several addresses at which the peer answers. A socket of this host has a head start:
// it costs less. That it leads nowhere says nothing about the peer, which may be on another host. All others are tried at
// once, handshake included: an address of the peer may lead to another process from here, as that of a bridge which every host has,
// and that process may answer first. If the peer is reached twice it takes one of the connections, because both are
// of one set.
func (n *Net) dialAny(ctx context.Context, addresses []string, greeting func() hello) (*conn.Conn, string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type outcome struct {
		c       *conn.Conn
		address string
		err     error
	}
	if n.opt.Local.find(greeting().to) != nil {
		addresses = addresses[:1] // there is one way
	}
	outcomes := make(chan outcome)
	far, begin := context.WithCancel(ctx) // ended: addresses of TCP are tried
	defer time.AfterFunc(headStart, begin).Stop()
	if !slices.ContainsFunc(addresses, isNear) {
		begin()
	}
	for _, address := range addresses {
		go func() {
			if !isNear(address) {
				<-far.Done()
			}
			c, err := n.dialOne(ctx, address, greeting())
			outcomes <- outcome{c, address, err}
		}()
	}
	var found outcome
	var near error
	var errs []error
	for range addresses {
		switch o := <-outcomes; {
		case o.err != nil && isNear(o.address):
			begin()
			near = o.err
		case o.err != nil:
			errs = append(errs, o.err)
		case found.c == nil:
			found = o
			cancel()
		default:
			o.c.Close()
		}
	}
	switch {
	case found.c != nil:
	case len(errs) == 0 && near != nil:
		return nil, "", fmt.Errorf("%w, and the peer is not reached on this host: %v", ErrNoSecret, near)
	default:
		return nil, "", &dialError{errs}
	}
	return found.c, found.address, nil
}

// dialOne connects to an address, and shakes hands.
func (n *Net) dialOne(ctx context.Context, address string, mine hello) (c *conn.Conn, err error) {
	if local := n.opt.Local.dial(mine.to); local != nil {
		c = conn.New(local)
	} else if c, err = conn.Dial(ctx, address, protocol, n.dialOptions(address)); err != nil {
		return nil, trusted(err, mine.to)
	}
	if err := n.greet(ctx, c, mine); err != nil {
		c.Close()
		return nil, trusted(err, mine.to)
	}
	return c, nil
}

// dialOptions say how to connect to an address.
func (n *Net) dialOptions(address string) conn.DialOptions {
	o := conn.DialOptions{Connect: n.network.Dial}
	if n.opt.TLS != nil && !isNear(address) {
		host, _, _ := net.SplitHostPort(address)
		o.TLS = n.opt.TLS.Client(host)
	}
	return o
}

// trusted turns what TLS says of a certificate into a refusal. The server learns of a bad one when the client believes
// the handshake to be over, and tells it by an alert.
func trusted(err error, peer serry.Life) error {
	op, ok := errors.AsType[*net.OpError](err)
	alert := ok && op.Op == "remote error"
	if alert || errors.Is(err, conn.ErrTLS) && !slices.ContainsFunc(interruptions, func(i error) bool { return errors.Is(err, i) }) {
		return &RefusedError{Peer: peer, Code: Untrusted, Text: clean([]byte(err.Error()))}
	}
	return err
}

// interruptions are how a handshake of TLS ends that says nothing about certificates.
var interruptions = []error{
	io.EOF, io.ErrUnexpectedEOF, io.ErrClosedPipe, net.ErrClosed, os.ErrDeadlineExceeded, context.Canceled, context.DeadlineExceeded,
	syscall.ECONNRESET, syscall.EPIPE,
}

// A dialError says that no address of a peer answers.
type dialError struct{ errs []error }

// Error is one line: it becomes the reason of a loss, which stands in the errors of collectives and in logs.
func (e *dialError) Error() string {
	texts := make([]string, len(e.errs))
	for i, err := range e.errs {
		texts[i] = err.Error()
	}
	return strings.Join(texts, "; ")
}

func (e *dialError) Unwrap() []error { return e.errs }

// refused says whether the system refused every address: no process listens there.
func refused(err error) bool {
	d, ok := errors.AsType[*dialError](err)
	return ok && all(d.errs, func(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) })
}

// denied says whether no address led to the peer, and none ever will: each was refused by the system, or by a process
// that is not the peer or does not take this one for a peer.
func denied(err error) bool {
	if d, ok := errors.AsType[*dialError](err); ok {
		return all(d.errs, denied)
	}
	if r, ok := errors.AsType[*RefusedError](err); ok {
		return r.Code != Crossed && r.Code != Busy && r.Code != Closing
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

// all says whether every error, of at least one, is as wanted.
func all(errs []error, wanted func(error) bool) bool {
	return len(errs) > 0 && !slices.ContainsFunc(errs, func(err error) bool { return !wanted(err) })
}
