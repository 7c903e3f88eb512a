package client

import (
	"context"
	"iter"
	"slices"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/internal/pause"
)

// Tasks returns how all tasks of the job are now.
func (m *Member) Tasks(ctx context.Context) (serry.Snapshot, error) {
	return m.tasksAfter(ctx, -1)
}

// Watch tells how all tasks are, and again whenever that changes, until ctx or the member ends.
// Changes that follow each other closely may be told as one.
func (m *Member) Watch(ctx context.Context) iter.Seq2[serry.Snapshot, error] {
	return func(yield func(serry.Snapshot, error) bool) {
		wait := firstRetry
		for version := int64(-1); ; {
			s, err := m.tasksAfter(ctx, version)
			if err == nil && s.Version == version { // a bad service; we know that already
				err = pause.For(ctx, wait)
				wait = min(2*wait, lastRetry)
				if err == nil {
					continue
				}
			}
			if !yield(s, err) || err != nil {
				return
			}
			version = s.Version
		}
	}
}

func (m *Member) tasksAfter(ctx context.Context, version int64) (serry.Snapshot, error) {
	p, err := as[*coord.Picture](m.call(ctx, coord.WatchTasks{Call: m.caller(), Version: version}))
	if err != nil {
		return serry.Snapshot{}, err
	}
	if p.Version < 0 { // the farewell of a service that stops (C-WATCH-6)
		return serry.Snapshot{}, serry.ErrStopping
	}
	slices.SortFunc(p.Tasks, func(a, b serry.TaskInfo) int { return a.Task.Compare(b.Task) })
	return serry.Snapshot{Version: p.Version, Tasks: p.Tasks}, nil
}

// Suspect tells the service what we saw of a peer. What is said of a life that has been replaced is
// ignored. Hard evidence ends the peer's membership at once; of other evidence the service takes
// note.
func (m *Member) Suspect(ctx context.Context, peer serry.TaskID, life serry.Incarnation, e serry.Evidence) error {
	call, answered := m.changing()
	defer answered()
	_, err := m.call(ctx, coord.Suspect{Call: call, Peer: serry.Life{Task: peer, Incarnation: life}, Hard: e.Hard, Evidence: e.Detail})
	return err
}
