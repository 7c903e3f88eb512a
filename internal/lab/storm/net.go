package storm

import (
	"context"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// A weather says how long bytes and disks take.
type weather struct {
	base, jitter time.Duration
	storms       float64       // how often something takes longer
	gust         time.Duration // and how much, at most
	loss         float64       // of packets: what is lost is sent again later, by TCP
}

// firstRetransmit is when TCP sends a packet again; then after twice that, and so on.
const firstRetransmit = 200 * time.Millisecond

func (w weather) draw(r *rand.Rand) time.Duration {
	d := w.base + time.Duration(r.Int64N(int64(w.jitter)+1))
	if w.storms > 0 && r.Float64() < w.storms {
		d += time.Duration(r.Int64N(int64(w.gust) + 1))
	}
	for again := firstRetransmit; w.loss > 0 && r.Float64() < w.loss; again *= 2 {
		d += again
	}
	return d
}

// A fabric is the network between places.
type fabric struct {
	seed    uint64
	weather weather

	mu    sync.Mutex
	conns uint64 // that were ever made
}

// dice is the randomness for one purpose.
func dice(seed, purpose, index uint64) *rand.Rand {
	return rand.New(rand.NewPCG(seed, purpose<<32|index))
}

// Purposes of randomness.
const (
	forPlan = iota + 1
	forConns
	forDisk
	forProcs
	forRestarts
)

// A place is a process as the network sees it.
type place struct {
	name    string
	accept  func(net.Conn) // takes a connection; on a goroutine of its own
	writing func()         // before every write of the place; or nil

	mu    sync.Mutex
	up    bool
	still chan struct{} // while it is frozen: closed when it thaws; else nil
	ends  map[*end]struct{}
}

func newPlace(name string) *place {
	return &place{name: name, ends: make(map[*end]struct{})}
}

// Network and String make a place an address.
func (*place) Network() string  { return "memory" }
func (p *place) String() string { return p.name }

func (p *place) start() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.up = true
}

// kill ends the process: its connections break, at once or after what is under way on them.
func (p *place) kill() { p.cut(false) }

// sever breaks the connections of a process that goes on.
func (p *place) sever() { p.cut(true) }

func (p *place) cut(up bool) {
	p.mu.Lock()
	ends := p.ends
	p.up, p.ends = up, make(map[*end]struct{})
	if p.still != nil && !up {
		close(p.still)
		p.still = nil
	}
	p.mu.Unlock()
	for e := range ends {
		e.out.end(io.ErrUnexpectedEOF, e.keeps)
		e.in.end(net.ErrClosed, false)
	}
}

// freeze keeps bytes from moving from and to the place until thaw.
func (p *place) freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.still == nil && p.up {
		p.still = make(chan struct{})
	}
}

func (p *place) thaw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.still != nil {
		close(p.still)
		p.still = nil
	}
}

// frozen is closed when the place thaws, and nil if it is not frozen.
func (p *place) frozen() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.still
}

// keep notes an end of a connection, unless the place is down.
func (p *place) keep(e *end) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.up {
		p.ends[e] = struct{}{}
	}
	return p.up
}

func (p *place) drop(e *end) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.ends, e)
}

var errRefused error = syscall.ECONNREFUSED

// dial connects two places.
func (f *fabric) dial(ctx context.Context, from, to *place) (net.Conn, error) {
	f.mu.Lock()
	f.conns++
	r := dice(f.seed, forConns, f.conns)
	f.mu.Unlock()
	select {
	case <-time.After(f.weather.draw(r)):
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	there, back := newHalf(f, from, to, r.Uint64()), newHalf(f, to, from, r.Uint64())
	here := &end{place: from, peer: to, out: there, in: back, keeps: r.IntN(2) == 0}
	other := &end{place: to, peer: from, out: back, in: there, keeps: r.IntN(2) == 0}
	if !to.keep(other) {
		return nil, errRefused
	}
	if !from.keep(here) {
		to.drop(other)
		return nil, errRefused
	}
	go to.accept(other)
	return here, nil
}

// An end of a connection. It implements net.Conn.
type end struct {
	place, peer *place
	out, in     *half
	keeps       bool // bytes under way arrive although the process that sent them has died
}

func (e *end) Read(b []byte) (int, error) { return e.in.read(b) }

func (e *end) Write(b []byte) (int, error) {
	if e.place.writing != nil {
		e.place.writing()
	}
	return e.out.write(b)
}

func (e *end) Close() error {
	e.place.drop(e)
	e.out.end(io.EOF, true)
	e.in.end(net.ErrClosed, false)
	return nil
}

func (e *end) LocalAddr() net.Addr  { return e.place }
func (e *end) RemoteAddr() net.Addr { return e.peer }

func (e *end) SetDeadline(t time.Time) error      { return e.SetReadDeadline(t) }
func (e *end) SetWriteDeadline(t time.Time) error { return nil } // writes do not block
func (e *end) SetReadDeadline(t time.Time) error {
	e.in.mu.Lock()
	defer e.in.mu.Unlock()
	e.in.mu.deadline = t
	e.in.nudge()
	return nil
}

// A half is one direction of a connection.
type half struct {
	fabric   *fabric
	from, to *place
	wake     chan struct{} // has room for one

	mu struct {
		sync.Mutex
		rand     *rand.Rand
		chunks   []chunk
		cause    error // why no more bytes come, or nil
		deadline time.Time
	}
}

// A chunk is bytes that arrive at a time.
type chunk struct {
	at time.Time
	b  []byte
}

func newHalf(f *fabric, from, to *place, seed uint64) *half {
	h := &half{fabric: f, from: from, to: to, wake: make(chan struct{}, 1)}
	h.mu.rand = rand.New(rand.NewPCG(f.seed, seed))
	return h
}

func (h *half) nudge() {
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

func (h *half) write(b []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.cause != nil {
		return 0, io.ErrClosedPipe
	}
	at := time.Now().Add(h.fabric.weather.draw(h.mu.rand))
	if n := len(h.mu.chunks); n > 0 && at.Before(h.mu.chunks[n-1].at) {
		at = h.mu.chunks[n-1].at
	}
	h.mu.chunks = append(h.mu.chunks, chunk{at, append([]byte(nil), b...)})
	h.nudge()
	return len(b), nil
}

// end lets no more bytes in. What is under way still arrives if keep says so.
func (h *half) end(cause error, keep bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !keep {
		h.mu.chunks = nil
	}
	if h.mu.cause == nil {
		h.mu.cause = cause
	}
	h.nudge()
}

func (h *half) read(b []byte) (int, error) {
	for {
		n, wait, err := h.take(b)
		if n > 0 || err != nil {
			return n, err
		}
		still := h.from.frozen()
		if still == nil {
			still = h.to.frozen()
		}
		if still != nil {
			wait = nil
		}
		select {
		case <-h.wake:
		case <-wait:
		case <-still:
		}
	}
}

// take reads what has arrived. If nothing has, it says when to look again.
func (h *half) take(b []byte) (n int, wait <-chan time.Time, err error) {
	frozen := h.from.frozen() != nil || h.to.frozen() != nil
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	for !frozen && len(h.mu.chunks) > 0 && n < len(b) && !h.mu.chunks[0].at.After(now) {
		c := &h.mu.chunks[0]
		k := copy(b[n:], c.b)
		n += k
		if c.b = c.b[k:]; len(c.b) == 0 {
			h.mu.chunks = h.mu.chunks[1:]
		}
	}
	switch {
	case n > 0:
		return n, nil, nil
	case h.mu.cause != nil && len(h.mu.chunks) == 0:
		return 0, nil, h.mu.cause
	case !h.mu.deadline.IsZero() && !now.Before(h.mu.deadline):
		return 0, nil, os.ErrDeadlineExceeded
	}
	next := h.mu.deadline
	if len(h.mu.chunks) > 0 && (next.IsZero() || h.mu.chunks[0].at.Before(next)) {
		next = h.mu.chunks[0].at
	}
	if !next.IsZero() {
		wait = time.After(next.Sub(now))
	}
	return 0, wait, nil
}
