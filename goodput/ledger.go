package goodput

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// A Cause is what time was lost to.
type Cause string

// The causes. Phases that a program reports are causes by their own names; the usual one is that of a checkpoint.
const (
	Start       Cause = "start"       // from the launch to the first step, compilation included
	Stall       Cause = "stall"       // what steps took longer than twice the usual time
	Checkpoint  Cause = "checkpoint"  // a phase
	Detect      Cause = "detect"      // from the last step before a failure to the verdict
	Restart     Cause = "restart"     // from the verdict to the first step that follows
	Redo        Cause = "redo"        // steps that had been done before
	Coordinator Cause = "coordinator" // from the take-over of another server to the first step that follows
	Stopped     Cause = "stopped"     // no attempt runs
	OtherPhase  Cause = "other"       // phases beyond the number that is kept apart
)

// maxCauses bounds how many causes are kept apart: metrics have them as labels.
const maxCauses = 24

// A Ledger divides the time since the launch of a job into productive time and lost time by cause (D-GP-7). Every moment is
// counted once, so the parts add up to the whole.
//
// Time is not divided before it is known what it was: the time since the last step is productive if the next step comes, and
// lost if a failure does.
type Ledger struct {
	began time.Time
	mark  time.Time     // up to which time is divided, but for open
	open  time.Duration // time of the step that is under way, before mark
	state Cause         // what the time since mark is lost to; empty: steps are made
	phase string        // that the program is in, or empty

	step, highest int64 // the last step, and the last that was new
	stepped       bool  // there was one
	productive    time.Duration
	lost          map[Cause]time.Duration
	took          [windowPlaces]time.Duration // the last steps
	seen          int
}

// NewLedger begins at the launch of a job.
func NewLedger(now time.Time) *Ledger {
	return &Ledger{began: now, mark: now, state: Start, lost: make(map[Cause]time.Duration)}
}

// lose counts the time up to now as lost.
func (l *Ledger) lose(now time.Time, to Cause) {
	if _, known := l.lost[to]; !known && len(l.lost) >= maxCauses {
		to = OtherPhase
	}
	l.lost[to] += l.pass(now)
}

// pass moves the mark, and returns how much time that is.
func (l *Ledger) pass(now time.Time) time.Duration {
	d := max(0, now.Sub(l.mark))
	l.mark = l.mark.Add(d)
	return d
}

// Step says that the job has finished a step. Numbers may be left out, and may go back: then steps are done again.
func (l *Ledger) Step(now time.Time, s Step) {
	l.suspend(now)
	switch {
	case l.state != "":
		l.lose(now, l.state)
		l.state, l.open = "", 0
	case s.Number > l.step:
		l.finish(s.Number - l.step)
	case s.Number < l.step:
		l.lost[Redo] += l.open // the program has gone back to an earlier state
		l.open = 0
	}
	if s.Number > l.highest || !l.stepped {
		l.highest = s.Number
	}
	l.step, l.stepped, l.phase = s.Number, true, s.Phase
}

// suspend ends what the program was at: a phase, or a part of a step.
func (l *Ledger) suspend(now time.Time) {
	switch {
	case l.state != "":
	case l.phase != "":
		l.lose(now, Cause(l.phase))
		l.phase = ""
	default:
		l.open += l.pass(now)
	}
}

// finish divides the time of some steps that have come together. Those that had been done before are done again; of the others
// each may take twice the usual time, and the rest is a stall.
func (l *Ledger) finish(steps int64) {
	each := l.open / time.Duration(steps)
	again := min(max(l.highest-l.step, 0), steps)
	redo := each * time.Duration(again)
	if again == steps {
		redo = l.open
	}
	l.lost[Redo] += redo
	fresh := l.open - redo
	good := fresh
	if l.seen >= windowPlaces/4 {
		good = min(fresh, 2*l.usual()*time.Duration(steps-again))
	}
	l.productive += good
	l.lost[Stall] += fresh - good
	l.took[l.seen%windowPlaces] = each
	l.seen++
	l.open = 0
}

// usual is the median time of the last steps.
func (l *Ledger) usual() time.Duration { return median(l.took[:min(l.seen, windowPlaces)]) }

// Failed says that the job, or a rank that it needs, has failed.
func (l *Ledger) Failed(now time.Time) {
	if l.state == Stopped {
		return
	}
	l.suspend(now)
	l.lost[Detect] += l.open
	l.open = 0
	if l.state != "" {
		l.lose(now, l.state)
	}
	if l.state != Start || l.stepped {
		l.state = Restart
	}
}

// Opened says that an attempt begins.
func (l *Ledger) Opened(now time.Time) {
	if l.state != Stopped {
		return // a restart lasts until its first step
	}
	l.lose(now, Stopped)
	l.state = Start
}

// TookOver says that another server serves the job from now on.
func (l *Ledger) TookOver(now time.Time) {
	l.suspend(now)
	if l.state == "" {
		l.lost[Coordinator] += l.open
		l.open = 0
	} else {
		l.lose(now, l.state)
	}
	l.state = Coordinator
}

// Ended says that all ranks have left.
func (l *Ledger) Ended(now time.Time) {
	l.suspend(now)
	if l.state != "" {
		l.lose(now, l.state)
	} else {
		l.finish(1)
	}
	l.state = Stopped
}

// Goodput is how the time of a job was used.
type Goodput struct {
	Wall       time.Duration
	Productive time.Duration
	Lost       map[Cause]time.Duration // without those of which there is nothing
	Step       int64                   // the last one; -1: none was reported
	Usual      time.Duration           // that a step takes, the median of the last ones; 0: too few were made
	Phase      string
}

// Known says whether there is a figure: without steps there is none (D-GP-8).
func (g Goodput) Known() bool { return g.Step >= 0 && g.Wall > 0 }

// Share is productive time as a share of all time.
func (g Goodput) Share() float64 { return float64(g.Productive) / float64(max(g.Wall, 1)) }

// Causes are those to which time was lost, the greatest loss first.
func (g Goodput) Causes() []Cause {
	return slices.SortedFunc(maps.Keys(g.Lost), func(a, b Cause) int {
		return cmp.Or(cmp.Compare(g.Lost[b], g.Lost[a]), cmp.Compare(a, b))
	})
}

// Goodput says how the time up to now was used. The step that is under way counts as if it ended now, which the next event may
// prove wrong; see [Ledger.Settled].
func (l *Ledger) Goodput(now time.Time) Goodput { return l.until(now, true) }

// Settled is Goodput without the step that is under way. No part of it ever shrinks, so it can be exported as a counter.
func (l *Ledger) Settled(now time.Time) Goodput { return l.until(now, false) }

func (l *Ledger) clone() *Ledger {
	c := *l
	c.lost = maps.Clone(l.lost)
	return &c
}

func (l *Ledger) until(now time.Time, whole bool) Goodput {
	c := l.clone()
	c.suspend(now)
	if c.state != "" {
		c.lose(now, c.state)
	} else if c.open > 0 && whole {
		c.finish(1)
	}
	g := Goodput{Wall: c.mark.Sub(c.began) - c.open, Productive: c.productive, Lost: c.lost, Step: -1, Phase: l.phase}
	maps.DeleteFunc(g.Lost, func(_ Cause, d time.Duration) bool { return d == 0 })
	if l.stepped {
		g.Step = l.step
	}
	if l.seen >= windowPlaces/4 {
		g.Usual = l.usual() // without the step that is under way, which may be one that hangs
	}
	return g
}
