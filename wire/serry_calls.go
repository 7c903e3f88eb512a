package wire

import (
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/wire/serrypb"
)

// A serryCall is how serry's own dialect writes and reads one call.
type serryCall struct {
	kind  coord.Kind
	tasks protowire.Number // where the message of the call lists tasks, or 0
	write func(r *serrypb.Request, ev coord.Event)
	read  func(d *decoder, r *serrypb.Request, c coord.Call) (coord.Event, error)
}

// plainCall makes the entry of a call whose reading cannot fail.
func plainCall[E coord.Event](write func(*serrypb.Request, E), read func(*decoder, *serrypb.Request, coord.Call) E) serryCall {
	return checkedCall(write, func(d *decoder, r *serrypb.Request, c coord.Call) (E, error) { return read(d, r, c), nil })
}

// checkedCall makes the entry of a call.
func checkedCall[E coord.Event](write func(*serrypb.Request, E), read func(*decoder, *serrypb.Request, coord.Call) (E, error)) serryCall {
	var zero E
	return serryCall{
		kind:  coord.KindOf(zero),
		write: func(r *serrypb.Request, ev coord.Event) { write(r, ev.(E)) },
		read: func(d *decoder, r *serrypb.Request, c coord.Call) (coord.Event, error) {
			return read(d, r, c)
		},
	}
}

// listing says where the message of a call lists tasks.
func (c serryCall) listing(field protowire.Number) serryCall {
	c.tasks = field
	return c
}

// serryCalls has all calls of serry's own dialect, by the number of the field of Request that holds the call.
var serryCalls = map[protowire.Number]serryCall{
	10: plainCall(func(r *serrypb.Request, ev coord.RegisterTask) {
		r.Call = &serrypb.Request_Register{Register: &serrypb.Register{Recoverable: ev.Recoverable}}
	}, func(d *decoder, r *serrypb.Request, c coord.Call) coord.RegisterTask {
		return coord.RegisterTask{Call: c, Recoverable: r.GetRegister().GetRecoverable(), Next: d.origin.Next}
	}),
	11: plainCall(func(r *serrypb.Request, _ coord.Heartbeat) {
		r.Call = &serrypb.Request_Heartbeat{Heartbeat: new(serrypb.Empty)}
	}, func(_ *decoder, _ *serrypb.Request, c coord.Call) coord.Heartbeat {
		return coord.Heartbeat{Call: c}
	}),
	12: plainCall(func(r *serrypb.Request, ev coord.ShutdownTask) {
		r.Call = &serrypb.Request_Shutdown{Shutdown: &serrypb.Leave{Recoverable: ev.Recoverable}}
	}, func(_ *decoder, r *serrypb.Request, c coord.Call) coord.ShutdownTask {
		return coord.ShutdownTask{Call: c, Recoverable: r.GetShutdown().GetRecoverable()}
	}),
	13: plainCall(func(r *serrypb.Request, _ coord.ResetTask) {
		r.Call = &serrypb.Request_Reset_{Reset_: new(serrypb.Empty)}
	}, func(_ *decoder, _ *serrypb.Request, c coord.Call) coord.ResetTask {
		return coord.ResetTask{Call: c}
	}),
	14: plainCall(func(r *serrypb.Request, ev coord.ReportError) {
		r.Call = &serrypb.Request_Report{Report: &serrypb.Report{Code: int32(ev.Code), Text: ev.Text}}
	}, func(_ *decoder, r *serrypb.Request, c coord.Call) coord.ReportError {
		return coord.ReportError{Call: c, Code: int(r.GetReport().GetCode()), Text: r.GetReport().GetText()}
	}),
	15: plainCall(func(r *serrypb.Request, _ coord.PollForError) {
		r.Call = &serrypb.Request_Poll{Poll: new(serrypb.Empty)}
	}, func(_ *decoder, _ *serrypb.Request, c coord.Call) coord.PollForError {
		return coord.PollForError{Call: c}
	}),
	16: plainCall(func(r *serrypb.Request, ev coord.WatchTasks) {
		r.Call = &serrypb.Request_Watch{Watch: &serrypb.Watch{Version: ev.Version, Job: ev.Job}}
	}, func(_ *decoder, r *serrypb.Request, c coord.Call) coord.WatchTasks {
		return coord.WatchTasks{Call: c, Version: r.GetWatch().GetVersion(), Job: r.GetWatch().GetJob()}
	}),
	17: plainCall(func(r *serrypb.Request, ev coord.GetTaskState) {
		r.Call = &serrypb.Request_States{States: &serrypb.Tasks{Tasks: serryTasks(ev.Tasks)}}
	}, func(d *decoder, r *serrypb.Request, c coord.Call) coord.GetTaskState {
		return coord.GetTaskState{Call: c, Tasks: d.serryTasks(r.GetStates().GetTasks())}
	}).listing(1),
	18: plainCall(func(r *serrypb.Request, ev coord.InsertKeyValue) {
		r.Call = &serrypb.Request_Insert{Insert: &serrypb.Insert{Key: ev.Key, Value: ev.Value, Overwrite: ev.Overwrite}}
	}, func(_ *decoder, r *serrypb.Request, c coord.Call) coord.InsertKeyValue {
		i := r.GetInsert()
		return coord.InsertKeyValue{Call: c, Key: i.GetKey(), Value: i.GetValue(), Overwrite: i.GetOverwrite()}
	}),
	19: plainCall(func(r *serrypb.Request, ev coord.GetKeyValue) {
		r.Call = &serrypb.Request_Get{Get: &serrypb.Key{Key: ev.Key}}
	}, func(_ *decoder, r *serrypb.Request, c coord.Call) coord.GetKeyValue {
		return coord.GetKeyValue{Call: c, Key: r.GetGet().GetKey()}
	}),
	20: plainCall(func(r *serrypb.Request, ev coord.TryGetKeyValue) {
		r.Call = &serrypb.Request_TryGet{TryGet: &serrypb.Key{Key: ev.Key}}
	}, func(_ *decoder, r *serrypb.Request, c coord.Call) coord.TryGetKeyValue {
		return coord.TryGetKeyValue{Call: c, Key: r.GetTryGet().GetKey()}
	}),
	21: plainCall(func(r *serrypb.Request, ev coord.IncrementKeyValue) {
		r.Call = &serrypb.Request_Increment{Increment: &serrypb.Increment{Key: ev.Key, By: ev.By}}
	}, func(_ *decoder, r *serrypb.Request, c coord.Call) coord.IncrementKeyValue {
		return coord.IncrementKeyValue{Call: c, Key: r.GetIncrement().GetKey(), By: r.GetIncrement().GetBy()}
	}),
	22: plainCall(func(r *serrypb.Request, ev coord.GetKeyValueDir) {
		r.Call = &serrypb.Request_List{List: &serrypb.Key{Key: ev.Dir}}
	}, func(_ *decoder, r *serrypb.Request, c coord.Call) coord.GetKeyValueDir {
		return coord.GetKeyValueDir{Call: c, Dir: r.GetList().GetKey()}
	}),
	23: plainCall(func(r *serrypb.Request, ev coord.DeleteKeyValue) {
		r.Call = &serrypb.Request_Delete{Delete: &serrypb.Key{Key: ev.Key}}
	}, func(_ *decoder, r *serrypb.Request, c coord.Call) coord.DeleteKeyValue {
		return coord.DeleteKeyValue{Call: c, Key: r.GetDelete().GetKey()}
	}),
	24: plainCall(func(r *serrypb.Request, ev coord.SwapKeyValue) {
		r.Call = &serrypb.Request_Swap{Swap: &serrypb.Swap{Key: ev.Key, Old: ev.Old, New: ev.New}}
	}, func(_ *decoder, r *serrypb.Request, c coord.Call) coord.SwapKeyValue {
		s := r.GetSwap()
		ev := coord.SwapKeyValue{Call: c, Key: s.GetKey(), Old: s.GetOld(), New: s.GetNew()}
		if ev.New == nil {
			ev.New = []byte{} // an empty value is one
		}
		return ev
	}),
	25: plainCall(func(r *serrypb.Request, ev coord.WatchKeys) {
		r.Call = &serrypb.Request_WatchKeys{WatchKeys: &serrypb.WatchKeys{Dir: ev.Dir, After: ev.After}}
	}, func(_ *decoder, r *serrypb.Request, c coord.Call) coord.WatchKeys {
		return coord.WatchKeys{Call: c, Dir: r.GetWatchKeys().GetDir(), After: r.GetWatchKeys().GetAfter()}
	}),
	26: checkedCall(func(r *serrypb.Request, ev coord.Barrier) {
		r.Call = &serrypb.Request_Barrier{Barrier: &serrypb.Barrier{
			Id: ev.ID, Counter: ev.Counter, TimeoutNanoseconds: int64(ev.Timeout),
			Tasks: serryTasks(ev.Tasks), Recoverable: ev.Recoverable,
		}}
	}, func(d *decoder, r *serrypb.Request, c coord.Call) (coord.Barrier, error) {
		b := r.GetBarrier()
		return coord.Barrier{
			Call: c, ID: b.GetId(), Counter: b.GetCounter(), Timeout: time.Duration(b.GetTimeoutNanoseconds()),
			Tasks: d.serryTasks(b.GetTasks()), Recoverable: b.GetRecoverable(),
		}, d.barrier(b.GetId(), b.GetCounter())
	}).listing(4),
	27: checkedCall(func(r *serrypb.Request, ev coord.CancelBarrier) {
		r.Call = &serrypb.Request_CancelBarrier{CancelBarrier: &serrypb.CancelBarrier{Id: ev.ID, Counter: ev.Counter}}
	}, func(d *decoder, r *serrypb.Request, c coord.Call) (coord.CancelBarrier, error) {
		b := r.GetCancelBarrier()
		return coord.CancelBarrier{Call: c, ID: b.GetId(), Counter: b.GetCounter()}, d.barrier(b.GetId(), b.GetCounter())
	}),
	28: plainCall(func(r *serrypb.Request, ev coord.GetAliveTasks) {
		r.Call = &serrypb.Request_Alive{Alive: &serrypb.Alive{Tasks: serryTasks(ev.Tasks), Word: ev.Word}}
	}, func(d *decoder, r *serrypb.Request, c coord.Call) coord.GetAliveTasks {
		return coord.GetAliveTasks{Call: c, Tasks: d.serryTasks(r.GetAlive().GetTasks()), Word: r.GetAlive().GetWord()}
	}).listing(1),
	29: plainCall(func(r *serrypb.Request, ev coord.WaitForAllTasks) {
		r.Call = &serrypb.Request_Devices{Devices: &serrypb.Devices{Devices: ev.Devices}}
	}, func(_ *decoder, r *serrypb.Request, c coord.Call) coord.WaitForAllTasks {
		return coord.WaitForAllTasks{Call: c, Devices: r.GetDevices().GetDevices()}
	}),
	30: plainCall(func(r *serrypb.Request, ev coord.Suspect) {
		r.Call = &serrypb.Request_Suspect{Suspect: &serrypb.Suspect{
			Task: serryTask(ev.Peer.Task), Incarnation: uint64(ev.Peer.Incarnation), Hard: ev.Hard, Evidence: ev.Evidence,
		}}
	}, func(d *decoder, r *serrypb.Request, c coord.Call) coord.Suspect {
		s := r.GetSuspect()
		return coord.Suspect{
			Call: c, Peer: serry.Life{Task: d.serryTask(s.GetTask()), Incarnation: serry.Incarnation(s.GetIncarnation())},
			Hard: s.GetHard(), Evidence: s.GetEvidence(),
		}
	}),
	31: plainCall(func(r *serrypb.Request, _ coord.GetStatus) {
		r.Call = &serrypb.Request_Status{Status: new(serrypb.StatusQuery)}
	}, func(d *decoder, r *serrypb.Request, c coord.Call) coord.GetStatus {
		q := r.GetStatus()
		d.shape.query = StatusQuery{Tasks: q.GetTasks(), After: q.GetAfter(), Sight: q.GetSight(), Calls: q.GetCalls(), Pick: readPick(q.GetPick()), rows: q.GetRows()}
		return coord.GetStatus{Call: c}
	}),
	32: plainCall(func(r *serrypb.Request, ev coord.ListKeys) {
		r.Call = &serrypb.Request_Sizes{Sizes: &serrypb.Key{Key: ev.Dir}}
	}, func(_ *decoder, r *serrypb.Request, c coord.Call) coord.ListKeys {
		return coord.ListKeys{Call: c, Dir: r.GetSizes().GetKey()}
	}),
}

// serryFields has the field of each call in [serryCalls].
var serryFields = func() (fields [coord.Kinds]protowire.Number) {
	for field, c := range serryCalls {
		fields[c.kind] = field
	}
	return fields
}()
