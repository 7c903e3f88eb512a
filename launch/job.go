package launch

import (
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/serry-dev/serry/coord"
)

// A Job is a running job, or the part of one on this host.
type Job struct {
	// Set in Start, then constant.
	cfg   Config
	run   string
	begun time.Time
	inbox chan any      // what happens; read by drive
	ended chan struct{} // closed when the job is over

	// Owned by drive until ended is closed.
	plan     *plan
	places   places
	here     *crew    // of this host, the first
	ranks    *ranks   // or nil: hosts have the tasks of their number
	service  service  // of this attempt
	failures failures // of this attempt
	report   Report
	patience *time.Timer // for hosts that are missing; nil: none is

	mu struct {
		sync.Mutex
		status  Status
		service service // or nil
	}
}

// A Status is a picture of a job.
type Status struct {
	Attempt  int
	Restarts int
	Tasks    int
	Running  int
	Ended    int // well
	Failed   int
	Ending   bool
	Address  string     // of the service, for people
	Service  coord.View // as the service sees it
}

// A hand carries out on one host what the job decides. What happens there comes back through the
// inbox as died and left events.
type hand interface {
	start(s seat, address string)
	end(sig syscall.Signal)  // and kill after the grace
	pass(sig syscall.Signal) // a signal that is not meant to end anything
	kill()
}

// Start starts a job. It returns an error if nothing was started at all.
func Start(cfg Config) (*Job, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	j := &Job{
		cfg: cfg, run: newRun(), begun: time.Now(), inbox: make(chan any), ended: make(chan struct{}),
		plan: newPlan(cfg.total(), cfg.MaxRestarts, cfg.Restart, cfg.Recoverable),
	}
	begin := j.lead
	if cfg.Node > 0 {
		begin = j.follow
	}
	if err := begin(); err != nil {
		return nil, err
	}
	return j, nil
}

// lead starts what the first host of a job has.
func (j *Job) lead() error {
	var err error
	if j.ranks, err = openRanks(j.cfg); err != nil {
		return err
	}
	here, err := newCrew(j.cfg, j.run, j.inbox)
	if err != nil {
		return err
	}
	first, err := openService(j.cfg, here, 1)
	if err != nil {
		here.close()
		return err
	}
	meeting, err := openMeeting(j.cfg, j.inbox)
	if err != nil {
		first.close()
		here.close()
		return err
	}
	j.here, j.service, j.places = here, first, newPlaces(j.cfg.nodes(), here)
	if j.ranks != nil {
		j.places.seatByIdentity()
	}
	go func() {
		defer close(j.ended)
		j.drive()
		j.finish(here, meeting)
	}()
	return nil
}

// Signal passes a signal on to every task. SIGINT, SIGTERM and SIGHUP end the job: a task that takes
// longer than the grace is killed, and at the second such signal all are.
func (j *Job) Signal(sig syscall.Signal) {
	select {
	case j.inbox <- signalled{sig}:
	case <-j.ended:
	}
}

type signalled struct{ syscall.Signal }

func (s signalled) ends() bool {
	return s.Signal == syscall.SIGINT || s.Signal == syscall.SIGTERM || s.Signal == syscall.SIGHUP
}

// Done is closed when nothing of the job runs any more.
func (j *Job) Done() <-chan struct{} { return j.ended }

// Wait returns when nothing of the job runs any more.
func (j *Job) Wait() Report {
	<-j.ended
	return j.report
}

// Status draws a picture of the job.
func (j *Job) Status() Status {
	j.mu.Lock()
	s, service := j.mu.status, j.mu.service
	j.mu.Unlock()
	if service != nil {
		s.Address, s.Service = service.String(), service.view(0)
	}
	return s
}

// checkEvery is how often the job looks for waits that cannot end.
const checkEvery = time.Second

// drive owns the job. No other goroutine touches its plan and its places.
func (j *Job) drive() {
	check := time.NewTicker(checkEvery)
	defer check.Stop()
	j.sit()
	over := j.perform(j.plan.begin())
	for !over {
		j.show()
		var next step
		select {
		case ev := <-j.inbox:
			next = j.event(ev)
		case <-check.C:
			next = j.check()
		case <-j.impatient():
			next = j.missing()
		}
		over = j.perform(next)
	}
}

func (j *Job) event(ev any) step {
	switch ev := ev.(type) {
	case died:
		return j.died(ev)
	case left:
		return j.left(ev)
	case signalled:
		return j.signalled(ev)
	case arrived:
		return j.arrived(ev)
	case retiring:
		return j.retiring(ev)
	case lost:
		return j.lost(ev)
	}
	panic(fmt.Sprintf("launch: unknown event %T", ev))
}

// perform does what the plan says.
func (j *Job) perform(s step) (over bool) {
	if s.open {
		if err := j.open(); err != nil {
			j.report.Err = err
			return true
		}
	}
	for _, task := range s.start {
		j.start(task)
	}
	if s.stop {
		j.places.each(func(h hand) { h.end(syscall.SIGTERM) })
		s.over = j.dropWaiting()
	}
	return s.over
}

// dropWaiting gives up the tasks that wait for a host.
func (j *Job) dropWaiting() (over bool) {
	for _, seat := range j.places.drop() {
		over = j.perform(j.plan.gone(seat.Task))
	}
	return over
}

// open begins an attempt. Everything of the one before has ended; its service goes only when the new
// one has its address, so that the two are not the same.
func (j *Job) open() error {
	j.failures = failures{}
	if j.plan.attempt > 1 {
		s, err := openService(j.cfg, j.here, j.plan.attempt)
		if err != nil {
			return fmt.Errorf("attempt %d: %w", j.plan.attempt, err)
		}
		if err := j.service.close(); err != nil {
			j.warn("the service of attempt %d: %v", j.plan.attempt-1, err)
		}
		j.service = s
	}
	j.note("attempt %d: %s, %v", j.plan.attempt, counted(j.cfg.total(), "task"), j.service)
	return nil
}

// start starts a task on the host that has its place, or lets it wait for one.
func (j *Job) start(task int) {
	s := seat{
		Task: task, Tasks: j.cfg.total(), Local: task % j.cfg.Tasks, Locals: j.cfg.Tasks,
		Node: task / j.cfg.Tasks, Nodes: j.cfg.nodes(), Attempt: j.plan.attempt, Life: j.plan.tasks[task].life,
	}
	h, took := j.places.find(s)
	if took {
		j.note("the tasks of node %d go to a spare host", s.Node)
	}
	if h == nil {
		if j.patience == nil {
			j.patience = time.NewTimer(j.cfg.Service.Cluster.RegisterTimeout)
		}
		delete(j.places.taskOn, task)
		return
	}
	h.start(s, j.service.address())
}

// finish ends everything that is not a task, and sums up.
func (j *Job) finish(here *crew, m *meeting) {
	here.close()
	j.mu.Lock()
	j.mu.service = nil
	j.mu.Unlock()
	if err := j.service.close(); err != nil {
		j.warn("the service: %v", err)
	}
	j.remember()
	s := j.count()
	j.report.Attempts, j.report.Restarts, j.report.Took = s.Attempt, s.Restarts, time.Since(j.begun)
	j.report.Tasks, j.report.Ended = s.Tasks, s.Ended
	j.report.First, j.report.Later = j.failures.sorted()
	if err := m.close(j.report); err != nil {
		j.warn("the meeting of the launchers: %v", err)
	}
}

// show publishes how things are.
func (j *Job) show() {
	s := j.count()
	j.mu.Lock()
	defer j.mu.Unlock()
	j.mu.status, j.mu.service = s, j.service
}

func (j *Job) count() Status {
	s := Status{Attempt: j.plan.attempt, Restarts: j.cfg.MaxRestarts - j.plan.left, Tasks: len(j.plan.tasks), Ending: j.plan.ending != notEnding}
	for _, t := range j.plan.tasks {
		switch {
		case t.phase == running:
			s.Running++
		case t.well:
			s.Ended++
		default:
			s.Failed++
		}
	}
	return s
}

func (j *Job) note(format string, args ...any) {
	j.cfg.Display.Note(Note{Text: fmt.Sprintf(format, args...)})
}

func (j *Job) warn(format string, args ...any) {
	j.cfg.Display.Note(Note{Warning: true, Text: fmt.Sprintf(format, args...)})
}
