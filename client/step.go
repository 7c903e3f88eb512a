package client

import (
	"context"
	"strconv"
	"time"

	"github.com/serry-dev/serry/goodput"
)

// stepPause is how often a member reports its steps: as often as a launcher reads those that are in files.
const stepPause = time.Second

// Step tells the service that this task has finished a step, so that people see how far the job has come, which tasks hold the
// others up, and how much of the time was of use (D-GP-1). Of steps that come quickly some are left out.
func (m *Member) Step(ctx context.Context, number int64) error {
	return m.report(ctx, goodput.Step{Number: number})
}

// Phase tells the service that after a step the task does something else than training, such as "checkpoint", until its next
// step. The time of it is shown under that name.
func (m *Member) Phase(ctx context.Context, number int64, name string) error {
	return m.report(ctx, goodput.Step{Number: number, Phase: name})
}

// report stores a step, unless another one was stored just before. The begin and the end of a phase are always stored.
func (m *Member) report(ctx context.Context, s goodput.Step) error {
	if again, err := goodput.ReadStep([]byte(s.String())); err != nil || again != s {
		return goodput.ErrStep
	}
	now := time.Now()
	m.mu.Lock()
	soon := now.Sub(m.mu.stepAt) < stepPause && s.Phase == m.mu.phase
	if !soon {
		m.mu.stepAt, m.mu.phase = now, s.Phase
	}
	m.mu.Unlock()
	if soon {
		return nil
	}
	name := strconv.Itoa(m.cfg.Task.Index)
	if m.cfg.Task.Job != "" {
		name = m.cfg.Task.Job + "/" + name
	}
	return m.KV().Put(ctx, goodput.StepKeys+name, []byte(s.String()))
}
