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
	timer := time.NewTimer(k.every / 2) // so that a run of one interval has one kill
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return nil
		}
		timer.Reset(k.every)
		k.calm.Lock()
		err := k.kill(ctx, c)
		k.calm.Unlock()
		if ctx.Err() != nil && err == nil {
			return nil
		}
		if err != nil {
			return err
		}
	}
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
