package agent

import (
	"fmt"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/internal/lab/stock"
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

// kinds has the calls of which the end can end a process. The other calls have kind 0: only the word that
// the service is another one ends a process by them.
var kinds = map[string]coord.Kind{
	heartbeat:    coord.KindHeartbeat,
	pollForError: coord.KindPollForError,
	shutdownTask: coord.KindShutdownTask,
}

// seen is the status that a real client sees of a call.
func seen(st rpc.Status, err error) rpc.Status {
	if err != nil {
		return stock.Unanswered(err)
	}
	return st
}

// failure is what went wrong with a call, or nil.
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
