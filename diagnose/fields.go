package diagnose

import (
	"fmt"
	"slices"
	"strings"
)

// fields fills in what programs want to know of the verdict in fields of their own (D-CLI-1).
func (r *Report) fields(j *judge, e Evidence) {
	if r.Kind == Failed && r.First != nil && r.First.Task != "" {
		if at := indexOf(r.First.Task); len(at) > 0 {
			r.Rank, r.Since = &at[0], r.First.at
		}
	}
	if r.Rank != nil && j.job != "" {
		if t := j.tasks[fmt.Sprintf("%s/%d", j.job, *r.Rank)]; t != nil {
			r.Incarnation = t.Incarnation
		}
	}
	if e.Ending != nil {
		r.Until = e.Ending.At
	}
	r.Next = slices.Clone(r.Advice)
	for _, l := range r.Evidence {
		if l.Word == "next" {
			r.Next = append(r.Next, strings.Split(l.Text, " · ")...)
		}
	}
}

// steps are the last steps of ranks that keep the others waiting and of those that wait, where the program reports some: ranks that
// leave early take fewer (D-SC-5).
func (j *judge) steps(h *Hang) []HangLine {
	if len(j.status.Steps) != len(j.status.Tasks) {
		return nil
	}
	known := make(map[string]int64, len(j.status.Tasks))
	for i, t := range j.status.Tasks {
		known[t.Task] = j.status.Steps[i]
	}
	at := make(map[int64][]int)
	var order []int64
	for _, rank := range slices.Concat(h.numbers(), h.waitingRanks()) {
		step, ok := known[fmt.Sprintf("%s/%d", j.job, rank)]
		if !ok || step < 0 {
			continue
		}
		if at[step] == nil {
			order = append(order, step)
		}
		at[step] = append(at[step], rank)
	}
	var parts []string
	for _, step := range order[:min(len(order), stepsShown)] {
		parts = append(parts, fmt.Sprintf("%s at step %d", Ranks(at[step]), step))
	}
	if len(parts) == 0 {
		return nil
	}
	return []HangLine{{"step", strings.Join(parts, ", ")}}
}

// stepsShown is how many different steps a line has room for.
const stepsShown = 4

// waitingRanks are the ranks that wait, as far as they are known.
func (h *Hang) waitingRanks() (all []int) {
	for _, w := range h.Waits {
		all = append(all, w.Ranks...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}
