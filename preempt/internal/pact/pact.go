package pact

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/serry-dev/serry"
)

// Dir is the folder in which all keys lie.
const Dir = "serry/preempt"

// Key is a key of a round.
func Key(round int, parts ...string) string {
	return Dir + "/" + strconv.Itoa(round) + "/" + strings.Join(parts, "/")
}

// Config says who takes part, and how.
type Config struct {
	Task     string        // this task, as a part of a key
	Margin   int64         // how many steps are made while the tasks agree
	Lead     time.Duration // how long before a deadline the tasks begin to agree
	Patience time.Duration // how long after a notice its round goes on at least
}

// A Pact is what one life of one task knows. Calls must not overlap.
type Pact struct {
	cfg Config

	// The steps of this task.
	last     int64
	started  bool // this life has come to a step
	holds    bool // steps from `from` on wait for an outcome
	from     int64
	point    Point // the last step that was agreed on
	ahead    bool  // point is agreed on, and this task has not passed it
	promised bool  // this life promised to hold for point; else it found point in the store

	// The round.
	round   int
	phase   phase
	heard   int       // notices of the chain
	nearest time.Time // their first deadline
	latest  time.Time // their last deadline
	begun   time.Time // when it was time to agree, or zero
	attempt int
	late    int       // attempts in which a task had passed the proposal
	failed  int       // attempts that failed otherwise
	again   time.Time // the next attempt does not begin before

	// The attempt.
	proposal int64
	mine     string    // the answer of this task, then the outcome that it proposes
	errs     int       // calls that failed, one after the other
	resume   time.Time // no call is made before

	own     []ownNotice // notices to this task that no save point covers yet
	posting Posting     // of the phase reposting
	stale   []string    // folders of former attempts, which the task that makes the next proposal removes
	notes   []Note
}

// A Point is a step to save at.
type Point struct {
	Round int
	Step  int64
}

// An ownNotice is a notice to this task. It is open until a date: a notice that comes with the deadline
// itself still gets the patience of Config.
type ownNotice struct {
	Notice
	until time.Time
}

// A phase is what a task does at present.
type phase int

const (
	looking   phase = iota // reads which round and attempt the job is in
	reposting              // posts its own notices in a new round
	listening              // follows the chain of notices until it is time to agree
	sharing                // publishes its last step
	gathering              // waits until all have
	reading                // reads all steps
	proposing              // creates the proposal
	learning               // reads the proposal of another task
	clearing               // removes the keys of the former attempt
	answering              // publishes whether it holds
	meeting                // waits until all have
	counting               // reads all answers
	deciding               // creates the outcome
	finding                // reads the outcome of another task
	passing                // makes steps up to the agreed one
)

// New makes the pact of one life of a task. No step can be made before the first reply.
func New(cfg Config) *Pact {
	return &Pact{cfg: cfg, round: 1, holds: true, from: math.MinInt64}
}

// A Verdict says what a task does with a step.
type Verdict int

// The verdicts.
const (
	Go      Verdict = iota // the step is made, go on
	Save                   // the step is made, and is the one to save at
	Hold                   // the step must wait until something has changed
	Skipped                // the step is made, but the agreed one was left out
)

// Step is called before step n counts as made. The first step tells where this life begins: a former
// life, or a checkpoint, has made those before.
func (p *Pact) Step(n int64) Verdict {
	if !p.started && n > math.MinInt64 {
		p.started, p.last = true, n-1
		p.passFormer()
	}
	if p.holds && n >= p.from {
		return Hold
	}
	p.last = n
	if !p.ahead || n < p.point.Step {
		return Go
	}
	p.pass()
	if n != p.point.Step {
		return Skipped
	}
	p.own = nil // this task saves after all notices that it has had
	return Save
}

// passFormer passes an agreed step that a former life has made: this one begins after it. The step does
// not serve the notices that this life has had.
func (p *Pact) passFormer() {
	if p.started && p.ahead && !p.promised && p.last >= p.point.Step {
		p.pass()
		p.carryOver()
	}
}

// pass leaves the agreed step behind.
func (p *Pact) pass() {
	p.ahead = false
	if p.phase == passing {
		p.enter(p.round + 1)
	}
}

// Point is the last step that was agreed on.
func (p *Pact) Point() (Point, bool) { return p.point, p.point.Round > 0 }

// Ahead says whether a step is agreed on which this task has not passed yet.
func (p *Pact) Ahead() bool { return p.ahead }

// Started says whether this life has come to a step.
func (p *Pact) Started() bool { return p.started }

// Ready says whether this task knows which round the job is in. Only then can it post.
func (p *Pact) Ready() bool { return p.phase != looking }

// MaxNotices bounds the notices that a task may have without a save in between.
const MaxNotices = 64

// Post begins to announce a notice to this task. If the task has not passed the step that its round
// will agree on, that step serves the notice as well. Otherwise the notice belongs to the next round,
// which Step has entered.
func (p *Pact) Post(now time.Time, n Notice) (Posting, error) {
	if len(p.own) >= MaxNotices {
		return Posting{}, &serry.LimitError{Limit: "preemption notices without a save", Max: MaxNotices}
	}
	until := now.Add(p.cfg.Patience)
	if n.Deadline.After(until) {
		until = n.Deadline
	}
	p.own = append(p.own, ownNotice{n, until})
	return newPosting(p.round, n), nil
}

// Withdraw takes back a notice that could not be posted.
func (p *Pact) Withdraw(n Notice) {
	p.own = slices.DeleteFunc(p.own, func(o ownNotice) bool { return o.Notice == n })
}

// Notes returns what has happened since the last call.
func (p *Pact) Notes() []Note {
	notes := p.notes
	p.notes = nil
	return notes
}

// enter begins a round.
func (p *Pact) enter(round int) {
	p.remove(Key(p.round, "try"), Key(p.round, "notice")) // receipts stay
	p.round, p.phase = round, listening
	p.heard, p.attempt, p.late, p.failed = 0, 0, 0, 0
	p.begun, p.again = time.Time{}, time.Time{}
}

// maxStale bounds how many folders a task remembers to remove.
const maxStale = 8

// remove notes folders that no task needs any more when all have come to the next attempt.
func (p *Pact) remove(folders ...string) {
	p.stale = append(p.stale, folders...)
	p.stale = p.stale[max(0, len(p.stale)-maxStale):]
}

// release ends the promise to hold.
func (p *Pact) release() { p.holds = false }

// promise holds all steps from step on, or says that it is too late for that. If it is too late for a
// restarted task, its former life did not promise either.
func (p *Pact) promise(step int64) bool {
	p.holds, p.from = !p.started || p.last < step, step
	return p.holds
}

// open says whether a deadline of the round is, or whether the tasks have not tried long enough.
func (p *Pact) open(now time.Time) bool {
	if now.Before(p.latest) || now.Before(p.begun.Add(p.cfg.Patience)) {
		return true
	}
	return slices.ContainsFunc(p.own, func(o ownNotice) bool { return now.Before(o.until) })
}
