package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/serry-dev/serry/wire/rpc"
	"github.com/serry-dev/serry/wire/xlapb"
)

// The calls that have rules of their own.
const (
	registerTask = xlapb.CoordinationService_RegisterTask_FullMethodName
	heartbeat    = xlapb.CoordinationService_Heartbeat_FullMethodName
	pollForError = xlapb.CoordinationService_PollForError_FullMethodName
	shutdownTask = xlapb.CoordinationService_ShutdownTask_FullMethodName
)

// The payloads that make a difference, by their names in the details of a status.
var (
	signature = []byte("tensorflow.CoordinationServiceError") // the service made this error
	mismatch  = []byte("tensorflow.ServiceMismatchError")     // the caller means another service
)

// deadly says whether a client whose call ended so ends its process. For heartbeats that is after all
// attempts.
func deadly(method string, st rpc.Status, err error) bool {
	switch {
	case err == nil && bytes.Contains(st.Details, mismatch):
		return true // A-TOL-1
	case method == pollForError:
		return err != nil || st.Code != codes.Canceled
	case method == heartbeat || method == shutdownTask:
		return err != nil || !st.OK()
	}
	return false
}

// again says whether a heartbeat that ended so is tried again (agent.md 1.2).
func again(st rpc.Status, err error) bool {
	if err != nil {
		return !errors.Is(err, context.DeadlineExceeded)
	}
	return st.Code == codes.Unavailable || st.Code == codes.Unknown
}

// refused says whether a client that registers and is answered so gives up at once: the service signed
// the error, and it is not one of the two that pass.
func refused(st rpc.Status) bool {
	return bytes.Contains(st.Details, signature) && st.Code != codes.Aborted && st.Code != codes.Internal
}

// failure is what went wrong with a call, or nil. A call without an answer is UNAVAILABLE to a real
// client.
func failure(st rpc.Status, err error) error {
	switch {
	case err != nil:
		return fmt.Errorf("no answer: %w", err)
	case !st.OK():
		return status.Error(st.Code, st.Message)
	}
	return nil
}

// marshal writes a message that is well-formed by construction.
func marshal(m proto.Message) []byte {
	b, err := proto.Marshal(m)
	if err != nil {
		panic(fmt.Sprintf("marshal %v: %v", m, err))
	}
	return b
}
