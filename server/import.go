package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/store"
)

// This file moves a service to another store: from a file to an etcd, or from a backup to a new disk. The job
// must not notice, so the new journal continues the same service incarnation. What must never happen is that
// two histories mix; so an import writes into an empty journal only, and by one save that is done or not.

// ErrHistory says that a journal cannot go on with a history because it has another.
var ErrHistory = errors.New("the store has a history already")

// Import makes an empty journal go on where a recorded history ends: with its service incarnation, its
// epoch, its tasks and its keys, so that the job finds the service that it knows. The journal gets one
// snapshot and nothing else, because a crash must not leave a part of a history that looks like a whole
// one. A journal that goes on with the history already is left as it is, and Import returns false.
// Republished is as in [Replay].
func Import(ctx context.Context, to store.Reign, from store.Journal, republished func(key string, stored, offered []byte) bool) (bool, error) {
	done, err := Imported(ctx, to, from, republished)
	if done || err != nil {
		return false, err
	}
	r, err := recall(ctx, from, republished)
	if err != nil {
		return false, err
	}
	// The large values go first, while the snapshot is written: it may only name what is there. A crash between
	// the two leaves values that no snapshot names, and the journal still counts as empty.
	var keep []coord.Ref
	put := make(map[coord.Ref]bool)
	var failed error
	snapshot := r.machine.AppendSnapshot(r.notes.header(r.settings, r.wall(r.machine.Now())).append(nil), func(value []byte) coord.Ref {
		ref := r.refs.of(value)
		if put[ref] || failed != nil {
			return ref
		}
		put[ref] = true
		keep = append(keep, ref)
		failed = to.Put(ctx, ref, value)
		return ref
	})
	if failed == nil {
		failed = to.Save(ctx, to.Mark(), snapshot, keep)
	}
	return failed == nil, failed
}

// Imported says whether a journal goes on with a history: because that was imported, or because it is the same
// one. It does not if it is empty. A journal with another history, or with an earlier state of this one, is an
// error: the person who restores a backup over it must decide which of the two counts.
func Imported(ctx context.Context, j, history store.Journal, republished func(key string, stored, offered []byte) bool) (bool, error) {
	if empty, err := isEmpty(ctx, j); empty || err != nil {
		return false, err
	}
	now, err := recall(ctx, j, republished)
	if err != nil {
		return false, err
	}
	then, err := recall(ctx, history, republished)
	if err != nil {
		return false, err
	}
	// The same service, or the epoch after it, and not before the end of the history.
	a, b := now.machine.View(), then.machine.View()
	if (a.Service == b.Service || a.Earlier == b.Service) && a.Now >= b.Now {
		return true, nil
	}
	return false, fmt.Errorf("%w: service %d, epoch %d, after %v; that to be restored is of service %d, epoch %d, after %v",
		ErrHistory, a.Service, a.Epoch, rounded(a.Now), b.Service, b.Epoch, rounded(b.Now))
}

// rounded is a service time for a person to read.
func rounded(t coord.Time) time.Duration { return time.Duration(t).Round(time.Millisecond) }

// isEmpty says whether nothing was ever written to a journal. It reads the first batch at most.
func isEmpty(ctx context.Context, j store.Journal) (bool, error) {
	snapshot, batches, err := j.Load(ctx)
	if err != nil || snapshot != nil {
		return false, err
	}
	for _, err := range batches {
		return false, err
	}
	return true, nil
}

// A recollection is where a recorded history ends: all that a snapshot of it needs.
type recollection struct {
	machine  *coord.Machine
	settings settings
	refs     refs
	notes    history
	usual    usual     // of the barriers since the snapshot
	zero     time.Time // what a wall clock showed at service time 0; or zero: it is not known
}

// recall runs a recorded history to its end, under the settings that it was made under.
func recall(ctx context.Context, j store.Journal, republished func(key string, stored, offered []byte) bool) (*recollection, error) {
	// An empty journal has no history, so the service of the configuration is never used.
	r := &recollection{refs: make(refs)}
	err := replay(ctx, j, coord.Config{Service: 1, Republished: republished}, r.refs, r.begin, r.follow)
	return r, err
}

// begin takes over what a journal begins with.
func (r *recollection) begin(m *coord.Machine, b Beginning) {
	r.machine, r.settings, r.notes = m, b.header.settings, b.header.history()
	if !b.header.Wall.IsZero() {
		r.zero = b.header.Wall.Add(-time.Duration(m.Now()))
	}
}

// follow takes note of a step.
func (r *recollection) follow(s Step) {
	if _, ok := s.Event.(coord.Resume); ok {
		r.zero = time.Time{} // service time stood still for as long as no server led, which no record tells
	}
	r.notes.follow(s)
	for _, e := range s.Effects {
		if n, ok := e.(coord.Note); ok {
			r.usual.ended(n, s.At)
		}
	}
}
