package preempt

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/preempt/internal/pact"
)

// A Receipt says that a task has saved.
type Receipt struct {
	Task        string            `json:"task"`
	Step        int64             `json:"step"`
	Time        time.Time         `json:"time"`
	TookSeconds float64           `json:"took_seconds,omitempty"` // since this task heard of the notice; 0: not known
	Incarnation serry.Incarnation `json:"incarnation"`
	Round       int               `json:"-"`
}

// An Announcement says which task got a notice, from which source, and by when it must end. Commands show it later.
type Announcement struct {
	Task     string    `json:"task"`
	Source   string    `json:"source"`
	Deadline time.Time `json:"deadline"`
	Time     time.Time `json:"time"` // on the wall of its host
	Round    int       `json:"-"`
}

// Records are what the tasks of a job have left with the service about preemptions, by round and task. Rounds count from 1;
// those of jax's protocol are round 0.
type Records struct {
	Notices  []Announcement // of Go members; those of jaxlib do not say which task was told
	Receipts []Receipt
	Bad      *RecordError // or nil: all could be read
}

// The last parts of the keys of records.
const (
	savedPart = "saved"
	toldPart  = "told"
)

// Saved leaves a receipt with the service: this task has saved at that step.
func (s *Sync) Saved(ctx context.Context, step int64) error {
	r := Receipt{Task: s.member.Task().String(), Step: step, Time: time.Now().UTC(), Incarnation: s.member.Incarnation()}
	s.mu.Lock()
	if !s.mu.heard.IsZero() {
		r.TookSeconds = time.Since(s.mu.heard).Seconds()
		s.mu.heard = time.Time{}
	}
	s.mu.Unlock()
	round, _, _ := s.agreement()
	return s.record(ctx, round, savedPart, r)
}

// record stores what this task has to say about a round.
func (s *Sync) record(ctx context.Context, round int, part string, what any) error {
	text, err := json.Marshal(what)
	if err != nil {
		return err
	}
	return s.keys.Put(ctx, pact.Key(round, part, taskPart(s.member.Task())), text)
}

// Receipts lists which tasks have saved at which step. With a [RecordError] it returns all others.
func Receipts(ctx context.Context, keys Lister) ([]Receipt, error) {
	r, err := ReadRecords(ctx, keys)
	if err == nil && r.Bad != nil {
		err = r.Bad
	}
	return r.Receipts, err
}

// A RecordError is about records that cannot be read, and are left out. Any task can write under their keys.
type RecordError struct {
	Key  string // of the first
	More int    // others
	Err  error  // what is wrong with the first
}

func (e *RecordError) Error() string {
	text := fmt.Sprintf("record of a preemption %s: %v", e.Key, e.Err)
	if e.More > 0 {
		text += fmt.Sprintf("; %d more cannot be read", e.More)
	}
	return text
}

func (e *RecordError) Unwrap() error { return e.Err }

// ReadRecords lists which tasks were told to go, and which have saved at which step.
func ReadRecords(ctx context.Context, keys Lister) (Records, error) {
	entries, err := keys.List(ctx, pact.Dir)
	if err != nil {
		return Records{}, err
	}
	var all Records
	for _, e := range entries {
		_, rest, _ := strings.Cut(e.Key, pact.Dir+"/")
		number, what, _ := strings.Cut(rest, "/")
		part, _, _ := strings.Cut(what, "/")
		round, err := strconv.Atoi(number)
		if err != nil {
			continue
		}
		switch part {
		case savedPart:
			r := Receipt{Round: round}
			if err := readRecord(e.Value, &r, &r.Task); err != nil {
				all.leaveOut(e.Key, err)
				continue
			}
			all.Receipts = append(all.Receipts, r)
		case toldPart:
			a := Announcement{Round: round}
			if err := readRecord(e.Value, &a, &a.Task); err != nil {
				all.leaveOut(e.Key, err)
				continue
			}
			all.Notices = append(all.Notices, a)
		}
	}
	return all, nil
}

// readRecord reads a record of a task.
func readRecord(text []byte, to any, task *string) error {
	if err := json.Unmarshal(text, to); err != nil {
		return err
	}
	_, err := serry.ParseTaskID(*task)
	return err
}

// leaveOut notes a record that cannot be read.
func (r *Records) leaveOut(key string, err error) {
	if r.Bad == nil {
		r.Bad = &RecordError{Key: key, Err: err}
		return
	}
	r.Bad.More++
}
