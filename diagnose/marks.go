package diagnose

import (
	"fmt"
	"strings"

	"github.com/serry-dev/serry/wire"
)

// A Mark is how a rank is, in a letter. serry top and the page show the same ones.
type Mark byte

// The marks, the worst first.
const (
	MarkFailed      Mark = 'F'
	MarkBlamed      Mark = '!' // it keeps the others waiting
	MarkAbsent      Mark = '-' // it is not there yet
	MarkRegistering Mark = 'r'
	MarkMissing     Mark = 'm' // at a barrier
	MarkSlow        Mark = 's' // slower than the others
	MarkAtWork      Mark = '.'
	MarkLeft        Mark = 'x'
)

// A Marked is a rank with its mark.
type Marked struct {
	Mark
	Trouble int    // higher is worse; equal for equal marks
	Doing   string // what it does, or what is wrong with it
}

// soonThere is for how many seconds it is no trouble that a rank is missing: ranks do not come at the same moment.
const soonThere = 2

// rankTrouble is what is wrong with a rank beside its state.
type rankTrouble struct {
	blamed, missing, slow bool
	at                    string // where it is, if it keeps the others waiting
}

// MarkRanks judges the tasks of a status, in their order. h is what the launcher says, or nil.
func MarkRanks(s wire.Status, h *HangReport) []Marked {
	trouble := troubleOf(s, h)
	all := make([]Marked, len(s.Tasks))
	for i := range s.Tasks {
		t := &s.Tasks[i]
		all[i] = markOf(t, trouble[t.Task])
	}
	return all
}

// troubleOf finds the ranks that keep the others waiting, that are missing somewhere, and that are slow.
func troubleOf(s wire.Status, h *HangReport) map[string]rankTrouble {
	all := make(map[string]rankTrouble)
	change := func(task string, f func(*rankTrouble)) {
		t := all[task]
		f(&t)
		all[task] = t
	}
	for _, b := range s.Barriers {
		if b.ForSeconds < soonThere {
			continue
		}
		for _, task := range b.Missing {
			change(task, func(t *rankTrouble) { t.missing = true })
		}
	}
	for _, one := range s.Stragglers {
		change(one.Task, func(t *rankTrouble) { t.slow = true })
	}
	if h != nil && h.Hang != nil && len(s.Jobs) == 1 {
		for _, r := range h.Hang.Ranks {
			change(fmt.Sprintf("%s/%d", s.Jobs[0].Name, r.Rank), func(t *rankTrouble) {
				t.blamed, t.at = true, strings.TrimSuffix(fmt.Sprintf("%s at %s", r.Class, r.At), " at ")
			})
		}
	}
	return all
}

// markOf gives a task its mark: the worst that holds.
func markOf(t *wire.TaskStatus, trouble rankTrouble) Marked {
	m := Marked{Doing: Doing(t)}
	for i, one := range []struct {
		is   bool
		mark Mark
	}{
		{t.State == wire.StateFailed, MarkFailed},
		{trouble.blamed, MarkBlamed},
		{t.State == wire.StateAbsent, MarkAbsent},
		{t.State == wire.StateRegistering, MarkRegistering},
		{trouble.missing && t.State == wire.StateConnected, MarkMissing},
		{trouble.slow, MarkSlow},
		{t.State == wire.StateConnected, MarkAtWork},
		{true, MarkLeft},
	} {
		if one.is {
			m.Mark, m.Trouble = one.mark, -i
			break
		}
	}
	switch {
	case t.State == wire.StateFailed:
		m.Doing = TaskError(t)
	case trouble.at != "":
		m.Doing = trouble.at
	}
	return m
}
