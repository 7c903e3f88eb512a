package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/serry-dev/serry/internal/lab"
	"github.com/serry-dev/serry/launch"
)

var (
	drills     = flag.Uint64("drills", 6, "how many schedules of real launchers to play")
	firstDrill = flag.Uint64("first", 1, "the seed of the first")
)

// TestDrills plays seeded schedules with real processes: serry run on one to three "hosts" of this machine,
// spares among them, with small tasks. Launchers, tasks, guards and relays are killed at seeded steps,
// launchers stand still and are told to end, and what reads their output is slow, stops or ends. Package
// launch plays many more such schedules in virtual time; these ones have the kernel, pipes and signals.
func TestDrills(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds of real time")
	}
	lab.Clause(t, "C-LOST-1", "C-LOST-5", "A-SIDE-19")
	var next atomic.Uint64
	next.Store(*firstDrill)
	const atATime = 3
	for range atATime {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			for seed := next.Add(1) - 1; seed < *firstDrill+*drills; seed = next.Add(1) - 1 {
				if err := newDrill(t, seed).play(); err != nil {
					t.Errorf("schedule %d: %v\nto repeat it: go test ./cmd/serry -run TestDrills -first %d -drills 1 -count 10", seed, err, seed)
				}
			}
		})
	}
}

// A drill is one schedule.
type drill struct {
	// Drawn from the seed, then constant.
	t        *testing.T
	seed     uint64
	nodes    int
	tasks    int // on each node
	spares   int
	policy   launch.Restart
	restarts int
	joins    bool
	service  string // "" one of the job; "run": one that runs elsewhere, by the relays of serry run; "relay": by a relay of its own
	faults   []drillFault

	dir   string
	flags []string // of every launcher
	env   []string
	relay *exec.Cmd // or nil

	mu struct {
		sync.Mutex
		lives     []*drillLife // every process that came
		came      chan struct{}
		launchers []*drillLauncher
		killed    int // causes beside failures of tasks: launchers that were killed, stopped or told to end
		bad       []string
	}
}

// A drillFault happens after so many processes have come, and a while.
type drillFault struct {
	step    int
	after   time.Duration
	kind    string // kill, stop, TERM, INT: of a launcher; task, guard, relay: killed
	node    int
	restart bool // of a launcher that was killed
}

// A drillLife is one process of a task, or one that a task left behind.
type drillLife struct {
	word
	killed bool // by the test
	said   *word
	lines  int
	gone   chan struct{}
}

func (l *drillLife) alive() bool {
	since, alive := startOf(l.Pid)
	return alive && since == l.Since
}

// A drillLauncher is one life of a launcher.
type drillLauncher struct {
	node    int
	cmd     *exec.Cmd
	stderr  *bytes.Buffer
	reader  string
	struck  string // what happened to it, or empty
	noGuard bool
	ended   chan struct{}
}

func newDrill(t *testing.T, seed uint64) *drill {
	dice := rand.New(rand.NewPCG(seed, 7))
	d := &drill{
		t: t, seed: seed, nodes: 1 + dice.IntN(3), tasks: 1 + dice.IntN(2), joins: dice.IntN(2) == 0,
		policy:   []launch.Restart{launch.RestartNever, launch.RestartFailed, launch.RestartAll, launch.RestartAll}[dice.IntN(4)],
		restarts: dice.IntN(4),
	}
	if d.nodes > 1 {
		d.spares = dice.IntN(2)
	}
	switch k := dice.IntN(6); {
	case k == 0:
		d.service, d.joins = "run", true
	case k == 1 && d.policy != launch.RestartAll: // a relay of its own does not witness the end of an attempt
		d.service, d.joins = "relay", true
	}
	for range dice.IntN(4) {
		f := drillFault{step: 1 + dice.IntN(2*d.nodes*d.tasks), after: time.Duration(dice.IntN(500)) * time.Millisecond, node: dice.IntN(d.nodes + d.spares)}
		f.kind = []string{"kill", "kill", "task", "task", "guard", "TERM", "INT", "stop", "relay"}[dice.IntN(9)]
		if f.node == 0 && (f.kind == "kill" && dice.IntN(3) > 0 || f.kind == "stop") {
			f.kind = "task"
		}
		if f.kind == "relay" && d.service != "relay" {
			f.kind = "task"
		}
		f.restart = dice.IntN(2) == 0
		d.faults = append(d.faults, f)
	}
	d.mu.came = make(chan struct{})
	return d
}

func (d *drill) wrong(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.bad = append(d.mu.bad, fmt.Sprintf(format, args...))
}

// drillPatience bounds a schedule. It is no assertion: only one that hangs takes so long.
const drillPatience = 2 * time.Minute

// play runs the schedule, and says what was wrong.
func (d *drill) play() error {
	dir, err := os.MkdirTemp("", "drill")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	d.dir = dir
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		return err
	}
	var running sync.WaitGroup
	running.Go(func() { d.listen(l, &running) })
	defer running.Wait()
	defer l.Close()
	end, err := d.prepare()
	if err != nil {
		return err
	}
	defer end()
	first := d.launch(0)
	for node := 1; node < d.nodes+d.spares; node++ {
		d.launch(node)
	}
	var striking sync.WaitGroup
	over := make(chan struct{})
	for _, f := range d.faults {
		striking.Go(func() { d.strike(f, over) })
	}
	d.await(first)
	close(over)
	striking.Wait()
	for _, n := range d.all() {
		d.await(n)
	}
	d.check(first)
	return d.verdict()
}

// prepare starts what there is beside launchers, and says how to end it.
func (d *drill) prepare() (end func(), err error) {
	d.flags = []string{
		"run", "--cluster", "none", "-n", strconv.Itoa(d.tasks), "--nnodes", strconv.Itoa(d.nodes), "--spares", strconv.Itoa(d.spares),
		"--restart", string(d.policy), "--max-restarts", strconv.Itoa(d.restarts), "--grace", "2s", "--register-timeout", "12s",
	}
	if d.nodes > 1 {
		d.flags = append(d.flags, "--coordinator", "127.0.0.1:"+freePort(d.t))
	}
	d.env = append(os.Environ(), drillSocket+"="+filepath.Join(d.dir, "s"), fmt.Sprintf("%s=%d", drillSeed, d.seed), "GORACE=atexit_sleep_ms=0")
	if d.joins {
		d.env = append(d.env, drillJoins+"=1")
	}
	if d.service == "" {
		return func() {}, nil
	}
	at := "unix:" + filepath.Join(d.dir, "service")
	serve := exec.Command("serry", "serve", "--tasks", strconv.Itoa(d.nodes*d.tasks), "--listen", at, fmt.Sprintf("--recoverable=%v", d.policy == launch.RestartFailed))
	if err := startServing(serve); err != nil {
		return nil, err
	}
	if d.service == "relay" {
		err = d.startRelay(at)
		d.env = append(d.env, drillAddress+"=unix:"+filepath.Join(d.dir, "relay"))
	} else {
		d.flags = append(d.flags, "--service", at)
	}
	return func() {
		endProcess(serve)
		if d.relay != nil {
			endProcess(d.relay)
		}
	}, err
}

func (d *drill) startRelay(upstream string) error {
	_ = os.Remove(filepath.Join(d.dir, "relay")) // of one that was killed
	d.relay = exec.Command("serry", "relay", "--upstream", upstream, "--listen", "unix:"+filepath.Join(d.dir, "relay"))
	return startServing(d.relay)
}

// startServing starts a command and returns when it serves.
func startServing(cmd *exec.Cmd) error {
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err == nil {
		_, err = bufio.NewReader(out).ReadString('\n')
	}
	return err
}

func endProcess(cmd *exec.Cmd) {
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

// freePort finds a port below those that the kernel gives to connections.
func freePort(t *testing.T) string {
	t.Helper()
	for {
		port := strconv.Itoa(10_000 + rand.IntN(20_000))
		if l, err := net.Listen("tcp", ":"+port); err == nil {
			l.Close()
			return port
		}
	}
}

// launch starts a launcher.
func (d *drill) launch(node int) *drillLauncher {
	dice := rand.New(rand.NewPCG(d.seed, uint64(100+node)))
	n := &drillLauncher{node: node, stderr: new(bytes.Buffer), ended: make(chan struct{}), reader: []string{"quick", "quick", "slow", "ends", "stops"}[dice.IntN(5)]}
	d.mu.Lock()
	logs := filepath.Join(d.dir, fmt.Sprintf("logs-%d", len(d.mu.launchers)))
	d.mu.launchers = append(d.mu.launchers, n)
	d.mu.Unlock()
	args := append(slices.Clone(d.flags), "--log-dir", logs)
	if d.nodes > 1 {
		args = append(args, "--node-rank", strconv.Itoa(node))
	}
	n.cmd = exec.Command("serry", append(args, "--", drillCommand)...)
	n.cmd.Env, n.cmd.Stderr = d.env, n.stderr
	out, err := n.cmd.StdoutPipe()
	if err == nil {
		err = n.cmd.Start()
	}
	if err != nil {
		d.wrong("launcher %d does not start: %v", node, err)
		close(n.ended)
		return n
	}
	stop := make(chan struct{})
	go n.read(out, stop)
	go func() {
		defer close(n.ended)
		defer close(stop)
		_ = n.cmd.Wait() // the exit status is judged later
	}()
	return n
}

// read is what reads the output of a launcher.
func (n *drillLauncher) read(out io.ReadCloser, ended <-chan struct{}) {
	defer out.Close()
	buf := make([]byte, 32<<10)
	switch n.reader {
	case "quick":
		_, _ = io.Copy(io.Discard, out)
	case "slow":
		for {
			if _, err := out.Read(buf); err != nil {
				return
			}
			<-time.After(10 * time.Millisecond)
		}
	case "ends":
		_, _ = out.Read(buf)
	case "stops":
		_, _ = out.Read(buf)
		<-ended
	}
}

func (d *drill) all() []*drillLauncher {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.mu.launchers)
}

// await waits for the end of a launcher.
func (d *drill) await(n *drillLauncher) {
	select {
	case <-n.ended:
	case <-time.After(drillPatience):
		d.wrong("launcher %d runs on", n.node)
		_ = n.cmd.Process.Kill()
		<-n.ended
	}
}

// listen takes in the processes of the tasks.
func (d *drill) listen(l net.Listener, running *sync.WaitGroup) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		running.Go(func() {
			defer c.Close()
			in := json.NewDecoder(c)
			life := &drillLife{gone: make(chan struct{})}
			defer close(life.gone)
			if in.Decode(&life.word) != nil {
				return
			}
			d.arrived(life)
			for w := new(word); in.Decode(w) == nil; w = new(word) {
				d.mu.Lock()
				if life.lines = max(life.lines, w.Lines); w.Ends {
					life.said = w
				}
				d.mu.Unlock()
			}
		})
	}
}

// arrived checks that no task of an older attempt, and no older life of the same task, runs where a launcher
// is that has not been struck, and that nothing which older attempts left behind runs on the same host.
func (d *drill) arrived(life *drillLife) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, old := range d.mu.lives {
		older := old.Attempt < life.Attempt && (!old.Daemon || old.Run == life.Run)
		former := old.Attempt == life.Attempt && old.Task == life.Task && old.Life < life.Life && !life.Daemon
		if (older || former) && !d.onStruckHost(old) && old.alive() {
			d.mu.bad = append(d.mu.bad, fmt.Sprintf("process %d of %s comes while process %d of %s runs", life.Pid, life.place(), old.Pid, old.place()))
		}
	}
	d.mu.lives = append(d.mu.lives, life)
	close(d.mu.came)
	d.mu.came = make(chan struct{})
}

func (l *drillLife) place() string {
	kind := "task"
	if l.Daemon {
		kind = "what was left behind by task"
	}
	return fmt.Sprintf("%s %d, attempt %d, life %d", kind, l.Task, l.Attempt, l.Life)
}

// onStruckHost says whether a process is one of a launcher that was killed or stood still. It needs mu.
func (d *drill) onStruckHost(l *drillLife) bool {
	for _, n := range d.mu.launchers {
		if n.struck != "kill" && n.struck != "stop" {
			continue
		}
		for _, other := range d.mu.lives {
			if other.Run == l.Run && other.Parent == n.cmd.Process.Pid {
				return true
			}
		}
	}
	return false
}

// strike lets a fault happen.
func (d *drill) strike(f drillFault, over <-chan struct{}) {
	for {
		d.mu.Lock()
		n, came := len(d.mu.lives), d.mu.came
		d.mu.Unlock()
		if n >= f.step {
			break
		}
		select {
		case <-came:
		case <-over:
			return
		}
	}
	select {
	case <-time.After(f.after):
	case <-over:
		return
	}
	switch f.kind {
	case "task":
		d.killTask(f)
	case "relay":
		_ = d.relay.Process.Kill()
		_ = d.relay.Wait()
		if err := d.startRelay("unix:" + filepath.Join(d.dir, "service")); err != nil {
			d.wrong("the relay does not come back: %v", err)
		}
	default:
		d.strikeLauncher(f, over)
	}
}

// killTask kills a process of a task that runs.
func (d *drill) killTask(f drillFault) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range d.mu.lives {
		l := d.mu.lives[(i+f.step)%len(d.mu.lives)]
		if !l.Daemon && l.said == nil && l.alive() {
			l.killed = true
			_ = syscall.Kill(l.Pid, syscall.SIGKILL)
			return
		}
	}
}

// standsStill is how long a launcher stands still: longer than the others wait for a word.
const standsStill = 7 * time.Second

func (d *drill) strikeLauncher(f drillFault, over <-chan struct{}) {
	d.mu.Lock()
	at := slices.IndexFunc(d.mu.launchers, func(n *drillLauncher) bool { return n.node == f.node && n.struck == "" && n.cmd.Process != nil })
	if at < 0 {
		d.mu.Unlock()
		return
	}
	n := d.mu.launchers[at]
	if f.kind == "guard" {
		n.noGuard = killGuard(n.cmd.Process.Pid)
		d.mu.Unlock()
		return
	}
	n.struck = f.kind
	d.mu.killed++
	d.mu.Unlock()
	switch f.kind {
	case "TERM":
		_ = n.cmd.Process.Signal(syscall.SIGTERM)
	case "INT":
		_ = n.cmd.Process.Signal(syscall.SIGINT)
	case "stop":
		_ = n.cmd.Process.Signal(syscall.SIGSTOP)
		<-time.After(standsStill)
		_ = n.cmd.Process.Signal(syscall.SIGCONT)
	case "kill":
		_ = n.cmd.Process.Kill()
		if f.restart && f.node > 0 {
			<-n.ended
			d.relaunch(f.node, over)
		}
	}
}

// relaunch starts the launcher of a node again, unless the job is over.
func (d *drill) relaunch(node int, over <-chan struct{}) {
	select {
	case <-over:
	default:
		d.launch(node)
	}
}

// killGuard kills the guard of a launcher.
func killGuard(launcher int) bool {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", launcher))
	for _, list := range lists {
		text, _ := os.ReadFile(list)
		for field := range strings.FieldsSeq(string(text)) {
			name, _ := os.ReadFile("/proc/" + field + "/comm")
			if pid, err := strconv.Atoi(field); err == nil && strings.TrimSpace(string(name)) == launch.GuardName {
				return syscall.Kill(pid, syscall.SIGKILL) == nil
			}
		}
	}
	return false
}

// verdict says what was wrong, with all that is known.
func (d *drill) verdict() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mu.bad == nil {
		return nil
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n%d tasks on each of %d nodes, %d spares, restart %s up to %d times, joins %v, service %q\n",
		strings.Join(d.mu.bad, "\n"), d.tasks, d.nodes, d.spares, d.policy, d.restarts, d.joins, d.service)
	for _, f := range d.faults {
		fmt.Fprintf(&b, "%+v\n", f)
	}
	for _, l := range d.mu.lives {
		fmt.Fprintf(&b, "%s: process %d, killed %v, %d lines, said %+v\n", l.place(), l.Pid, l.killed, l.lines, l.said)
	}
	for _, n := range d.mu.launchers {
		fmt.Fprintf(&b, "launcher %d (%s, its reader %s): %v\n%s", n.node, n.struck, n.reader, n.cmd.ProcessState, n.stderr)
	}
	return errors.New(b.String())
}
