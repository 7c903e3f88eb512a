package diagnose

import (
	"slices"

	"github.com/serry-dev/serry/wire"
)

// InTrouble says whether a verdict needs all tasks of the job, where the status has a part of them: a rank has failed, ranks wait for
// longer than usual, or have been told to go. Without trouble the verdict rests on numbers, and on the rank that has been quiet longest,
// which every part of a status has.
func (e *Evidence) InTrouble() bool {
	s := &e.Status
	late := slices.ContainsFunc(s.Barriers, func(b wire.BarrierStatus) bool {
		return b.ForSeconds >= max(lateAfter.Seconds(), lateTimes*b.UsualSeconds)
	})
	return late || s.First != nil || s.Failure != "" || s.Counts[wire.StateFailed] > 0 || s.Picked != nil && s.Picked.Readers > 0 ||
		len(e.Saves.Receipts)+len(e.Saves.Notices) > 0 || e.Hang != nil && e.Hang.Hang != nil
}

// Whole is the evidence with all tasks that a verdict needs which is not in trouble, in the order of their numbers.
func (e Evidence) Whole() Evidence {
	if p := e.Status.Picked; p != nil && p.Quietest != nil {
		e.Status.Tasks = append(slices.Clone(e.Status.Tasks), *p.Quietest)
	}
	e.Status.Tasks = slices.Clone(e.Status.Tasks)
	slices.SortStableFunc(e.Status.Tasks, func(a, b wire.TaskStatus) int { return compareTasks(a.Task, b.Task) })
	e.Status.Tasks = slices.CompactFunc(e.Status.Tasks, func(a, b wire.TaskStatus) bool { return a.Task == b.Task })
	return e
}
