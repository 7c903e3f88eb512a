package collective

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/serry-dev/serry"
)

// A forming is a clique that a caller is forming, and others wait for.
type forming struct {
	done   chan struct{}
	err    error   // set before done is closed
	clique *clique // of a lineage: set before done is closed
}

// obtain finds a clique, or forms it. Callers of one process that want the same clique form it once.
func (g *Group) obtain(ctx context.Context, key *Key, l *lineage) (*clique, error) {
	name := string(key.append(nil))
	for {
		g.mu.Lock()
		if g.mu.closed {
			g.mu.Unlock()
			return nil, ErrClosed
		}
		if c := g.mu.cached[name]; c != nil && c.failed.Load() == nil {
			g.mu.Unlock()
			held, err := c.holdOrAwait(ctx)
			switch {
			case err != nil:
				return nil, err
			case held:
				g.tally.hits.Add(1)
				return c, nil
			}
			continue
		}
		f := g.mu.forming[name]
		if f == nil {
			f = &forming{done: make(chan struct{})}
			g.mu.forming[name] = f
			g.mu.Unlock()
			g.tally.misses.Add(1)
			return g.lead(ctx, newMeeting(g, key), l, name, f)
		}
		g.mu.Unlock()
		select {
		case <-f.done:
			if f.err != nil {
				return nil, f.err
			}
		case <-ctx.Done():
			return nil, g.gaveUp(ctx, key.RanksOf(g.life)[0], nil, "another caller of this process forms the clique")
		}
	}
}

// lead forms a clique that other callers may wait for.
func (g *Group) lead(ctx context.Context, m *meeting, l *lineage, name string, f *forming) (*clique, error) {
	c, err := g.form(ctx, m, l)
	if err == nil {
		err = g.keep(c)
	}
	g.mu.Lock()
	delete(g.mu.forming, name)
	g.mu.Unlock()
	f.err = err
	close(f.done)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// keep makes a clique that was formed ready for use.
func (g *Group) keep(c *clique) error {
	c.hold()
	name := string(c.key.append(nil))
	g.mu.Lock()
	g.mu.cached[name] = c
	failed := c.failed.Load() // between its forming and now
	if failed != nil {
		delete(g.mu.cached, name)
	}
	g.mu.Unlock()
	if failed != nil {
		return failed
	}
	g.tally.created.Add(1)
	if !c.backend.Alone() {
		g.background(0, func(context.Context) { c.connect() })
	}
	return nil
}

// A tally counts what became of cliques.
type tally struct{ hits, misses, created, splits, evicted, aborted atomic.Uint64 }

// Counters say what became of the cliques of a group since New. They never fall (CL-CCH-4).
type Counters struct {
	Hits    uint64 // calls that found the clique that they asked for
	Misses  uint64 // calls that did not
	Created uint64 // cliques that were formed, parts and successors of others among them
	Splits  uint64 // parts of cliques that were formed
	Evicted uint64 // cliques that were closed because too many were idle, or for too long, counted by the process that decided it
	Aborted uint64 // cliques that ended because something went wrong, or a member wanted it
}

// Counters counts what became of cliques so far.
func (g *Group) Counters() Counters {
	t := &g.tally
	return Counters{t.hits.Load(), t.misses.Load(), t.created.Load(), t.splits.Load(), t.evicted.Load(), t.aborted.Load()}
}

// register makes a clique known to the handler. It fails if a member was lost meanwhile, or a link over which they met.
func (g *Group) register(c *clique) error {
	g.mu.Lock()
	var lost *Error
	for _, l := range c.others {
		if err := g.mu.past[l]; err != nil {
			lost = c.lossOf(l, err)
			break
		}
	}
	if g.mu.closed && lost == nil {
		lost = &Error{Origin: c.first.rank, Err: ErrClosed}
	}
	g.mu.streams[c.stream] = c
	seen := g.mu.strange[c.stream]
	delete(g.mu.strange, c.stream)
	errands := g.takeErrands(c.stream)
	g.mu.Unlock()
	for _, s := range seen {
		c.unexpected(s.from, s.header)
	}
	for _, e := range errands {
		if e.header.Generation == c.key.Generation {
			c.heardErrand(e.link, e.header, e.payload)
		}
	}
	if lost == nil {
		lost = c.brokenLink()
	}
	if lost != nil {
		return c.revoke(lost)
	}
	return nil
}

// retire takes a clique that is over out of use.
func (g *Group) retire(c *clique) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.mu.streams, c.stream)
	if name := string(c.key.append(nil)); g.mu.cached[name] == c {
		delete(g.mu.cached, name)
	}
	if g.mu.over[c.stream] != nil {
		return
	}
	if len(g.mu.overs) >= maxOver {
		delete(g.mu.over, g.mu.overs[0])
		g.mu.overs = g.mu.overs[1:]
	}
	g.mu.over[c.stream] = &ended{c, time.Now(), make(map[serry.Life]bool)}
	g.mu.overs = append(g.mu.overs, c.stream)
}

// all lists the cliques that can be used, in the order of their keys.
func (g *Group) all() []*clique {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.inUse()
}

// blamable lists the cliques that can be used, and those that ended a moment ago: a loss may explain why.
func (g *Group) blamable() []*clique {
	g.mu.Lock()
	defer g.mu.Unlock()
	list := g.inUse()
	for i := len(g.mu.overs) - 1; i >= 0; i-- {
		e := g.mu.over[g.mu.overs[i]]
		if time.Since(e.at) > tellTime {
			break
		}
		list = append(list, e.clique)
	}
	return list
}

// inUse is all with mu held.
func (g *Group) inUse() []*clique {
	list := make([]*clique, 0, len(g.mu.streams))
	for _, c := range g.mu.streams {
		list = append(list, c)
	}
	slices.SortFunc(list, func(a, b *clique) int { return a.key.Compare(b.key) })
	return list
}
