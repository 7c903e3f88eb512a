package wire

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/internal/lab/clause"
)

// peekRequests are requests of every method, with a field that nobody knows behind them.
func peekRequests(t testing.TB) map[string][]byte {
	unknown := []byte("\xfa\x07\x03new") // field 127
	all := make(map[string][]byte)
	for _, c := range xlaCases {
		all[xlaPrefix+c.path] = append(encode(t, c.m), unknown...)
	}
	for _, c := range tfCases {
		all[tfPrefix+c.path] = append(encode(t, c.m), unknown...)
	}
	return all
}

// TestPeek: what is read of a request for the sake of passing it on is what the service reads, too.
func TestPeek(t *testing.T) {
	clause.Cite(t, "A-SIDE-1")
	for path, body := range peekRequests(t) {
		checkPeek(t, path, body)
	}
	for _, ev := range []coord.Event{
		coord.RegisterTask{Call: from(worker(1))}, coord.Heartbeat{Call: from(worker(1))},
		coord.PollForError{Call: from(worker(1))}, coord.ShutdownTask{Call: from(worker(1))},
		coord.IncrementKeyValue{Call: from(worker(1)), Key: "k", By: 1}, coord.WatchTasks{Call: from(worker(1)), Version: 3},
		coord.SwapKeyValue{Call: from(worker(1)), Key: "k"}, coord.Suspect{Call: from(worker(1))}, coord.ListKeys{}, coord.WatchKeys{},
		coord.TryGetKeyValue{Call: coord.Call{ID: coord.RequestID{Requester: 3, Number: 1}}, Key: "k"},
	} {
		path, body, err := Serry.Request(ev)
		if err != nil {
			t.Fatal(err)
		}
		checkPeek(t, path, body)
	}
}

// checkPeek compares Peek with the whole way of reading a request.
func checkPeek(t *testing.T, path string, body []byte) {
	t.Helper()
	ev, shape, err := new(Codec).Decode(path, body, Origin{})
	c, ok := Peek(path, body)
	if err != nil {
		return // it is for the service to say what is wrong
	}
	want, _ := coord.CallOf(ev)
	if !ok || c.Task != want.Task || c.Incarnation != want.Incarnation || c.Service != want.Service {
		t.Errorf("Peek(%s) = %+v, %v; want %+v", path, c, ok, want)
	}
	if w, is := ev.(coord.WatchTasks); is && c.Watches() && (c.Version != w.Version || c.Job != w.Job) {
		t.Errorf("Peek(%s) = version %d of job %q; want %d of %q", path, c.Version, c.Job, w.Version, w.Job)
	}
	if c.Identified != (want.ID != coord.RequestID{}) && shape.Dialect == Serry && len(body) > 0 {
		t.Errorf("Peek(%s) says that it has an id: %v; want %v", path, c.Identified, want.ID)
	}
	if kind := kindOf(shape.Op); c.Kind != kind || kind != 0 && kind != coord.KindOf(ev) {
		t.Errorf("Peek(%s) says kind %d; want %d", path, c.Kind, kind)
	}
}

// TestPlaces: a relay finds the task of just those requests that act for one.
func TestPlaces(t *testing.T) {
	for path, m := range methods {
		at := map[Dialect]map[Op]places{XLA: xlaPlaces, TF: tfPlaces}[m.dialect][m.op]
		if row := kindOf(m.op).Row(); m.dialect != Serry && row.ForTask != (at.task != 0) {
			t.Errorf("%s has its task in field %d; its row says that it acts for a task: %v", path, at.task, row.ForTask)
		}
	}
}

// TestSerryCalls: serry's own dialect has every call, each in a field of its own.
func TestSerryCalls(t *testing.T) {
	calls := 0
	for k := range coord.Kind(coord.Kinds) {
		name := k.Row().Name
		if (name != "") != (serryFields[k] != 0) {
			t.Errorf("%q has field %d", name, serryFields[k])
		}
		if name != "" {
			calls++
		}
	}
	if len(serryCalls) != calls {
		t.Errorf("%d fields hold calls; want %d", len(serryCalls), calls)
	}
}

// FuzzPeek: no bytes harm a relay, and whatever the service can read, a relay reads alike.
func FuzzPeek(f *testing.F) {
	for path, body := range peekRequests(f) {
		f.Add(path, body)
	}
	f.Fuzz(func(t *testing.T, path string, body []byte) { checkPeek(t, path, body) })
}

// TestWatchForOthers: a watch that a relay makes asks what those ask for whom it watches.
func TestWatchForOthers(t *testing.T) {
	clause.Cite(t, "A-SIDE-17")
	for _, path := range []string{xlaPrefix + "WatchTasks", tfPrefix + "WatchJobState"} {
		c, _ := Peek(path, peekRequests(t)[path])
		ev, _, err := new(Codec).Decode(path, c.Watch(42, 77), Origin{})
		w, _ := ev.(coord.WatchTasks)
		if err != nil || w.Version != 42 || w.Job != c.Job || c.Shape.Dialect == XLA && w.Service != 77 {
			t.Errorf("Decode(Watch(42, 77)) of %s = %+v, %v", path, ev, err)
		}
	}
}

// TestKnown: a relay names tasks in errors as the caller does, where the cluster has one job.
func TestKnown(t *testing.T) {
	clause.Cite(t, "C-VER-1")
	stored := &serry.TaskError{Task: worker(1), Reason: serry.ErrReported, Err: serry.ErrAlreadyFailed}
	for job, want := range map[string]string{"jax_worker": "/job:jax_worker/", "worker": "/job:worker/"} {
		c := Caller{Shape: Shape{Dialect: TF, Op: opHeartbeat}, Task: serry.TaskID{Job: job, Index: 1}}
		st := c.Known(worker(1)).Refuse(stored)
		if st.Code != codes.Aborted {
			t.Errorf("Known(worker/1).Refuse(...) = %v", st)
		}
		checkText(t, TF, st.Message, want)
	}
}

// TestMarshalError: what the service stores of a task reaches the table of a relay with its facts.
func TestMarshalError(t *testing.T) {
	clause.Cite(t, "C-HB-8")
	dead := &serry.TaskError{Task: worker(2), Incarnation: 7, Evidence: "signal 9", Err: serry.ErrTaskDead}
	want := &serry.TaskError{Task: worker(1), Reason: &serry.LostError{Lost: []*serry.TaskError{dead}}, Err: serry.ErrPeerFailed}
	if diff := cmp.Diff(want.Error(), UnmarshalError(MarshalError(want)).Error()); diff != "" {
		t.Errorf("UnmarshalError(MarshalError(...)) differs:\n%s", diff)
	}
	for _, b := range [][]byte{nil, []byte("\xff")} {
		if UnmarshalError(b) == nil {
			t.Errorf("UnmarshalError(%q) = nil", b)
		}
	}
}

// TestIDBeside: a request of serry's own dialect that has no id inside can have one beside it.
func TestIDBeside(t *testing.T) {
	clause.Cite(t, "C-REQ-1")
	beside, inside := coord.RequestID{Requester: 9, Number: 4}, coord.RequestID{Requester: 3, Number: 1}
	for _, c := range []struct{ inside, want coord.RequestID }{{inside, inside}, {coord.RequestID{}, beside}} {
		path, body, err := Serry.Request(coord.InsertKeyValue{Call: coord.Call{ID: c.inside}, Key: "k"})
		if err != nil {
			t.Fatal(err)
		}
		ev, _, err := new(Codec).Decode(path, body, Origin{ID: beside})
		if got, _ := coord.CallOf(ev); err != nil || got.ID != c.want {
			t.Errorf("Decode() with %+v inside = %+v, %v; want %+v", c.inside, got.ID, err, c.want)
		}
	}
}
