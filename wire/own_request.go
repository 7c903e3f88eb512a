package wire

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/wire/serrypb"
)

// serry's own messages have the form of events, so that nothing has to be guessed: who calls stands
// in every request, a call sent again has its id, and errors come back with their facts.

// ownRequest turns an event into a request of serry's own dialect.
func ownRequest(ev coord.Event) (*serrypb.Request, error) {
	r := new(serrypb.Request)
	switch ev := ev.(type) {
	case coord.RegisterTask:
		ownCaller(r, ev.Call)
		r.Call = &serrypb.Request_Register{Register: &serrypb.Register{Recoverable: ev.Recoverable}}
	case coord.Heartbeat:
		ownCaller(r, ev.Call)
		r.Call = &serrypb.Request_Heartbeat{Heartbeat: new(serrypb.Empty)}
	case coord.ShutdownTask:
		ownCaller(r, ev.Call)
		r.Call = &serrypb.Request_Shutdown{Shutdown: &serrypb.Leave{Recoverable: ev.Recoverable}}
	case coord.ResetTask:
		ownCaller(r, ev.Call)
		r.Call = &serrypb.Request_Reset_{Reset_: new(serrypb.Empty)}
	case coord.ReportError:
		ownCaller(r, ev.Call)
		r.Call = &serrypb.Request_Report{Report: &serrypb.Report{Code: int32(ev.Code), Text: ev.Text}}
	case coord.PollForError:
		ownCaller(r, ev.Call)
		r.Call = &serrypb.Request_Poll{Poll: new(serrypb.Empty)}
	case coord.WatchTasks:
		ownCaller(r, ev.Call)
		r.Call = &serrypb.Request_Watch{Watch: &serrypb.Watch{Version: ev.Version, Job: ev.Job}}
	case coord.GetTaskState:
		ownCaller(r, ev.Call)
		r.Call = &serrypb.Request_States{States: &serrypb.Tasks{Tasks: ownTasks(ev.Tasks)}}
	case coord.Suspect:
		ownCaller(r, ev.Call)
		r.Call = &serrypb.Request_Suspect{Suspect: &serrypb.Suspect{
			Task: ownTask(ev.Peer), Incarnation: uint64(ev.Life), Hard: ev.Hard, Evidence: ev.Evidence,
		}}
	case coord.GetStatus:
		ownCaller(r, ev.Call)
		r.Call = &serrypb.Request_Status{Status: new(serrypb.StatusQuery)}
	case coord.Barrier:
		ownCaller(r, ev.Call)
		r.Call = &serrypb.Request_Barrier{Barrier: &serrypb.Barrier{
			Id: ev.ID, Counter: ev.Counter, TimeoutNanoseconds: int64(ev.Timeout),
			Tasks: ownTasks(ev.Tasks), Recoverable: ev.Recoverable,
		}}
	case coord.CancelBarrier:
		ownCaller(r, ev.Call)
		r.Call = &serrypb.Request_CancelBarrier{CancelBarrier: &serrypb.CancelBarrier{Id: ev.ID, Counter: ev.Counter}}
	case coord.GetAliveTasks:
		ownCaller(r, ev.Call)
		r.Call = &serrypb.Request_Alive{Alive: &serrypb.Alive{Tasks: ownTasks(ev.Tasks), Word: ev.Word}}
	case coord.WaitForAllTasks:
		ownCaller(r, ev.Call)
		r.Call = &serrypb.Request_Devices{Devices: &serrypb.Devices{Devices: ev.Devices}}
	default:
		return ownKeyRequest(r, ev)
	}
	return r, nil
}

// ownKeyRequest is ownRequest for the calls on keys.
func ownKeyRequest(r *serrypb.Request, ev coord.Event) (*serrypb.Request, error) {
	switch ev := ev.(type) {
	case coord.InsertKeyValue:
		ownCaller(r, ev.Call)
		r.Call = &serrypb.Request_Insert{Insert: &serrypb.Insert{Key: ev.Key, Value: ev.Value, Overwrite: ev.Overwrite}}
	case coord.GetKeyValue:
		ownCaller(r, ev.Call)
		r.Call = &serrypb.Request_Get{Get: &serrypb.Key{Key: ev.Key}}
	case coord.TryGetKeyValue:
		ownCaller(r, ev.Call)
		r.Call = &serrypb.Request_TryGet{TryGet: &serrypb.Key{Key: ev.Key}}
	case coord.IncrementKeyValue:
		ownCaller(r, ev.Call)
		r.Call = &serrypb.Request_Increment{Increment: &serrypb.Increment{Key: ev.Key, By: ev.By}}
	case coord.GetKeyValueDir:
		ownCaller(r, ev.Call)
		r.Call = &serrypb.Request_List{List: &serrypb.Key{Key: ev.Dir}}
	case coord.DeleteKeyValue:
		ownCaller(r, ev.Call)
		r.Call = &serrypb.Request_Delete{Delete: &serrypb.Key{Key: ev.Key}}
	case coord.SwapKeyValue:
		ownCaller(r, ev.Call)
		r.Call = &serrypb.Request_Swap{Swap: &serrypb.Swap{Key: ev.Key, Old: ev.Old, New: ev.New}}
	case coord.ListKeys:
		ownCaller(r, ev.Call)
		r.Call = &serrypb.Request_Sizes{Sizes: &serrypb.Key{Key: ev.Dir}}
	case coord.WatchKeys:
		ownCaller(r, ev.Call)
		r.Call = &serrypb.Request_WatchKeys{WatchKeys: &serrypb.WatchKeys{Dir: ev.Dir, After: ev.After}}
	default:
		return nil, fmt.Errorf("%T is not a call", ev)
	}
	return r, nil
}

func ownCaller(r *serrypb.Request, c coord.Call) {
	r.Service, r.Incarnation, r.Task = uint64(c.Service), uint64(c.Incarnation), ownTask(c.Task)
	if c.ID != (coord.RequestID{}) {
		r.Id = &serrypb.RequestID{Requester: c.ID.Requester, Number: c.ID.Number, Watermark: c.ID.Watermark}
	}
}

func ownTask(t serry.TaskID) *serrypb.Task {
	if t.IsZero() {
		return nil
	}
	return &serrypb.Task{Job: t.Job, Index: int32(t.Index)}
}

func ownTasks(ids []serry.TaskID) []*serrypb.Task {
	tasks := make([]*serrypb.Task, len(ids))
	for i, t := range ids {
		tasks[i] = &serrypb.Task{Job: t.Job, Index: int32(t.Index)}
	}
	return tasks
}

// ownDo reads a request of serry's own dialect.
func (d *decoder) ownDo(body []byte) (coord.Event, error) {
	ev, err := d.ownEvent(body)
	if err == nil {
		d.shape.Op = opOf(ev)
	}
	return ev, err
}

// opOf names the operation that an event is.
func opOf(ev coord.Event) Op {
	switch ev.(type) {
	case coord.RegisterTask:
		return opRegister
	case coord.Heartbeat:
		return opHeartbeat
	case coord.ShutdownTask:
		return opShutdown
	case coord.ResetTask:
		return opReset
	case coord.ReportError:
		return opReport
	case coord.PollForError:
		return opPoll
	case coord.WatchTasks:
		return opWatch
	case coord.GetTaskState:
		return opTaskState
	case coord.InsertKeyValue:
		return opInsert
	case coord.GetKeyValue:
		return opGet
	case coord.TryGetKeyValue:
		return opTryGet
	case coord.IncrementKeyValue:
		return opIncrement
	case coord.GetKeyValueDir:
		return opDir
	case coord.DeleteKeyValue:
		return opDelete
	case coord.SwapKeyValue:
		return opSwap
	case coord.WatchKeys:
		return opWatchKeys
	case coord.ListKeys:
		return opListKeys
	case coord.Barrier:
		return opBarrier
	case coord.CancelBarrier:
		return opCancel
	case coord.GetAliveTasks:
		return opAlive
	case coord.WaitForAllTasks:
		return opWaitAll
	case coord.Suspect:
		return opSuspect
	case coord.GetStatus:
		return opStatus
	}
	return opDo
}

func (d *decoder) ownEvent(body []byte) (coord.Event, error) {
	if n := ownListLen(body); n > d.codec.tasks+extraTasks {
		return nil, &serry.InvalidError{What: fmt.Sprintf("a list of %d tasks, the cluster has %d", n, d.codec.tasks)}
	}
	r := new(serrypb.Request)
	if err := (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(body, r); err != nil {
		return nil, &serry.InvalidError{What: "not a request of serry"}
	}
	call := coord.Call{
		Req:         d.origin.Req,
		ID:          coord.RequestID{Requester: r.GetId().GetRequester(), Number: r.GetId().GetNumber(), Watermark: r.GetId().GetWatermark()},
		Service:     serry.Incarnation(r.GetService()),
		Task:        d.ownTask(r.GetTask()),
		Incarnation: serry.Incarnation(r.GetIncarnation()),
	}
	if r.GetId() == nil { // it may have one beside it: from a relay
		call.ID = d.origin.ID
	}
	d.shape.task = call.Task
	switch c := r.GetCall().(type) {
	case *serrypb.Request_Register:
		return coord.RegisterTask{Call: call, Recoverable: c.Register.GetRecoverable(), Next: d.origin.Next}, nil
	case *serrypb.Request_Heartbeat:
		return coord.Heartbeat{Call: call}, nil
	case *serrypb.Request_Shutdown:
		return coord.ShutdownTask{Call: call, Recoverable: c.Shutdown.GetRecoverable()}, nil
	case *serrypb.Request_Reset_:
		return coord.ResetTask{Call: call}, nil
	case *serrypb.Request_Report:
		return coord.ReportError{Call: call, Code: int(c.Report.GetCode()), Text: c.Report.GetText()}, nil
	case *serrypb.Request_Poll:
		return coord.PollForError{Call: call}, nil
	case *serrypb.Request_Watch:
		return coord.WatchTasks{Call: call, Version: c.Watch.GetVersion(), Job: c.Watch.GetJob()}, nil
	case *serrypb.Request_States:
		return coord.GetTaskState{Call: call, Tasks: d.ownTasks(c.States.GetTasks())}, nil
	case *serrypb.Request_Suspect:
		return coord.Suspect{
			Call: call, Peer: d.ownTask(c.Suspect.GetTask()), Life: serry.Incarnation(c.Suspect.GetIncarnation()),
			Hard: c.Suspect.GetHard(), Evidence: c.Suspect.GetEvidence(),
		}, nil
	case *serrypb.Request_Status:
		d.shape.query = StatusQuery{Tasks: c.Status.GetTasks(), After: c.Status.GetAfter()}
		return coord.GetStatus{Call: call}, nil
	case *serrypb.Request_Barrier:
		return d.ownBarrier(call, c.Barrier)
	case *serrypb.Request_CancelBarrier:
		if err := d.barrier(c.CancelBarrier.GetId(), c.CancelBarrier.GetCounter()); err != nil {
			return nil, err
		}
		return coord.CancelBarrier{Call: call, ID: c.CancelBarrier.GetId(), Counter: c.CancelBarrier.GetCounter()}, nil
	case *serrypb.Request_Alive:
		return coord.GetAliveTasks{Call: call, Tasks: d.ownTasks(c.Alive.GetTasks()), Word: c.Alive.GetWord()}, nil
	case *serrypb.Request_Devices:
		return coord.WaitForAllTasks{Call: call, Devices: c.Devices.GetDevices()}, nil
	}
	return ownKeyEvent(call, r)
}

// ownKeyEvent is ownEvent for the calls on keys.
func ownKeyEvent(call coord.Call, r *serrypb.Request) (coord.Event, error) {
	switch c := r.GetCall().(type) {
	case *serrypb.Request_Insert:
		return coord.InsertKeyValue{Call: call, Key: c.Insert.GetKey(), Value: c.Insert.GetValue(), Overwrite: c.Insert.GetOverwrite()}, nil
	case *serrypb.Request_Get:
		return coord.GetKeyValue{Call: call, Key: c.Get.GetKey()}, nil
	case *serrypb.Request_TryGet:
		return coord.TryGetKeyValue{Call: call, Key: c.TryGet.GetKey()}, nil
	case *serrypb.Request_Increment:
		return coord.IncrementKeyValue{Call: call, Key: c.Increment.GetKey(), By: c.Increment.GetBy()}, nil
	case *serrypb.Request_List:
		return coord.GetKeyValueDir{Call: call, Dir: c.List.GetKey()}, nil
	case *serrypb.Request_Delete:
		return coord.DeleteKeyValue{Call: call, Key: c.Delete.GetKey()}, nil
	case *serrypb.Request_Swap:
		ev := coord.SwapKeyValue{Call: call, Key: c.Swap.GetKey(), Old: c.Swap.Old, New: c.Swap.GetNew()}
		if ev.New == nil {
			ev.New = []byte{} // an empty value is one
		}
		return ev, nil
	case *serrypb.Request_Sizes:
		return coord.ListKeys{Call: call, Dir: c.Sizes.GetKey()}, nil
	case *serrypb.Request_WatchKeys:
		return coord.WatchKeys{Call: call, Dir: c.WatchKeys.GetDir(), After: c.WatchKeys.GetAfter()}, nil
	}
	return nil, &serry.InvalidError{What: "a call that this server does not know"}
}

func (d *decoder) ownBarrier(call coord.Call, b *serrypb.Barrier) (coord.Event, error) {
	if err := d.barrier(b.GetId(), b.GetCounter()); err != nil {
		return nil, err
	}
	return coord.Barrier{
		Call: call, ID: b.GetId(), Counter: b.GetCounter(), Timeout: time.Duration(b.GetTimeoutNanoseconds()),
		Tasks: d.ownTasks(b.GetTasks()), Recoverable: b.GetRecoverable(),
	}, nil
}

// ownTask reads a task. Where the cluster has one job its name need not be given.
func (d *decoder) ownTask(t *serrypb.Task) serry.TaskID {
	if t == nil {
		return serry.TaskID{}
	}
	id := serry.TaskID{Job: t.GetJob(), Index: int(t.GetIndex())}
	if id.Job == "" && len(d.codec.jobs) == 1 {
		id.Job = d.codec.jobs[0].Name
	}
	return id
}

func (d *decoder) ownTasks(list []*serrypb.Task) []serry.TaskID {
	var ids []serry.TaskID
	for _, t := range list {
		ids = append(ids, d.ownTask(t))
	}
	return ids
}

// ownListLen counts the tasks that a request lists, before memory is spent on them.
func ownListLen(body []byte) int {
	lists := map[protowire.Number]list{17: {field: 1}, 26: {field: 4}, 28: {field: 1}}
	total := 0
	for len(body) > 0 {
		num, typ, n := protowire.ConsumeTag(body)
		if n < 0 {
			break
		}
		value := body[n:]
		size := protowire.ConsumeFieldValue(num, typ, value)
		if size < 0 {
			break
		}
		if l, ok := lists[num]; ok && typ == protowire.BytesType {
			inner, _ := protowire.ConsumeBytes(value)
			total += l.len(inner)
		}
		body = value[size:]
	}
	return total
}
