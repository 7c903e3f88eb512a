package main

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/serry-dev/serry/bench/internal/fleet"
)

// A stopper stops the process of the leader now and then with SIGSTOP, for longer than the lease, and lets it
// go on. For the process the clock jumps: it wakes up as a leader, with connections on which clients have
// given up, and another leads.
type stopper struct {
	service       *fleet.Service
	length, every time.Duration
	calm          *sync.Mutex // held by the goroutine that disturbs the service: stops, kills and freezes do not overlap
	progress      io.Writer
	stopped       int // owned by run: how often
}

// run stops leaders until ctx ends. All servers run when it returns.
func (s *stopper) run(ctx context.Context, c *clients) error {
	// The first stop comes between two kills, and after a freeze.
	return repeat(ctx, s.calm, s.every*2/3, s.every, func() error { return s.stop(ctx, c) })
}

func (s *stopper) stop(ctx context.Context, c *clients) error {
	leader, term, err := s.service.Leader(ctx)
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return err
	}
	if err := leader.Stop(); err != nil {
		return err
	}
	c.disturb(stop)
	s.stopped++
	fmt.Fprintf(s.progress, "soak: stopped %s, leader of term %d, for %v (%d calls so far, %d dead)\n",
		leader.Address, term, s.length, c.calls.Load(), c.dead.Load())
	select {
	case <-time.After(s.length):
	case <-ctx.Done():
	}
	return leader.Continue()
}
