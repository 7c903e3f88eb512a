package collective

import (
	"context"
	"slices"

	"github.com/serry-dev/serry"
)

const maxPrepared = 64 // cliques that no caller has taken yet

// Prepare begins to form the clique of a list of devices in the background, and returns at once. The next call of [Group.Clique]
// with the same devices takes it, and waits for what is left to do. So a program that knows which cliques it will need, as that
// of all devices or those of its host, has them formed while it does something else (CL-CRE-12). The other processes may
// prepare the clique, too, or ask for it. Prepare waits for them for as long as the group is open: no program waits for it. A clique
// that could not be formed, or has failed since, is formed by the call that needs it.
func (g *Group) Prepare(devices []serry.DeviceID, o CliqueOptions) error {
	l := &lineage{devices: slices.Clone(devices), traffic: o.Traffic}
	if _, err := g.owners(devices); err != nil {
		return err
	}
	f := &forming{done: make(chan struct{})}
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.mu.closed:
		return ErrClosed
	case g.mu.prepared[l.name()] != nil:
		return nil
	case len(g.mu.prepared) >= maxPrepared:
		return invalid("more than %d cliques are prepared", maxPrepared)
	}
	g.mu.prepared[l.name()] = f
	g.work.Go(func() { g.prepare(l, f) })
	return nil
}

// prepare forms a clique for a caller that will come.
func (g *Group) prepare(l *lineage, f *forming) {
	defer close(f.done)
	if f.clique, f.err = g.formLineage(g.ctx, l); f.err != nil {
		g.log.Info("clique not prepared", "err", f.err)
	}
}

// takePrepared is the clique that was prepared for this caller, or nil. Of several callers the first takes it, and the others find
// it among those that are formed. A caller that gives up leaves it to the next one.
func (g *Group) takePrepared(ctx context.Context, l *lineage) (*clique, error) {
	g.mu.Lock()
	f := g.mu.prepared[l.name()]
	g.mu.Unlock()
	if f == nil {
		return nil, nil
	}
	select {
	case <-f.done:
	case <-ctx.Done():
		tasks, _ := g.owners(l.devices)
		return nil, g.gaveUp(ctx, max(slices.Index(tasks, g.life.Task), 0), nil, "the clique is still being prepared")
	}
	g.mu.Lock()
	taken := g.mu.prepared[l.name()] != f
	if !taken {
		delete(g.mu.prepared, l.name())
	}
	g.mu.Unlock()
	if taken || f.err != nil {
		return nil, nil
	}
	if f.clique.failed.Load() != nil {
		g.release(f.clique)
		return nil, nil
	}
	return f.clique, nil
}
