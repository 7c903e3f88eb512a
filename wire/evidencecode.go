package wire

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
)

// DigestOf names a body.
func DigestOf(body []byte) uint64 {
	sum := sha256.Sum256(body)
	return binary.LittleEndian.Uint64(sum[:])
}

var errEvidence = errors.New("malformed evidence")

// Bytes is how the attendance is written.
func (a Attendance) Bytes() []byte {
	var w fieldWriter
	w.number(1, a.ID)
	w.text(2, a.Name)
	if !a.Task.IsZero() {
		w.tasks(3, []serry.TaskID{a.Task})
	}
	return w.b
}

// ReadAttendance reads what Bytes wrote.
func ReadAttendance(b []byte) (a Attendance, err error) {
	var tasks []serry.TaskID
	err = readMessage(b, func(f field) bool {
		switch f.number {
		case 1:
			a.ID = f.value
		case 2:
			return f.text(&a.Name)
		case 3:
			return f.tasks(&tasks)
		}
		return true
	})
	if err == nil && (a.ID == 0 || len(tasks) > 1) {
		err = errEvidence
	}
	if len(tasks) == 1 {
		a.Task = tasks[0]
	}
	return a, err
}

// Bytes is how the question is written.
func (q Question) Bytes() []byte {
	var w fieldWriter
	w.number(1, q.Ticket)
	w.text(2, q.Kind)
	w.text(3, q.Argument)
	w.tasks(4, q.Tasks)
	w.number(5, q.MaxBytes)
	w.flag(6, q.DigestsOnly)
	for _, d := range q.Digests {
		w.digest(7, d)
	}
	return w.b
}

// ReadQuestion reads what Bytes wrote.
func ReadQuestion(b []byte) (q Question, err error) {
	err = readMessage(b, func(f field) bool {
		switch f.number {
		case 1:
			q.Ticket = f.value
		case 2:
			return f.text(&q.Kind)
		case 3:
			return f.text(&q.Argument)
		case 4:
			return f.tasks(&q.Tasks)
		case 5:
			q.MaxBytes = f.value
		case 6:
			q.DigestsOnly = f.value != 0
		case 7:
			q.Digests = append(q.Digests, f.value)
			return len(q.Digests) <= maxDigests
		}
		return true
	})
	return q, err
}

// Bytes is how the answer is written.
func (a Answer) Bytes() []byte {
	var w fieldWriter
	w.number(1, a.Ticket)
	for _, p := range a.Parts {
		w.message(2, func(w *fieldWriter) {
			w.tasks(1, p.Tasks)
			w.digest(2, p.Digest)
			w.bytes(3, p.Body)
		})
	}
	return w.b
}

// ReadAnswer reads what Bytes wrote. The bodies are parts of b.
func ReadAnswer(b []byte) (a Answer, err error) {
	tasks := 0
	err = readMessage(b, func(f field) bool {
		switch f.number {
		case 1:
			a.Ticket = f.value
		case 2:
			p, err := readPart(f.bytes)
			a.Parts = append(a.Parts, p)
			tasks += len(p.Tasks)
			return err == nil && len(a.Parts) <= maxParts && tasks <= maxParts
		}
		return true
	})
	return a, err
}

func readPart(b []byte) (p Part, err error) {
	err = readMessage(b, func(f field) bool {
		switch f.number {
		case 1:
			return f.tasks(&p.Tasks)
		case 2:
			p.Digest = f.value
		case 3:
			p.Body = f.bytes
		}
		return true
	})
	return p, err
}

// Bytes is how the inquiry is written.
func (q Inquiry) Bytes() []byte {
	var w fieldWriter
	w.text(1, q.Kind)
	w.text(2, q.Argument)
	w.tasks(3, q.Tasks)
	w.flag(4, q.Fold)
	w.number(5, uint64(max(q.Wait, 0)))
	return w.b
}

// ReadInquiry reads what Bytes wrote.
func ReadInquiry(b []byte) (q Inquiry, err error) {
	err = readMessage(b, func(f field) bool {
		switch f.number {
		case 1:
			return f.text(&q.Kind)
		case 2:
			return f.text(&q.Argument)
		case 3:
			return f.tasks(&q.Tasks)
		case 4:
			q.Fold = f.value != 0
		case 5:
			q.Wait = time.Duration(min(f.value, uint64(time.Hour)))
		}
		return true
	})
	if err == nil && q.Kind == "" {
		err = errEvidence
	}
	return q, err
}

// Bytes is how what was gathered is written.
func (g Gathered) Bytes() []byte {
	var w fieldWriter
	for _, p := range g.Parts {
		w.message(1, func(w *fieldWriter) {
			w.tasks(1, p.Tasks)
			w.flag(2, p.Body != nil)
			w.bytes(3, p.Body)
			w.number(4, uint64(p.Asked.UnixNano()))
			w.number(5, uint64(p.Answered.UnixNano()))
		})
	}
	for _, name := range g.Silent {
		w.text(2, name)
	}
	w.number(3, uint64(g.Asked))
	w.number(4, uint64(g.Missing))
	w.number(5, uint64(g.LeftOut))
	return w.b
}

// ReadGathered reads what Bytes wrote. The bodies are parts of b.
func ReadGathered(b []byte) (g Gathered, err error) {
	err = readMessage(b, func(f field) bool {
		switch f.number {
		case 1:
			p, err := readGatheredPart(f.bytes)
			g.Parts = append(g.Parts, p)
			return err == nil
		case 2:
			g.Silent = append(g.Silent, "")
			return f.text(&g.Silent[len(g.Silent)-1])
		case 3:
			g.Asked = int(f.value)
		case 4:
			g.Missing = int(f.value)
		case 5:
			g.LeftOut = int(f.value)
		}
		return true
	})
	return g, err
}

func readGatheredPart(b []byte) (p GatheredPart, err error) {
	err = readMessage(b, func(f field) bool {
		switch f.number {
		case 1:
			return f.tasks(&p.Tasks)
		case 2:
			p.Body = []byte{}
		case 3:
			p.Body = f.bytes
		case 4:
			p.Asked = time.Unix(0, int64(f.value))
		case 5:
			p.Answered = time.Unix(0, int64(f.value))
		}
		return true
	})
	return p, err
}

// A fieldWriter writes a message field by field, in the form of protocol buffers: a reader skips fields that it does not
// know. Zero values are left out.
type fieldWriter struct{ b []byte }

func (w *fieldWriter) number(tag protowire.Number, v uint64) {
	if v != 0 {
		w.b = protowire.AppendVarint(protowire.AppendTag(w.b, tag, protowire.VarintType), v)
	}
}

func (w *fieldWriter) digest(tag protowire.Number, v uint64) {
	if v != 0 {
		w.b = protowire.AppendFixed64(protowire.AppendTag(w.b, tag, protowire.Fixed64Type), v)
	}
}

func (w *fieldWriter) flag(tag protowire.Number, set bool) {
	if set {
		w.number(tag, 1)
	}
}

func (w *fieldWriter) bytes(tag protowire.Number, v []byte) {
	if len(v) > 0 {
		w.b = protowire.AppendBytes(protowire.AppendTag(w.b, tag, protowire.BytesType), v)
	}
}

func (w *fieldWriter) text(tag protowire.Number, v string) {
	w.bytes(tag, []byte(v[:min(len(v), maxEvidenceText)]))
}

func (w *fieldWriter) message(tag protowire.Number, write func(*fieldWriter)) {
	var inner fieldWriter
	write(&inner)
	w.b = protowire.AppendBytes(protowire.AppendTag(w.b, tag, protowire.BytesType), inner.b)
}

// tasks writes tasks as ranges: those of a host are few ranges, however many they are.
func (w *fieldWriter) tasks(tag protowire.Number, tasks []serry.TaskID) {
	tasks = slices.Clone(tasks)
	slices.SortFunc(tasks, serry.TaskID.Compare)
	for i := 0; i < len(tasks); {
		n := 1
		for i+n < len(tasks) && tasks[i+n] == (serry.TaskID{Job: tasks[i].Job, Index: tasks[i].Index + n}) {
			n++
		}
		w.message(tag, func(w *fieldWriter) {
			w.text(1, tasks[i].Job)
			w.number(2, uint64(tasks[i].Index))
			w.number(3, uint64(n))
		})
		i += n
	}
}

// readMessage hands out the fields of a message one by one, until take refuses one.
func readMessage(b []byte, take func(field) bool) error {
	if !eachField(b, take) {
		return errEvidence
	}
	return nil
}

// text takes a text that is short enough.
func (f field) text(to *string) bool {
	if len(f.bytes) > maxEvidenceText {
		return false
	}
	*to = strings.ToValidUTF8(string(f.bytes), "\uFFFD")
	return true
}

// tasks adds a range of tasks to a list. Few bytes stand for many tasks, so their number has a limit.
func (f field) tasks(to *[]serry.TaskID) bool {
	var job string
	var first, count uint64
	err := readMessage(f.bytes, func(f field) bool {
		switch f.number {
		case 1:
			return f.text(&job)
		case 2:
			first = f.value
		case 3:
			count = f.value
		}
		return true
	})
	if err != nil || job == "" || count > uint64(maxListedTasks-len(*to)) || first > coord.MaxTasks-count {
		return false
	}
	for i := range count {
		*to = append(*to, serry.TaskID{Job: job, Index: int(first + i)})
	}
	return true
}
