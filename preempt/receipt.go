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
	Incarnation serry.Incarnation `json:"incarnation"`
	Round       int               `json:"-"`
}

// Saved leaves a receipt with the service: this task has saved at that step.
func (s *Sync) Saved(ctx context.Context, step int64) error {
	round, _, _ := s.agreement()
	text, err := json.Marshal(Receipt{
		Task: s.member.Task().String(), Step: step, Time: time.Now().UTC(), Incarnation: s.member.Incarnation(),
	})
	if err != nil {
		return err
	}
	return s.keys.Put(ctx, pact.Key(round, "saved", taskPart(s.member.Task())), text)
}

// Receipts lists who has saved at which step, by round and task. Rounds count from 1; those of jax's
// protocol are round 0.
func Receipts(ctx context.Context, keys Lister) ([]Receipt, error) {
	entries, err := keys.List(ctx, pact.Dir)
	if err != nil {
		return nil, err
	}
	var receipts []Receipt
	for _, e := range entries {
		_, rest, _ := strings.Cut(e.Key, pact.Dir+"/")
		number, what, _ := strings.Cut(rest, "/")
		round, err := strconv.Atoi(number)
		if err != nil || !strings.HasPrefix(what, "saved/") {
			continue
		}
		r := Receipt{Round: round}
		if err := json.Unmarshal(e.Value, &r); err != nil {
			return nil, fmt.Errorf("receipt %s: %w", e.Key, err)
		}
		receipts = append(receipts, r)
	}
	return receipts, nil
}
