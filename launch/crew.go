package launch

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/internal/pystack"
)

// A crew is the processes of a job on one host. Nothing that asks it for something waits: tasks are
// started, and what they leave behind is ended, by a goroutine of its own (see [crew.work]). What
// happens to tasks comes back as events.
type crew struct {
	// Set at the start, then constant.
	cfg    Config
	path   string // of the command
	run    string
	env    environment
	kernel kernel
	feed   *feed
	events chan<- any // for each task raised and classed, any number of them, died and left, of which left is the last but for classed
	orders *queue[*life]
	worked chan struct{} // closed when work has ended
	hurry  chan struct{} // closed when there is no grace any more

	attempt  int              // owned by work
	asked    string           // address of the service whose questions are answered, or empty; owned by work
	steps    chan storedValue // that tasks have reported, for the service
	attended func()           // ends that; nil: none are answered; owned by work
	secret   string           // file of the secret of the attempt, or empty; owned by work
	shim     string           // folder of the shim, or empty; owned by work
	shimmed  bool             // it was tried to make it; owned by work
	watch    sync.WaitGroup   // one for each process
	mu       struct {
		sync.Mutex
		living  map[int]*life // by task
		hurried bool          // hurry is closed
	}
	relays attemptRelays // relays to a service that others run
	lines  lastLines     // that tasks have written
}

// A life is that of one process of a task, from the order to start it on.
type life struct {
	seat    seat
	at      contact
	process *process       // nil until it is started; guarded by the lock of the crew
	told    syscall.Signal // to end, before it was started; or 0; guarded by the lock of the crew
	steps   string         // file to which the process may write its step, or empty; set before process is
	nolimit bool           // with told: the grace does not count
}

// A lifetime is that of one process of a task.
type lifetime struct{ Task, Attempt, Life int }

func (s seat) lifetime() lifetime { return lifetime{s.Task, s.Attempt, s.Life} }

// A died event says that the first process of a task has ended.
type died struct {
	lifetime
	Cause  Cause
	After  time.Duration
	Ours   bool   // it was told to end, and did
	Told   bool   // it was told to end before it ended, however it did
	from   hand   // of the host that says so; nil: this one
	host   string // why its host is lost, which no launcher there can tell; or empty
	raised bool   // its process still runs: it has raised an exception and waits to leave, or is stuck
	hung   bool   // it is stuck; people are told by the caller
	Also   []int  // tasks of the same host whose processes were ending, too, when this one was seen
}

// A left event says that nothing of a task runs any more, and what it said last.
type left struct {
	lifetime
	from hand // of the host that says so; nil: this one
	Last []string
	Err  string // what could not be ended, or empty
}

func newCrew(cfg Config, run string, k kernel, f *feed, events chan<- any) (*crew, error) {
	path, err := cfg.find()
	if err != nil {
		return nil, err
	}
	c := &crew{
		cfg: cfg, path: path, run: run, kernel: k, feed: f, events: events,
		steps:  make(chan storedValue, mostSteps),
		orders: newQueue[*life](coord.MaxTasks), worked: make(chan struct{}), hurry: make(chan struct{}),
	}
	c.mu.living = make(map[int]*life)
	c.env = environment{base: cfg.Env, run: run, beat: cfg.Service.Cluster.HeartbeatTimeout.String(), mpi: !cfg.NoMPI, signal: cmp.Or(cfg.StackSignal, pystack.DumpSignal)}
	if c.env.devices = cfg.Devices; cfg.Devices == nil {
		c.env.devices = c.env.accelerators("/")
	}
	go c.work()
	c.watch.Go(c.guarded)
	if !cfg.NoStacks {
		c.watch.Go(c.sample)
	}
	return c, nil
}

// guarded says so when the guard is lost.
func (c *crew) guarded() {
	select {
	case <-c.kernel.unguarded():
		c.warn("the guard of this job was killed: should this launcher be killed, too, processes that have left their group may live on")
	case <-c.worked:
	}
}

// start has the task of a seat run. One that cannot be started has died.
func (c *crew) start(s seat, at contact) {
	l := &life{seat: s, at: at}
	c.mu.Lock()
	c.mu.living[s.Task] = l
	c.mu.Unlock()
	c.orders.put(l) // a task has one life at a time, so it is never full
}

// work starts tasks in the order in which it was asked to. It may wait: for the processes of an older
// attempt, for a relay, and for the command to be read from a slow disk.
func (c *crew) work() {
	defer close(c.worked)
	for {
		l, ok := c.orders.next(nil)
		if !ok {
			return
		}
		if l.seat.Attempt > c.attempt {
			c.sweep()
			c.forgetSecret()
			c.attempt = l.seat.Attempt
			if c.cfg.Node > 0 { // the first launcher has listed the service when it opened it
				c.cfg.list(l.at.address, c.attempt)
			}
		}
		c.begin(l)
	}
}

// begin starts one task, unless it was told to end before that.
func (c *crew) begin(l *life) {
	p, err := c.launch(l)
	c.mu.Lock()
	told, unlimited := l.told, l.nolimit
	if l.process = p; p == nil {
		delete(c.mu.living, l.seat.Task)
	}
	c.mu.Unlock()
	if p == nil {
		c.dropStepFile(l)
	}
	switch {
	case err != nil:
		c.never(l, died{Cause: causeOfError(err)})
	case p == nil:
		c.never(l, died{Cause: Cause{Signal: told}, Ours: true})
	default:
		if told == syscall.SIGKILL {
			p.kill()
		} else if told != 0 {
			p.end(told, unlimited)
		}
		c.watch.Go(func() {
			c.attend(p, l.seat)
			c.dropStepFile(l)
		})
	}
}

// never reports a task that was not started.
func (c *crew) never(l *life, d died) {
	d.lifetime = l.seat.lifetime()
	c.watch.Go(func() {
		c.events <- d
		c.events <- left{lifetime: d.lifetime}
	})
}

func causeOfError(err error) Cause {
	code, _ := StartCode(err)
	return Cause{Text: err.Error(), Code: code}
}

// launch starts the process of a task, or returns nil where the task was told to end.
func (c *crew) launch(l *life) (*process, error) {
	env := c.env
	var err error
	if env.address = l.at.address; env.address == "" {
		if env.address, err = c.relayed(l.seat.Attempt); err != nil {
			return nil, err
		}
	}
	c.attendAt(env.address)
	if env.secret, err = c.secretFile(l); err != nil {
		return nil, err
	}
	if err = c.stepFile(l); err != nil {
		return nil, err
	}
	env.steps, env.shim = l.steps, c.shimFolder()
	p := &process{grace: c.cfg.Grace, out: newOutput(l.seat.Task, c.feed), memory: c.kernel.memory(), begun: time.Now()}
	p.out.kept, p.out.seat = &c.lines, l.seat
	if c.cfg.LogDir != "" {
		if err := p.out.openLog(c.cfg.LogDir, l.seat.Attempt, l.seat.Life); err != nil {
			return nil, err
		}
	}
	c.mu.Lock()
	told := l.told
	c.mu.Unlock()
	if told == 0 {
		p.child, err = c.kernel.start(processSpec{path: c.path, argv: c.cfg.Command, dir: c.cfg.Dir, env: env.list(l.seat)})
	}
	if told != 0 || err != nil {
		p.out.close()
		return nil, err
	}
	return p, nil
}

// shimFolder is the folder with the program that Python runs at its start, or empty: no rank needs it to run.
func (c *crew) shimFolder() string {
	if c.cfg.NoShim || c.cfg.NoStacks || c.shimmed {
		return c.shim
	}
	c.shimmed = true
	dir, err := c.kernel.keepShim()
	if err != nil {
		c.warn("serry stacks --signal will not work on this host: %v", err)
		return ""
	}
	c.shim = dir
	return dir
}

// dropShim removes it.
func (c *crew) dropShim() {
	if c.shim == "" {
		return
	}
	if err := c.kernel.dropShim(c.shim); err != nil {
		c.warn("%v", err)
	}
}

// stepFile makes the file to which the process of a life may write its step. Where processes are not looked at, no one would
// read it.
func (c *crew) stepFile(l *life) (err error) {
	if !c.cfg.NoStacks {
		l.steps, err = c.kernel.keepSteps(l.seat.lifetime())
	}
	return err
}

// dropStepFile removes it.
func (c *crew) dropStepFile(l *life) {
	if l.steps == "" {
		return
	}
	if err := c.kernel.dropSecret(l.steps); err != nil && !errors.Is(err, fs.ErrNotExist) { // the program may have removed it
		c.warn("the steps of rank %d: %v", l.seat.Task, err)
	}
}

// secretFile is the file with the secret of the attempt of l, which is written for its first task on this
// host. A first launcher of an older version has no secret to give.
func (c *crew) secretFile(l *life) (path string, err error) {
	if c.secret == "" && len(l.at.secret) > 0 {
		c.secret, err = c.kernel.keepSecret(l.seat.Attempt, l.at.secret)
	}
	return c.secret, err
}

// forgetSecret removes the file of an attempt that has ended.
func (c *crew) forgetSecret() {
	if c.secret == "" {
		return
	}
	if err := c.kernel.dropSecret(c.secret); err != nil {
		c.warn("the secret of attempt %d: %v", c.attempt, err)
	}
	c.secret = ""
}

// attend watches a process to its end and cleans up after it.
func (c *crew) attend(p *process, s seat) {
	held, drained := c.read(p), make(chan struct{})
	told := c.tellRaised(p, s, drained)
	cause, err := p.ended()
	if err != nil {
		cause = Cause{Text: err.Error()}
	}
	if cause.byKill() && !p.killed() {
		cause.Count = p.memory.compare()
		cause.Memory = cause.Count.killed()
	}
	c.report(s.Task, cause, p.told())
	d := died{lifetime: s.lifetime(), Cause: cause, After: time.Since(p.begun), Ours: p.obeyed(cause), Told: p.told()}
	if !cause.Well() {
		d.Also = c.ending(s.Task)
	}
	c.events <- d
	gone := left{lifetime: s.lifetime()}
	if err := p.sweep(); err != nil {
		gone.Err = err.Error()
	}
	if !cause.Well() && c.cfg.Restart == RestartFailed && c.kernel.orphans() {
		c.sweepTask(s.Task)
	}
	c.drain(p, s.Task, held)
	close(drained)
	<-told // no event about the task comes after left
	p.release()
	c.mu.Lock()
	delete(c.mu.living, s.Task)
	c.mu.Unlock()
	gone.Last = p.out.last(p.failed())
	c.events <- gone
}

// read copies the output of a process. What it returns says whether a stream was empty and open at the
// deadline of the streams, and blocks until then.
func (c *crew) read(p *process) (held func() bool) {
	var readers sync.WaitGroup
	var open atomic.Bool
	for i, from := range p.outputs() {
		readers.Go(func() {
			if !p.out.copy(Stdout+Stream(i), from) {
				open.Store(true)
			}
		})
	}
	return func() bool {
		readers.Wait()
		return open.Load()
	}
}

// drain returns when all that a process wrote has been read. A stream that is empty and does not end is
// held by a process that has left the group of the task: one of the job is ended, any other is not
// waited for.
func (c *crew) drain(p *process, task int, held func() bool) {
	deadline := func(at time.Time) {
		for _, from := range p.outputs() {
			_ = from.SetReadDeadline(at) // a pipe has deadlines
		}
	}
	deadline(time.Now())
	if held() {
		deadline(time.Time{})
		held = c.read(p) // a stream that has ended only ends again
		c.sweepTask(task)
		deadline(time.Now())
		if held() {
			c.warn("an unknown process holds the output of rank %d; it is not waited for", task)
		}
	}
	for _, from := range p.outputs() {
		from.Close()
	}
	if err := p.out.close(); err != nil {
		c.warn("the log of rank %d: %v", task, err)
	}
}

// sweepTask ends what is left of a task, in whatever group.
func (c *crew) sweepTask(task int) {
	_, err := c.kernel.sweep(c.mark(task), c.cfg.Grace, c.hurry)
	if err != nil {
		c.warn("cannot look for processes that rank %d left behind: %v", task, err)
	}
}

// relayed is the address of the relay of this host for an attempt, which is opened for the first task.
func (c *crew) relayed(attempt int) (address string, err error) {
	p, err := c.relays.of(c.cfg.Relay, attempt)
	if err != nil {
		return "", fmt.Errorf("relay of attempt %d: %w", attempt, err)
	}
	return p.at, nil
}

// report tells a service that others run how a process of this host has ended (A-SIDE-16).
func (c *crew) report(task int, cause Cause, told bool) {
	p := c.relays.now()
	switch {
	case p == nil:
	case cause.Well():
		p.relay.Exited(worker(task), "")
	default:
		p.relay.Exited(worker(task), cause.evidence(told))
	}
}

// ending lists the tasks, but for one, whose processes are on their way out.
func (c *crew) ending(but int) []int {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []int
	for task, l := range c.mu.living {
		if task != but && l.process != nil && l.process.ending() {
			all = append(all, task)
		}
	}
	return all
}

// mark is what all processes of a task have in their environment.
func (c *crew) mark(task int) mark {
	return mark{EnvRun + "=" + c.run, fmt.Sprintf("%s=%d", EnvTask, task)}
}

// sweep ends what tasks left behind that is in no process group of the launcher. It is called when no task runs.
func (c *crew) sweep() {
	if c.attempt == 0 {
		return // nothing was ever started
	}
	n, err := c.kernel.sweep(mark{EnvRun + "=" + c.run}, c.cfg.Grace, c.hurry)
	switch {
	case err != nil:
		c.warn("cannot look for processes that ranks left behind: %v", err)
	case n > 0:
		c.feed.note(Note{Text: fmt.Sprintf("ranks had left processes behind, which were ended: %d", n)})
	}
}

func (c *crew) warn(format string, args ...any) {
	c.feed.note(Note{Warning: true, Text: fmt.Sprintf(format, args...)})
}

// end asks every task to end by a signal, and kills it after the grace unless tasks may take as long as they need.
// One that has not been started yet will not be.
func (c *crew) end(sig syscall.Signal, unlimited bool) {
	c.each(func(p *process) { p.end(sig, unlimited) }, func(l *life) { l.told, l.nolimit = sig, unlimited })
}

// fail ends one life of a task that has failed. A service that others run hears of the failure at once: the
// process may take the grace to end (A-SIDE-16).
func (c *crew) fail(which lifetime, why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.mu.living[which.Task]
	if l == nil || l.process == nil || l.seat.lifetime() != which {
		return // it has ended
	}
	c.watch.Go(func() { c.report(which.Task, Cause{Text: why}, false) })
	l.process.fail(!strings.HasPrefix(why, raisedWords))
}

// pass sends a signal on to every task.
func (c *crew) pass(sig syscall.Signal) {
	c.each(func(p *process) { p.pass(sig) }, func(*life) {})
}

// kill ends every task at once, and what tasks left behind.
func (c *crew) kill() {
	c.killTasks()
	c.rush()
}

// killTasks ends every task at once. What they left behind has the grace.
func (c *crew) killTasks() {
	c.each((*process).kill, func(l *life) { l.told = syscall.SIGKILL })
}

// rush ends the grace of processes that tasks left behind.
func (c *crew) rush() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.mu.hurried {
		c.mu.hurried = true
		close(c.hurry)
	}
}

// each does something to every task that runs, and something else to those that do not run yet.
func (c *crew) each(running func(*process), waiting func(*life)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range c.mu.living {
		if l.process != nil {
			running(l.process)
		} else {
			waiting(l)
		}
	}
}

// close is called when no task is left and all events have been taken. It may take the grace.
func (c *crew) close() {
	c.orders.close()
	<-c.worked
	c.unattend()
	c.watch.Wait()
	c.sweep()
	c.forgetSecret()
	c.dropShim()
	if err := c.relays.close(); err != nil {
		c.warn("the relay of this host: %v", err)
	}
	c.kernel.close()
}
