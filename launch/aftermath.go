package launch

import (
	"slices"
	"strings"

	"github.com/serry-dev/serry/diagnose"
)

// aftermath is what this launcher knows of the first failure of the attempt, and of what followed from it; nil: nothing has failed.
func (j *Job) aftermath() *diagnose.Aftermath {
	first, later := j.failures.sorted()
	if first == nil {
		return nil
	}
	a := &diagnose.Aftermath{Rank: first.Task, At: diagnose.PlaceIn(first.Last), Together: first.Together, Raised: strings.HasPrefix(first.Cause.Text, raisedWords)}
	if r, ok := j.hangs.ranks[first.Task]; ok {
		a.PID, a.Host = r.PID, r.Host
	}
	a.Output = printedLast(first, a.Raised)
	ends := make(map[int]*Failure, len(later))
	for _, f := range later {
		ends[f.Task] = f
	}
	var all []diagnose.Follower
	for task, p := range j.plan.tasks {
		f := diagnose.Follower{Rank: task, Condition: j.hangs.ranks[task].Condition, Runs: p.phase == running && j.plan.ending == notEnding}
		if e, ok := j.exceptions.last[task]; ok && e.lifetime == j.lifetime(task) {
			f.Exception = e.Text
		}
		switch end, ok := ends[task]; {
		case task == first.Task, p.well:
			continue
		case ok:
			f.Ended, f.Output, f.After = end.Cause.name(), end.Last, end.At.Sub(first.At)
		}
		all = append(all, f)
	}
	a.Effects = diagnose.FoldEffects(all)
	return a
}

// printedLast is what the output of a failed task says of its end, in a line.
func printedLast(f *Failure, raised bool) string {
	if raised {
		return "" // the words of the exception are those of the verdict
	}
	if crash := diagnose.CrashIn(f.Last); crash != "" {
		return crash
	}
	lines := slices.DeleteFunc(slices.Clone(f.Last), func(line string) bool { return strings.TrimSpace(line) == "" })
	if len(lines) == 0 {
		return ""
	}
	return "its last line: " + lines[len(lines)-1]
}

// publishFailure tells the service what is known of a failure while the job ends, for serry why on any host.
func (j *Job) publishFailure(epoch int) {
	if a := j.aftermath(); a != nil {
		j.publish(j.hangs.standing, a, epoch)
	}
}
