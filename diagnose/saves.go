package diagnose

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/serry-dev/serry/wire"
)

// Receipts stay with the service, so a job that is preempted again and again has many rounds, each of which may lack a receipt of every task.
const (
	savesKept    = 16   // rounds in a report, the last ones
	missingNamed = 1024 // tasks without a receipt that are named of a round
)

// saves sums up by round which tasks were told to go and which have saved.
func (j *judge) saves() []Save {
	rounds := make(map[int]*Save)
	saved := make(map[int]map[string]bool)
	kept := j.lastRounds()
	for _, n := range kept {
		rounds[n], saved[n] = &Save{Round: n, Steps: []int64{}, Of: j.status.Size, Missing: []string{}}, make(map[string]bool)
	}
	for _, a := range j.records.Notices {
		if s := rounds[a.Round]; s != nil && (s.By == "" || a.Time.Before(s.At)) {
			s.By, s.Source, s.At = a.Task, a.Source, a.Time
		}
	}
	for _, r := range j.records.Receipts {
		if s := rounds[r.Round]; s != nil {
			saved[r.Round][r.Task] = true
			s.Steps, s.TookSeconds = append(s.Steps, r.Step), max(s.TookSeconds, r.TookSeconds)
		}
	}
	saves := []Save{}
	for _, n := range kept {
		s := rounds[n]
		slices.Sort(s.Steps)
		s.Steps, s.Saved = slices.Compact(s.Steps), len(saved[n])
		for _, t := range j.status.Tasks {
			switch {
			case saved[n][t.Task]:
			case len(s.Missing) < missingNamed:
				s.Missing = append(s.Missing, t.Task)
			default:
				s.More++
			}
		}
		saves = append(saves, *s)
	}
	return saves
}

// lastRounds are the rounds that a report has, in order.
func (j *judge) lastRounds() []int {
	all := make(map[int]bool)
	for _, a := range j.records.Notices {
		all[a.Round] = true
	}
	for _, r := range j.records.Receipts {
		all[r.Round] = true
	}
	rounds := slices.Sorted(maps.Keys(all))
	return rounds[max(0, len(rounds)-savesKept):]
}

// Unconfirmed names the tasks without a receipt.
func (s *Save) Unconfirmed(st wire.Status) string { return s.andMore(RanksText(st, s.Missing)) }

// andMore adds how many tasks without a receipt are not named.
func (s *Save) andMore(named string) string {
	if s.More == 0 {
		return named
	}
	return fmt.Sprintf("%s and %d more", named, s.More)
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
		text += fmt.Sprintf("; %s did not confirm", s.andMore(j.ranks(s.Missing)))
	}
	return text
}
