package launch

// A Restart says what is started again after a task has failed.
type Restart string

// The policies.
const (
	RestartNever  Restart = "never"  // the job ends, unless it is recoverable
	RestartFailed Restart = "failed" // the task alone, while the others go on
	RestartAll    Restart = "all"    // everybody, as a new attempt
)

// A plan decides what happens to the tasks of a job as they end. It is a plain value: who uses it
// tells it what happened and does what it says.
type plan struct {
	restart     Restart
	left        int  // restarts that may still be made
	recoverable bool // the others go on without a task that failed
	overlap     bool // a planted fault: an attempt does not wait for the one before

	attempt int
	tasks   []place
	ending  ending
}

// A place is where one task of the plan stands.
type place struct {
	phase phase
	life  int  // number of its process in this attempt, from 1
	well  bool // its process ended well
	again bool // to be started again when it is gone
}

type phase int

const (
	running phase = iota
	dying         // its process has ended; what it left behind has not
	gone
)

// An ending is why running tasks are being stopped.
type ending int

const (
	notEnding ending = iota
	endingAttempt
	endingJob
)

// A step is what must happen next. The zero step is to wait.
type step struct {
	open  bool  // a new attempt, with a service of its own, before tasks are started
	start []int // these tasks
	stop  bool  // every task that still runs
	over  bool  // nothing runs any more, and nothing will
}

func newPlan(tasks, restarts int, restart Restart, recoverable bool) *plan {
	return &plan{restart: restart, left: restarts, recoverable: recoverable, tasks: make([]place, tasks)}
}

// begin opens the next attempt.
func (p *plan) begin() step {
	p.attempt++
	p.ending = notEnding
	s := step{open: true}
	for i := range p.tasks {
		p.tasks[i] = place{phase: running, life: 1}
		s.start = append(s.start, i)
	}
	return s
}

// died takes note that the process of a task has ended, well or not.
func (p *plan) died(task int, well bool) step { return p.ended(task, well, false) }

// diedToo is died for a failure whose cause another one was charged for: a host that is lost or told to
// end takes all its tasks with it.
func (p *plan) diedToo(task int) step { return p.ended(task, false, true) }

func (p *plan) ended(task int, well, free bool) step {
	t := &p.tasks[task]
	t.phase, t.well = dying, well
	switch {
	case well || p.ending != notEnding:
	case p.restart == RestartFailed && (p.left > 0 || free):
		p.charge(free)
		t.again = true
	case p.restart == RestartAll && (p.left > 0 || free):
		p.charge(free)
		p.ending = endingAttempt
		return step{stop: true}
	case p.restart == RestartNever && p.recoverable:
	default:
		p.ending = endingJob
		return step{stop: true}
	}
	return step{}
}

func (p *plan) charge(free bool) {
	if !free {
		p.left--
	}
}

// gone takes note that nothing of a task is left.
func (p *plan) gone(task int) step {
	t := &p.tasks[task]
	if t.again && p.ending == notEnding {
		*t = place{phase: running, life: t.life + 1}
		return step{start: []int{task}}
	}
	t.phase = gone
	switch {
	case !p.allGone() && !(p.overlap && p.ending == endingAttempt):
		return step{}
	case p.ending == endingAttempt:
		return p.begin()
	}
	return step{over: true}
}

// finish ends the job, whatever it does.
func (p *plan) finish() step {
	p.ending = endingJob
	if p.allGone() {
		return step{over: true}
	}
	return step{stop: true}
}

func (p *plan) allGone() bool {
	for _, t := range p.tasks {
		if t.phase != gone {
			return false
		}
	}
	return true
}
