package launch

import (
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/secure"
)

// A Job is a running job, or the part of one on this host.
//
// One goroutine, drive, decides everything. Nothing that it does may block: not on a terminal, a pipe, a
// process, the network, a disk or a sweep. While it waits for one of these, a signal reaches no task, and
// a preempted host loses the seconds in which its tasks could save. So what may block is done elsewhere
// and comes back as an event: a crew starts and ends processes, the meeting passes orders on, a feed
// shows what there is to be shown, and goroutines of the job open and close services (see [Job.serviceWork]).
type Job struct {
	// Set in Start, then constant.
	cfg   Config
	world world
	feed  *feed
	run   string
	begun time.Time
	inbox chan any      // what happens; read by drive
	over  chan struct{} // closed when no task runs or will run
	ended chan struct{} // closed when nothing else does either

	// Owned by drive until ended is closed.
	plan       *plan
	places     places
	here       *crew         // of this host
	meeting    *meeting      // or nil: there is no other host
	ranks      *ranks        // or nil: hosts have the tasks of their number
	archive    *archive      // keeps the ranks; or nil
	service    service       // of this attempt, or of the one before while opening
	secret     secure.Secret // of this attempt
	opening    bool          // the service of this attempt is on its way
	keeping    int           // editions of the state that are being written
	unready    []int         // tasks that wait for these two
	failures   failures      // of this attempt
	exceptions exceptions    // of this attempt
	hangs      hangs         // of this attempt
	attempts   attempts
	hosts      map[int]string  // names of other hosts, by node, the last that each had
	skews      []string        // what was told of clocks of other hosts
	incident   incident        // the present one, or the last
	held       []any           // events that wait for a look at the service
	look       <-chan struct{} // ready when the service has been looked at; nil: no event waits
	lookEnds   *time.Timer     // for the look, or nil
	report     Report
	patience   *time.Timer // for hosts that are missing; nil: none is
	sayWaiting time.Time   // when to name the hosts that are missing; zero: none is
	warned     bool        // that the secret goes to other hosts in plain text
	lastWord   *time.Timer // for hosts to say that their tasks were killed; nil: they were not told to

	serviceWork sync.WaitGroup // goroutines that open and close services

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
	Service  coord.View // as the service sees it
}

// A contact is what a task needs to reach its job and be let in.
type contact struct {
	address string        // of the service, or empty: by the relay of its host
	secret  secure.Secret // of the attempt
}

// A hand carries out on one host what the job decides. None of its methods waits. What happens there
// comes back through the inbox as died and left events.
type hand interface {
	start(s seat, at contact)
	end(sig syscall.Signal, unlimited bool) // and kill after the grace, unless tasks may take as long as they need
	pass(sig syscall.Signal)                // a signal that is not meant to end anything
	fail(l lifetime, why string)            // ends one task that has failed, and tells a service that others run why
	kill()
}

// Start starts a job. It returns an error if nothing was started at all.
func Start(cfg Config) (*Job, error) { return start(cfg, reality{}) }

func start(cfg Config, w world) (*Job, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	j := &Job{
		cfg: cfg, world: w, feed: newFeed(cfg.Display),
		run: newRun(), begun: time.Now(), inbox: make(chan any), over: make(chan struct{}), ended: make(chan struct{}),
		hosts: make(map[int]string),
		plan:  newPlan(cfg.total(), cfg.MaxRestarts, cfg.Restart, cfg.Recoverable),
	}
	j.plan.overlap = cfg.planted == attemptsOverlap
	j.cfg.Service.Log, j.cfg.Relay.Log = j.feed.logger(cfg.Service.Log), j.feed.logger(cfg.Relay.Log)
	begin := j.lead
	if cfg.Node > 0 {
		begin = j.follow
	}
	if err := begin(); err != nil {
		j.feed.close(nil)
		return nil, err
	}
	return j, nil
}

// crew makes the crew of this host.
func (j *Job) crew(events chan<- any) (*crew, error) {
	if _, err := j.cfg.find(); err != nil {
		return nil, err
	}
	k, err := j.world.kernel(j.cfg, j.run)
	if err != nil {
		return nil, err
	}
	return newCrew(j.cfg, j.run, k, j.feed, events)
}

// lead starts what the first host of a job has.
func (j *Job) lead() error {
	var err error
	if j.ranks, err = openRanks(j.cfg, j.feed); err != nil {
		return err
	}
	if j.here, err = j.crew(j.inbox); err != nil {
		return err
	}
	if err := j.openDoors(); err != nil {
		j.here.close()
		return err
	}
	j.places = newPlaces(j.cfg.nodes(), j.here)
	if j.ranks != nil {
		j.archive = newArchive(j.cfg.StateDir, j.inbox)
		j.places.assignByIdentity()
	}
	go func() {
		defer close(j.ended)
		j.drive()
		j.windUp()
	}()
	return nil
}

// openDoors opens what tasks and other launchers connect to.
func (j *Job) openDoors() (err error) {
	if j.cfg.Listen != "" {
		if j.cfg.port, err = openFixedPort(j.world, j.cfg.Listen); err != nil {
			return err
		}
	}
	if j.service, err = j.openService(1, nil); err != nil {
		return errors.Join(err, j.closePort())
	}
	if j.meeting, err = openMeeting(j.cfg, j.world, j.feed, j.inbox); err != nil {
		j.service.close()
		return errors.Join(err, j.closePort())
	}
	return nil
}

// openService opens the service of an attempt, which goes on with the account of the former one, or nil. It is listed before
// any task can start.
func (j *Job) openService(attempt int, former service) (service, error) {
	cfg := j.cfg
	if former != nil {
		cfg.Service.Account = former.account()
	}
	s, err := j.world.service(cfg, j.here, attempt)
	if err == nil {
		j.cfg.list(s.address(), attempt)
	}
	return s, err
}

// closePort closes the port that the services of all attempts share, if there is one.
func (j *Job) closePort() error {
	if j.cfg.port == nil {
		return nil
	}
	return j.cfg.port.close()
}

// Signal passes a signal on to every task. SIGINT, SIGTERM and SIGHUP end the job: a task that takes
// longer than the grace is killed, and at the second such signal all are. With Config.SchedulerKills SIGTERM, once
// or again, kills no task.
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

// Done is closed when nothing of the job runs any more, and what it had to say has been shown.
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
		s.Service = service.view()
	}
	return s
}

// checkEvery is how often the job looks for waits that cannot end.
const checkEvery = time.Second

// drive owns the job. No other goroutine touches its plan and its places.
func (j *Job) drive() {
	check, checked := time.NewTimer(checkEvery), time.Now()
	defer check.Stop()
	j.sit()
	over := j.perform(j.plan.begin())
	for !over {
		j.show()
		check.Reset(time.Until(checked.Add(j.nextCheck())))
		var next step
		select {
		case ev := <-j.inbox:
			next = j.take(ev)
		case <-check.C:
			checked = time.Now()
			next = j.check()
		case <-j.look:
			next = j.looked()
		case <-timeout(j.lookEnds):
			next = j.looked()
		case <-timeout(j.patience):
			next = j.missing()
		case <-timeout(j.lastWord):
			next = j.giveUpHosts()
		}
		over = j.perform(next)
	}
}

// timeout is the channel of a timer; nil has none.
func timeout(t *time.Timer) <-chan time.Time {
	if t == nil {
		return nil
	}
	return t.C
}

// lookPatience is how long a service that others run may take to say what it knows.
const lookPatience = 300 * time.Millisecond

// take handles an event. What the service knew before a process ended is why processes end, so the
// first death of an attempt waits for a look at the service, and what happens to other tasks and hosts
// waits behind it, to be handled in its order. A signal waits for nothing.
func (j *Job) take(ev any) step {
	if _, ok := ev.(signalled); ok {
		return j.event(ev)
	}
	if d, ok := ev.(died); ok && j.look == nil && !d.Cause.Well() && j.wantsVerdict() {
		if j.look = j.service.fresh(); j.look != nil {
			j.lookEnds = time.NewTimer(lookPatience)
		}
	}
	if j.look != nil {
		j.held = append(j.held, ev) // each sender waits for us or has a queue with a limit
		return step{}
	}
	return j.event(ev)
}

// looked handles the events that waited for a look at the service.
func (j *Job) looked() step {
	j.lookEnds.Stop()
	j.look, j.lookEnds = nil, nil
	held := j.held
	j.held = nil
	for _, ev := range held {
		if j.perform(j.event(ev)) {
			return step{over: true}
		}
	}
	return step{}
}

func (j *Job) event(ev any) step {
	switch ev := ev.(type) {
	case died:
		return j.died(ev)
	case left:
		return j.left(ev)
	case raised:
		return j.raised(ev)
	case classed:
		j.classed(ev)
		return step{}
	case gathered:
		j.gathered(ev)
		return step{}
	case strayed:
		j.strayed(ev)
		return step{}
	case skewed:
		j.skewed(ev)
		return step{}
	case signalled:
		return j.signalled(ev)
	case arrived:
		return j.arrived(ev)
	case retiring:
		return j.retiring(ev)
	case lost:
		return j.lost(ev)
	case opened:
		return j.opened(ev)
	case kept:
		return j.kept(ev)
	case failOrder:
		return j.failOrdered(ev)
	}
	panic(fmt.Sprintf("launch: unknown event %T", ev))
}

// perform does what the plan says.
func (j *Job) perform(s step) (over bool) {
	if s.open {
		j.open()
	}
	for _, task := range s.start {
		j.start(task)
	}
	if s.stop {
		j.places.each(func(h hand) { h.end(syscall.SIGTERM, false) })
		s.over = j.dropWaiting() || s.over
	}
	return s.over
}

// dropWaiting gives up the tasks that wait for a host, for the service or for the state.
func (j *Job) dropWaiting() (over bool) {
	waiting := j.unready
	j.unready = nil
	for _, seat := range j.places.drop() {
		waiting = append(waiting, seat.Task)
	}
	for _, task := range waiting {
		over = j.perform(j.plan.gone(task))
	}
	return over
}

// An opened event says that the service of an attempt is there, or why not.
type opened struct {
	service service
	err     error
}

// open begins an attempt. Everything of the one before has ended; its service goes only when the new
// one has its address, so that the two are not the same.
func (j *Job) open() {
	j.attempts.begin(j.plan.attempt, time.Now(), j.failures)
	j.failures, j.exceptions, j.hangs = failures{}, exceptions{}, hangs{past: j.hangs.past}
	if j.secret == nil || j.cfg.planted != oneSecret {
		j.secret = secure.Draw()
	}
	clear(j.places.taskOn)
	if j.plan.attempt == 1 {
		j.noteAttempt()
		return
	}
	j.opening = true
	attempt := j.plan.attempt
	former := j.service
	j.serviceWork.Go(func() {
		s, err := j.openService(attempt, former)
		select {
		case j.inbox <- opened{s, err}:
		case <-j.over:
			if err == nil {
				s.close()
			}
		}
	})
}

// opened puts the service of an attempt in the place of the one before.
func (j *Job) opened(ev opened) step {
	j.opening = false
	if ev.err != nil {
		j.report.Err, j.report.Code = fmt.Errorf("attempt %d: %w", j.plan.attempt, ev.err), CodeStart
		return j.plan.finish()
	}
	j.closeBeside(j.service)
	j.service = ev.service
	j.noteAttempt()
	return j.release()
}

// release starts the tasks that waited for the service of their attempt and for the state.
func (j *Job) release() step {
	if j.opening || j.keeping > 0 {
		return step{}
	}
	tasks := j.unready
	j.unready = nil
	return step{start: tasks}
}

func (j *Job) noteAttempt() {
	j.note("attempt %d: %s, %v", j.plan.attempt, counted(j.cfg.total(), "rank"), j.service)
}

// closeBeside closes a service, which may take as long as a network does.
func (j *Job) closeBeside(s service) {
	j.serviceWork.Go(func() {
		if err := s.close(); err != nil {
			j.warn("%v: %v", s, err)
		}
	})
}

// start starts a task on the host that has its place, or lets it wait for one, or for what it needs.
func (j *Job) start(task int) {
	if j.opening || j.keeping > 0 {
		j.unready = append(j.unready, task)
		delete(j.places.taskOn, task)
		return
	}
	s := seat{
		Task: task, Tasks: j.cfg.total(), Local: task % j.cfg.Tasks, Locals: j.cfg.Tasks,
		Node: task / j.cfg.Tasks, Nodes: j.cfg.nodes(), Attempt: j.plan.attempt, Life: j.plan.tasks[task].life,
	}
	h, took := j.places.find(s)
	if took {
		j.note("the ranks of node %d go to a spare host", s.Node)
	}
	if h == nil {
		if j.patience == nil {
			j.patience = time.NewTimer(j.cfg.Service.Cluster.RegisterTimeout)
		}
		delete(j.places.taskOn, task)
		return
	}
	h.start(s, contact{address: j.service.address(), secret: j.secret})
}

// windUp sums up, and ends everything that is not a task. A signal that means the end ends all waiting:
// the second, if no other came before.
func (j *Job) windUp() {
	close(j.over)
	j.remember()
	s := j.count()
	j.report.Attempts, j.report.Restarts, j.report.Took = s.Attempt, s.Restarts, time.Since(j.begun)
	j.report.Tasks, j.report.Ended, j.report.Goodput = s.Tasks, s.Ended, j.service.used()
	j.report.First, j.report.Later = j.failures.sorted()
	j.report.Aftermath = j.aftermath()
	if n := len(j.report.Later); n > 0 && j.cfg.planted == lastIsFirst {
		j.report.First = j.report.Later[n-1]
	}
	j.mu.Lock()
	j.mu.status, j.mu.service = s, nil
	j.mu.Unlock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		j.closeAll()
	}()
	told := j.report.Interrupted != 0
	for {
		select {
		case ev := <-j.inbox:
			if s, ok := ev.(signalled); ok {
				told = j.rush(s, told)
			}
		case <-done:
			return
		}
	}
}

// rush takes a signal when no task is left, and says whether one that means the end has come.
func (j *Job) rush(s signalled, told bool) bool {
	switch {
	case !s.ends():
		return told
	case told:
		j.here.rush()
		return true
	}
	j.note("signal %d: all ranks have ended, and what they left behind has %v to end", s.Signal, j.cfg.Grace)
	return true
}

// closeAll ends everything that is not a task.
func (j *Job) closeAll() {
	if j.cfg.Directory != nil && j.service.lost() == nil {
		j.publishFailure(j.service.view().Epoch)
		j.service.settle() // the directory asks the service
		j.cfg.Directory.Closes()
	}
	j.here.close()
	j.closeBeside(j.service)
	j.serviceWork.Wait()
	if err := j.closePort(); err != nil {
		j.warn("%s: %v", j.cfg.Listen, err)
	}
	j.archive.close(j.here.hurry)
	if err := j.meeting.close(j.report, j.here.hurry); err != nil {
		j.warn("the meeting of the launchers: %v", err)
	}
	j.feed.close(j.here.hurry)
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
	if j.cfg.planted == notesInline {
		j.cfg.Display.Note(Note{Text: fmt.Sprintf(format, args...)})
		return
	}
	j.feed.note(Note{Text: fmt.Sprintf(format, args...)})
}

func (j *Job) warn(format string, args ...any) {
	j.feed.note(Note{Warning: true, Text: fmt.Sprintf(format, args...)})
}
