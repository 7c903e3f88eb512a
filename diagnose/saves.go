package diagnose

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// saves sums up by round which tasks were told to go and which have saved.
func (j *judge) saves() []Save {
	rounds := make(map[int]*Save)
	saved := make(map[int]map[string]bool)
	round := func(n int) *Save {
		if rounds[n] == nil {
			rounds[n], saved[n] = &Save{Round: n, Steps: []int64{}, Of: j.status.Size, Missing: []string{}}, make(map[string]bool)
		}
		return rounds[n]
	}
	for _, a := range j.records.Notices {
		if s := round(a.Round); s.By == "" || a.Time.Before(s.At) {
			s.By, s.Source, s.At = a.Task, a.Source, a.Time
		}
	}
	for _, r := range j.records.Receipts {
		s := round(r.Round)
		saved[r.Round][r.Task] = true
		s.Steps, s.TookSeconds = append(s.Steps, r.Step), max(s.TookSeconds, r.TookSeconds)
	}
	saves := []Save{}
	for _, n := range slices.Sorted(maps.Keys(rounds)) {
		s := rounds[n]
		slices.Sort(s.Steps)
		s.Steps, s.Saved = slices.Compact(s.Steps), len(saved[n])
		for _, t := range j.status.Tasks {
			if !saved[n][t.Task] {
				s.Missing = append(s.Missing, t.Task)
			}
		}
		saves = append(saves, *s)
	}
	return saves
}

// preemptedLately is how long a preemption is the verdict: a job that was started again goes on, and nothing is wrong then.
const preemptedLately = 10 * time.Minute

// lastSave is the last round, if it is known which task was told to go in it, lately.
func (j *judge) lastSave(all []Save) *Save {
	n := len(all)
	if n == 0 || all[n-1].By == "" || j.status.Clock.Sub(all[n-1].At) > preemptedLately {
		return nil
	}
	return &all[n-1]
}

// preempted makes a preemption the verdict (D-SC-25).
func (r *Report) preempted(j *judge, s *Save) {
	r.Kind, r.Verdict = Preempted, j.preemption(s)
	grade := "the task that was told to go has said so"
	if s.Saved > 0 {
		grade = fmt.Sprintf("%s with the service", counted(s.Saved, "receipt is", "receipts are"))
	}
	r.Grade = Sure
	r.Evidence = []HangLine{{"grade", fmt.Sprintf("%s: %s", Sure, grade)}}
	if s.Source != "" {
		r.Evidence = slices.Insert(r.Evidence, 0, HangLine{"process", fmt.Sprintf("%s was told by %s", j.rank(s.By), s.Source)})
	}
}

// preemption says in one line which task was told to go, and which ranks have saved since.
func (j *judge) preemption(s *Save) string {
	text := fmt.Sprintf("preempted at %s by notice on %s; ", s.At.In(j.status.Clock.Location()).Format(time.TimeOnly), j.rank(s.By))
	if s.Saved == 0 {
		return text + "no rank has saved yet"
	}
	step := fmt.Sprintf("step %d", s.Steps[0])
	if len(s.Steps) > 1 {
		step = fmt.Sprintf("at different steps, %d to %d,", s.Steps[0], s.Steps[len(s.Steps)-1])
	}
	who := fmt.Sprintf("all %d ranks", s.Of)
	if len(s.Missing) > 0 {
		who = fmt.Sprintf("%d of %d ranks", s.Saved, s.Of)
	}
	text += fmt.Sprintf("%s saved %s", who, step)
	if s.TookSeconds > 0 {
		text += " in " + Ago(s.TookSeconds)
	}
	if len(s.Missing) > 0 {
		text += fmt.Sprintf("; %s did not confirm", j.ranks(s.Missing))
	}
	return text
}
