package diagnose

import (
	"fmt"
	"strings"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/wire"
)

// refusals lists the processes that were turned away, as far as the history has them.
func (j *judge) refusals() []Refusal {
	var list []Refusal
	for _, n := range j.status.Notes {
		if n.From == "" {
			continue
		}
		r := Refusal{
			Task: n.Task, From: n.From, Cause: n.Cause, AgoSeconds: max(0, j.status.UpSeconds-n.AtSeconds),
			registers: n.What == "registration refused",
		}
		r.Text = fmt.Sprintf("%s at %s was refused %s ago: %s", j.who(r), r.From, Ago(r.AgoSeconds), j.whyRefused(r))
		list = append(list, r)
	}
	return list
}

// refusedLately is the newest refusal of a process that wants to join, or nil if that was long ago. A call of an
// attempt that is over does not count: a restart leaves such calls behind, and nothing is wrong then.
func (r *Report) refusedLately() *Refusal {
	for i := len(r.Refused) - 1; i >= 0; i-- {
		if f := &r.Refused[i]; f.registers && f.AgoSeconds < refusedLately.Seconds() {
			return f
		}
	}
	return nil
}

// who names the process that was refused. It may have the number of a rank of the job without being that rank.
func (j *judge) who(r Refusal) string {
	if r.Task == "" {
		return "a process"
	}
	return "a process that calls itself " + j.rank(r.Task)
}

// rank is what people call a task: by its number alone where it is of the only job there is.
func (j *judge) rank(task string) string {
	if number, ok := strings.CutPrefix(task, j.job+"/"); ok && j.job != "" {
		return "rank " + number
	}
	return task
}

func (j *judge) ranksOf(tasks []string) []string {
	var names []string
	for _, t := range tasks {
		names = append(names, j.rank(t))
	}
	return names
}

// onlyJob is the job that all tasks are of, or empty. They are sorted by job.
func onlyJob(tasks []wire.TaskStatus) string {
	if len(tasks) == 0 {
		return ""
	}
	first, _, _ := strings.Cut(tasks[0].Task, "/")
	last, _, _ := strings.Cut(tasks[len(tasks)-1].Task, "/")
	if first != last {
		return ""
	}
	return first
}

// whyRefused says why, in the words of a person who looks at the job.
func (j *judge) whyRefused(r Refusal) string {
	switch r.Cause {
	case serry.ErrUnknownTask.Error():
		if j.status.Size == 1 {
			return "the job has 1 rank"
		}
		return fmt.Sprintf("the job has %d ranks", j.status.Size)
	case serry.ErrRestarted.Error():
		return "another process is that rank"
	case serry.ErrAlreadyFailed.Error():
		return "that rank has failed in this attempt"
	case serry.ErrStale.Error():
		return "a newer process has taken its place"
	case serry.ErrMismatch.Error():
		return "its attempt is over"
	}
	return r.Cause
}

// advice says what to do about a process that wants to join and may not.
func (r *Refusal) advice() []string {
	switch r.Cause {
	case serry.ErrUnknownTask.Error():
		return []string{"its number of processes differs from that of the service: compare the two (serry serve --tasks, num_processes in jax)"}
	case serry.ErrStale.Error(), serry.ErrMismatch.Error():
		return []string{"it is left over from before a restart: end it on its host"}
	}
	return advise(r.Cause, "")
}
