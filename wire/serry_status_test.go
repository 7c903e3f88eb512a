package wire

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
)

// asked sends a query there and a report back.
func asked(t *testing.T, q StatusQuery, r Report) Status {
	t.Helper()
	path, body, err := q.Request()
	if err != nil {
		t.Fatal(err)
	}
	ev, shape, err := NewCodec([]coord.Job{{Name: "worker", Tasks: 3}}).Decode(path, body, Origin{Req: 1})
	if _, ok := ev.(coord.GetStatus); !ok || err != nil {
		t.Fatalf("Decode() = %#v, %v; want GetStatus", ev, err)
	}
	reply, st := shape.Encode(coord.Reply{Req: 1, Result: r})
	if !st.OK() {
		t.Fatalf("Encode() = %+v", st)
	}
	s, err := ReadStatus(reply)
	if err != nil {
		t.Fatalf("ReadStatus() = %v", err)
	}
	return s
}

func newReport() Report {
	second := coord.Time(time.Second)
	dead := &serry.TaskError{Task: worker(1), Evidence: "process exited: signal 9", Err: serry.ErrTaskDead}
	view := coord.View{
		Epoch: 2, Service: 1 << 63, Now: 100 * second, Keys: 4, StoreBytes: 5, Waiters: 6, Failure: dead,
		Tasks: []coord.TaskView{
			{TaskInfo: coord.TaskInfo{Task: worker(0), State: serry.Connected, Incarnation: 7}, Since: 90 * second},
			{TaskInfo: coord.TaskInfo{Task: worker(1), State: serry.Failed, Incarnation: 8, Err: dead}, Since: 99 * second, Departed: true},
			{TaskInfo: coord.TaskInfo{Task: worker(2)}},
		},
		Barriers: []coord.BarrierView{
			{ID: "soon", Counter: 3, Members: 3, Arrived: 1, First: worker(0), Missing: []serry.TaskID{worker(1), worker(2)}, Since: 98 * second, Deadline: 160 * second},
			{ID: "never", Members: 1000, Missing: make([]serry.TaskID, 1000), Deadline: math.MaxInt64},
		},
	}
	first := NewNote(1, 99*second, coord.Note{What: "task failed", Task: worker(1), Incarnation: 8, Err: dead})
	return Report{
		Status: coord.Status{View: view}, Clock: time.Date(2026, 11, 15, 0, 0, 0, 0, time.UTC), First: &first,
		Notes: []NoteStatus{first, NewNote(2, 99*second, coord.Note{What: "job failed", Err: &serry.LostError{Lost: []*serry.TaskError{dead}}})},
	}
}

// Callers of older versions read the tasks from the JSON, and servers of older versions send no rows.
func TestStatusRows(t *testing.T) {
	r := newReport()
	r.Sight = func(task serry.TaskID) (time.Duration, string) {
		return time.Duration(task.Index-1) * time.Second, "10.0.0.1:7"
	}
	r.Calls = []LastCall{{Kind: coord.KindBarrier, Of: "step", Ago: 1, Waits: true}, {}, {Kind: coord.KindGetKeyValue, Of: "a\xffb", Ago: 2}}
	q := StatusQuery{Tasks: true, Sight: true, Calls: true}
	got := asked(t, q, r)
	old, err := Shape{query: q}.serryReply(coord.Reply{Result: r})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(old.GetStatus().GetTasks()); n != 0 {
		t.Errorf("a caller that asked for no rows gets %d", n)
	}
	body, err := proto.Marshal(old)
	if err != nil {
		t.Fatal(err)
	}
	want, err := ReadStatus(body)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" || len(got.Tasks) != 3 {
		t.Errorf("the status by rows differs from the one by JSON (-JSON +rows):\n%s", diff)
	}
}

func TestStatus(t *testing.T) {
	s := asked(t, StatusQuery{Tasks: true}, newReport())
	if diff := cmp.Diff(map[string]int{StateConnected: 1, StateFailed: 1, StateAbsent: 1}, s.Counts); diff != "" || s.Size != 3 {
		t.Errorf("%d tasks, counts (-want +got):\n%s", s.Size, diff)
	}
	wantTasks := []TaskStatus{
		{Task: "worker/0", State: StateConnected, Incarnation: 7, ForSeconds: 10},
		{Task: "worker/1", State: StateFailed, Incarnation: 8, ForSeconds: 1, Departed: true, Cause: "task is dead", Error: "task worker/1: task is dead: process exited: signal 9"},
		{Task: "worker/2", State: StateAbsent, ForSeconds: 100},
	}
	if diff := cmp.Diff(wantTasks, s.Tasks); diff != "" {
		t.Errorf("tasks (-want +got):\n%s", diff)
	}
	if b := s.Barriers[0]; b.LeftSeconds != 60 || b.ForSeconds != 2 || strings.Join(b.Missing, " ") != "worker/1 worker/2" {
		t.Errorf("first barrier = %+v; want 60 seconds left, 2 missing", b)
	}
	if b := s.Barriers[1]; b.LeftSeconds != 0 || len(b.Missing) != maxListed {
		t.Errorf("second barrier has %v seconds left and names %d; want no end and %d names", b.LeftSeconds, len(b.Missing), maxListed)
	}
	want := &NoteStatus{
		Number: 1, AtSeconds: 99, What: "task failed", Task: "worker/1", Incarnation: 8,
		Cause: "task is dead", Evidence: "process exited: signal 9", Error: "task worker/1: task is dead: process exited: signal 9",
	}
	if diff := cmp.Diff(want, s.First); diff != "" {
		t.Errorf("first failure (-want +got):\n%s", diff)
	}
	if s.Service != 1<<63 || s.Clock.Year() != 2026 || s.Failure == "" || len(s.Notes) != 2 || s.Notes[1].Evidence != "process exited: signal 9" {
		t.Errorf("status = %+v", s)
	}
}

func TestStatusOfWhatWasAskedFor(t *testing.T) {
	s := asked(t, StatusQuery{After: 1}, newReport())
	if s.Tasks != nil || s.Size != 3 || len(s.Notes) != 1 || s.Notes[0].Number != 2 {
		t.Errorf("status = %+v; want no tasks and one note", s)
	}
	if s := asked(t, StatusQuery{After: math.MaxUint64}, newReport()); s.Notes == nil || len(s.Notes) != 0 {
		t.Errorf("notes = %v; want an empty list", s.Notes)
	}
}

func TestStatusIsBounded(t *testing.T) {
	long := &serry.TaskError{Task: worker(0), Text: strings.Repeat("ä", 10_000), Err: serry.ErrReported}
	n := NewNote(1, 0, coord.Note{What: "task failed", Err: long})
	if len(n.Error) > maxShown+len("...") || len(n.Evidence) > maxShown+len("...") {
		t.Errorf("a note with texts of %d and %d bytes; want at most %d", len(n.Error), len(n.Evidence), maxShown)
	}
}

func FuzzReadStatus(f *testing.F) {
	_, body, _ := StatusQuery{}.Request()
	f.Add(body)
	reply, _ := Shape{Dialect: Serry}.Encode(coord.Reply{Result: newReport()})
	f.Add(reply)
	f.Fuzz(func(_ *testing.T, body []byte) {
		_, _ = ReadStatus(body) // must return
	})
}
