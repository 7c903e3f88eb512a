package coord

import (
	"time"

	"github.com/serry-dev/serry"
)

// Time is service time: how long the service has been leading this job, outages left out. It goes
// on from the last journaled value when a successor takes over, so every deadline is extended by
// the outage, and no barrier times out because its leader was gone.
type Time time.Duration

// An Event is one thing that happens to a [Machine]: a call of a client, a verdict of the
// detectors, an order of the owner, or only the passing of time. Its [Kind] says which one.
// Events are plain values: they print, compare and can be written to a journal.
type Event interface{ kind() Kind }

// A Req is the owner's handle for a call that wants a reply. The machine gives it back in the
// [Reply] and looks at it in no other way. Zero wants no reply.
type Req uint64

// A RequestID makes a call that is sent again the same call (C-REQ-1): it takes effect once, and
// every copy gets the same answer. Zero means none; stock clients send none.
type RequestID struct {
	Requester uint64
	Number    uint64 // ascends from 1
	Watermark uint64 // every number up to here was answered, and the answer has arrived (C-REQ-3)
}

// A Call is the part that all calls of clients have: how to answer, and which life asks.
type Call struct {
	Req         Req
	ID          RequestID
	Service     serry.Incarnation // the service incarnation the caller knows; 0: none given
	Task        serry.TaskID      // the calling task; zero: the call names none
	Incarnation serry.Incarnation // the caller's own; 0: none given

	// Replayed calls come from a journal, so they were taken. Limits on waiting calls do not
	// refuse them: most of what waited then left no record.
	Replayed bool
}

// Calls of clients. The names follow the methods of the wire dialects.
type (
	// RegisterTask makes the caller a member of the job. It is answered at once, or when all
	// tasks have come, if the job begins with a barrier (C-REG-8). Next is the service
	// incarnation of the epoch that this call may open (C-EPOCH-4): a fresh random number, drawn
	// outside because the machine has no randomness.
	RegisterTask struct {
		Call
		Recoverable bool
		Next        serry.Incarnation
	}

	// Heartbeat is a heartbeat that the owner could not answer from its table (C-HB-8). Nearly
	// all heartbeats are good ones and never become an event.
	Heartbeat struct{ Call }

	// ShutdownTask is a polite end. With a shutdown timeout it waits until all tasks that cannot
	// come back have called it (C-SHUT-3). Recoverable is the flag of this request (C-SHUT-1).
	ShutdownTask struct {
		Call
		Recoverable bool
	}

	// ResetTask disconnects the caller, without any barrier, so that it can register again.
	ResetTask struct{ Call }

	// ReportError puts the caller in state Failed with an error of its own words, which the other
	// tasks hear like any failure.
	ReportError struct {
		Call
		Code int // a gRPC code
		Text string
	}

	// PollForError waits for the first error of the job. It never succeeds: a client that hears
	// its end knows that the job, or its own membership, is over.
	PollForError struct{ Call }

	// WatchTasks waits for a version other than Version, and answers at once if the job has
	// another one already. A negative Version asks for the present. Job restricts the picture to
	// one job; empty means all.
	WatchTasks struct {
		Call
		Version int64
		Job     string
	}

	// GetTaskState asks for the state of some tasks, answered in their order. It never waits.
	GetTaskState struct {
		Call
		Tasks []serry.TaskID
	}

	// InsertKeyValue stores a value. Without Overwrite a key that exists is refused with
	// ErrExists, and its value stays.
	InsertKeyValue struct {
		Call
		Key       string
		Value     []byte
		Overwrite bool
	}

	// GetKeyValue waits until the key has a value. It has no timeout here: the caller gives up by
	// cancelling the call.
	GetKeyValue struct {
		Call
		Key string
	}

	// TryGetKeyValue asks for a value that is there, or hears ErrNotFound.
	TryGetKeyValue struct {
		Call
		Key string
	}

	// IncrementKeyValue adds to a decimal number and returns the sum; an absent key counts as 0.
	IncrementKeyValue struct {
		Call
		Key string
		By  int64
	}

	// GetKeyValueDir lists everything below a directory, with values. The empty directory has
	// nothing below it, as in the reference service; see ListKeys.
	GetKeyValueDir struct {
		Call
		Dir string
	}

	// DeleteKeyValue removes a key and everything below it. That there is nothing is no error.
	DeleteKeyValue struct {
		Call
		Key string
	}

	// SwapKeyValue stores New if the present value is Old, and is refused with ErrChanged if it
	// is not. A nil Old stands for an absent key.
	SwapKeyValue struct {
		Call
		Key      string
		Old, New []byte
	}

	// WatchKeys waits until something below Dir changes after the revision After. A negative
	// After asks for everything that is there now. The answer says the revision to ask with next,
	// so a watcher misses nothing. The empty directory has every key in it.
	WatchKeys struct {
		Call
		Dir   string
		After int64
	}

	// ListKeys asks which keys there are below Dir and how large their values are. The empty
	// directory has every key in it.
	ListKeys struct {
		Call
		Dir string
	}

	// Barrier waits until all members have called it. No Tasks means all tasks of the job.
	// Counter is the number of the instance as the caller counts, from 0. Timeout counts from the
	// first call of an instance, whose Timeout is the one that counts. Recoverable is the flag of
	// this request (C-BAR-4).
	Barrier struct {
		Call
		ID          string
		Counter     int64
		Timeout     time.Duration
		Tasks       []serry.TaskID
		Recoverable bool
	}

	// CancelBarrier ends an open barrier for all its members.
	CancelBarrier struct {
		Call
		ID      string
		Counter int64
	}

	// GetAliveTasks waits until every connected task of the set has called it with the same set,
	// and tells all of them which tasks were alive. Word is handed to all of them (C-ALIVE-8).
	GetAliveTasks struct {
		Call
		Tasks []serry.TaskID
		Word  []byte
	}

	// Suspect says what the caller saw of a peer. Hard evidence, such as the exit of its process,
	// acts at once; of other evidence a Note is made, and the verdict is left to the detectors.
	Suspect struct {
		Call
		Peer     serry.Life
		Hard     bool
		Evidence string

		DropsResults bool // see [Lost]
	}

	// GetStatus asks for a View.
	GetStatus struct{ Call }

	// WaitForAllTasks waits for all tasks and joins their descriptions of their devices. Devices
	// is a serialized message; messages of one type are joined by putting their bytes in a row.
	WaitForAllTasks struct {
		Call
		Devices []byte
	}
)

// Events that only the owner of the machine sends.
type (
	// Tick lets time pass: deadlines up to the present fire. Every event does that; Tick does
	// nothing else.
	Tick struct{}

	// Cancel says that no caller waits for the reply to a call any more (C-WIRE-6): the client
	// gave up, or its connection closed. What the call did stays done.
	Cancel struct{ Req Req }

	// Lost is the verdict of the detectors: these incarnations are dead (C-LOST-1). It is one
	// event for all that were found together, so that the job hears one error which names them
	// all.
	//
	// DropsResults is set in records that an older machine wrote, and in no others. For that
	// machine a verdict also ended the request ids of the lost, so that a call which one of them
	// repeated acted once more. Replay must come to the state that clients saw, so it does the
	// same.
	Lost struct {
		Tasks        []Loss
		DropsResults bool
	}

	// Exited says that the processes of these incarnations ended well. A task that did not say
	// goodbye has left all the same: it counts as arrived at the shutdown barrier (A-TF-7).
	Exited struct{ Tasks []serry.Life }

	// Departed says that no call of these incarnations is expected any more (C-EPOCH-3). Like a
	// loss it may be a mistake, and keeps the results of their calls. For DropsResults see
	// [Lost].
	Departed struct {
		Tasks        []serry.Life
		DropsResults bool
	}

	// Acknowledge frees the results of a requester up to its watermark, because they have
	// arrived; with Farewell all of them (C-REQ-3).
	Acknowledge struct {
		Requester uint64
		Watermark uint64
		Farewell  bool
	}

	// OpenEpoch ends the present epoch whatever its state and opens the next (C-EPOCH-2c). It is
	// how a launcher begins the next attempt of a job. A nil Jobs keeps the present ones.
	OpenEpoch struct {
		Service serry.Incarnation
		Jobs    []Job
	}

	// Stop ends the service: every call is answered (C-STOP-1), and calls that come later hear
	// that the service has stopped. Keys stay readable.
	Stop struct{}

	// Resume follows a restart: waiters are forgotten without a reply, because their connections
	// are gone, and arrivals are kept (C-LOG-3).
	Resume struct{}
)

// A Loss is a verdict on one life of a task. Evidence is what was seen, in words that reach every
// survivor, such as "process exited: signal 9"; empty means silence, a heartbeat that did not
// come.
type Loss struct {
	serry.Life
	Evidence string
}
