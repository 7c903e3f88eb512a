package server

import (
	"errors"
	"slices"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/wire"
)

const (
	notesKept = 256         // the oldest one goes when another comes
	sameInRow = 8           // notes of one sort that are kept when many come at once
	atOnce    = time.Second // how far apart notes are that come at once
)

// A history is what happened lately, for people who ask: the newest notes of the machine and,
// however long ago it was, the first failure of the present epoch. It belongs to the owner.
type history struct {
	last  uint64 // number of the newest note
	notes []wire.NoteStatus
	first *wire.NoteStatus
}

// opened forgets what no longer matters in a new epoch.
func (h *history) opened() { h.first = nil }

// add takes a note. Barriers that passed are too many to be kept.
func (h *history) add(now coord.Time, n coord.Note) {
	if n.Barrier != "" && n.Err == nil {
		return
	}
	h.last++
	if h.repeats(now, n.What) {
		newest := &h.notes[len(h.notes)-1]
		newest.Number = h.last
		newest.More++
		return
	}
	s := wire.NewNote(h.last, now, n)
	if h.first == nil && isFailure(n) {
		h.first = &s
	}
	if len(h.notes) == notesKept {
		h.notes = slices.Delete(h.notes, 0, 1)
	}
	h.notes = append(h.notes, s)
}

// repeats says whether the newest notes are all of that sort, and of now. Where 10,000 tasks connect
// or fail together a few names say enough, and what came before stays visible.
func (h *history) repeats(now coord.Time, what string) bool {
	if len(h.notes) < sameInRow {
		return false
	}
	row := h.notes[len(h.notes)-sameInRow:]
	since := (time.Duration(now) - atOnce).Seconds()
	return !slices.ContainsFunc(row, func(s wire.NoteStatus) bool { return s.What != what || s.AtSeconds < since })
}

// isFailure says whether a note tells of something that broke by itself: not of a suspicion, nor of
// what somebody asked for.
func isFailure(n coord.Note) bool {
	return n.Err != nil && n.What != "task suspected" &&
		!errors.Is(n.Err, serry.ErrCancelled) && !errors.Is(n.Err, serry.ErrStopping)
}

// report adds what happened to a picture of the machine.
func (h *history) report(s coord.Status) wire.Report {
	return wire.Report{Status: s, Clock: time.Now().UTC(), First: h.first, Notes: slices.Clone(h.notes)}
}
