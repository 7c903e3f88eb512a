package link_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"maps"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/link"
	"github.com/serry-dev/serry/wire/conn"
)

func TestMain(m *testing.M) {
	if os.Getenv(envPeer) != "" {
		bePeer()
		return
	}
	goleak.VerifyTestMain(m)
}

// A job is a coordination service for tests: keys, a picture of all tasks, and a list of reports.
type job struct {
	mu       sync.Mutex
	changed  chan struct{}
	keys     map[string]string
	written  map[string]int64 // version at which each key was written last
	created  []string         // keys, in order
	tasks    map[serry.TaskID]serry.TaskInfo
	version  int64
	suspects []string
}

func newJob() *job {
	return &job{changed: make(chan struct{}), keys: make(map[string]string), written: make(map[string]int64), tasks: make(map[serry.TaskID]serry.TaskInfo)}
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

// set says how a task is.
func (j *job) set(t serry.TaskInfo) { j.change(func() { j.tasks[t.Task] = t }) }

// lose marks a life as failed.
func (j *job) lose(l serry.Life, evidence string) {
	j.set(serry.TaskInfo{Task: l.Task, Incarnation: l.Incarnation, State: serry.Failed,
		Err: &serry.TaskError{Task: l.Task, Incarnation: l.Incarnation, Evidence: evidence, Err: serry.ErrTaskDead}})
}

func (j *job) reports() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.suspects)
}

func (j *job) key(name string) string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.keys[name]
}

func (j *job) keyNames() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Sorted(maps.Keys(j.keys))
}

// Create implements link.Keys.
func (j *job) Create(_ context.Context, key string, value []byte) (err error) {
	j.change(func() {
		if _, ok := j.keys[key]; ok {
			err = &serry.KeyError{Key: key, Err: serry.ErrExists}
			return
		}
		j.keys[key], j.written[key] = string(value), j.version
		j.created = append(j.created, key)
	})
	return err
}

// Put implements link.Keys.
func (j *job) Put(_ context.Context, key string, value []byte) error {
	j.change(func() { j.keys[key], j.written[key] = string(value), j.version })
	return nil
}

// Delete implements link.Keys.
func (j *job) Delete(_ context.Context, key string) error {
	j.change(func() {
		maps.DeleteFunc(j.keys, func(k, _ string) bool { return k == key || strings.HasPrefix(k, key+"/") })
	})
	return nil
}

// Watch implements link.Keys.
func (j *job) Watch(ctx context.Context, dir string) iter.Seq2[serry.KeyEvent, error] {
	return func(yield func(serry.KeyEvent, error) bool) {
		known := make(map[string]int64)
		for {
			j.mu.Lock()
			events, changed := j.since(dir, known), j.changed
			j.mu.Unlock()
			for _, e := range events {
				if !yield(e, nil) {
					return
				}
			}
			select {
			case <-changed:
			case <-ctx.Done():
				yield(serry.KeyEvent{}, context.Cause(ctx))
				return
			}
		}
	}
}

// since returns the changes below a directory, and brings known up to date; mu is held.
func (j *job) since(dir string, known map[string]int64) (all []serry.KeyEvent) {
	for key, value := range j.keys {
		was, ok := known[key]
		if !strings.HasPrefix(key, dir+"/") || ok && was == j.written[key] {
			continue
		}
		all = append(all, serry.KeyEvent{Entry: serry.Entry{Key: key, Value: []byte(value)}})
		known[key] = j.written[key]
	}
	for key := range known {
		if _, ok := j.keys[key]; !ok {
			all = append(all, serry.KeyEvent{Entry: serry.Entry{Key: key}, Deleted: true})
			delete(known, key)
		}
	}
	return all
}

// Wait implements link.Keys.
func (j *job) Wait(ctx context.Context, key string) ([]byte, error) {
	for {
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
	life    serry.Life
	service serry.Incarnation
	blind   bool // it hears nothing from the service, and dials lives that are over
}

func (m member) Task() serry.TaskID             { return m.life.Task }
func (m member) Incarnation() serry.Incarnation { return m.life.Incarnation }
func (m member) Service() serry.Incarnation     { return m.service }

func (m member) Watch(ctx context.Context) iter.Seq2[serry.Snapshot, error] {
	return func(yield func(serry.Snapshot, error) bool) {
		if m.blind {
			yield(serry.Snapshot{}, errors.New("not supported"))
			return
		}
		seen := int64(-1)
		for {
			m.mu.Lock()
			s := serry.Snapshot{Version: m.version}
			for _, task := range slices.SortedFunc(maps.Keys(m.tasks), serry.TaskID.Compare) {
				s.Tasks = append(s.Tasks, m.tasks[task])
			}
			changed := m.changed
			m.mu.Unlock()
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

func (m member) Suspect(_ context.Context, peer serry.TaskID, life serry.Incarnation, e serry.Evidence) error {
	m.change(func() {
		m.suspects = append(m.suspects, fmt.Sprintf("%v suspects %v/%d hard=%v: %s", m.life.Task, peer, life, e.Hard, e.Detail))
	})
	return nil
}

func life(task int, incarnation uint64) serry.Life {
	return serry.Life{Task: serry.TaskID{Job: "worker", Index: task}, Incarnation: serry.Incarnation(incarnation)}
}

var secret = []byte("0123456789abcdef0123456789abcdef")

// A world is a job, and the network that its processes share.
type world struct {
	*job
	t       *testing.T
	network *network // or nil: that of the system
	local   *link.Local
	options link.Options
}

// join starts the link layer of a life, which is connected from then on.
func (w *world) join(l serry.Life, change ...func(*link.Options)) *link.Net {
	w.t.Helper()
	w.set(serry.TaskInfo{Task: l.Task, Incarnation: l.Incarnation, State: serry.Connected})
	n, err := w.open(l, change...)
	if err != nil {
		w.t.Fatalf("Open(%v) = %v", l, err)
	}
	w.t.Cleanup(func() { n.Close(context.Background()) })
	return n
}

func (w *world) open(l serry.Life, change ...func(*link.Options)) (*link.Net, error) {
	o := w.options
	o.Local = w.local
	if w.network != nil {
		o.Network = dialler{w.network, hostOf(l)}
		o.Listen = []string{hostOf(l) + ":0"}
		o.Secret = secret
	}
	for _, c := range change {
		c(&o)
	}
	return link.Open(w.t.Context(), member{w.job, l, 7, false}, w.job, o)
}

// hostOf is the address of the host of a life, in a network in memory: each has its own.
func hostOf(l serry.Life) string { return fmt.Sprintf("10.0.%d.%d", l.Incarnation, l.Task.Index+1) }

// pair joins two tasks and links them. Both ends are returned.
func (w *world) pair(change ...func(*link.Options)) (a, b *link.Link) {
	w.t.Helper()
	m, n := w.join(life(0, 10), change...), w.join(life(1, 11), change...)
	return w.linked(m, n)
}

// linked links two nets.
func (w *world) linked(m, n *link.Net) (a, b *link.Link) {
	w.t.Helper()
	a, err := m.Link(w.t.Context(), n.Life())
	if err != nil {
		w.t.Fatalf("Link(%v) = %v", n.Life(), err)
	}
	b, err = n.Link(w.t.Context(), m.Life())
	if err != nil {
		w.t.Fatalf("Link(%v) = %v", m.Life(), err)
	}
	return a, b
}

// transports are the ways that processes are connected, for tests that all of them pass.
var transports = []string{"memory", "tls", "local", "self", "tcp", "unix"}

// onEach runs a test over every transport. Those without sockets are in virtual time.
func onEach(t *testing.T, f func(t *testing.T, w *world)) {
	for _, name := range transports {
		t.Run(name, func(t *testing.T) {
			if name == "tcp" || name == "unix" {
				f(t, &world{job: newJob(), t: t, options: link.Options{TCPOnly: name == "tcp"}})
				return
			}
			synctest.Test(t, func(t *testing.T) {
				w := &world{job: newJob(), t: t}
				switch name {
				case "memory":
					w.network = newNetwork()
				case "tls":
					w.network = newNetwork()
					w.options.TLS = newAuthority(t).identity("task", "spiffe://lab/job/task")
				case "local", "self":
					w.network, w.local = newNetwork(), new(link.Local)
				}
				f(t, w)
			})
		})
	}
}

// ends links two tasks over the transport of the test; over "self" both ends are one link.
func (w *world) ends(change ...func(*link.Options)) (a, b *link.Link) {
	w.t.Helper()
	if !strings.HasSuffix(w.t.Name(), "/self") {
		return w.pair(change...)
	}
	n := w.join(life(0, 10), change...)
	a, err := n.Link(w.t.Context(), n.Life())
	if err != nil {
		w.t.Fatalf("Link(self) = %v", err)
	}
	return a, a
}

// inBubble runs a test in virtual time over a network in memory.
func inBubble(t *testing.T, f func(t *testing.T, w *world)) {
	synctest.Test(t, func(t *testing.T) {
		f(t, &world{job: newJob(), t: t, network: newNetwork()})
	})
}

// A network connects processes through memory. It can cut each direction between two hosts.
type network struct {
	mu        sync.Mutex
	next      int
	listeners map[string]*listener
	gates     map[[2]string]chan struct{} // by hosts, from and to: closed while bytes pass
	damaged   map[[2]string]int           // flip a bit of the byte that comes after so many, once
	conns     map[*gated]bool
	dead      map[string]bool // hosts whose processes are gone
	dials     []string        // addresses
	closing   func()          // or nil: called once, before the next connection closes
	step      func()          // or nil: called before bytes are handed to their reader
	tapped    bool
	tap       []byte      // with tapped: what was read
	lingers   atomic.Bool // a goroutine that wakes a reader goes on only after the reader did
}

func newNetwork() *network {
	return &network{
		listeners: make(map[string]*listener), gates: make(map[[2]string]chan struct{}),
		conns: make(map[*gated]bool), dead: make(map[string]bool), damaged: make(map[[2]string]int),
	}
}

// atClose calls f before the next connection closes.
func (w *network) atClose(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closing = f
}

// closes calls what atClose was given.
func (w *network) closes() {
	w.mu.Lock()
	f := w.closing
	w.closing = nil
	w.mu.Unlock()
	if f != nil {
		f()
	}
}

// steps calls what is to be called before bytes are handed to their reader.
func (w *network) steps() {
	w.mu.Lock()
	f := w.step
	w.mu.Unlock()
	if f != nil {
		f()
	}
}

// reset closes all connections of a host, as a router does that has forgotten them.
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

func host(address string) string { h, _, _ := net.SplitHostPort(address); return h }

// cut stops the bytes from one host to another, as if packets were lost.
func (w *network) cut(from, to string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if way := [2]string{from, to}; w.gates[way] == nil {
		w.gates[way] = make(chan struct{})
	}
}

// heal lets them pass again.
func (w *network) heal(from, to string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if g := w.gates[[2]string{from, to}]; g != nil {
		close(g)
		delete(w.gates, [2]string{from, to})
	}
}

// damage flips a bit of a byte that is under way: of the next bytes from one host to another, the one at that place.
func (w *network) damage(from, to string, at int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.damaged[[2]string{from, to}] = at
}

func (w *network) maybeDamage(from, to string, p []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.tapped {
		w.tap = append(w.tap, p...)
	}
	way := [2]string{from, to}
	at, ok := w.damaged[way]
	if !ok {
		return
	}
	if at >= len(p) {
		w.damaged[way] = at - len(p)
		return
	}
	p[at] ^= 4
	delete(w.damaged, way)
}

// spy begins to note all bytes.
func (w *network) spy() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tapped = true
}

// seen is what a stranger could read.
func (w *network) seen() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return string(w.tap)
}

// dialled lists the addresses that were dialled.
func (w *network) dialled() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.dials)
}

func (w *network) gate(from, to string) chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.gates[[2]string{from, to}]
}

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
	for _, way := range [][2]string{{d.from, to}, {to, d.from}} {
		if g := w.gate(way[0], way[1]); g != nil {
			select {
			case <-g:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
	}
	w.mu.Lock()
	l := w.listeners[address]
	w.dials = append(w.dials, address)
	dead := w.dead[to] || w.dead[d.from]
	w.mu.Unlock()
	if l == nil || dead {
		return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	}
	a, b := conn.Loop(address)
	mine := newGated(a, w, to, d.from)
	theirs := newGated(b, w, d.from, to)
	w.mu.Lock()
	w.conns[mine], w.conns[theirs] = true, true
	w.mu.Unlock()
	select {
	case l.conns <- theirs:
		return mine, nil
	case <-l.closed:
		return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	case <-ctx.Done():
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
	l.once.Do(func() {
		close(l.closed)
		l.network.mu.Lock()
		defer l.network.mu.Unlock()
		delete(l.network.listeners, l.address)
	})
	return nil
}

func (l *listener) Addr() net.Addr {
	a, err := net.ResolveTCPAddr("tcp", l.address)
	if err != nil {
		panic(err)
	}
	return a
}

// A gated connection hands its reader nothing while its direction is cut.
type gated struct {
	conn.Partial
	network  *network
	from, to string // hosts: bytes that are read go this way
	address  net.Addr
	closed   chan struct{}
	once     sync.Once
	kicked   chan struct{}

	mu    sync.Mutex
	stash []byte
	err   error
}

func newGated(c net.Conn, w *network, from, to string) *gated {
	return &gated{Partial: c.(conn.Partial), network: w, from: from, to: to, address: &net.TCPAddr{IP: net.ParseIP(from), Port: 1},
		closed: make(chan struct{}), kicked: make(chan struct{}, 1)}
}

func (c *gated) RemoteAddr() net.Addr { return c.address }

func (c *gated) Read(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.stash) == 0 && c.err == nil {
		c.mu.Unlock()
		n, err := c.Partial.Read(p)
		c.mu.Lock()
		if n == 0 && errors.Is(err, os.ErrDeadlineExceeded) {
			return 0, err
		}
		c.stash, c.err = append(c.stash, p[:n]...), err
	}
	if g := c.network.gate(c.from, c.to); g != nil {
		select {
		case <-g:
		case <-c.closed:
			return 0, net.ErrClosed
		case <-c.kicked:
			return 0, os.ErrDeadlineExceeded
		}
	}
	c.network.steps()
	n := copy(p, c.stash)
	c.stash = c.stash[n:]
	c.network.maybeDamage(c.from, c.to, p[:n])
	if n == 0 {
		return 0, c.err
	}
	return n, nil
}

func (c *gated) SetReadDeadline(t time.Time) error {
	c.kick(t)
	err := c.Partial.SetReadDeadline(t)
	if !t.IsZero() && c.network.lingers.Load() {
		for range 100 { // the reader goes on as far as it can
			runtime.Gosched()
		}
	}
	return err
}

func (c *gated) SetDeadline(t time.Time) error {
	c.kick(t)
	return c.Partial.SetDeadline(t)
}

func (c *gated) kick(t time.Time) {
	if !t.IsZero() && t.Before(time.Now()) {
		select {
		case c.kicked <- struct{}{}:
		default:
		}
	}
}

func (c *gated) Close() error {
	c.network.closes()
	c.once.Do(func() {
		close(c.closed)
		c.network.mu.Lock()
		defer c.network.mu.Unlock()
		delete(c.network.conns, c)
	})
	return c.Partial.Close()
}

// An observer is a handler that notes what it is told.
type observer struct {
	mu     sync.Mutex
	frames []string
	events []link.Event
	strays int
	drop   bool // keep nothing that no call asked for
}

func (o *observer) Frame(_ *link.Link, h link.Header, payload []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.frames = append(o.frames, fmt.Sprintf("%v/%d stream %d: %s", h.Family, h.Type, h.Stream, payload))
}

func (o *observer) Unexpected(*link.Link, link.Header) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.strays++
	return !o.drop
}

func (o *observer) Event(e link.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.events = append(o.events, e)
}

func (o *observer) seen() (frames []string, kinds []link.Kind) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, e := range o.events {
		kinds = append(kinds, e.Kind)
	}
	return slices.Clone(o.frames), kinds
}

// observe makes an observer the handler of both families.
func (w *world) observe(n *link.Net) *observer {
	w.t.Helper()
	o := new(observer)
	if err := errors.Join(n.Handle(link.Collective, o), n.Handle(link.Transfer, o)); err != nil {
		w.t.Fatal(err)
	}
	return o
}

func logger(b io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(b, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func data(f link.Family, seq uint64) link.Header {
	h := link.Header{Family: f, Type: link.CollectiveData, Stream: 99, Generation: 1, Step: 2, Seq: seq}
	if f == link.Transfer {
		h = link.Header{Family: f, Type: link.TransferData, Stream: seq}
	}
	return h
}

// fill makes bytes that tell where they belong. No other goroutine has them yet, so the race detector would find
// nothing here, at the cost of a call for each byte.
//
//go:norace
func fill(n int, seed uint64) []byte {
	b := make([]byte, n)
	x := seed*0x9E3779B97F4A7C15 + 1
	for i := range b {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		b[i] = byte(x)
	}
	return b
}
