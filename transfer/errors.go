package transfer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/transfer/internal/match"
)

// How a transfer can fail. Every [Error] wraps one of these.
var (
	ErrInvalid     = serry.ErrInvalid                     // the two sides disagree on what is moved, or a call makes no sense
	ErrExists      = serry.ErrExists                      // the key was used before
	ErrStale       = serry.ErrStale                       // of a life that is over
	ErrTimeout     = serry.ErrTimeout                     // a deadline has passed, or no byte came for long
	ErrCancelled   = serry.ErrCancelled                   // by the program of either side
	ErrDenied      = errors.New("not allowed")            // to pull an offer by another token
	ErrUnsupported = errors.New("not supported")          // of memory that the engine cannot move
	ErrLimit       = serry.ErrLimit                       // memory, or too many transfers
	ErrUnavailable = errors.New("peer is not reachable")  // its life is over, or its verdict did not come
	ErrAborted     = errors.New("transfers were stopped") // by Close
	ErrDamaged     = errors.New("data came damaged")      // more than once
	ErrFailed      = errors.New("transfer failed")        // for another reason, which the text of the error has
)

// sentinels has the errors that codes stand for, in the order in which a code is looked for.
var sentinels = []struct {
	code match.Code
	err  error
}{
	{match.Cancelled, ErrCancelled}, {match.Cancelled, context.Canceled},
	{match.Late, ErrTimeout}, {match.Late, context.DeadlineExceeded},
	{match.Invalid, ErrInvalid}, {match.Exists, ErrExists}, {match.Denied, ErrDenied}, {match.Unsupported, ErrUnsupported}, {match.Stale, ErrStale}, {match.Exhausted, ErrLimit},
	{match.Unavailable, ErrUnavailable}, {match.Aborted, ErrAborted}, {match.DataLoss, ErrDamaged}, {match.Internal, ErrFailed}, {match.Internal, ErrAbandoned},
}

// codeOf is the code by which the other side is told of an error.
func codeOf(err error) match.Code {
	for _, s := range sentinels {
		if errors.Is(err, s.err) {
			return s.code
		}
	}
	return match.Unknown
}

// sentinelOf is what a code stands for.
func sentinelOf(c match.Code) error {
	for _, s := range sentinels {
		if s.code == c {
			return s.err
		}
	}
	return ErrFailed
}

// An Error says how a transfer failed.
type Error struct {
	Send        bool // it is about the half that sends
	Key         Key
	Src, Dst    serry.DeviceID
	Peer        serry.Life // that has the other half
	Done, Bytes int64      // how many bytes had moved, and how many there are
	Path        Path       // by which they moved, or empty
	Elapsed     time.Duration
	Text        string // what happened

	// Unconfirmed is set where a sender did not hear in time how the receiver ended: it may have all data.
	// [Engine.Records] has the verdict once it is known.
	Unconfirmed bool

	Err error // a sentinel of this package

	code match.Code
}

func (e *Error) Error() string {
	verb := "receive"
	if e.Send {
		verb = "send"
	}
	by := ""
	if e.Path != "" {
		by = " by " + string(e.Path)
	}
	text := fmt.Sprintf("%s %v (device %d to %d, %v incarnation %d, %d of %d bytes%s, after %v): %v", verb, e.Key, e.Src, e.Dst,
		e.Peer.Task, e.Peer.Incarnation, e.Done, e.Bytes, by, e.Elapsed.Round(time.Millisecond), e.Err)
	if e.Unconfirmed {
		text += ", unconfirmed"
	}
	if e.Text != "" {
		text += ": " + e.Text
	}
	return text
}

// Unwrap makes the sentinel visible to errors.Is.
func (e *Error) Unwrap() error { return e.Err }
