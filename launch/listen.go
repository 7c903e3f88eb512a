package launch

import (
	"errors"
	"net"
	"sync"
)

// A fixedPort is one listener for the services of all attempts of a job, one after the other
// (Config.Listen). The service of the next attempt begins before that of the one before has ended, so the
// two cannot listen by themselves: each gets connections while it is the newest. Connections that come
// between two services wait.
type fixedPort struct {
	net.Listener
	conns chan accepted // not yet given to a service

	mu struct {
		sync.Mutex
		newest *lentPort // or nil
	}
}

// accepted is a connection, or why there is none now. The service decides how to go on.
type accepted struct {
	net.Conn
	err error
}

// openFixedPort listens on an address until it is closed.
func openFixedPort(w world, address string) (*fixedPort, error) {
	l, err := w.listen(address)
	if err != nil {
		return nil, err
	}
	p := &fixedPort{Listener: l, conns: make(chan accepted)}
	go p.accept()
	return p, nil
}

// accept passes connections on until the listener is closed.
func (p *fixedPort) accept() {
	defer close(p.conns)
	for {
		c, err := p.Listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		p.conns <- accepted{c, err}
	}
}

// lend makes a listener for the service of the next attempt. That of the attempt before gets no more
// connections.
func (p *fixedPort) lend() net.Listener {
	l := &lentPort{port: p, done: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.newest != nil {
		p.mu.newest.Close()
	}
	p.mu.newest = l
	return l
}

// close ends the listener, and every connection that no service has taken.
func (p *fixedPort) close() error {
	err := p.Listener.Close()
	for c := range p.conns {
		if c.err == nil {
			c.Close()
		}
	}
	return err
}

// A lentPort is a fixedPort in the hands of one service.
type lentPort struct {
	port *fixedPort
	once sync.Once
	done chan struct{}
}

func (l *lentPort) Accept() (net.Conn, error) {
	select {
	case <-l.done:
		return nil, net.ErrClosed
	default:
	}
	select {
	case c, ok := <-l.port.conns:
		if !ok {
			return nil, net.ErrClosed
		}
		return c.Conn, c.err
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// Close gives the port back. It stays open for the next attempt.
func (l *lentPort) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

func (l *lentPort) Addr() net.Addr { return l.port.Addr() }
