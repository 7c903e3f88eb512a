package wire_test

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/wire"
	"github.com/serry-dev/serry/wire/tfpb"
	"github.com/serry-dev/serry/wire/xlapb"
)

// TestRequestIDs shows that an id which comes beside a request reaches the calls that change something,
// and no others.
func TestRequestIDs(t *testing.T) {
	const x, o = "/xla.coordination.CoordinationService/", "/tensorflow.CoordinationService/"
	source := &tfpb.CoordinatedTask{JobName: "worker"}
	id := coord.RequestID{Requester: 7, Number: 3, Watermark: 2}
	codec := wire.NewCodec([]coord.Job{{Name: "worker", Tasks: 2}})
	for _, c := range []struct {
		path    string
		request proto.Message
		want    bool
	}{
		{x + "RegisterTask", &xlapb.RegisterTaskRequest{Incarnation: 1}, true},
		{x + "ShutdownTask", &xlapb.ShutdownTaskRequest{}, true},
		{x + "ReportErrorToService", &xlapb.ReportErrorToServiceRequest{}, true},
		{x + "InsertKeyValue", &xlapb.InsertKeyValueRequest{}, true},
		{x + "IncrementKeyValue", &xlapb.IncrementKeyValueRequest{}, true},
		{x + "DeleteKeyValue", &xlapb.DeleteKeyValueRequest{}, true},
		{x + "Barrier", &xlapb.BarrierRequest{}, true},
		{x + "Barrier", &xlapb.BarrierRequest{TaskIds: []int32{0}}, true},
		{x + "CancelBarrier", &xlapb.CancelBarrierRequest{}, true},
		{x + "GetAliveTasks", &xlapb.GetAliveTasksRequest{}, true},
		{x + "Heartbeat", &xlapb.HeartbeatRequest{}, false},
		{x + "PollForError", &xlapb.PollForErrorRequest{}, false},
		{x + "WatchTasks", &xlapb.WatchTasksRequest{}, false},
		{x + "GetKeyValue", &xlapb.GetKeyValueRequest{}, false},
		{x + "TryGetKeyValue", &xlapb.TryGetKeyValueRequest{}, false},
		{x + "GetKeyValueDir", &xlapb.GetKeyValueDirRequest{}, false},
		{o + "RegisterTask", &tfpb.RegisterTaskRequest{SourceTask: source}, true},
		{o + "ShutdownTask", &tfpb.ShutdownTaskRequest{SourceTask: source}, true},
		{o + "ResetTask", &tfpb.ResetTaskRequest{SourceTask: source}, true},
		{o + "ReportErrorToService", &tfpb.ReportErrorToServiceRequest{ErrorOrigin: source}, true},
		{o + "InsertKeyValue", &tfpb.InsertKeyValueRequest{}, true},
		{o + "IncrementKeyValue", &tfpb.IncrementKeyValueRequest{}, true},
		{o + "DeleteKeyValue", &tfpb.DeleteKeyValueRequest{}, true},
		{o + "Barrier", &tfpb.BarrierRequest{SourceTask: source}, true},
		{o + "CancelBarrier", &tfpb.CancelBarrierRequest{SourceTask: source}, true},
		{o + "GetAliveTasks", &tfpb.GetAliveTasksRequest{RequestingTask: source}, true},
		{o + "WaitForAllTasks", &tfpb.WaitForAllTasksRequest{SourceTask: source}, true},
		{o + "Heartbeat", &tfpb.HeartbeatRequest{SourceTask: source}, false},
		{o + "GetKeyValue", &tfpb.GetKeyValueRequest{}, false},
	} {
		t.Run("C-REQ-1 "+c.path, func(t *testing.T) {
			body, err := proto.Marshal(c.request)
			if err != nil {
				t.Fatal(err)
			}
			ev, _, err := codec.Decode(c.path, body, wire.Origin{Req: 1, ID: id})
			if err != nil {
				t.Fatal(err)
			}
			call, _ := coord.CallOf(ev)
			if got := call.ID == id; got != c.want {
				t.Errorf("Decode() = %+v; want the id: %v", ev, c.want)
			}
		})
	}
}
