package wire

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/wire/tfpb"
	"github.com/serry-dev/serry/wire/xlapb"
)

var picture = &coord.Picture{Version: 9, Tasks: []coord.TaskInfo{
	{Task: worker(0), State: serry.Connected, Incarnation: 5},
	{Task: worker(1)},
	{Task: worker(2), State: serry.Failed, Incarnation: 6, Err: deadSilent},
	{Task: worker(3), State: serry.Failed, Incarnation: 7, Err: &serry.TaskError{Task: worker(3), Code: 9, Text: "loss is NaN", Err: serry.ErrReported}},
}}

var alive = &coord.Alive{Tasks: []serry.TaskID{worker(0), worker(2)}, Incarnations: []serry.Incarnation{5, 6}, Words: make([][]byte, 2)}

// xlaInfos is picture as dialect XLA shows it.
func xlaInfos() []*xlapb.TaskInfo {
	return []*xlapb.TaskInfo{
		{TaskId: 0, State: xlapb.TaskState_CONNECTED, Incarnation: 5},
		{TaskId: 1, State: xlapb.TaskState_DISCONNECTED},
		{TaskId: 2, State: xlapb.TaskState_ERROR, Incarnation: 6, ErrorCode: 14, ErrorMessage: "Task 2 heartbeat timeout",
			ErrorPayload: &xlapb.CoordinationServiceError{SourceTaskId: 2}},
		{TaskId: 3, State: xlapb.TaskState_ERROR, Incarnation: 7, ErrorCode: 9, ErrorMessage: "loss is NaN",
			ErrorPayload: &xlapb.CoordinationServiceError{SourceTaskId: 3, IsReportedError: true}},
	}
}

// tfInfos is picture as dialect TF shows it to a caller who calls the job by that name.
func tfInfos(job string) []*tfpb.CoordinatedTaskStateInfo {
	name := func(i int32) *tfpb.CoordinatedTask { return &tfpb.CoordinatedTask{JobName: job, TaskId: i} }
	return []*tfpb.CoordinatedTaskStateInfo{
		{Task: name(0), State: tfpb.CoordinatedTaskState_TASKSTATE_CONNECTED, Incarnation: 5},
		{Task: name(1), State: tfpb.CoordinatedTaskState_TASKSTATE_DISCONNECTED},
		{Task: name(2), State: tfpb.CoordinatedTaskState_TASKSTATE_ERROR, Incarnation: 6, ErrorCode: 14,
			ErrorMessage: fmt.Sprintf("Task /job:%s/replica:0/task:2 heartbeat timeout", job),
			ErrorPayload: &tfpb.CoordinationServiceError{SourceTask: name(2)}},
		{Task: name(3), State: tfpb.CoordinatedTaskState_TASKSTATE_ERROR, Incarnation: 7, ErrorCode: 9, ErrorMessage: "loss is NaN",
			ErrorPayload: &tfpb.CoordinationServiceError{SourceTask: name(3), IsReportedError: true}},
	}
}

func TestEncode(t *testing.T) {
	clause.Cite(t, "C-REG-1", "C-BAR-8", "C-KV-4", "C-KV-5", "C-KV-7", "C-WATCH-4", "C-WATCH-6", "C-GTS-1", "C-GTS-2", "C-ALIVE-2", "C-WAT-3")
	for _, c := range []struct {
		path    string
		request proto.Message
		result  coord.Result
		want    proto.Message
	}{
		{xlaPrefix + "RegisterTask", &xlapb.RegisterTaskRequest{}, coord.Registered{Service: 77}, &xlapb.RegisterTaskResponse{ServiceIncarnation: 77}},
		{tfPrefix + "RegisterTask", &tfpb.RegisterTaskRequest{}, coord.Registered{Service: 77}, &tfpb.RegisterTaskResponse{LeaderIncarnation: 77}},
		{xlaPrefix + "Heartbeat", &xlapb.HeartbeatRequest{}, coord.Registered{Service: 77}, &xlapb.HeartbeatResponse{ServiceIncarnation: 77}},
		{tfPrefix + "Heartbeat", &tfpb.HeartbeatRequest{}, coord.Registered{Service: 77}, &tfpb.HeartbeatResponse{LeaderIncarnation: 77}},
		{xlaPrefix + "ShutdownTask", &xlapb.ShutdownTaskRequest{}, coord.Done{}, &xlapb.ShutdownTaskResponse{}},
		{tfPrefix + "ResetTask", &tfpb.ResetTaskRequest{}, coord.Done{}, &tfpb.ResetTaskResponse{}},
		{xlaPrefix + "Barrier", &xlapb.BarrierRequest{}, coord.Passed{Counter: 3}, &xlapb.BarrierResponse{Counter: 3}},
		{tfPrefix + "Barrier", &tfpb.BarrierRequest{}, coord.Passed{Counter: 3}, &tfpb.BarrierResponse{Counter: 3}},
		{xlaPrefix + "GetKeyValue", &xlapb.GetKeyValueRequest{}, coord.Value{Key: "/k/", Value: []byte("\xff")}, &xlapb.GetKeyValueResponse{Kv: &xlapb.KeyValueEntry{Key: "/k/", Value: []byte("\xff")}}},
		{tfPrefix + "TryGetKeyValue", &tfpb.TryGetKeyValueRequest{}, coord.Value{Key: "k"}, &tfpb.TryGetKeyValueResponse{Kv: &tfpb.KeyValueEntry{Key: "k"}}},
		{tfPrefix + "IncrementKeyValue", &tfpb.IncrementKeyValueRequest{}, coord.Value{Key: "k", Value: []byte("-2")}, &tfpb.IncrementKeyValueResponse{Kv: &tfpb.KeyValueEntry{Key: "k", Value: []byte("-2")}}},
		{xlaPrefix + "GetKeyValueDir", &xlapb.GetKeyValueDirRequest{DirectoryKey: "d"}, coord.Entries{Entries: []coord.Entry{{Key: "d/a", Value: []byte("1")}, {Key: "d/b"}}},
			&xlapb.GetKeyValueDirResponse{Kv: []*xlapb.KeyValueEntry{{Key: "d/a", Value: []byte("1")}, {Key: "d/b"}}}},
		{tfPrefix + "GetKeyValueDir", &tfpb.GetKeyValueDirRequest{}, coord.Entries{}, &tfpb.GetKeyValueDirResponse{}},
		{xlaPrefix + "WatchTasks", &xlapb.WatchTasksRequest{}, picture, &xlapb.WatchTasksResponse{VersionNumber: 9, TaskState: xlaInfos()}},
		{xlaPrefix + "WatchTasks", &xlapb.WatchTasksRequest{}, &coord.Picture{Version: -1}, &xlapb.WatchTasksResponse{VersionNumber: -1}},
		{tfPrefix + "WatchJobState", &tfpb.WatchJobStateRequest{JobName: "jax_worker"}, picture, &tfpb.WatchJobStateResponse{VersionNumber: 9, TaskState: tfInfos("jax_worker")}},
		{tfPrefix + "WatchJobState", &tfpb.WatchJobStateRequest{}, picture, &tfpb.WatchJobStateResponse{VersionNumber: 9, TaskState: tfInfos("")}},
		{tfPrefix + "GetJobState", &tfpb.GetJobStateRequest{JobName: "w"}, picture, &tfpb.GetJobStateResponse{TaskState: tfInfos("w")}},
		{tfPrefix + "GetTaskState", &tfpb.GetTaskStateRequest{SourceTask: []*tfpb.CoordinatedTask{{JobName: "a", TaskId: 1, Recoverable: true}}},
			&coord.Picture{Version: 9, Tasks: []coord.TaskInfo{{Task: worker(1), State: serry.Connected, Incarnation: 5}}},
			&tfpb.GetTaskStateResponse{TaskState: []*tfpb.CoordinatedTaskStateInfo{{
				Task: &tfpb.CoordinatedTask{JobName: "a", TaskId: 1, Recoverable: true}, State: tfpb.CoordinatedTaskState_TASKSTATE_CONNECTED, Incarnation: 5}}}},
		{xlaPrefix + "GetAliveTasks", &xlapb.GetAliveTasksRequest{}, alive, &xlapb.GetAliveTasksResponse{AliveTaskIds: []int32{0, 2}, Incarnations: []uint64{5, 6}}},
		{tfPrefix + "GetAliveTasks", &tfpb.GetAliveTasksRequest{RequestingTask: one}, alive, &tfpb.GetAliveTasksResponse{
			AliveTasks: []*tfpb.CoordinatedTask{{JobName: "jax_worker"}, {JobName: "jax_worker", TaskId: 2}}, Incarnations: []uint64{5, 6}}},
		{tfPrefix + "WaitForAllTasks", &tfpb.WaitForAllTasksRequest{}, coord.AllDevices{Devices: []byte("\n\x03\n\x01a\n\x03\n\x01b")}, &tfpb.WaitForAllTasksResponse{
			DeviceInfo: &tfpb.DeviceInfo{Device: []*anypb.Any{{TypeUrl: "a"}, {TypeUrl: "b"}}}}},
	} {
		_, s, err := oneJob.Decode(c.path, encode(t, c.request), Origin{})
		if err != nil {
			t.Fatalf("Decode(%s) = %v", c.path, err)
		}
		body, st := s.Encode(coord.Reply{Result: c.result})
		if !st.OK() {
			t.Errorf("%s: Encode(%+v) = %+v", c.path, c.result, st)
			continue
		}
		got := c.want.ProtoReflect().New().Interface()
		if err := proto.Unmarshal(body, got); err != nil {
			t.Errorf("%s: reply does not parse: %v", c.path, err)
		}
		if diff := cmp.Diff(c.want, got, protocmp.Transform()); diff != "" {
			t.Errorf("%s: Encode(%+v): want -, got +\n%s", c.path, c.result, diff)
		}
	}
}

// With several jobs tasks keep their own names, whatever the caller's is.
func TestEncodeSeveralJobs(t *testing.T) {
	clause.Cite(t, "C-VER-1")
	_, s, err := twoJobs.Decode(tfPrefix+"GetAliveTasks", encode(t, &tfpb.GetAliveTasksRequest{RequestingTask: &tfpb.CoordinatedTask{JobName: "worker"}}), Origin{})
	if err != nil {
		t.Fatal(err)
	}
	body, _ := s.Encode(coord.Reply{Result: &coord.Alive{Tasks: []serry.TaskID{{Job: "chief"}, {Job: "worker"}}, Incarnations: []serry.Incarnation{1, 2}}})
	var got tfpb.GetAliveTasksResponse
	mustUnmarshal(t, body, &got)
	want := &tfpb.GetAliveTasksResponse{AliveTasks: []*tfpb.CoordinatedTask{{JobName: "chief"}, {JobName: "worker"}}, Incarnations: []uint64{1, 2}}
	if diff := cmp.Diff(want, &got, protocmp.Transform()); diff != "" {
		t.Errorf("Encode(): want -, got +\n%s", diff)
	}
}

func TestEncodeErrors(t *testing.T) {
	clause.Cite(t, "C-WIRE-11")
	body, st := shapeOf(XLA, opBarrier).Encode(coord.Reply{Result: coord.Passed{Counter: 3}, Err: timedOut})
	if body != nil || st.Code != codes.DeadlineExceeded {
		t.Errorf("Encode(%v) = %q, %v; want no message beside the error", timedOut, body, st.Code)
	}
	body, st = shapeOf(XLA, opGet).Encode(coord.Reply{Result: coord.Value{Key: "\xff"}})
	if body != nil || st.Code != codes.Internal {
		t.Errorf("Encode() of a key that is no text = %q, %v; want INTERNAL", body, st.Code)
	}
}

// Shapes are what replies can be shared by: equal for requests that differ in nothing a reply shows.
func TestShapesOfWatchers(t *testing.T) {
	clause.Cite(t, "C-WATCH-9")
	shape := func(path string, m proto.Message) Shape {
		_, s, err := oneJob.Decode(path, encode(t, m), Origin{Req: 1, Identify: onConnection})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	if a, b := shape(xlaPrefix+"WatchTasks", &xlapb.WatchTasksRequest{Incarnations: who}), shape(xlaPrefix+"WatchTasks", &xlapb.WatchTasksRequest{VersionNumber: 4}); a != b {
		t.Errorf("two watchers have shapes %+v and %+v; want one", a, b)
	}
	if a, b := shape(tfPrefix+"WatchJobState", &tfpb.WatchJobStateRequest{JobName: "a"}), shape(tfPrefix+"WatchJobState", &tfpb.WatchJobStateRequest{}); a == b {
		t.Errorf("watchers that call the job differently share the shape %+v", a)
	}
}
