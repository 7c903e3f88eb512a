package server

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/detect"
	"github.com/serry-dev/serry/wire"
)

const (
	// notesKept bounds the history: the oldest note goes when another comes.
	notesKept = 256

	// notesSaved is how many of them a snapshot keeps.
	notesSaved = 32

	// sameInRow is how many notes of one sort are kept when many come at once, and atOnce how far apart
	// such notes are at most.
	sameInRow = 8
	atOnce    = time.Second
)

// A history is what happened lately, as serry status and serry why show it: the newest notes of the
// machine and, however long ago it was, the first failure of the present epoch. When a job falls over, one
// failure is followed by hundreds that it caused, and the first is the one to look at. It belongs to the owner.
type history struct {
	last  uint64            // number of the newest note
	notes []wire.NoteStatus // the oldest first, notesKept at most
	first *wire.NoteStatus  // the first failure of the epoch, or nil
}

// opened forgets the first failure of the former epoch. Its notes stay: they tell how that ended.
func (h *history) opened() { h.first = nil }

// add takes a note. Barriers that passed are not kept: they would push out everything else. A note that repeats
// the newest ones is only counted.
func (h *history) add(now coord.Time, n coord.Note) {
	if n.Barrier != "" && n.Err == nil {
		return
	}
	h.last++
	if isFailure(n) {
		h.failed(now, n)
	}
	if h.repeats(now, n.What) {
		// The counted note takes the newest number. Otherwise a question for the notes after a number would not
		// show that the count has risen.
		newest := &h.notes[len(h.notes)-1]
		newest.Number = h.last
		newest.More++
		return
	}
	if len(h.notes) == notesKept {
		h.notes = slices.Delete(h.notes, 0, 1)
	}
	h.notes = append(h.notes, wire.NewNote(h.last, now, n))
}

// failed keeps the first failure apart, so that it outlives the notes that follow it.
//
// The first failure stays, with one exception. If its task was told to end, then a later failure of a task that
// was not told takes its place. The failure of a barrier never does: it follows from the end of a task.
func (h *history) failed(now coord.Time, n coord.Note) {
	if h.first != nil && (!wasTold(h.first) || n.Task.IsZero() || n.Barrier != "") {
		return
	}
	if s := wire.NewNote(h.last, now, n); h.first == nil || !wasTold(&s) {
		h.first = &s
	}
}

// repeats says whether the newest notes are all of that sort, and of now. Where 10,000 tasks connect or fail
// together a few names say enough, and what came before stays visible.
func (h *history) repeats(now coord.Time, what string) bool {
	if len(h.notes) < sameInRow {
		return false
	}
	row := h.notes[len(h.notes)-sameInRow:]
	since := (time.Duration(now) - atOnce).Seconds()
	return !slices.ContainsFunc(row, func(s wire.NoteStatus) bool { return s.What != what || s.AtSeconds < since })
}

// wasTold says whether a note is about a task that ended after its launcher had told it to. The launcher may have done that because
// of a failure that the service hears of later, such as a silent host. The later failure then counts as the first one (D-RC-3).
func wasTold(s *wire.NoteStatus) bool { return strings.Contains(s.Evidence, detect.ToldToEnd) }

// isFailure says whether a note tells of something that broke by itself. A suspicion may be wrong, a
// cancellation or a stop is what a person or a program asked for, and a refusal protects the job from a process
// that is not part of it.
func isFailure(n coord.Note) bool {
	return n.Err != nil && n.From == "" && n.What != "task suspected" &&
		!errors.Is(n.Err, serry.ErrCancelled) && !errors.Is(n.Err, serry.ErrStopping)
}

// follow takes what a step of a recorded history noted.
func (h *history) follow(s Step) {
	for _, e := range s.Effects {
		switch e := e.(type) {
		case coord.Note:
			h.add(s.At, e)
		case coord.Opened:
			h.opened()
		}
	}
}

// header is what stands in front of a snapshot that is made now. A snapshot replaces the records from which the
// notes could be made again, so notes that are not in the header are lost for the next leader. Only the newest
// are saved, to keep headers small.
func (h *history) header(s settings, now time.Time) header {
	recent := h.notes[max(0, len(h.notes)-notesSaved):]
	return header{settings: s, Notes: h.last, First: h.first, Recent: recent, Wall: now.UTC()}
}

// history is the history up to a snapshot.
func (h *header) history() history {
	recent := h.Recent[max(0, len(h.Recent)-notesKept):]
	return history{last: h.Notes, notes: slices.Clone(recent), first: h.First}
}

// report adds what happened to the status of the machine.
func (h *history) report(s coord.Status, clock time.Time) wire.Report {
	return wire.Report{Status: s, Clock: clock.UTC(), First: h.first, Notes: slices.Clone(h.notes)}
}
