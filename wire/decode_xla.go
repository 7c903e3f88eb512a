package wire

import (
	"bytes"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/wire/xlapb"
)

// In this dialect every request but RegisterTask says which service it is meant for and which life
// of a task it comes from (C-INC-2, C-INC-6). The task itself stands beside that, never inside.

// xlaCall reads what is common to calls that name no task.
func (d *decoder) xlaCall(who *xlapb.Incarnations) coord.Call {
	return coord.Call{
		Req:         d.origin.Req,
		ID:          d.origin.ID,
		Service:     serry.Incarnation(who.GetServiceIncarnation()),
		Incarnation: serry.Incarnation(who.GetTaskIncarnation()),
	}
}

// xlaTaskCall reads what is common to calls of a task.
func (d *decoder) xlaTaskCall(who *xlapb.Incarnations, id int32) coord.Call {
	call := d.xlaCall(who)
	call.Task = d.xlaTask(id)
	d.shape.task = call.Task
	return call
}

// xlaTask names a task by its number, which counts in the first job.
func (d *decoder) xlaTask(id int32) serry.TaskID {
	task := serry.TaskID{Index: int(id)}
	if len(d.codec.jobs) > 0 {
		task.Job = d.codec.jobs[0].Name
	}
	return task
}

func (d *decoder) xlaRegister(m *xlapb.RegisterTaskRequest) (coord.Event, error) {
	call := d.xlaTaskCall(nil, m.GetSourceTaskId())
	call.Incarnation = serry.Incarnation(m.GetIncarnation())
	return coord.RegisterTask{Call: call, Next: d.origin.Next}, nil
}

func (d *decoder) xlaHeartbeat(m *xlapb.HeartbeatRequest) (coord.Event, error) {
	call := d.xlaTaskCall(m.GetIncarnations(), m.GetSourceTaskId())
	call.Incarnation = serry.Incarnation(m.GetIncarnation())
	return coord.Heartbeat{Call: call}, nil
}

func (d *decoder) xlaPoll(m *xlapb.PollForErrorRequest) (coord.Event, error) {
	return coord.PollForError{Call: d.xlaTaskCall(m.GetIncarnations(), m.GetSourceTaskId())}, nil
}

func (d *decoder) xlaReport(m *xlapb.ReportErrorToServiceRequest) (coord.Event, error) {
	return coord.ReportError{
		Call: d.xlaTaskCall(m.GetIncarnations(), m.GetSourceTaskId()),
		Code: int(m.GetErrorCode()),
		Text: m.GetErrorMessage(),
	}, nil
}

func (d *decoder) xlaShutdown(m *xlapb.ShutdownTaskRequest) (coord.Event, error) {
	return coord.ShutdownTask{Call: d.xlaTaskCall(m.GetIncarnations(), m.GetSourceTaskId())}, nil
}

func (d *decoder) xlaWatch(m *xlapb.WatchTasksRequest) (coord.Event, error) {
	return coord.WatchTasks{Call: d.xlaCall(m.GetIncarnations()), Version: m.GetVersionNumber()}, nil
}

func (d *decoder) xlaInsert(m *xlapb.InsertKeyValueRequest) (coord.Event, error) {
	return coord.InsertKeyValue{
		Call:      d.xlaCall(m.GetIncarnations()),
		Key:       m.GetKv().GetKey(),
		Value:     m.GetKv().GetValue(),
		Overwrite: m.GetAllowOverwrite(),
	}, nil
}

func (d *decoder) xlaBarrier(m *xlapb.BarrierRequest) (coord.Event, error) {
	if err := d.barrier(m.GetBarrierId(), m.GetCounter()); err != nil {
		return nil, err
	}
	return coord.Barrier{
		Call:    d.xlaTaskCall(m.GetIncarnations(), m.GetSourceTaskId()),
		ID:      m.GetBarrierId(),
		Counter: m.GetCounter(),
		Timeout: millis(m.GetBarrierTimeoutInMs()),
		Tasks:   each(m.GetTaskIds(), d.xlaTask),
	}, nil
}

func (d *decoder) xlaCancel(m *xlapb.CancelBarrierRequest) (coord.Event, error) {
	if err := d.barrier(m.GetBarrierId(), m.GetCounter()); err != nil {
		return nil, err
	}
	return coord.CancelBarrier{
		Call:    d.xlaTaskCall(m.GetIncarnations(), m.GetSourceTaskId()),
		ID:      m.GetBarrierId(),
		Counter: m.GetCounter(),
	}, nil
}

func (d *decoder) xlaAlive(body []byte) (coord.Event, error) {
	const tasksField = 3
	rest, packed, ok := cutPacked(body, tasksField)
	var m xlapb.GetAliveTasksRequest
	if err := d.checkList(list{field: tasksField, numbers: true}.len(rest)); err != nil {
		return nil, err
	}
	if err := d.parse(rest, &m); err != nil {
		return nil, err
	}
	tasks := each(m.GetTaskIds(), d.xlaTask)
	if ok {
		var err error
		if tasks, err = d.numbers(packed); err != nil {
			return nil, err
		}
	}
	return coord.GetAliveTasks{
		Call:  d.xlaTaskCall(m.GetIncarnations(), m.GetRequestingTaskId()),
		Tasks: tasks,
	}, nil
}

// cutPacked takes a packed list out of a message that has the field just once, in that form. rest
// is the message without it; body is not changed.
func cutPacked(body []byte, field protowire.Number) (rest, packed []byte, ok bool) {
	at, end := -1, 0
	for i := 0; i < len(body); {
		num, typ, n := protowire.ConsumeTag(body[i:])
		if n < 0 {
			return body, nil, false
		}
		size := protowire.ConsumeFieldValue(num, typ, body[i+n:])
		if size < 0 || num == field && (typ != protowire.BytesType || at >= 0) {
			return body, nil, false
		}
		if num == field {
			at, end = i, i+n+size
			packed, _ = protowire.ConsumeBytes(body[i+n:])
		}
		i += n + size
	}
	if at < 0 {
		return body, nil, false
	}
	return append(append(make([]byte, 0, len(body)-end+at), body[:at]...), body[end:]...), packed, true
}

// numbers reads a packed list of task numbers, or finds that it is the one read last.
func (d *decoder) numbers(packed []byte) ([]serry.TaskID, error) {
	if last := d.codec.lastList.Load(); last != nil && bytes.Equal(last.packed, packed) {
		return last.tasks, nil
	}
	if err := d.checkList(countVarints(packed)); err != nil {
		return nil, err
	}
	fresh := &numberList{packed: bytes.Clone(packed)}
	for rest := fresh.packed; len(rest) > 0; {
		id, n := protowire.ConsumeVarint(rest)
		if n < 0 {
			return nil, &serry.InvalidError{What: "not a request of " + d.shape.Op.String()}
		}
		fresh.tasks = append(fresh.tasks, d.xlaTask(int32(id)))
		rest = rest[n:]
	}
	d.codec.lastList.Store(fresh)
	return fresh.tasks, nil
}
