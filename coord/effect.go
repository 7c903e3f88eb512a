package coord

import "github.com/serry-dev/serry"

// An Effect is something that must happen because of a [Machine.Step]: data that the owner acts
// on, in the order given, and not before the record of the step is durable.
type Effect interface{ effect() }

// A Reply answers a call, with a result or an error of package serry. Replies of one step leave
// in the order given, and before those of the next (C-ORD-1).
type Reply struct {
	Req    Req
	Result Result // nil with an error
	Err    error
}

// Changed says what the owner's table of a task must show from now on (C-HB-8). Good heartbeats
// are answered from that table, without the machine.
type Changed struct {
	Task        serry.TaskID
	State       serry.TaskState
	Incarnation serry.Incarnation
	Err         *serry.TaskError // with Failed: why; else nil
}

// Opened says that a new epoch has begun, with every task disconnected. Calls that were decoded
// for the epoch before are refused by their service incarnation.
type Opened struct {
	Epoch   int // numbered from 1
	Service serry.Incarnation
	Jobs    []Job
}

// A Note is something a person may want to know: the source of a log line, of the timeline and of
// the answer to "why". The machine does not log; its owner does, with the notes.
type Note struct {
	What        string // constant, lower case: "task connected"
	Task        serry.TaskID
	Incarnation serry.Incarnation
	Barrier     string
	Counter     int64
	Count, Of   int
	Since       Time // of a barrier that ended: when it was opened
	Err         error

	// The address of a caller that was refused. The machine knows no addresses: its owner sets it, in notes of
	// its own.
	From string
}

func (Reply) effect()   {}
func (Changed) effect() {}
func (Opened) effect()  {}
func (Note) effect()    {}

// A Result is what a successful call returns.
type Result interface{ result() }

type (
	// Done is the result of calls that return nothing.
	Done struct{}

	// Registered answers RegisterTask and Heartbeat.
	Registered struct{ Service serry.Incarnation }

	// Passed answers Barrier, with the number of the instance. A member that restarted learns the
	// counter from it.
	Passed struct{ Counter int64 }

	// Value answers the calls on one key. Key is as the caller wrote it.
	Value struct {
		Key   string
		Value []byte
	}

	// Entries answers GetKeyValueDir, ascending by key.
	Entries struct{ Entries []Entry }

	// Changes answers WatchKeys: the present state of the keys that changed since the revision
	// asked for, oldest change first. After a Reset it is everything that is there, and what the
	// watcher knew before is void.
	Changes struct {
		Revision int64
		Reset    bool
		Changes  []Change
	}

	// Sizes answers ListKeys, ascending by key.
	Sizes struct{ Keys []KeySize }

	// Picture answers WatchTasks and GetTaskState. One Picture is shared by all watchers of a
	// version and must not be changed. Version -1 says that the service has stopped.
	Picture struct {
		Version int64
		Tasks   []TaskInfo
	}

	// Alive answers GetAliveTasks: the tasks that are alive, sorted, their lives, and their words. The
	// lists have one entry for each task. It is shared by all callers.
	Alive struct {
		Tasks        []serry.TaskID
		Incarnations []serry.Incarnation
		Words        [][]byte
	}

	// Status answers GetStatus.
	Status struct{ View View }

	// AllDevices answers WaitForAllTasks.
	AllDevices struct{ Devices []byte }
)

func (Done) result()       {}
func (Registered) result() {}
func (Passed) result()     {}
func (Value) result()      {}
func (Entries) result()    {}
func (Changes) result()    {}
func (Sizes) result()      {}
func (*Picture) result()   {}
func (*Alive) result()     {}
func (Status) result()     {}
func (AllDevices) result() {}

// A Change is a key that was set or removed.
type Change struct {
	Entry
	Revision int64
	Deleted  bool
}

// A KeySize is a key with the size of its value in bytes.
type KeySize struct {
	Key  string `json:"key"`
	Size int64  `json:"size"`
}

// Entry and TaskInfo are words of package serry.
type (
	Entry    = serry.Entry
	TaskInfo = serry.TaskInfo
)
