package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/store"
)

// This file is how a server goes on where a journal ends. It has three steps: load steps a machine through
// the journal; owner.begin publishes what it finds, because every client could have known that before; and
// owner.resume tells the machine that its waiting calls are gone with the former server.

// A past is what a journal tells of a service.
type past struct {
	machine *coord.Machine
	refs    refs    // digests of the large values in it
	notes   history // what happened lately
	size    growth  // of the journal
	records int     // since the last snapshot

	fresh   bool // the journal was empty: the service begins
	changed bool // the journal has no snapshot, or one with other settings than those of now
}

// load reads a journal up to its end. An empty one is that of a service which is about to begin.
//
// The records are replayed under the settings that they were made under, which their snapshot holds: under
// others the machine would come to another state than the one that clients have seen. If the settings of now
// are others, they count from the end of the journal on.
func load(ctx context.Context, j store.Journal, cfg coord.Config) (*past, error) {
	p := &past{refs: make(refs)}
	err := replay(ctx, j, cfg, p.refs, func(m *coord.Machine, b Beginning) {
		p.machine, p.fresh = m, b.Fresh
		p.changed = b.Fresh || b.header.text() != settingsOf(cfg).text()
		p.size.base = b.bytes
		p.notes = b.header.history()
	}, func(s Step) {
		p.records++
		p.size.bytes += s.bytes
		p.notes.follow(s)
	})
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	p.size.last, p.size.live = p.machine.Now(), p.machine.StoreBytes()
	if p.changed && !p.fresh {
		if err := p.resettle(cfg); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// resettle gives the machine the settings of now, by way of a snapshot in memory.
//
// A machine never changes its settings. So a second machine is made from the state of the first, under the
// settings of now. The bytes of large values are not copied on that way.
func (p *past) resettle(cfg coord.Config) error {
	values := make(map[coord.Ref][]byte)
	snapshot := p.machine.Snapshot(func(v []byte) coord.Ref {
		ref := p.refs.of(v)
		values[ref] = v
		return ref
	})
	m, err := coord.Restore(cfg, snapshot, func(ref coord.Ref) ([]byte, error) { return values[ref], nil })
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	p.machine = m
	return nil
}

// blobBytes is how many bytes of blobs the journal has named. Which of them are still needed is known when the
// next snapshot is made: where that matters for the room in the store, it is made at once, see scarce.
func (p *past) blobBytes() (bytes int64) {
	counted := make(map[coord.Ref]bool)
	for _, ref := range p.refs {
		if !counted[ref] {
			counted[ref] = true
			bytes += ref.Size
		}
	}
	return bytes
}

// unrecordedNotes is more than the notes of a former leader that left no record, such as those of a suspicion.
// Numbers of notes must ascend over all leaders, because people ask for what is newer than a number; a gap does
// no harm.
const unrecordedNotes = 1 << 10

// begin makes the owner go on where the journal ends, or begin. It runs before any goroutine of the server
// does. What it publishes without a write is what clients could have known from the former server; what is new
// with this one, by resume, waits for the journal like any other step.
func (o *owner) begin(cfg Config, p *past, began time.Time) error {
	o.machine, o.refs, o.size = p.machine, p.refs, p.size
	o.history = p.notes
	if o.room.capacity > 0 {
		o.size.blobs = p.blobBytes()
	}
	if o.journal != nil && !p.fresh {
		o.history.last += unrecordedNotes
	}
	// The machine shows its present state as effects, as if the epoch had opened now. It has not, so what the
	// journal told of its first failure is kept.
	first := o.history.first
	o.now = o.machine.Now()
	o.time.now = o.now
	o.collect(o.machine.Present())
	o.history.first = first
	// The budgets come after collect, which makes the epoch that holds the times of heartbeats.
	for _, t := range o.machine.View().Tasks {
		o.awaitLife(t)
	}
	// A journal with a history has all of this already, so it is published without a write. Where the service
	// begins, no client can reach the server yet.
	o.performer.perform(o.wave)
	if o.journal == nil {
		return nil
	}
	if p.changed {
		// Records must follow a snapshot with the settings that they are made under. The journal does not
		// run yet, so the snapshot is saved here.
		if err := o.journal.save(o.takeSnapshot()); err != nil {
			return err
		}
		// takeSnapshot has put the snapshot on the wave, where it would be saved a second time.
		o.wave.clear()
	}
	if p.fresh {
		return nil
	}
	o.accountant.account.TookOver(time.Now())
	return o.resume(cfg, p.records, time.Since(began))
}

// awaitLife gives a life that a former leader knew a fresh budget: its heartbeats went to that leader, and its
// connections broke with it. Neither is evidence (C-LOST-6).
func (o *owner) awaitLife(t coord.TaskView) {
	s := o.epoch.task(t.Task)
	if s == nil || t.Incarnation == 0 {
		return
	}
	s.seen.Store(int64(o.now))
	o.detector.Await(serry.Life{Task: t.Task, Incarnation: t.Incarnation}, t.Departed, o.now)
	if t.Departed {
		o.publish(t.Task)
	}
}

// ErrOtherJob says that the journal belongs to another job than the one to be served, and that job goes on.
var ErrOtherJob = errors.New("the journal is of another job")

// sameJobs says whether two lists name the same jobs, in whatever order.
func sameJobs(a, b []coord.Job) bool {
	byName := func(a, b coord.Job) int { return serry.TaskID{Job: a.Name}.Compare(serry.TaskID{Job: b.Name}) }
	return slices.Equal(slices.SortedFunc(slices.Values(a), byName), slices.SortedFunc(slices.Values(b), byName))
}

// resume steps the first events of a leadership. [coord.Resume] drops every waiter and keeps every arrival: the
// callers will ask again.
//
// A new epoch follows if the service was stopped, or if it must serve other jobs than those of the journal. The
// second is an error while a task of the old job is connected: the journal is then most likely the wrong one.
func (o *owner) resume(cfg Config, records int, took time.Duration) error {
	// Present always begins with Opened, which names the jobs of the journal.
	view, opened := o.machine.View(), o.machine.Present()[0].(coord.Opened)
	switch {
	case view.Stopped, !sameJobs(opened.Jobs, cfg.Cluster.Jobs):
		if i := slices.IndexFunc(view.Tasks, func(t coord.TaskView) bool { return t.State == serry.Connected }); i >= 0 && !view.Stopped {
			return fmt.Errorf("%w, in which %v is still connected; start with the tasks of that job (serry stop then ends it), or with another store", ErrOtherJob, view.Tasks[i].Task)
		}
		o.step(coord.Resume{})
		o.step(coord.OpenEpoch{Service: newIncarnation(), Jobs: cfg.Cluster.Jobs})
	default:
		o.step(coord.Resume{})
	}
	// The goroutine of the journal does not run yet. The wave waits for it in the channel, which has room.
	o.commit()
	cfg.Log.Info("service restored", "records", records, "epoch", view.Epoch, "took", took.Round(time.Microsecond))
	return nil
}
