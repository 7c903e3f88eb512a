package link_test

import (
	"context"
	"iter"
	"net"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/wire/conn"
)

// A stormPort is where a process of a storm listens. The next life of its task listens at the same address.
type stormPort struct {
	*listener
	owner *stormLife
}

// Close implements net.Listener.
func (p *stormPort) Close() error {
	s := p.owner.storm
	s.mu.Lock()
	if s.mu.ports[p.address] == p {
		delete(s.mu.ports, p.address)
	}
	s.mu.Unlock()
	return p.listener.Close()
}

// Listen implements link.Network.
func (l *stormLife) Listen(_ context.Context, address string) (net.Listener, error) {
	p := &stormPort{&listener{l.network, address, make(chan net.Conn), make(chan struct{}), sync.Once{}}, l}
	l.storm.mu.Lock()
	defer l.storm.mu.Unlock()
	if l.storm.mu.ports[address] != nil {
		return nil, &net.OpError{Op: "listen", Err: syscall.EADDRINUSE}
	}
	l.storm.mu.ports[address] = p
	return p, nil
}

// Dial implements link.Network.
func (l *stormLife) Dial(ctx context.Context, address string) (net.Conn, error) {
	refused := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	l.storm.mu.Lock()
	p := l.storm.mu.ports[address]
	failed := l.storm.mu.bad != nil // a link that breaks as soon as it is up must not be made for ever
	l.storm.mu.Unlock()
	if p == nil || failed || l.dead.Load() || p.owner.dead.Load() {
		return nil, refused
	}
	for _, way := range [][2]string{{l.host, p.owner.host}, {p.owner.host, l.host}} {
		if g := l.network.gate(way[0], way[1]); g != nil {
			select {
			case <-g:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
	}
	a, b := conn.Loop(address)
	mine, theirs := newGated(a, l.network, p.owner.host, l.host), newGated(b, l.network, l.host, p.owner.host)
	l.network.mu.Lock()
	l.network.conns[mine], l.network.conns[theirs] = true, true
	l.network.mu.Unlock()
	select {
	case p.conns <- &narrow{gated: theirs}:
		if l.dead.Load() || p.owner.dead.Load() {
			mine.Close()
			theirs.Close()
		}
		return &narrow{gated: mine}, nil
	case <-p.closed:
		mine.Close()
		theirs.Close()
		return nil, refused
	case <-ctx.Done():
		mine.Close()
		theirs.Close()
		return nil, ctx.Err()
	}
}

// A narrow connection often takes only a part of what is written, or nothing, as a socket does whose buffer
// is full.
type narrow struct {
	*gated
	tries atomic.Uint64
}

// Try implements conn.Partial.
func (c *narrow) Try(p []byte) (int, error) {
	n := c.tries.Add(1) * 0x9E3779B97F4A7C15 >> 40
	if n%4 == 0 {
		p = p[:min(len(p), int(n>>2)%64)]
	}
	return c.gated.Try(p)
}

// stormKeys are the key-value store as a process sees it, through outages of the service.
type stormKeys struct{ *stormLife }

func (k stormKeys) Create(ctx context.Context, key string, value []byte) error {
	if err := k.answers(ctx); err != nil {
		return err
	}
	return k.job.Create(ctx, key, value)
}

func (k stormKeys) Delete(ctx context.Context, key string) error {
	if err := k.answers(ctx); err != nil {
		return err
	}
	return k.job.Delete(ctx, key)
}

func (k stormKeys) Wait(ctx context.Context, key string) ([]byte, error) {
	if err := k.answers(ctx); err != nil {
		return nil, err
	}
	return k.job.Wait(ctx, key)
}

func (k stormKeys) Put(ctx context.Context, key string, value []byte) error {
	if err := k.answers(ctx); err != nil {
		return err
	}
	return k.job.Put(ctx, key, value)
}

func (k stormKeys) Watch(ctx context.Context, dir string) iter.Seq2[serry.KeyEvent, error] {
	return k.job.Watch(ctx, dir)
}

// A stormMember is a process as the service sees it.
type stormMember struct{ *stormLife }

func (m stormMember) Task() serry.TaskID             { return m.life.Task }
func (m stormMember) Incarnation() serry.Incarnation { return m.life.Incarnation }
func (m stormMember) Service() serry.Incarnation     { return 7 }

func (m stormMember) Watch(ctx context.Context) iter.Seq2[serry.Snapshot, error] {
	return func(yield func(serry.Snapshot, error) bool) {
		for s, err := range (member{job: m.job, life: m.life}).Watch(ctx) {
			if err == nil {
				err = m.answers(ctx)
			}
			if !yield(s, err) || err != nil {
				return
			}
		}
	}
}

func (m stormMember) Suspect(ctx context.Context, peer serry.TaskID, inc serry.Incarnation, e serry.Evidence) error {
	if err := m.answers(ctx); err != nil {
		return err
	}
	return member{job: m.job, life: m.life}.Suspect(ctx, peer, inc, e)
}
