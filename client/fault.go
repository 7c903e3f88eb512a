package client

import (
	"errors"
	"fmt"
	"slices"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/wire"
)

// ErrUnsupported says that the service, a stock one, does not offer a call.
var ErrUnsupported = wire.ErrUnsupported

// ErrInUse says that a call for the same barrier is still open in this member.
var ErrInUse = errors.New("a call for this barrier is still open")

// ErrNotOpen says that no call for a barrier that should be cancelled is open in this member.
var ErrNotOpen = errors.New("no call for this barrier is open")

// ErrUncertain says that the service went away while a call was under way which must not be sent
// twice, so that the caller cannot know whether it took effect. Only calls to stock services end so.
var ErrUncertain = errors.New("the service went away, and the call may or may not have taken effect")

// A Fault is why a member was lost.
type Fault struct {
	Kind FaultKind
	Err  error
}

// A FaultKind says whose fault it was.
type FaultKind int

// The kinds of faults.
const (
	FaultPeer          FaultKind = iota + 1 // another task failed, and the job shares its fate
	FaultSelf                               // the service refuses us: replaced, unknown, or failed
	FaultServerChanged                      // the service is another one now, with another job
	FaultSilence                            // no word from the service for too long
	FaultLocal                              // we left, failed by our own word, or closed
)

// String is a few words.
func (k FaultKind) String() string {
	switch k {
	case FaultPeer:
		return "another task failed"
	case FaultSelf:
		return "the service refuses us"
	case FaultServerChanged:
		return "the service has changed"
	case FaultSilence:
		return "the service is silent"
	case FaultLocal:
		return "membership ended here"
	}
	return fmt.Sprintf("fault %d", int(k))
}

func (f *Fault) Error() string { return fmt.Sprintf("%v: %v", f.Kind, f.Err) }

// Unwrap gives the cause.
func (f *Fault) Unwrap() error { return f.Err }

// judge makes the fault out of an error that the service sent to the task me. All survivors of a
// failure hear the same: that we failed because another did, is told by what happened to the other.
func judge(me serry.TaskID, err error) *Fault {
	kind := FaultPeer
	for {
		var t *serry.TaskError
		if !errors.As(err, &t) || t.Reason == nil || t.Err != serry.ErrAlreadyFailed && t.Err != serry.ErrPeerFailed {
			break
		}
		if t.Err == serry.ErrPeerFailed {
			return &Fault{Kind: FaultPeer, Err: t.Reason}
		}
		if t.Task == me {
			kind = FaultSelf
		}
		err = t.Reason
	}
	var task *serry.TaskError
	var lost *serry.LostError
	switch {
	case errors.Is(err, serry.ErrMismatch):
		kind = FaultServerChanged
	case errors.Is(err, serry.ErrShutdownFailed), errors.Is(err, serry.ErrRegistrationFailed):
		kind = FaultPeer
	case errors.As(err, &task):
		kind = blame(task.Task == me)
	case errors.As(err, &lost):
		kind = blame(slices.ContainsFunc(lost.Lost, func(t *serry.TaskError) bool { return t.Task == me }))
	case errors.Is(err, serry.ErrStale), errors.Is(err, serry.ErrUnknownTask), errors.Is(err, serry.ErrNotRegistered):
		kind = FaultSelf
	}
	return &Fault{Kind: kind, Err: err}
}

func blame(us bool) FaultKind {
	if us {
		return FaultSelf
	}
	return FaultPeer
}
