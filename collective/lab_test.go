package collective_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/collective"
	"github.com/serry-dev/serry/internal/lab/trial"
	"github.com/serry-dev/serry/link"
	"github.com/serry-dev/serry/wire"
	"github.com/serry-dev/serry/wire/conn"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A job is a coordination service for tests: keys, a picture of all tasks, and agreements.
type job struct {
	mu      sync.Mutex
	changed chan struct{}
	keys    map[string]string
	tasks   map[serry.TaskID]serry.TaskInfo
	version int64
	rounds  map[string]*round    // agreements under way, by set
	dead    map[serry.Life]bool  // processes that cannot speak to the service any more
	weak    map[serry.TaskID]int // how often a task was suspected without proof

	withheld map[serry.Life]bool // processes that do not get the answers of agreements
}

// A round is an agreement that some have called for.
type round struct {
	tasks []serry.TaskID
	words map[serry.TaskID][]byte
	lives map[serry.TaskID]serry.Incarnation
	done  chan struct{}
	out   serry.Agreement
}

func newJob() *job {
	return &job{changed: make(chan struct{}), keys: make(map[string]string), tasks: make(map[serry.TaskID]serry.TaskInfo),
		rounds: make(map[string]*round), dead: make(map[serry.Life]bool), weak: make(map[serry.TaskID]int),
		withheld: make(map[serry.Life]bool)}
}

// suspicions is how often a task was suspected without proof.
func (j *job) suspicions(task serry.TaskID) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.weak[task]
}

// change does something under the lock, and wakes every goroutine that waits.
func (j *job) change(f func()) {
	j.mu.Lock()
	defer j.mu.Unlock()
	f()
	j.changes()
}

// changes wakes every goroutine that waits; mu is held.
func (j *job) changes() {
	j.version++
	j.settle()
	close(j.changed)
	j.changed = make(chan struct{})
}

// settle ends the agreements that all living tasks have called for; mu is held.
func (j *job) settle() {
	for set, r := range j.rounds {
		complete := true
		for _, task := range r.tasks {
			t := j.tasks[task]
			if t.State == serry.Connected && r.lives[task] != t.Incarnation {
				complete = false
			}
		}
		if !complete {
			continue
		}
		r.out = serry.Agreement{Alive: make(map[serry.TaskID]serry.Incarnation), Words: make(map[serry.TaskID][]byte)}
		for task, life := range r.lives {
			if t := j.tasks[task]; t.State == serry.Connected && t.Incarnation == life {
				r.out.Alive[task], r.out.Words[task] = life, r.words[task]
			}
		}
		delete(j.rounds, set)
		close(r.done)
	}
}

func (j *job) set(t serry.TaskInfo) { j.change(func() { j.tasks[t.Task] = t }) }

// lose marks a life as failed.
func (j *job) lose(l serry.Life, evidence string) { j.set(failed(l, evidence)) }

func failed(l serry.Life, evidence string) serry.TaskInfo {
	return serry.TaskInfo{Task: l.Task, Incarnation: l.Incarnation, State: serry.Failed,
		Err: &serry.TaskError{Task: l.Task, Incarnation: l.Incarnation, Evidence: evidence, Err: serry.ErrTaskDead}}
}

func (j *job) Create(_ context.Context, key string, value []byte) error {
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

func (j *job) Watch(ctx context.Context, _ string) iter.Seq2[serry.KeyEvent, error] {
	return func(yield func(serry.KeyEvent, error) bool) { yield(serry.KeyEvent{}, errors.New("not supported")) }
}

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
	life  serry.Life
	blind bool // the service does not tell it how tasks are
}

func (m member) Task() serry.TaskID             { return m.life.Task }
func (m member) Incarnation() serry.Incarnation { return m.life.Incarnation }
func (m member) Service() serry.Incarnation     { return 7 }

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

// Suspect believes hard evidence at once, as the service does.
func (m member) Suspect(_ context.Context, peer serry.TaskID, life serry.Incarnation, e serry.Evidence) error {
	if m.blind { // a stock service
		return errors.New("not supported")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !e.Hard {
		m.weak[peer]++
	}
	known := m.tasks[peer]
	if e.Hard && !m.dead[m.life] && known.Incarnation == life && known.State == serry.Connected {
		m.tasks[peer] = failed(serry.Life{Task: peer, Incarnation: life}, e.Detail)
		m.changes() // in one step with the question: a newer life may come at any time
	}
	return nil
}

func (m member) Agree(ctx context.Context, word []byte, tasks ...serry.TaskID) (serry.Agreement, error) {
	if m.blind && word != nil {
		return serry.Agreement{}, wire.ErrUnsupported
	}
	tasks = slices.Clone(tasks)
	slices.SortFunc(tasks, serry.TaskID.Compare)
	r := &round{done: make(chan struct{})}
	m.change(func() {
		if m.dead[m.life] {
			return
		}
		set := fmt.Sprint(tasks)
		if r = m.rounds[set]; r == nil {
			r = &round{tasks: tasks, words: make(map[serry.TaskID][]byte), lives: make(map[serry.TaskID]serry.Incarnation), done: make(chan struct{})}
			m.rounds[set] = r
		}
		r.words[m.life.Task], r.lives[m.life.Task] = word, m.life.Incarnation
	})
	for {
		changed, withheld := m.withholds(m.life)
		done := r.done
		if withheld {
			done = nil
		}
		select {
		case <-done:
			return r.out, nil
		case <-changed:
		case <-ctx.Done():
			return serry.Agreement{}, context.Cause(ctx)
		}
	}
}

// withhold keeps the answers of agreements from a life, or lets them through again.
func (j *job) withhold(l serry.Life, withheld bool) { j.change(func() { j.withheld[l] = withheld }) }

// withholds says whether the answers are kept from a life. The channel is closed when that may have changed.
func (j *job) withholds(l serry.Life) (changed <-chan struct{}, withheld bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.changed, j.withheld[l]
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
	group   collective.Options
	blind   bool       // the service does not tell processes how tasks are
	procs   []*process // in the order in which they started
}

// A process is one process of the job.
type process struct {
	*collective.Group
	world *world
	life  serry.Life
	net   *link.Net
}

// start starts a process, which is connected from then on.
func (w *world) start(l serry.Life) *process {
	w.t.Helper()
	w.set(serry.TaskInfo{Task: l.Task, Incarnation: l.Incarnation, State: serry.Connected})
	o := w.link
	o.Local = w.local
	if w.network != nil {
		o.Network, o.Listen, o.Secret = dialler{w.network, hostOf(l)}, []string{hostOf(l) + ":0"}, secret
	}
	m := member{job: w.job, life: l, blind: w.blind}
	n, err := link.Open(w.t.Context(), m, w.job, o)
	if err != nil {
		w.t.Fatalf("Open(%v) = %v", l, err)
	}
	g, err := collective.New(m, n, w.group)
	if err != nil {
		w.t.Fatalf("New(%v) = %v", l, err)
	}
	p := &process{g, w, l, n}
	w.procs = append(w.procs, p)
	w.t.Cleanup(p.end)
	return p
}

// end closes what a process has open.
func (p *process) end() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // operations that still run are not waited for
	p.Group.Close(ctx)
	p.net.Close(context.Background())
}

// startAll starts processes of tasks 0 to n-1.
func (w *world) startAll(n int) []*process {
	w.t.Helper()
	for i := range n {
		w.start(life(i, uint64(10+i)))
	}
	return w.procs
}

// kill ends a process as the kernel does that kills it.
func (w *world) kill(p *process) {
	w.mu.Lock()
	w.dead[p.life] = true
	w.mu.Unlock()
	w.network.kill(hostOf(p.life))
}

// hostOf is the address of the host of a life in a network in memory: each has its own.
func hostOf(l serry.Life) string {
	return fmt.Sprintf("10.%d.%d.%d", l.Incarnation>>8, l.Incarnation&255, l.Task.Index+1)
}

// devices are the devices 0 to n-1.
func devices(n int) (list []serry.DeviceID) {
	for i := range n {
		list = append(list, serry.DeviceID(i))
	}
	return list
}

// each runs f for every item at the same time, and returns the errors.
func each[T any](items []T, f func(i int, item T) error) []error {
	errs := make([]error, len(items))
	var all sync.WaitGroup
	for i, item := range items {
		all.Go(func() { errs[i] = f(i, item) })
	}
	all.Wait()
	return errs
}

// clique forms the clique of devices in all processes that are given.
func (w *world) clique(procs []*process, devices []serry.DeviceID) []*collective.Comm {
	w.t.Helper()
	comms := make([]*collective.Comm, len(procs))
	errs := each(procs, func(i int, p *process) (err error) {
		comms[i], err = p.Clique(w.t.Context(), devices, collective.CliqueOptions{})
		return err
	})
	if err := errors.Join(errs...); err != nil {
		w.t.Fatalf("Clique(%v) = %v", devices, err)
	}
	return comms
}

// transports are the ways that processes are connected, for tests that all of them pass.
var transports = []string{"memory", "local", "shared", "tcp"}

// onEach runs a test over every transport. Those without sockets are in virtual time.
func onEach(t *testing.T, f func(t *testing.T, w *world)) {
	for _, name := range transports {
		t.Run(name, func(t *testing.T) {
			if name == "tcp" {
				f(t, overSockets(t))
				return
			}
			inBubble(t, func(t *testing.T, w *world) {
				switch name {
				case "local":
					w.local = new(link.Local)
				case "shared":
					w.link.Segments, w.group.Host = new(link.Local), "one"
				}
				f(t, w)
			})
		})
	}
}

// overSockets is a world whose processes use the network of the system. When the test has ended no goroutine is left; in a bubble
// that is so anyway.
func overSockets(t *testing.T) *world {
	t.Cleanup(func() { goleak.VerifyNone(t) })
	return &world{job: newJob(), t: t}
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
	dead      map[string]bool    // hosts whose processes are gone
	cuts      map[[2]string]bool // hosts between which no bytes pass
	before    func(host string)  // or nil: is told of every write before it is made
	perMiB    time.Duration      // how long a connection takes to move so much
}

func newNetwork() *network {
	return &network{listeners: make(map[string]*listener), conns: make(map[*wired]bool), dead: make(map[string]bool), cuts: make(map[[2]string]bool)}
}

// reset closes all connections of a host.
func (w *network) reset(host string) {
	w.close(func(c *wired) bool { return c.from == host || c.to == host })
}

// delay makes every write take so long from now on.
func (w *world) delay(d time.Duration) {
	w.network.mu.Lock()
	defer w.network.mu.Unlock()
	w.network.before = func(string) { time.Sleep(d) }
}

// atWrite calls f once, just before a process makes a write: 0 is the next one.
func (w *world) atWrite(p *process, step int, f func()) {
	var once sync.Once
	writes := 0
	w.network.mu.Lock()
	defer w.network.mu.Unlock()
	w.network.before = func(from string) {
		if from != hostOf(p.life) {
			return
		}
		w.network.mu.Lock()
		writes++
		now := writes > step
		w.network.mu.Unlock()
		if now {
			once.Do(f)
		}
	}
}

// part closes all connections between two hosts.
func (w *network) part(a, b string) {
	w.close(func(c *wired) bool { return c.from == a && c.to == b || c.from == b && c.to == a })
}

func (w *network) close(which func(c *wired) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.conns {
		if which(c) {
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

// cut drops all bytes between two hosts from now on, without a word to either.
func (w *network) cut(a, b string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cuts[[2]string{a, b}], w.cuts[[2]string{b, a}] = true, true
}

// heal lets bytes pass between two hosts again.
func (w *network) heal(a, b string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.cuts, [2]string{a, b})
	delete(w.cuts, [2]string{b, a})
}

// hold keeps what arrives at a host, over the connections that it has with another one now, from its process until release is
// called.
func (w *network) hold(at, from string) (release func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	held := make(chan struct{})
	for c := range w.conns {
		if c.from == at && c.to == from {
			c.held = held
		}
	}
	return func() { close(held) }
}

func (w *network) isCut(a, b string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cuts[[2]string{a, b}]
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
	if w.isCut(d.from, to) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	a, b := conn.Loop(address)
	mine := &wired{Partial: a.(conn.Partial), network: w, from: d.from, to: to}
	theirs := &wired{Partial: b.(conn.Partial), network: w, from: to, to: d.from}
	w.mu.Lock()
	l := w.listeners[address]
	dead := w.dead[to] || w.dead[d.from]
	if l != nil && !dead { // under the same lock, or a host that is killed now would keep the connection
		w.conns[mine], w.conns[theirs] = true, true
	}
	w.mu.Unlock()
	if l == nil || dead {
		mine.Close()
		theirs.Close()
		return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	}
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

// A wired connection is one end of a connection of a network: bytes written to it go from one host to another.
type wired struct {
	conn.Partial
	network  *network
	from, to string
	held     chan struct{} // or nil: what is read is kept until it is closed; guarded by the lock of the network
}

func (c *wired) Read(p []byte) (int, error) {
	n, err := c.Partial.Read(p)
	c.network.mu.Lock()
	held := c.held
	c.network.mu.Unlock()
	if held != nil {
		<-held
	}
	return n, err
}

func (c *wired) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(c.to), Port: 1} }

// passes says whether the bytes of a write arrive. Those of a process that is gone do not.
func (c *wired) passes(p []byte) bool {
	w := c.network
	w.mu.Lock()
	before, perMiB := w.before, w.perMiB
	w.mu.Unlock()
	if perMiB > 0 {
		time.Sleep(perMiB * time.Duration(len(p)) >> 20)
	}
	if before != nil {
		before(c.from)
	}
	w.mu.Lock()
	dead := w.dead[c.from]
	w.mu.Unlock()
	return !dead && !w.isCut(c.from, c.to)
}

func (c *wired) Write(p []byte) (int, error) {
	if !c.passes(p) {
		return len(p), nil
	}
	return c.Partial.Write(p)
}

func (c *wired) Try(p []byte) (int, error) {
	if !c.passes(p) {
		return len(p), nil
	}
	return c.Partial.Try(p)
}

func (c *wired) Wait(p []byte) (int, error) {
	if !c.passes(p) {
		return len(p), nil
	}
	return c.Partial.Wait(p)
}

func (c *wired) Close() error {
	c.network.mu.Lock()
	delete(c.network.conns, c)
	c.network.mu.Unlock()
	return c.Partial.Close()
}

// fill makes bytes that tell where they belong.
func fill(n int, seed uint64) []byte { return trial.Fill(n, seed) }

// pause waits in virtual time: the caller is in a bubble.
func pause(d time.Duration) { time.Sleep(d) }
