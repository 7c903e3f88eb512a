package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/serry-dev/serry/internal/pause"
	"github.com/serry-dev/serry/wire/back"
	"github.com/serry-dev/serry/wire/rpc"
)

// network is a Transport over HTTP/2, with connections of its own.
type network struct {
	// Set in Dial, then constant.
	addresses []string
	options   back.Options
	life      context.Context // ends with Close
	end       context.CancelFunc

	work sync.WaitGroup // dialling

	mu struct {
		sync.Mutex
		conn   *back.Conn          // for new calls, or nil
		since  time.Time           // when it was made
		conns  map[*back.Conn]bool // all that may still carry calls
		next   *dialling           // under way, or nil
		tried  int                 // addresses, so far
		failed int                 // how many times in a row a connection could not be made, or did not last
		why    error               // the last time
	}
}

// dialling is an attempt at a connection, which any number of calls wait for.
type dialling struct {
	over chan struct{} // closed at the end
	conn *back.Conn    // set before that; nil if there is none
}

const (
	dialTimeout  = 20 * time.Second // for one attempt, with all handshakes
	steadyAfter  = time.Second      // a connection that lasted so long was a good one
	firstRedial  = 50 * time.Millisecond
	redialDouble = 5 // from there on the pause does not grow: about a second
)

// Call waits for a connection, and makes the call there. What the service cannot have seen is sent again.
func (n *network) Call(ctx context.Context, path string, body []byte) ([]byte, rpc.Status, error) {
	for {
		conn, err := n.connected(ctx)
		if err != nil {
			return nil, rpc.Status{}, err
		}
		reply, st, err := conn.Call(ctx, path, body)
		switch {
		case err == nil && st.Code == codes.Unavailable && st.Details == nil: // from a proxy, or made by this client: no server answered
			return nil, rpc.Status{}, errors.New(st.Message)
		case !errors.Is(err, back.ErrUnsent):
			return reply, st, err
		}
		if conn.Err() == nil { // it is overloaded, not broken
			if err := pause.For(ctx, jittered(firstRedial)); err != nil {
				return nil, rpc.Status{}, err
			}
		}
	}
}

// connected waits for a connection that takes calls.
func (n *network) connected(ctx context.Context) (*back.Conn, error) {
	for {
		conn, next, err := n.current()
		if conn != nil || err != nil {
			return conn, err
		}
		select {
		case <-next.over:
		case <-ctx.Done():
			return nil, n.whyNot(context.Cause(ctx))
		}
		if next.conn != nil {
			return next.conn, nil
		}
	}
}

// current is the connection for new calls, or the attempt at one.
func (n *network) current() (*back.Conn, *dialling, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.life.Err() != nil:
		return nil, nil, net.ErrClosed
	case n.mu.conn != nil && n.mu.conn.Err() == nil:
		return n.mu.conn, nil, nil
	case n.mu.conn != nil:
		n.mu.why = n.mu.conn.Err()
		if n.mu.failed++; time.Since(n.mu.since) > steadyAfter {
			n.mu.failed = 0
		}
		n.mu.conn = nil
	}
	if n.mu.next == nil {
		n.mu.next = &dialling{over: make(chan struct{})}
		d, wait := n.mu.next, time.Duration(0)
		if n.mu.failed > 0 {
			wait = jittered(firstRedial << min(n.mu.failed-1, redialDouble))
		}
		n.work.Go(func() { n.dial(d, wait) })
	}
	return nil, n.mu.next, nil
}

// dial makes a connection.
func (n *network) dial(d *dialling, wait time.Duration) {
	err := pause.For(n.life, wait)
	if err == nil {
		ctx, cancel := context.WithTimeout(n.life, dialTimeout)
		d.conn, err = back.Dial(ctx, n.address(), n.options)
		cancel()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.next = nil
	if err != nil {
		n.mu.failed++
		n.mu.why = err
	} else {
		n.keep(d.conn)
	}
	close(d.over)
}

// reach makes one attempt at a connection, without a pause, and keeps it for calls to come.
func (n *network) reach() error {
	ctx, cancel := context.WithTimeout(n.life, dialTimeout)
	defer cancel()
	conn, err := back.Dial(ctx, n.address(), n.options)
	if err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.keep(conn)
	return nil
}

// address is where to try next: each in turn.
func (n *network) address() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.tried++
	return n.addresses[(n.mu.tried-1)%len(n.addresses)]
}

// keep makes a connection the one for new calls. A former one may still have answers to bring.
func (n *network) keep(conn *back.Conn) {
	n.mu.conn, n.mu.since = conn, time.Now()
	if n.mu.conns == nil {
		n.mu.conns = make(map[*back.Conn]bool)
	}
	for old := range n.mu.conns {
		select {
		case <-old.Ended():
			delete(n.mu.conns, old)
		default:
		}
	}
	n.mu.conns[conn] = true
}

// whyNot adds to the end of a wait why there was no connection.
func (n *network) whyNot(cause error) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.mu.why == nil {
		return cause
	}
	return fmt.Errorf("%w: no connection: %w", cause, n.mu.why)
}

// Close ends all connections.
func (n *network) Close() error {
	n.mu.Lock()
	n.end() // no dialling begins from now on
	n.mu.Unlock()
	n.work.Wait()
	n.mu.Lock()
	conns := n.mu.conns
	n.mu.conns = nil
	n.mu.Unlock()
	for c := range conns {
		c.Close()
	}
	return nil
}
