package preempt

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/pause"
	"github.com/serry-dev/serry/preempt/internal/pact"
)

// The names that jax's protocol uses (A-PRE-8 to A-PRE-14).
const (
	noticeKey   = "RECEIVED_PREEMPTION_NOTICE"
	countersDir = "PREEMPTION_CURRENT_COUNTER"
	syncBarrier = "PREEMPTION_SYNC_BARRIER"
)

// postCompat announces a notice to the job. The first one wins.
func (s *Sync) postCompat(ctx context.Context, n Notice) error {
	err := s.keys.Create(ctx, noticeKey, []byte(pact.FormatTime(n.Deadline)))
	if errors.Is(err, serry.ErrExists) {
		s.opts.Log.Info("another preemption notice was first", "task", s.member.Task())
		return nil
	}
	return err
}

// agreeOnce waits for the first notice of any task and takes part in jax's protocol.
func (s *Sync) agreeOnce() error {
	text, err := s.keys.Wait(s.ctx, noticeKey)
	if err != nil {
		return fmt.Errorf("wait for a notice: %w", err)
	}
	deadline, err := pact.ParseTime(string(text))
	if err != nil {
		return err
	}
	s.announce(Notice{Deadline: deadline, Source: "the job"})
	if err := pause.For(s.ctx, time.Until(deadline.Add(-s.opts.LeadTime))); err != nil {
		return err
	}
	last := s.holdSteps()
	defer s.release()
	// A task that has restarted finds its counter there already. It must not disturb the others.
	if err := s.keys.Create(s.ctx, s.counterKey(), strconv.AppendInt(nil, last, 10)); err != nil {
		return fmt.Errorf("publish the last step: %w", err)
	}
	if err := s.meet(s.ctx, syncBarrier); err != nil {
		return err
	}
	counters, err := s.keys.List(s.ctx, countersDir)
	if err != nil {
		return err
	}
	highest, err := highestStep(counters)
	if err != nil {
		return err
	}
	s.settle(highest + 1)
	return nil
}

// counterKey is where this task publishes its last step: by number, as jaxlib does, and with its job
// where that is not the usual one.
func (s *Sync) counterKey() string {
	t := s.member.Task()
	if t.Job == "worker" || t.Job == "" {
		return countersDir + "/" + strconv.Itoa(t.Index)
	}
	return fmt.Sprintf("%s/job:%s/task:%d", countersDir, t.Job, t.Index)
}

// highestStep is the last step that any task made.
func highestStep(counters []serry.Entry) (int64, error) {
	if len(counters) == 0 {
		return 0, errors.New("nobody has published a step")
	}
	var highest int64
	for i, c := range counters {
		step, err := strconv.ParseInt(strings.TrimSpace(string(c.Value)), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("step in key %q: %w", c.Key, err)
		}
		if i == 0 || step > highest {
			highest = step
		}
	}
	return highest, nil
}

// holdSteps makes Reached wait and returns the last step that was made.
func (s *Sync) holdSteps() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.open = make(chan struct{})
	return s.mu.last
}

// release lets steps go on.
func (s *Sync) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.open != nil {
		close(s.mu.open)
		s.mu.open = nil
	}
}

// settle makes a step the one to save at.
func (s *Sync) settle(point int64) {
	s.mu.Lock()
	s.mu.point, s.mu.agreed = point, true
	s.mu.Unlock()
}
