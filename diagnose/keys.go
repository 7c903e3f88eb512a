package diagnose

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/wire"
)

// A KeyWait is ranks that wait for a key that has not been written (E2 of D-EV-3).
type KeyWait struct {
	Key        string   `json:"key"`
	Tasks      []string `json:"tasks"`           // that wait for it
	ForSeconds float64  `json:"for_seconds"`     // the longest
	Owner      string   `json:"owner,omitempty"` // the task that is to write it; empty: not known
	Rule       string   `json:"rule"`            // by which the owner was found
	what       string   // what people call the value, or empty
}

// The rules by which the owner of a key is found (D-EV-4).
const (
	ruleTable   = "jax writes it there"
	ruleNumber  = "it ends with the number of a rank"
	ruleSibling = "it has written the last key in the same folder"
	ruleUnknown = "unknown"
)

// ownerOf says which rank is to write a key, by which rule, and what people call its value. The keys of jax are those of
// agent.md 6.2.
func ownerOf(key string, size int) (rank int, rule, what string, ok bool) {
	rest := key
	if i := strings.IndexByte(rest, ':'); i >= 0 && !strings.ContainsAny(rest[:i], "/ ") {
		rest = rest[i+1:] // the prefix of a backend
	}
	last, err := strconv.Atoi(path.Base(rest))
	numbered := err == nil && last >= 0 && last < size
	switch {
	case strings.HasPrefix(rest, "local_topology/") && numbered:
		return last, ruleTable, "topology", true
	case strings.HasPrefix(rest, "global_topology/"):
		return 0, ruleTable, "global topology", true
	case strings.HasPrefix(rest, "gloo/") && numbered:
		return last, ruleTable, "Gloo address", true
	case strings.HasPrefix(rest, "root_process: "):
		number, _, _ := strings.Cut(strings.TrimPrefix(rest, "root_process: "), ";")
		if n, err := strconv.Atoi(number); err == nil && n >= 0 && n < size {
			return n, ruleTable, "NCCL id", true
		}
	case numbered:
		return last, ruleNumber, "", true
	}
	return 0, ruleUnknown, "", false
}

// keyWaits groups the ranks that wait for keys, the longest wait first. Process 0 of jax waits for the topologies of all others at
// once, and the service tells of its last call alone.
func (j *judge) keyWaits() []KeyWait {
	var all []KeyWait
	for i := range j.status.Tasks {
		t := &j.status.Tasks[i]
		if t.State != wire.StateConnected || !t.CallWaits || t.LastCall != "GetKeyValue" || t.LastOf == wire.NoticeKey {
			continue
		}
		at := slices.IndexFunc(all, func(w KeyWait) bool { return w.Key == t.LastOf })
		if at < 0 {
			at, all = len(all), append(all, KeyWait{Key: t.LastOf, Rule: ruleUnknown})
			if rank, rule, what, ok := ownerOf(t.LastOf, j.status.Size); ok && j.job != "" {
				all[at].Owner, all[at].Rule, all[at].what = serry.TaskID{Job: j.job, Index: rank}.String(), rule, what
			} else if folder, ok := wire.FolderOf(t.LastOf); ok && j.status.Writers[folder] != "" {
				all[at].Owner, all[at].Rule = j.status.Writers[folder], ruleSibling
			}
		}
		all[at].Tasks = append(all[at].Tasks, t.Task)
		all[at].ForSeconds = max(all[at].ForSeconds, t.CallSeconds)
	}
	slices.SortStableFunc(all, func(a, b KeyWait) int {
		switch {
		case a.ForSeconds > b.ForSeconds:
			return -1
		case a.ForSeconds < b.ForSeconds:
			return 1
		}
		return 0
	})
	return all
}

// keyCulprit follows the waits for keys to their end: the ranks that wait, one after the other, for a rank that waits for no key, and
// the wait for what that rank has not written. A rank that waits for a key itself is not to blame.
func (j *judge) keyCulprit(all []KeyWait) (waiting []string, w *KeyWait) {
	for i := range all {
		end := &all[i]
		waits := slices.ContainsFunc(all, func(o KeyWait) bool { return slices.Contains(o.Tasks, end.Owner) })
		if end.Owner == "" || waits || end.ForSeconds < stillFor.Seconds() {
			continue
		}
		waiting = slices.Clone(end.Tasks)
		for grown := true; grown; {
			grown = false
			for _, o := range all {
				if slices.Contains(waiting, o.Owner) && !slices.Contains(waiting, o.Tasks[0]) {
					waiting, grown = append(waiting, o.Tasks...), true
				}
			}
		}
		return waiting, end
	}
	return nil, nil
}

// keyVerdict makes ranks that wait for a key the verdict (D-SC-28). Where a launcher sees that the owner of the key stands still, its
// place is shown, too.
func (r *Report) keyVerdict(j *judge, waiting []string, w *KeyWait, h *HangReport) {
	ranks := make([]int, 0, len(waiting))
	for _, task := range waiting {
		if id, err := serry.ParseTaskID(task); err == nil {
			ranks = append(ranks, id.Index)
		}
	}
	slices.Sort(ranks)
	owner := j.rank(w.Owner)
	what := fmt.Sprintf("key %q of %s", w.Key, owner)
	if w.what != "" {
		what = fmt.Sprintf("the %s of %s", w.what, owner)
	}
	r.Kind, r.Stage, r.Grade = Waiting, Stalled, Sure
	if w.Rule == ruleNumber || w.Rule == ruleSibling {
		r.Grade = Likely
	}
	if h.stands() {
		r.Stage = h.Hang.Stage
		r.Evidence = slices.DeleteFunc(h.Hang.Lines(h.Begun), func(l HangLine) bool { return l.Word == "waiting" || l.Word == "grade" })
	} else if j.allCall([]string{w.Owner}) {
		r.Stage = Late // it does something
	}
	r.Verdict = fmt.Sprintf("%s %s for %s since %s", rankRanges(ranks), verb(len(ranks), "waits", "wait"), what, Ago(w.ForSeconds))
	r.Evidence = append(r.Evidence,
		HangLine{"waiting", fmt.Sprintf("key %q has not been written; its owner: %s", w.Key, w.Rule)},
		HangLine{"grade", fmt.Sprintf("%s: the service knows who waits for which key", r.Grade)})
	r.Advice = []string{fmt.Sprintf("see where in its code %s is: %s", owner, j.stacksCommand(w.Owner))}
}

// agrees says whether what a launcher says of ranks that keep the others waiting does not speak against a task: it names the
// task, or none. A launcher sees more than the service does, so its word counts where the two differ.
func (r *HangReport) agrees(task string) bool {
	if r == nil || r.Hang == nil {
		return true
	}
	id, err := serry.ParseTaskID(task)
	return err == nil && r.stands() && slices.Contains(r.Hang.numbers(), id.Index)
}
