package wire

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/wire/tfpb"
	"github.com/serry-dev/serry/wire/xlapb"
)

func worker(i int) serry.TaskID { return serry.TaskID{Job: "worker", Index: i} }

// shapeOf is a call of worker/1 for op, on instance 2 of barrier b1 where there is one.
func shapeOf(d Dialect, op Op) Shape {
	s := Shape{Dialect: d, Op: op, oneJob: true, task: worker(1)}
	if d == TF {
		s.job = "worker"
	}
	if op == opBarrier || op == opCancel {
		s.barrier, s.counter = "b1", 2
	}
	return s
}

// A wanted payload in the shorthand of the specification.
type wantPayload struct {
	kind     string // none, P0, Pt, PB, PM
	task     int
	reported bool
	id       string
	n        int64
	service  uint64
}

var (
	none = wantPayload{kind: "none"}
	p0   = wantPayload{kind: "P0"}
)

func pt(task int, reported bool) wantPayload {
	return wantPayload{kind: "Pt", task: task, reported: reported}
}
func pb(id string, n int64) wantPayload { return wantPayload{kind: "PB", id: id, n: n} }

// An answerCase is one row of the table of clauses: who calls, what happened, and what the client must
// see. In texts, <n> stands for the name of worker/n in the dialect.
type answerCase struct {
	clause  string
	op      Op
	err     error
	code    codes.Code
	payload wantPayload
	text    []string // wanted parts; one that begins with ^ is wanted at the start
}

var (
	deadSilent  = &serry.TaskError{Task: worker(2), Err: serry.ErrTaskDead}
	deadSeen    = &serry.TaskError{Task: worker(2), Evidence: "process exited: signal 9", Err: serry.ErrTaskDead}
	reported    = &serry.TaskError{Task: worker(2), Code: 9, Text: "loss is NaN", Err: serry.ErrReported}
	restarted   = &serry.TaskError{Task: worker(2), Was: 7, Now: 8, Err: serry.ErrRestarted}
	wrongBeat   = &serry.TaskError{Task: worker(2), Was: 7, Now: 8, Err: serry.ErrWrongBeat}
	bothSilent  = &serry.LostError{Lost: []*serry.TaskError{deadSilent, {Task: worker(3), Err: serry.ErrTaskDead}}}
	mixedDeaths = &serry.LostError{Lost: []*serry.TaskError{deadSeen, {Task: worker(3), Err: serry.ErrTaskDead}}}
	timedOut    = &serry.BarrierError{ID: "b1", Counter: 2, First: worker(1), Missing: []serry.TaskID{worker(2), worker(3)}, Arrived: 2, Members: 4, Err: serry.ErrTimeout}
	lostAt      = &serry.BarrierError{ID: "b1", Counter: 2, Task: worker(2), Reason: deadSeen, Err: serry.ErrMemberLost}
)

func already(reason error) error {
	return &serry.TaskError{Task: worker(1), Reason: reason, Err: serry.ErrAlreadyFailed}
}

func barrier(err error, task int) *serry.BarrierError {
	return &serry.BarrierError{ID: "b1", Counter: 2, Task: worker(task), Err: err}
}

var answerCases = []answerCase{
	// Every call.
	{"C-INC-4", opTryGet, serry.ErrStopped, codes.Internal, none, []string{"^Coordination service has been shut down."}},
	{"C-INC-1", opTryGet, serviceNotReady, codes.Internal, p0, []string{"^Coordination service is not enabled."}},
	{"A-SIDE-10", opPoll, outOfReach, codes.Unavailable, p0, []string{"^Coordination service is out of reach"}},
	{"C-INC-3", opBarrier, serry.ErrStale, codes.Aborted, p0, []string{"newer incarnation"}},
	{"C-INC-6", opPoll, serry.ErrStale, codes.Aborted, p0, []string{"newer incarnation"}},
	{"C-LIM-1", opInsert, &serry.LimitError{Limit: "keys", Max: 5}, codes.ResourceExhausted, none, []string{"keys", "5"}},
	{"C-WIRE-16", opBarrier, &serry.InvalidError{What: "barrier id too long"}, codes.InvalidArgument, p0, []string{"barrier id too long"}},
	{"C-ERR-3", opReport, &serry.InvalidError{What: "code 0"}, codes.InvalidArgument, p0, []string{"code 0"}},
	{"C-VER-5", opNone, errNoMethod, codes.Unimplemented, none, nil},
	{"C-GTS-1", opTaskState, serry.ErrUnknownTask, codes.InvalidArgument, p0, []string{"not in the cluster"}},

	// RegisterTask.
	{"C-REG-2", opRegister, serry.ErrStopped, codes.Internal, p0, []string{"^Coordination service has stopped. RegisterTask()", "<1>"}},
	{"C-REG-3", opRegister, serry.ErrUnknownTask, codes.InvalidArgument, p0, []string{"Unexpected task registered", "<1>"}},
	{"C-REG-10", opRegister, serry.ErrSuperseded, codes.AlreadyExists, p0, []string{"request from a newer incarnation"}},
	{"C-REG-11", opRegister, &serry.BarrierError{ID: "[Init]", First: worker(0), Missing: []serry.TaskID{worker(1)}, Arrived: 1, Members: 2, Err: serry.ErrTimeout}, codes.DeadlineExceeded, pb("[Init]", 0), []string{"^Barrier timed out. Id: [Init]::0", "1/2", "<1>"}},
	{"C-REG-11", opHeartbeat, already(&serry.TaskError{Reason: timedOut, Err: serry.ErrRegistrationFailed}), codes.Aborted, p0, []string{"Cluster registration failed", "Barrier timed out"}},
	{"C-REG-14", opRegister, restarted, codes.Aborted, pt(2, false), []string{"different incarnation", "<2>", "7", "8"}},
	{"C-REG-14", opRegister, already(deadSilent), codes.Aborted, pt(1, false), []string{"already in error", "Task <2> heartbeat timeout"}},
	{"C-REG-14", opPoll, restarted, codes.Aborted, pt(2, false), []string{"different incarnation"}},
	{"C-PROP-4", opPoll, &serry.TaskError{Task: worker(2), Reason: deadSilent, Err: serry.ErrAlreadyFailed}, codes.Aborted, pt(2, false), []string{"already in error"}},

	// Heartbeat.
	{"C-HB-1", opHeartbeat, serry.ErrStopped, codes.Internal, p0, []string{"RecordHeartbeat()"}},
	{"C-HB-1", opHeartbeat, serry.ErrUnknownTask, codes.InvalidArgument, p0, []string{"Unexpected heartbeat request from task", "<1>"}},
	{"C-HB-2", opHeartbeat, already(reported), codes.Aborted, p0, []string{"already-in-error task", "loss is NaN"}},
	{"C-HB-3", opHeartbeat, serry.ErrNotRegistered, codes.InvalidArgument, p0, []string{"must be registered before sending heartbeat"}},
	{"C-HB-5", opHeartbeat, wrongBeat, codes.Aborted, p0, []string{"Incarnation ID mismatch: expecting 7 but got 8"}},
	{"C-HB-5", opPoll, wrongBeat, codes.Aborted, p0, []string{"Incarnation ID mismatch: expecting 7 but got 8"}},
	{"C-HB-6", opHeartbeat, already(deadSilent), codes.Aborted, p0, []string{"Task <2> heartbeat timeout"}},
	{"C-HB-6", opPoll, bothSilent, codes.Unavailable, p0, []string{"stopped sending heartbeats", "<2>", "<3>"}},

	// Lost tasks.
	{"C-LOST-1", opPoll, mixedDeaths, codes.Unavailable, p0, []string{"^The following tasks are unhealthy:", "task <2>: process exited: signal 9", "task <3>: stopped sending heartbeats"}},
	{"C-LOST-1", opPoll, &serry.LostError{Lost: []*serry.TaskError{{Task: worker(1), Evidence: "connection closed", Err: serry.ErrTaskDead}}}, codes.Unavailable, p0, []string{"task <1>: connection closed"}},
	{"C-LOST-1", opHeartbeat, already(deadSeen), codes.Aborted, p0, []string{"Task <2> lost before its heartbeat timeout: process exited: signal 9"}},

	// ShutdownTask and ResetTask.
	{"C-SHUT-2", opShutdown, serry.ErrStopped, codes.Internal, p0, []string{"ShutdownTaskAsync() failed"}},
	{"C-SHUT-2", opShutdown, serry.ErrUnknownTask, codes.InvalidArgument, p0, []string{"Unexpected disconnect request", "<1>"}},
	{"C-SHUT-9", opShutdown, serry.ErrUnknownTask, codes.InvalidArgument, p0, nil},
	{"C-SHUT-9", opShutdown, barrier(serry.ErrNotMember, 1), codes.InvalidArgument, p0, []string{"<1>"}},
	{"C-SHUT-2", opShutdown, serry.ErrLeft, codes.FailedPrecondition, p0, []string{"already disconnected"}},
	{"C-SHUT-5", opShutdown, &serry.TaskError{Reason: timedOut, Err: serry.ErrShutdownFailed}, codes.Internal, p0, []string{"^Shutdown barrier has failed.", "timed out", "2/4"}},
	{"C-SHUT-5", opShutdown, &serry.TaskError{Reason: lostAt, Err: serry.ErrShutdownFailed}, codes.Internal, p0, []string{"^Shutdown barrier has failed.", "heartbeat timeout", "signal 9"}},
	{"C-SHUT-5", opShutdown, &serry.TaskError{Reason: barrier(serry.ErrStopping, 0), Err: serry.ErrShutdownFailed}, codes.Internal, p0, []string{"^Shutdown barrier has failed.", "shutting down"}},
	{"C-SHUT-5", opPoll, &serry.TaskError{Reason: timedOut, Err: serry.ErrShutdownFailed}, codes.Internal, p0, []string{"^Shutdown barrier has failed."}},
	{"C-SHUT-7", opShutdown, &serry.TaskError{Task: worker(1), Reason: serry.ErrLeft, Err: serry.ErrShutdownFailed}, codes.Internal, p0, []string{"already disconnected"}},
	{"C-RST-1", opReset, serry.ErrStopped, codes.Internal, p0, []string{"DisconnectTask()"}},
	{"C-RST-1", opReset, serry.ErrUnknownTask, codes.InvalidArgument, p0, []string{"Unexpected disconnect request"}},
	{"C-RST-1", opReset, serry.ErrLeft, codes.FailedPrecondition, p0, []string{"already disconnected"}},

	// ReportErrorToService.
	{"C-ERR-1", opPoll, reported, codes.FailedPrecondition, pt(2, true), []string{"^loss is NaN"}},
	{"C-ERR-2", opReport, serry.ErrStopped, codes.Internal, p0, []string{"ReportTaskError() failed"}},
	{"C-ERR-2", opReport, serry.ErrUnknownTask, codes.InvalidArgument, p0, []string{"Unexpected request from task", "<1>"}},
	{"C-ERR-2", opReport, serry.ErrNotConnected, codes.FailedPrecondition, p0, []string{"not connected or already has an error"}},
	{"C-ERR-3", opPoll, &serry.TaskError{Task: worker(2), Code: 99, Text: "odd", Err: serry.ErrReported}, codes.Unknown, pt(2, true), []string{"^odd"}},

	// PollForError and how failures travel.
	{"C-POLL-2", opPoll, serry.ErrStopped, codes.Internal, p0, []string{"after coordination service has shut down"}},
	{"C-POLL-2", opPoll, serry.ErrUnknownTask, codes.InvalidArgument, p0, []string{"not in the cluster"}},
	{"C-POLL-3", opPoll, serry.ErrNotRegistered, codes.FailedPrecondition, p0, []string{"has not been registered or has disconnected"}},
	{"C-POLL-5", opPoll, already(reported), codes.FailedPrecondition, p0, []string{"already in error state", "loss is NaN"}},
	{"C-POLL-7", opPoll, serry.ErrSuperseded, codes.Canceled, p0, []string{"new request from the same task"}},
	{"C-POLL-8", opPoll, serry.ErrLeft, codes.Canceled, p0, []string{"task has disconnected"}},
	{"C-ST-6", opPoll, serry.ErrLeft, codes.Canceled, p0, []string{"task has disconnected"}},
	{"C-POLL-8", opPoll, serry.ErrStopping, codes.Canceled, none, []string{"Coordination service is shutting down"}},
	{"C-POLL-11", opPoll, serry.ErrCancelled, codes.Canceled, p0, []string{"heartbeat"}},
	{"C-PROP-3", opHeartbeat, already(&serry.TaskError{Reason: bothSilent, Err: serry.ErrPeerFailed}), codes.Aborted, p0, []string{"unable to inform clients", "stopped sending heartbeats", "<2>"}},

	// Barrier.
	{"C-BAR-3", opBarrier, barrier(serry.ErrStopped, 1), codes.Internal, pb("b1", 2), []string{"requested after coordination service has shut down"}},
	{"C-BAR-3", opBarrier, serry.ErrStopped, codes.Internal, pb("b1", 2), []string{"requested after coordination service has shut down"}},
	{"C-BAR-5", opBarrier, barrier(serry.ErrUnknownTask, 9), codes.InvalidArgument, pb("b1", 2), []string{"not in the cluster", "<9>"}},
	{"C-BAR-11", opBarrier, serry.ErrUnknownTask, codes.InvalidArgument, pb("b1", 2), []string{"not in the cluster", "<1>"}},
	{"C-BAR-6", opBarrier, &serry.BarrierError{ID: "b1", Counter: 2, Task: worker(2), Reason: reported, Err: serry.ErrMemberFailed}, codes.Internal, pb("b1", 2), []string{"already in error before the barrier was called", "<2>", "loss is NaN"}},
	{"C-BAR-9", opBarrier, barrier(serry.ErrSuperseded, 1), codes.Canceled, none, []string{"more recent barrier call"}},
	{"C-WAT-2", opWaitAll, barrier(serry.ErrSuperseded, 1), codes.Canceled, none, []string{"more recent barrier call"}},
	{"C-BAR-10", opBarrier, &serry.BarrierError{ID: "b1", Counter: 2, Sent: 4, Task: worker(3), Err: serry.ErrCounter}, codes.Internal, pb("b1", 2), []string{"the service thinks it is the 2-th instance", "too quick / slow", "<3>", "b1::2"}},
	{"C-BAR-10", opBarrier, &serry.BarrierError{ID: "b1", Counter: 2, Sent: 0, Task: worker(3), Err: serry.ErrCounter}, codes.Internal, pb("b1", 2), []string{"the service thinks it is the 2-th instance", "restarted"}},
	{"C-BAR-10", opBarrier, &serry.BarrierError{ID: "b1", Counter: 0, Sent: 4, Task: worker(3), Err: serry.ErrCounter}, codes.Internal, pb("b1", 0), []string{"the service thinks it is the 0-th instance", "restarted"}},
	{"C-BAR-11", opBarrier, barrier(serry.ErrNoMembers, 3), codes.InvalidArgument, pb("b1", 2), []string{"No tasks were specified"}},
	{"C-BAR-11", opBarrier, barrier(serry.ErrMembers, 3), codes.InvalidArgument, pb("b1", 2), []string{"Conflicting tasks specified"}},
	{"C-BAR-11", opBarrier, barrier(serry.ErrNotMember, 3), codes.InvalidArgument, pb("b1", 2), []string{"^A non-participating task", "<3>"}},
	{"C-BAR-15", opBarrier, timedOut, codes.DeadlineExceeded, pb("b1", 2), []string{"^Barrier timed out. Id: b1::2", "2/4", "first task <1>", "<2>", "<3>"}},
	{"C-BAR-15", opBarrier, &serry.BarrierError{ID: "b1", Counter: 2, Missing: []serry.TaskID{worker(0)}, Members: 1, Err: serry.ErrTimeout}, codes.DeadlineExceeded, pb("b1", 2), []string{"^Barrier timed out. Id: b1::2", "0/1", "<0>"}},
	{"C-BAR-16", opBarrier, lostAt, codes.Internal, pb("b1", 2), []string{"Barrier failed because", "task is set to ERROR", "signal 9", "<2>"}},
	{"C-ST-5", opBarrier, lostAt, codes.Internal, pb("b1", 2), []string{"task is set to ERROR", "lost before its heartbeat timeout"}},
	{"C-BAR-16", opBarrier, &serry.BarrierError{ID: "b1", Counter: 2, Task: worker(2), Reason: serry.ErrLeft, Err: serry.ErrMemberLost}, codes.Internal, pb("b1", 2), []string{"Barrier failed because", "task disconnected"}},
	{"C-BAR-18", opBarrier, &serry.BarrierError{ID: "b1", Counter: 2, Task: worker(1), Reason: serry.ErrRestarted, Err: serry.ErrWithdrawn}, codes.Canceled, pb("b1", 2), []string{"Stale barrier invocation is cancelled", "silently connected again"}},
	{"C-BAR-18", opBarrier, &serry.BarrierError{ID: "b1", Counter: 2, Task: worker(1), Reason: serry.ErrLeft, Err: serry.ErrWithdrawn}, codes.Canceled, pb("b1", 2), []string{"Stale barrier invocation is cancelled", "task disconnected"}},
	{"C-BAR-18", opBarrier, &serry.BarrierError{ID: "b1", Counter: 2, Task: worker(1), Reason: deadSilent, Err: serry.ErrWithdrawn}, codes.Canceled, pb("b1", 2), []string{"Stale barrier invocation is cancelled", "task is set to ERROR"}},
	{"C-BAR-20", opBarrier, barrier(serry.ErrStopping, 0), codes.Aborted, pb("b1", 2), []string{"service is shutting down"}},
	{"C-BAR-23", opBarrier, barrier(serry.ErrReservedName, 1), codes.InvalidArgument, pb("b1", 2), nil},

	// CancelBarrier.
	{"C-CAN-1", opCancel, barrier(serry.ErrStopped, 1), codes.Internal, pb("b1", 2), []string{"CancelBarrier() for"}},
	{"C-CAN-2", opCancel, &serry.BarrierError{ID: "b1", Counter: 3, Sent: 5, Task: worker(1), Err: serry.ErrCounter}, codes.FailedPrecondition, pb("b1", 3), []string{"likely due to a restart"}},
	{"C-CAN-2", opCancel, &serry.BarrierError{ID: "b1", Counter: 3, Sent: 0, Task: worker(1), Err: serry.ErrCounter}, codes.FailedPrecondition, pb("b1", 3), []string{"likely due to a restart"}},
	{"C-CAN-3", opCancel, barrier(serry.ErrAlreadyPassed, 1), codes.FailedPrecondition, pb("b1", 2), []string{"already been passed"}},
	{"C-CAN-4", opBarrier, barrier(serry.ErrCancelled, 3), codes.Canceled, pb("b1", 2), []string{"is cancelled by task <3>"}},

	// Keys.
	{"C-KV-1", opInsert, &serry.InvalidError{What: "key contains a NUL byte"}, codes.InvalidArgument, p0, []string{"NUL"}},
	{"C-KV-3", opInsert, &serry.KeyError{Key: "a/b", Err: serry.ErrExists}, codes.AlreadyExists, none, []string{"^key a/b already exists."}},
	{"C-KV-5", opTryGet, &serry.KeyError{Key: "/a//b", Err: serry.ErrNotFound}, codes.NotFound, p0, []string{"^Config key /a//b not found."}},
	{"C-KV-6", opIncrement, &serry.KeyError{Key: "a", Value: "x", Err: serry.ErrNotNumber}, codes.FailedPrecondition, p0, []string{"Failed to parse value"}},
	{"C-KV-11", opGet, serry.ErrStopping, codes.Canceled, none, []string{"^KeyValueStore destructed"}},

	// GetAliveTasks, WaitForAllTasks.
	{"C-ALIVE-1", opAlive, serry.ErrNotMember, codes.InvalidArgument, none, []string{"<1> is not one of the tasks specified"}},
	{"C-ALIVE-6", opAlive, serry.ErrStopping, codes.Canceled, none, nil},
	{"C-WAT-1", opWaitAll, serry.ErrStopped, codes.Internal, p0, []string{"WaitForAllTasks() failed"}},
	{"C-ERR-5", opReportToTask, errNotATask, codes.Internal, p0, []string{"is uninitialized or has already shutdown"}},
}

func TestAnswers(t *testing.T) {
	clause.Cite(t, "C-WIRE-7", "C-WIRE-8", "C-WIRE-17", "NEW-61", "C-ERR-2", "C-REG-10", "A-PY-4")
	for _, d := range []Dialect{XLA, TF} {
		for i, c := range answerCases {
			t.Run(fmt.Sprintf("%v/%s#%d", d, c.clause, i), func(t *testing.T) {
				clause.Cite(t, c.clause)
				st := shapeOf(d, c.op).Refuse(c.err)
				if st.Code != c.code {
					t.Errorf("Refuse(%v) has code %v; want %v", c.err, st.Code, c.code)
				}
				for _, want := range c.text {
					checkText(t, d, st.Message, want)
				}
				if got := readPayload(t, d, st.Details); got != c.payload {
					t.Errorf("Refuse(%v) has payload %+v; want %+v", c.err, got, c.payload)
				}
			})
		}
	}
}

// checkText looks for want in text, with <n> written as the dialect does.
func checkText(t *testing.T, d Dialect, text, want string) {
	t.Helper()
	for i := range 10 {
		name := fmt.Sprint(i)
		if d == TF {
			name = fmt.Sprintf("/job:worker/replica:0/task:%d", i)
		}
		want = strings.ReplaceAll(want, fmt.Sprintf("<%d>", i), name)
	}
	if start, ok := strings.CutPrefix(want, "^"); ok {
		if !strings.HasPrefix(text, start) {
			t.Errorf("text %q; want it to begin with %q", text, start)
		}
	} else if !strings.Contains(text, want) {
		t.Errorf("text %q; want it to contain %q", text, want)
	}
}

// readPayload reads a trailer as a client of the dialect does.
func readPayload(t *testing.T, d Dialect, details []byte) wantPayload {
	t.Helper()
	if details == nil {
		return none
	}
	var m tfpb.GrpcPayloadContainer
	if err := proto.Unmarshal(details, &m); err != nil {
		t.Fatalf("trailer does not parse: %v", err)
	}
	source, ok := m.GetPayloads()[errorURL]
	if !ok {
		t.Fatalf("trailer has no %s", errorURL)
	}
	if b, ok := m.GetPayloads()[barrierURL]; ok {
		var p tfpb.BarrierError
		mustUnmarshal(t, b, &p)
		return pb(p.GetBarrierId(), p.GetCounter())
	}
	if b, ok := m.GetPayloads()[mismatchURL]; ok {
		var p xlapb.ServiceMismatchError
		mustUnmarshal(t, b, &p)
		return wantPayload{kind: "PM", service: p.GetServiceIncarnation()}
	}
	if len(source) == 0 {
		return p0
	}
	if d == XLA {
		var p xlapb.CoordinationServiceError
		mustUnmarshal(t, source, &p)
		return pt(int(p.GetSourceTaskId()), p.GetIsReportedError())
	}
	var p tfpb.CoordinationServiceError
	mustUnmarshal(t, source, &p)
	if p.GetSourceTask().GetJobName() != "worker" {
		t.Errorf("source task is %v; want one of job worker", p.GetSourceTask())
	}
	return pt(int(p.GetSourceTask().GetTaskId()), p.GetIsReportedError())
}

func mustUnmarshal(t *testing.T, b []byte, m proto.Message) {
	t.Helper()
	if err := proto.Unmarshal(b, m); err != nil {
		t.Fatalf("payload does not parse: %v", err)
	}
}

// The two dialects differ in one answer only.
func TestMismatchByDialect(t *testing.T) {
	clause.Cite(t, "C-INC-2", "C-EPOCH-5")
	err := &serry.MismatchError{Requested: 5, Current: 6}
	st := shapeOf(XLA, opGet).Refuse(err)
	if st.Code != codes.Internal || st.Message != "wrong service incarnation: requested 5, currently 6" {
		t.Errorf("XLA: Refuse(%v) = %v %q; want INTERNAL and the two numbers", err, st.Code, st.Message)
	}
	if got, want := readPayload(t, XLA, st.Details), (wantPayload{kind: "PM", service: 6}); got != want {
		t.Errorf("XLA: Refuse(%v) has payload %+v; want %+v", err, got, want)
	}
	st = shapeOf(TF, opBarrier).Refuse(err)
	if st.Code != codes.Aborted {
		t.Errorf("TF: Refuse(%v) has code %v; want ABORTED", err, st.Code)
	}
	if got := readPayload(t, TF, st.Details); got != p0 {
		t.Errorf("TF: Refuse(%v) has payload %+v; want P0", err, got)
	}
}

// Every row of the table is there for a clause, and every text holds the words it is known by.
func TestAnswersAreAllCited(t *testing.T) {
	reached := map[answerKey]bool{
		{opAny, serry.ErrMismatch}: true, // TestMismatchByDialect
		{opAny, oldEpoch}:          true,
	}
	for _, c := range answerCases {
		s := shapeOf(XLA, c.op)
		for err := c.err; err != nil; {
			a, f := s.find(err)
			for _, op := range []Op{c.op, opOfError(err), opAny} {
				key := answerKey{op, s.cause(err, f)}
				if row, ok := answers[key]; ok && row.text == a.text {
					reached[key] = true
				}
			}
			err = f.reason
		}
	}
	told := map[error]bool{serry.ErrChanged: true} // by serry's own dialect alone
	for key, a := range answers {
		told[key.cause] = true
		if !reached[key] {
			t.Errorf("no case shows the answer %v, %v", key.op, key.cause)
		}
		if !strings.Contains(a.text, a.phrase) {
			t.Errorf("the text of %v, %v does not hold its phrase %q", key.op, key.cause, a.phrase)
		}
	}
	for _, err := range sentinels {
		if !told[err] {
			t.Errorf("no answer for %q", err)
		}
	}
}

// An error that has no row is still an answer.
func TestAnswerToTheUnexpected(t *testing.T) {
	clause.Cite(t, "C-WIRE-17")
	for _, err := range []error{errors.New("disk on fire"), &serry.TaskError{Err: errors.New("x")}, &serry.BarrierError{}} {
		st := shapeOf(XLA, opGet).Refuse(err)
		if st.Code != codes.Internal || st.Message != err.Error() {
			t.Errorf("Refuse(%v) = %v %q; want INTERNAL and the error's own words", err, st.Code, st.Message)
		}
	}
}
