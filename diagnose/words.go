package diagnose

import (
	"fmt"
	"strings"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
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
		return fmt.Sprintf("%s died %s: %s", f.rank, ago, f.Evidence)
	case serry.ErrReported.Error():
		return fmt.Sprintf("%s gave up %s: %s", f.rank, ago, f.Evidence)
	case serry.ErrRestarted.Error(), serry.ErrWrongBeat.Error():
		return fmt.Sprintf("two processes were %s, %s", f.rank, ago)
	}
	return fmt.Sprintf("%s failed %s: %s", f.rank, ago, f.reason())
}

func (f *Failure) reason() string {
	text := f.Cause
	if f.Evidence != "" {
		text += ": " + f.Evidence
	}
	if len(f.Missing) > 0 {
		text += ", without " + list(f.ranks, 0)
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
		case strings.Contains(evidence, "signal 9"):
			return []string{"it was killed: by the kernel, because memory ran out (see dmesg on its host), or by the scheduler"}
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

// verdict says in one line who waits for whom.
func (w Wait) verdict() string {
	var names []string
	for _, b := range w.On {
		names = append(names, b.rank)
	}
	text := fmt.Sprintf("%s waits for %s since %s", w.place(), list(names, w.More), Ago(w.ForSeconds))
	if len(w.On) == 1 && w.More == 0 {
		return text + ": it " + w.On[0].Why
	}
	return text
}

// place says where tasks wait.
func (w Wait) place() string {
	return fmt.Sprintf("%s, with %d of %d ranks there,", Place(w.Barrier), w.Arrived, w.Members)
}

// Place is what people call a barrier. The service's own have names of their own.
func Place(barrier string) string {
	switch {
	case barrier == coord.RegisterBarrierID:
		return "the start of the job"
	case strings.HasPrefix(barrier, "Shutdown::"):
		return "the end of the job"
	}
	return fmt.Sprintf("barrier %q", barrier)
}

// advice goes by what is the matter with the first one who is waited for.
func (w Wait) advice() []string {
	if len(w.On) == 0 {
		return []string{}
	}
	switch first := w.On[0]; {
	case first.Why == "has not come yet":
		return []string{fmt.Sprintf("%s was not started, ends before it joins, or cannot reach the service: run serry doctor on its host", first.rank)}
	case first.Why == "has left":
		return []string{fmt.Sprintf("%s ended earlier than the others: the ranks do not take the same number of steps", first.rank)}
	case strings.HasPrefix(first.Why, "is connected"):
		return []string{fmt.Sprintf("see what %s is doing on its host: py-spy dump for a Python process", first.rank)}
	}
	return []string{}
}

// listed is how many names a line has room for.
const listed = 3

// list names the first few, and counts the others: more than are in names.
func list(names []string, more int) string {
	if n := len(names) - listed; n > 0 {
		more += n
		names = names[:listed]
	}
	text := strings.Join(names, ", ")
	if more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
