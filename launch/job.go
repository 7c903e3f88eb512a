package launch

import (
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/wire"
)

// A Job is a running job.
type Job struct {
	// Set in Start, then constant.
	cfg   Config
	run   string
	begun time.Time
	inbox chan any
	ended chan struct{} // closed when the job is over

	// Owned by drive until ended is closed.
	crew     *crew
	plan     *plan
	service  *service
	failures []*Failure // of this attempt, not made good, in the order they were seen
	report   Report

	mu struct {
		sync.Mutex
		status  Status
		service *service
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
	Address  string     // of the service
	Service  coord.View // as the service sees it
}

// Start starts a job. It returns an error if nothing was started at all.
func Start(cfg Config) (*Job, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	j := &Job{
		cfg: cfg, run: newRun(), begun: time.Now(), inbox: make(chan any), ended: make(chan struct{}),
		plan: newPlan(cfg.Tasks, cfg.MaxRestarts, cfg.Restart, cfg.Recoverable),
	}
	first, err := openService(cfg.Service, cfg.Listen, cfg.Tasks)
	if err != nil {
		return nil, err
	}
	if j.crew, err = newCrew(cfg, j.run, 0, j.inbox); err != nil {
		first.close()
		return nil, err
	}
	go j.drive(first)
	return j, nil
}

// Run is the name of the job, which no other has.
func (j *Job) Run() string { return j.run }

// Signal passes a signal on to every task. SIGINT, SIGTERM and SIGHUP end the job: a task that takes
// longer than the grace is killed, and at the second such signal all are.
func (j *Job) Signal(sig syscall.Signal) {
	select {
	case j.inbox <- signalled{sig}:
	case <-j.ended:
	}
}

type signalled struct{ syscall.Signal }

// Wait returns when nothing of the job runs any more.
func (j *Job) Wait() Report {
	<-j.ended
	return j.report
}

// Done is closed when nothing of the job runs any more.
func (j *Job) Done() <-chan struct{} { return j.ended }

// Status draws a picture of the job.
func (j *Job) Status() Status {
	j.mu.Lock()
	s, service := j.mu.status, j.mu.service
	j.mu.Unlock()
	if service != nil {
		s.Address, s.Service = service.address, service.View()
	}
	return s
}

// drive owns the job. No other goroutine touches its crew and its plan.
func (j *Job) drive(first *service) {
	defer close(j.ended)
	j.service = first
	over := j.perform(j.plan.begin())
	for !over {
		j.show()
		switch ev := (<-j.inbox).(type) {
		case died:
			over = j.perform(j.died(ev))
		case left:
			over = j.perform(j.left(ev))
		case signalled:
			over = j.perform(j.signalled(ev.Signal))
		}
	}
	j.finish()
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
		j.crew.start(seat{
			task: task, tasks: j.cfg.Tasks, local: task, locals: j.cfg.Tasks, nodes: 1,
			attempt: j.plan.attempt, life: j.plan.tasks[task].life,
		}, j.service.address)
	}
	if s.stop {
		j.crew.end(syscall.SIGTERM)
	}
	return s.over
}

// open begins an attempt. Everything of the one before has ended; its service goes only when the new
// one has its address, so that the two are not the same.
func (j *Job) open() error {
	j.failures = nil
	if j.plan.attempt > 1 {
		j.crew.sweep()
		s, err := openService(j.cfg.Service, j.cfg.Listen, j.cfg.Tasks)
		if err != nil {
			return fmt.Errorf("attempt %d: %w", j.plan.attempt, err)
		}
		if err := j.service.close(); err != nil {
			j.warn("the service of attempt %d: %v", j.plan.attempt-1, err)
		}
		j.service = s
	}
	j.note("attempt %d: %d tasks, service on %s", j.plan.attempt, j.cfg.Tasks, j.service.address)
	return nil
}

// died tells the service at once, and asks the plan.
func (j *Job) died(ev died) step {
	verdict := j.verdict()
	evidence := ""
	if !ev.Cause.Well() {
		evidence = ev.Cause.evidence()
	}
	j.service.Exited(serry.TaskID{Job: wire.DefaultJob, Index: ev.Task}, evidence)

	ending := j.plan.ending
	s := j.plan.died(ev.Task, ev.Cause.Well())
	if ev.Cause.Well() {
		return s
	}
	if ending != notEnding {
		if j.report.Interrupted == 0 && !j.crew.ended(ev.Task, ev.Cause) {
			j.fail(ev)
		}
		return s
	}
	if verdict != nil && verdict.Task != ev.Task && len(j.failures) == 0 {
		verdict.Attempt, verdict.Life = j.plan.attempt, j.plan.tasks[verdict.Task].life
		j.failures = append(j.failures, verdict)
	}
	j.fail(ev)
	switch {
	case j.plan.tasks[ev.Task].again:
		j.failures = j.failures[:len(j.failures)-1]
		j.report.Restarts++
		j.note("task %d ended: %s; starting it again, %s left", ev.Task, ev.Cause.name(), restarts(j.plan.left))
	case j.plan.ending == endingAttempt:
		j.report.Restarts++
		j.note("task %d ended: %s; starting all again, %s left", ev.Task, ev.Cause.name(), restarts(j.plan.left))
	case j.plan.ending == endingJob:
		j.note("task %d ended: %s; ending the job", ev.Task, ev.Cause.name())
	default:
		j.note("task %d ended: %s; the others go on", ev.Task, ev.Cause.name())
	}
	return s
}

func (j *Job) fail(ev died) {
	j.failures = append(j.failures, &Failure{Task: ev.Task, Attempt: j.plan.attempt, Life: ev.Life, After: ev.After, Cause: ev.Cause})
}

func restarts(n int) string {
	if n == 1 {
		return "1 restart"
	}
	return fmt.Sprintf("%d restarts", n)
}

// verdict is the first failure as the service knows it. What it knows before a process has ended is
// why processes end: a task that fell silent, or one that reported an error.
func (j *Job) verdict() *Failure {
	if len(j.failures) > 0 {
		return nil
	}
	err := j.service.View().Failure
	lost, ok := errors.AsType[*serry.LostError](err)
	if ok {
		err = lost.Lost[0]
	}
	if task, ok := errors.AsType[*serry.TaskError](err); ok && !task.Task.IsZero() && task.Task.Index < j.cfg.Tasks {
		return &Failure{Task: task.Task.Index, Verdict: task.Error()}
	}
	return nil
}

func (j *Job) left(ev left) step {
	j.crew.forget(ev.Task)
	for _, f := range j.failures {
		if f.Task == ev.Task {
			f.Last = ev.Last
		}
	}
	if ev.Err != nil {
		j.warn("task %d: %v", ev.Task, ev.Err)
	}
	return j.plan.gone(ev.Task)
}

// signalled passes a signal on. The first that means the end gives tasks the grace, the second none.
func (j *Job) signalled(sig syscall.Signal) step {
	switch {
	case sig != syscall.SIGINT && sig != syscall.SIGTERM && sig != syscall.SIGHUP:
		j.crew.pass(sig)
		return step{}
	case j.report.Interrupted != 0:
		j.note("signal %d again: killing all tasks", sig)
		j.crew.kill()
		return step{}
	}
	j.note("signal %d: passed on to all tasks, which have %v to end", sig, j.cfg.Grace)
	j.report.Interrupted = sig
	j.crew.end(sig)
	s := j.plan.finish()
	s.stop = false // they have been told
	return s
}

// finish ends everything that is not a task, and sums up.
func (j *Job) finish() {
	j.crew.kill() // nobody, unless an attempt could not be opened
	j.crew.sweep()
	j.crew.close()
	j.mu.Lock()
	j.mu.service = nil
	j.mu.Unlock()
	if err := j.service.close(); err != nil {
		j.warn("the service: %v", err)
	}
	j.report.Attempts, j.report.Took, j.report.Tasks = j.plan.attempt, time.Since(j.begun), j.cfg.Tasks
	j.report.Ended = j.count().Ended
	if len(j.failures) > 0 {
		j.report.First, j.report.Later = j.failures[0], j.failures[1:]
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
	s := Status{Attempt: j.plan.attempt, Restarts: j.report.Restarts, Tasks: j.cfg.Tasks, Ending: j.plan.ending != notEnding}
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
