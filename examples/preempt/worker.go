package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/client"
	"github.com/serry-dev/serry/preempt"
)

// isTraining is what a worker says when it has made a few steps.
const isTraining = "training"

const (
	pace   = 5 * time.Millisecond // how long a step takes
	warmUp = 20                   // steps until a worker says that it is training
)

// work is one worker: it trains until the job has to be saved.
func work(ctx context.Context, out io.Writer, cfg client.Config, tasks int) error {
	signals := preempt.Signals()
	defer signals.Close()
	m, err := client.Join(ctx, cfg)
	if err != nil {
		return err
	}
	defer m.Close()
	sync, err := preempt.New(m, m.KV(), signals, preempt.Options{})
	if err != nil {
		return err
	}
	defer sync.Close()

	step, err := train(ctx, out, m, sync)
	if err != nil {
		return err
	}
	save(step)
	if err := sync.Saved(ctx, step); err != nil {
		return err
	}
	if err := m.Barrier(ctx, "saved", serry.BarrierOptions{}); err != nil {
		return err
	}
	if m.Task().Index == 0 {
		if err := printReceipts(ctx, out, m, tasks); err != nil {
			return err
		}
	}
	return m.Leave(ctx)
}

// train makes steps until the one to save at.
func train(ctx context.Context, out io.Writer, m *client.Member, sync *preempt.Sync) (int64, error) {
	clock := time.NewTicker(pace)
	defer clock.Stop()
	for step := int64(1); ; step++ {
		select {
		case <-clock.C: // the step itself
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		case <-m.Context().Done(): // the job has lost a task
			return 0, context.Cause(m.Context())
		}
		if step == warmUp {
			fmt.Fprintln(out, isTraining)
		}
		reached, err := sync.Reached(ctx, step)
		if reached || err != nil {
			return step, err
		}
	}
}

// save would write a checkpoint. It may take its time: no other worker depends on this one before its receipt.
func save(int64) {}

func printReceipts(ctx context.Context, out io.Writer, m *client.Member, tasks int) error {
	receipts, err := preempt.Receipts(ctx, m.KV())
	if err != nil {
		return err
	}
	if len(receipts) != tasks {
		return fmt.Errorf("%d receipts of %d workers: %v", len(receipts), tasks, receipts)
	}
	for _, r := range receipts {
		fmt.Fprintf(out, "%s saved at step %d\n", r.Task, r.Step)
	}
	return nil
}
