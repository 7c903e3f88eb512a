package wire

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/wire/tfpb"
	"github.com/serry-dev/serry/wire/xlapb"
)

// ErrUnsupported says that a call does not exist in the dialect that the server speaks.
var ErrUnsupported = errors.New("the server does not offer this call")

// Request is the way out for clients: the path and the bytes of a call. A call that the dialect does
// not have is ErrUnsupported.
func (d Dialect) Request(ev coord.Event) (path string, body []byte, err error) {
	var m proto.Message
	op := Op(coord.KindOf(ev))
	switch d {
	case Serry:
		op = opDo
		m, err = serryRequest(ev)
	case XLA:
		m = xlaRequest(ev)
	case TF:
		m = tfRequest(ev)
	}
	if err == nil && m == nil {
		err = fmt.Errorf("%T in dialect %v: %w", ev, d, ErrUnsupported)
	}
	if err != nil {
		return "", nil, err
	}
	body, err = proto.Marshal(m)
	return paths[methodKey{d, op}], body, err
}

// Result is the way back for clients: what the reply to a call says. Of serry's own dialect it may
// be an error of the service; the others tell errors by status, see [Dialect.Error].
func (d Dialect) Result(ev coord.Event, body []byte) (coord.Result, error) {
	if d == Serry {
		return readSerryReply(body)
	}
	switch ev.(type) {
	case coord.RegisterTask, coord.Heartbeat:
		m := new(xlapb.RegisterTaskResponse)
		err := proto.Unmarshal(body, m)
		return coord.Registered{Service: serry.Incarnation(m.GetServiceIncarnation())}, err
	case coord.Barrier:
		m := new(xlapb.BarrierResponse)
		err := proto.Unmarshal(body, m)
		return coord.Passed{Counter: m.GetCounter()}, err
	case coord.GetKeyValue, coord.TryGetKeyValue, coord.IncrementKeyValue:
		m := new(xlapb.GetKeyValueResponse)
		err := proto.Unmarshal(body, m)
		return coord.Value{Key: m.GetKv().GetKey(), Value: m.GetKv().GetValue()}, err
	case coord.GetKeyValueDir:
		m := new(xlapb.GetKeyValueDirResponse)
		err := proto.Unmarshal(body, m)
		return coord.Entries{Entries: each(m.GetKv(), func(e *xlapb.KeyValueEntry) coord.Entry {
			return coord.Entry{Key: e.GetKey(), Value: e.GetValue()}
		})}, err
	case coord.WatchTasks:
		return d.readPicture(body)
	case coord.GetAliveTasks:
		return d.readAlive(body)
	}
	return coord.Done{}, nil
}

// xlaRequest makes a request of jaxlib's dialect, or nil.
func xlaRequest(ev coord.Event) proto.Message {
	switch ev := ev.(type) {
	case coord.RegisterTask:
		return &xlapb.RegisterTaskRequest{Incarnation: uint64(ev.Incarnation), SourceTaskId: int32(ev.Task.Index)}
	case coord.Heartbeat:
		return &xlapb.HeartbeatRequest{Incarnations: xlaWho(ev.Call), Incarnation: uint64(ev.Incarnation), SourceTaskId: int32(ev.Task.Index)}
	case coord.PollForError:
		return &xlapb.PollForErrorRequest{Incarnations: xlaWho(ev.Call), SourceTaskId: int32(ev.Task.Index)}
	case coord.ReportError:
		return &xlapb.ReportErrorToServiceRequest{
			Incarnations: xlaWho(ev.Call), SourceTaskId: int32(ev.Task.Index), ErrorCode: int32(ev.Code), ErrorMessage: ev.Text,
		}
	case coord.ShutdownTask:
		return &xlapb.ShutdownTaskRequest{Incarnations: xlaWho(ev.Call), SourceTaskId: int32(ev.Task.Index)}
	case coord.WatchTasks:
		return &xlapb.WatchTasksRequest{Incarnations: xlaWho(ev.Call), VersionNumber: ev.Version}
	case coord.Barrier:
		return &xlapb.BarrierRequest{
			Incarnations: xlaWho(ev.Call), BarrierId: ev.ID, BarrierTimeoutInMs: inMillis(ev.Timeout),
			TaskIds: each(ev.Tasks, xlaNumber), SourceTaskId: int32(ev.Task.Index), Counter: ev.Counter,
		}
	case coord.CancelBarrier:
		return &xlapb.CancelBarrierRequest{
			Incarnations: xlaWho(ev.Call), BarrierId: ev.ID, Counter: ev.Counter, SourceTaskId: int32(ev.Task.Index),
		}
	case coord.GetAliveTasks:
		return &xlapb.GetAliveTasksRequest{
			Incarnations: xlaWho(ev.Call), RequestingTaskId: int32(ev.Task.Index), TaskIds: each(ev.Tasks, xlaNumber),
		}
	case coord.InsertKeyValue:
		return &xlapb.InsertKeyValueRequest{
			Incarnations: xlaWho(ev.Call), Kv: &xlapb.KeyValueEntry{Key: ev.Key, Value: ev.Value}, AllowOverwrite: ev.Overwrite,
		}
	case coord.GetKeyValue:
		return &xlapb.GetKeyValueRequest{Incarnations: xlaWho(ev.Call), Key: ev.Key}
	case coord.TryGetKeyValue:
		return &xlapb.TryGetKeyValueRequest{Incarnations: xlaWho(ev.Call), Key: ev.Key}
	case coord.IncrementKeyValue:
		return &xlapb.IncrementKeyValueRequest{Incarnations: xlaWho(ev.Call), Key: ev.Key, Increment: ev.By}
	case coord.GetKeyValueDir:
		return &xlapb.GetKeyValueDirRequest{Incarnations: xlaWho(ev.Call), DirectoryKey: ev.Dir}
	case coord.DeleteKeyValue:
		return &xlapb.DeleteKeyValueRequest{Incarnations: xlaWho(ev.Call), Key: ev.Key, IsDirectory: true}
	}
	return nil
}

func xlaWho(c coord.Call) *xlapb.Incarnations {
	return &xlapb.Incarnations{TaskId: int32(c.Task.Index), TaskIncarnation: uint64(c.Incarnation), ServiceIncarnation: uint64(c.Service)}
}

func xlaNumber(t serry.TaskID) int32 { return int32(t.Index) }

// tfRequest makes a request of TensorFlow's dialect, or nil.
func tfRequest(ev coord.Event) proto.Message {
	switch ev := ev.(type) {
	case coord.RegisterTask:
		return &tfpb.RegisterTaskRequest{Incarnation: uint64(ev.Incarnation), SourceTask: tfCaller(ev.Call, ev.Recoverable)}
	case coord.Heartbeat:
		return &tfpb.HeartbeatRequest{Incarnation: uint64(ev.Incarnation), SourceTask: tfWho(ev.Task)}
	case coord.PollForError:
		return &tfpb.PollForErrorRequest{SourceTask: tfWho(ev.Task)}
	case coord.ReportError:
		return &tfpb.ReportErrorToServiceRequest{ErrorCode: int32(ev.Code), ErrorMessage: ev.Text, ErrorOrigin: tfWho(ev.Task)}
	case coord.ShutdownTask:
		return &tfpb.ShutdownTaskRequest{SourceTask: tfCaller(ev.Call, ev.Recoverable)}
	case coord.WatchTasks:
		return &tfpb.WatchJobStateRequest{JobName: ev.Job, VersionNumber: ev.Version}
	case coord.Barrier:
		return &tfpb.BarrierRequest{
			BarrierId: ev.ID, BarrierTimeoutInMs: inMillis(ev.Timeout), Tasks: each(ev.Tasks, tfWho),
			SourceTask: tfCaller(ev.Call, ev.Recoverable), Counter: ev.Counter,
		}
	case coord.CancelBarrier:
		return &tfpb.CancelBarrierRequest{BarrierId: ev.ID, SourceTask: tfWho(ev.Task), Counter: ev.Counter}
	case coord.GetAliveTasks:
		return &tfpb.GetAliveTasksRequest{RequestingTask: tfWho(ev.Task), Tasks: each(ev.Tasks, tfWho)}
	case coord.InsertKeyValue:
		return &tfpb.InsertKeyValueRequest{Kv: &tfpb.KeyValueEntry{Key: ev.Key, Value: ev.Value}, AllowOverwrite: ev.Overwrite}
	case coord.GetKeyValue:
		return &tfpb.GetKeyValueRequest{Key: ev.Key}
	case coord.TryGetKeyValue:
		return &tfpb.TryGetKeyValueRequest{Key: ev.Key}
	case coord.IncrementKeyValue:
		return &tfpb.IncrementKeyValueRequest{Key: ev.Key, Increment: ev.By}
	case coord.GetKeyValueDir:
		return &tfpb.GetKeyValueDirRequest{DirectoryKey: ev.Dir}
	case coord.DeleteKeyValue:
		return &tfpb.DeleteKeyValueRequest{Key: ev.Key, IsDirectory: true}
	}
	return nil
}

// tfCaller names the task that calls, and says whether it is recoverable.
func tfCaller(c coord.Call, recoverable bool) *tfpb.CoordinatedTask {
	who := tfWho(c.Task)
	who.Recoverable = recoverable
	return who
}

func tfWho(t serry.TaskID) *tfpb.CoordinatedTask {
	return &tfpb.CoordinatedTask{JobName: t.Job, TaskId: int32(t.Index)}
}

// readXLATask is the inverse of xlaNumber.
func readXLATask(id int32) serry.TaskID { return serry.TaskID{Job: DefaultJob, Index: int(id)} }

// readTFTask is the inverse of tfWho. A service that knows no jobs leaves out the name.
func readTFTask(t *tfpb.CoordinatedTask) serry.TaskID {
	return serry.TaskID{Job: cmp.Or(t.GetJobName(), DefaultJob), Index: int(t.GetTaskId())}
}

// inMillis rounds up, so that a short timeout does not become none.
func inMillis(d time.Duration) int64 {
	if d > math.MaxInt64-time.Millisecond {
		return math.MaxInt64
	}
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

// readPicture reads the states of all tasks. Stored errors come as status and text.
func (d Dialect) readPicture(body []byte) (coord.Result, error) {
	p := new(coord.Picture)
	if d == XLA {
		m := new(xlapb.WatchTasksResponse)
		err := proto.Unmarshal(body, m)
		p.Version = m.GetVersionNumber()
		p.Tasks = each(m.GetTaskState(), func(t *xlapb.TaskInfo) coord.TaskInfo {
			return seen(readXLATask(t.GetTaskId()), int32(t.GetState()), t)
		})
		return p, err
	}
	m := new(tfpb.WatchJobStateResponse)
	err := proto.Unmarshal(body, m)
	p.Version = m.GetVersionNumber()
	p.Tasks = each(m.GetTaskState(), func(t *tfpb.CoordinatedTaskStateInfo) coord.TaskInfo {
		return seen(readTFTask(t.GetTask()), int32(t.GetState()), t)
	})
	return p, err
}

// A shownTask is what both dialects say of a task.
type shownTask interface {
	GetIncarnation() uint64
	GetErrorCode() int32
	GetErrorMessage() string
}

func seen(id serry.TaskID, state int32, t shownTask) coord.TaskInfo {
	info := coord.TaskInfo{Task: id, Incarnation: serry.Incarnation(t.GetIncarnation())}
	switch xlapb.TaskState(state) {
	case xlapb.TaskState_CONNECTED:
		info.State = serry.Connected
	case xlapb.TaskState_ERROR:
		info.State = serry.Failed
		info.Err = &serry.TaskError{Task: id, Incarnation: info.Incarnation, Code: int(t.GetErrorCode()), Text: t.GetErrorMessage(), Err: serry.ErrReported}
	}
	return info
}

func (d Dialect) readAlive(body []byte) (coord.Result, error) {
	a := new(coord.Alive)
	var incarnations []uint64
	var err error
	if d == XLA {
		m := new(xlapb.GetAliveTasksResponse)
		err = proto.Unmarshal(body, m)
		incarnations = m.GetIncarnations()
		a.Tasks = each(m.GetAliveTaskIds(), readXLATask)
	} else {
		m := new(tfpb.GetAliveTasksResponse)
		err = proto.Unmarshal(body, m)
		incarnations = m.GetIncarnations()
		a.Tasks = each(m.GetAliveTasks(), readTFTask)
	}
	if err == nil && len(incarnations) != 0 && len(incarnations) != len(a.Tasks) { // none: an old server
		err = fmt.Errorf("reply of the server: %d tasks with %d incarnations", len(a.Tasks), len(incarnations))
	}
	a.Incarnations = make([]serry.Incarnation, len(a.Tasks))
	for i, inc := range incarnations[:min(len(incarnations), len(a.Tasks))] {
		a.Incarnations[i] = serry.Incarnation(inc)
	}
	a.Words = make([][]byte, len(a.Tasks))
	return a, err
}
