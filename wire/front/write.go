package front

import (
	"crypto/tls"
	"net"
	"sync"
	"sync/atomic"

	"github.com/serry-dev/serry/wire/internal/socket"
)

// flushRounds is how often a flush goes on with output that came meanwhile, before it leaves the
// rest to the writer goroutine.
const flushRounds = 4

// Flush implements rpc.Conn. During a wave it does nothing: the reader flushes at its end.
func (c *conn) Flush() {
	if !c.inWave.Load() {
		c.flush()
	}
}

// flush writes the output without blocking. Whoever sets writing owns c.out until it is unset. What
// the socket does not take becomes the business of a writer goroutine.
func (c *conn) flush() {
	c.mu.Lock()
	if c.mu.writing || len(c.mu.out) == 0 || c.mu.cause != nil {
		c.mu.Unlock()
		return
	}
	c.mu.writing = true
	for range flushRounds {
		out := c.takeOutput()
		c.mu.Unlock()

		c.srv.count.flushes.Add(1)
		wire, err := c.out.seal(out)
		n := 0
		if err == nil {
			n, err = c.out.try(wire)
		}
		c.srv.count.written.Add(uint64(n))
		if err != nil {
			c.stopWriting(err)
			return
		}
		if n < len(wire) {
			c.startWriter(wire, n)
			return
		}
		recycle(wire)

		c.mu.Lock()
		c.landed(n)
		if len(c.mu.out) == 0 {
			c.wrote()
			c.mu.Unlock()
			return
		}
	}
	out := c.takeOutput()
	c.mu.Unlock()
	wire, err := c.out.seal(out)
	if err != nil {
		c.stopWriting(err)
		return
	}
	c.startWriter(wire, 0)
}

// takeOutput removes the encoded output; mu is held.
func (c *conn) takeOutput() []byte {
	out := c.mu.out
	c.mu.out = nil
	c.mu.flying, c.mu.flyingAcks = len(out), c.mu.acks
	c.mu.acks = 0
	return out
}

// landed notes that the last output has been taken by the socket, n bytes of it since the last
// call, and encodes what had to wait; mu is held.
func (c *conn) landed(n int) {
	c.mu.written += uint64(n)
	c.mu.flying, c.mu.flyingAcks = 0, 0
	c.pump()
}

// wrote ends a turn of writing with all output gone; mu is held.
func (c *conn) wrote() {
	c.mu.writing = false
	c.mu.cond.Broadcast()
	if !c.mu.sender.empty() {
		c.watch()
	} else if c.mu.draining == refusing && c.quiet() && !c.mu.ended {
		c.wake()
	}
}

func (c *conn) stopWriting(err error) {
	c.fail(err)
	c.mu.Lock()
	c.mu.writing = false
	c.mu.cond.Broadcast()
	c.mu.Unlock()
}

// startWriter leaves wire, of which n bytes are out, to a writer goroutine.
func (c *conn) startWriter(wire []byte, n int) {
	if c.out.raw != nil {
		c.srv.count.partial.Add(1)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.closed {
		recycle(wire)
		return // still the one who writes: nobody else need try
	}
	c.mu.written += uint64(n)
	c.watch()
	c.writers.Add(1)
	go func() {
		defer c.writers.Done()
		if err := c.write(wire, n); err != nil {
			c.stopWriting(err)
		}
	}()
}

// write writes wire from byte n on and then all further output. It blocks on the peer.
func (c *conn) write(wire []byte, n int) error {
	for {
		for n < len(wire) {
			k, err := c.out.wait(wire[n:])
			n += k
			c.srv.count.written.Add(uint64(k))
			if err != nil {
				return err
			}
			c.mu.Lock()
			c.mu.written += uint64(k)
			c.mu.Unlock()
		}
		recycle(wire)

		c.mu.Lock()
		c.landed(0)
		if len(c.mu.out) == 0 {
			c.wrote()
			c.mu.Unlock()
			return nil
		}
		if c.backlog() < pauseOutput {
			c.mu.cond.Broadcast()
		}
		out := c.takeOutput()
		c.mu.Unlock()
		c.srv.count.flushes.Add(1)
		var err error
		if wire, err = c.out.seal(out); err != nil {
			return err
		}
		n = 0
	}
}

// backlog is how many encoded bytes wait for the socket; mu is held.
func (c *conn) backlog() int { return len(c.mu.out) + c.mu.flying }

// A transport takes encoded output. Only the one who writes may use it (conn.flush).
type transport struct {
	nc     net.Conn
	raw    *socket.Conn // or nil: writes may block
	tls    *tls.Conn    // or nil
	sealed *sealer      // beneath tls
}

// seal turns output into what goes to the socket. It recycles p if that is something else.
func (t *transport) seal(p []byte) ([]byte, error) {
	if t.tls == nil {
		return p, nil
	}
	_, err := t.tls.Write(p)
	recycle(p)
	return t.sealed.take(), err
}

// try writes without blocking, as much as is possible that way.
func (t *transport) try(p []byte) (int, error) {
	if t.raw == nil {
		return 0, nil
	}
	return t.raw.Try(p)
}

// wait writes some of p, blocking if need be.
func (t *transport) wait(p []byte) (int, error) {
	if t.raw != nil {
		return t.raw.Wait(p)
	}
	return t.nc.Write(p[:min(len(p), maxFrame)])
}

// closeWrite tells the peer that nothing more will come.
func (t *transport) closeWrite() {
	if t.tls != nil {
		t.tls.CloseWrite()
		t.nc.Write(t.sealed.take())
	}
	if half, ok := t.nc.(interface{ CloseWrite() error }); ok {
		half.CloseWrite()
	}
}

// A sealer lies beneath a tls.Conn. Once hold is set it keeps what is written to it, so that
// encrypting never blocks.
type sealer struct {
	net.Conn
	hold atomic.Bool

	mu  sync.Mutex
	buf []byte // guarded by mu
}

// Write implements net.Conn.
func (s *sealer) Write(p []byte) (int, error) {
	if !s.hold.Load() {
		return s.Conn.Write(p)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.buf = append(grow(s.buf, len(p)), p...)
	return len(p), nil
}

// take returns and forgets what was written.
func (s *sealer) take() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.buf
	s.buf = nil
	return p
}
