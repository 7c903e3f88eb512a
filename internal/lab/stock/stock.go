// Package stock has the rules by which the client in jaxlib lives and dies (agent.md 1.2 to 1.5): which
// ends of which calls end its process, and what it tries again. The imitations of that client follow
// them, over a simulated network in internal/lab/storm and over sockets in bench.
package stock

import (
	"bytes"
	"context"
	"errors"

	"google.golang.org/grpc/codes"

	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/wire/rpc"
)

// The payloads that make a difference, by their names in the details of a status.
var (
	signature = []byte("tensorflow.CoordinationServiceError") // the service made this error
	mismatch  = []byte("tensorflow.ServiceMismatchError")     // the caller means another service
)

// Late is the status of a call whose deadline passed before its reply.
var Late = rpc.Status{Code: codes.DeadlineExceeded, Message: "Deadline Exceeded"}

// Unanswered is the status that the client sees of a call that ended with err and without a reply.
func Unanswered(err error) rpc.Status {
	if errors.Is(err, context.DeadlineExceeded) {
		return Late
	}
	return rpc.Status{Code: codes.Unavailable, Message: err.Error()}
}

// Ends says whether a client whose call of that kind ended with st ends its process. For heartbeats that is
// after all attempts.
func Ends(kind coord.Kind, st rpc.Status) bool {
	switch {
	case kind == coord.KindRegisterTask:
		return bytes.Contains(st.Details, signature) && st.Code != codes.Aborted && st.Code != codes.Internal // A-CON-4
	case bytes.Contains(st.Details, mismatch):
		return true // A-TOL-1
	case kind == coord.KindPollForError:
		return st.Code != codes.Canceled
	case kind == coord.KindHeartbeat || kind == coord.KindShutdownTask:
		return !st.OK()
	}
	return false
}

// BeatsAgain says whether the client sends a heartbeat that ended with st once more (agent.md 1.2).
func BeatsAgain(st rpc.Status) bool {
	return st.Code == codes.Unavailable || st.Code == codes.Unknown
}
