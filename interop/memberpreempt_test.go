package interop

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"testing"

	member "github.com/serry-dev/serry/client"
	"github.com/serry-dev/serry/internal/lab"
	"github.com/serry-dev/serry/preempt"
)

// T-PRE-24: Go members and jax processes agree on one step to save at, whoever of them is told to go.
// The step is the one after the largest that anybody has made.
func TestGoMembersAndJaxAgreeOnAStep(t *testing.T) {
	lab.Clause(t, "T-PRE-24", "A-PRE-9", "A-PRE-14")
	skipShort(t)
	t.Parallel()
	t.Run("a jax process is told", func(t *testing.T) {
		beside(t, 2)
		j := joinMixed(t, serve(t, "--tasks", "4").addr, jaxNew, 4, 1, 2)
		j.preempted(nil, func() { j.jax[0].signal(syscall.SIGTERM) })
	})
	t.Run("a Go member is told", func(t *testing.T) {
		beside(t, 2)
		j := joinMixed(t, serve(t, "--tasks", "4").addr, jaxNew, 4, 1, 2)
		told := preempt.Signals(syscall.SIGUSR1) // a real one, to this process
		defer told.Close()
		j.preempted(told, func() { syscall.Kill(os.Getpid(), syscall.SIGUSR1) })
	})
}

// The same with the service and the clients that come with jaxlib, in both dialects.
func TestGoMemberAndJaxAgreeOnAStepByAStockService(t *testing.T) {
	lab.Clause(t, "T-PRE-24", "A-GO-6")
	t.Parallel()
	eachStock(t, func(t *testing.T, v venv) {
		j := joinMixed(t, serveStock(t, v, 2).addr, v, 2, 0)
		j.preempted(nil, func() { j.jax[0].signal(syscall.SIGTERM) })
	})
}

// preempted runs a job to different steps, has one task be told that it must go, and takes all
// further: they must save at the step after the largest. A notice to the first Go member comes from n.
func (j *mixedJob) preempted(n preempt.Notifier, tell func()) {
	j.t.Helper()
	syncs := make(map[*member.Member]*preempt.Sync)
	for i, m := range j.members {
		if i > 0 {
			n = nil
		}
		s, err := preempt.New(m, m.KV(), n, preempt.Options{})
		if err != nil {
			j.t.Fatal(err)
		}
		defer s.Close()
		syncs[m] = s
	}
	const largest = 71
	for i, c := range j.jax {
		c.call("steps_to", largest-10*i).value(nil)
	}
	for _, m := range j.members {
		if save, err := stepsTo(j.t.Context(), syncs[m], 1, 20); save != 0 || err != nil {
			j.t.Fatalf("%v: saves at %d, %v; want no step yet", m.Task(), save, err)
		}
	}
	tell()
	j.allHaveToldTheirStep()

	for _, c := range j.jax {
		c.begin("steps_to", largest+5)
	}
	saved := together(j.t, j.members, func(ctx context.Context, m *member.Member) (int64, error) {
		save, err := stepsTo(ctx, syncs[m], 21, largest+5)
		if err == nil {
			err = syncs[m].Saved(ctx, save)
		}
		return save, err
	})
	for i, got := range saved {
		if got != largest+1 {
			j.t.Errorf("%v: saves at step %d; want %d", j.members[i].Task(), got, largest+1)
		}
	}
	for _, c := range j.jax {
		var got int64
		if c.end().value(&got); got != largest+1 {
			j.t.Errorf("%s: saves at step %d; want %d", c.name, got, largest+1)
		}
	}
	receipts, err := preempt.Receipts(j.t.Context(), j.members[0].KV())
	if err != nil || len(receipts) != len(j.members) {
		j.t.Errorf("Receipts() = %v, %v; want one of each Go member", receipts, err)
	}
	j.leave()
}

// allHaveToldTheirStep returns when every task has written down its step: from then on Reached knows
// the one that is agreed on, or waits for it.
func (j *mixedJob) allHaveToldTheirStep() {
	j.t.Helper()
	ctx, cancel := context.WithTimeout(j.t.Context(), patience)
	defer cancel()
	kv := j.members[0].KV()
	for { // a stock service has no watch of keys
		told, err := kv.List(ctx, "PREEMPTION_CURRENT_COUNTER")
		if err != nil {
			j.t.Fatalf("%d of %d tasks have told their step: %v", len(told), j.size, err)
		}
		if len(told) == j.size {
			return
		}
	}
}

// stepsTo makes steps and returns the one to save at, 0 if it was not among them.
func stepsTo(ctx context.Context, s *preempt.Sync, first, last int64) (save int64, err error) {
	for step := first; step <= last; step++ {
		reached, err := s.Reached(ctx, step)
		if err != nil {
			return 0, fmt.Errorf("step %d: %w", step, err)
		}
		if reached {
			save = step
		}
	}
	return save, nil
}
