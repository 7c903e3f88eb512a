package diagnose

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/detect"
	"github.com/serry-dev/serry/wire"
)

// Older are the verdicts before the one of a report, a line each, oldest first: the first failure of each attempt that the service
// remembers, then what the launcher says of former attempts, and what it has said of stalls. The verdict of the report itself is not among them.
func Older(e Evidence, r Report) []string {
	bare := e.Status
	bare.Tasks, bare.Counts, bare.Failure = nil, nil, "" // they are those of the present attempt
	j := newJudge(Evidence{Status: bare})
	j.job = onlyJob(e.Status.Tasks)
	lines := []string{}
	for _, a := range failedAttempts(e.Status.Notes) {
		n := a.first
		if f := e.Status.First; f != nil && f.Number == n.Number && r.First != nil && !r.First.Recovered {
			continue // the report is about it
		}
		text := a.name + j.first(&n).verdict()
		if a.followed > 0 {
			text += fmt.Sprintf("; %s after it", counted(a.followed, "more rank failed", "more ranks failed"))
		}
		lines = append(lines, e.Peers.name(text))
	}
	lines = append(lines, e.Hang.failedAttempts(e.Status.Clock.Location())...)
	return append(lines, r.Past...)
}

// failedAttempts are the former attempts of a launcher that failed, a line each. A service that began with the present attempt knows
// nothing of them.
func (r *HangReport) failedAttempts(zone *time.Location) (lines []string) {
	if r == nil {
		return nil
	}
	for _, a := range r.Attempts {
		if a.Failed {
			lines = append(lines, fmt.Sprintf("%s attempt %d: rank %d: %s", a.Ended.In(zone).Format(time.TimeOnly), a.Number, a.Rank, a.How))
		}
	}
	return lines
}

// A failedAttempt is what the notes of a service say of an attempt in which something failed.
type failedAttempt struct {
	name     string // "attempt 2: ", or empty: the notes do not go back to its beginning
	first    wire.NoteStatus
	followed int // ranks that failed after the first
}

// failedAttempts finds them, oldest first. Barriers that fail after a rank do so because of it.
func failedAttempts(notes []wire.NoteStatus) []failedAttempt {
	var all []failedAttempt
	name, open := "", false
	for _, n := range notes {
		switch {
		case n.What == "epoch opened":
			name, open = fmt.Sprintf("attempt %d: ", n.Count), false
		case !tellsOfFailure(n):
		case !open:
			all, open = append(all, failedAttempt{name: name, first: n}), true
		case n.What == "task failed":
			last := &all[len(all)-1]
			last.followed++
			if wasTold(last.first) && !wasTold(n) {
				last.first = n // D-RC-3: the launcher may find a loss before the service does
			}
		}
	}
	return all
}

// tellsOfFailure says whether a note is about something that broke by itself, as the service sees that.
func tellsOfFailure(n wire.NoteStatus) bool {
	return n.Error != "" && n.From == "" && n.What != "task suspected" && n.Cause != serry.ErrCancelled.Error() && n.Cause != serry.ErrStopping.Error()
}

// wasTold says whether a note is about a rank that ended after its launcher had told it to.
func wasTold(n wire.NoteStatus) bool { return strings.Contains(n.Evidence, detect.ToldToEnd) }

// Subject is what a verdict is about, without what passes while nothing happens, as ages and rates do: two reports with one
// subject are one piece of news.
func Subject(e Evidence, r Report) string {
	parts := []string{string(r.Kind), string(r.Stage), string(r.Grade)}
	add := func(values ...any) { parts = append(parts, fmt.Sprint(values...)) }
	if f := r.First; f != nil {
		add(f.Task, f.Barrier, f.Cause, f.Evidence, f.Missing, f.Recovered)
	}
	if w := r.worst(); w != nil {
		add(w.Barrier, w.On)
	}
	if e.Hang != nil && e.Hang.Hang != nil {
		h := e.Hang.Hang
		add(h.Kind, h.Stage, h.numbers(), h.waiters(), h.where())
	}
	for _, k := range r.Keys {
		add(k.Key)
	}
	if len(r.Refused) > 0 {
		f := r.Refused[len(r.Refused)-1]
		add(f.Task, f.From, f.Cause, r.refusedLately() != nil)
	}
	for _, s := range r.Saves {
		add(s.Round, s.Saved, s.Steps)
	}
	for _, s := range e.Status.Stragglers {
		add(s.Task, s.Host)
	}
	if t := e.Status.Takeover; t != nil {
		add(t.From, t.At)
	}
	for _, state := range slices.Sorted(maps.Keys(e.Status.Counts)) {
		add(state, e.Status.Counts[state])
	}
	return strings.Join(parts, "\x00")
}
