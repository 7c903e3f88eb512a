package storm

import (
	"context"
	"net"
	"sync"

	"github.com/serry-dev/serry/node"
)

// startNode begins a process that is a node.
func (p *process) startNode() {
	s := p.site
	p.doors = newListener(s.place)
	n, err := node.New(node.Config{
		Store: p.seat, Server: s.world.serverConfig(), Address: s.place.name,
		Dial: func(ctx context.Context, address string) (net.Conn, error) {
			return s.world.dial(ctx, s.place, address)
		},
	})
	if err != nil {
		panic(err) // the configuration above
	}
	p.node = n
	s.mu.Lock()
	s.process = p
	s.mu.Unlock()
	s.world.work.Go(func() {
		if err := n.Serve(p.doors); err != nil {
			s.world.wrong("%s: Serve() = %v", s.place.name, err)
		}
	})
}

// stopNode ends a node whose process is dead: whatever it says, nobody hears it.
func (p *process) stopNode() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	p.node.Shutdown(ctx)
	p.doors.Close()
}

// A listener hands out connections that came to a place.
type listener struct {
	place *place
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newListener(at *place) *listener {
	return &listener{place: at, conns: make(chan net.Conn), done: make(chan struct{})}
}

// take waits until the connection is accepted, or closes it.
func (l *listener) take(c net.Conn) {
	select {
	case l.conns <- c:
	case <-l.done:
		c.Close()
	}
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *listener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

// Addr implements net.Listener.
func (l *listener) Addr() net.Addr { return l.place }
