package client

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
)

// A use is what a member knows of a barrier id: the number of the last use that has ended, and
// whether a call is open.
type use struct {
	last int64 // -1 before the first
	open bool
}

// uses are the barriers of a member, by id. Programs use a fresh id for every meeting, for days, so those
// that were not used for keptUses other ids are forgotten. A service forgets them earlier, unless its limit
// for barriers was raised beyond that ([coord.Limits]); then an id that comes back so late fails once, and
// goes on with the number that the error tells.
type uses struct {
	recent, former map[string]*use
}

// keptUses is twice what a service remembers.
const keptUses = 1 << 17

// of finds or makes the use of an id.
func (u *uses) of(id string) *use {
	if known := u.find(id); known != nil {
		return known
	}
	if len(u.recent) >= keptUses {
		u.turn()
	}
	if u.recent == nil {
		u.recent = make(map[string]*use)
	}
	u.recent[id] = &use{last: -1}
	return u.recent[id]
}

// find finds the use of an id, or nil. The caller is about to use it, so the use counts as recent.
func (u *uses) find(id string) *use {
	known := u.former[id]
	if known == nil {
		return u.recent[id]
	}
	delete(u.former, id)
	u.recent[id] = known
	return known
}

// turn forgets the former ids, but for those that a call is open for.
func (u *uses) turn() {
	open := make(map[string]*use)
	for id, old := range u.former {
		if old.open {
			open[id] = old
		}
	}
	u.recent, u.former = open, u.recent
}

// drop forgets an id.
func (u *uses) drop(id string) {
	delete(u.recent, id)
	delete(u.former, id)
}

// Barrier waits until all tasks, or those of o.Among, have called it with the same id. Uses of one
// id are numbered, so that it can be used again and again. A second call for an id whose first is
// still open is ErrInUse. If ctx ends first our arrival stands: the next call joins the same use.
func (m *Member) Barrier(ctx context.Context, id string, o serry.BarrierOptions) error {
	u, err := m.openUse(id)
	if err != nil {
		return err
	}
	timeout := o.Timeout
	if timeout <= 0 {
		timeout = math.MaxInt64
		if end, ok := ctx.Deadline(); ok {
			timeout = max(time.Until(end), time.Millisecond)
		}
	}
	call, answered := m.changing()
	defer answered()
	passed, err := as[coord.Passed](m.call(ctx, coord.Barrier{
		Call: call, ID: id, Counter: u.last + 1, Timeout: timeout, Tasks: o.Among, Recoverable: m.cfg.Recoverable,
	}))
	counter := int64(-1)
	var failed *serry.BarrierError
	if err == nil {
		counter = passed.Counter
	} else if errors.As(err, &failed) && !errors.Is(err, serry.ErrSuperseded) {
		counter = failed.Counter
	}
	m.closeUse(id, u, counter)
	return err
}

func (m *Member) openUse(id string) (*use, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	u := m.mu.uses.of(id)
	if u.open {
		return nil, fmt.Errorf("barrier %q: %w", id, ErrInUse)
	}
	u.open = true
	return u, nil
}

// closeUse notes the end of a call; a counter below zero means that the use did not end with it.
func (m *Member) closeUse(id string, u *use, counter int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	u.open = false
	if counter >= 0 {
		u.last = counter
	}
	if u.last < 0 {
		m.mu.uses.drop(id)
	}
}

// CancelBarrier ends a barrier that this member waits at, for all who do. Without a call that waits it
// is ErrNotOpen.
func (m *Member) CancelBarrier(ctx context.Context, id string) error {
	m.mu.Lock()
	u := m.mu.uses.find(id)
	var counter int64
	waiting := u != nil && u.open
	if waiting {
		counter = u.last + 1
	}
	m.mu.Unlock()
	if !waiting {
		return fmt.Errorf("barrier %q: %w", id, ErrNotOpen)
	}
	call, answered := m.changing()
	defer answered()
	_, err := m.call(ctx, coord.CancelBarrier{Call: call, ID: id, Counter: counter})
	return err
}
