package launch

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A crew is the processes of a job on one host. What happens to them comes back as events.
type crew struct {
	// Set at the start, then constant.
	cfg     Config
	path    string // of the command
	run     string
	env     environment
	memory  memoryWatch
	nursery *nursery
	guard   *guard
	events  chan<- any // died and left, for each task in this order

	attempt int            // owned by who calls start
	watch   sync.WaitGroup // one for each process
	mu      struct {
		sync.Mutex
		living map[int]*process // by task
	}
	posts posts // relays to a service that others run
}

// A lifetime is that of one process of a task.
type lifetime struct{ Task, Attempt, Life int }

func (s seat) lifetime() lifetime { return lifetime{s.Task, s.Attempt, s.Life} }

// A died event says that the first process of a task has ended.
type died struct {
	lifetime
	Cause Cause
	After time.Duration
	Ours  bool   // it was told to end, and did
	host  string // its host is lost, which nobody there can tell; or empty
	Also  []int  // tasks of the same host whose processes were ending, too, when this one was seen
}

// A left event says that nothing of a task runs any more, and what it said last.
type left struct {
	lifetime
	Last []string
	Err  string // what could not be ended, or empty
}

func newCrew(cfg Config, run string, events chan<- any) (*crew, error) {
	path, err := cfg.find()
	if err != nil {
		return nil, err
	}
	// Orphans of our tasks become our children, so that we can wait for their end.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("become a subreaper: %w", err)
	}
	g, err := startGuard(cfg.Guard, run)
	if err != nil {
		return nil, err
	}
	c := &crew{cfg: cfg, path: path, run: run, memory: newMemoryWatch("/"), nursery: newNursery(), guard: g, events: events}
	c.mu.living = make(map[int]*process)
	c.env = environment{base: cfg.Env, run: run, beat: cfg.Service.Cluster.HeartbeatTimeout.String(), mpi: !cfg.NoMPI}
	if c.env.devices = cfg.Devices; cfg.Devices == nil {
		c.env.devices = c.env.accelerators("/")
	}
	return c, nil
}

// start runs the task of a seat. One that cannot be started has died. It is called by one goroutine,
// and for a new attempt only when nothing runs of the one before.
func (c *crew) start(s seat, address string) {
	if s.Attempt > c.attempt {
		c.sweep()
		c.attempt = s.Attempt
	}
	env := c.env
	var err error
	if env.address = address; address == "" {
		env.address, err = c.relayed(s.Attempt)
	}
	var p *process
	if err == nil {
		p, err = c.launch(s, env.list(s))
	}
	if err != nil {
		c.watch.Go(func() {
			c.events <- died{lifetime: s.lifetime(), Cause: Cause{Text: err.Error()}}
			c.events <- left{lifetime: s.lifetime()}
		})
		return
	}
	c.mu.Lock()
	c.mu.living[s.Task] = p
	c.mu.Unlock()
	kills, _ := c.memory.kills()
	c.watch.Go(func() { c.attend(p, s, kills) })
}

func (c *crew) launch(s seat, env []string) (*process, error) {
	p := &process{grace: c.cfg.Grace, out: &output{task: s.Task, display: c.cfg.Display}, begun: time.Now()}
	var err error
	if p.pipes, err = newPipes(); err != nil {
		return nil, err
	}
	defer closeAll(p.pipes.theirs[:])
	if c.cfg.LogDir != "" {
		err = p.out.openLog(c.cfg.LogDir, s.Attempt, s.Life)
	}
	if err == nil {
		p.pid, p.pidfd, err = c.nursery.start(birth{
			path: c.path, argv: c.cfg.Command, dir: c.cfg.Dir, env: env,
			stdout: p.pipes.theirs[0], stderr: p.pipes.theirs[1],
		})
	}
	if err != nil {
		closeAll(p.pipes.ours[:])
		p.out.close()
		return nil, err
	}
	c.guard.watch(p.pid)
	p.readers.Go(func() { p.out.copy(Stdout, p.pipes.ours[0]) })
	p.readers.Go(func() { p.out.copy(Stderr, p.pipes.ours[1]) })
	return p, nil
}

// drainPatience is how long the pipes of a task may stay open when its group has ended. Then somebody
// who left the group holds them.
const drainPatience = 200 * time.Millisecond

// attend watches a process to its end and cleans up after it.
func (c *crew) attend(p *process, s seat, kills int64) {
	cause, err := p.await()
	if err != nil {
		cause = Cause{Text: err.Error()}
	}
	if now, _ := c.memory.kills(); cause.Signal == syscall.SIGKILL && now > kills && !p.killed() {
		cause.Memory = true
	}
	c.report(s.Task, cause)
	d := died{lifetime: s.lifetime(), Cause: cause, After: time.Since(p.begun), Ours: p.obeyed(cause)}
	if !cause.Well() {
		d.Also = c.ending(s.Task)
	}
	c.events <- d
	gone := left{lifetime: s.lifetime()}
	if err := p.sweep(); err != nil {
		gone.Err = err.Error()
	}
	if !cause.Well() && c.cfg.Restart == RestartFailed && c.orphans() || !p.drained(drainPatience) {
		c.mark(s.Task).sweep(c.cfg.Grace)
	}
	if !p.drained(drainPatience) {
		c.cfg.Display.Note(Note{Warning: true, Text: fmt.Sprintf("somebody unknown holds the output of task %d; it is not waited for", s.Task)})
	}
	p.closePipes()
	p.out.close()
	c.guard.forget(p.pid)
	c.mu.Lock()
	delete(c.mu.living, s.Task)
	c.mu.Unlock()
	gone.Last = p.out.last()
	c.events <- gone
}

// relayed is the address of the relay of this host for an attempt, which is opened for the first task.
func (c *crew) relayed(attempt int) (address string, err error) {
	p, err := c.posts.of(c.cfg.Relay, attempt)
	if err != nil {
		return "", fmt.Errorf("relay of attempt %d: %w", attempt, err)
	}
	return p.at, nil
}

// report tells a service that others run how a process of this host has ended (A-SIDE-16).
func (c *crew) report(task int, cause Cause) {
	p := c.posts.now()
	switch {
	case p == nil:
	case cause.Well():
		p.relay.Exited(worker(task), "")
	default:
		p.relay.Exited(worker(task), cause.evidence())
	}
}

// ending lists the tasks, but for one, whose processes are on their way out.
func (c *crew) ending(but int) []int {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []int
	for task, p := range c.mu.living {
		if task != but && p.ending() {
			all = append(all, task)
		}
	}
	return all
}

// orphans says whether we have children that we did not start: processes whose parents have left them
// behind, and who have left their group. To look for those of one task in the environment of every
// process of the machine takes long, and hardly ever finds one.
func (c *crew) orphans() bool {
	known := map[int]bool{c.guard.pid(): true}
	c.mu.Lock()
	for _, p := range c.mu.living {
		known[p.pid] = true
	}
	c.mu.Unlock()
	lists, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil || len(lists) == 0 {
		return true // this kernel does not tell
	}
	for _, list := range lists {
		pids, err := os.ReadFile(list)
		if err != nil {
			continue // the thread has ended, and its children have moved to another
		}
		for text := range strings.FieldsSeq(string(pids)) {
			if pid, err := strconv.Atoi(text); err != nil || !known[pid] {
				return true
			}
		}
	}
	return false
}

// mark is what all processes of a task have in their environment.
func (c *crew) mark(task int) mark {
	return mark{EnvRun + "=" + c.run, fmt.Sprintf("%s=%d", EnvTask, task)}
}

// sweep ends what tasks left behind that is in no group of ours. It is called when no task is left.
func (c *crew) sweep() {
	if c.attempt == 0 {
		return // nothing was ever started
	}
	n, err := mark{EnvRun + "=" + c.run}.sweep(c.cfg.Grace)
	switch {
	case err != nil:
		c.cfg.Display.Note(Note{Warning: true, Text: fmt.Sprintf("cannot look for processes that tasks left behind: %v", err)})
	case n > 0:
		c.cfg.Display.Note(Note{Text: fmt.Sprintf("tasks had left processes behind, which were ended: %d", n)})
	}
}

// end asks every task to end by a signal, and kills it after the grace.
func (c *crew) end(sig syscall.Signal) {
	c.each(func(p *process) { p.end(sig) })
}

// pass sends a signal on to every task.
func (c *crew) pass(sig syscall.Signal) {
	c.each(func(p *process) { p.pass(sig) })
}

// kill ends every task at once.
func (c *crew) kill() {
	c.each((*process).kill)
}

func (c *crew) each(f func(*process)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.mu.living {
		f(p)
	}
}

// close is called when no task is left and all events have been taken.
func (c *crew) close() {
	c.watch.Wait()
	c.sweep()
	if err := c.posts.close(); err != nil {
		c.cfg.Display.Note(Note{Warning: true, Text: fmt.Sprintf("the relay of this host: %v", err)})
	}
	c.nursery.close()
	c.guard.dismiss()
}
