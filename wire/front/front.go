// Package front is a lean server for unary gRPC over HTTP/2, made for many clients with many calls
// that wait: one goroutine a connection, and none, nor a timer, context or allocation, for a call.
//
// Start with [Server], which serves the connections of a listener, and with [rpc.Handler], which
// takes the calls. The front knows neither the messages nor their meaning: it hands a method name
// and bytes to the handler and takes bytes or a status back, whenever they are ready, from any
// goroutine.
//
// # How a connection works
//
// The reader goroutine takes what one read brought (a wave), handles every whole frame of it and
// serves every call that became complete, then writes all replies of the wave at once. A handler
// that answers later does the same for its own waves: Reply for each call, then Flush once for each
// connection. Writes never block. What a socket does not take starts a writer goroutine of that
// connection, which ends when the rest is out: one slow client holds up nobody else.
//
// The front keeps eight bytes for a call that waits. Deadlines of all calls and checks of all
// connections are one heap and one goroutine (scanner), which exists only while there are some.
//
// # Who owns what
//
// conn.in belongs to the reader goroutine. conn.mu guards what replies touch: open calls, windows
// of the peer, output. Handler methods are never called with it held. Locks of the scanner and of
// the budgets are innermost.
//
// # What it promises
//
// Nothing a peer sends ends more than its own connection. Every buffer, queue and rate a peer can
// drive has a limit (limits.go). It works the same over TCP, TLS, Unix sockets and in-memory pipes,
// so it runs in a testing/synctest bubble.
package front

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"math"
	"net"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/serry-dev/serry/wire/mtls"
	"github.com/serry-dev/serry/wire/rpc"
)

// ErrServerClosed is what Serve returns after Shutdown or Close, and what a handler's Close gets for
// a connection ended by them.
var ErrServerClosed = errors.New("front: server closed")

// Config says what a Server serves and how much it may use. Handler is needed; the zero value of
// every other field is right.
type Config struct {
	Handler rpc.Handler
	Methods rpc.Methods

	// TLS makes connections secure; nil serves plain HTTP/2. The server works on a copy that offers
	// h2 alone and TLS 1.2 or newer, and closes a connection that did not agree on h2.
	TLS *tls.Config

	Log *slog.Logger // nil is silent

	// Refused is told of connections that ended in the TLS handshake, in place of the log. A client
	// without the right certificate comes again every second; who is told can keep count. Nil: the log.
	Refused func(peer net.Addr, err error)

	// Other takes connections that begin with something else than HTTP/2, with the bytes that were
	// read of them, and serves them to their end. With TLS those are the ones that agreed on
	// OtherProtocol. Nil: they are closed.
	Other         func(nc net.Conn, read []byte)
	OtherProtocol string

	// MaxConns bounds the connections; accepting pauses there. 0 means the limit on open files less 64.
	MaxConns int

	// MaxUnfinishedBytes bounds the messages under way to the server on all connections together.
	// Beyond it they are slowed, one goes on. 0 means half of the memory limit of the process, or
	// 4 GiB without one.
	MaxUnfinishedBytes int64
}

// A Server accepts connections and serves their calls. Make it with New.
type Server struct {
	// Set in New, then constant.
	handler rpc.Handler
	methods map[string]*method
	byIndex []*method // byIndex[0] stands for all unknown paths
	tls     *tls.Config
	log     *slog.Logger
	refused func(peer net.Addr, err error)
	other   func(net.Conn, []byte) // or nil
	slots   chan struct{}          // one token for a connection
	grew    chan struct{}          // told when a connection has finished its handshake or ended
	stop    chan struct{}          // closed when accepting ends
	budget  budget                 // of messages under way, all connections
	base    time.Time              // zero of the scanner's clock

	scan  scanner
	count counters
	conns sync.WaitGroup

	mu struct {
		sync.Mutex
		conns     map[*conn]struct{}
		young     []*conn // handshake not done, oldest first
		listeners map[net.Listener]struct{}
		stopped   bool
	}
}

// New makes a server that serves nothing yet.
func New(cfg Config) *Server {
	s := &Server{
		handler: cfg.Handler,
		log:     cfg.Log,
		refused: cfg.Refused,
		other:   cfg.Other,
		stop:    make(chan struct{}),
		base:    time.Now(),
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if cfg.MaxConns <= 0 {
		cfg.MaxConns = defaultMaxConns()
	}
	s.slots = make(chan struct{}, cfg.MaxConns)
	s.grew = make(chan struct{}, 1)
	if cfg.MaxUnfinishedBytes <= 0 {
		cfg.MaxUnfinishedBytes = defaultUnfinishedBytes
		if limit := debug.SetMemoryLimit(-1); limit < math.MaxInt64 {
			cfg.MaxUnfinishedBytes = limit / 2
		}
	}
	s.budget.limit = cfg.MaxUnfinishedBytes
	s.addMethods(cfg.Methods)
	if cfg.TLS != nil {
		protocols := []string{"h2"}
		if cfg.Other != nil && cfg.OtherProtocol != "" { // first: who offers it speaks HTTP/2, too
			protocols = []string{cfg.OtherProtocol, "h2"}
		}
		s.tls = mtls.Offering(cfg.TLS, protocols...)
		s.tls.MinVersion = max(s.tls.MinVersion, tls.VersionTLS12)
	}
	s.scan.init()
	s.mu.conns = make(map[*conn]struct{})
	s.mu.listeners = make(map[net.Listener]struct{})
	return s
}

func (s *Server) addMethods(methods rpc.Methods) {
	if len(methods) >= maxMethods {
		panic("front: too many methods")
	}
	s.methods = make(map[string]*method, len(methods))
	s.byIndex = []*method{{path: "unknown"}}
	for path, m := range methods {
		known := &method{path: path, limit: m.MaxRequestBytes, index: uint16(len(s.byIndex))}
		s.methods[path] = known
		s.byIndex = append(s.byIndex, known)
	}
}

// Serve accepts connections from l and serves them until Shutdown or Close, then returns
// ErrServerClosed. It closes l. Several listeners may be served at once.
func (s *Server) Serve(l net.Listener) error {
	defer l.Close()
	s.mu.Lock()
	if s.mu.stopped {
		s.mu.Unlock()
		return ErrServerClosed
	}
	s.mu.listeners[l] = struct{}{}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.mu.listeners, l)
		s.mu.Unlock()
	}()

	told := false
	for {
		if !s.takeSlot(&told) {
			return ErrServerClosed
		}
		if !s.waitForHandshakes() {
			<-s.slots
			return ErrServerClosed
		}
		nc, err := s.accept(l)
		if err != nil {
			<-s.slots
			return err
		}
		s.start(nc)
	}
}

// takeSlot waits until one more connection is allowed, and says once that it had to.
func (s *Server) takeSlot(told *bool) bool {
	select {
	case s.slots <- struct{}{}:
		return true
	default:
	}
	s.count.refused[refusedConns].Add(1)
	if !*told {
		*told = true
		s.log.Warn("accepting paused: connection limit reached", "limit", cap(s.slots))
	}
	select {
	case s.slots <- struct{}{}:
		return true
	case <-s.stop:
		return false
	}
}

// waitForHandshakes holds up accepting while too many connections have not finished theirs: ten
// thousand clients that come at once are read as fast as they can be. If that helps nobody for a
// while, the oldest of them has nothing to say and is closed.
func (s *Server) waitForHandshakes() bool {
	for {
		s.mu.Lock()
		var oldest *conn
		if len(s.mu.young) >= maxHandshakes {
			oldest = s.mu.young[0]
		}
		s.mu.Unlock()
		if oldest == nil {
			return true
		}
		select {
		case <-s.grew:
		case <-time.After(handshakePatience):
			s.count.refused[refusedHandshakes].Add(1)
			s.grown(oldest)
			oldest.fail(errCrowded)
		case <-s.stop:
			return false
		}
	}
}

// accept waits for a connection. Running out of files or memory is waited out.
func (s *Server) accept(l net.Listener) (net.Conn, error) {
	for delay := 5 * time.Millisecond; ; delay = min(2*delay, time.Second) {
		nc, err := l.Accept()
		if err == nil {
			return nc, nil
		}
		select {
		case <-s.stop:
			return nil, ErrServerClosed
		default:
		}
		if !temporary(err) {
			return nil, err
		}
		s.log.Warn("accept", "err", err)
		select {
		case <-time.After(delay):
		case <-s.stop:
			return nil, ErrServerClosed
		}
	}
}

// start serves a new connection on its own goroutine.
func (s *Server) start(nc net.Conn) {
	c := newConn(s, nc)
	s.mu.Lock()
	if s.mu.stopped {
		s.mu.Unlock()
		nc.Close()
		<-s.slots
		return
	}
	s.mu.conns[c] = struct{}{}
	s.mu.young = append(s.mu.young, c)
	s.conns.Add(1)
	s.mu.Unlock()
	s.count.accepted.Add(1)
	go func() {
		defer s.conns.Done()
		c.serve()
		s.mu.Lock()
		delete(s.mu.conns, c)
		s.mu.Unlock()
		s.grown(c)
		<-s.slots
	}()
}

// grown takes c off the list of connections without a finished handshake.
func (s *Server) grown(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.mu.young, c); i >= 0 {
		s.mu.young = slices.Delete(s.mu.young, i, i+1)
		select {
		case s.grew <- struct{}{}:
		default:
		}
	}
}

// Shutdown ends the server in order: it accepts no more connections, tells every peer to open no
// more calls, and closes each connection once its last call has been answered. The handler should
// answer what it can meanwhile. When ctx ends first, what is left is closed and the cause returned.
//
// A peer that is told so connects anew at once: for a hand-over, call Shutdown when the successor
// listens.
func (s *Server) Shutdown(ctx context.Context) error {
	for _, c := range s.halt() {
		c.drain()
	}
	done := make(chan struct{})
	go func() {
		s.conns.Wait()
		close(done)
	}()
	select {
	case <-done:
		return s.Close()
	case <-ctx.Done():
		s.Close()
		<-done
		return context.Cause(ctx)
	}
}

// Close ends the server at once and returns when all its goroutines have ended.
func (s *Server) Close() error {
	for _, c := range s.halt() {
		c.fail(ErrServerClosed)
	}
	s.conns.Wait()
	s.scan.close()
	return nil
}

// halt stops accepting, for good, and returns the connections there are.
func (s *Server) halt() []*conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.mu.stopped {
		s.mu.stopped = true
		close(s.stop)
		for l := range s.mu.listeners {
			l.Close()
		}
	}
	conns := make([]*conn, 0, len(s.mu.conns))
	for c := range s.mu.conns {
		conns = append(conns, c)
	}
	return conns
}

// now is the time since the server was made.
func (s *Server) now() time.Duration { return time.Since(s.base) }
