package server

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/detect"
	"github.com/serry-dev/serry/internal/lab/clause"
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

// A task that its launcher has told to end is the first failure only until another one is known: the launcher may have found
// that a host is lost before the service has. What follows from the loss of the first does not count.
func TestHistoryOfATaskThatWasTold(t *testing.T) {
	clause.Cite(t, "D-RC-3", "TD-RC-3")
	lost := func(task int, evidence string) coord.Note {
		n := died(task)
		n.Err.(*serry.TaskError).Evidence = evidence
		return n
	}
	var h history
	for task := range 20 {
		h.add(0, lost(task, "process exited: signal 15"+detect.ToldToEnd))
	}
	h.add(0, coord.Note{What: "barrier ended", Barrier: "b", Err: &serry.BarrierError{ID: "b", Err: serry.ErrTaskDead}})
	if h.first == nil || h.first.Task != "worker/0" {
		t.Errorf("first failure = %+v; want worker/0, the first of those that were told", h.first)
	}
	h.add(0, lost(20, "host silent"))
	h.add(0, lost(21, "process exited: signal 11"))
	if h.first.Task != "worker/20" || h.first.Evidence != "host silent" {
		t.Errorf("first failure = %+v; want worker/20, which nothing has told to end", h.first)
	}
}
