package wire

import (
	"cmp"
	"errors"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/wire/tfpb"
	"github.com/serry-dev/serry/wire/xlapb"
)

// DefaultJob is the job of a cluster that is configured by a bare number of tasks. Dialect XLA has no
// names for jobs; tasks in errors that come back by it are taken to be of this one.
const DefaultJob = "worker"

// Error is the way back for clients: it makes the errors of package serry out of a status and the
// value of its trailer grpc-status-details-bin. What a serry server said comes back with its facts as
// far as its text holds them; of another server's errors the kind is known, and what the payloads
// say. What cannot be told is a gRPC status error with that code and text. It is nil for OK.
func (d Dialect) Error(code codes.Code, message string, details []byte) error {
	if code == codes.OK {
		return nil
	}
	p := d.payloads(details)
	switch {
	case p.mismatch != nil:
		f, _ := d.read(answers[answerKey{opAny, serry.ErrMismatch}].text, message)
		return &serry.MismatchError{Requested: f.requested, Current: serry.Incarnation(p.mismatch.GetServiceIncarnation())}
	case p.reported:
		return &serry.TaskError{Task: p.source, Code: int(code), Text: message, Err: serry.ErrReported}
	}
	key, ok := recognise(message, func(_ answerKey, a answer) bool { return a.code == code && p.fits(a.payload) })
	if !ok {
		return status.Error(code, message)
	}
	f, _ := d.read(answers[key].text, message)
	if p.barrier != nil {
		f.barrier, f.counter = p.barrier.GetBarrierId(), p.barrier.GetCounter()
	}
	if p.named {
		f.task = p.source
	}
	return f.error(key)
}

// received is what a trailer carried.
type received struct {
	service  bool // made by the service, not by the network
	named    bool // source is given
	source   serry.TaskID
	reported bool
	barrier  *xlapb.BarrierError
	mismatch *xlapb.ServiceMismatchError
}

// payloads reads a trailer. What does not parse is as good as absent.
func (d Dialect) payloads(details []byte) received {
	var r received
	var m tfpb.GrpcPayloadContainer
	if proto.Unmarshal(details, &m) != nil {
		return r
	}
	source, ok := m.GetPayloads()[errorURL]
	r.service = ok
	r.source, r.reported = d.source(source)
	r.named = len(source) > 0
	if b, ok := m.GetPayloads()[barrierURL]; ok {
		r.barrier = new(xlapb.BarrierError)
		if proto.Unmarshal(b, r.barrier) != nil {
			r.barrier = nil
		}
	}
	if b, ok := m.GetPayloads()[mismatchURL]; ok {
		r.mismatch = new(xlapb.ServiceMismatchError)
		if proto.Unmarshal(b, r.mismatch) != nil {
			r.mismatch = nil
		}
	}
	return r
}

func (d Dialect) source(b []byte) (task serry.TaskID, reported bool) {
	if d == XLA {
		var m xlapb.CoordinationServiceError
		if proto.Unmarshal(b, &m) != nil {
			return serry.TaskID{}, false
		}
		return readXLATask(m.GetSourceTaskId()), m.GetIsReportedError()
	}
	var m tfpb.CoordinationServiceError
	if proto.Unmarshal(b, &m) != nil {
		return serry.TaskID{}, false
	}
	return readTFTask(m.GetSourceTask()), m.GetIsReportedError()
}

// recognise finds the answer that a message is, among those that may be, by the words that mark it.
// Texts begin with the outermost fact, so the mark that comes first decides, and the longer one of
// two in the same place.
func recognise(message string, may func(answerKey, answer) bool) (answerKey, bool) {
	var best answerKey
	var bestAt, bestLen int
	found := false
	for key, a := range answers {
		at := strings.Index(message, a.phrase)
		if a.phrase == "" || at < 0 || !may(key, a) {
			continue
		}
		if !found || cmp.Or(cmp.Compare(at, bestAt), cmp.Compare(bestLen, len(a.phrase)), compareKeys(key, best)) < 0 {
			best, bestAt, bestLen, found = key, at, len(a.phrase), true
		}
	}
	return best, found
}

// compareKeys prefers the cause that needs fewer facts, where two answers read alike.
func compareKeys(a, b answerKey) int {
	_, av := a.cause.(*variant)
	_, bv := b.cause.(*variant)
	if av != bv {
		if av {
			return 1
		}
		return -1
	}
	return cmp.Or(strings.Compare(a.cause.Error(), b.cause.Error()), cmp.Compare(a.op, b.op))
}

// fits says whether an answer with that payload can have brought this trailer.
func (r received) fits(p payload) bool {
	switch p {
	case noPayload:
		return !r.service
	case barrierPayload:
		return r.barrier != nil
	case servicePayload:
		return r.mismatch != nil
	}
	return r.service && r.barrier == nil && r.mismatch == nil
}

// read is the inverse of [voice.fill]: it finds the facts in a message that was made from text. One
// that was not has no facts.
func (d Dialect) read(text, message string) (f *facts, ok bool) {
	f = new(facts)
	literal, rest, more := strings.Cut(text, "{")
	message, ok = strings.CutPrefix(message, literal)
	for ok && more {
		var name, value string
		name, rest, _ = strings.Cut(rest, "}")
		literal, rest, more = strings.Cut(rest, "{")
		if value, message, ok = cutAt(message, literal, more); ok {
			d.parse(f, name, value)
		}
	}
	if !ok {
		return new(facts), false
	}
	return f, true
}

// cutAt takes from message what stands before literal: its first occurrence, or its last if nothing
// follows it.
func cutAt(message, literal string, more bool) (value, rest string, ok bool) {
	switch {
	case !more && literal == "":
		return message, "", true
	case !more:
		value, ok = strings.CutSuffix(message, literal)
		return value, "", ok
	}
	return strings.Cut(message, literal)
}

// parse is the inverse of [voice.print]. What it cannot read it leaves zero.
func (d Dialect) parse(f *facts, name, value string) {
	switch name {
	case "task":
		f.task = d.parseTask(value)
	case "first":
		f.first = d.parseTask(value)
	case "barrier":
		if i := strings.LastIndex(value, "::"); i >= 0 {
			f.barrier, f.counter = value[:i], parseInt(value[i+2:])
		}
	case "counter":
		f.counter = parseInt(value)
	case "sent":
		f.sent = parseInt(value)
	case "arrived":
		f.arrived = int(parseInt(value))
	case "members":
		f.members = int(parseInt(value))
	case "missing":
		f.missing = d.parseTasks(value)
	case "lost":
		f.lost = d.parseLost(value)
	case "evidence":
		f.evidence = value
	case "was":
		f.was = parseIncarnation(value)
	case "now":
		f.now = parseIncarnation(value)
	case "reason":
		f.reason = d.parseReason(value)
	case "key":
		f.key = value
	case "value":
		f.value = value
	case "limit":
		f.limit = value
	case "max":
		f.max = parseInt(value)
	case "what":
		f.what = value
	case "requested":
		f.requested = parseIncarnation(value)
	case "current":
		f.current = parseIncarnation(value)
	}
}

func parseInt(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func parseIncarnation(s string) serry.Incarnation {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0
	}
	return serry.Incarnation(n)
}

func (d Dialect) parseTask(s string) serry.TaskID {
	job := DefaultJob
	if d == TF {
		rest, ok := strings.CutPrefix(s, "/job:")
		i := strings.LastIndex(rest, "/replica:0/task:")
		if !ok || i < 0 {
			return serry.TaskID{}
		}
		job, s = rest[:i], rest[i+len("/replica:0/task:"):]
	}
	n, err := strconv.ParseInt(s, 10, 32)
	if err != nil {
		return serry.TaskID{}
	}
	return serry.TaskID{Job: job, Index: int(n)}
}

// parseTasks reads a list of which the end may be missing.
func (d Dialect) parseTasks(s string) []serry.TaskID {
	s, _, _ = strings.Cut(s, " and ")
	var tasks []serry.TaskID
	for name := range strings.SplitSeq(s, ", ") {
		if t := d.parseTask(name); !t.IsZero() {
			tasks = append(tasks, t)
		}
	}
	return tasks
}

func (d Dialect) parseLost(s string) []*serry.TaskError {
	if i := strings.LastIndex(s, " and "); i >= 0 && strings.HasSuffix(s, " more") {
		s = s[:i]
	}
	var lost []*serry.TaskError
	for line := range strings.SplitSeq(s, "\ntask ") {
		name, evidence, _ := strings.Cut(line, ": ")
		if evidence == silence {
			evidence = ""
		}
		if t := d.parseTask(name); !t.IsZero() {
			lost = append(lost, &serry.TaskError{Task: t, Evidence: evidence, Err: serry.ErrTaskDead})
		}
	}
	return lost
}

// parseReason finds the error that a text within a text is: of a task, of a barrier, or in the words of
// others.
func (d Dialect) parseReason(s string) error {
	key, ok := recognise(s, func(key answerKey, _ answer) bool {
		return key.op == opTask || key.op == opBarrier || key == answerKey{opAny, serry.ErrLeft}
	})
	if !ok {
		return errors.New(s)
	}
	f, ok := d.read(answers[key].text, s)
	if !ok {
		return errors.New(s)
	}
	return f.error(key)
}

// error puts facts together to the error that a cause comes with.
func (f *facts) error(key answerKey) error {
	cause := key.cause
	if v, ok := cause.(*variant); ok {
		cause = v.base
	}
	switch cause {
	case serry.ErrTaskDead:
		if len(f.lost) > 0 {
			return &serry.LostError{Lost: f.lost}
		}
		fallthrough
	case serry.ErrRestarted, serry.ErrWrongBeat, serry.ErrPeerFailed, serry.ErrRegistrationFailed,
		serry.ErrShutdownFailed, serry.ErrAlreadyFailed:
		return &serry.TaskError{Task: f.task, Evidence: f.evidence, Was: f.was, Now: f.now, Reason: f.reason, Err: cause}
	case serry.ErrExists, serry.ErrNotFound, serry.ErrNotNumber:
		return &serry.KeyError{Key: f.key, Value: f.value, Err: cause}
	case serry.ErrLimit:
		return &serry.LimitError{Limit: f.limit, Max: f.max}
	case serry.ErrInvalid:
		return &serry.InvalidError{What: f.what}
	case serry.ErrMismatch:
		return &serry.MismatchError{Requested: f.requested, Current: f.current}
	}
	if key.op == opBarrier || key.op == opCancel {
		return &serry.BarrierError{
			ID: f.barrier, Counter: f.counter, Sent: f.sent, Task: f.task, First: f.first,
			Missing: f.missing, Arrived: f.arrived, Members: f.members, Reason: f.reason, Err: cause,
		}
	}
	return cause
}
