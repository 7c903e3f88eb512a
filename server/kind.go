package server

import "github.com/serry-dev/serry/coord"

// A kind says how the server treats a call; the machine knows its meaning.
type kind int8

const (
	plain     kind = iota // answered at once
	register              // a heartbeat, too; may wait for others
	heartbeat             // answered here if it is a good one
	poll                  // tells whether a client can live without its connection (C-LOST-4)
	shutdown              // may wait for others
	meeting               // a barrier of some sort: may wait for others
	valueWait             // a waiting get, which may share an entry (C-LIM-4)
	otherWait             // any other call that may wait
)

// refusable says whether a full server may refuse such a call (C-LIM-1).
func (k kind) refusable() bool {
	return k != register && k != heartbeat && k != poll && k != shutdown
}

// waits says whether the limit on waiting calls of a connection applies.
func (k kind) waits() bool { return k == meeting || k == valueWait || k == otherWait }

// meets says whether the call waits for other tasks, so that people want to know which.
func (k kind) meets() bool { return k == register || k == shutdown || k == meeting }

// inspect returns what all calls have in common, and the kind of this one.
func inspect(ev coord.Event) (coord.Call, kind) {
	switch ev := ev.(type) {
	case coord.RegisterTask:
		return ev.Call, register
	case coord.Heartbeat:
		return ev.Call, heartbeat
	case coord.PollForError:
		return ev.Call, poll
	case coord.ShutdownTask:
		return ev.Call, shutdown
	case coord.Barrier:
		return ev.Call, meeting
	case coord.WaitForAllTasks:
		return ev.Call, meeting
	case coord.GetKeyValue:
		return ev.Call, valueWait
	case coord.WatchTasks:
		return ev.Call, otherWait
	case coord.GetAliveTasks:
		return ev.Call, otherWait
	case coord.WatchKeys:
		return ev.Call, otherWait
	}
	return inspectPlain(ev), plain
}

func inspectPlain(ev coord.Event) coord.Call {
	switch ev := ev.(type) {
	case coord.ResetTask:
		return ev.Call
	case coord.ReportError:
		return ev.Call
	case coord.GetTaskState:
		return ev.Call
	case coord.InsertKeyValue:
		return ev.Call
	case coord.TryGetKeyValue:
		return ev.Call
	case coord.IncrementKeyValue:
		return ev.Call
	case coord.GetKeyValueDir:
		return ev.Call
	case coord.DeleteKeyValue:
		return ev.Call
	case coord.SwapKeyValue:
		return ev.Call
	case coord.CancelBarrier:
		return ev.Call
	}
	return coord.Call{}
}
