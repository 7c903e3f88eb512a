package stock

import (
	"context"
	"errors"
	"net"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/wire/rpc"
)

const (
	p0 = "type.googleapis.com/tensorflow.CoordinationServiceError"
	pm = "type.googleapis.com/tensorflow.ServiceMismatchError"
)

// What ends a client's process, case by case.
func TestEnds(t *testing.T) {
	broken := Unanswered(errors.New("connection reset"))
	signed := func(c codes.Code) rpc.Status { return rpc.Status{Code: c, Details: []byte(p0)} }
	for _, tc := range []struct {
		name string
		kind coord.Kind
		st   rpc.Status
		want bool
	}{
		{"A-DIE-3: a poll whose connection broke", coord.KindPollForError, broken, true},
		{"a poll answered UNAVAILABLE without payload", coord.KindPollForError, rpc.Status{Code: codes.Unavailable}, true},
		{"a poll answered with the death of another", coord.KindPollForError, signed(codes.Unavailable), true},
		{"a poll answered OK", coord.KindPollForError, rpc.Status{}, true},
		{"a poll told to be quiet", coord.KindPollForError, signed(codes.Canceled), false},
		{"a heartbeat that failed", coord.KindHeartbeat, rpc.Status{Code: codes.Canceled}, true},
		{"A-TOL-3: a heartbeat too late", coord.KindHeartbeat, Late, true},
		{"a heartbeat", coord.KindHeartbeat, rpc.Status{}, false},
		{"A-DIE-4: a shutdown that failed", coord.KindShutdownTask, rpc.Status{Code: codes.Unavailable}, true},
		{"a shutdown", coord.KindShutdownTask, rpc.Status{}, false},
		{"A-TOL-1: another service", coord.KindGetKeyValue, rpc.Status{Code: codes.Internal, Details: []byte(p0 + pm)}, true},
		{"a get that failed", coord.KindGetKeyValue, rpc.Status{Code: codes.Unavailable}, false},
		{"a watch without an answer", coord.KindWatchTasks, broken, false},
		{"R-12: a registration refused by the service", coord.KindRegisterTask, signed(codes.InvalidArgument), true},
		{"R-12: a registration refused by the network", coord.KindRegisterTask, rpc.Status{Code: codes.InvalidArgument}, false},
		{"R-11: a registration aborted", coord.KindRegisterTask, signed(codes.Aborted), false},
		{"R-11: a registration with an internal error", coord.KindRegisterTask, signed(codes.Internal), false},
		{"a registration", coord.KindRegisterTask, rpc.Status{}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := Ends(tc.kind, tc.st); got != tc.want {
				t.Errorf("Ends(%v, %v) = %v; want %v", tc.kind, tc.st, got, tc.want)
			}
		})
	}
}

func TestBeatsAgain(t *testing.T) {
	for _, tc := range []struct {
		name string
		st   rpc.Status
		want bool
	}{
		{"refused", rpc.Status{Code: codes.Unavailable}, true},
		{"unknown", rpc.Status{Code: codes.Unknown}, true},
		{"no answer", Unanswered(net.ErrClosed), true},
		{"too late", Unanswered(context.DeadlineExceeded), false},
		{"aborted", rpc.Status{Code: codes.Aborted}, false},
	} {
		if got := BeatsAgain(tc.st); got != tc.want {
			t.Errorf("%s: BeatsAgain(%v) = %v; want %v", tc.name, tc.st, got, tc.want)
		}
	}
}
