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
	c, _ := coord.CallOf(ev)
	switch ev.(type) {
	case coord.RegisterTask:
		return c, register
	case coord.Heartbeat:
		return c, heartbeat
	case coord.PollForError:
		return c, poll
	case coord.ShutdownTask:
		return c, shutdown
	case coord.Barrier, coord.WaitForAllTasks:
		return c, meeting
	case coord.GetKeyValue:
		return c, valueWait
	case coord.WatchTasks, coord.GetAliveTasks, coord.WatchKeys:
		return c, otherWait
	}
	return c, plain
}
