package wire

import (
	"encoding/base64"
	"errors"
	"fmt"
	"reflect"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/lab/clause"
)

// Every answer comes back as the sentinel it was made from.
func TestErrorIsTheSame(t *testing.T) {
	clause.Cite(t, "C-WIRE-7", "C-WIRE-17")
	for _, d := range []Dialect{XLA, TF} {
		for i, c := range answerCases {
			if c.err == errNoMethod || c.err == errNotATask || c.err == serviceNotReady {
				continue // of the wire alone
			}
			t.Run(fmt.Sprintf("%v/%s#%d", d, c.clause, i), func(t *testing.T) {
				st := shapeOf(d, c.op).Refuse(c.err)
				want := c.err
				if inner := errors.Unwrap(want); inner != nil {
					want = inner
				}
				if got := d.Error(st.Code, st.Message, st.Details); !errors.Is(got, want) {
					t.Errorf("Error(%v, %q) = %v; want %v", st.Code, st.Message, got, want)
				}
			})
		}
	}
}

// Facts come back, too, but for those that no text says.
func TestErrorHasTheFacts(t *testing.T) {
	clause.Cite(t, "C-BAR-15", "C-LOST-1", "C-INC-2")
	for _, err := range []error{
		timedOut,
		lostAt,
		mixedDeaths,
		bothSilent,
		restarted,
		wrongBeat,
		reported,
		already(deadSeen),
		&serry.TaskError{Reason: timedOut, Err: serry.ErrShutdownFailed},
		&serry.TaskError{Reason: serry.ErrLeft, Err: serry.ErrShutdownFailed},
		&serry.TaskError{Reason: mixedDeaths, Err: serry.ErrPeerFailed},
		&serry.BarrierError{ID: "a: b. c", Counter: 3, Sent: 7, Task: worker(2), Err: serry.ErrCounter},
		&serry.KeyError{Key: "a already exists. b", Err: serry.ErrExists},
		&serry.KeyError{Key: "a", Err: serry.ErrNotFound},
		&serry.LimitError{Limit: "keys", Max: 12},
		&serry.InvalidError{What: "key contains a NUL byte"},
		&serry.MismatchError{Requested: 3, Current: 1<<64 - 1},
	} {
		for _, d := range []Dialect{XLA, TF} {
			op := opPoll
			if errors.Is(err, serry.ErrAlreadyFailed) {
				op = opHeartbeat
			}
			st := shapeOf(d, op).Refuse(err)
			if got := d.Error(st.Code, st.Message, st.Details); !reflect.DeepEqual(got, err) {
				t.Errorf("%v: Error(%v, %q) = %T %v; want %T %v, the same in every field", d, st.Code, st.Message, got, got, err, err)
			}
		}
	}
}

func unbase(t *testing.T, s string) []byte {
	t.Helper()
	b, err := base64.RawStdEncoding.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Servers of another make say it in words of their own, and only the container travels.
func TestErrorFromOtherServers(t *testing.T) {
	clause.Cite(t, "C-WIRE-14", "C-WIRE-9", "ER-6", "GU-2")
	p0 := unbase(t, "CjsKN3R5cGUuZ29vZ2xlYXBpcy5jb20vdGVuc29yZmxvdy5Db29yZGluYXRpb25TZXJ2aWNlRXJyb3ISAA")
	pb := unbase(t, "CjUKK3R5cGUuZ29vZ2xlYXBpcy5jb20vdGVuc29yZmxvdy5CYXJyaWVyRXJyb3ISBgoCYjEQAwo7Cjd0eXBlLmdvb2dsZWFwaXMuY29tL3RlbnNvcmZsb3cuQ29vcmRpbmF0aW9uU2VydmljZUVycm9yEgA")
	pm := unbase(t, "CjsKN3R5cGUuZ29vZ2xlYXBpcy5jb20vdGVuc29yZmxvdy5Db29yZGluYXRpb25TZXJ2aWNlRXJyb3ISAApACjN0eXBlLmdvb2dsZWFwaXMuY29tL3RlbnNvcmZsb3cuU2VydmljZU1pc21hdGNoRXJyb3ISCQkIBwYFBAMCAQ")
	reported7 := unbase(t, "Cj8KN3R5cGUuZ29vZ2xlYXBpcy5jb20vdGVuc29yZmxvdy5Db29yZGluYXRpb25TZXJ2aWNlRXJyb3ISBBgBIAc")
	for _, c := range []struct {
		code    codes.Code
		text    string
		details []byte
		want    error
	}{
		{codes.DeadlineExceeded, "Barrier timed out. Id: b1::3. This usually happens because one or more tasks are missing.", pb, &serry.BarrierError{ID: "b1", Counter: 3, Err: serry.ErrTimeout}},
		{codes.Internal, "Barrier failed because: Task 1 went away", pb, &serry.BarrierError{ID: "b1", Counter: 3, Err: serry.ErrMemberLost}},
		{codes.Internal, "some other words, wrong service incarnation", pm, &serry.MismatchError{Current: 0x0102030405060708}},
		{codes.FailedPrecondition, "loss is NaN", reported7, &serry.TaskError{Task: worker(7), Code: 9, Text: "loss is NaN", Err: serry.ErrReported}},
		{codes.NotFound, "Config key x not found.", p0, &serry.KeyError{Key: "x", Err: serry.ErrNotFound}},
		{codes.Unavailable, "connection refused", nil, status.Error(codes.Unavailable, "connection refused")},
		{codes.DeadlineExceeded, "Barrier timed out", []byte{0xff}, status.Error(codes.DeadlineExceeded, "Barrier timed out")},
	} {
		got := XLA.Error(c.code, c.text, c.details)
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("Error(%v, %q) = %T %+v; want %T %+v", c.code, c.text, got, got, c.want, c.want)
		}
	}
	if err := TF.Error(codes.OK, "", nil); err != nil {
		t.Errorf("Error(OK) = %v; want nil", err)
	}
}
