package diagnose

import (
	"fmt"
	"maps"
	"slices"
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
	MarkWaiting     Mark = 'w' // for others, for longer than usual
	MarkAtWork      Mark = '.'
	MarkLeft        Mark = 'x'
)

// A Marked is a rank with its mark.
type Marked struct {
	Mark
	Trouble int    // higher is worse; equal for equal marks
	Doing   string // what it does, or what is wrong with it
}

// markOfTrouble has the mark of each [wire.Trouble].
var markOfTrouble = [...]Mark{
	wire.TroubleFailed: MarkFailed, wire.TroubleBlamed: MarkBlamed, wire.TroubleAbsent: MarkAbsent, wire.TroubleRegistering: MarkRegistering,
	wire.TroubleMissing: MarkMissing, wire.TroubleSlow: MarkSlow, wire.NoTrouble: MarkAtWork, wire.TroubleOver: MarkLeft,
}

// MarkRanks judges the tasks of a status, in their order. h is what the launcher says, or nil.
func MarkRanks(s wire.Status, h *HangReport) []Marked {
	missing, slow, blamed := s.Missing(), s.Slow(), h.places(s)
	waits := waiters(s, h)
	all := make([]Marked, len(s.Tasks))
	for i := range s.Tasks {
		t := &s.Tasks[i]
		at, is := blamed[t.Task]
		trouble := wire.TroubleOf(t, is, missing[t.Task], slow[t.Task])
		all[i] = Marked{Mark: markOfTrouble[trouble], Trouble: -int(trouble), Doing: Doing(t)}
		switch {
		case t.State == wire.StateFailed:
			all[i].Doing = TaskError(t)
		case at != "":
			all[i].Doing = at
		case trouble == wire.NoTrouble && waits(t.Task):
			all[i].Mark = MarkWaiting
		}
	}
	return all
}

// waiters says which tasks wait for others for longer than usual, where that is known: at a barrier of all tasks that names those it misses,
// and where the launcher says so. A healthy job goes through barriers many times a second, and its ranks are at work.
func waiters(s wire.Status, h *HangReport) func(task string) bool {
	var late []map[string]bool // the tasks that late barriers miss
	for _, b := range s.Barriers {
		if b.Members != s.Size || b.Arrived+len(b.Missing) != b.Members || overdue(b) < 0 {
			continue
		}
		missing := make(map[string]bool)
		for _, task := range b.Missing {
			missing[task] = true
		}
		late = append(late, missing)
	}
	named, blamed, others := make(map[string]bool), h.places(s), false
	if h != nil && h.Hang != nil && len(s.Jobs) == 1 {
		for _, w := range h.Hang.Waits {
			others = others || w.Count+len(blamed) == s.Size // the launcher names the first ones only
			for _, rank := range w.Ranks {
				named[fmt.Sprintf("%s/%d", s.Jobs[0].Name, rank)] = true
			}
		}
	}
	return func(task string) bool {
		_, is := blamed[task]
		return named[task] || others && !is || slices.ContainsFunc(late, func(missing map[string]bool) bool { return !missing[task] })
	}
}

// Blamed are the tasks that keep the others waiting, as the launcher of a job says; h may be nil.
func (h *HangReport) Blamed(s wire.Status) []string { return slices.Sorted(maps.Keys(h.places(s))) }

// places has the tasks that keep the others waiting, and where each of them is.
func (h *HangReport) places(s wire.Status) map[string]string {
	all := make(map[string]string)
	if h == nil || h.Hang == nil || len(s.Jobs) != 1 {
		return all
	}
	for _, r := range h.Hang.Ranks {
		all[fmt.Sprintf("%s/%d", s.Jobs[0].Name, r.Rank)] = strings.TrimSuffix(fmt.Sprintf("%s at %s", r.Class, r.At), " at ")
	}
	return all
}
