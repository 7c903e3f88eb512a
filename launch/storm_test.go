package launch

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
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

	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/internal/lab/search"
	"github.com/serry-dev/serry/secure"
	"github.com/serry-dev/serry/server"
	"github.com/serry-dev/serry/topo"
)

var (
	schedules = flag.Uint64("schedules", 150, "how many schedules of launchers to play")
	firstSeed = flag.Uint64("first", 1, "the seed of the first")
)

// TestLaunchersInTheStorm plays seeded schedules of whole jobs in virtual time: launchers on one to four
// hosts, with spares, whose loops, crews, plans and meeting are the real ones, over processes, pipes,
// services and a network that are not. Launchers and hosts are killed, hosts fall silent and come back,
// signals come, tasks fail, ignore signals and leave processes behind, and displays stand still.
func TestLaunchersInTheStorm(t *testing.T) {
	clause.Cite(t, "C-LOST-1", "C-LOST-5", "A-SIDE-19")
	begun := time.Now()
	n := min(*schedules, search.Pick(*schedules, 40))
	if testing.Short() {
		n = min(n, 30)
	}
	if seed, err := searchStorm(t, 0, *firstSeed, n); err != nil {
		t.Fatalf("schedule %d: %v\nto repeat it: go test ./launch -run TestLaunchersInTheStorm -first %d -schedules 1 -count 20", seed, err, seed)
	}
	t.Logf("%d schedules from %d on, %v each", n, *firstSeed, (time.Since(begun) / time.Duration(n)).Round(time.Microsecond))
}

// A storm that finds nothing may be one that cannot.
func TestStormFindsPlantedFaults(t *testing.T) {
	if testing.Short() {
		t.Skip("it plays hundreds of schedules")
	}
	const enough = 100_000 // the rarest are found in one of about 1,500, and which ones is for the scheduler to say
	for name, fault := range map[string]planted{
		"a lost host is charged for each task":        chargeEachTask,
		"notes are written by the loop":               notesInline,
		"an attempt does not wait for the one before": attemptsOverlap,
		"a follower told to end starts tasks":         startAfterEnd,
		"the last failure is named first":             lastIsFirst,
		"a task that was cut short has done its work": cutShortIsWell,
		"a hello counts after its sender is gone":     unseenHello,
		"all attempts have one secret":                oneSecret,
		"a traceback alone is a failure":              tracebackFails,
	} {
		t.Run(name, func(t *testing.T) {
			seed, err := searchStorm(t, fault, *firstSeed, enough)
			if err == nil {
				t.Fatalf("not found in %d schedules", enough)
			}
			t.Logf("found after %d schedules: %.300v", seed-*firstSeed+1, err)
		})
	}
}

// searchStorm plays schedules, as many at a time as there are processors, and returns one that fails.
func searchStorm(t *testing.T, fault planted, from, n uint64) (seed uint64, err error) {
	t.Helper()
	var next, stop atomic.Uint64
	next.Store(from)
	stop.Store(from + n)
	var mu sync.Mutex
	t.Run("play", func(t *testing.T) {
		for range runtime.GOMAXPROCS(0) {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				for s := next.Add(1) - 1; s < stop.Load(); s = next.Add(1) - 1 {
					if e := playStorm(t, s, fault); e != nil {
						stop.Store(0)
						mu.Lock()
						if err == nil || s < seed {
							seed, err = s, e
						}
						mu.Unlock()
					}
				}
			})
		}
	})
	return seed, err
}

func playStorm(t *testing.T, seed uint64, fault planted) (err error) {
	watchdog := time.AfterFunc(time.Minute, func() { fmt.Fprintf(os.Stderr, "schedule %d hangs\n", seed) })
	defer watchdog.Stop()
	synctest.Test(t, func(*testing.T) {
		w := newStorm(seed, fault)
		w.play()
		err = w.check()
	})
	return err
}

// A stormy world is one schedule: what goes wrong is drawn from its seed, before anything runs.
type stormy struct {
	*sky
	cfg    Config
	gentle bool       // tasks do not fail, and save when they are told to end
	draw   *rand.Rand // of the schedule; used before anything runs

	nodes  []*stormNode // every launcher that was ever started
	faults []fault

	seen struct {
		sync.Mutex
		bad     []string            // what must not be
		opened  map[int]*skyService // by attempt
		dice    *rand.Rand          // of processes and the network
		signals []sentSignal
		secrets map[int]string // by attempt
	}
}

// A fault is something that happens to a node at a time.
type fault struct {
	at      time.Duration // since the start; or
	step    int64         // when bytes have moved from and to the node so many times
	reached chan struct{} // closed then
	kind    string        // kill: of a launcher; cut: its host falls silent; signal; stall: of its display
	node    int
	sig     syscall.Signal
	lasts   time.Duration // of a stall, or until a killed launcher is started again; 0: never
}

type sentSignal struct {
	node *stormNode
	at   time.Time
	sig  syscall.Signal
}

// A stormNode is one life of a launcher.
type stormNode struct {
	number  int
	host    *skyHost
	job     *Job
	report  Report
	killed  atomic.Bool  // its launcher or its host was
	retired atomic.Bool  // it was told to end
	told    atomic.Int64 // when, in nanoseconds; or 0
	display *stormDisplay
	ended   chan struct{}
}

func newStorm(seed uint64, f planted) *stormy {
	d := rand.New(rand.NewPCG(seed, 1))
	w := &stormy{sky: newSky(), draw: d}
	w.seen.opened = make(map[int]*skyService)
	w.seen.dice = rand.New(rand.NewPCG(seed, 2))
	w.seen.secrets = make(map[int]string)
	w.cfg = Config{
		Command: itself, Tasks: 1 + d.IntN(3), Nodes: 1 + d.IntN(4), Env: []string{"HOME=/"}, Devices: []int{},
		Restart: []Restart{RestartNever, RestartFailed, RestartAll, RestartAll}[d.IntN(4)], MaxRestarts: d.IntN(5),
		Recoverable: d.IntN(3) == 0, Grace: time.Duration(1+d.IntN(10)) * time.Second, Identity: &topo.TaskRecord{},
		Service: server.Config{Cluster: coord.Config{RegisterTimeout: time.Minute}},
	}
	w.cfg.planted = f
	if w.cfg.Nodes > 1 {
		w.cfg.Spares, w.cfg.Coordinator = d.IntN(2), "first:1"
	}
	w.sky.script = w.task
	w.sky.begun = w.starting
	w.sky.moved = w.moved
	w.sky.delay = func() time.Duration { return time.Duration(w.roll(20)) * time.Millisecond }
	slow := d.IntN(4) == 0
	w.sky.service = func(attempt int) (service, error) {
		<-time.After(time.Duration(w.roll(50)) * time.Millisecond)
		s := &skyService{at: fmt.Sprintf("first:%d", 1000+attempt), tasks: w.cfg.total()}
		w.seen.Lock()
		w.seen.opened[attempt] = s
		w.seen.Unlock()
		if slow {
			s.slow = func() <-chan struct{} {
				c := make(chan struct{})
				w.done.Go(func() {
					<-time.After(time.Duration(w.roll(600)) * time.Millisecond)
					close(c)
				})
				return c
			}
		}
		return s, nil
	}
	w.plan()
	w.gentle = d.IntN(4) == 0
	return w
}

// plan draws what goes wrong.
func (w *stormy) plan() {
	all := w.cfg.nodes() + w.cfg.Spares
	for range w.draw.IntN(6) {
		f := fault{at: time.Duration(w.draw.IntN(25_000)) * time.Millisecond, node: w.draw.IntN(all)}
		if w.draw.IntN(2) == 0 {
			f.at, f.step, f.reached = 0, 1+w.draw.Int64N([]int64{12, 60}[w.draw.IntN(2)]), make(chan struct{}) // the first dozen are its arrival
		}
		switch k := w.draw.IntN(10); {
		case k < 4 && f.node > 0:
			f.kind = []string{"kill", "cut"}[w.draw.IntN(2)]
			if w.draw.IntN(2) == 0 {
				f.lasts = time.Duration(w.draw.IntN(20_000)) * time.Millisecond
			}
		case k < 1:
			f.kind = "kill" // of the first launcher ends the job
		case k < 6:
			f.kind, f.sig = "signal", []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGUSR1}[w.draw.IntN(3)]
		default:
			f.kind, f.lasts = "stall", time.Duration(w.draw.Int64N(int64(stallMost)))
		}
		w.faults = append(w.faults, f)
	}
}

// roll draws a number below n while things run.
func (w *stormy) roll(n int) int {
	w.seen.Lock()
	defer w.seen.Unlock()
	return w.seen.dice.IntN(n)
}

func (w *stormy) wrong(format string, args ...any) {
	w.seen.Lock()
	defer w.seen.Unlock()
	w.seen.bad = append(w.seen.bad, fmt.Sprintf(format, args...))
}

// stallMost is how long a display stands still at most.
const stallMost = 8 * time.Second

// stormPatience is how long, in virtual time, a job may take after the last fault.
const stormPatience = 20 * time.Minute

// play runs the schedule to its end.
func (w *stormy) play() {
	var running sync.WaitGroup
	all := w.cfg.nodes() + w.cfg.Spares
	present := make([]*stormNode, all)
	var mu sync.Mutex
	launch := func(number int) {
		n := w.start(number, &running)
		mu.Lock()
		present[number] = n
		mu.Unlock()
	}
	for number := range all {
		if wait := w.draw.IntN(3000); number > 0 && wait > 500 {
			running.Go(func() {
				<-time.After(time.Duration(wait) * time.Millisecond)
				launch(number)
			})
			continue
		}
		launch(number)
	}
	for _, f := range w.faults {
		running.Go(func() {
			n := w.await(f, func() *stormNode {
				mu.Lock()
				defer mu.Unlock()
				return present[f.node]
			})
			if n == nil || n.killed.Load() {
				return
			}
			w.strike(n, f)
			if f.lasts > 0 && (f.kind == "kill" || f.kind == "cut") {
				<-time.After(f.lasts)
				launch(f.node)
			}
		})
	}
	finished := make(chan struct{})
	go func() {
		running.Wait()
		close(finished)
	}()
	select {
	case <-finished:
	case <-time.After(stormPatience):
		w.wrong("no end after %v: %s", stormPatience, w.standing())
		w.abort(finished)
	}
	<-time.After(stallMost) // a display may still stand still
	w.done.Wait()
}

// await waits for the moment of a fault, and returns the launcher that it is for, or nil.
func (w *stormy) await(f fault, present func() *stormNode) *stormNode {
	if f.step == 0 {
		<-time.After(f.at)
		return present()
	}
	select {
	case <-f.reached:
		return present()
	case <-time.After(time.Minute): // it may never be
		return nil
	}
}

// moved counts the steps of a host.
func (w *stormy) moved(h *skyHost) {
	at := h.moves.Add(1)
	for _, f := range w.faults {
		if f.step == at && strings.HasPrefix(h.name, fmt.Sprintf("%d.", f.node)) {
			w.seen.Lock()
			select {
			case <-f.reached: // by an earlier launcher of the node
			default:
				close(f.reached)
			}
			w.seen.Unlock()
		}
	}
}

// abort ends what hangs, so that the bubble can end.
func (w *stormy) abort(finished <-chan struct{}) {
	for {
		for _, n := range w.launchers() {
			n.display.lift()
			n.host.kill(false)
			if n.job != nil {
				for range 3 {
					select {
					case n.job.inbox <- signalled{syscall.SIGTERM}:
					case <-time.After(time.Minute):
					}
				}
			}
		}
		select {
		case <-finished:
			return
		case <-time.After(time.Hour):
			panic("cannot be ended: " + w.standing())
		}
	}
}

func (w *stormy) launchers() []*stormNode {
	w.seen.Lock()
	defer w.seen.Unlock()
	return slices.Clone(w.nodes)
}

func (w *stormy) standing() string {
	var b strings.Builder
	for _, n := range w.launchers() {
		select {
		case <-n.ended:
			continue
		default:
		}
		fmt.Fprintf(&b, "launcher %d (killed %v) runs; ", n.number, n.killed.Load())
	}
	for _, p := range w.processes() {
		if p.running() {
			task, attempt, life := p.seat()
			fmt.Fprintf(&b, "task %d of attempt %d, life %d, runs on %s; ", task, attempt, life, p.host.name)
		}
	}
	return b.String()
}

// start starts a launcher.
func (w *stormy) start(number int, running *sync.WaitGroup) *stormNode {
	w.seen.Lock()
	n := &stormNode{number: number, host: w.host(fmt.Sprintf("%d.%d", number, len(w.nodes))), display: &stormDisplay{}, ended: make(chan struct{})}
	w.nodes = append(w.nodes, n)
	w.seen.Unlock()
	cfg := w.cfg
	cfg.Node, cfg.Display = number, n.display
	j, err := start(cfg, n.host)
	if err != nil {
		n.report.Err = err
		close(n.ended)
		w.wrong("launcher %d does not start: %v", number, err)
		return n
	}
	n.job = j
	running.Go(func() {
		n.report = j.Wait()
		close(n.ended)
	})
	return n
}

// strike lets a fault happen.
func (w *stormy) strike(n *stormNode, f fault) {
	switch f.kind {
	case "kill", "cut":
		n.killed.Store(true)
		n.host.kill(f.kind == "cut")
	case "signal":
		if f.sig != syscall.SIGUSR1 {
			n.retired.Store(true)
			n.told.CompareAndSwap(0, time.Now().UnixNano())
		}
		w.seen.Lock()
		w.seen.signals = append(w.seen.signals, sentSignal{n, time.Now(), f.sig})
		w.seen.Unlock()
		if n.job != nil && !n.killed.Load() {
			n.job.Signal(f.sig)
		}
	case "stall":
		n.display.stall(f.lasts)
	}
}

// task plays a process.
func (w *stormy) task(p *actorProcess) {
	runs := time.Duration(w.roll(20_000)) * time.Millisecond
	outcome := Cause{}
	switch k := w.roll(100); {
	case k < 15:
		outcome = Cause{Code: 1 + w.roll(100)}
	case k < 20:
		outcome = Cause{Signal: []syscall.Signal{syscall.SIGSEGV, syscall.SIGABRT}[w.roll(2)]}
	}
	if w.roll(8) == 0 {
		p.leave(w.roll(2) == 0, time.Duration(w.roll(3000))*time.Millisecond)
	}
	for range w.roll(5) {
		p.tell()
	}
	end := time.NewTimer(runs)
	defer end.Stop()
	temper := w.roll(10)
	raises := w.roll(15) == 0 && !w.cfg.Recoverable && w.cfg.Restart != RestartFailed // else tasks leave alone
	if w.roll(10) == 0 {
		p.raise("OSError: tried again")
	}
	if w.gentle {
		outcome, temper, raises = Cause{}, 5, false
	}
	var leave <-chan time.Time
	var left <-chan struct{}
	for {
		select {
		case <-end.C:
			if raises {
				p.raise("ValueError: bad sample 17")
				leave = time.After(time.Duration(w.roll(8000)) * time.Millisecond) // what it does at exit
				continue
			}
			p.tell()
			p.end(outcome, byItself)
			return
		case <-leave:
			left = w.leave(p)
		case <-left:
			p.end(Cause{Code: 1}, byItself)
			return
		case <-p.dead:
			return
		case sig := <-p.signals:
			if sig == syscall.SIGUSR1 {
				continue
			}
			takes := time.Duration(w.roll(15_000)) * time.Millisecond
			switch {
			case temper < 5: // it has no handler
				p.end(Cause{Signal: sig}, bySignal)
				return
			case temper < 7: // it saves, and ends well or not
				select {
				case <-time.After(takes):
					p.end(Cause{Code: (temper - 5) * 3}, bySignal)
				case <-p.dead:
				}
				return
			}
		}
	}
}

// leave is the shutdown call of a process that has raised an exception.
func (w *stormy) leave(p *actorProcess) (left <-chan struct{}) {
	task, attempt, _ := p.seat()
	w.seen.Lock()
	defer w.seen.Unlock()
	p.exception, p.left = "ValueError: bad sample 17", time.Now()
	return w.seen.opened[attempt].leave(task)
}

// starting checks what must hold when a process is started: nothing of an older attempt and no other life
// of the same task runs where a launcher lives.
func (w *stormy) starting(p *actorProcess) {
	task, attempt, life := p.seat()
	w.sky.mu.Lock()
	all := slices.Clone(w.all)
	w.sky.mu.Unlock()
	w.checkSecret(p, attempt)
	if told := w.node(p).told.Load(); told != 0 && told < time.Now().UnixNano() {
		w.wrong("task %d of attempt %d, life %d, is started on %s, which was told to end %v before", task, attempt, life, p.host.name, time.Duration(time.Now().UnixNano()-told))
	}
	for _, other := range all {
		if other == p || !other.running() || other.host.dead.Load() {
			continue
		}
		t, a, l := other.seat()
		if a < attempt || t == task {
			w.wrong("task %d of attempt %d, life %d, is started on %s while task %d of attempt %d, life %d, runs on %s",
				task, attempt, life, p.host.name, t, a, l, other.host.name)
		}
	}
}

// checkSecret: a process has the secret of its attempt, which no other attempt has. The lock of its host
// is held.
func (w *stormy) checkSecret(p *actorProcess, attempt int) {
	secret := p.host.files[p.env[secure.EnvSecretFile]]
	w.seen.Lock()
	defer w.seen.Unlock()
	w.seen.secrets[attempt] = cmp.Or(w.seen.secrets[attempt], secret)
	for a, other := range w.seen.secrets {
		if secret == "" || (secret == other) != (a == attempt) {
			w.seen.bad = append(w.seen.bad, fmt.Sprintf("a task of attempt %d on %s has no secret, or that of attempt %d", attempt, p.host.name, a))
		}
	}
}

// A stormDisplay stands still for a while now and then, and counts.
type stormDisplay struct {
	mu      sync.Mutex
	still   time.Time // until then
	over    bool
	shown   int
	missing int
	notes   []string
}

func (d *stormDisplay) stall(lasts time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.still = time.Now().Add(lasts)
}

func (d *stormDisplay) lift() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.over = true
}

func (d *stormDisplay) wait() {
	d.mu.Lock()
	for !d.over && time.Now().Before(d.still) {
		left := time.Until(d.still)
		d.mu.Unlock()
		<-time.After(left)
		d.mu.Lock()
	}
	d.mu.Unlock()
}

func (d *stormDisplay) Line(int, Stream, []byte) {
	d.wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.shown++
}

func (d *stormDisplay) Note(n Note) {
	d.wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	var lost int
	if _, err := fmt.Sscanf(n.Text, "%d line", &lost); err == nil && strings.Contains(n.Text, "not shown here") {
		d.missing += lost
	}
	d.notes = append(d.notes, n.Text)
}

// check says what was wrong.
func (w *stormy) check() error {
	for _, p := range w.processes() {
		if p.running() {
			task, attempt, life := p.seat()
			w.wrong("task %d of attempt %d, life %d, outlives its job on %s", task, attempt, life, p.host.name)
		}
	}
	for _, n := range w.launchers() {
		if !n.killed.Load() && n.host.orphans() {
			w.wrong("processes that tasks left behind outlive the job on %s", n.host.name)
		}
		if !n.killed.Load() && len(n.host.files) > 0 {
			w.wrong("secrets outlive the job on %s: %v", n.host.name, sortedKeys(n.host.files))
		}
		if !n.killed.Load() && !n.job.here.mu.hurried { // who is in a hurry does not wait for a display
			w.checkLines(n)
		}
	}
	w.checkSignals()
	if first := w.launchers()[0]; !first.killed.Load() {
		w.checkReport(&first.report)
	}
	if w.seen.bad == nil {
		return nil
	}
	return errors.New(w.describe())
}

func (w *stormy) describe() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n%d tasks on each of %d nodes, %d spares, restart %s up to %d times, recoverable %v, grace %v\n",
		strings.Join(w.seen.bad, "\n"), w.cfg.Tasks, w.cfg.nodes(), w.cfg.Spares, w.cfg.Restart, w.cfg.MaxRestarts, w.cfg.Recoverable, w.cfg.Grace)
	for _, f := range w.faults {
		fmt.Fprintf(&b, "at %v %s node %d %d %v\n", f.at, f.kind, f.node, f.sig, f.lasts)
	}
	begun := w.processes()[0].since
	for _, p := range w.processes() {
		task, attempt, life := p.seat()
		fmt.Fprintf(&b, "task %d attempt %d life %d on %s: %v to %v, %v by %s\n", task, attempt, life, p.host.name, p.since.Sub(begun), p.mu.at.Sub(begun), p.mu.cause, p.mu.by)
	}
	for _, n := range w.launchers() {
		fmt.Fprintf(&b, "launcher %d: %+v\n  %s\n", n.number, n.report, strings.Join(n.display.notes, "\n  "))
	}
	return b.String()
}

// checkLines: every line that a process wrote is shown or counted as missing.
func (w *stormy) checkLines(n *stormNode) {
	said, tried := 0, 0
	for _, p := range w.processes() {
		if p.host == n.host {
			said, tried = said+p.said, tried+p.tried
		}
	}
	if got := n.display.shown + n.display.missing; got < said || got > tried {
		w.wrong("launcher %d: %d lines shown, %d said to be missing; want %d to %d in all", n.number, n.display.shown, n.display.missing, said, tried)
	}
}

// checkSignals: a signal reaches the tasks of the host in the moment in which it comes.
func (w *stormy) checkSignals() {
	for _, s := range w.seen.signals {
		for _, p := range w.processes() {
			if p.host != s.node.host || s.node.killed.Load() || !p.since.Before(s.at) || !p.mu.at.After(s.at) {
				continue
			}
			if !slices.ContainsFunc(p.mu.told, func(t toldSignal) bool { return t.sig == s.sig && t.at.Equal(s.at) }) {
				task, _, _ := p.seat()
				w.wrong("signal %d at %v did not reach task %d on %s at once", s.sig, s.at, task, p.host.name)
			}
		}
	}
}

// checkReport compares what the first launcher says with what happened.
func (w *stormy) checkReport(r *Report) {
	if r.Err != nil && !strings.Contains(r.Err.Error(), "no host came") {
		w.wrong("the launcher failed: %v", r.Err)
	}
	if r.Restarts > w.cfg.MaxRestarts || w.cfg.Restart == RestartAll && (r.Restarts < r.Attempts-1 || r.Restarts > r.Attempts) {
		w.wrong("%d restarts in %d attempts", r.Restarts, r.Attempts)
	}
	if n := w.causes(); r.Restarts > n {
		w.wrong("%d restarts were charged for %d causes", r.Restarts, n)
	}
	last := w.last(r.Attempts)
	well := 0
	for _, p := range last {
		if p.mu.cause.Well() {
			well++
		}
	}
	switch {
	case r.Well() && r.Interrupted == 0 && r.Restarts < w.cfg.MaxRestarts && w.anyCutShort(last):
		w.wrong("the report says that all is well, but a task ended because its host was told to")
	case r.Well() && well != w.cfg.total():
		w.wrong("the report says that all is well, but only %d of %d tasks ended well", well, w.cfg.total())
	case !r.Well() && r.First == nil && r.Interrupted == 0 && r.Err == nil:
		w.wrong("the report names no cause: %+v", r)
	case r.First != nil:
		w.checkRoot(r)
	}
	if r.Interrupted != 0 && r.First == nil && r.Err == nil && !r.Well() && r.ExitCode() != signalBase+int(r.Interrupted) {
		w.wrong("exit code %d after signal %d", r.ExitCode(), r.Interrupted)
	}
}

// last returns the last process of each task in an attempt.
func (w *stormy) last(attempt int) map[int]*actorProcess {
	of := make(map[int]*actorProcess)
	for _, p := range w.processes() { // in the order of their starts
		if task, a, _ := p.seat(); a == attempt {
			of[task] = p
		}
	}
	return of
}

// anyCutShort says whether one of these processes ended well only because its host was told to end, in a
// job that starts such tasks again.
func (w *stormy) anyCutShort(last map[int]*actorProcess) bool {
	for _, p := range last {
		if w.cutShort(p) {
			return true
		}
	}
	return false
}

func (w *stormy) cutShort(p *actorProcess) bool {
	return w.cfg.Restart != RestartNever && p.host != w.launchers()[0].host && w.node(p).retired.Load() &&
		p.mu.cause.Well() && p.mu.by == bySignal
}

// node is the launcher that started a process.
func (w *stormy) node(p *actorProcess) *stormNode {
	all := w.launchers()
	return all[slices.IndexFunc(all, func(n *stormNode) bool { return n.host == p.host })]
}

// genuine says whether a process failed by itself, and not because it was told to end.
func (w *stormy) genuine(p *actorProcess) bool {
	toEnd := func(t toldSignal) bool { return signalled{t.sig}.ends() && t.at.Before(failedAt(p)) }
	if p.exception != "" {
		return !slices.ContainsFunc(p.mu.told, toEnd)
	}
	return !p.mu.cause.Well() && p.mu.by == byItself && !slices.ContainsFunc(p.mu.told, toEnd)
}

// failedAt is when a process failed: when it ended, or was to be found to have raised an exception.
func failedAt(p *actorProcess) time.Time {
	if found := p.left.Add(leavePause); p.exception != "" && found.Before(p.mu.at) {
		return found
	}
	return p.mu.at
}

// causes counts what restarts may be charged for: every failure of a process by itself, and every host
// that was lost or told to end.
func (w *stormy) causes() int {
	n := 0
	for _, p := range w.processes() {
		if w.genuine(p) {
			n++
		}
	}
	for _, node := range w.launchers() {
		if node.killed.Load() || node.retired.Load() {
			n++
		}
	}
	return n
}

// rootSlack is by how much a failure on another host may be seen later than one here.
const rootSlack = 2 * time.Second

// checkRoot checks that the failure which is named first is one, and that none was earlier.
func (w *stormy) checkRoot(r *Report) {
	var root *actorProcess
	for _, p := range w.processes() {
		if task, attempt, life := p.seat(); task == r.First.Task && attempt == r.First.Attempt && life == r.First.Life {
			root = p
		}
	}
	if root == nil {
		if !strings.Contains(r.First.Cause.Text, "host") && !(r.First.Cause.Signal != 0) {
			w.wrong("the first failure is one of a process that never ran: %+v", r.First)
		}
		return
	}
	n := w.node(root)
	lost := strings.HasPrefix(r.First.Cause.Text, "its host is lost")
	cut := strings.Contains(r.First.Cause.Text, "its host was told to end")
	raised := root.exception != "" && r.First.Cause.Text == raisedWords+root.exception
	switch {
	case lost && !n.killed.Load() && !n.retired.Load():
		w.wrong("%v: its host is not lost", r.First)
	case cut && (!root.mu.cause.Well() || !n.retired.Load()):
		w.wrong("%v: it was not", r.First)
	case !lost && !cut && !raised && r.First.Cause != root.mu.cause:
		w.wrong("%v: it ended by %v", r.First, root.mu.cause)
	case !lost && !w.genuine(root) && !n.retired.Load():
		w.wrong("%v: it was told to end", r.First)
	}
	want := root.mu.cause.ExitCode()
	if raised {
		want = 1
	}
	if !lost && !cut && r.ExitCode() != want {
		w.wrong("exit code %d; want %d", r.ExitCode(), want)
	}
	if w.cfg.Restart == RestartFailed && w.cfg.MaxRestarts > 0 {
		return // which failures were made good is not known here
	}
	for _, p := range w.last(r.First.Attempt) {
		if w.genuine(p) && !w.node(p).killed.Load() && failedAt(p).Before(failedAt(root).Add(-rootSlack)) {
			task, _, _ := p.seat()
			w.wrong("%v is named first, but task %d had failed %v before", r.First, task, failedAt(root).Sub(failedAt(p)))
		}
	}
}
