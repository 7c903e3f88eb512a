package launch

import (
	"fmt"
	"slices"
	"time"

	"github.com/serry-dev/serry/diagnose"
)

// Beside the verdict on a hang there is what people are told of ranks that do nothing wrong, and still cost time.

const (
	compilesLong = 30 * time.Minute // a compilation that is told of (D-HG-12)
	stallsOften  = 3                // stalls of a rank in stallsWithin: one more is told of (D-HG-13)
	stallsWithin = time.Hour
	stepsAgain   = 10 * time.Second // between questions how long steps take
)

// hangNotes is what people have been told of in one attempt, and what that rests on.
type hangNotes struct {
	compiling map[int]time.Duration   // ranks, and since when they compile
	stalls    map[int][]time.Duration // of ranks, the latest: when they ended
}

// tellLongCompilations says once of ranks that they have compiled for long.
func (j *Job) tellLongCompilations(now time.Duration) {
	var ranks []int
	var longest time.Duration
	for task, r := range j.hangs.ranks {
		is := r.Class == diagnose.ClassCompiling && j.plan.tasks[task].phase == running
		if since, told := j.hangs.notes.compiling[task]; !is || now-r.Since < compilesLong || told && since == r.Since {
			continue
		}
		if j.hangs.notes.compiling == nil {
			j.hangs.notes.compiling = make(map[int]time.Duration)
		}
		j.hangs.notes.compiling[task] = r.Since
		ranks, longest = append(ranks, task), max(longest, now-r.Since)
	}
	if len(ranks) == 0 {
		return
	}
	has := "has"
	if len(ranks) > 1 {
		has = "have"
	}
	j.note("%s %s been compiling for %s", diagnose.Ranks(ranks), has, diagnose.Ago(longest.Seconds()))
}

// tellOften says of ranks that have kept the others waiting again and again that they have. Not each of these stalls is told of: one
// that is no longer than a former one is not.
func (j *Job) tellOften(h *diagnose.Hang, now time.Duration) {
	if j.hangs.notes.stalls == nil {
		j.hangs.notes.stalls = make(map[int][]time.Duration)
	}
	var often []int
	for _, r := range h.Ranks {
		all := slices.DeleteFunc(j.hangs.notes.stalls[r.Rank], func(at time.Duration) bool { return now-at > stallsWithin })
		if all = append(all, now); len(all) > stallsOften {
			often, all = append(often, r.Rank), nil
		}
		j.hangs.notes.stalls[r.Rank] = all
	}
	if len(often) == 0 {
		return
	}
	has := "has"
	if len(often) > 1 {
		has = "have"
	}
	text := fmt.Sprintf("%s %s kept the others waiting %d times within an hour", diagnose.Ranks(often), has, stallsOften+1)
	j.note("%s", text)
	j.hangs.remember(text, time.Now())
}

// stepTime is how long a step takes as a rule, where ranks report steps (D-HG-5). The service is asked while ranks keep the others
// waiting, and seldom. In an attempt that is not the first the steps of former ones count once there is one of its own.
type stepTime struct {
	asked time.Duration // since the job began; 0: not yet
	first int64         // step that was the last one then
	usual time.Duration
}

func (j *Job) askStepTime(now time.Duration) {
	s := &j.hangs.steps
	if s.asked > 0 && now-s.asked < stepsAgain {
		return
	}
	used, begins := j.service.used(), s.asked == 0
	s.asked = now
	switch {
	case used == nil:
		s.first = -1
		return
	case begins:
		s.first = used.Step
	}
	if j.plan.attempt == 1 || used.Step != s.first {
		s.usual = time.Duration(used.UsualSeconds * float64(time.Second))
	}
}
