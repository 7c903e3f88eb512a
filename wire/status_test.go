package wire

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/wire/rpc"
	"github.com/serry-dev/serry/wire/tfpb"
)

// The bytes that clients in the field were seen to read.
func TestTrailerVectors(t *testing.T) {
	clause.Cite(t, "C-WIRE-7", "ER-1", "ER-2", "ER-3", "ER-4", "ER-5")
	n, o := shapeOf(XLA, opPoll), shapeOf(TF, opPoll)
	for _, c := range []struct {
		name  string
		shape Shape
		p     payload
		facts facts
		want  string
	}{
		{"V1 no source", n, emptyPayload, facts{}, "CjsKN3R5cGUuZ29vZ2xlYXBpcy5jb20vdGVuc29yZmxvdy5Db29yZGluYXRpb25TZXJ2aWNlRXJyb3ISAA"},
		{"V2 reported", n, reportPayload, facts{task: worker(7)}, "Cj8KN3R5cGUuZ29vZ2xlYXBpcy5jb20vdGVuc29yZmxvdy5Db29yZGluYXRpb25TZXJ2aWNlRXJyb3ISBBgBIAc"},
		{"V3 not reported", o, taskPayload, facts{task: worker(1)}, "CkcKN3R5cGUuZ29vZ2xlYXBpcy5jb20vdGVuc29yZmxvdy5Db29yZGluYXRpb25TZXJ2aWNlRXJyb3ISDCIKCgZ3b3JrZXIQAQ"},
		{"V4 barrier", n, barrierPayload, facts{barrier: "b1", counter: 3}, "CjUKK3R5cGUuZ29vZ2xlYXBpcy5jb20vdGVuc29yZmxvdy5CYXJyaWVyRXJyb3ISBgoCYjEQAwo7Cjd0eXBlLmdvb2dsZWFwaXMuY29tL3RlbnNvcmZsb3cuQ29vcmRpbmF0aW9uU2VydmljZUVycm9yEgA"},
		{"V5 mismatch", n, servicePayload, facts{current: 0x0102030405060708}, "CjsKN3R5cGUuZ29vZ2xlYXBpcy5jb20vdGVuc29yZmxvdy5Db29yZGluYXRpb25TZXJ2aWNlRXJyb3ISAApACjN0eXBlLmdvb2dsZWFwaXMuY29tL3RlbnNvcmZsb3cuU2VydmljZU1pc21hdGNoRXJyb3ISCQkIBwYFBAMCAQ"},
	} {
		got := base64.RawStdEncoding.EncodeToString(c.shape.payloads(c.p, &c.facts))
		if got != c.want {
			t.Errorf("%s: payloads() = %s; want %s", c.name, got, c.want)
		}
	}
	same := n.payloads(taskPayload, &facts{task: worker(0)})
	if string(same) != string(n.payloads(emptyPayload, &facts{})) {
		t.Error("XLA: a source of task 0, not reported, is not the same as no source")
	}
}

// One value is a container of payloads to C++ and a status to grpc-go.
func TestTrailerIsReadByBoth(t *testing.T) {
	clause.Cite(t, "C-WIRE-15", "C-WIRE-9", "GU-1")
	st := shapeOf(TF, opBarrier).Refuse(timedOut)
	var status spb.Status
	if err := proto.Unmarshal(st.Details, &status); err != nil {
		t.Fatalf("as a status: %v", err)
	}
	if status.GetCode() != int32(codes.DeadlineExceeded) || status.GetMessage() != st.Message {
		t.Errorf("as a status: %v %q; want code and text of the reply, %q", status.GetCode(), status.GetMessage(), st.Message)
	}
	var c tfpb.GrpcPayloadContainer
	if err := proto.Unmarshal(st.Details, &c); err != nil || len(c.GetPayloads()) != 2 {
		t.Errorf("as a container: %v, %v; want two payloads", c.GetPayloads(), err)
	}
}

func TestNoPayloadNoTrailer(t *testing.T) {
	clause.Cite(t, "C-WIRE-8", "C-INC-1", "C-INC-4")
	if st := ShutDown(); st.Details != nil || st.Code != codes.Internal || st.Message != "Coordination service has been shut down." {
		t.Errorf("ShutDown() = %+v", st)
	}
	if st := (Shape{}).Refuse(serviceNotReady); st.Details == nil || st.Code != codes.Internal || st.Message != "Coordination service is not enabled." {
		t.Errorf("Refuse(not ready) = %+v", st)
	}
}

// checkBudget holds a status to what every client accepts.
func checkBudget(t *testing.T, st rpc.Status) {
	t.Helper()
	if n := encodedBytes(st.Message, st.Details); n > 7<<10 {
		t.Errorf("trailers are %d bytes encoded; want at most 7 KiB", n)
	}
	if len(st.Message) > 3072+len(truncated) {
		t.Errorf("text is %d bytes long; want it cut at 3072", len(st.Message))
	}
	if !utf8.ValidString(st.Message) {
		t.Error("text is not valid UTF-8")
	}
	var status spb.Status
	if err := proto.Unmarshal(st.Details, &status); err != nil {
		t.Errorf("as a status: %v", err)
	}
	if st.Details != nil && codes.Code(status.GetCode()) != st.Code {
		t.Errorf("as a status: code %d; want %d", status.GetCode(), st.Code)
	}
}

func manyTasks(n int) []serry.TaskID {
	tasks := make([]serry.TaskID, n)
	for i := range tasks {
		tasks[i] = worker(i)
	}
	return tasks
}

func TestTrailerBudget(t *testing.T) {
	clause.Cite(t, "C-WIRE-10", "C-WIRE-16", "NEW-13", "NEW-60")
	wide := strings.Repeat("ü", coord.MaxNameBytes/2)
	for _, d := range []Dialect{XLA, TF} {
		s := shapeOf(d, opBarrier)
		if d == TF {
			s.job = wide
		}
		for name, err := range map[string]error{
			"10,000 missing": &serry.BarrierError{ID: wide, Missing: manyTasks(10000), First: worker(1), Members: 10001, Err: serry.ErrTimeout},
			"10,000 lost":    &serry.LostError{Lost: []*serry.TaskError{deadSeen, deadSeen, deadSeen, deadSeen}},
			"long report":    &serry.TaskError{Task: worker(1), Code: 3, Text: strings.Repeat("x", 4096), Err: serry.ErrReported},
			"wide report":    &serry.TaskError{Task: worker(1), Code: 3, Text: strings.Repeat("ü", 2048), Err: serry.ErrReported},
			"broken report":  &serry.TaskError{Task: worker(1), Code: 3, Text: "a" + strings.Repeat("ü", 2048)[:4094] + "\xff", Err: serry.ErrReported},
			"lost, wide id":  &serry.BarrierError{ID: wide, Task: worker(2), Reason: &serry.TaskError{Task: worker(2), Code: 3, Text: strings.Repeat("%", 4000), Err: serry.ErrReported}, Err: serry.ErrMemberLost},
		} {
			t.Run(fmt.Sprint(d, "/", name), func(t *testing.T) {
				st := s.Refuse(err)
				checkBudget(t, st)
				if be, ok := errors.AsType[*serry.BarrierError](err); ok {
					if got := readPayload(t, d, st.Details); got != pb(be.ID, be.Counter) {
						t.Errorf("payload is %+v; want it whole", got)
					}
				}
			})
		}
	}
}

func TestTextIsCut(t *testing.T) {
	clause.Cite(t, "C-WIRE-10")
	st := shapeOf(XLA, opPoll).Refuse(&serry.TaskError{Task: worker(1), Code: 3, Text: strings.Repeat("x", 4096), Err: serry.ErrReported})
	if want := strings.Repeat("x", 3072) + " ... [truncated]"; st.Message != want {
		t.Errorf("text of 4096 bytes became %d bytes ending in %q; want 3072 and a note", len(st.Message), st.Message[max(0, len(st.Message)-20):])
	}
}

// What users match on stays; names go first, then the middle of ids.
func TestTextsShrinkInOrder(t *testing.T) {
	clause.Cite(t, "C-WIRE-16", "C-BAR-15", "C-KV-3", "A-PY-4", "NEW-60")
	missing := &serry.BarrierError{ID: "b", Missing: manyTasks(10000), First: worker(3), Arrived: 1, Members: 10001, Err: serry.ErrTimeout}
	if st := shapeOf(XLA, opBarrier).Refuse(missing); !strings.HasSuffix(st.Message, "Missing: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 9990 more") {
		t.Errorf("text %q; want ten names and the number of others", st.Message)
	}
	long := shapeOf(TF, opBarrier)
	long.job = strings.Repeat("j", 400)
	if st := long.Refuse(missing); !strings.HasPrefix(st.Message, "Barrier timed out. Id: b::0.") || !strings.HasSuffix(st.Message, " more") ||
		strings.Count(st.Message, "/job:"+long.job) != 4 {
		t.Errorf("text %q; want fewer names, each whole", st.Message)
	}
	key := strings.Repeat("d", 100<<10)
	st := shapeOf(XLA, opInsert).Refuse(&serry.KeyError{Key: key, Err: serry.ErrExists})
	if !strings.HasPrefix(st.Message, "key ddd") || !strings.HasSuffix(st.Message, "ddd already exists.") {
		t.Errorf("text %q; want the key cut in its middle", st.Message)
	}
}

func TestReasonsEnd(t *testing.T) {
	err := error(deadSilent)
	for range 100 {
		err = &serry.TaskError{Task: worker(1), Reason: err, Err: serry.ErrPeerFailed}
	}
	if st := shapeOf(XLA, opPoll).Refuse(err); len(st.Message) > 1000 {
		t.Errorf("100 reasons within each other make a text of %d bytes", len(st.Message))
	}
}

func TestMiddle(t *testing.T) {
	for _, c := range []struct {
		s    string
		n    int
		want string
	}{
		{"abc", 3, "abc"},
		{"abcdefghijkl", 11, "abc[...]jkl"},
		{"abcdef", 0, "[...]"},
		{"üüüüüüüü", 12, "ü[...]ü"},
	} {
		if got := middle(c.s, c.n); got != c.want {
			t.Errorf("middle(%q, %d) = %q; want %q", c.s, c.n, got, c.want)
		}
	}
}

func FuzzRefuse(f *testing.F) {
	f.Add("b1", "reason", int64(3), 5, true)
	f.Add("ü\x00%", strings.Repeat("€", 2000), int64(-1), 100000, false)
	f.Fuzz(func(t *testing.T, id, text string, n int64, tasks int, tf bool) {
		s := shapeOf(XLA, opBarrier)
		if tf {
			s = shapeOf(TF, opBarrier)
		}
		id = id[:min(len(id), coord.MaxNameBytes)]
		text = text[:min(len(text), 8192)]
		reason := &serry.TaskError{Task: worker(1), Code: int(n), Text: text, Evidence: text, Err: serry.ErrReported}
		for _, cause := range []error{serry.ErrTimeout, serry.ErrMemberLost, serry.ErrCounter, serry.ErrWithdrawn, serry.ErrExists} {
			err := &serry.BarrierError{ID: id, Counter: n, Sent: n, Missing: manyTasks(min(max(tasks, 0), 1000)), Reason: reason, Err: cause}
			st := s.Refuse(err)
			checkBudget(t, st)
			s.Dialect.Error(st.Code, st.Message, st.Details)
		}
		checkBudget(t, s.Refuse(reason))
		checkBudget(t, s.Refuse(&serry.KeyError{Key: text, Value: id, Err: serry.ErrNotNumber}))
	})
}
