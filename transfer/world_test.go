package transfer_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/link"
	"github.com/serry-dev/serry/memory"
	"github.com/serry-dev/serry/transfer"
	"github.com/serry-dev/serry/wire/conn"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A job is a coordination service for tests: keys, and a picture of all tasks.
type job struct {
	mu      sync.Mutex
	changed chan struct{}
	keys    map[string]string
	tasks   map[serry.TaskID]serry.TaskInfo
	version int64
	dead    map[serry.Life]bool // processes that cannot speak to the service any more
	outage  chan struct{}       // or nil; closed when the service answers again
}

func newJob() *job {
	return &job{changed: make(chan struct{}), keys: make(map[string]string), tasks: make(map[serry.TaskID]serry.TaskInfo), dead: make(map[serry.Life]bool)}
}

// fails lets the service answer and tell nothing until recovers is called.
func (j *job) fails() (recovers func()) {
	j.mu.Lock()
	defer j.mu.Unlock()
	gate := make(chan struct{})
	j.outage = gate
	return func() {
		j.mu.Lock()
		defer j.mu.Unlock()
		if j.outage == gate {
			j.outage = nil
		}
		close(gate)
	}
}

// answers waits while the service does not answer.
func (j *job) answers(ctx context.Context) error {
	j.mu.Lock()
	gate := j.outage
	j.mu.Unlock()
	if gate == nil {
		return nil
	}
	select {
	case <-gate:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// change does something under the lock, and wakes every goroutine that waits.
func (j *job) change(f func()) {
	j.mu.Lock()
	defer j.mu.Unlock()
	f()
	j.version++
	close(j.changed)
	j.changed = make(chan struct{})
}

func (j *job) set(l serry.Life, s serry.TaskState) {
	t := serry.TaskInfo{Task: l.Task, Incarnation: l.Incarnation, State: s}
	if s == serry.Failed {
		t.Err = &serry.TaskError{Task: l.Task, Incarnation: l.Incarnation, Evidence: "connection refused", Err: serry.ErrTaskDead}
	}
	j.change(func() { j.tasks[l.Task] = t })
}

func (j *job) Create(ctx context.Context, key string, value []byte) error {
	if err := j.answers(ctx); err != nil {
		return err
	}
	j.change(func() { j.keys[key] = string(value) })
	return nil
}

func (j *job) Put(ctx context.Context, key string, value []byte) error {
	return j.Create(ctx, key, value)
}

func (j *job) Delete(_ context.Context, key string) error {
	j.change(func() {
		maps.DeleteFunc(j.keys, func(k, _ string) bool { return k == key || strings.HasPrefix(k, key+"/") })
	})
	return nil
}

func (j *job) Watch(context.Context, string) iter.Seq2[serry.KeyEvent, error] {
	return func(yield func(serry.KeyEvent, error) bool) { yield(serry.KeyEvent{}, errors.New("not supported")) }
}

func (j *job) Wait(ctx context.Context, key string) ([]byte, error) {
	for {
		if err := j.answers(ctx); err != nil {
			return nil, err
		}
		j.mu.Lock()
		value, ok := j.keys[key]
		changed := j.changed
		j.mu.Unlock()
		if ok {
			return []byte(value), nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// A member is one life of a task.
type member struct {
	*job
	life serry.Life
}

func (m member) Task() serry.TaskID             { return m.life.Task }
func (m member) Incarnation() serry.Incarnation { return m.life.Incarnation }
func (m member) Service() serry.Incarnation     { return 7 }

func (m member) Watch(ctx context.Context) iter.Seq2[serry.Snapshot, error] {
	return func(yield func(serry.Snapshot, error) bool) {
		seen := int64(-1)
		for {
			m.mu.Lock()
			s := serry.Snapshot{Version: m.version}
			for _, task := range slices.SortedFunc(maps.Keys(m.tasks), serry.TaskID.Compare) {
				s.Tasks = append(s.Tasks, m.tasks[task])
			}
			changed := m.changed
			m.mu.Unlock()
			if err := m.answers(ctx); err != nil {
				yield(serry.Snapshot{}, err)
				return
			}
			if s.Version != seen && !yield(s, nil) {
				return
			}
			seen = s.Version
			select {
			case <-changed:
			case <-ctx.Done():
				yield(serry.Snapshot{}, context.Cause(ctx))
				return
			}
		}
	}
}

// Suspect believes hard evidence at once, as the service does.
func (m member) Suspect(ctx context.Context, peer serry.TaskID, life serry.Incarnation, e serry.Evidence) error {
	if err := m.answers(ctx); err != nil {
		return err
	}
	m.mu.Lock()
	known, dead := m.tasks[peer], m.dead[m.life]
	m.mu.Unlock()
	if !dead && e.Hard && known.Incarnation == life && known.State == serry.Connected {
		m.set(serry.Life{Task: peer, Incarnation: life}, serry.Failed)
	}
	return nil
}

func life(task int, incarnation uint64) serry.Life {
	return serry.Life{Task: serry.TaskID{Job: "worker", Index: task}, Incarnation: serry.Incarnation(incarnation)}
}

var secret = []byte("0123456789abcdef0123456789abcdef")

// A world is a job and the network that its processes share.
type world struct {
	*job
	t       testing.TB
	network *network    // or nil: that of the system
	local   *link.Local // or nil
	link    link.Options
	engine  transfer.Options
}

// A process is one process of the job. Its task drives the device of the same number.
type process struct {
	*transfer.Engine
	world  *world
	life   serry.Life
	net    *link.Net
	device serry.DeviceID
}

// start starts a process, which is connected from then on.
func (w *world) start(l serry.Life) *process {
	w.t.Helper()
	w.set(l, serry.Connected)
	o := w.link
	o.Local = w.local
	if w.network != nil {
		o.Network, o.Listen, o.Secret = dialler{w.network, hostOf(l)}, []string{hostOf(l) + ":0"}, secret
	}
	m := member{w.job, l}
	n, err := link.Open(w.t.Context(), m, w.job, o)
	if err != nil {
		w.t.Fatalf("Open(%v) = %v", l, err)
	}
	e, err := transfer.New(w.t.Context(), m, n, w.engine)
	if err != nil {
		w.t.Fatalf("New(%v) = %v", l, err)
	}
	p := &process{e, w, l, n, serry.DeviceID(l.Task.Index)}
	w.t.Cleanup(p.end)
	return p
}

// end closes what a process has open, and looks for promises that it forgot.
func (p *process) end() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	p.Close(ctx)
	p.net.Close(context.Background())
	if open, abandoned, _ := p.Pool().Promises(); open > 0 || abandoned > 0 {
		p.world.t.Errorf("%v leaves %d promises open, and dropped %d", p.life, open, abandoned)
	}
}

// startAll starts processes of tasks 0 to n-1, which the service knows before the first one asks.
func (w *world) startAll(n int) (all []*process) {
	w.t.Helper()
	for i := range n {
		w.set(life(i, uint64(10+i)), serry.Connected)
	}
	for i := range n {
		all = append(all, w.start(life(i, uint64(10+i))))
	}
	return all
}

// pair starts two processes.
func (w *world) pair() (a, b *process) {
	w.t.Helper()
	all := w.startAll(2)
	return all[0], all[1]
}

// kill ends a process as the kernel does that kills it.
func (w *world) kill(p *process) {
	w.mu.Lock()
	w.dead[p.life] = true
	w.mu.Unlock()
	w.network.kill(hostOf(p.life))
}

// hostOf is the address of the host of a life in a network in memory: each has its own.
func hostOf(l serry.Life) string { return fmt.Sprintf("10.0.%d.%d", l.Incarnation, l.Task.Index+1) }

// send begins to send bytes to another process.
func (p *process) send(to *process, key uint64, bytes []byte) transfer.Item {
	p.world.t.Helper()
	return p.begin(p.world.t.Context(), p.sendOp(to, key, bytes))
}

// receive begins to receive bytes of another process.
func (p *process) receive(from *process, key uint64, size int) transfer.Item {
	p.world.t.Helper()
	return p.begin(p.world.t.Context(), p.receiveOp(from, key, size))
}

func (p *process) begin(ctx context.Context, op transfer.Op) transfer.Item {
	p.world.t.Helper()
	g, err := p.Transfer(ctx, []transfer.Op{op})
	if err != nil {
		p.world.t.Fatalf("Transfer(%v) = %v", op, err)
	}
	return g.Items()[0]
}

func (p *process) sendOp(to *process, key uint64, bytes []byte) transfer.Op {
	return transfer.Op{Key: transfer.Key{Seq: key}, Src: p.device, Dst: to.device, Buffer: p.buffer(bytes, p.Pool().Ready())}
}

func (p *process) receiveOp(from *process, key uint64, size int) transfer.Op {
	return transfer.Op{Key: transfer.Key{Seq: key}, Src: from.device, Dst: p.device, Spec: bytesSpec(size)}
}

func bytesSpec(size int) transfer.Spec {
	return transfer.Spec{Type: memory.U8, Dims: []int64{int64(size)}}
}

// buffer makes a buffer of bytes, and defines it unless definition is nil.
func (p *process) buffer(bytes []byte, definition *transfer.Event) *transfer.Buffer {
	p.world.t.Helper()
	b, err := p.Pool().Buffer(bytesSpec(len(bytes)), transfer.Memory{Region: memory.Of(bytes), Device: p.device})
	if err == nil && definition != nil {
		err = b.Define(definition)
	}
	if err != nil {
		p.world.t.Fatal(err)
	}
	return b
}

// content is what a buffer holds, once it is defined.
func content(t testing.TB, b *transfer.Buffer) []byte {
	t.Helper()
	if err := b.Definition().Wait(t.Context()); err != nil {
		t.Fatalf("buffer is not defined: %v", err)
	}
	u, err := b.Use(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer u.Drop()
	return u.Memory().Bytes()
}

// fill makes bytes that tell where they belong. No other goroutine has them yet, so the race detector would find
// nothing here, at the cost of a call for each byte.
//
//go:norace
func fill(n int, seed uint64) []byte {
	b := make([]byte, 0, n+7)
	for x := seed*2862933555777941757 + 3037000493; len(b) < n; {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		b = binary.LittleEndian.AppendUint64(b, x)
	}
	return b[:n:n]
}

// onEach runs a test over every transport. Those without sockets are in virtual time.
func onEach(t *testing.T, f func(t *testing.T, w *world)) {
	t.Run("tcp", func(t *testing.T) {
		f(t, &world{job: newJob(), t: t, link: link.Options{TCPOnly: true}})
	})
	t.Run("memory", func(t *testing.T) { inBubble(t, f) })
	t.Run("local", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *world) {
			w.local = new(link.Local)
			f(t, w)
		})
	})
}

// inBubble runs a test in virtual time over a network in memory.
func inBubble(t *testing.T, f func(t *testing.T, w *world)) {
	synctest.Test(t, func(t *testing.T) { f(t, &world{job: newJob(), t: t, network: newNetwork()}) })
}

// A network connects processes through memory.
type network struct {
	mu        sync.Mutex
	next      int
	listeners map[string]*listener
	conns     map[*wired]bool
	dead      map[string]bool             // hosts whose processes are gone
	cuts      map[[2]string]chan struct{} // hosts between which no bytes pass, from and to; closed when they do again
	pace      time.Duration               // that each write takes
	lag       func() time.Duration        // or nil: how long what is read takes to come
	damage    map[[2]string]*damage
	written   map[string]int64            // bytes that each host has written
	held      map[[2]string]chan struct{} // hosts between which connections that have carried much carry nothing; closed when they do
	refusals  map[string]int              // dials of a host that fail from now on
	dials     map[string]int              // of each host, so far
}

// A damage flips bits of what comes from one host to another.
type damage struct{ after, left, seen int } // after so many bytes each time, so many times, and how many came since

func newNetwork() *network {
	return &network{listeners: make(map[string]*listener), conns: make(map[*wired]bool), dead: make(map[string]bool),
		cuts: make(map[[2]string]chan struct{}), damage: make(map[[2]string]*damage), written: make(map[string]int64),
		held: make(map[[2]string]chan struct{}), refusals: make(map[string]int), dials: make(map[string]int)}
}

// setPace makes every write take so long from now on.
func (w *network) setPace(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pace = d
}

// reset closes all connections of a host.
func (w *network) reset(host string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.conns {
		if c.from == host || c.to == host {
			go c.Close()
		}
	}
}

// kill ends the process of a host: its connections close, and its ports refuse.
func (w *network) kill(host string) {
	w.mu.Lock()
	w.dead[host] = true
	w.mu.Unlock()
	w.reset(host)
}

// cut lets no bytes pass between two hosts from now on, or lets them pass again, without a word to either. What was written
// meanwhile comes then, as it does with TCP, if the connection is still there.
func (w *network) cut(a, b string, cut bool) {
	w.cutOneWay(a, b, cut)
	w.cutOneWay(b, a, cut)
}

// cutOneWay is cut for the bytes of one direction.
func (w *network) cutOneWay(from, to string, cut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	way := [2]string{from, to}
	switch gate := w.cuts[way]; {
	case cut && gate == nil:
		w.cuts[way] = make(chan struct{})
	case !cut && gate != nil:
		close(gate)
		delete(w.cuts, way)
	}
}

// muchBytes is what a connection has carried that counts as one for large data.
const muchBytes = 1 << 20

// hold lets connections that have carried much carry nothing more from one host to another, or lets them go on. Others, by which
// the link asks whether its peer is there, work.
func (w *network) hold(from, to string, hold bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	way := [2]string{from, to}
	switch gate := w.held[way]; {
	case hold && gate == nil:
		w.held[way] = make(chan struct{})
	case !hold && gate != nil:
		close(gate)
		delete(w.held, way)
	}
}

// failDials lets the next dials of a host fail, as if there were no route to it.
func (w *network) failDials(to string, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refusals[to] = n
}

// dialled is how often a host was dialled.
func (w *network) dialled(to string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.dials[to]
}

// gate is closed when bytes pass from one host to another again, by a connection that has carried so many; nil if they do.
func (w *network) gate(from, to string, carried int64) chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	way := [2]string{from, to}
	if gate := w.held[way]; gate != nil && carried > muchBytes {
		return gate
	}
	return w.cuts[way]
}

// damages flips a bit of what comes from one host to another, after so many bytes each time, so many times.
func (w *network) damages(from, to string, after, times int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.damage[[2]string{from, to}] = &damage{after: after, left: times}
}

// arrive is called for what was read, and may damage it. It returns how long that takes to come.
func (w *network) arrive(from, to string, p []byte) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if d := w.damage[[2]string{from, to}]; d != nil && d.left > 0 {
		if at := max(0, d.after-d.seen); at < len(p) {
			p[at] ^= 4
			d.left--
			d.seen = -at
		}
		d.seen += len(p)
	}
	if w.lag == nil {
		return 0
	}
	return w.lag()
}

// sent is how many bytes a host has written.
func (w *network) sent(host string) int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.written[host]
}

func host(address string) string { h, _, _ := net.SplitHostPort(address); return h }

// Listen implements link.Network.
func (w *network) Listen(_ context.Context, address string) (net.Listener, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.next++
	l := &listener{w, fmt.Sprintf("%s:%d", host(address), 4000+w.next), make(chan net.Conn), make(chan struct{}), sync.Once{}}
	w.listeners[l.address] = l
	return l, nil
}

// A dialler is the network seen from one host. It implements link.Network.
type dialler struct {
	*network
	from string
}

func (d dialler) Dial(ctx context.Context, address string) (net.Conn, error) {
	w, to := d.network, host(address)
	for _, gate := range []chan struct{}{w.gate(d.from, to, 0), w.gate(to, d.from, 0)} {
		if gate == nil {
			continue
		}
		select {
		case <-gate:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	w.mu.Lock()
	l := w.listeners[address]
	dead := w.dead[to] || w.dead[d.from]
	w.dials[to]++
	unreachable := w.refusals[to] > 0
	if unreachable {
		w.refusals[to]--
	}
	w.mu.Unlock()
	if unreachable {
		return nil, &net.OpError{Op: "dial", Err: syscall.EHOSTUNREACH}
	}
	if l == nil || dead {
		return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	}
	a, b := conn.Loop(address)
	mine, theirs := newWired(a, w, d.from, to), newWired(b, w, to, d.from)
	w.mu.Lock()
	w.conns[mine], w.conns[theirs] = true, true
	w.mu.Unlock()
	select {
	case l.conns <- theirs:
		return mine, nil
	case <-l.closed:
		mine.Close()
		theirs.Close()
		return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	case <-ctx.Done():
		mine.Close()
		theirs.Close()
		return nil, ctx.Err()
	}
}

// A listener accepts connections of a network.
type listener struct {
	network *network
	address string
	conns   chan net.Conn
	closed  chan struct{}
	once    sync.Once
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *listener) Addr() net.Addr {
	a, err := net.ResolveTCPAddr("tcp", l.address)
	if err != nil {
		panic(err)
	}
	return a
}

// A wired connection is one end of a connection of a network: bytes written to it go from one host to another. Its reader gets
// nothing while the other direction is cut.
type wired struct {
	conn.Partial
	network  *network
	from, to string
	closed   chan struct{}
	once     sync.Once
	kicked   chan struct{} // a read has to end

	mu    sync.Mutex // held by the reader
	stash []byte     // that was read, and not handed out
	read  int64      // bytes so far
	err   error      // behind it
}

func newWired(c net.Conn, w *network, from, to string) *wired {
	return &wired{Partial: c.(conn.Partial), network: w, from: from, to: to, closed: make(chan struct{}), kicked: make(chan struct{}, 1)}
}

func (c *wired) Read(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.stash) == 0 && c.err == nil {
		n, err := c.Partial.Read(p)
		if n == 0 && errors.Is(err, os.ErrDeadlineExceeded) {
			return 0, err
		}
		c.stash, c.err = append(c.stash, p[:n]...), err
		c.read += int64(n)
		if lag := c.network.arrive(c.to, c.from, c.stash); lag > 0 {
			time.Sleep(lag)
		}
	}
	if gate := c.network.gate(c.to, c.from, c.read); gate != nil {
		select {
		case <-gate:
		case <-c.closed:
			return 0, net.ErrClosed
		case <-c.kicked:
			return 0, os.ErrDeadlineExceeded
		}
	}
	n := copy(p, c.stash)
	if c.stash = c.stash[n:]; n == 0 {
		return 0, c.err
	}
	return n, nil
}

func (c *wired) SetReadDeadline(t time.Time) error {
	c.kick(t)
	return c.Partial.SetReadDeadline(t)
}

func (c *wired) SetDeadline(t time.Time) error {
	c.kick(t)
	return c.Partial.SetDeadline(t)
}

func (c *wired) kick(t time.Time) {
	if !t.IsZero() && t.Before(time.Now()) {
		select {
		case c.kicked <- struct{}{}:
		default:
		}
	}
}

func (c *wired) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(c.to), Port: 1} }

// passes says whether the bytes of a write arrive. Those of a process that is gone do not.
func (c *wired) passes(n int) bool {
	w := c.network
	w.mu.Lock()
	pace := w.pace
	w.mu.Unlock()
	if pace > 0 {
		time.Sleep(pace)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.written[c.from] += int64(n)
	return !w.dead[c.from]
}

func (c *wired) Write(p []byte) (int, error) {
	if !c.passes(len(p)) {
		return len(p), nil
	}
	return c.Partial.Write(p)
}

func (c *wired) Try(p []byte) (int, error) {
	if !c.passes(len(p)) {
		return len(p), nil
	}
	return c.Partial.Try(p)
}

func (c *wired) Wait(p []byte) (int, error) {
	if !c.passes(len(p)) {
		return len(p), nil
	}
	return c.Partial.Wait(p)
}

func (c *wired) Close() error {
	c.once.Do(func() {
		close(c.closed)
		c.network.mu.Lock()
		defer c.network.mu.Unlock()
		delete(c.network.conns, c)
	})
	return c.Partial.Close()
}
