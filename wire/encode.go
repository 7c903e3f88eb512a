package wire

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/wire/rpc"
	"github.com/serry-dev/serry/wire/tfpb"
	"github.com/serry-dev/serry/wire/xlapb"
)

// Encode turns the machine's reply into what the caller reads: a message with a Status that is OK,
// or no message and a Status that says what happened. Replies to one *coord.Picture are the same
// bytes for equal Shapes.
func (s Shape) Encode(r coord.Reply) ([]byte, rpc.Status) {
	if s.Dialect == Serry {
		return s.encodeOwn(r)
	}
	if r.Err != nil {
		return nil, s.Refuse(r.Err)
	}
	body, err := s.body(r.Result)
	if err != nil {
		return nil, s.Refuse(err)
	}
	return body, rpc.Status{}
}

// body encodes a result. Calls whose replies have the same fields share one message type here.
func (s Shape) body(result coord.Result) ([]byte, error) {
	switch r := result.(type) {
	case nil, coord.Done:
		return nil, nil
	case coord.Registered:
		return proto.Marshal(&xlapb.RegisterTaskResponse{ServiceIncarnation: uint64(r.Service)})
	case coord.Passed:
		return proto.Marshal(&xlapb.BarrierResponse{Counter: r.Counter})
	case coord.Value:
		return proto.Marshal(&xlapb.GetKeyValueResponse{Kv: &xlapb.KeyValueEntry{Key: r.Key, Value: r.Value}})
	case coord.Entries:
		return proto.Marshal(&xlapb.GetKeyValueDirResponse{Kv: each(r.Entries, func(e coord.Entry) *xlapb.KeyValueEntry {
			return &xlapb.KeyValueEntry{Key: e.Key, Value: e.Value}
		})})
	case *coord.Picture:
		return proto.Marshal(s.picture(r))
	case *coord.Alive:
		return proto.Marshal(s.alive(r))
	case coord.AllDevices:
		var b []byte
		b = protowire.AppendTag(b, devicesField, protowire.BytesType)
		return protowire.AppendBytes(b, r.Devices), nil
	}
	return nil, fmt.Errorf("no form for a result of type %T", result)
}

// devicesField is where WaitForAllTasksResponse has its devices. They are a message already.
const devicesField = 4

func (s Shape) picture(p *coord.Picture) proto.Message {
	if s.Dialect == XLA {
		m := &xlapb.WatchTasksResponse{VersionNumber: p.Version}
		for i := range p.Tasks {
			m.TaskState = append(m.TaskState, s.xlaInfo(&p.Tasks[i]))
		}
		return m
	}
	m := &tfpb.WatchJobStateResponse{}
	if s.Op == opWatch { // the others have no version
		m.VersionNumber = p.Version
	}
	for i := range p.Tasks {
		m.TaskState = append(m.TaskState, s.tfInfo(i, &p.Tasks[i]))
	}
	return m
}

func (s Shape) alive(r *coord.Alive) proto.Message {
	incarnations := each(r.Incarnations, plainIncarnation)
	if s.Dialect == XLA {
		return &xlapb.GetAliveTasksResponse{Incarnations: incarnations, AliveTaskIds: each(r.Tasks, xlaNumber)}
	}
	return &tfpb.GetAliveTasksResponse{Incarnations: incarnations, AliveTasks: each(r.Tasks, s.tfTask)}
}

func plainIncarnation(i serry.Incarnation) uint64 { return uint64(i) }

func (s Shape) xlaInfo(t *coord.TaskInfo) *xlapb.TaskInfo {
	info := &xlapb.TaskInfo{
		TaskId:      int32(t.Task.Index),
		State:       xlaState(t.State),
		Incarnation: uint64(t.Incarnation),
	}
	if t.Err != nil {
		st := s.stored(t.Err)
		info.ErrorCode, info.ErrorMessage = int32(st.code), st.text
		info.ErrorPayload = &xlapb.CoordinationServiceError{
			IsReportedError: st.reported,
			SourceTaskId:    int32(t.Task.Index),
		}
	}
	return info
}

func (s Shape) tfInfo(i int, t *coord.TaskInfo) *tfpb.CoordinatedTaskStateInfo {
	task := s.tfTask(t.Task)
	if asked := s.asked.GetSourceTask(); i < len(asked) {
		task = asked[i]
	}
	info := &tfpb.CoordinatedTaskStateInfo{
		Task:        task,
		State:       tfpb.CoordinatedTaskState(xlaState(t.State)), // the numbers are the same
		Incarnation: uint64(t.Incarnation),
	}
	if t.Err != nil {
		st := s.stored(t.Err)
		info.ErrorCode, info.ErrorMessage = int32(st.code), st.text
		info.ErrorPayload = &tfpb.CoordinationServiceError{IsReportedError: st.reported, SourceTask: task}
	}
	return info
}

// tfTask names a task as the caller would.
func (s Shape) tfTask(t serry.TaskID) *tfpb.CoordinatedTask {
	return &tfpb.CoordinatedTask{JobName: s.jobName(t), TaskId: int32(t.Index)}
}

func (s Shape) jobName(t serry.TaskID) string {
	if s.oneJob {
		return s.job
	}
	return t.Job
}

func xlaState(state serry.TaskState) xlapb.TaskState {
	switch state {
	case serry.Disconnected:
		return xlapb.TaskState_DISCONNECTED
	case serry.Connected:
		return xlapb.TaskState_CONNECTED
	case serry.Failed:
		return xlapb.TaskState_ERROR
	}
	return xlapb.TaskState_UNSPECIFIED
}
