package wire

import (
	"cmp"
	"math"
	"net"
	"slices"
	"strings"

	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/wire/serrypb"
)

// Limits of a [Pick].
const (
	MaxPicked     = 1000 // tasks
	maxPickFilter = 64   // bytes
	maxPickBlamed = 64   // tasks
)

// A Pick is the part of the tasks that a status is to have where it is not to have all: those of a screen. A server that does not know
// it answers with all, and the caller picks from them by [Status.Picks].
type Pick struct {
	Limit  int      // how many tasks, up to MaxPicked
	From   int      // how many to leave out before them, at most
	Order  Order    // in which they come
	Filter string   // that the rank, host, state, last call or error of each has; empty: any
	Blamed []string // tasks that keep the others waiting, as the caller knows
}

// An Order is how the tasks of a [Pick] are sorted. Those that are equal come in the order of their numbers, and so do all with another
// order than these.
type Order string

// The orders.
const (
	ByTrouble Order = "trouble" // the worst first, then those that are most steps behind
	ByRank    Order = "rank"
	ByStep    Order = "step"    // the lowest first
	BySilence Order = "silence" // those first that were heard longest ago
)

// Picked says what a status has of the tasks, in one that has not all.
type Picked struct {
	Matching int         `json:"matching"`           // tasks that the filter lets through
	From     int         `json:"from"`               // how many of them were left out before the first
	MostStep int64       `json:"most_step"`          // of all tasks; -1: none was reported
	Readers  int         `json:"readers"`            // tasks that wait for a key for more than a moment
	Quietest *TaskStatus `json:"quietest,omitempty"` // the connected task whose last call is longest ago, with last calls
}

// A Trouble is how bad it is with a task. Less is worse.
type Trouble int

// The troubles.
const (
	TroubleFailed      Trouble = iota
	TroubleBlamed              // it keeps the others waiting
	TroubleAbsent              // it is not there yet
	TroubleRegistering         // it is about to join
	TroubleMissing             // at a barrier
	TroubleSlow                // slower than the others
	NoTrouble                  // it is at work
	TroubleOver                // it has left
)

// TroubleOf is the worst that holds of a task.
func TroubleOf(t *TaskStatus, blamed, missing, slow bool) Trouble {
	switch {
	case t.State == StateFailed:
		return TroubleFailed
	case blamed:
		return TroubleBlamed
	case t.State == StateAbsent:
		return TroubleAbsent
	case t.State == StateRegistering:
		return TroubleRegistering
	case missing && t.State == StateConnected:
		return TroubleMissing
	case slow:
		return TroubleSlow
	case t.State == StateConnected:
		return NoTrouble
	}
	return TroubleOver
}

// readPick reads what a query picks; nil: all tasks. What is beyond the limits is cut: a caller that asks for more gets what fits.
func readPick(p *serrypb.Pick) *Pick {
	if p == nil {
		return nil
	}
	return &Pick{
		Limit: int(min(p.GetLimit(), MaxPicked)), From: int(min(p.GetFrom(), math.MaxInt32)), Order: Order(p.GetOrder()),
		Filter: p.GetFilter()[:min(len(p.GetFilter()), maxPickFilter)], Blamed: p.GetBlamed()[:min(len(p.GetBlamed()), maxPickBlamed)],
	}
}

// NoticeKey is what a thread of every jax process waits for, all the time: a preemption notice.
const NoticeKey = "RECEIVED_PREEMPTION_NOTICE"

// soonThere is for how many seconds it is no trouble that a task is missing at a barrier: tasks do not come at the same moment.
const soonThere = 2

// Missing are the tasks that a barrier of the status misses for more than a moment, as far as it names them.
func (s *Status) Missing() map[string]bool {
	all := make(map[string]bool)
	for _, b := range s.Barriers {
		if b.ForSeconds >= soonThere {
			for _, task := range b.Missing {
				all[task] = true
			}
		}
	}
	return all
}

// Slow are the tasks that hold the others up.
func (s *Status) Slow() map[string]bool {
	all := make(map[string]bool)
	for _, one := range s.Stragglers {
		all[one.Task] = true
	}
	return all
}

// Picks leaves those tasks in the status that p picks, with their steps, and says what it has left out. A status in which that was done
// stays as it is.
func (s *Status) Picks(p Pick) {
	if s.Picked != nil {
		return
	}
	k := picker{Pick: p, missing: s.Missing(), slow: s.Slow(), blamed: make(map[string]bool)}
	for _, task := range p.Blamed {
		k.blamed[task] = true
	}
	s.Picked = &Picked{MostStep: -1}
	for _, step := range s.Steps {
		s.Picked.MostStep = max(s.Picked.MostStep, step)
	}
	var rows []pickedRow
	for i := range s.Tasks {
		t := &s.Tasks[i]
		s.Picked.counts(t)
		r := pickedRow{task: t, step: -1}
		if i < len(s.Steps) {
			r.step = s.Steps[i]
		}
		if r.step >= 0 {
			r.lag = s.Picked.MostStep - r.step
		}
		if k.passes(t, len(s.Jobs) == 1) {
			r.trouble = TroubleOf(t, k.blamed[t.Task], k.missing[t.Task], k.slow[t.Task])
			rows = append(rows, r)
		}
	}
	k.sort(rows)
	s.Picked.Matching = len(rows)
	limit := min(max(0, p.Limit), MaxPicked)
	s.Picked.From = max(0, min(p.From, len(rows)-limit)) // the last ones fill a screen, too
	rows = rows[s.Picked.From:]
	rows = rows[:min(len(rows), limit)]
	tasks, steps := make([]TaskStatus, len(rows)), make([]int64, len(rows))
	for i, r := range rows {
		tasks[i], steps[i] = *r.task, r.step
	}
	if len(s.Steps) > 0 {
		s.Steps = steps
	}
	s.Tasks = tasks
}

// counts adds what is said of all tasks.
func (k *Picked) counts(t *TaskStatus) {
	if t.State != StateConnected || t.LastCall == "" {
		return
	}
	switch {
	case t.CallWaits && t.LastCall == coord.KindGetKeyValue.Row().Name:
		if t.LastOf != NoticeKey && t.CallSeconds >= soonThere {
			k.Readers++
		}
	case !t.CallWaits && (k.Quietest == nil || t.CallSeconds > k.Quietest.CallSeconds):
		quiet := *t
		k.Quietest = &quiet
	}
}

// A picker picks tasks.
type picker struct {
	Pick
	blamed, missing, slow map[string]bool
}

type pickedRow struct {
	task      *TaskStatus
	trouble   Trouble
	step, lag int64 // step -1: none was reported
}

// passes says whether the filter lets a task through.
func (k *picker) passes(t *TaskStatus, oneJob bool) bool {
	if k.Filter == "" {
		return true
	}
	rank, host := t.Task, t.From
	if _, number, found := strings.Cut(rank, "/"); found && oneJob {
		rank = number
	}
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.Contains(strings.Join([]string{rank, host, t.State, t.LastCall, t.LastOf, t.Cause, t.Error}, " "), k.Filter)
}

func (k *picker) sort(rows []pickedRow) {
	heard := func(r pickedRow) float64 {
		if r.task.HeardSeconds == nil {
			return 0
		}
		return *r.task.HeardSeconds
	}
	slices.SortStableFunc(rows, func(a, b pickedRow) int {
		switch k.Order {
		case ByStep:
			return cmp.Compare(a.step, b.step)
		case BySilence:
			return cmp.Compare(heard(b), heard(a))
		case ByTrouble:
			return cmp.Or(cmp.Compare(a.trouble, b.trouble), cmp.Compare(b.lag, a.lag))
		}
		return 0
	})
}
