package wire

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"

	"github.com/serry-dev/serry"
)

// facts are what the errors of package serry say, side by side: the middle of the way from an
// error to a text and back.
type facts struct {
	caller, task, first serry.TaskID

	barrier       string
	counter, sent int64
	arrived       int
	members       int
	missing       []serry.TaskID

	lost     []*serry.TaskError
	evidence string
	was, now serry.Incarnation
	code     codes.Code
	text     string
	reason   error

	key, value         string
	limit              string
	max                int64
	what               string
	requested, current serry.Incarnation
}

// facts takes an error apart. What it does not say of a barrier, the request did.
func (s Shape) facts(err error) *facts {
	f := &facts{caller: s.task, task: s.task, barrier: s.barrier, counter: s.counter}
	switch e := err.(type) {
	case *serry.TaskError:
		f.task, f.evidence, f.reason = e.Task, e.Evidence, e.Reason
		f.was, f.now = e.Was, e.Now
		f.code, f.text = reportedCode(e.Code), e.Text
	case *serry.LostError:
		f.lost = e.Lost
	case *serry.BarrierError:
		f.barrier, f.counter, f.sent = e.ID, e.Counter, e.Sent
		f.task, f.first, f.missing = e.Task, e.First, e.Missing
		f.arrived, f.members, f.reason = e.Arrived, e.Members, e.Reason
	case *serry.KeyError:
		f.key, f.value = e.Key, e.Value
	case *serry.LimitError:
		f.limit, f.max = e.Limit, e.Max
	case *serry.InvalidError:
		f.what = e.What
	case *serry.MismatchError:
		f.requested, f.current = e.Requested, e.Current
	}
	return f
}

// reportedCode keeps the codes that exist; a report cannot say that all is well (C-ERR-3).
func reportedCode(code int) codes.Code {
	if code < 1 || code > 16 {
		return codes.Unknown
	}
	return codes.Code(code)
}

// cause says what happened: the sentinel in err, or the variant of it that its facts make.
func (s Shape) cause(err error, f *facts) error {
	base := err
	if _, ok := err.(*variant); !ok {
		if inner := errors.Unwrap(err); inner != nil {
			base = inner
		}
	}
	left := f.reason == serry.ErrLeft
	failed := f.reason != nil && !left && f.reason != serry.ErrRestarted
	several, _ := err.(*serry.LostError)
	switch {
	case base == serry.ErrMismatch && s.Dialect == TF:
		return oldEpoch
	case several != nil && allSilent(several.Lost):
		return severalSilent
	case several != nil:
		return severalDead
	case base == serry.ErrTaskDead && f.evidence != "":
		return seenDead
	case base == serry.ErrTimeout && f.first.IsZero():
		return timeoutEmpty
	case base == serry.ErrCounter && (f.sent == 0 || f.counter == 0):
		return counterRestart
	case base == serry.ErrMemberLost && (left || f.reason == nil):
		return memberLeft
	case base == serry.ErrWithdrawn && left:
		return withdrawnLeft
	case base == serry.ErrWithdrawn && failed:
		return withdrawnFailed
	case base == serry.ErrAlreadyFailed && (s.Op == opTask || s.Op == opPoll && f.task != s.task):
		return registeredBefore
	}
	return base
}

func allSilent(lost []*serry.TaskError) bool {
	for _, t := range lost {
		if t.Evidence != "" {
			return false
		}
	}
	return true
}

// find looks up how err is told to the caller.
func (s Shape) find(err error) (answer, *facts) {
	f := s.facts(err)
	cause := s.cause(err, f)
	for _, op := range [...]Op{s.Op, opOfError(err), opAny} {
		if a, ok := answers[answerKey{op, cause}]; ok {
			if cause == serry.ErrReported {
				a.code = f.code
			}
			return a, f
		}
	}
	f.text = err.Error()
	return answer{codes.Internal, emptyPayload, "", "{text}"}, f
}

// opOfError is the operation under which the answers for a type of error stand.
func opOfError(err error) Op {
	switch err.(type) {
	case *serry.TaskError, *serry.LostError:
		return opTask
	case *serry.BarrierError:
		return opBarrier
	}
	return opAny
}

// A voice is how facts are put into words.
type voice struct {
	shape Shape
	names int // how many tasks of a list are named
	bytes int // of an id or key, the rest is left out in its middle
	depth int // of reasons within reasons
}

const (
	maxNames = 10 // that a barrier names of its missing, C-BAR-15
	maxLost  = 3  // that a failure names of its tasks, C-LOST-1
	maxDepth = 4
)

// fill puts facts into a text.
func (v voice) fill(text string, f *facts) string {
	var b strings.Builder
	for text != "" {
		literal, rest, ok := strings.Cut(text, "{")
		b.WriteString(literal)
		if !ok {
			break
		}
		name, after, _ := strings.Cut(rest, "}")
		b.WriteString(v.print(f, name))
		text = after
	}
	return b.String()
}

// print says one fact.
func (v voice) print(f *facts, name string) string {
	switch name {
	case "caller":
		return v.task(f.caller)
	case "task":
		return v.task(f.task)
	case "first":
		return v.task(f.first)
	case "barrier":
		return middle(f.barrier, v.bytes) + "::" + strconv.FormatInt(f.counter, 10)
	case "counter":
		return strconv.FormatInt(f.counter, 10)
	case "sent":
		return strconv.FormatInt(f.sent, 10)
	case "arrived":
		return strconv.Itoa(f.arrived)
	case "members":
		return strconv.Itoa(f.members)
	case "missing":
		return v.missing(f.missing)
	case "lost":
		return v.lost(f.lost)
	case "evidence":
		return f.evidence
	case "was":
		return incarnation(f.was)
	case "now":
		return incarnation(f.now)
	case "text":
		return f.text
	case "reason":
		return v.reason(f.reason)
	case "key":
		return middle(f.key, v.bytes)
	case "value":
		return middle(f.value, v.bytes)
	case "limit":
		return f.limit
	case "max":
		return strconv.FormatInt(f.max, 10)
	case "what":
		return f.what
	case "requested":
		return incarnation(f.requested)
	case "current":
		return incarnation(f.current)
	}
	panic("wire: no fact is called " + name) // a mistake in the table; its test says every text
}

func incarnation(i serry.Incarnation) string { return strconv.FormatUint(uint64(i), 10) }

// task names a task in the form of the dialect.
func (v voice) task(t serry.TaskID) string {
	id := strconv.Itoa(t.Index)
	if v.shape.Dialect == XLA {
		return id
	}
	return "/job:" + middle(v.shape.jobName(t), v.bytes) + "/replica:0/task:" + id
}

// reason says what brought an error about, down to a few levels.
func (v voice) reason(err error) string {
	if err == nil {
		return "no reason is known"
	}
	if v.depth++; v.depth > maxDepth {
		return "..."
	}
	v.shape.Op = opTask
	a, f := v.shape.find(err)
	return v.fill(a.text, f)
}

func (v voice) missing(tasks []serry.TaskID) string {
	n := min(v.names, len(tasks))
	names := make([]string, n)
	for i, t := range tasks[:n] {
		names[i] = v.task(t)
	}
	return strings.Join(names, ", ") + more(len(tasks)-n)
}

// lost names dead tasks, one a line, with what was seen of each.
func (v voice) lost(lost []*serry.TaskError) string {
	silent := allSilent(lost)
	n := min(v.names, maxLost, len(lost))
	var b strings.Builder
	for _, t := range lost[:n] {
		b.WriteString("\ntask " + v.task(t.Task))
		switch {
		case t.Evidence != "":
			b.WriteString(": " + t.Evidence)
		case !silent:
			b.WriteString(": " + silence)
		}
	}
	return b.String() + more(len(lost)-n)
}

const silence = "stopped sending heartbeats"

func more(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(" and %d more", n)
}
