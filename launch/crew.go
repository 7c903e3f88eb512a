package launch

import (
	"fmt"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A crew is the processes of a job on one host. Its methods are called by one goroutine; what happens
// to the processes comes back as events.
type crew struct {
	// Set at the start, then constant.
	cfg     Config
	path    string // of the command
	run     string
	node    int
	env     environment
	memory  memoryWatch
	nursery *nursery
	guard   *guard
	events  chan<- any // died, left

	living map[int]*process // by task; owned by the caller
	watch  sync.WaitGroup   // one for each process
}

// died says that the first process of a task has ended.
type died struct {
	Task  int
	Life  int
	Cause Cause
	After time.Duration
}

// left says that nothing of a task runs any more, and what it said last.
type left struct {
	Task int
	Last []string
	Err  error // what could not be ended, or nil
}

func newCrew(cfg Config, run string, node int, events chan<- any) (*crew, error) {
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
	c := &crew{
		cfg: cfg, path: path, run: run, node: node, memory: newMemoryWatch("/"), nursery: newNursery(), guard: g, events: events,
		living: make(map[int]*process),
	}
	c.env = environment{base: cfg.Env, run: run, beat: cfg.Service.Cluster.HeartbeatTimeout.String(), mpi: !cfg.NoMPI}
	c.env.devices = c.env.accelerators("/")
	return c, nil
}

// start runs the task of a seat. One that cannot be started has died.
func (c *crew) start(s seat, address string) {
	env := c.env
	env.address = address
	p, err := c.launch(s, env.list(s))
	if err != nil {
		c.watch.Go(func() {
			c.events <- died{Task: s.task, Life: s.life, Cause: Cause{Text: err.Error()}}
			c.events <- left{Task: s.task}
		})
		return
	}
	c.living[s.task] = p
	kills, _ := c.memory.kills()
	c.watch.Go(func() { c.attend(p, s, kills) })
}

func (c *crew) launch(s seat, env []string) (*process, error) {
	p := &process{grace: c.cfg.Grace, out: &output{task: s.task, display: c.cfg.Display}, begun: time.Now()}
	var err error
	if c.cfg.LogDir != "" {
		if err := p.out.openLog(c.cfg.LogDir, s.attempt, s.life); err != nil {
			return nil, err
		}
	}
	if p.pipes, err = newPipes(); err != nil {
		return nil, err
	}
	p.pid, p.pidfd, err = c.nursery.start(birth{
		path: c.path, argv: c.cfg.Command, dir: c.cfg.Dir, env: env,
		stdout: p.pipes.theirs[0], stderr: p.pipes.theirs[1],
	})
	closeAll(p.pipes.theirs[:])
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
	c.events <- died{Task: s.task, Life: s.life, Cause: cause, After: time.Since(p.begun)}
	err = p.sweep()
	if !cause.Well() || !p.drained(drainPatience) {
		c.mark(s.task).sweep(c.cfg.Grace)
	}
	if !p.drained(drainPatience) {
		c.cfg.Display.Note(Note{Warning: true, Text: fmt.Sprintf("somebody unknown holds the output of task %d; it is not waited for", s.task)})
	}
	p.closePipes()
	p.out.close()
	c.guard.forget(p.pid)
	c.events <- left{Task: s.task, Last: p.out.last(), Err: err}
}

// mark is what all processes of a task have in their environment.
func (c *crew) mark(task int) mark {
	return mark{EnvRun + "=" + c.run, fmt.Sprintf("%s=%d", EnvTask, task)}
}

// sweep ends what tasks left behind that is in no group of ours.
func (c *crew) sweep() {
	n, err := mark{EnvRun + "=" + c.run}.sweep(c.cfg.Grace)
	switch {
	case err != nil:
		c.cfg.Display.Note(Note{Warning: true, Text: fmt.Sprintf("cannot look for processes that tasks left behind: %v", err)})
	case n > 0:
		c.cfg.Display.Note(Note{Text: fmt.Sprintf("ended %d processes that tasks had left behind", n)})
	}
}

// ended says whether it was us who ended a task in this way.
func (c *crew) ended(task int, cause Cause) bool {
	p, ok := c.living[task]
	return ok && (cause.Signal == syscall.SIGTERM || cause.Signal == syscall.SIGKILL && p.killed())
}

// forget is called when a task has left.
func (c *crew) forget(task int) { delete(c.living, task) }

// end asks every task to end by a signal, and kills it after the grace.
func (c *crew) end(sig syscall.Signal) {
	for _, p := range c.living {
		p.end(sig)
	}
}

// pass sends a signal on to every task.
func (c *crew) pass(sig syscall.Signal) {
	for _, p := range c.living {
		p.pass(sig)
	}
}

// kill ends every task at once.
func (c *crew) kill() {
	for _, p := range c.living {
		p.kill()
	}
}

// close is called when no task is left.
func (c *crew) close() {
	c.watch.Wait()
	c.nursery.close()
	c.guard.dismiss()
}
