package jax_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/serry-dev/serry/transfer/jax"
	"github.com/serry-dev/serry/transfer/offer"
)

// A network connects listeners and dialers in memory, so that tests run in virtual time.
type network struct {
	mu        sync.Mutex
	listeners map[string]*listener
	port      int
}

type listener struct {
	network *network
	address string
	queue   chan net.Conn
	closed  chan struct{}
	once    sync.Once
}

// An address is text.
type address string

func (a address) Network() string { return "tcp" }
func (a address) String() string  { return string(a) }

// A wire is one end of a connection.
type wire struct {
	net.Conn
	local, remote address
}

func (w wire) LocalAddr() net.Addr  { return w.local }
func (w wire) RemoteAddr() net.Addr { return w.remote }

func newNetwork() *network { return &network{listeners: map[string]*listener{}, port: 1000} }

// listen makes a listener on a host.
func (n *network) listen(host string) *listener {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.port++
	l := &listener{network: n, address: fmt.Sprintf("%s:%d", host, n.port), queue: make(chan net.Conn), closed: make(chan struct{})}
	n.listeners[l.address] = l
	return l
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.queue:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *listener) Addr() net.Addr { return address(l.address) }

// dial connects with a listener.
func (n *network) dial(ctx context.Context, _, to string) (net.Conn, error) {
	n.mu.Lock()
	l := n.listeners[to]
	n.port++
	from := address(fmt.Sprintf("127.0.0.1:%d", n.port))
	n.mu.Unlock()
	if l == nil {
		return nil, fmt.Errorf("dial %s: connection refused", to)
	}
	ours, theirs := net.Pipe()
	select {
	case l.queue <- wire{theirs, address(to), from}:
		return wire{ours, from, address(to)}, nil
	case <-l.closed:
		return nil, fmt.Errorf("dial %s: connection refused", to)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// serve starts a server on a network.
func (n *network) serve(t *testing.T, cfg jax.Config) *jax.Server {
	t.Helper()
	s, err := jax.Serve(n.listen("127.0.0.1"), n.listen("127.0.0.1"), cfg.By(n.dial))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// connect dials a server.
func (n *network) connect(t *testing.T, to string, cfg jax.Config) *jax.Conn {
	t.Helper()
	c, err := jax.Dial(t.Context(), to, cfg.By(n.dial))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// noise is a buffer with random bytes.
func noise(size int) []byte {
	b := make([]byte, size)
	r := rand.NewChaCha8([32]byte{byte(size)})
	r.Read(b)
	return b
}

// mustOffer offers buffers once.
func mustOffer(t *testing.T, s *jax.Server, id offer.ID, buffers ...[]byte) *jax.Offered {
	t.Helper()
	o := jax.Offer{ID: id}
	for _, b := range buffers {
		o.Buffers = append(o.Buffers, jax.Buffer{Bytes: b})
	}
	offered, err := s.Offer(o)
	if err != nil {
		t.Fatal(err)
	}
	return offered
}

// pull pulls buffers of these sizes, and says which came.
func pull(ctx context.Context, c *jax.Conn, id offer.ID, sizes ...int) ([][]byte, error) {
	var all [][]byte
	var wants []jax.Want
	for i, size := range sizes {
		all = append(all, make([]byte, size))
		wants = append(wants, jax.Want{Index: i, Into: all[i]})
	}
	return all, c.Pull(ctx, id, wants)
}

// mustPull pulls buffers that must come as they are.
func mustPull(t *testing.T, c *jax.Conn, id offer.ID, want ...[]byte) {
	t.Helper()
	var sizes []int
	for _, b := range want {
		sizes = append(sizes, len(b))
	}
	got, err := pull(t.Context(), c, id, sizes...)
	if err != nil {
		t.Fatalf("Pull(%d) = %v", id, err)
	}
	for i := range want {
		if !bytes.Equal(got[i], want[i]) {
			t.Fatalf("Pull(%d): buffer %d differs", id, i)
		}
	}
}

// A peer is the other side of a connection, as bytes. It says what the test has it say.
type peer struct {
	t       *testing.T
	network *network
	control net.Conn
	lanes   []net.Conn
	buf     [4096]byte
}

// knock dials a server as a peer, without a word.
func (n *network) knock(t *testing.T, to string) *peer {
	t.Helper()
	c, err := n.dial(t.Context(), "tcp", to)
	if err != nil {
		t.Fatal(err)
	}
	p := &peer{t: t, network: n, control: c}
	t.Cleanup(p.close)
	return p
}

// enter dials a server as a peer with so many lanes.
func (n *network) enter(t *testing.T, to string, lanes int) *peer {
	t.Helper()
	p := n.knock(t, to)
	p.say(jax.NewEstablish(make([]string, lanes)))
	m, ok := p.hear().(jax.Establish)
	if !ok {
		t.Fatalf("the answer is %T; want an Establish", m)
	}
	addresses, uuid := m.Lanes()
	for i, a := range addresses {
		lane := must(n.dial(t.Context(), "tcp", a))(t)
		must(lane.Write(binary.LittleEndian.AppendUint64(nil, uuid+uint64(i))))(t)
		p.lanes = append(p.lanes, lane)
	}
	return p
}

// must is the result of a call that succeeds.
func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func (p *peer) say(m jax.Message) {
	p.t.Helper()
	must(p.control.Write(jax.Frame(m)))(p.t)
}

// hear reads a message.
func (p *peer) hear() jax.Message {
	p.t.Helper()
	return must(jax.ReadFrame(p.control, p.buf[:]))(p.t)
}

// over waits until the server has closed the connection.
func (p *peer) over() {
	p.t.Helper()
	p.control.SetReadDeadline(time.Now().Add(time.Hour))
	for {
		if _, err := p.control.Read(p.buf[:]); err != nil {
			if !errors.Is(err, io.EOF) {
				p.t.Fatalf("Read() = %v; want %v", err, io.EOF)
			}
			return
		}
	}
}

func (p *peer) close() {
	p.control.Close()
	for _, l := range p.lanes {
		l.Close()
	}
}
