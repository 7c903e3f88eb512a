package jax

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/serry-dev/serry/internal/pause"
	"github.com/serry-dev/serry/transfer/offer"
)

const (
	helloPatience = 5 * time.Second // for the first message of a peer (TR-W-26)
	lanePatience  = 2 * time.Second // for the number of a lane (TR-W-27)
	closePatience = time.Second     // for a peer that is told that no more is requested

	// maxLanes is how many lanes a peer may ask this process to dial.
	maxLanes = 64

	// maxOut is how many bytes of messages may wait for a peer that goes on to request.
	maxOut = 1 << 20
)

// ErrClosed says that this side has closed a connection or a server, or that the peer has left politely.
var ErrClosed = errors.New("closed")

// errHungUp says that the peer has closed a connection. It may have died.
var errHungUp = errors.New("the peer closed the connection")

// A Conn is a connection with another process: a control connection and its lanes.
type Conn struct {
	// Set when the connection is made, then constant.
	config  Config
	control net.Conn
	server  *Server // whose offers the peer may pull, or nil
	dialled bool    // by this side, which then dials the lanes as well

	ctx   context.Context // ends with the connection
	stop  context.CancelFunc
	work  sync.WaitGroup // the goroutines that read and write
	ended chan struct{}  // closed when these have ended

	mu struct {
		sync.Mutex
		changed    *sync.Cond // tells the goroutines of any change below
		err        error      // why the connection has ended, or nil
		closing    bool       // Close was called: no more pulls begin
		lanes      []*lane    // nil until both sides know them
		out        []byte     // messages that wait to be written
		leaving    bool       // the peer requests no more
		tickets    map[offer.Ticket]*delivery
		deliveries []*delivery // with chunks that no lane has taken yet

		next     uint64             // number of the next request
		pulls    map[uint64]*pull   // requests by number, as long as the peer may speak of them
		arriving map[*pull]struct{} // other requests, whose last bytes are on their way
		received int64              // bytes in memory of callers
	}
}

// newConn makes a connection whose goroutines do not run yet.
func newConn(control net.Conn, cfg Config, s *Server) *Conn {
	c := &Conn{config: cfg, control: control, server: s, ended: make(chan struct{})}
	c.ctx, c.stop = context.WithCancel(context.Background())
	c.mu.changed = sync.NewCond(&c.mu)
	c.mu.tickets = map[offer.Ticket]*delivery{}
	c.mu.pulls = map[uint64]*pull{}
	c.mu.arriving = map[*pull]struct{}{}
	return c
}

// Dial connects to the transfer server of a process, as text like 10.0.0.7:8471 or [fd00::7]:8471 (TR-W-3). If none
// answers there yet, it tries again until ctx ends (TR-W-25).
func Dial(ctx context.Context, address string, cfg Config) (*Conn, error) {
	cfg, err := cfg.checked()
	if err != nil {
		return nil, err
	}
	if _, err := netip.ParseAddrPort(address); err != nil {
		return nil, fmt.Errorf("address %q: want one like 10.0.0.7:8471 or [fd00::7]:8471: %w", address, err)
	}
	control, err := cfg.patientDial(ctx, address)
	if err != nil {
		return nil, err
	}
	c := newConn(control, cfg, nil)
	c.dialled = true
	own := addressOf(control.LocalAddr())
	hello := establish{}
	for range cfg.Lanes { // JAX ignores what is in it; a server of this package counts them (TR-W-9, TR-W-33)
		hello.addresses = append(hello.addresses, netip.AddrPortFrom(own.Addr(), 0).String())
	}
	c.mu.Lock()
	c.post(hello)
	c.mu.Unlock()
	c.start()
	return c, nil
}

// patientDial dials until it succeeds or ctx ends, with pauses from 50 ms to 2 s.
func (cfg Config) patientDial(ctx context.Context, address string) (net.Conn, error) {
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		conn, err := cfg.dial(ctx, "tcp", address)
		if err == nil {
			return conn, nil
		}
		if pause.For(ctx, wait/2+rand.N(wait/2)) != nil {
			return nil, fmt.Errorf("%w; %w", err, context.Cause(ctx))
		}
	}
}

// addressOf is the address of one side of a connection, without a zone or an IPv4 address inside IPv6.
func addressOf(a net.Addr) netip.AddrPort {
	p, _ := netip.ParseAddrPort(a.String())
	return netip.AddrPortFrom(p.Addr().Unmap().WithZone(""), p.Port())
}

// Peer is the address of the other side.
func (c *Conn) Peer() string { return addressOf(c.control.RemoteAddr()).String() }

// Done is closed when the connection has ended, and nothing is moved on it any more.
func (c *Conn) Done() <-chan struct{} { return c.ended }

// start starts the goroutines of a connection.
func (c *Conn) start() {
	c.work.Go(func() { c.fail(c.read()) })
	c.work.Go(func() { c.fail(c.write()) })
	go func() {
		c.work.Wait()
		if c.server != nil {
			c.server.gone(c)
		}
		close(c.ended)
	}()
}

// Close ends the connection. It tells a peer that has answered all requests that there will be no more, and waits a
// moment until the peer has closed the connection (TR-W-22). Pulls that are under way fail, and no more begin.
func (c *Conn) Close() error {
	c.mu.Lock()
	c.mu.closing = true
	idle := c.mu.err == nil && len(c.mu.pulls)+len(c.mu.arriving) == 0
	if idle {
		c.post(halfClose{})
	}
	c.mu.Unlock()
	if idle {
		timer := time.NewTimer(closePatience)
		defer timer.Stop()
		select {
		case <-c.ctx.Done():
		case <-timer.C:
		}
	}
	c.fail(ErrClosed)
	<-c.ended
	return nil
}

// fail ends a connection: all that is under way on it fails with err. Only the first call counts.
func (c *Conn) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil || c.mu.err != nil {
		return
	}
	c.mu.err = fmt.Errorf("connection with %s: %w", c.Peer(), err)
	c.stop()
	c.control.Close()
	for _, l := range c.mu.lanes {
		if l.conn != nil {
			l.conn.Close()
		}
	}
	for request, p := range c.mu.pulls {
		c.finish(p, c.mu.err)
		delete(c.mu.pulls, request)
	}
	for p := range c.mu.arriving {
		c.finish(p, c.mu.err)
	}
	c.mu.changed.Broadcast()
}

// post queues a message. The caller holds mu.
func (c *Conn) post(m message) {
	c.mu.out = append(c.mu.out, frame(m)...)
	c.mu.changed.Broadcast()
}

// write writes the messages that are posted, until the connection ends or the peer has left.
func (c *Conn) write() error {
	for {
		data, err := c.nextOut()
		if data == nil {
			return err
		}
		c.control.SetWriteDeadline(time.Now().Add(c.config.Stall))
		if _, err := c.control.Write(data); err != nil {
			return err
		}
	}
}

// nextOut waits for messages to write. A peer that requests no more, and has all that it requested, has left.
func (c *Conn) nextOut() ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		switch {
		case c.mu.err != nil:
			return nil, nil
		case len(c.mu.out) > 0:
			data := c.mu.out
			c.mu.out = nil
			return data, nil
		case c.mu.leaving && len(c.mu.tickets)+len(c.mu.pulls)+len(c.mu.arriving) == 0:
			return nil, ErrClosed
		}
		c.mu.changed.Wait()
	}
}

// read takes the messages of the peer.
func (c *Conn) read() error {
	r, buf := bufio.NewReaderSize(c.control, maxFrame), make([]byte, maxFrame)
	c.control.SetReadDeadline(time.Now().Add(helloPatience))
	m, err := readFrame(r, buf)
	if err != nil {
		return hungUp(err)
	}
	hello, ok := m.(establish)
	if !ok {
		return fmt.Errorf("the first message is a %T: want one that establishes lanes", m)
	}
	c.control.SetReadDeadline(time.Time{})
	if err := c.establish(hello); err != nil {
		return err
	}
	for {
		m, err := readFrame(r, buf)
		if err != nil {
			return hungUp(err)
		}
		if err := c.take(m); err != nil {
			return err
		}
	}
}

// hungUp is the error of a connection that ended between two messages.
func hungUp(err error) error {
	if errors.Is(err, io.EOF) {
		return errHungUp
	}
	return err
}

// take does what a message says.
func (c *Conn) take(m message) error {
	switch m := m.(type) {
	case pullRequest:
		return c.serve(m)
	case packet:
		return c.packet(m)
	case failure:
		return c.failure(m)
	case halfClose:
		c.mu.Lock()
		c.mu.leaving = true
		c.mu.changed.Broadcast()
		c.mu.Unlock()
		return nil
	default:
		return fmt.Errorf("a second message of kind %T", m)
	}
}

// serve answers a request of the peer.
func (c *Conn) serve(m pullRequest) error {
	if c.server != nil {
		return c.server.request(c, m)
	}
	if err := c.room(); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range m.indexes {
		c.post(failure{request: m.request + uint64(i), largest: true, text: "this process offers nothing on this connection"})
	}
	return nil
}

// establish makes the lanes. The side that was dialled says where they are, and the other one dials them.
func (c *Conn) establish(m establish) error {
	if c.dialled {
		return c.dialLanes(m)
	}
	n := min(max(1, len(m.addresses)), c.config.Lanes) // a JAX process that is offered more than it has aborts (TR-W-12)
	c.setLanes(n)
	answer := c.server.expectLanes(c, n)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.post(answer)
	return nil
}

// setLanes makes lanes that are not connected yet.
func (c *Conn) setLanes(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range n {
		c.mu.lanes = append(c.mu.lanes, &lane{index: uint64(i)})
	}
}

// dialLanes connects the lanes, each to the address that the peer names (TR-W-11).
func (c *Conn) dialLanes(m establish) error {
	if n := len(m.addresses); n == 0 || n > maxLanes || len(m.uuids) == 0 {
		return fmt.Errorf("the peer names %d lanes and %d numbers for them: want 1 to %d lanes", n, len(m.uuids), maxLanes)
	}
	c.setLanes(len(m.addresses))
	for i, text := range m.addresses {
		address, err := c.laneAddress(text)
		if err != nil {
			return err
		}
		c.work.Go(func() { c.fail(c.dialLane(i, address, m.uuids[0]+uint64(i))) })
	}
	return nil
}

// laneAddress reads the address of a lane. A JAX process with the default settings names a wildcard address, which means
// the host that it runs on (TR-H-14).
func (c *Conn) laneAddress(text string) (string, error) {
	a, err := netip.ParseAddrPort(text)
	if err != nil || a.Port() == 0 {
		return "", fmt.Errorf("the peer names %.100q as the address of a lane", text)
	}
	if a.Addr().IsUnspecified() {
		a = netip.AddrPortFrom(addressOf(c.control.RemoteAddr()).Addr(), a.Port())
	}
	return a.String(), nil
}

// dialLane connects a lane, and says its number (TR-W-5).
func (c *Conn) dialLane(i int, address string, uuid uint64) error {
	ctx, cancel := context.WithTimeout(c.ctx, c.config.Stall)
	defer cancel()
	conn, err := c.config.patientDial(ctx, address)
	if err != nil {
		return fmt.Errorf("lane %d: %w", i, err)
	}
	conn.SetWriteDeadline(time.Now().Add(c.config.Stall))
	if err := writeNumber(conn, uuid); err != nil {
		conn.Close()
		return fmt.Errorf("lane %d: %w", i, err)
	}
	c.attach(i, conn)
	return nil
}
