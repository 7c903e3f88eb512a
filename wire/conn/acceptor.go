package conn

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// HandshakeTime is how long a peer may take to show that it speaks its protocol.
	HandshakeTime = 20 * time.Second

	// MaxHandshakes is how many connections of an acceptor may wait for the server to answer their greeting.
	MaxHandshakes = 1000

	handshakePatience = time.Second // with so many of them: how long the next one waits
)

// A Protocol is what connections may speak.
type Protocol struct {
	// Name is that of the protocol in TLS handshakes (ALPN).
	Name string

	// First is how connections begin, without TLS. No protocol of an acceptor begins as another one
	// goes on: the first bytes that differ decide.
	First string

	// Serve serves a connection to its end. It calls [Conn.Greeted] once the peer has shown that it
	// speaks the protocol.
	Serve func(*Conn)
}

// AcceptorConfig says what an acceptor accepts. Protocols must be given.
type AcceptorConfig struct {
	// Protocols are what connections may speak. With TLS the first that both sides have is spoken.
	// A single one needs no first bytes.
	Protocols []Protocol

	// TLS makes connections secure; nil serves plain text. The acceptor works on a copy that offers the
	// protocols and TLS 1.2 or newer.
	TLS *tls.Config

	Log *slog.Logger // nil is silent

	// Refused is told of connections that ended in the TLS handshake, in place of the log. A client
	// without the right certificate comes again every second: Refused can keep count. Nil: the log.
	Refused func(peer net.Addr, err error)

	HandshakeTime time.Duration // 0 means the constant of that name

	// MaxConns bounds the connections; accepting pauses there. 0 means the limit on open files less 64.
	MaxConns int
}

// An Acceptor accepts connections and hands each one to its protocol. Make it with NewAcceptor.
type Acceptor struct {
	// Set in NewAcceptor, then constant.
	cfg   AcceptorConfig
	slots chan struct{} // one token for a connection
	fewer chan struct{} // told when the server may have fewer greetings to answer
	stop  chan struct{} // closed when accepting ends

	work   sync.WaitGroup // connections
	counts struct{ accepted, conns, handshakes atomic.Uint64 }

	reading atomic.Int64 // connections that have not greeted, and whose readers wait for bytes

	mu struct {
		sync.Mutex
		conns     map[*Conn]struct{}
		greeting  map[*Conn]*greeting // that have not greeted
		sweeping  bool                // sweep runs
		listeners map[net.Listener]struct{}
		stopped   bool
	}
}

// AcceptorStats are the figures of an acceptor.
type AcceptorStats struct {
	Conns      int    // open now
	Accepted   uint64 // so far
	Full       uint64 // pauses because of MaxConns
	Handshakes uint64 // connections closed because too many were silent
}

// Errors of an acceptor.
var (
	// ErrClosed is what Serve returns after Stop or Close.
	ErrClosed = errors.New("server closed")

	errHandshake = errors.New("no handshake in time")
	errProtocol  = errors.New("no protocol that is served here")
)

// NewAcceptor makes an acceptor that accepts nothing yet.
func NewAcceptor(cfg AcceptorConfig) *Acceptor {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.HandshakeTime <= 0 {
		cfg.HandshakeTime = HandshakeTime
	}
	if cfg.MaxConns <= 0 {
		cfg.MaxConns = defaultMaxConns()
	}
	if cfg.TLS != nil {
		names := make([]string, len(cfg.Protocols))
		for i, p := range cfg.Protocols {
			names[i] = p.Name
		}
		cfg.TLS = offering(cfg.TLS, names)
		cfg.TLS.MinVersion = max(cfg.TLS.MinVersion, tls.VersionTLS12)
	}
	a := &Acceptor{
		cfg:   cfg,
		slots: make(chan struct{}, cfg.MaxConns),
		fewer: make(chan struct{}, 1),
		stop:  make(chan struct{}),
	}
	a.mu.conns = make(map[*Conn]struct{})
	a.mu.greeting = make(map[*Conn]*greeting)
	a.mu.listeners = make(map[net.Listener]struct{})
	return a
}

// offering is a copy of cfg that agrees on one of these protocols (ALPN), the first that both sides have;
// also where cfg makes another configuration for each client.
func offering(cfg *tls.Config, protocols []string) *tls.Config {
	cfg = cfg.Clone()
	cfg.NextProtos = protocols
	if choose := cfg.GetConfigForClient; choose != nil {
		cfg.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			chosen, err := choose(hello)
			if err != nil || chosen == nil {
				return nil, err
			}
			return offering(chosen, protocols), nil
		}
	}
	return cfg
}

// Serve accepts connections from l and serves them until Stop or Close, then returns ErrClosed. It
// closes l. Several listeners may be served at once.
func (a *Acceptor) Serve(l net.Listener) error {
	defer l.Close()
	a.mu.Lock()
	if a.mu.stopped {
		a.mu.Unlock()
		return ErrClosed
	}
	a.mu.listeners[l] = struct{}{}
	a.mu.Unlock()
	defer func() {
		a.mu.Lock()
		delete(a.mu.listeners, l)
		a.mu.Unlock()
	}()

	told := false
	for {
		if !a.waitForHandshakes() || !a.takeSlot(&told) {
			return ErrClosed
		}
		nc, err := a.accept(l)
		if err != nil {
			<-a.slots
			return err
		}
		a.start(New(nc))
	}
}

// takeSlot waits until one more connection is allowed, and logs once that it had to.
func (a *Acceptor) takeSlot(told *bool) bool {
	select {
	case a.slots <- struct{}{}:
		return true
	default:
	}
	a.counts.conns.Add(1)
	if !*told {
		*told = true
		a.cfg.Log.Warn("accepting paused: connection limit reached", "limit", cap(a.slots))
	}
	select {
	case a.slots <- struct{}{}:
		return true
	case <-a.stop:
		return false
	}
}

// accept waits for a connection. It waits longer where files or memory have run out.
func (a *Acceptor) accept(l net.Listener) (net.Conn, error) {
	for delay := 5 * time.Millisecond; ; delay = min(2*delay, time.Second) {
		nc, err := l.Accept()
		if err == nil {
			return nc, nil
		}
		select {
		case <-a.stop:
			return nil, ErrClosed
		default:
		}
		if !temporary(err) {
			return nil, err
		}
		a.cfg.Log.Warn("accept", "err", err)
		select {
		case <-time.After(delay):
		case <-a.stop:
			return nil, ErrClosed
		}
	}
}

// start serves a new connection on its own goroutine.
func (a *Acceptor) start(c *Conn) {
	c.acceptor = a
	a.mu.Lock()
	if a.mu.stopped {
		a.mu.Unlock()
		c.Close()
		<-a.slots
		return
	}
	a.mu.conns[c] = struct{}{}
	c.greeting = &greeting{acceptor: a}
	a.mu.greeting[c] = c.greeting
	if !a.mu.sweeping {
		a.mu.sweeping = true
		a.work.Go(a.sweep)
	}
	a.work.Add(1)
	a.mu.Unlock()
	a.counts.accepted.Add(1)
	go func() {
		defer a.work.Done()
		if a.serve(c); !c.detached {
			c.Close()
		}
		a.greeted(c)
		a.mu.Lock()
		delete(a.mu.conns, c)
		a.mu.Unlock()
		<-a.slots
	}()
}

// serve finds out which protocol a connection speaks, and serves it.
func (a *Acceptor) serve(c *Conn) {
	if tcp, ok := c.Conn.(*net.TCPConn); ok {
		// Only to notice hosts that vanished (F-38).
		tcp.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 15 * time.Second, Count: 9})
	}
	c.SetDeadline(time.Now().Add(a.cfg.HandshakeTime))
	p, err := a.protocol(c)
	if err == nil {
		p.Serve(c)
		return
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = errHandshake
	}
	switch {
	case errors.Is(err, net.ErrClosed), errors.Is(err, io.ErrClosedPipe): // by this side, which tells of silent connections together
		a.cfg.Log.Debug("connection closed", "peer", c.RemoteAddr(), "err", err)
	case a.cfg.TLS != nil && a.cfg.Refused != nil:
		a.cfg.Refused(c.RemoteAddr(), err)
	case errors.Is(err, io.EOF):
		a.cfg.Log.Debug("connection closed", "peer", c.RemoteAddr(), "err", err)
	default:
		a.cfg.Log.Info("connection ended", "peer", c.RemoteAddr(), "err", err)
	}
}

// protocol finds the protocol of a connection: by TLS, or by its first bytes.
func (a *Acceptor) protocol(c *Conn) (*Protocol, error) {
	if a.cfg.TLS != nil {
		if err := c.begun(); err != nil {
			return nil, err
		}
		if err := c.secure(context.Background(), a.cfg.TLS, tls.Server); err != nil {
			return nil, err
		}
		agreed := c.tls.ConnectionState().NegotiatedProtocol
		for i, p := range a.cfg.Protocols {
			if p.Name == agreed {
				return &a.cfg.Protocols[i], nil
			}
		}
		return nil, errProtocol
	}
	if len(a.cfg.Protocols) == 1 {
		return &a.cfg.Protocols[0], nil
	}
	for {
		first, err := c.peek()
		if err != nil {
			return nil, err
		}
		if p, more := match(a.cfg.Protocols, first); p != nil {
			return p, nil
		} else if !more {
			return nil, errProtocol
		}
		c.peeked = false
		c.Keep(first)
	}
}

// match finds the protocol that begins with these bytes. More of them are needed where several do.
func match(all []Protocol, first []byte) (found *Protocol, more bool) {
	for i := range all {
		n := min(len(first), len(all[i].First))
		if string(first[:n]) != all[i].First[:n] {
			continue
		}
		if found != nil {
			return nil, true
		}
		found = &all[i]
	}
	return found, false
}

// greeted takes c off the list of connections that have not greeted.
func (a *Acceptor) greeted(c *Conn) {
	a.mu.Lock()
	delete(a.mu.greeting, c)
	a.mu.Unlock()
	a.hasRoom()
}

// Stats returns the present figures.
func (a *Acceptor) Stats() AcceptorStats {
	a.mu.Lock()
	defer a.mu.Unlock()
	return AcceptorStats{len(a.mu.conns), a.counts.accepted.Load(), a.counts.conns.Load(), a.counts.handshakes.Load()}
}

// Stop ends accepting, for good, and returns the connections there are.
func (a *Acceptor) Stop() []*Conn {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.mu.stopped {
		a.mu.stopped = true
		close(a.stop)
		for l := range a.mu.listeners {
			l.Close()
		}
	}
	return slices.Collect(maps.Keys(a.mu.conns))
}

// Wait waits until all connections have ended. Stop comes before.
func (a *Acceptor) Wait() { a.work.Wait() }
