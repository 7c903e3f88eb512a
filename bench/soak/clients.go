package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/serry-dev/serry/bench/internal/agent"
	"github.com/serry-dev/serry/bench/internal/fleet"
	"github.com/serry-dev/serry/internal/lab/history"
)

const (
	// heartbeatTimeout is shorter than jax's, so that every outage meets some heartbeats.
	heartbeatTimeout = 10 * time.Second

	// patience bounds what comes before and after the work, and how long a call may take: far longer than
	// any stall that would be forgiven.
	patience = time.Minute

	// groupSize is how many clients share keys, live sets and every other barrier.
	groupSize = 8
)

// clients are all clients of the job, and what they share.
type clients struct {
	all    []*client
	groups int
	clock  history.Clock

	barriers *rounds
	liveSets []*rounds    // by group
	calls    atomic.Int64 // that were answered
	dead     atomic.Int64

	// Set when work begins.
	began  time.Time
	giveUp context.CancelCauseFunc // ends the work, when a client dies or a call fails

	mu           sync.Mutex
	complaint    []string      // guarded by mu: the first calls that failed
	disturbances []disturbance // guarded by mu: what was done to the service, in order
}

// A disturbance is something that was done to the service.
type disturbance string

const (
	kill   disturbance = "kill"   // of the leader
	freeze disturbance = "freeze" // of the folder of a server
	stop   disturbance = "stop"   // of the process of the leader, by SIGSTOP
)

// connect lets all clients register, each with its relay.
func (o options) connect(ctx context.Context, dir string) (*clients, error) {
	c := &clients{all: make([]*client, o.clients), groups: (o.clients + groupSize - 1) / groupSize, barriers: new(rounds)}
	for range c.groups {
		c.liveSets = append(c.liveSets, new(rounds))
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	life := uint64(time.Now().UnixNano())
	errs := make([]error, o.clients)
	var wg sync.WaitGroup
	for i := range c.all {
		wg.Go(func() {
			cfg := agent.Config{
				Address: fleet.Socket(dir, i*o.relays/o.clients), Task: i,
				Incarnation: life + uint64(i), HeartbeatTimeout: heartbeatTimeout,
			}
			a, err := agent.Connect(ctx, cfg)
			if err != nil {
				errs[i] = err
				return
			}
			c.all[i] = newClient(c, a, cfg.Incarnation, o.seed)
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// members are the tasks of a group, each behind another relay.
func (c *clients) members(group int) (all []int32) {
	for i := group; i < len(c.all); i += c.groups {
		all = append(all, int32(i))
	}
	return all
}

// work lets all clients work until working ends, and then come to an end together.
func (c *clients) work(ctx, working context.Context) error {
	ctx, c.giveUp = context.WithCancelCause(ctx)
	defer c.giveUp(nil)
	c.began = time.Now()
	var wg sync.WaitGroup
	for _, one := range c.all {
		for _, loop := range []func(context.Context, context.Context){one.keyLoop, one.barrierLoop, one.liveLoop} {
			wg.Go(func() { loop(ctx, working) })
		}
		wg.Go(func() { one.wait(ctx, working) })
	}
	<-working.Done()
	c.barriers.stop()
	for _, r := range c.liveSets {
		r.stop()
	}
	timer := time.AfterFunc(patience, func() { c.giveUp(fmt.Errorf("calls have no answer %v after the last kill", patience)) })
	defer timer.Stop()
	wg.Wait()
	for _, one := range c.all { // when no client writes any more
		wg.Go(func() { one.auditAll(ctx) })
	}
	wg.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// leave lets all clients leave together, as the end of a job does.
func (c *clients) leave(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	errs := make([]error, len(c.all))
	var wg sync.WaitGroup
	for i, one := range c.all {
		wg.Go(func() {
			if err := one.agent.Shutdown(ctx); err != nil {
				errs[i] = fmt.Errorf("client %d cannot leave: %w", i, err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs[:min(len(errs), 3)]...)
}

func (c *clients) close() {
	var wg sync.WaitGroup
	for _, one := range c.all {
		if one != nil {
			wg.Go(one.agent.Close)
		}
	}
	wg.Wait()
}

// disturb begins the time in which stalls are counted for another disturbance.
func (c *clients) disturb(d disturbance) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.disturbances = append(c.disturbances, d)
}

// disturbed is how often the service was disturbed.
func (c *clients) disturbed() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.disturbances)
}

// complain notes a call that failed.
func (c *clients) complain(what string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if text := what + ": " + err.Error(); len(c.complaint) < 10 && !slices.Contains(c.complaint, text) {
		c.complaint = append(c.complaint, text)
	}
}

// rounds lets clients that meet again and again end after the same round.
type rounds struct {
	mu    sync.Mutex
	over  bool
	limit int // rounds that a client has begun
}

// begin says whether there is a round of this number for all clients.
func (r *rounds) begin(round int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if round < r.limit {
		return true
	}
	if r.over {
		return false
	}
	r.limit = round + 1
	return true
}

// stop lets no further round begin.
func (r *rounds) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = true
}
