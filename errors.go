package serry

import (
	"errors"
	"fmt"
	"strings"
)

// What can happen to a call, a task or a barrier. Every error that serry returns for a reason of
// its own wraps exactly one of these.
var (
	// Of the service as a whole.
	ErrStopped  = errors.New("the service has stopped")
	ErrStopping = errors.New("the service stopped while the call waited")
	ErrMismatch = errors.New("wrong service incarnation") // facts: MismatchError
	ErrLimit    = errors.New("limit reached")             // facts: LimitError
	ErrInvalid  = errors.New("invalid request")           // facts: InvalidError

	// Of the calling task.
	ErrUnknownTask   = errors.New("unknown task")
	ErrStale         = errors.New("incarnation was replaced by a newer one")
	ErrNotRegistered = errors.New("task is not registered")
	ErrNotConnected  = errors.New("task is not connected")
	ErrLeft          = errors.New("task has left")
	ErrSuperseded    = errors.New("a newer call of the same task took its place")
	ErrCancelled     = errors.New("cancelled")
	ErrTimeout       = errors.New("timed out")

	// Why a task is in state Failed; facts: TaskError.
	ErrTaskDead           = errors.New("task is dead")
	ErrReported           = errors.New("task reported an error")
	ErrRestarted          = errors.New("task came back with a different incarnation")
	ErrWrongBeat          = errors.New("heartbeat with a different incarnation")
	ErrPeerFailed         = errors.New("another task failed")
	ErrRegistrationFailed = errors.New("cluster registration failed")
	ErrShutdownFailed     = errors.New("shutdown barrier failed")
	ErrAlreadyFailed      = errors.New("task has already failed") // Reason is the stored error

	// Of barriers; facts: BarrierError.
	ErrCounter       = errors.New("barrier counters disagree")
	ErrMembers       = errors.New("barrier members disagree")
	ErrNoMembers     = errors.New("members must be named, the barrier is not one of all tasks")
	ErrNotMember     = errors.New("caller is not a member")
	ErrMemberFailed  = errors.New("a member had failed before")
	ErrMemberLost    = errors.New("a member was lost")
	ErrWithdrawn     = errors.New("arrival withdrawn, the member restarted")
	ErrAlreadyPassed = errors.New("barrier has already passed")
	ErrReservedName  = errors.New("barrier id is reserved")

	// Of keys; facts: KeyError.
	ErrExists    = errors.New("key already exists")
	ErrNotFound  = errors.New("key not found")
	ErrNotNumber = errors.New("value is not a number that can be incremented")
	ErrChanged   = errors.New("value is not the one expected")
)

// Sentinels returns all errors that stand for what happened, without facts. Journals know them by their
// place in this list: new ones come last.
func Sentinels() []error {
	return []error{
		ErrStopped, ErrStopping, ErrMismatch, ErrLimit, ErrInvalid,
		ErrUnknownTask, ErrStale, ErrNotRegistered, ErrNotConnected, ErrLeft,
		ErrSuperseded, ErrCancelled, ErrTimeout,
		ErrTaskDead, ErrReported, ErrRestarted, ErrWrongBeat, ErrPeerFailed,
		ErrRegistrationFailed, ErrShutdownFailed, ErrAlreadyFailed,
		ErrCounter, ErrMembers, ErrNoMembers, ErrNotMember, ErrMemberFailed,
		ErrMemberLost, ErrWithdrawn, ErrAlreadyPassed, ErrReservedName,
		ErrExists, ErrNotFound, ErrNotNumber, ErrChanged,
	}
}

// A TaskError says why a task failed. Err says what happened, and the other fields the facts that
// belong to it; Reason leads to the error that came first, so that the last error in a chain names the
// task to look at.
type TaskError struct {
	Task        TaskID
	Incarnation Incarnation
	Evidence    string      // of a dead task: what was seen, "process exited: signal 9"; empty for silence
	Code        int         // of a reported error: its gRPC code
	Text        string      // of a reported error: its text
	Was, Now    Incarnation // of ErrRestarted and ErrWrongBeat: the one known, the one that came
	Reason      error       // what brought Err about, or nil: the failure of a peer, the stored error
	Err         error       // a sentinel of this package
}

func (e *TaskError) Error() string {
	switch {
	case e.Evidence != "":
		return fmt.Sprintf("task %v: %v: %s", e.Task, e.Err, e.Evidence)
	case errors.Is(e.Err, ErrReported):
		return fmt.Sprintf("task %v: %v: code %d: %s", e.Task, e.Err, e.Code, e.Text)
	case e.Reason != nil:
		return fmt.Sprintf("task %v: %v: %v", e.Task, e.Err, e.Reason)
	}
	return fmt.Sprintf("task %v: %v", e.Task, e.Err)
}

// Unwrap makes the sentinel visible to errors.Is.
func (e *TaskError) Unwrap() error { return e.Err }

// A LostError names tasks that were declared dead together, such as all tasks of a host that went
// silent.
type LostError struct {
	Lost []*TaskError // sorted by task, never empty
}

func (e *LostError) Error() string {
	texts := make([]string, len(e.Lost))
	for i, t := range e.Lost {
		texts[i] = t.Error()
	}
	return strings.Join(texts, "; ")
}

// Unwrap makes ErrTaskDead visible to errors.Is.
func (e *LostError) Unwrap() error { return ErrTaskDead }

// A BarrierError says which barrier failed, why, and who was missing.
type BarrierError struct {
	ID      string
	Counter int64    // number of the instance at the service
	Sent    int64    // of ErrCounter: the caller's number
	Task    TaskID   // of ErrMemberLost, ErrCancelled, ErrCounter, ErrMembers, ErrNotMember: who
	First   TaskID   // who arrived first, or zero
	Missing []TaskID // who had not arrived, sorted; of ErrTimeout
	Arrived int
	Members int
	Reason  error // what brought Err about, or nil: the failure of the member that was lost
	Err     error // a sentinel of this package
}

func (e *BarrierError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "barrier %q: %v", e.ID, e.Err)
	if !e.Task.IsZero() {
		fmt.Fprintf(&b, ": %v", e.Task)
	}
	if len(e.Missing) > 0 {
		fmt.Fprintf(&b, ", missing %v", e.Missing)
	}
	if e.Reason != nil {
		fmt.Fprintf(&b, ": %v", e.Reason)
	}
	return b.String()
}

// Unwrap makes the sentinel visible to errors.Is.
func (e *BarrierError) Unwrap() error { return e.Err }

// A KeyError says which key a key-value call failed for, as the caller wrote it.
type KeyError struct {
	Key   string
	Value string // of ErrNotNumber: what is stored, shortened
	Err   error  // ErrExists, ErrNotFound, ErrNotNumber
}

func (e *KeyError) Error() string { return fmt.Sprintf("key %q: %v", e.Key, e.Err) }

// Unwrap makes the sentinel visible to errors.Is.
func (e *KeyError) Unwrap() error { return e.Err }

// A LimitError says which limit a call would have passed. It is told to the caller alone, and nothing
// has changed: the call may be repeated when there is room.
type LimitError struct {
	Limit string // its name, as in the settings
	Max   int64
}

func (e *LimitError) Error() string { return fmt.Sprintf("limit reached: %s is %d", e.Limit, e.Max) }

// Unwrap makes ErrLimit visible to errors.Is.
func (e *LimitError) Unwrap() error { return ErrLimit }

// A MismatchError says that a call names another epoch of the service than the present one. Its sender
// belongs to an earlier run of the job, and must end.
type MismatchError struct {
	Requested, Current Incarnation
}

func (e *MismatchError) Error() string {
	return fmt.Sprintf("wrong service incarnation: requested %d, currently %d", e.Requested, e.Current)
}

// Unwrap makes ErrMismatch visible to errors.Is.
func (e *MismatchError) Unwrap() error { return ErrMismatch }

// An InvalidError says what is wrong with a request. The same request will be refused again.
type InvalidError struct {
	What string // "key contains a NUL byte"
}

func (e *InvalidError) Error() string { return "invalid request: " + e.What }

// Unwrap makes ErrInvalid visible to errors.Is.
func (e *InvalidError) Unwrap() error { return ErrInvalid }
