package storm

import (
	"cmp"
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
	choppy       bool          // a connection takes less than there is room for, now and then
	buffer       int           // how many bytes a connection holds that were not read; 0: any number
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

// crawl is how long n bytes take in this weather when each load of a small buffer waits for its gust. It is 0
// where buffers have no limit.
func (w weather) crawl(n int) time.Duration {
	if w.buffer == 0 {
		return 0
	}
	return time.Duration(w.storms * float64(w.gust) * float64(n) / float64(w.buffer))
}

// A fabric is the network between places.
type fabric struct {
	seed    uint64
	weather weather

	mu    sync.Mutex
	conns uint64                // that were ever made
	cuts  map[way]chan struct{} // of ways that are cut: closed when bytes pass again
}

// A way leads from one place to another.
type way struct{ from, to *place }

// cut lets no bytes pass on ways, and heal lets them pass again.
func (f *fabric) cut(ways ...way) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.cuts == nil {
		f.cuts = make(map[way]chan struct{})
	}
	for _, w := range ways {
		if f.cuts[w] == nil {
			f.cuts[w] = make(chan struct{})
		}
	}
}

func (f *fabric) heal(ways ...way) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, w := range ways {
		if f.cuts[w] != nil {
			close(f.cuts[w])
			delete(f.cuts, w)
		}
	}
}

// barred returns a channel that is closed when bytes pass on a way again, or nil if they do.
func (f *fabric) barred(w way) <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.cuts[w]
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
	forCalls
	forQuiet
	forLies
	forVersions
	forKills
	forCliques
)

// A place is a process as the network sees it.
type place struct {
	name    string
	accept  func(net.Conn) // takes a connection; on a goroutine of its own
	writing func()         // before every write of the place; or nil

	mu    sync.Mutex
	up    bool
	shy   bool                 // it takes no new connections
	gates [gates]chan struct{} // of those that are shut: closed when they open; else nil
	ends  map[*end]struct{}
}

// A gate keeps bytes from moving while it is shut.
type gate int

const (
	frozen gate = iota // the process does not run: it neither reads nor writes
	deaf               // the network brings nothing to the place
	mute               // the network takes nothing from it
	gates
)

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
func (p *place) kill() {
	p.cut(true)
	p.open(frozen, deaf, mute)
}

// sever breaks the connections of a process that goes on. One that is gone stays so.
func (p *place) sever() { p.cut(false) }

// part breaks the connections with one other place.
func (p *place) part(other *place) {
	p.mu.Lock()
	var ends []*end
	for e := range p.ends {
		if e.peer == other {
			ends = append(ends, e)
			delete(p.ends, e)
		}
	}
	p.mu.Unlock()
	for _, e := range ends {
		e.abort()
	}
}

func (p *place) cut(kills bool) {
	p.mu.Lock()
	ends := p.ends
	p.up, p.ends = p.up && !kills, make(map[*end]struct{})
	p.mu.Unlock()
	for e := range ends {
		e.abort()
	}
}

// refuse lets a place take no new connections, or take them again; those that it has go on.
func (p *place) refuse(shy bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shy = shy
}

func (p *place) refuses() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.shy
}

// shut shuts gates, and open opens them.
func (p *place) shut(which ...gate) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, g := range which {
		if p.gates[g] == nil && p.up {
			p.gates[g] = make(chan struct{})
		}
	}
}

func (p *place) open(which ...gate) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, g := range which {
		if p.gates[g] != nil {
			close(p.gates[g])
			p.gates[g] = nil
		}
	}
}

// barred returns a channel that is closed when the first of these gates that is shut opens, or nil if
// none is shut.
func (p *place) barred(which ...gate) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, g := range which {
		if p.gates[g] != nil {
			return p.gates[g]
		}
	}
	return nil
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
	from.runs()
	if err := f.reachable(ctx, from, to); err != nil {
		return nil, err
	}
	if to.refuses() {
		return nil, errRefused
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
	go to.take(other)
	return here, nil
}

// take lets the process of the place accept a connection, once it runs. Until then the connection is one that
// a kernel has made and no process has accepted.
func (p *place) take(c net.Conn) {
	p.runs()
	p.accept(c)
}

// runs waits until the process of the place is not frozen.
func (p *place) runs() {
	for still := p.barred(frozen); still != nil; still = p.barred(frozen) {
		<-still
	}
}

// reachable waits until bytes can go both ways between two places, which takes a handshake of TCP. A process
// that does not run is reached all the same: its kernel answers.
func (f *fabric) reachable(ctx context.Context, from, to *place) error {
	for {
		shut := cmp.Or(from.barred(deaf, mute), to.barred(deaf, mute), f.barred(way{from, to}), f.barred(way{to, from}))
		if shut == nil {
			return nil
		}
		select {
		case <-shut:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// An end of a connection. It implements conn.Partial: what runs on it deals with full sockets.
type end struct {
	place, peer *place
	out, in     *half
	keeps       bool // bytes under way arrive although the process that sent them has died
}

func (e *end) Read(b []byte) (int, error) { return e.in.read(b) }

// Write implements net.Conn: it waits until all bytes are taken.
func (e *end) Write(b []byte) (n int, err error) {
	for n < len(b) && err == nil {
		var k int
		k, err = e.Wait(b[n:])
		n += k
	}
	return n, err
}

// Try writes what fits into the send buffer: nothing, while the process does not run. The caller may hold a lock, so it
// is not kept waiting for that.
func (e *end) Try(b []byte) (int, error) {
	if e.place.barred(frozen) != nil {
		return 0, nil
	}
	e.begin()
	return e.out.try(b)
}

// Wait writes what fits into the send buffer, once something does.
func (e *end) Wait(b []byte) (int, error) {
	e.begin()
	return e.out.wait(b)
}

// begin is called before every write.
func (e *end) begin() {
	if e.place.writing != nil {
		e.place.writing()
	}
	e.place.runs()
}

// Close closes the connection. The peer does not notice that before the process runs. The caller is not kept
// waiting for that: it may hold a lock.
func (e *end) Close() error {
	if e.place.barred(frozen) != nil {
		go func() {
			e.place.runs()
			e.shut()
		}()
		return nil
	}
	e.shut()
	return nil
}

// abort ends the connection without a word of the process.
func (e *end) abort() {
	e.out.end(io.ErrUnexpectedEOF, e.keeps)
	e.in.end(net.ErrClosed, false)
}

func (e *end) shut() {
	e.place.drop(e)
	e.out.end(io.EOF, true)
	e.in.end(net.ErrClosed, false)
}

func (e *end) LocalAddr() net.Addr  { return e.place }
func (e *end) RemoteAddr() net.Addr { return e.peer }

func (e *end) SetDeadline(t time.Time) error {
	e.SetWriteDeadline(t)
	return e.SetReadDeadline(t)
}

func (e *end) SetReadDeadline(t time.Time) error {
	e.in.mu.Lock()
	defer e.in.mu.Unlock()
	e.in.mu.readBy = t
	e.in.nudge()
	return nil
}

func (e *end) SetWriteDeadline(t time.Time) error {
	h := e.out
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.writeBy = t
	if h.mu.alarm != nil {
		h.mu.alarm.Stop()
		h.mu.alarm = nil
	}
	if !t.IsZero() {
		h.mu.alarm = time.AfterFunc(time.Until(t), h.mu.room.Broadcast)
	}
	return nil
}

// A half is one direction of a connection. What was written and not read yet lies in the buffers of both
// kernels, which have room for so much and no more.
type half struct {
	fabric   *fabric
	from, to *place
	arrived  chan struct{} // has room for one: the reader shall look again

	mu struct {
		sync.Mutex
		rand    *rand.Rand
		chunks  []chunk
		bytes   int       // of the chunks
		room    sync.Cond // there is more, or the half has ended
		cause   error     // why no more bytes come, or nil
		readBy  time.Time
		writeBy time.Time
		alarm   *time.Timer // for writeBy, or nil
	}
}

// A chunk is bytes that arrive at a time.
type chunk struct {
	at time.Time
	b  []byte
}

func newHalf(f *fabric, from, to *place, seed uint64) *half {
	h := &half{fabric: f, from: from, to: to, arrived: make(chan struct{}, 1)}
	h.mu.rand = rand.New(rand.NewPCG(f.seed, seed))
	h.mu.room.L = &h.mu
	return h
}

func (h *half) nudge() {
	select {
	case h.arrived <- struct{}{}:
	default:
	}
}

// try takes what there is room for.
func (h *half) try(b []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.put(b)
}

// wait takes what there is room for, once there is some.
func (h *half) wait(b []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for {
		n, err := h.put(b)
		if n > 0 || err != nil || len(b) == 0 {
			return n, err
		}
		if !h.mu.writeBy.IsZero() && !time.Now().Before(h.mu.writeBy) {
			return 0, os.ErrDeadlineExceeded
		}
		h.mu.room.Wait()
	}
}

// put is try with mu held.
func (h *half) put(b []byte) (int, error) {
	if h.mu.cause != nil {
		return 0, io.ErrClosedPipe
	}
	if most := h.fabric.weather.buffer; most > 0 {
		b = b[:min(len(b), most-h.mu.bytes)]
	}
	if h.fabric.weather.choppy && len(b) > 1 && h.mu.rand.IntN(2) == 0 {
		b = b[:1+h.mu.rand.IntN(len(b)-1)]
	}
	if len(b) == 0 {
		return 0, nil
	}
	at := time.Now().Add(h.fabric.weather.draw(h.mu.rand))
	if n := len(h.mu.chunks); n > 0 && at.Before(h.mu.chunks[n-1].at) {
		at = h.mu.chunks[n-1].at
	}
	h.mu.chunks = append(h.mu.chunks, chunk{at, append([]byte(nil), b...)})
	h.mu.bytes += len(b)
	h.nudge()
	return len(b), nil
}

// end lets no more bytes in. What is under way still arrives if keep says so.
func (h *half) end(cause error, keep bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !keep {
		h.mu.chunks, h.mu.bytes = nil, 0
	}
	if h.mu.cause == nil {
		h.mu.cause = cause
	}
	h.mu.room.Broadcast()
	h.nudge()
}

// held returns a channel that is closed when bytes move again, or nil if they do. What a process has
// written before it froze arrives.
func (h *half) held() <-chan struct{} {
	if shut := h.to.barred(frozen, deaf); shut != nil {
		return shut
	}
	return cmp.Or(h.from.barred(mute), h.fabric.barred(way{h.from, h.to}))
}

func (h *half) read(b []byte) (int, error) {
	for {
		n, wait, err := h.take(b)
		if n > 0 || err != nil {
			return n, err
		}
		shut := h.held()
		if shut != nil {
			wait = nil
		}
		select {
		case <-h.arrived:
		case <-wait:
		case <-shut:
		}
	}
}

// take reads what has arrived. If nothing has, it says when to look again.
func (h *half) take(b []byte) (n int, wait <-chan time.Time, err error) {
	held := h.held() != nil
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	for !held && len(h.mu.chunks) > 0 && n < len(b) && !h.mu.chunks[0].at.After(now) {
		c := &h.mu.chunks[0]
		k := copy(b[n:], c.b)
		n += k
		if c.b = c.b[k:]; len(c.b) == 0 {
			h.mu.chunks = h.mu.chunks[1:]
		}
	}
	if n > 0 {
		h.mu.bytes -= n
		h.mu.room.Broadcast()
		return n, nil, nil
	}
	switch {
	case h.mu.cause != nil && len(h.mu.chunks) == 0:
		return 0, nil, h.mu.cause
	case !h.mu.readBy.IsZero() && !now.Before(h.mu.readBy):
		return 0, nil, os.ErrDeadlineExceeded
	}
	next := h.mu.readBy
	if len(h.mu.chunks) > 0 && (next.IsZero() || h.mu.chunks[0].at.Before(next)) {
		next = h.mu.chunks[0].at
	}
	if !next.IsZero() {
		wait = time.After(next.Sub(now))
	}
	return 0, wait, nil
}
