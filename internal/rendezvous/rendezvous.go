// Package rendezvous lets goroutines of one process meet: each comes with a value, the last to arrive computes one result
// from all values, and all leave with it.
//
// A [Table] has the meetings of one kind. [Table.Join] takes part in one. A meeting ends for all of its
// participants in the same way: with the result, with the error of the one that computed it, or with the cause for which
// one of them gave up. [Table.JoinOnce] takes part only until a meeting has succeeded, as a [Once] tells.
//
// All methods may be called from any goroutine. Read Join first.
package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/serry-dev/serry"
)

// ErrCrowded is the error of a participant that came to a meeting which has all of its participants.
var ErrCrowded = errors.New("more participants than the meeting has")

// maxOver bounds the meetings that have failed and are remembered.
const maxOver = 256

// A Table has the meetings of one kind; the zero value is ready. K names a meeting, V is what a participant brings, R is
// what all take away.
type Table[K comparable, V, R any] struct {
	mu   sync.Mutex
	open map[K]*meeting[V, R]
	over []ended[K] // meetings that failed, the oldest first
}

// A meeting is one that has not ended, or that participants have not left.
type meeting[V, R any] struct {
	size int
	came []V
	who  []string
	done chan struct{}

	// Set before done is closed.
	result R
	err    error
}

// An ended meeting has failed before all had come: those that come late get its error, and do not begin a new one.
type ended[K comparable] struct {
	key  K
	late int
	err  error
}

// A Place is what one participant brings.
type Place[V any] struct {
	Name  string // for errors: "device 3"
	Size  int    // of the meeting; all say the same
	Value V
}

// Join meets the other participants under a key. The last to arrive calls lead with the values of all, in the order of
// arrival, and every participant gets what it returns. The key is free for the next meeting before lead is called, so
// participants that leave may meet again at once. With a Size of 1 no other goroutine is concerned.
//
// If ctx ends first, the meeting fails for all: with a deadline by [serry.ErrTimeout], which says how many had come, otherwise by
// [serry.ErrCancelled] and the cause. Participants that come later get the same error (CL-RDV-10, CL-RDV-11).
func (t *Table[K, V, R]) Join(ctx context.Context, key K, p Place[V], lead func(values []V) (R, error)) (R, error) {
	if p.Size <= 1 {
		return lead([]V{p.Value})
	}
	m, last, err := t.enter(key, p)
	if err != nil {
		var none R
		return none, err
	}
	if last {
		m.result, m.err = lead(m.came)
		close(m.done)
		return m.result, m.err
	}
	select {
	case <-m.done:
	case <-ctx.Done():
		t.giveUp(key, m, p.Name, ctx)
		<-m.done // lead may be under way: its outcome is that of all
	}
	return m.result, m.err
}

// enter notes a participant, and says whether it is the last.
func (t *Table[K, V, R]) enter(key K, p Place[V]) (m *meeting[V, R], last bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.tooLate(key); err != nil {
		return nil, false, err
	}
	if m = t.open[key]; m == nil {
		m = &meeting[V, R]{size: p.Size, done: make(chan struct{})}
		if t.open == nil {
			t.open = make(map[K]*meeting[V, R])
		}
		t.open[key] = m
	}
	if m.size != p.Size {
		return nil, false, fmt.Errorf("%s meets %d others, %s %d: %w", m.who[0], m.size-1, p.Name, p.Size-1, ErrCrowded)
	}
	m.came, m.who = append(m.came, p.Value), append(m.who, p.Name)
	if last = len(m.came) == m.size; last {
		delete(t.open, key)
	}
	return m, last, nil
}

// tooLate is the error of the meeting that the caller has missed, or nil; mu is held.
func (t *Table[K, V, R]) tooLate(key K) error {
	i := slices.IndexFunc(t.over, func(e ended[K]) bool { return e.key == key })
	if i < 0 {
		return nil
	}
	err := t.over[i].err
	if t.over[i].late--; t.over[i].late == 0 {
		t.over = slices.Delete(t.over, i, i+1)
	}
	return err
}

// giveUp ends a meeting that has not all of its participants.
func (t *Table[K, V, R]) giveUp(key K, m *meeting[V, R], who string, ctx context.Context) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open[key] != m {
		return
	}
	delete(t.open, key)
	m.err = fmt.Errorf("%s gave up: %w: %w", who, serry.ErrCancelled, context.Cause(ctx))
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		m.err = fmt.Errorf("%w: %d of %d came: %v", serry.ErrTimeout, len(m.came), m.size, m.who)
	}
	if len(t.over) >= maxOver {
		t.over = t.over[1:]
	}
	t.over = append(t.over, ended[K]{key, m.size - len(m.came), m.err})
	close(m.done)
}
