package wire

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/lab/clause"
)

func hostTasks(first, n int) (tasks []serry.TaskID) {
	for i := range n {
		tasks = append(tasks, serry.TaskID{Job: "worker", Index: first + i})
	}
	return tasks
}

func TestEvidenceMessages(t *testing.T) {
	clause.Cite(t, "D-ST-15")
	at := time.Unix(1700000000, 5)
	attendance := Attendance{ID: 7, Name: "node-a", Task: serry.TaskID{Job: "worker", Index: 3}}
	if got, err := ReadAttendance(attendance.Bytes()); err != nil || got != attendance {
		t.Errorf("ReadAttendance() = %+v, %v; want %+v", got, err, attendance)
	}
	question := Question{Ticket: 9, Kind: "stacks", Argument: "threads", Tasks: append(hostTasks(0, 3), hostTasks(9, 2)...), MaxBytes: 4096, DigestsOnly: true, Digests: []uint64{1, 1 << 63}}
	if got, err := ReadQuestion(question.Bytes()); err != nil || cmp.Diff(got, question) != "" {
		t.Errorf("ReadQuestion() = %+v, %v; want %+v", got, err, question)
	}
	answer := Answer{Ticket: 9, Parts: []Part{{Tasks: hostTasks(0, 8), Digest: 5}, {Tasks: hostTasks(8, 1), Body: []byte("x")}}}
	if got, err := ReadAnswer(answer.Bytes()); err != nil || cmp.Diff(got, answer) != "" {
		t.Errorf("ReadAnswer() = %+v, %v; want %+v", got, err, answer)
	}
	inquiry := Inquiry{Kind: "stacks", Argument: "x", Tasks: hostTasks(0, 10000), Fold: true, Wait: 2 * time.Second}
	if got, err := ReadInquiry(inquiry.Bytes()); err != nil || cmp.Diff(got, inquiry) != "" {
		t.Errorf("ReadInquiry() = %+v, %v; want %+v", got, err, inquiry)
	}
	if n := len(inquiry.Bytes()); n > 64 {
		t.Errorf("an inquiry about 10000 tasks in a row has %d bytes; want few", n)
	}
	gathered := Gathered{Parts: []GatheredPart{{Tasks: hostTasks(0, 2), Body: []byte("x"), Asked: at, Answered: at.Add(time.Second)}, {Tasks: hostTasks(3, 1), Asked: at, Answered: at}}, Silent: []string{"node-b"}, Asked: 3, Missing: 1, LeftOut: 2}
	if got, err := ReadGathered(gathered.Bytes()); err != nil || cmp.Diff(got, gathered) != "" {
		t.Errorf("ReadGathered() = %+v, %v; want %+v", got, err, gathered)
	}
}

func TestEvidenceLimits(t *testing.T) {
	clause.Cite(t, "D-ST-15")
	var many fieldWriter
	for i := range 2 {
		many.message(3, func(w *fieldWriter) {
			w.text(1, "worker")
			w.number(2, uint64(i))
			w.number(3, maxListedTasks)
		})
	}
	many.text(1, "stacks")
	if _, err := ReadInquiry(many.b); err == nil {
		t.Error("ReadInquiry() takes a few bytes that stand for more tasks than the limit")
	}
	if _, err := ReadAnswer(Answer{Ticket: 1, Parts: []Part{{Tasks: hostTasks(0, maxParts+1)}}}.Bytes()); err == nil {
		t.Error("ReadAnswer() takes more tasks than a host has")
	}
	if _, err := ReadAttendance(Attendance{Name: "without an id"}.Bytes()); err == nil {
		t.Error("ReadAttendance() takes one without an id")
	}
}

// FuzzEvidence feeds the readers of all messages about evidence. What they accept they write and read again.
func FuzzEvidence(f *testing.F) {
	f.Add(Attendance{ID: 7, Name: "node-a", Task: serry.TaskID{Job: "worker", Index: 3}}.Bytes())
	f.Add(Question{Ticket: 9, Kind: "stacks", Tasks: hostTasks(0, 3), Digests: []uint64{5}}.Bytes())
	f.Add(Answer{Ticket: 9, Parts: []Part{{Tasks: hostTasks(0, 8), Digest: 5, Body: []byte("x")}}}.Bytes())
	f.Add(Inquiry{Kind: "stacks", Tasks: hostTasks(1, 3), Fold: true, Wait: time.Second}.Bytes())
	f.Add(Gathered{Parts: []GatheredPart{{Tasks: hostTasks(0, 2), Body: []byte("x")}}, Silent: []string{"a"}, Asked: 1}.Bytes())
	f.Fuzz(func(t *testing.T, b []byte) {
		if a, err := ReadAttendance(b); err == nil {
			again(t, a.Bytes(), func(b []byte) ([]byte, error) { a, err := ReadAttendance(b); return a.Bytes(), err })
		}
		if q, err := ReadQuestion(b); err == nil {
			again(t, q.Bytes(), func(b []byte) ([]byte, error) { q, err := ReadQuestion(b); return q.Bytes(), err })
		}
		if a, err := ReadAnswer(b); err == nil {
			again(t, a.Bytes(), func(b []byte) ([]byte, error) { a, err := ReadAnswer(b); return a.Bytes(), err })
		}
		if q, err := ReadInquiry(b); err == nil {
			again(t, q.Bytes(), func(b []byte) ([]byte, error) { q, err := ReadInquiry(b); return q.Bytes(), err })
		}
		if g, err := ReadGathered(b); err == nil {
			again(t, g.Bytes(), func(b []byte) ([]byte, error) { g, err := ReadGathered(b); return g.Bytes(), err })
		}
	})
}

// again reads what was written, and writes it once more.
func again(t *testing.T, first []byte, rewrite func([]byte) ([]byte, error)) {
	t.Helper()
	if second, err := rewrite(first); err != nil || !bytes.Equal(first, second) {
		t.Fatalf("%x is written again as %x, %v", first, second, err)
	}
}
