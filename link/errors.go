package link

import (
	"errors"
	"fmt"

	"github.com/serry-dev/serry"
)

// What can happen to a link, a message or a call. Every error of this package wraps one of these, or one
// of package serry.
var (
	ErrPeerFailed = errors.New("peer has failed")               // facts: LossError
	ErrTransport  = errors.New("the link to the peer broke")    // facts: LossError
	ErrClosed     = errors.New("link is closed")                // facts: LossError
	ErrRefused    = errors.New("peer refused the connection")   // facts: RefusedError
	ErrCongested  = errors.New("peer takes no more frames")     // the frame was not sent
	ErrSize       = errors.New("message has another size")      // than the memory posted for it
	ErrDamaged    = errors.New("payload checksum is wrong")     // of a message; the link breaks by it
	ErrCancelled  = errors.New("message was cancelled")         // by Ticket.Cancel
	ErrNoSecret   = errors.New("no job secret")                 // and an address that needs one
	ErrNoAddress  = errors.New("no address that peers can use") // to publish, or to dial
)

// A Source names the part of the job that found the loss of a peer.
type Source int

// The sources.
const (
	FromLink     Source = iota // its connections, or silence on them
	FromService                // the coordination service
	FromLauncher               // a launcher or relay that saw the process end, through the service
	FromSelf                   // this process closed the link

	sources // how many there are
)

// String names the source.
func (s Source) String() string {
	return [...]string{"link", "service", "launcher", "this process"}[s]
}

// A LossError says why a link is down. Everything that was on the link, and every later call on it, fails
// with the same.
type LossError struct {
	Peer   serry.Life
	Source Source
	Reason error // what was seen
	Err    error // ErrPeerFailed, ErrTransport or ErrClosed
}

func (e *LossError) Error() string {
	return fmt.Sprintf("link to %v: %v: %v", e.Peer.Task, e.Err, e.Reason)
}

// Unwrap makes the sentinel and the reason visible to errors.Is.
func (e *LossError) Unwrap() []error { return []error{e.Err, e.Reason} }

// A RefusedError says why a peer took no connection.
type RefusedError struct {
	Peer serry.Life
	Code Refusal
	Text string // as the peer said it, or empty
}

func (e *RefusedError) Error() string {
	text := fmt.Sprintf("link to %v: %v: %v", e.Peer.Task, ErrRefused, e.Code)
	if e.Text != "" {
		text += ": " + e.Text
	}
	return text
}

// Unwrap makes ErrRefused visible to errors.Is, and that a life is over.
func (e *RefusedError) Unwrap() []error {
	if e.Code == Stale || e.Code == Replaced {
		return []error{ErrRefused, serry.ErrStale}
	}
	return []error{ErrRefused}
}
