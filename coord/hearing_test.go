package coord_test

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/wire"
	"github.com/serry-dev/serry/wire/rpc"
	"github.com/serry-dev/serry/wire/tfpb"
	"github.com/serry-dev/serry/wire/xlapb"
)

// status shows how a call failed: its code, its payloads in the shorthand of the specification
// (none, P0, Pt(task,reported), PB(id,n), PM(service)), and its text.
func (s *script) status(d wire.Dialect, st rpc.Status) string {
	s.t.Helper()
	return fmt.Sprintf("%s %s %q", codeName(st.Code), s.payload(d, st.Details), s.fold(st.Message))
}

// fold brings the names of tasks in a text to the form of the dialect that only has numbers.
func (s *script) fold(text string) string {
	form := "$2"
	switch {
	case s.names:
		return text
	case len(s.cfg.Jobs) > 1:
		form = "$1/$2"
	}
	return regexp.MustCompile(`/job:([^/]*)/replica:0/task:(-?\d+)`).ReplaceAllString(text, form)
}

func (s *script) payload(d wire.Dialect, details []byte) string {
	s.t.Helper()
	if details == nil {
		return "none"
	}
	const prefix = "type.googleapis.com/tensorflow."
	var box tfpb.GrpcPayloadContainer
	s.read(details, &box)
	task, hasTask := box.GetPayloads()[prefix+"CoordinationServiceError"]
	barrier, hasBarrier := box.GetPayloads()[prefix+"BarrierError"]
	service, hasService := box.GetPayloads()[prefix+"ServiceMismatchError"]
	switch {
	case !hasTask:
		return fmt.Sprintf("unknown payloads %v", box.GetPayloads())
	case hasBarrier && len(task) == 0 && len(box.GetPayloads()) == 2:
		var m tfpb.BarrierError
		s.read(barrier, &m)
		return fmt.Sprintf("PB(%s,%d)", m.GetBarrierId(), m.GetCounter())
	case hasService && len(task) == 0 && len(box.GetPayloads()) == 2:
		var m xlapb.ServiceMismatchError
		s.read(service, &m)
		return fmt.Sprintf("PM(%d)", m.GetServiceIncarnation())
	case len(task) == 0 && len(box.GetPayloads()) == 1:
		return "P0"
	case d == wire.XLA:
		var m xlapb.CoordinationServiceError
		s.read(task, &m)
		return fmt.Sprintf("Pt(%d,%v)", m.GetSourceTaskId(), m.GetIsReportedError())
	}
	var m tfpb.CoordinationServiceError
	s.read(task, &m)
	if m.GetSourceTask().GetTaskId() == 0 && !m.GetIsReportedError() && !s.names && len(s.cfg.Jobs) == 1 {
		return "P0" // what the other dialect has: there task 0 and no report are zeros, and so no bytes
	}
	return fmt.Sprintf("Pt(%s,%v)", s.tfName(m.GetSourceTask()), m.GetIsReportedError())
}

// result shows the message of a call that went well.
func (s *script) result(p pending, body []byte) string {
	s.t.Helper()
	switch p.cmd.name {
	case "register", "beat":
		var m xlapb.RegisterTaskResponse // the same as of heartbeats, and in the other dialect
		s.read(body, &m)
		return fmt.Sprintf("service=%d", m.GetServiceIncarnation())
	case "barrier":
		var m xlapb.BarrierResponse
		s.read(body, &m)
		return fmt.Sprintf("counter=%d", m.GetCounter())
	case "get", "try", "inc":
		var m xlapb.GetKeyValueResponse
		s.read(body, &m)
		return showEntry(m.GetKv())
	case "dir":
		var m xlapb.GetKeyValueDirResponse
		s.read(body, &m)
		var entries []string
		for _, e := range m.GetKv() {
			entries = append(entries, showEntry(e))
		}
		return fmt.Sprintf("%d: %s", len(entries), strings.Join(entries, " "))
	case "watch", "jobstate", "states":
		return s.picture(p, body)
	case "alive":
		return s.alive(p, body)
	case "waitall":
		var m tfpb.WaitForAllTasksResponse
		s.read(body, &m)
		var names []string
		for _, d := range m.GetDeviceInfo().GetDevice() {
			names = append(names, strings.TrimPrefix(d.GetTypeUrl(), "device/"))
		}
		return fmt.Sprintf("leader=%d devices=%s", m.GetLeaderIncarnation(), strings.Join(names, ","))
	}
	if len(body) > 0 {
		return fmt.Sprintf("with %d bytes", len(body))
	}
	return ""
}

func showEntry(kv *xlapb.KeyValueEntry) string {
	return fmt.Sprintf("%s=%q", kv.GetKey(), kv.GetValue())
}

// picture shows all tasks as "task:state/incarnation", failed ones with their error. A version is
// told only by comparison with the one that was shown last.
func (s *script) picture(p pending, body []byte) string {
	s.t.Helper()
	var shown []string
	var version int64
	if p.shape.Dialect == wire.XLA {
		var m xlapb.WatchTasksResponse
		s.read(body, &m)
		version = m.GetVersionNumber()
		for _, i := range m.GetTaskState() {
			e := i.GetErrorPayload()
			shown = append(shown, showTask(fmt.Sprint(i.GetTaskId()), int32(i.GetState()), i.GetIncarnation(),
				i.GetErrorCode(), i.GetErrorMessage(), e != nil, fmt.Sprintf("Pt(%d,%v)", e.GetSourceTaskId(), e.GetIsReportedError())))
		}
	} else {
		var m tfpb.WatchJobStateResponse
		s.read(body, &m)
		version = m.GetVersionNumber()
		for _, i := range m.GetTaskState() {
			e := i.GetErrorPayload()
			shown = append(shown, showTask(s.tfName(i.GetTask()), int32(i.GetState()), i.GetIncarnation(),
				i.GetErrorCode(), s.fold(i.GetErrorMessage()), e != nil, fmt.Sprintf("Pt(%s,%v)", s.tfName(e.GetSourceTask()), e.GetIsReportedError())))
		}
	}
	change := ""
	if p.cmd.name == "watch" {
		change = map[int]string{-1: "fell ", 0: "same ", 1: "risen "}[cmp.Compare(version, s.version)]
		if version == -1 {
			change = "version=-1 "
		}
		s.version = version
	}
	return change + strings.Join(shown, " ")
}

func showTask(name string, state int32, inc uint64, code int32, text string, payload bool, source string) string {
	states := map[int32]string{2: "disconnected", 3: "connected", 4: "error"}
	shown := fmt.Sprintf("%s:%s/%d", name, states[state], inc)
	if code != 0 || text != "" || payload {
		shown += fmt.Sprintf("[%s %s %q]", codeName(codes.Code(code)), source, text)
	}
	return shown
}

func (s *script) alive(p pending, body []byte) string {
	s.t.Helper()
	var tasks []string
	var incarnations []uint64
	if p.shape.Dialect == wire.XLA {
		var m xlapb.GetAliveTasksResponse
		s.read(body, &m)
		incarnations = m.GetIncarnations()
		for _, id := range m.GetAliveTaskIds() {
			tasks = append(tasks, fmt.Sprint(id))
		}
	} else {
		var m tfpb.GetAliveTasksResponse
		s.read(body, &m)
		incarnations = m.GetIncarnations()
		for _, t := range m.GetAliveTasks() {
			tasks = append(tasks, s.tfName(t))
		}
	}
	return fmt.Sprintf("%v %v", tasks, incarnations)
}

// tfName names a task as the other dialect would, unless names matter.
func (s *script) tfName(t *tfpb.CoordinatedTask) string {
	if s.names || len(s.cfg.Jobs) > 1 {
		return fmt.Sprintf("%s/%d", t.GetJobName(), t.GetTaskId())
	}
	return fmt.Sprint(t.GetTaskId())
}

func (s *script) read(body []byte, m proto.Message) {
	s.t.Helper()
	if err := proto.Unmarshal(body, m); err != nil {
		s.t.Fatalf("%x is not a %T: %v", body, m, err)
	}
}

// codeName writes a code as the specification does.
func codeName(c codes.Code) string {
	for name, n := range codeNames() {
		if n == c {
			return name
		}
	}
	return fmt.Sprintf("CODE-%d", c)
}

func codeNumber(name string) (codes.Code, bool) {
	c, ok := codeNames()[name]
	return c, ok
}

func codeNames() map[string]codes.Code {
	return map[string]codes.Code{
		"OK": codes.OK, "CANCELLED": codes.Canceled, "UNKNOWN": codes.Unknown, "INVALID_ARGUMENT": codes.InvalidArgument,
		"DEADLINE_EXCEEDED": codes.DeadlineExceeded, "NOT_FOUND": codes.NotFound, "ALREADY_EXISTS": codes.AlreadyExists,
		"RESOURCE_EXHAUSTED": codes.ResourceExhausted, "FAILED_PRECONDITION": codes.FailedPrecondition,
		"ABORTED": codes.Aborted, "UNIMPLEMENTED": codes.Unimplemented, "INTERNAL": codes.Internal, "UNAVAILABLE": codes.Unavailable,
	}
}

func showNote(n coord.Note) string {
	shown := n.What
	if !n.Task.IsZero() {
		shown += fmt.Sprintf(" %v", n.Task)
	}
	if n.Barrier != "" {
		shown += fmt.Sprintf(" %s %d", n.Barrier, n.Counter)
	}
	if n.Of > 0 {
		shown += fmt.Sprintf(" %d/%d", n.Count, n.Of)
	}
	if n.Err != nil {
		shown += fmt.Sprintf(": %v", n.Err)
	}
	return shown
}

// showView shows what matters of a picture of the machine, one line for all and one a barrier.
func showView(v coord.View) string {
	var b strings.Builder
	fmt.Fprintf(&b, "view: epoch %d, keys %d, bytes %d, waiters %d, watchers %d, polls %d",
		v.Epoch, v.Keys, v.StoreBytes, v.Waiters, v.Watchers, v.Polls)
	for _, t := range v.Tasks {
		fmt.Fprintf(&b, ", %v %v/%d", t.Task, t.State, t.Incarnation)
		if t.Registering {
			b.WriteString(" registering")
		}
		if t.Departed {
			b.WriteString(" departed")
		}
	}
	for _, o := range v.Barriers {
		fmt.Fprintf(&b, "\nopen: %s %d, %d/%d, first %v, missing %v, since %v, until %v", o.ID, o.Counter,
			o.Arrived, o.Members, showTaskID(o.First), o.Missing, time.Duration(o.Since), time.Duration(o.Deadline))
	}
	return b.String()
}

func showTaskID(id serry.TaskID) string {
	if id.IsZero() {
		return "nobody"
	}
	return id.String()
}
