package collective

import (
	"context"
	"slices"

	"github.com/serry-dev/serry/internal/lockrank"
)

// A grant is the right of one run to use a list of cliques. The participants of the run in this process share it.
type grant struct {
	run     uint64
	cliques []*clique
	asked   []Request // what the cliques were asked for with, by place
	users   int       // participants that have not released it; guarded by the lock of locks
}

// locks hand cliques out to runs, one run at a time. A run gets its whole list at once or waits for all of it, so two runs
// of this process cannot each hold what the other needs (CL-ORD-14). Runs that wait are served in the order of arrival, but
// one that needs nothing which an earlier one waits for does not wait behind it (CL-LCK-4).
type locks struct {
	mu    lockrank.Mutex[runsLock]
	queue []*claim
}

// A claim is a run that waits for its cliques.
type claim struct {
	grant *grant
	ready chan struct{}
}

// try takes the cliques if all are free and no run waits for any of them.
func (l *locks) try(g *grant) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range g.cliques {
		if c.holder != nil || slices.ContainsFunc(l.queue, func(other *claim) bool { return slices.Contains(other.grant.cliques, c) }) {
			return false
		}
	}
	l.take(g)
	return true
}

// take makes a run the holder of its cliques; mu is held.
func (l *locks) take(g *grant) {
	for _, c := range g.cliques {
		c.holder = g
		c.run.Store(g.run)
	}
}

// acquire waits until the run has all of its cliques, or ctx ends.
func (l *locks) acquire(ctx context.Context, g *grant) error {
	if l.try(g) {
		return nil
	}
	mine := &claim{g, make(chan struct{})}
	l.mu.Lock()
	l.queue = append(l.queue, mine)
	l.serve() // what was held may have been released since
	l.mu.Unlock()
	select {
	case <-mine.ready:
		return nil
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.queue, mine); i >= 0 {
		l.queue = slices.Delete(l.queue, i, i+1)
		l.serve() // those behind it do not wait for what it waits for any more
		return l.heldUp(g)
	}
	return nil // it was served just then
}

// heldUp is the error of a run that did not get its cliques in time; mu is held.
func (l *locks) heldUp(g *grant) error {
	for _, c := range g.cliques {
		if c.holder != nil {
			return &heldError{c, c.holder.run}
		}
	}
	return &heldError{g.cliques[0], 0}
}

// serve gives cliques to the runs that can have them; mu is held.
func (l *locks) serve() {
	awaited := make(map[*clique]bool)
	l.queue = slices.DeleteFunc(l.queue, func(k *claim) bool {
		free := !slices.ContainsFunc(k.grant.cliques, func(c *clique) bool { return c.holder != nil || awaited[c] })
		if free {
			l.take(k.grant)
			close(k.ready)
			return true
		}
		for _, c := range k.grant.cliques {
			awaited[c] = true
		}
		return false
	})
}

// release notes that a participant has done with the cliques of its run. The last one gives them to the runs that wait.
func (l *locks) release(g *grant) (last bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	g.users--
	if g.users > 0 {
		return false
	}
	for _, c := range g.cliques {
		c.holder = nil
		c.run.Store(0)
	}
	if len(l.queue) > 0 {
		l.serve()
	}
	return true
}
