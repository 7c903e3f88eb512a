package server

import (
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/internal/seldom"
)

// handshakesKept is how many pairs of host and reason are logged in handshakesFor. A scanner of the network has
// a thousand addresses.
const (
	handshakesKept = 256
	handshakesFor  = 10 * time.Minute
)

// refusals logs connections that ended in their TLS handshake: where they came from, and why.
type refusals struct {
	log *slog.Logger

	mu struct {
		sync.Mutex
		logged seldom.Limit[refusedPeer]
	}
}

// A refusedPeer is a host, without the port, and the reason why it was refused.
type refusedPeer struct{ host, reason string }

// newRefusals makes a log of refusals that is empty.
func newRefusals(log *slog.Logger) *refusals {
	r := &refusals{log: log}
	r.mu.logged = seldom.Limit[refusedPeer]{Period: handshakesFor, Most: handshakesKept}
	return r
}

// add takes a handshake that failed.
func (r *refusals) add(peer net.Addr, err error) {
	if r.first(refusedPeer{hostOf(peer), reasonOf(err)}) {
		r.log.Warn("connection refused", "peer", peer, "err", err)
	}
}

// reasonOf is the text of an error of a connection without its addresses: their ports change with every connection, and a
// peer that connects again and again would take the place of all others in the log.
func reasonOf(err error) string {
	if op, ok := errors.AsType[*net.OpError](err); ok {
		err = op.Err
	}
	return err.Error()
}

// first says whether p is to be logged. Handshakes end on goroutines of their own, so this is the one place that
// holds the lock, and the log is written after it.
func (r *refusals) first(p refusedPeer) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.logged.Pick(p)
}

// hostOf is an address without its port, which changes with every connection of a peer.
func hostOf(peer net.Addr) string {
	host, _, err := net.SplitHostPort(peer.String())
	if err != nil {
		return peer.String() // no port to leave out
	}
	return host
}

// callsKept is how many refused calls are noted in callsFor. The history has room for notesKept notes of all
// sorts, and refusals must not push out what else happened. The period is short, so that a person who tries
// again sees that it was refused again.
const (
	callsKept = 16
	callsFor  = time.Minute
)

// A refusedCall is what the notes of a client that tries again have in common. Its incarnation is not part of it: a
// process that is started again and again has another one each time.
type refusedCall struct {
	host  string
	task  serry.TaskID
	cause error
}

// newRefusedCalls makes the limit of notes about refused calls. The owner alone uses it, so it has no lock.
func newRefusedCalls() seldom.Limit[refusedCall] {
	return seldom.Limit[refusedCall]{Period: callsFor, Most: callsKept}
}

// noteRefusal tells people of a process that is turned away: its number is not one of the job, another process
// has the number, its attempt is over, or its certificate does not name it. The process itself learns it from the reply. A person
// who looks at the job does not see what that process prints. The note comes after those of the machine, so a failure
// that the call has caused is told before it.
func (o *owner) noteRefusal(err error, k coord.Kind, caller coord.Call, p *peer) {
	cause := refusalCause(err, k)
	if cause == nil {
		return
	}
	address := p.conn.RemoteAddr()
	if !o.refused.Pick(refusedCall{hostOf(address), caller.Task, cause}) {
		return
	}
	n := coord.Note{What: "call refused", Task: caller.Task, Incarnation: caller.Incarnation, Err: err, From: addressText(address)}
	if k == coord.KindRegisterTask {
		n.What = "registration refused"
	}
	o.note(n)
}

// refusalCause is the sentinel behind a reply that turns its caller away, or nil if the reply does not. Of a
// registration that is every error but the end of the service, of other calls only that the caller has been
// replaced or belongs to an attempt that is over: all other errors are about what the call asks for.
func refusalCause(err error, k coord.Kind) error {
	switch {
	case err == nil, errors.Is(err, serry.ErrStopped):
		return nil
	case errors.Is(err, serry.ErrStale):
		return serry.ErrStale
	case errors.Is(err, serry.ErrMismatch):
		return serry.ErrMismatch
	case k != coord.KindRegisterTask:
		return nil
	}
	if _, ok := errors.AsType[errNotBound](err); ok {
		return errOtherTask
	}
	for _, cause := range serry.Sentinels() {
		if errors.Is(err, cause) {
			return cause
		}
	}
	return nil
}

// errOtherTask stands for every errNotBound, whose text names the task.
var errOtherTask = errors.New("certificate of another task")

// addressText prints an address. That of a client on a Unix socket has no name.
func addressText(a net.Addr) string {
	if text := a.String(); text != "" && text != "@" {
		return text
	}
	return a.Network() + " socket"
}
