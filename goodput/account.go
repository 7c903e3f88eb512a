package goodput

import (
	"slices"
	"time"
)

// An Account is what one job has done: how its time was used, and which of its ranks hold the others up. It outlives attempts.
type Account struct {
	ledger *Ledger
	began  time.Time

	// Of the present attempt.
	pace     *Pace
	steps    []report // by rank
	reporter int      // the lowest rank that reports steps, by which the ledger goes; or -1
	target   int64    // the step that is waited for: a place like a barrier
	reached  int      // ranks that have come to it
	passing  []time.Duration
}

// A report is the last step that a rank reported.
type report struct {
	step  int64
	at    time.Duration // since the account began
	known bool
}

// StepClass is the class of steps in a [Pace]. No barrier is called that: their classes have no space.
const StepClass = "reported steps"

// NewAccount begins at the launch of a job.
func NewAccount(now time.Time) *Account {
	return &Account{ledger: NewLedger(now), began: now, pace: NewPace(0), reporter: -1, target: -1}
}

// Continued is an account that goes on from here, for the next attempt. What is said of the one does not change the other.
func (a *Account) Continued() *Account {
	next := NewAccount(a.began)
	next.ledger = a.ledger.clone()
	return next
}

// Opened says that an attempt with so many ranks begins.
func (a *Account) Opened(now time.Time, ranks int) {
	a.ledger.Opened(now)
	a.pace, a.steps, a.reporter, a.target, a.reached = NewPace(ranks), make([]report, ranks), -1, -1, 0
	a.passing = make([]time.Duration, ranks)
}

// TookOver, Failed and Ended say what has happened to the job: see [Ledger].
func (a *Account) TookOver(now time.Time) { a.ledger.TookOver(now) }

// Failed says that the job, or a rank that it needs, has failed.
func (a *Account) Failed(now time.Time) { a.ledger.Failed(now) }

// Ended says that all ranks have left.
func (a *Account) Ended(now time.Time) { a.ledger.Ended(now) }

// Passed says when each rank came to a barrier that has passed: see [Pace.Passed].
func (a *Account) Passed(class string, at []time.Duration, hosts func(rank int) string) {
	a.pace.Passed(class, at, hosts)
}

// Step says that a rank has reported a step.
func (a *Account) Step(now time.Time, rank int, s Step, hosts func(rank int) string) {
	if rank < 0 || rank >= len(a.steps) {
		return
	}
	if a.reporter < 0 || rank < a.reporter {
		a.reporter = rank
	}
	if rank == a.reporter {
		a.ledger.Step(now, s)
	}
	former := a.steps[rank]
	a.steps[rank] = report{s.Number, now.Sub(a.began), true}
	if former.known && s.Number > former.step {
		a.cross(rank, former, hosts)
	}
}

// cross looks whether a rank has come to the step that is waited for. Reports leave steps out, so the time is that of the
// line between two of them. Once all ranks have come there the next step is waited for: one that no rank has come to.
func (a *Account) cross(rank int, former report, hosts func(rank int) string) {
	now := a.steps[rank]
	if a.target < 0 {
		a.aim()
		return
	}
	if former.step >= a.target || now.step < a.target {
		return
	}
	part := float64(a.target-former.step) / float64(now.step-former.step)
	a.passing[rank] = former.at + time.Duration(part*float64(now.at-former.at))
	if a.reached++; a.reached == len(a.steps) {
		a.pace.Passed(StepClass, a.passing, hosts)
		a.aim()
	}
}

// aim chooses the next step that is waited for.
func (a *Account) aim() {
	a.reached = 0
	for _, r := range a.steps {
		a.target = max(a.target, r.step+1)
	}
}

// Stragglers lists ranks and hosts that hold the others up: see [Pace.Stragglers].
func (a *Account) Stragglers() []Straggler { return a.pace.Stragglers() }

// Goodput says how the time up to now was used.
func (a *Account) Goodput(now time.Time) Goodput { return a.ledger.Goodput(now) }

// Settled is Goodput without the step that is under way: see [Ledger.Settled].
func (a *Account) Settled(now time.Time) Goodput { return a.ledger.Settled(now) }

// Steps are the last steps that ranks have reported, -1 for those that have not; nil if none has.
func (a *Account) Steps() []int64 {
	if !slices.ContainsFunc(a.steps, func(r report) bool { return r.known }) {
		return nil
	}
	steps := make([]int64, len(a.steps))
	for i, r := range a.steps {
		if steps[i] = -1; r.known {
			steps[i] = r.step
		}
	}
	return steps
}
