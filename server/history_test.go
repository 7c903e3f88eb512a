package server

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
)

func died(task int) coord.Note {
	id := serry.TaskID{Job: "worker", Index: task}
	return coord.Note{What: "task failed", Task: id, Err: &serry.TaskError{Task: id, Evidence: "process exited: signal 9", Err: serry.ErrTaskDead}}
}

func TestHistoryKeepsTheFirstFailure(t *testing.T) {
	var h history
	h.add(0, coord.Note{What: "task suspected", Err: errors.New("said a peer")})
	h.add(0, coord.Note{What: "barrier ended", Barrier: "b", Err: &serry.BarrierError{ID: "b", Err: serry.ErrCancelled}})
	h.add(coord.Time(time.Second), died(3))
	for i := range 3 * notesKept {
		h.add(coord.Time(i)*coord.Time(time.Hour), died(4))
	}
	if h.first == nil || h.first.Task != "worker/3" || h.first.Evidence != "process exited: signal 9" || h.first.AtSeconds != 1 {
		t.Errorf("first failure = %+v; want that of worker/3 after one second", h.first)
	}
	if len(h.notes) != notesKept || h.notes[len(h.notes)-1].Number != h.last {
		t.Errorf("%d notes are kept, the newest is number %d of %d; want %d and the last", len(h.notes), h.notes[len(h.notes)-1].Number, h.last, notesKept)
	}
	h.opened()
	if h.first != nil {
		t.Errorf("first failure after a new epoch opened = %+v; want none", h.first)
	}
}

func TestHistoryOfAFlood(t *testing.T) {
	var h history
	h.add(0, died(0))
	for i := range 10_000 {
		h.add(0, coord.Note{What: "task connected", Task: serry.TaskID{Job: "worker", Index: i}})
		h.add(0, coord.Note{What: "barrier ended", Barrier: fmt.Sprint(i)})
	}
	newest := h.notes[len(h.notes)-1]
	if len(h.notes) != 1+sameInRow || newest.More != 10_000-sameInRow || newest.Number != h.last {
		t.Errorf("%d notes, the newest is %+v; want %d and the rest counted", len(h.notes), newest, 1+sameInRow)
	}
	h.add(coord.Time(2*atOnce), coord.Note{What: "task connected"})
	if got := len(h.notes); got != 2+sameInRow {
		t.Errorf("%d notes after a later one; want it kept by itself", got)
	}
}
