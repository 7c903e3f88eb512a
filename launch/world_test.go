package launch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/client"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/diagnose"
	"github.com/serry-dev/serry/goodput"
	"github.com/serry-dev/serry/internal/pystack"
	"github.com/serry-dev/serry/secure"
	"github.com/serry-dev/serry/transfer"
	"github.com/serry-dev/serry/wire"
)

// A sky is a world of several hosts in virtual time, for use inside a synctest bubble. Hosts have
// processes that do what a test says, and can be killed or cut off.
type sky struct {
	programs map[int]string                   // that tasks run, or nil; set before they start
	presses  func(task int) diagnose.Pressure // on the hosts of tasks, or nil

	script  func(*actorProcess) // plays a process, on a goroutine of its own
	service func(attempt int) (service, error)
	delay   func() time.Duration // of bytes on the network, or nil

	mu       sync.Mutex
	ports    map[string]*port
	all      []*actorProcess // that were ever started
	begun    func(*actorProcess)
	straying []stray        // that a launcher will find
	moved    func(*skyHost) // is called when bytes move from or to a host, or nil
	pids     int
	done     sync.WaitGroup // everything that plays
}

func newSky() *sky { return &sky{ports: make(map[string]*port)} }

// A skyHost is one machine of a sky, as its launcher sees it.
type skyHost struct {
	*sky
	name string

	dead   atomic.Bool  // as down, to be read without the lock
	moves  atomic.Int64 // how often bytes have moved from or to it
	mu     sync.Mutex
	down   bool // its launcher is dead, and all processes with it
	living map[int]*actorProcess
	cables map[*cable]bool
	left   map[*orphan]bool  // processes that have left their group
	files  map[string]string // secrets, by path
	run    string
	sweeps func()      // is called before a sweep, or nil
	starts func(n int) // is called before the nth process is started, or nil
}

func (s *sky) host(name string) *skyHost {
	return &skyHost{sky: s, name: name, living: make(map[int]*actorProcess), cables: make(map[*cable]bool), left: make(map[*orphan]bool), files: make(map[string]string)}
}

// An orphan is a process that has left the group of its task.
type orphan struct {
	mark  mark
	deaf  bool          // to SIGTERM
	takes time.Duration // to end after it
}

var errDown = errors.New("the host is down")

func (h *skyHost) kernel(_ Config, run string) (kernel, error) {
	h.run = run
	return h, nil
}

func (h *skyHost) service(cfg Config, _ *crew, attempt int) (service, error) {
	if h.sky.service != nil {
		return h.sky.service(attempt)
	}
	return &skyService{at: fmt.Sprintf("first:%d", 1000+attempt)}, nil
}

// kill ends the host: its processes, its launcher's reach, and its connections, which close or fall
// silent.
func (h *skyHost) kill(silent bool) {
	h.mu.Lock()
	h.down = true
	h.dead.Store(true)
	living := h.living
	h.living = make(map[int]*actorProcess)
	clear(h.left)
	cables := h.cables
	h.cables = make(map[*cable]bool)
	h.mu.Unlock()
	for _, p := range living {
		p.end(Cause{Signal: syscall.SIGKILL}, byHost)
	}
	for c := range cables {
		c.sever(silent)
	}
}

// processes lists all that were ever started.
func (s *sky) processes() []*actorProcess {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.all)
}

func (h *skyHost) start(b processSpec) (child, error) {
	if h.starts != nil {
		h.starts(len(h.processes()) + 1)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.down {
		return nil, errDown
	}
	h.sky.mu.Lock()
	h.pids++
	p := &actorProcess{host: h, number: h.pids, env: environ(b.env), since: time.Now(), dead: make(chan struct{}), empty: make(chan struct{}), signals: make(chan syscall.Signal, 1024)}
	h.all = append(h.all, p)
	begun := h.begun
	h.sky.mu.Unlock()
	for i := range p.ours {
		p.ours[i], p.theirs[i] = net.Pipe()
	}
	h.living[p.number] = p
	if begun != nil {
		begun(p)
	}
	h.done.Go(func() { h.script(p) })
	return p, nil
}

func environ(list []string) map[string]string {
	m := make(map[string]string)
	for _, v := range list {
		if key, value, _ := strings.Cut(v, "="); strings.HasPrefix(key, "SERRY_") {
			m[key] = value
		}
	}
	return m
}

func (h *skyHost) sweep(m mark, grace time.Duration, hurry <-chan struct{}) (n int, err error) {
	if h.sweeps != nil {
		h.sweeps()
	}
	deadline := time.NewTimer(grace)
	defer deadline.Stop()
	for {
		h.mu.Lock()
		var wait time.Duration
		left := 0
		for o := range h.left {
			if !o.has(m) {
				continue
			}
			left++
			if !o.deaf {
				wait = max(wait, o.takes)
			} else {
				wait = max(wait, grace)
			}
		}
		n = max(n, left)
		h.mu.Unlock()
		if left == 0 {
			return n, nil
		}
		ended := time.NewTimer(wait)
		select {
		case <-ended.C:
		case <-deadline.C:
		case <-hurry:
		}
		ended.Stop()
		h.mu.Lock()
		for o := range h.left {
			if o.has(m) {
				delete(h.left, o)
			}
		}
		h.mu.Unlock()
	}
}

func (o *orphan) has(m mark) bool {
	for _, v := range m {
		found := false
		for _, own := range o.mark {
			found = found || own == v
		}
		if !found {
			return false
		}
	}
	return true
}

func (h *skyHost) orphans() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.left) > 0
}

func (h *skyHost) keepSecret(attempt int, s secure.Secret) (path string, err error) {
	if err := s.Check(); err != nil {
		return "", err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	path = fmt.Sprintf("/%s/%d", h.name, attempt)
	if has(h.files, path) {
		return "", fs.ErrExist
	}
	h.files[path] = string(s)
	return path, nil
}

func (h *skyHost) dropSecret(path string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !has(h.files, path) {
		return fs.ErrNotExist
	}
	delete(h.files, path)
	return nil
}

func (h *skyHost) strays(attempt int) []stray {
	h.sky.mu.Lock()
	defer h.sky.mu.Unlock()
	found := slices.DeleteFunc(slices.Clone(h.straying), func(p stray) bool { return p.Attempt >= attempt })
	h.straying = nil
	return found
}

func (h *skyHost) memory() *memoryWatch { return new(memoryWatch) }

// keepSteps keeps none: an actor writes no files.
func (h *skyHost) keepSteps(lifetime) (path string, err error) { return "", nil }

// keepShim has none: an actor is no Python.
func (h *skyHost) keepShim() (dir string, err error) { return "", nil }

func (h *skyHost) dropShim(string) error { return nil }

// probe finds an actor. One without a part of its own always moves.
func (h *skyHost) probe(pid int, _ *memoryWatch) prober {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.living[pid]
}

// pressure is what a test says of the host of a process.
func (h *skyHost) pressure(pid int) diagnose.Pressure {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.sky.presses == nil || h.living[pid] == nil {
		return diagnose.Pressure{}
	}
	task, _, _ := h.living[pid].seat()
	return h.sky.presses(task)
}

func (h *skyHost) stacks(int) (pystack.Stacks, error) { return pystack.Stacks{}, pystack.ErrNotPython }

// attend answers nothing: a sky has no service that asks.
func (h *skyHost) attend(string, client.Attendant, <-chan storedValue) (stop func()) {
	return func() {}
}

func (h *skyHost) unguarded() <-chan struct{} { return nil }

func (h *skyHost) close() {}

// leave adds an orphan of a process.
func (p *actorProcess) leave(deaf bool, takes time.Duration) {
	p.host.mu.Lock()
	defer p.host.mu.Unlock()
	if !p.host.down {
		p.host.left[&orphan{mark: mark{EnvRun + "=" + p.env[EnvRun], EnvTask + "=" + p.env[EnvTask]}, deaf: deaf, takes: takes}] = true
	}
}

// An actorProcess is a process of a sky.
type actorProcess struct {
	host    *skyHost
	number  int
	env     map[string]string
	since   time.Time
	signals chan syscall.Signal // that it got, but for SIGKILL and SIGCONT
	ours    [2]net.Conn
	theirs  [2]net.Conn
	dead    chan struct{} // closed when it has ended
	empty   chan struct{} // closed when it was reaped
	said    int           // lines that were read
	tried   int           // lines

	exception string    // that it raised
	left      time.Time // when it wanted to leave after that; zero: it never did

	mu struct {
		sync.Mutex
		ended bool
		cause Cause
		by    string    // who ended it
		at    time.Time // when
		told  []toldSignal
		part  string // function that it stands in; empty: it moves
	}
}

// A toldSignal is one that a process got.
type toldSignal struct {
	sig syscall.Signal
	at  time.Time
}

// Who ends a process.
const (
	byItself = "itself"
	bySignal = "a signal"
	byHost   = "its host"
)

// end ends the process, if it runs.
func (p *actorProcess) end(c Cause, by string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.ended {
		return
	}
	p.mu.ended, p.mu.cause, p.mu.by, p.mu.at = true, c, by, time.Now()
	for _, w := range p.theirs {
		w.Close()
	}
	close(p.dead)
}

func (p *actorProcess) running() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.mu.ended
}

func (p *actorProcess) pid() int { return p.number }

func (p *actorProcess) outputs() [2]pipe { return [2]pipe{endOfFile{p.ours[0]}, endOfFile{p.ours[1]}} }

// endOfFile is a pipe of memory that ends as one of the kernel does.
type endOfFile struct{ net.Conn }

func (e endOfFile) Read(b []byte) (int, error) {
	n, err := e.Conn.Read(b)
	if errors.Is(err, io.ErrClosedPipe) {
		err = io.EOF
	}
	return n, err
}

func (p *actorProcess) await() error {
	<-p.dead
	return nil
}

func (p *actorProcess) cause() (Cause, error) {
	p.host.mu.Lock()
	delete(p.host.living, p.number)
	p.host.mu.Unlock()
	close(p.empty)
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.cause, nil
}

func (p *actorProcess) signal(sig syscall.Signal) {
	switch sig {
	case syscall.SIGKILL:
		p.end(Cause{Signal: sig}, bySignal)
	case syscall.SIGCONT:
	default:
		p.mu.Lock()
		p.mu.told = append(p.mu.told, toldSignal{sig, time.Now()})
		p.mu.Unlock()
		select {
		case p.signals <- sig:
		default:
		}
	}
}

// look and waits are what an actor shows to a launcher that looks at it from outside.
func (p *actorProcess) look(bool) (diagnose.Sample, bool) {
	if p == nil || !p.running() {
		return diagnose.Sample{}, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.part == "" {
		return diagnose.Sample{State: "running", CPU: time.Since(p.since)}, true
	}
	return diagnose.Sample{State: "asleep", Stack: &diagnose.Stack{Frames: []diagnose.Frame{{Function: p.mu.part, File: "train.py", Line: 10}}, Doing: "asleep (futex)"}}, true
}

func (p *actorProcess) waits() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.part == "train_step" {
		return "Gloo all-reduce"
	}
	return ""
}

func (p *actorProcess) program() diagnose.Program {
	if p == nil {
		return diagnose.Program{}
	}
	task, _, _ := p.seat()
	return diagnose.Program{Name: p.host.programs[task]}
}

// sleeps lets the actor stand in a function from now on; empty: it moves.
func (p *actorProcess) sleeps(function string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.part = function
}

func (p *actorProcess) ending() bool             { return !p.running() }
func (p *actorProcess) emptied() <-chan struct{} { return p.empty }
func (p *actorProcess) release()                 {}

// say writes a line to stdout.
func (p *actorProcess) say(text string) error {
	_, err := io.WriteString(p.theirs[0], text+"\n")
	return err
}

// tell writes a line, and counts. Only the script of the process calls it.
func (p *actorProcess) tell() {
	p.tried++
	if p.say("a line") == nil {
		p.said++
	}
}

// raise writes a traceback to stderr, and counts.
func (p *actorProcess) raise(exception string) {
	for _, line := range []string{tracebackHeader, `  File "train.py", line 3, in <module>`, exception} {
		p.tried++
		if _, err := io.WriteString(p.theirs[1], line+"\n"); err == nil {
			p.said++
		}
	}
}

// seat is the place of the process in its job.
func (p *actorProcess) seat() (task, attempt, life int) {
	fmt.Sscan(p.env[EnvTask]+" "+p.env[EnvAttempt]+" "+p.env[EnvLife], &task, &attempt, &life)
	return task, attempt, life
}

// A port is where a launcher listens.
type port struct {
	host    *skyHost
	address string
	accept  chan net.Conn
	closed  chan struct{}
	once    sync.Once
}

func portOf(address string) string { return address[strings.LastIndexByte(address, ':'):] }

func (h *skyHost) listen(address string) (net.Listener, error) {
	h.sky.mu.Lock()
	defer h.sky.mu.Unlock()
	p := &port{host: h, address: address, accept: make(chan net.Conn), closed: make(chan struct{})}
	h.ports[portOf(address)] = p
	return p, nil
}

func (p *port) Accept() (net.Conn, error) {
	select {
	case c := <-p.accept:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *port) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *port) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

func (h *skyHost) connect(ctx context.Context, address string) (net.Conn, error) {
	h.sky.mu.Lock()
	p := h.ports[portOf(address)]
	h.sky.mu.Unlock()
	if p == nil || h.isDown() || p.host.isDown() {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	}
	c := &cable{between: [2]*skyHost{h, p.host}, silenced: make(chan struct{})}
	near, a := net.Pipe()
	b, far := net.Pipe()
	c.ends = [4]net.Conn{near, a, b, far}
	for _, end := range c.between {
		end.mu.Lock()
		end.cables[c] = true
		end.mu.Unlock()
	}
	select {
	case p.accept <- far:
	case <-p.closed:
		c.sever(false)
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	case <-ctx.Done():
		c.sever(false)
		return nil, ctx.Err()
	}
	h.done.Go(func() { c.pump(a, b, h.sky.delay) })
	h.done.Go(func() { c.pump(b, a, h.sky.delay) })
	return near, nil
}

func (h *skyHost) isDown() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.down
}

// A cable is a connection between two hosts.
type cable struct {
	between  [2]*skyHost
	ends     [4]net.Conn // near, its other end, the other end of far, far
	silenced chan struct{}
	once     sync.Once
}

// sever breaks a cable: both ends see it closed, or neither hears anything any more.
func (c *cable) sever(silent bool) {
	c.once.Do(func() {
		close(c.silenced)
		if !silent {
			for _, e := range c.ends {
				e.Close()
			}
		}
	})
}

// pump moves bytes one way.
func (c *cable) pump(from, to net.Conn, delay func() time.Duration) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			break
		}
		if delay != nil {
			<-time.After(delay())
		}
		if moved := c.between[0].moved; moved != nil {
			moved(c.between[0])
			moved(c.between[1])
		}
		select {
		case <-c.silenced:
			continue // swallowed
		default:
		}
		if _, err := to.Write(buf[:n]); err != nil {
			break
		}
	}
	from.Close()
	select {
	case <-c.silenced:
	default:
		to.Close()
	}
	for _, h := range c.between {
		h.mu.Lock()
		delete(h.cables, c)
		h.mu.Unlock()
	}
}

// A skyService is the service of an attempt.
type skyService struct {
	at     string
	slow   func() <-chan struct{} // fresh, or nil
	failed error
	closes func()
	tasks  int // that leave together; 0: each leaves alone

	mu      sync.Mutex
	said    []string
	leaving map[int]bool  // tasks at the shutdown barrier, and those that have ended
	opened  bool          // the barrier is
	over    chan struct{} // closed when the barrier has passed or failed

	published []byte // what the job published last

	tells func() []transfer.Report // what its processes say of their transfers, or nil
	asked int                      // how often they were asked that

	steps *wire.GoodputStatus // how its time was used, or nil
}

func (s *skyService) Exited(t serry.TaskID, cause string) {
	s.say(fmt.Sprint(t, " exited: ", cause))
	s.goes(t.Index, cause != "")
}

func (s *skyService) Lost(t serry.TaskID, why string) {
	s.say(fmt.Sprint(t, " lost: ", why))
	s.goes(t.Index, true)
}

// leave is the shutdown call of a task. It is answered when the channel is closed.
func (s *skyService) leave(task int) (answered <-chan struct{}) {
	over := s.goes(task, false)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opened = true
	return over
}

// goes lets a task count as one that is at the shutdown barrier, or fails the barrier.
func (s *skyService) goes(task int, fails bool) (over <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leaving == nil {
		s.leaving, s.over = make(map[int]bool), make(chan struct{})
	}
	s.leaving[task] = true
	if !s.passed() && (fails || len(s.leaving) >= s.tasks) {
		close(s.over)
	}
	return s.over
}

// passed needs mu.
func (s *skyService) passed() bool {
	select {
	case <-s.over:
		return true
	default:
		return false
	}
}

func (s *skyService) say(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.said = append(s.said, text)
}

func (s *skyService) view() coord.View {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := coord.View{Failure: s.failed, Service: 7}
	if !s.opened || s.passed() {
		return v
	}
	b := coord.BarrierView{ID: coord.ShutdownBarrierID(v.Service), Members: s.tasks, Arrived: len(s.leaving)}
	for task := range s.tasks {
		if !s.leaving[task] {
			b.Missing = append(b.Missing, worker(task))
		}
	}
	v.Barriers = append(v.Barriers, b)
	return v
}

func (s *skyService) news(time.Time, int) string { return "" }

func (s *skyService) lost() error { return nil }

func (s *skyService) fresh() <-chan struct{} {
	if s.slow == nil {
		return nil
	}
	return s.slow()
}

func (s *skyService) steady() time.Time { return time.Time{} }

func (s *skyService) settle() {}

func (s *skyService) publish(_ string, value []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.published = value
}

func (s *skyService) gather(_ context.Context, i wire.Inquiry) (g wire.Gathered, err error) {
	if i.Kind != wire.TransfersEvidence {
		return g, nil
	}
	s.mu.Lock()
	s.asked++
	tells := s.tells
	s.mu.Unlock()
	if tells == nil {
		return g, nil
	}
	for _, r := range tells() {
		body, err := json.Marshal(r)
		if err != nil {
			return g, err
		}
		g.Parts = append(g.Parts, wire.GatheredPart{Body: body})
	}
	return g, nil
}

func (s *skyService) used() *wire.GoodputStatus { return s.steps }

func (s *skyService) account() *goodput.Account { return nil }

func (s *skyService) address() string { return s.at }
func (s *skyService) String() string  { return "service on " + s.at }

func (s *skyService) close() error {
	if s.closes != nil {
		s.closes()
	}
	return nil
}
