package diagnose

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/wire"
)

// peopleSay turns the words of the service into those of people: its tasks are ranks, its epochs attempts.
var peopleSay = strings.NewReplacer("a member", "a rank", "tasks", "ranks", "task", "rank", "epoch", "attempt", "former run", "former attempt")

// NoteText says what happened in a line.
func NoteText(s wire.Status, n wire.NoteStatus) string {
	var b strings.Builder
	what := peopleSay.Replace(n.What)
	end, ofBarrier := strings.CutPrefix(what, "barrier ")
	did, ofTask := strings.CutPrefix(what, "rank ")
	switch {
	case ofTask && n.Task != "":
		what, n.Task = RankText(s, n.Task)+" "+did, ""
	case ofBarrier && n.Barrier != "":
		what, n.Barrier = Place(n.Barrier)+" "+end, ""
	}
	b.WriteString(what)
	if n.Barrier != "" {
		b.WriteString(" at " + Place(n.Barrier))
	}
	if n.Task != "" {
		b.WriteString(" of " + RankText(s, n.Task))
	}
	if n.From != "" {
		b.WriteString(" from " + n.From)
	}
	if n.Of != 0 {
		fmt.Fprintf(&b, " (%d of %d)", n.Count, n.Of)
	}
	if text := cmp.Or(strings.TrimSuffix(peopleSay.Replace(n.Cause)+": "+n.Evidence, ": "), n.Error); text != "" {
		b.WriteString(": " + text)
	}
	if len(n.Missing) > 0 {
		b.WriteString(", without " + RanksText(s, n.Missing))
	}
	if n.More > 0 {
		fmt.Fprintf(&b, " (and %d more)", n.More)
	}
	return b.String()
}

// TaskError says what is wrong with a task, without its name, which stands in front already.
func TaskError(t *wire.TaskStatus) string {
	text := strings.TrimPrefix(t.Error, "task "+t.Task+": ")
	if rest, ok := strings.CutPrefix(text, t.Cause); ok {
		return peopleSay.Replace(t.Cause) + rest
	}
	return text
}

// Doing is the last call of a task in a line, or empty if it has made none.
func Doing(t *wire.TaskStatus) string {
	if t.LastCall == "" {
		return ""
	}
	text := t.LastCall
	if t.LastOf != "" {
		text += " " + t.LastOf
	}
	if t.CallWaits {
		return fmt.Sprintf("waits for %s, %s", Ago(t.CallSeconds), text)
	}
	return fmt.Sprintf("%s ago %s", Ago(t.CallSeconds), text)
}

// RankOf is what people call a task: by its number alone where there is one job.
func RankOf(task string, oneJob bool) string {
	if _, number, ok := strings.Cut(task, "/"); ok && oneJob {
		return number
	}
	return task
}

// RankText is rank 3, or worker/3 where there are several jobs.
func RankText(s wire.Status, task string) string {
	if len(s.Jobs) == 1 {
		return "rank " + RankOf(task, true)
	}
	return task
}

// RanksText names tasks, sorted as they come: rank 3, or ranks 0-1,7, or ps/0-1 worker/7 where there are several jobs.
func RanksText(s wire.Status, tasks []string) string {
	text := TaskRanges(tasks)
	if len(s.Jobs) != 1 {
		return text
	}
	noun := "ranks "
	if len(tasks) == 1 {
		noun = "rank "
	}
	return noun + strings.ReplaceAll(strings.ReplaceAll(text, s.Jobs[0].Name+"/", ""), " ", ",")
}

// TaskRanges writes names of tasks, sorted as they come, with runs of numbers drawn together:
// "worker/0-3 worker/7".
func TaskRanges(names []string) string {
	var parts []string
	for i := 0; i < len(names); {
		first, err := serry.ParseTaskID(names[i])
		j := i + 1
		for last := first; err == nil && j < len(names); j++ {
			next, _ := serry.ParseTaskID(names[j]) // zero for what is no task
			if next.Job != last.Job || next.Index != last.Index+1 {
				break
			}
			last = next
		}
		part := names[i]
		if j-i > 1 {
			part = fmt.Sprintf("%s-%d", names[i], first.Index+j-i-1)
		}
		parts = append(parts, part)
		i = j
	}
	return strings.Join(parts, " ")
}

// MissingText names the tasks that a barrier waits for: the number first, because the names may not fit.
func MissingText(s wire.Status, b wire.BarrierStatus) string {
	n := b.Members - b.Arrived
	names := RanksText(s, b.Missing)
	if n > len(b.Missing) {
		names += " ..."
	}
	if n <= 1 {
		return names
	}
	return fmt.Sprintf("%d: %s", n, names)
}
