package diagnose

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/wire"
)

// verdict says in one line what failed first.
func (f *Failure) verdict() string {
	ago := Ago(f.AgoSeconds) + " ago"
	if f.Task == "" {
		if f.Barrier != "" {
			return fmt.Sprintf("%s failed %s: %s", Place(f.Barrier), ago, f.reason())
		}
		return fmt.Sprintf("the job failed %s: %s", ago, f.reason())
	}
	switch f.Cause {
	case serry.ErrTaskDead.Error():
		if f.Evidence == "" {
			return fmt.Sprintf("%s fell silent and was declared dead %s", f.rank, ago)
		}
		if f.host != nil {
			return f.host.String()
		}
		if text := f.ended(); text != "" {
			return text
		}
		return fmt.Sprintf("%s died %s: %s", f.rank, ago, f.Evidence)
	case serry.ErrReported.Error():
		return fmt.Sprintf("%s gave up %s: %s", f.rank, ago, f.Evidence)
	}
	if f.twice() {
		return fmt.Sprintf("two processes claimed %s %s", f.rank, f.when())
	}
	return fmt.Sprintf("%s failed %s: %s", f.rank, ago, f.reason())
}

// twice says whether two processes were one rank.
func (f *Failure) twice() bool {
	return f.Cause == serry.ErrRestarted.Error() || f.Cause == serry.ErrWrongBeat.Error()
}

func (f *Failure) reason() string {
	text := f.Cause
	if f.Evidence != "" {
		text += ": " + f.Evidence
	}
	if len(f.Missing) > 0 {
		text += ", without " + list(f.ranks)
	}
	return text
}

// advise says what to do about a failure, most likely cause first.
func advise(cause, evidence string) []string {
	switch cause {
	case serry.ErrTaskDead.Error():
		switch {
		case strings.Contains(evidence, "memory"):
			return []string{"it used more memory than its host or its limit had: give it more, or make it need less"}
		case strings.Contains(evidence, "no kernel kill"):
			return []string{"another program, or a person, has killed it: as a rule the scheduler, or what watches over the memory of its host"}
		case strings.Contains(evidence, "signal 9"):
			return []string{"it was killed: by the kernel, because memory ran out (see dmesg on its host), or by the scheduler"}
		case strings.HasPrefix(evidence, raisedWords):
			return []string{"its traceback is in its own output: look there first, at the others only after it"}
		case strings.HasPrefix(evidence, silentWords):
			return []string{"see whether that host runs and can be reached; serry doctor --host-list there, or on another host of the job, says what is in the way"}
		case strings.Contains(evidence, "process exited"):
			return []string{"its own output says why it ended: look there first, at the others only after it"}
		case evidence == "":
			return []string{
				"its host is gone or cut off, or its process is stuck: see whether it still runs there",
				"if it runs but was held up, --heartbeat-timeout is too short for it",
			}
		}
		return []string{"its process ended or its host went away: its own output says more"}
	case serry.ErrReported.Error():
		return []string{"the words are its own: look at its output"}
	case serry.ErrRestarted.Error(), serry.ErrWrongBeat.Error():
		return []string{
			"two processes have the same rank: check the process ids that they are started with",
			"if it was restarted alone, the job must be --recoverable, or all must be restarted",
		}
	case serry.ErrTimeout.Error():
		return []string{"run serry doctor on the hosts of those who did not come"}
	}
	return []string{}
}

// What is said of a task that others wait for.
const (
	notCome    = "has not come yet"
	notArrived = "has not arrived"
)

// waitVerdict says in one line who waits for whom.
func (j *judge) waitVerdict(w *Wait) string {
	since := Ago(w.ForSeconds)
	missing := w.Members - w.Arrived
	who := j.missing(w)
	switch {
	case isStart(w.Barrier):
		return fmt.Sprintf("starting: %d of %d ranks are here after %s, missing %s", w.Arrived, w.Members, since, who)
	case isEnd(w.Barrier):
		return fmt.Sprintf("%s to leave since %s; %s %s not", j.leavers(w), since, who, verb(missing, "does", "do"))
	}
	text := fmt.Sprintf("%s %s %s: %s for %s at %s since %s", who, verb(missing, "is", "are"), w.Stage,
		counted(w.Arrived, "rank waits", "ranks wait"), verb(missing, "it", "them"), Place(w.Barrier), since)
	if missing == 1 && len(w.On) == 1 && w.On[0].Why != notArrived {
		return text + "; it " + w.On[0].Why
	}
	return text
}

// leavers names the ranks that want to leave, or counts them where not all are known.
func (j *judge) leavers(w *Wait) string {
	var names []string
	for _, t := range j.status.Tasks {
		if t.State == wire.StateConnected && !slices.ContainsFunc(w.On, func(b Blamed) bool { return b.Task == t.Task }) {
			names = append(names, t.Task)
		}
	}
	if w.More > 0 || len(names) == 0 {
		return counted(w.Arrived, "rank wants", "ranks want")
	}
	return j.ranks(names) + " " + verb(len(names), "wants", "want")
}

// missing names the ranks that a wait is for.
func (j *judge) missing(w *Wait) string {
	names := make([]string, len(w.On))
	for i, b := range w.On {
		names[i] = b.Task
	}
	text := j.ranks(names)
	if w.More > 0 {
		text += fmt.Sprintf(" and %d more", w.More)
	}
	return text
}

// rangesListed is how many runs of numbers a line has room for.
const rangesListed = 8

// ranks is what people call several tasks, sorted as they come: "rank 3", "ranks 0-2,5".
func (j *judge) ranks(tasks []string) string {
	if len(tasks) == 1 {
		return j.rank(tasks[0])
	}
	var numbers []int
	for _, name := range tasks {
		id, err := serry.ParseTaskID(name)
		if err != nil || id.Job != j.job {
			return list(tasks)
		}
		numbers = append(numbers, id.Index)
	}
	return "ranks " + ranges(numbers)
}

// A run is a row of numbers without a gap.
type run struct{ first, last int }

func (r run) String() string {
	if r.first == r.last {
		return strconv.Itoa(r.first)
	}
	return fmt.Sprintf("%d-%d", r.first, r.last)
}

// verb is the form of a verb for n things, and counted puts the number before it.
func verb(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

func counted(n int, one, many string) string { return fmt.Sprintf("%d %s", n, verb(n, one, many)) }

// Place is what people call a barrier. The service's own have names of their own.
func Place(barrier string) string {
	switch {
	case isStart(barrier):
		return "the start of the job"
	case isEnd(barrier):
		return "the end of the job"
	}
	return fmt.Sprintf("barrier %q", barrier)
}

// waitAdvice goes by what is the matter with the first rank that is waited for.
func (j *judge) waitAdvice(w *Wait) []string {
	if len(w.On) == 0 || w.Stage == Late {
		return []string{}
	}
	switch first := w.On[0]; {
	case first.Why == notCome:
		return []string{fmt.Sprintf("%s was not started, ends before it joins, or cannot reach the service: run serry doctor on its host", j.rank(first.Task))}
	case first.Why == "has left":
		return []string{fmt.Sprintf("%s ended earlier than the others: the ranks do not take the same number of steps", j.rank(first.Task))}
	case isEnd(w.Barrier) && 2*w.Arrived <= w.Members:
		return []string{"most ranks still work: a rank that left early has ended by itself, or takes fewer steps; its output says more"}
	case isEnd(w.Barrier):
		return []string{fmt.Sprintf("%s still works, or hangs, and the others wait for it until --shutdown-timeout: see its output, and where in its code it is (%s)", j.rank(first.Task), j.stacksCommand(first.Task))}
	case first.Why == notArrived:
		return []string{fmt.Sprintf("see where in its code %s is: %s", j.rank(first.Task), j.stacksCommand(first.Task))}
	}
	return []string{}
}

// stacksCommand shows the stack of a task.
func (j *judge) stacksCommand(task string) string {
	return fmt.Sprintf("serry stacks %s on its host", strings.TrimPrefix(j.rank(task), "rank "))
}

// listed is how many names a line has room for.
const listed = 3

// list names the first few, and counts the others.
func list(names []string) string {
	text := strings.Join(names[:min(len(names), listed)], ", ")
	if more := len(names) - listed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
