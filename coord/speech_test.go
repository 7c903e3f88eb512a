package coord_test

import (
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/wire"
	"github.com/serry-dev/serry/wire/tfpb"
	"github.com/serry-dev/serry/wire/xlapb"
)

// A speaker is who makes a call: a task, one life of it, and the service it believes to talk to.
// The option job= is the name by which it calls its job, where that does not matter (C-VER-1).
type speaker struct {
	task         serry.TaskID
	job          string
	inc, service serry.Incarnation
	recoverable  bool
}

// caller finds out who makes the call of a command: the task of its first word, for calls that name
// one, else the one of by=. inc= and service= overrule what it would send.
func (s *script) caller(c command) speaker {
	s.t.Helper()
	var w speaker
	switch c.name {
	case "watch", "put", "get", "try", "inc", "dir", "del", "states", "jobstate", "swap", "keys", "ls":
		if c.has("by") {
			w.task = s.task(c.option("by"))
		}
	default:
		w.task = s.task(c.word(0))
	}
	w.job, w.recoverable = w.task.Job, c.has("recoverable")
	if c.has("job") {
		w.job = c.option("job")
	}
	known := s.clients[w.task]
	if c.name == "register" {
		known.inc = s.incarnation(c, w.task)
	}
	w.inc = option(s.t, c, "inc", known.inc)
	w.service = option(s.t, c, "service", known.service)
	return w
}

// request encodes a call in a dialect, or in another one if it is not part of that.
func (s *script) request(d wire.Dialect, p pending, w speaker) (path string, body []byte) {
	s.t.Helper()
	if p.own != nil {
		path, body, err := wire.Serry.Request(p.own)
		if err != nil {
			s.t.Fatalf("%s: %v", p.label, err)
		}
		return path, body
	}
	var m proto.Message
	if d == wire.XLA {
		path, m = s.xlaRequest(p.cmd, w)
	}
	if m == nil {
		path, m = s.tfRequest(p.cmd, w)
	}
	if m == nil {
		s.t.Fatalf("%q is not a command", p.cmd.name)
	}
	body, err := proto.Marshal(m)
	if err != nil {
		s.t.Fatal(err)
	}
	return path, body
}

func (s *script) xlaRequest(c command, w speaker) (string, proto.Message) {
	who := &xlapb.Incarnations{TaskIncarnation: uint64(w.inc), ServiceIncarnation: uint64(w.service)}
	id := int32(w.task.Index)
	kv := &xlapb.KeyValueEntry{Key: c.word(0), Value: []byte(c.word(1))}
	switch c.name {
	case "register":
		return xlapb.CoordinationService_RegisterTask_FullMethodName,
			&xlapb.RegisterTaskRequest{Incarnation: uint64(w.inc), SourceTaskId: id}
	case "beat":
		return xlapb.CoordinationService_Heartbeat_FullMethodName,
			&xlapb.HeartbeatRequest{Incarnations: who, Incarnation: uint64(w.inc), SourceTaskId: id}
	case "shutdown":
		return xlapb.CoordinationService_ShutdownTask_FullMethodName, &xlapb.ShutdownTaskRequest{Incarnations: who, SourceTaskId: id}
	case "report":
		return xlapb.CoordinationService_ReportErrorToService_FullMethodName,
			&xlapb.ReportErrorToServiceRequest{Incarnations: who, SourceTaskId: id, ErrorCode: s.code(c), ErrorMessage: c.word(2)}
	case "poll":
		return xlapb.CoordinationService_PollForError_FullMethodName, &xlapb.PollForErrorRequest{Incarnations: who, SourceTaskId: id}
	case "watch":
		return xlapb.CoordinationService_WatchTasks_FullMethodName,
			&xlapb.WatchTasksRequest{Incarnations: who, VersionNumber: s.since(c)}
	case "put":
		return xlapb.CoordinationService_InsertKeyValue_FullMethodName,
			&xlapb.InsertKeyValueRequest{Incarnations: who, Kv: kv, AllowOverwrite: c.has("overwrite")}
	case "get":
		return xlapb.CoordinationService_GetKeyValue_FullMethodName, &xlapb.GetKeyValueRequest{Incarnations: who, Key: c.word(0)}
	case "try":
		return xlapb.CoordinationService_TryGetKeyValue_FullMethodName, &xlapb.TryGetKeyValueRequest{Incarnations: who, Key: c.word(0)}
	case "inc":
		return xlapb.CoordinationService_IncrementKeyValue_FullMethodName,
			&xlapb.IncrementKeyValueRequest{Incarnations: who, Key: c.word(0), Increment: number[int64](s.t, c.word(1))}
	case "dir":
		return xlapb.CoordinationService_GetKeyValueDir_FullMethodName,
			&xlapb.GetKeyValueDirRequest{Incarnations: who, DirectoryKey: c.word(0)}
	case "del":
		return xlapb.CoordinationService_DeleteKeyValue_FullMethodName,
			&xlapb.DeleteKeyValueRequest{Incarnations: who, Key: c.word(0), IsDirectory: c.has("directory")}
	case "barrier":
		return xlapb.CoordinationService_Barrier_FullMethodName, &xlapb.BarrierRequest{
			Incarnations: who, BarrierId: c.word(1), BarrierTimeoutInMs: s.timeout(c),
			TaskIds: s.xlaTasks(c), SourceTaskId: id, Counter: option(s.t, c, "c", int64(0)),
		}
	case "cancel-barrier":
		return xlapb.CoordinationService_CancelBarrier_FullMethodName, &xlapb.CancelBarrierRequest{
			Incarnations: who, BarrierId: c.word(1), Counter: option(s.t, c, "c", int64(0)), SourceTaskId: id,
		}
	case "alive":
		return xlapb.CoordinationService_GetAliveTasks_FullMethodName,
			&xlapb.GetAliveTasksRequest{Incarnations: who, RequestingTaskId: id, TaskIds: s.xlaTasks(c)}
	}
	return "", nil
}

func (s *script) tfRequest(c command, w speaker) (string, proto.Message) {
	from := &tfpb.CoordinatedTask{JobName: w.job, TaskId: int32(w.task.Index), Recoverable: w.recoverable}
	kv := &tfpb.KeyValueEntry{Key: c.word(0), Value: []byte(c.word(1))}
	switch c.name {
	case "register":
		return tfpb.CoordinationService_RegisterTask_FullMethodName,
			&tfpb.RegisterTaskRequest{Incarnation: uint64(w.inc), SourceTask: from}
	case "beat":
		return tfpb.CoordinationService_Heartbeat_FullMethodName, &tfpb.HeartbeatRequest{Incarnation: uint64(w.inc), SourceTask: from}
	case "shutdown":
		return tfpb.CoordinationService_ShutdownTask_FullMethodName, &tfpb.ShutdownTaskRequest{SourceTask: from}
	case "reset":
		return tfpb.CoordinationService_ResetTask_FullMethodName, &tfpb.ResetTaskRequest{SourceTask: from}
	case "report":
		return tfpb.CoordinationService_ReportErrorToService_FullMethodName,
			&tfpb.ReportErrorToServiceRequest{ErrorOrigin: from, ErrorCode: s.code(c), ErrorMessage: c.word(2)}
	case "report-to-task":
		return tfpb.CoordinationService_ReportErrorToTask_FullMethodName, &tfpb.ReportErrorToTaskRequest{ErrorCode: s.code(c)}
	case "poll":
		return tfpb.CoordinationService_PollForError_FullMethodName, &tfpb.PollForErrorRequest{SourceTask: from}
	case "waitall":
		return tfpb.CoordinationService_WaitForAllTasks_FullMethodName,
			&tfpb.WaitForAllTasksRequest{SourceTask: from, DeviceInfo: devices(c.option("devices"))}
	case "watch":
		return tfpb.CoordinationService_WatchJobState_FullMethodName,
			&tfpb.WatchJobStateRequest{JobName: c.option("job"), VersionNumber: s.since(c)}
	case "jobstate":
		return tfpb.CoordinationService_GetJobState_FullMethodName, &tfpb.GetJobStateRequest{JobName: c.option("job")}
	case "states":
		return tfpb.CoordinationService_GetTaskState_FullMethodName, &tfpb.GetTaskStateRequest{SourceTask: s.tfTasks(c, c.word(0))}
	case "put":
		return tfpb.CoordinationService_InsertKeyValue_FullMethodName,
			&tfpb.InsertKeyValueRequest{Kv: kv, AllowOverwrite: c.has("overwrite")}
	case "get":
		return tfpb.CoordinationService_GetKeyValue_FullMethodName, &tfpb.GetKeyValueRequest{Key: c.word(0)}
	case "try":
		return tfpb.CoordinationService_TryGetKeyValue_FullMethodName, &tfpb.TryGetKeyValueRequest{Key: c.word(0)}
	case "inc":
		return tfpb.CoordinationService_IncrementKeyValue_FullMethodName,
			&tfpb.IncrementKeyValueRequest{Key: c.word(0), Increment: number[int64](s.t, c.word(1))}
	case "dir":
		return tfpb.CoordinationService_GetKeyValueDir_FullMethodName, &tfpb.GetKeyValueDirRequest{DirectoryKey: c.word(0)}
	case "del":
		return tfpb.CoordinationService_DeleteKeyValue_FullMethodName,
			&tfpb.DeleteKeyValueRequest{Key: c.word(0), IsDirectory: c.has("directory")}
	case "barrier":
		return tfpb.CoordinationService_Barrier_FullMethodName, &tfpb.BarrierRequest{
			BarrierId: c.word(1), BarrierTimeoutInMs: s.timeout(c), Tasks: s.tfTasks(c, c.option("tasks")),
			SourceTask: from, Counter: option(s.t, c, "c", int64(0)),
		}
	case "cancel-barrier":
		return tfpb.CoordinationService_CancelBarrier_FullMethodName,
			&tfpb.CancelBarrierRequest{BarrierId: c.word(1), SourceTask: from, Counter: option(s.t, c, "c", int64(0))}
	case "alive":
		return tfpb.CoordinationService_GetAliveTasks_FullMethodName,
			&tfpb.GetAliveTasksRequest{RequestingTask: from, Tasks: s.tfTasks(c, c.option("tasks"))}
	}
	return "", nil
}

// timeout is that of a barrier in milliseconds: an hour, so that it does not matter unless said.
func (s *script) timeout(c command) int64 { return option(s.t, c, "timeout", time.Hour).Milliseconds() }

// since is the version of a watch: none, last for the one shown last, or a number.
func (s *script) since(c command) int64 {
	switch c.word(0) {
	case "":
		return -1
	case "last":
		return s.version
	}
	return number[int64](s.t, c.word(0))
}

// code reads the code of a reported error by name.
func (s *script) code(c command) int32 {
	if code, ok := codeNumber(c.word(1)); ok {
		return int32(code)
	}
	return int32(number[int](s.t, c.word(1)))
}

func (s *script) xlaTasks(c command) []int32 {
	if !c.has("tasks") {
		return nil
	}
	var ids []int32
	for _, id := range s.tasks(c.option("tasks")) {
		ids = append(ids, int32(id.Index))
	}
	return ids
}

func (s *script) tfTasks(c command, text string) []*tfpb.CoordinatedTask {
	if text == "" {
		return nil
	}
	var tasks []*tfpb.CoordinatedTask
	for _, id := range s.tasks(text) {
		name := id.Job
		if c.has("job") {
			name = c.option("job")
		}
		tasks = append(tasks, &tfpb.CoordinatedTask{JobName: name, TaskId: int32(id.Index)})
	}
	return tasks
}

// devices makes one device of each word.
func devices(text string) *tfpb.DeviceInfo {
	info := new(tfpb.DeviceInfo)
	for name := range strings.SplitSeq(text, ",") {
		if name != "" {
			info.Device = append(info.Device, &anypb.Any{TypeUrl: fmt.Sprintf("device/%s", name)})
		}
	}
	return info
}
