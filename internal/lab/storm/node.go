package storm

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/node"
)

// startNode begins a process that is a node.
func (p *process) startNode() {
	s := p.site
	p.doors = newListener(s.place)
	n, err := node.New(node.Config{
		Store: p.seat, Server: p.serverConfig(), Address: s.place.name,
		Dial: func(ctx context.Context, address string) (net.Conn, error) {
			if address == s.place.name {
				s.world.wrong("%s reaches itself by the network; want in memory", address)
			}
			return s.world.dial(ctx, s.place, address)
		},
	})
	if err != nil {
		panic(err) // the configuration above
	}
	p.node = n
	p.life, p.dead = context.WithCancel(context.Background())
	s.mu.Lock()
	s.process = p
	s.mu.Unlock()
	s.world.work.Go(func() {
		// In real time a node may be asked to end before it serves. Serve then says that it has stopped.
		if err := n.Serve(p.doors); err != nil && !(errors.Is(err, serry.ErrStopped) && p.isAsked()) {
			s.world.wrong("%s: Serve() = %v", s.place.name, err)
		}
	})
}

// ask says whether nothing has asked the node to end yet. A second caller of Shutdown would wait for the
// first one at a lock, which a bubble does not take for waiting.
func (p *process) ask() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	first := !p.asked
	p.asked = true
	return first
}

// isAsked says whether the node was asked to end.
func (p *process) isAsked() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked
}

// stopNode ends a node whose process is dead: whatever it says, nobody hears it.
func (p *process) stopNode() {
	p.dead()
	if p.ask() {
		p.node.Shutdown(p.life)
		p.doors.Close()
	}
}

// terminate ends a node as SIGTERM does, and starts another later.
func (s *site) terminate(back time.Duration) {
	p := s.running()
	if p == nil || p.node == nil || !p.ask() {
		return
	}
	s.world.note("%s is asked to end", s.place.name)
	s.world.work.Go(func() {
		p.node.Shutdown(p.life)
		p.doors.Close()
		s.mu.Lock()
		own := s.process == p
		if own {
			s.process = nil
		}
		s.mu.Unlock()
		if !own {
			return // it was killed meanwhile
		}
		s.world.note("%s has ended", s.place.name)
		s.place.kill()
		_ = p.seat.Close()
		s.world.after(back, s.start)
	})
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
