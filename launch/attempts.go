package launch

import (
	"fmt"
	"slices"
	"time"

	"github.com/serry-dev/serry/diagnose"
)

// Bounds of what the service is told of attempts.
const (
	toldAttempts = 16
	toldLines    = 8   // that the first rank which failed wrote last
	toldLineSize = 200 // bytes
)

// attempts are those of a job, as the service is told of them. Only drive uses them.
type attempts struct {
	all []diagnose.Attempt // the oldest first; the last one runs
}

// begin takes note that an attempt begins, and the former one has ended by these failures.
func (a *attempts) begin(number int, now time.Time, former failures) {
	if n := len(a.all); n > 0 {
		last := &a.all[n-1]
		last.Ended = now.UTC()
		if first, _ := former.sorted(); first != nil {
			last.Rank, last.How, last.Failed = first.Task, howEnded(first), true
			for _, line := range first.Last[max(0, len(first.Last)-toldLines):] {
				last.Last = append(last.Last, line[:min(len(line), toldLineSize)])
			}
		}
	}
	a.all = append(a.all, diagnose.Attempt{Number: number, Began: now.UTC()})
	a.all = a.all[max(0, len(a.all)-toldAttempts):]
}

// howEnded is how a task failed, without its name.
func howEnded(f *Failure) string {
	if f.Verdict != "" {
		return f.Verdict
	}
	return f.Cause.name()
}

// told are the attempts that the service is to be told of: none while there is one, in which no rank was started again.
func (a *attempts) told(p *plan) []diagnose.Attempt {
	restarts := 0
	for _, t := range p.tasks {
		restarts += max(0, t.life-1)
	}
	if len(a.all) == 0 || len(a.all) == 1 && restarts == 0 {
		return nil
	}
	all := slices.Clone(a.all)
	last := &all[len(all)-1]
	last.Restarts, last.Left = restarts, p.left
	return all
}

// attemptsKey is what of attempts must have changed for the service to be told.
func attemptsKey(all []diagnose.Attempt) string {
	if len(all) == 0 {
		return ""
	}
	last := all[len(all)-1]
	return fmt.Sprint("attempt", last.Number, last.Restarts, last.Left)
}
