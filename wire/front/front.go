// Package front is a lean server for unary gRPC over HTTP/2, made for many clients with many calls
// that wait: one goroutine a connection, and none, nor a timer, context or allocation, for a call.
//
// Start with [Server], which serves the connections of a listener, and with [rpc.Handler], which
// takes the calls. The package knows neither the messages nor their meaning: it gives a method name
// and bytes to the handler and takes bytes or a status back, whenever they are ready, from any
// goroutine.
//
// # How a connection works
//
// The reader goroutine takes what one read brought (a chunk), handles every whole frame of it and
// serves every call that became complete, then writes all replies at once. A handler that answers
// later does the same: Reply for each call, then Flush once for each connection. Writes never block
// ([conn.Pipe]): one slow client does not delay the others.
//
// A call that waits takes eight bytes. Deadlines of all calls and checks of all connections are one
// heap and one goroutine (scanner), which exists only while there are some.
//
// # Owners
//
// connection.in belongs to the reader goroutine. The lock of the pipe, connection.mu, guards what
// replies touch: open calls, windows of the peer, output. Handler methods are never called with it
// held. Locks of the scanner and of the budgets are innermost.
//
// # What it promises
//
// Nothing a peer sends ends more than its own connection. Every buffer, queue and rate a peer can
// drive has a limit (limits.go).
//
// Read connection.go first, then reader.go and reply.go.
package front

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"golang.org/x/net/http2"

	"github.com/serry-dev/serry/wire/conn"
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
	// h2 and the other protocols over TLS 1.2 or newer, and closes a connection that agreed on none.
	TLS *tls.Config

	Log *slog.Logger // nil is silent

	// Refused is told of connections that ended in the TLS handshake: see conn.AcceptorConfig.
	Refused func(peer net.Addr, err error)

	// Others are protocols that share the port with HTTP/2, and come before it where a peer speaks both.
	Others []conn.Protocol

	// MaxConns bounds the connections; accepting pauses there. 0 means the limit on open files less 64.
	MaxConns int

	// MaxUnfinishedBytes bounds the memory of requests that are not complete, on all connections
	// together: see conn.NewBudget. Beyond it requests are slowed down, all but one.
	MaxUnfinishedBytes int64

	// StrangerBytes bounds the same for all connections together whose peers the handler does not know. Twice as much
	// is read of them in a second, and they expand large messages one at a time. The handler says that it knows a peer by the method Known of its
	// connection. 0: the handler never does, and no peer is a stranger.
	StrangerBytes int64
}

// A Server accepts connections and serves their calls. Make it with New.
type Server struct {
	// Set in New, then constant.
	handler  rpc.Handler
	methods  map[string]*method
	byIndex  []*method // byIndex[0] stands for all unknown paths
	log      *slog.Logger
	acceptor *conn.Acceptor
	budget   *conn.Budget // of unfinished requests, all connections
	expanded *conn.Budget // of what gzip makes of requests; a part of budget
	base     time.Time    // zero of the scanner's clock

	strangers *conn.Budget // of unfinished requests of peers that the handler does not know; a part of budget, or nil
	pace      *pace        // of all strangers together; set with strangers
	turn      sync.Mutex   // of the stranger whose large message is being expanded

	scan  scanner
	count counters

	mu struct {
		sync.Mutex
		conns map[*conn.Conn]*connection // those that speak HTTP/2
	}
}

// New makes a server that serves nothing yet.
func New(cfg Config) *Server {
	cfg.Log = conn.LimitLog(cfg.Log)
	s := &Server{handler: cfg.Handler, log: cfg.Log, budget: conn.NewBudget(cfg.MaxUnfinishedBytes), base: time.Now()}
	s.expanded = s.budget.Part(expandedBytes)
	if cfg.StrangerBytes > 0 {
		s.strangers, s.pace = s.budget.Part(cfg.StrangerBytes), newPace(cfg.StrangerBytes)
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.addMethods(cfg.Methods)
	s.scan.init()
	s.mu.conns = make(map[*conn.Conn]*connection)
	s.acceptor = conn.NewAcceptor(conn.AcceptorConfig{
		Protocols: append(slices.Clone(cfg.Others), conn.Protocol{Name: "h2", First: http2.ClientPreface, Serve: s.serve}),
		TLS:       cfg.TLS,
		Log:       cfg.Log,
		Refused:   cfg.Refused,
		MaxConns:  cfg.MaxConns,
	})
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
	if err := s.acceptor.Serve(l); !errors.Is(err, conn.ErrClosed) {
		return err
	}
	return ErrServerClosed
}

// serve serves a connection of HTTP/2.
func (s *Server) serve(nc *conn.Conn) {
	c := newConnection(s, nc)
	s.mu.Lock()
	s.mu.conns[nc] = c
	s.mu.Unlock()
	c.serve()
	s.mu.Lock()
	delete(s.mu.conns, nc)
	s.mu.Unlock()
}

// Shutdown ends the server without losing calls: it accepts no more connections, tells every peer to
// open no more calls, and closes each connection once its last call has been answered. The handler should
// answer what it can meanwhile. When ctx ends first, what is left is closed and the cause returned.
//
// A peer that is told to open no more calls connects anew at once. To hand over to another server, call
// Shutdown when the other server listens.
func (s *Server) Shutdown(ctx context.Context) error {
	s.stop((*connection).drain)
	done := make(chan struct{})
	go func() {
		s.acceptor.Wait()
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
	s.stop(func(c *connection) { c.mu.Fail(ErrServerClosed) })
	s.acceptor.Wait()
	s.scan.close()
	return nil
}

// stop ends accepting. It ends connections of HTTP/2 in this way, and closes all others.
func (s *Server) stop(end func(*connection)) {
	for _, nc := range s.acceptor.Stop() {
		s.mu.Lock()
		c := s.mu.conns[nc]
		s.mu.Unlock()
		if c != nil {
			end(c)
		} else {
			nc.Close()
		}
	}
}

// now is the time since the server was made.
func (s *Server) now() time.Duration { return time.Since(s.base) }
