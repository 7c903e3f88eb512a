package wire

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/wire/tfpb"
	"github.com/serry-dev/serry/wire/xlapb"
)

const (
	xlaPrefix = "/xla.coordination.CoordinationService/"
	tfPrefix  = "/tensorflow.CoordinationService/"
)

var (
	oneJob  = NewCodec([]coord.Job{{Name: "worker", Tasks: 4}})
	twoJobs = NewCodec([]coord.Job{{Name: "chief", Tasks: 1}, {Name: "worker", Tasks: 4}})
)

// onConnection knows that worker/1 is registered by its eleventh life, at service 77, and nobody else.
func onConnection(t serry.TaskID) (own, service serry.Incarnation) {
	if t == worker(1) || t.IsZero() {
		return 11, 77
	}
	return 0, 0
}

func encode(t testing.TB, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// who is what clients send of themselves: the task id inside is never filled.
var who = &xlapb.Incarnations{TaskIncarnation: 11, ServiceIncarnation: 77}

// from is the call that who and worker/1 make.
func from(task serry.TaskID) coord.Call {
	return coord.Call{Req: 5, Service: 77, Task: task, Incarnation: 11}
}

type decodeCase struct {
	path string
	m    proto.Message
	want coord.Event
}

var xlaCases = []decodeCase{
	{"RegisterTask", &xlapb.RegisterTaskRequest{Incarnation: 11, SourceTaskId: 1},
		coord.RegisterTask{Call: coord.Call{Req: 5, Task: worker(1), Incarnation: 11}, Next: 99}},
	{"Heartbeat", &xlapb.HeartbeatRequest{Incarnations: &xlapb.Incarnations{TaskId: 3, TaskIncarnation: 10, ServiceIncarnation: 77}, Incarnation: 11, SourceTaskId: 1},
		coord.Heartbeat{Call: from(worker(1))}},
	{"PollForError", &xlapb.PollForErrorRequest{Incarnations: who, SourceTaskId: 1}, coord.PollForError{Call: from(worker(1))}},
	{"ReportErrorToService", &xlapb.ReportErrorToServiceRequest{Incarnations: who, SourceTaskId: 1, ErrorCode: 13, ErrorMessage: "hung"},
		coord.ReportError{Call: from(worker(1)), Code: 13, Text: "hung"}},
	{"ShutdownTask", &xlapb.ShutdownTaskRequest{Incarnations: who, SourceTaskId: 1}, coord.ShutdownTask{Call: from(worker(1))}},
	{"WatchTasks", &xlapb.WatchTasksRequest{Incarnations: who, VersionNumber: -1}, coord.WatchTasks{Call: from(serry.TaskID{}), Version: -1}},
	{"InsertKeyValue", &xlapb.InsertKeyValueRequest{Incarnations: who, Kv: &xlapb.KeyValueEntry{Key: "k", Value: []byte("\xff\x00")}, AllowOverwrite: true},
		coord.InsertKeyValue{Call: from(serry.TaskID{}), Key: "k", Value: []byte("\xff\x00"), Overwrite: true}},
	{"GetKeyValue", &xlapb.GetKeyValueRequest{Incarnations: who, Key: "k"}, coord.GetKeyValue{Call: from(serry.TaskID{}), Key: "k"}},
	{"TryGetKeyValue", &xlapb.TryGetKeyValueRequest{Incarnations: who, Key: "k"}, coord.TryGetKeyValue{Call: from(serry.TaskID{}), Key: "k"}},
	{"IncrementKeyValue", &xlapb.IncrementKeyValueRequest{Incarnations: who, Key: "k", Increment: -3},
		coord.IncrementKeyValue{Call: from(serry.TaskID{}), Key: "k", By: -3}},
	{"GetKeyValueDir", &xlapb.GetKeyValueDirRequest{Incarnations: who, DirectoryKey: "d"}, coord.GetKeyValueDir{Call: from(serry.TaskID{}), Dir: "d"}},
	{"DeleteKeyValue", &xlapb.DeleteKeyValueRequest{Incarnations: who, Key: "k", IsDirectory: true}, coord.DeleteKeyValue{Call: from(serry.TaskID{}), Key: "k"}},
	{"Barrier", &xlapb.BarrierRequest{Incarnations: who, BarrierId: "b", BarrierTimeoutInMs: 1500, TaskIds: []int32{0, 1, -7}, SourceTaskId: 1, Counter: 2},
		coord.Barrier{Call: from(worker(1)), ID: "b", Counter: 2, Timeout: 1500 * time.Millisecond, Tasks: []serry.TaskID{worker(0), worker(1), worker(-7)}}},
	{"CancelBarrier", &xlapb.CancelBarrierRequest{Incarnations: who, BarrierId: "b", Counter: 2, SourceTaskId: 1},
		coord.CancelBarrier{Call: from(worker(1)), ID: "b", Counter: 2}},
	{"GetAliveTasks", &xlapb.GetAliveTasksRequest{Incarnations: who, RequestingTaskId: 1, TaskIds: []int32{1, 2}},
		coord.GetAliveTasks{Call: from(worker(1)), Tasks: []serry.TaskID{worker(1), worker(2)}}},
}

var one = &tfpb.CoordinatedTask{JobName: "jax_worker", TaskId: 1, Recoverable: true}

var tfCases = []decodeCase{
	{"RegisterTask", &tfpb.RegisterTaskRequest{Incarnation: 11, SourceTask: one},
		coord.RegisterTask{Call: coord.Call{Req: 5, Task: worker(1), Incarnation: 11}, Recoverable: true, Next: 99}},
	{"Heartbeat", &tfpb.HeartbeatRequest{Incarnation: 11, SourceTask: one}, coord.Heartbeat{Call: from(worker(1))}},
	{"PollForError", &tfpb.PollForErrorRequest{SourceTask: one}, coord.PollForError{Call: from(worker(1))}},
	{"ReportErrorToService", &tfpb.ReportErrorToServiceRequest{ErrorOrigin: one, ErrorCode: 13, ErrorMessage: "hung"},
		coord.ReportError{Call: from(worker(1)), Code: 13, Text: "hung"}},
	{"ShutdownTask", &tfpb.ShutdownTaskRequest{SourceTask: one}, coord.ShutdownTask{Call: from(worker(1)), Recoverable: true}},
	{"ResetTask", &tfpb.ResetTaskRequest{SourceTask: one}, coord.ResetTask{Call: from(worker(1))}},
	{"WatchJobState", &tfpb.WatchJobStateRequest{JobName: "jax_worker", VersionNumber: 8}, coord.WatchTasks{Call: from(serry.TaskID{}), Version: 8}},
	{"GetJobState", &tfpb.GetJobStateRequest{JobName: "jax_worker"}, coord.WatchTasks{Call: from(serry.TaskID{}), Version: -1}},
	{"GetTaskState", &tfpb.GetTaskStateRequest{SourceTask: []*tfpb.CoordinatedTask{one, {TaskId: 3}}},
		coord.GetTaskState{Call: from(serry.TaskID{}), Tasks: []serry.TaskID{worker(1), worker(3)}}},
	{"InsertKeyValue", &tfpb.InsertKeyValueRequest{Kv: &tfpb.KeyValueEntry{Key: "k", Value: []byte("v")}, AllowOverwrite: true},
		coord.InsertKeyValue{Call: from(serry.TaskID{}), Key: "k", Value: []byte("v"), Overwrite: true}},
	{"GetKeyValue", &tfpb.GetKeyValueRequest{Key: "k"}, coord.GetKeyValue{Call: from(serry.TaskID{}), Key: "k"}},
	{"TryGetKeyValue", &tfpb.TryGetKeyValueRequest{Key: "k"}, coord.TryGetKeyValue{Call: from(serry.TaskID{}), Key: "k"}},
	{"IncrementKeyValue", &tfpb.IncrementKeyValueRequest{Key: "k", Increment: -3}, coord.IncrementKeyValue{Call: from(serry.TaskID{}), Key: "k", By: -3}},
	{"GetKeyValueDir", &tfpb.GetKeyValueDirRequest{DirectoryKey: "d"}, coord.GetKeyValueDir{Call: from(serry.TaskID{}), Dir: "d"}},
	{"DeleteKeyValue", &tfpb.DeleteKeyValueRequest{Key: "k", IsDirectory: true}, coord.DeleteKeyValue{Call: from(serry.TaskID{}), Key: "k"}},
	{"Barrier", &tfpb.BarrierRequest{BarrierId: "b", BarrierTimeoutInMs: 1500, Tasks: []*tfpb.CoordinatedTask{{TaskId: 0}, one}, SourceTask: one, Counter: 2},
		coord.Barrier{Call: from(worker(1)), ID: "b", Counter: 2, Timeout: 1500 * time.Millisecond, Tasks: []serry.TaskID{worker(0), worker(1)}, Recoverable: true}},
	{"CancelBarrier", &tfpb.CancelBarrierRequest{BarrierId: "b", Counter: 2, SourceTask: one}, coord.CancelBarrier{Call: from(worker(1)), ID: "b", Counter: 2}},
	{"GetAliveTasks", &tfpb.GetAliveTasksRequest{RequestingTask: one, Tasks: []*tfpb.CoordinatedTask{one}},
		coord.GetAliveTasks{Call: from(worker(1)), Tasks: []serry.TaskID{worker(1)}}},
	{"WaitForAllTasks", &tfpb.WaitForAllTasksRequest{SourceTask: one, DeviceInfo: &tfpb.DeviceInfo{Device: []*anypb.Any{{TypeUrl: "t", Value: []byte("v")}}}},
		coord.WaitForAllTasks{Call: from(worker(1)), Devices: []byte("\n\x06\n\x01t\x12\x01v")}},
}

func TestDecode(t *testing.T) {
	clause.Cite(t, "A-SEQ-1", "A-HB-2", "C-VER-1", "C-VER-2", "C-INC-6", "C-GTS-2", "NEW-15", "NEW-19")
	seen := make(map[string]bool)
	check := func(prefix string, cases []decodeCase) {
		for _, c := range cases {
			seen[prefix+c.path] = true
			ev, _, err := oneJob.Decode(prefix+c.path, encode(t, c.m), Origin{Req: 5, Next: 99, Identify: onConnection})
			if err != nil {
				t.Errorf("Decode(%s%s) = %v", prefix, c.path, err)
				continue
			}
			if diff := cmp.Diff(c.want, ev); diff != "" {
				t.Errorf("Decode(%s%s): want -, got +\n%s", prefix, c.path, diff)
			}
		}
	}
	check(xlaPrefix, xlaCases)
	check(tfPrefix, tfCases)
	for path, m := range methods {
		if !seen[path] && m.dialect != Serry && m.op != opReportToTask {
			t.Errorf("no case for %s", path)
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	clause.Cite(t, "C-VER-5", "C-ERR-5", "C-WIRE-16", "NEW-60")
	long := strings.Repeat("ü", 513)
	longTask := &tfpb.CoordinatedTask{JobName: long}
	for _, c := range []struct {
		name, path string
		body       []byte
		code       codes.Code
		payload    wantPayload
	}{
		{"no such method", xlaPrefix + "WatchJobState", nil, codes.Unimplemented, none},
		{"no such service", "/x/y", nil, codes.Unimplemented, none},
		{"for tasks only", tfPrefix + "ReportErrorToTask", nil, codes.Internal, p0},
		{"not a message", xlaPrefix + "Barrier", []byte{0xff}, codes.InvalidArgument, p0},
		{"text that is no text", xlaPrefix + "GetKeyValue", []byte("\x12\x01\xff"), codes.InvalidArgument, p0},
		{"long barrier id", xlaPrefix + "Barrier", encode(t, &xlapb.BarrierRequest{BarrierId: long}), codes.InvalidArgument, p0},
		{"long barrier id", tfPrefix + "Barrier", encode(t, &tfpb.BarrierRequest{BarrierId: long}), codes.InvalidArgument, p0},
		{"long barrier id", xlaPrefix + "CancelBarrier", encode(t, &xlapb.CancelBarrierRequest{BarrierId: long}), codes.InvalidArgument, p0},
		{"long barrier id", tfPrefix + "CancelBarrier", encode(t, &tfpb.CancelBarrierRequest{BarrierId: long}), codes.InvalidArgument, p0},
		{"long job name", tfPrefix + "RegisterTask", encode(t, &tfpb.RegisterTaskRequest{SourceTask: longTask}), codes.InvalidArgument, p0},
		{"long job name", tfPrefix + "WatchJobState", encode(t, &tfpb.WatchJobStateRequest{JobName: long}), codes.InvalidArgument, p0},
		{"long job name in a list", tfPrefix + "GetAliveTasks", encode(t, &tfpb.GetAliveTasksRequest{Tasks: []*tfpb.CoordinatedTask{longTask}}), codes.InvalidArgument, p0},
		{"long job name in a list", tfPrefix + "GetTaskState", encode(t, &tfpb.GetTaskStateRequest{SourceTask: []*tfpb.CoordinatedTask{longTask}}), codes.InvalidArgument, p0},
	} {
		ev, s, err := oneJob.Decode(c.path, c.body, Origin{})
		if err == nil || ev != nil {
			t.Errorf("%s: Decode(%s) = %v, %v; want an error", c.name, c.path, ev, err)
			continue
		}
		st := s.Refuse(err)
		if got := readPayload(t, s.Dialect, st.Details); st.Code != c.code || got != c.payload {
			t.Errorf("%s: %s is answered %v %q, %+v; want %v, %+v", c.name, c.path, st.Code, st.Message, got, c.code, c.payload)
		}
		if len(st.Message) > 256 {
			t.Errorf("%s: text is %d bytes long; want the name shortened", c.name, len(st.Message))
		}
	}
	id := strings.Repeat("ü", 512)
	if _, _, err := oneJob.Decode(xlaPrefix+"Barrier", encode(t, &xlapb.BarrierRequest{BarrierId: id}), Origin{}); err != nil {
		t.Errorf("Decode() of a barrier id of 1024 bytes = %v", err)
	}
}

// A list is refused by its length before it becomes memory; both forms of a list of numbers are read.
func TestDecodeLists(t *testing.T) {
	clause.Cite(t, "C-LIM-1", "C-BAR-11")
	var unpacked []byte
	for range 3 {
		unpacked = protowire.AppendTag(unpacked, 4, protowire.VarintType)
		unpacked = protowire.AppendVarint(unpacked, 2)
	}
	ev, _, err := oneJob.Decode(xlaPrefix+"Barrier", unpacked, Origin{})
	if err != nil || len(ev.(coord.Barrier).Tasks) != 3 {
		t.Errorf("Decode() of an unpacked list = %v, %v; want three tasks", ev, err)
	}
	tasks := make([]*tfpb.CoordinatedTask, 4+1024)
	for i := range tasks {
		tasks[i] = one
	}
	for n, ok := range map[int]bool{4 + 1024: true, 4 + 1025: false} {
		for path, m := range map[string]proto.Message{
			xlaPrefix + "Barrier":       &xlapb.BarrierRequest{TaskIds: make([]int32, n)},
			xlaPrefix + "GetAliveTasks": &xlapb.GetAliveTasksRequest{TaskIds: make([]int32, n)},
			tfPrefix + "Barrier":        &tfpb.BarrierRequest{Tasks: append(tasks[:1024:1024], tasks[:n-1024]...)},
			tfPrefix + "GetAliveTasks":  &tfpb.GetAliveTasksRequest{Tasks: append(tasks[:1024:1024], tasks[:n-1024]...)},
			tfPrefix + "GetTaskState":   &tfpb.GetTaskStateRequest{SourceTask: append(tasks[:1024:1024], tasks[:n-1024]...)},
		} {
			if _, _, err := oneJob.Decode(path, encode(t, m), Origin{}); (err == nil) != ok {
				t.Errorf("Decode(%s) of a list of %d = %v; want success: %v", path, n, err, ok)
			}
		}
	}
	if _, _, err := oneJob.Decode(xlaPrefix+"Barrier", append(encode(t, &xlapb.BarrierRequest{TaskIds: make([]int32, 4000)}), 0xff), Origin{}); err == nil {
		t.Error("Decode() of a long list in a broken message succeeded")
	}
}

func TestTimeouts(t *testing.T) {
	clause.Cite(t, "C-BAR-7")
	for ms, want := range map[int64]time.Duration{
		0:                       0,
		-5:                      -5 * time.Millisecond,
		9223372036854:           9223372036854 * time.Millisecond,
		9223372036855:           math.MaxInt64,
		math.MaxInt64:           math.MaxInt64,
		math.MinInt64:           math.MinInt64,
		-9223372036854775807:    math.MinInt64,
		int64(365 * 24 * 3.6e6): 365 * 24 * time.Hour,
	} {
		if got := millis(ms); got != want {
			t.Errorf("millis(%d) = %v; want %v", ms, got, want)
		}
	}
}

// With one job its name is an echo; with several it counts, and numbers alone count in the first.
func TestJobNames(t *testing.T) {
	clause.Cite(t, "C-VER-1", "C-VER-4", "NEW-15")
	decode := func(c *Codec, path string, m proto.Message) (coord.Event, Shape) {
		t.Helper()
		ev, s, err := c.Decode(path, encode(t, m), Origin{})
		if err != nil {
			t.Fatalf("Decode(%s) = %v", path, err)
		}
		return ev, s
	}
	for _, name := range []string{"jax_worker", "", "worker"} {
		ev, s := decode(oneJob, tfPrefix+"PollForError", &tfpb.PollForErrorRequest{SourceTask: &tfpb.CoordinatedTask{JobName: name, TaskId: 2}})
		if got := ev.(coord.PollForError).Task; got != worker(2) {
			t.Errorf("one job, called %q: task is %v; want worker/2", name, got)
		}
		if st := s.Refuse(serry.ErrUnknownTask); !strings.Contains(st.Message, "/job:"+name+"/replica:0/task:2") {
			t.Errorf("one job, called %q: text %q; want the name echoed", name, st.Message)
		}
	}
	ev, _ := decode(oneJob, tfPrefix+"PollForError", &tfpb.PollForErrorRequest{})
	if got := ev.(coord.PollForError).Task; got != worker(0) {
		t.Errorf("one job, no task at all: task is %v; want worker/0", got)
	}
	for _, want := range []serry.TaskID{{Job: "chief"}, {Job: "worker"}, {Job: "evaluator", Index: 3}} {
		ev, s := decode(twoJobs, tfPrefix+"PollForError", &tfpb.PollForErrorRequest{SourceTask: &tfpb.CoordinatedTask{JobName: want.Job, TaskId: int32(want.Index)}})
		if got := ev.(coord.PollForError).Task; got != want {
			t.Errorf("two jobs: task is %v; want %v", got, want)
		}
		if st := s.Refuse(serry.ErrUnknownTask); !strings.Contains(st.Message, "/job:"+want.Job+"/replica:0/task:") {
			t.Errorf("two jobs: text %q; want it to name job %s", st.Message, want.Job)
		}
	}
	ev, _ = decode(twoJobs, xlaPrefix+"PollForError", &xlapb.PollForErrorRequest{})
	if got, want := ev.(coord.PollForError).Task, (serry.TaskID{Job: "chief"}); got != want {
		t.Errorf("two jobs, a bare number: task is %v; want %v", got, want)
	}
	ev, _ = decode(twoJobs, tfPrefix+"WatchJobState", &tfpb.WatchJobStateRequest{JobName: "worker"})
	if got := ev.(coord.WatchTasks).Job; got != "worker" {
		t.Errorf("two jobs: watched job is %q; want worker", got)
	}
}

// In dialect TF only the connection tells one life of a task from another.
func TestIdentity(t *testing.T) {
	clause.Cite(t, "C-INC-6", "C-EPOCH-5")
	call := func(path string, m proto.Message, o Origin) coord.Event {
		t.Helper()
		ev, _, err := oneJob.Decode(path, encode(t, m), o)
		if err != nil {
			t.Fatalf("Decode(%s) = %v", path, err)
		}
		return ev
	}
	known := Origin{Identify: onConnection}
	two := &tfpb.CoordinatedTask{TaskId: 2}
	if got := call(tfPrefix+"PollForError", &tfpb.PollForErrorRequest{SourceTask: two}, known).(coord.PollForError).Call; got.Incarnation != 0 || got.Service != 0 {
		t.Errorf("a task that is not registered there: %+v; want no incarnations", got)
	}
	if got := call(tfPrefix+"PollForError", &tfpb.PollForErrorRequest{SourceTask: one}, Origin{}).(coord.PollForError).Call; got.Incarnation != 0 {
		t.Errorf("nothing known of the connection: %+v; want no incarnations", got)
	}
	beat := call(tfPrefix+"Heartbeat", &tfpb.HeartbeatRequest{SourceTask: one, Incarnation: 12}, known).(coord.Heartbeat)
	if beat.Incarnation != 12 || beat.Service != 0 {
		t.Errorf("heartbeat of another life: %+v; want incarnation 12 and no service", beat)
	}
}

func TestMethods(t *testing.T) {
	clause.Cite(t, "C-LIM-2", "C-WIRE-2")
	const value = 1<<31 - 1
	all := Methods(value)
	others := map[string]int64{LeadMethod: maxLeadBytes, AttendMethod: attendBytes, AnswerMethod: answerBytes, GatherMethod: gatherBytes}
	if len(all) != len(methods)+len(others) {
		t.Errorf("Methods() has %d entries; want %d", len(all), len(methods)+len(others))
	}
	for path, m := range all {
		want := int64(64 << 20)
		if most, ok := others[path]; ok {
			want = most
		} else if strings.HasSuffix(path, "/InsertKeyValue") || methods[path].dialect == Serry {
			want = value + 2<<20
		}
		if m.MaxRequestBytes != want {
			t.Errorf("%s takes %d bytes; want %d", path, m.MaxRequestBytes, want)
		}
	}
	if got := Methods(10)[xlaPrefix+"InsertKeyValue"].MaxRequestBytes; got != 64<<20 {
		t.Errorf("InsertKeyValue with small values takes %d bytes; want what others take", got)
	}
}

func TestNames(t *testing.T) {
	for path, m := range methods {
		name := m.op.String()
		if m.op == opWatch && m.dialect == TF {
			name = "WatchJobState"
		}
		if want := fmt.Sprintf("/%v.CoordinationService/%s", m.dialect, name); path != want {
			t.Errorf("%s is known as %s", path, want)
		}
	}
	if got := []string{Dialect(9).String(), Op(0).String(), Op(100).String()}; !slices.Equal(got, []string{"dialect 9", "op 0", "op 100"}) {
		t.Errorf("names of what does not exist: %q", got)
	}
}
