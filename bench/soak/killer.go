package main

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/serry-dev/serry/bench/internal/fleet"
)

// restartAfter is how long a killed server stays away, as one under a supervisor would.
const restartAfter = time.Second

// A killer kills the server that leads.
type killer struct {
	service  *fleet.Service
	every    time.Duration
	calm     *sync.Mutex // held by the goroutine that disturbs the service: kills and freezes do not overlap
	progress io.Writer
	killed   int // owned by run
}

// run kills a leader now and then, and starts it again, until ctx ends. All servers run when it returns.
func (k *killer) run(ctx context.Context, c *clients) error {
	// The first kill comes early, so that a run of one interval has one.
	return repeat(ctx, k.calm, k.every/2, k.every, func() error { return k.kill(ctx, c) })
}

// kill kills the leader and starts it again.
func (k *killer) kill(ctx context.Context, c *clients) error {
	leader, term, err := k.service.Leader(ctx)
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return err
	}
	leader.Kill()
	c.disturb(kill)
	k.killed++
	fmt.Fprintf(k.progress, "soak: killed %s, leader of term %d (%d calls so far, %d dead)\n", leader.Address, term, c.calls.Load(), c.dead.Load())
	select {
	case <-time.After(restartAfter):
	case <-ctx.Done():
	}
	if err := leader.Start(context.WithoutCancel(ctx)); err != nil {
		return fmt.Errorf("start again: %w", err)
	}
	return nil
}

// repeat disturbs the service after first and then every so often, until ctx ends. It holds calm meanwhile, so
// that no other goroutine disturbs the service at the same time.
func repeat(ctx context.Context, calm *sync.Mutex, first, every time.Duration, disturb func() error) error {
	timer := time.NewTimer(first)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return nil
		}
		timer.Reset(every)
		calm.Lock()
		err := disturb()
		calm.Unlock()
		if err != nil {
			return err
		}
	}
}
