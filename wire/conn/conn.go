package conn

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// A Conn is one connection, with TLS or without. It implements net.Conn, for protocols that write
// little. One goroutine reads it. Either one goroutine writes to it, or a [Pipe] does.
//
// Close ends the connection at once, without a farewell of TLS, which might block.
type Conn struct {
	net.Conn // below TLS

	// Set before the connection is handed to its protocol, then constant.
	in       reader
	out      writer
	tls      *tls.Conn // or nil
	sealed   *sealer   // below tls
	acceptor *Acceptor // or nil
	name     string    // see Authority
	detached bool      // see Detach; set by the goroutine that serves the connection

	// Owned by the reader.
	greeting *greeting // or nil: the peer has greeted, or nothing waits for that
	chunk    []byte    // what Next returned, or nil
	rest     []byte    // what Keep left over of it
	bulk     bool      // the last read filled a small buffer
	peeked   bool      // the next call of Next returns chunk once more
}

// New makes a Conn of nc, which may be one already.
func New(nc net.Conn) *Conn {
	if c, ok := nc.(*Conn); ok {
		return c
	}
	c := &Conn{Conn: nc}
	c.in, c.out = open(nc)
	return c
}

// Authority is how the server of a connection that [Dial] made is called.
func (c *Conn) Authority() string { return c.name }

// Secure says whether the connection uses TLS.
func (c *Conn) Secure() bool { return c.tls != nil }

// PeerURIs are the URI names in the certificate that the peer showed.
func (c *Conn) PeerURIs() []string {
	if c.tls == nil {
		return nil
	}
	shown := c.tls.ConnectionState().PeerCertificates
	if len(shown) == 0 {
		return nil
	}
	return URIs(shown[0])
}

// URIs are the URI names in a certificate.
func URIs(cert *x509.Certificate) []string {
	uris := make([]string, len(cert.URIs))
	for i, u := range cert.URIs {
		uris[i] = u.String()
	}
	return uris
}

// Greeted says that the peer has shown that it speaks its protocol. It ends the time that an
// [Acceptor] allows for that. The goroutine that reads the connection calls it.
func (c *Conn) Greeted() {
	c.SetDeadline(time.Time{})
	c.greeting = nil
	if c.sealed != nil {
		c.sealed.greeting = nil
	}
	if c.acceptor != nil {
		c.acceptor.greeted(c)
	}
}

// Detach lets the connection outlive the Serve of its protocol, which calls it: the acceptor forgets the
// connection, and the protocol closes it and bounds how many there are.
func (c *Conn) Detach() { c.detached = true }

// Detached says whether the connection was detached.
func (c *Conn) Detached() bool { return c.detached }

// Next waits for bytes and returns them, behind those that [Conn.Keep] left over. They are valid until
// the next call of Keep.
func (c *Conn) Next() ([]byte, error) {
	if c.peeked {
		c.peeked = false
		return c.chunk, nil
	}
	if c.greeting != nil && c.tls == nil { // else TLS reads
		c.greeting.await()
		defer c.greeting.heard()
	}
	return c.took(c.in.read(c.readBytes(), len(c.rest)))
}

// Poll is Next for a peer that has greeted and is about to send: it does not sleep, but looks for bytes again and again, and
// returns nil if none come for so long. It finds none where the connection is no socket, or uses TLS.
func (c *Conn) Poll(most time.Duration) ([]byte, error) {
	return c.took(c.in.poll(c.readBytes(), len(c.rest), most))
}

// readBytes is the size of the buffer for the next read.
func (c *Conn) readBytes() int {
	if c.bulk || len(c.rest) > Small/2 {
		return max(Large, len(c.rest)+Small)
	}
	return Small
}

// took puts what was left over in front of what was read.
func (c *Conn) took(chunk []byte, err error) ([]byte, error) {
	if chunk == nil || err != nil {
		return nil, err
	}
	c.bulk = len(chunk) >= Small
	copy(chunk, c.rest)
	c.chunk = chunk
	return chunk, nil
}

// Keep copies the unused end of what Next or Kept returned, for the next time, and gives the buffer back. A connection that keeps nothing
// has no memory for it.
func (c *Conn) Keep(rest []byte) {
	if len(rest) == 0 {
		c.rest = nil
	} else {
		c.rest = append(c.rest[:0], rest...)
	}
	Recycle(c.chunk)
	c.chunk = nil
}

// Kept is what Keep left over last.
func (c *Conn) Kept() []byte { return c.rest }

// begun waits until the peer has said something, which stays unread, where c is a socket. A connection that waits
// here has next to no memory; in a handshake of TLS it would have ten times as much.
func (c *Conn) begun() error {
	s, ok := c.in.(interface{ ready() error })
	if !ok {
		return nil
	}
	if c.greeting != nil {
		c.greeting.await()
		defer c.greeting.heard()
	}
	return s.ready()
}

// peek is Next without taking the bytes.
func (c *Conn) peek() ([]byte, error) {
	first, err := c.Next()
	c.peeked = err == nil
	return first, err
}

// Read implements net.Conn.
func (c *Conn) Read(p []byte) (int, error) {
	if c.peeked {
		n := copy(p, c.chunk)
		c.chunk = c.chunk[n:]
		c.peeked = len(c.chunk) > 0
		return n, nil
	}
	if c.tls != nil {
		return c.tls.Read(p)
	}
	if c.greeting != nil {
		c.greeting.await()
		defer c.greeting.heard()
	}
	return c.Conn.Read(p)
}

// Write implements net.Conn.
func (c *Conn) Write(p []byte) (int, error) {
	if c.tls != nil {
		return c.tls.Write(p)
	}
	return c.Conn.Write(p)
}

// CloseWrite tells the peer that nothing more will come. No pipe may be writing.
func (c *Conn) CloseWrite() {
	if c.tls != nil {
		c.tls.CloseWrite()
		c.Conn.Write(c.sealed.take())
	}
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		half.CloseWrite()
	}
}

// secure makes the connection one of TLS. side is tls.Server or tls.Client.
func (c *Conn) secure(ctx context.Context, cfg *tls.Config, side func(net.Conn, *tls.Config) *tls.Conn) error {
	sealed := &sealer{Conn: c.Conn, greeting: c.greeting}
	tc := side(sealed, cfg)
	if err := tc.HandshakeContext(ctx); err != nil {
		return err
	}
	c.tls, c.sealed, c.in = tc, sealed, plain{tc}
	return nil
}

// seal encrypts a piece of output, if the connection uses TLS.
func (c *Conn) seal(s *piece) error {
	if c.tls == nil || s.sealed {
		return nil
	}
	_, err := c.tls.Write(s.b)
	s.recycle()
	*s = piece{b: c.sealed.take(), pooled: true, sealed: true}
	return err
}

// Seal encrypts pieces of output, for a protocol that writes them to the connection below TLS itself, where a write can be
// interrupted and go on. The caller recycles the buffer. No pipe may be writing.
func (c *Conn) Seal(pieces net.Buffers) ([]byte, error) {
	c.sealed.hold.Store(true)
	for _, p := range pieces {
		if _, err := c.tls.Write(p); err != nil {
			return nil, err
		}
	}
	return c.sealed.take(), nil
}

// A sealer lies between TLS and a socket. Once hold is set it keeps what TLS writes, so that encrypting
// never blocks.
type sealer struct {
	net.Conn
	greeting *greeting // as in Conn
	hold     atomic.Bool

	mu  sync.Mutex
	buf []byte // guarded by mu
}

// Read implements net.Conn.
func (s *sealer) Read(p []byte) (int, error) {
	if s.greeting != nil {
		s.greeting.await()
		defer s.greeting.heard()
	}
	return s.Conn.Read(p)
}

// Write implements net.Conn.
func (s *sealer) Write(p []byte) (int, error) {
	if !s.hold.Load() {
		return s.Conn.Write(p)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.buf = append(Grow(s.buf, len(p)), p...)
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
