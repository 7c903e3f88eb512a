package client

import (
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/wire"
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
				err = pause(ctx, wait)
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

// Agree waits until every living task of the set has called it with the same set, and tells all of
// them the same: who is alive, which life of it, and the word that each handed in. We must be in the
// set. A word has at most 1 KiB; a stock service passes none on.
func (m *Member) Agree(ctx context.Context, word []byte, tasks ...serry.TaskID) (serry.Agreement, error) {
	if word != nil && m.dialect != wire.Own {
		return serry.Agreement{}, fmt.Errorf("agree with a word: %w", ErrUnsupported)
	}
	call, answered := m.changing()
	defer answered()
	alive, err := as[*coord.Alive](m.call(ctx, coord.GetAliveTasks{Call: call, Tasks: tasks, Word: word}))
	if err != nil {
		return serry.Agreement{}, err
	}
	a := serry.Agreement{Alive: make(map[serry.TaskID]serry.Incarnation), Words: make(map[serry.TaskID][]byte)}
	for i, t := range alive.Tasks {
		a.Alive[t] = alive.Incarnations[i]
		if len(alive.Words[i]) > 0 {
			a.Words[t] = alive.Words[i]
		}
	}
	return a, nil
}

// Suspect tells the service what we saw of a peer. What is said of a life that has been replaced is
// ignored. Hard evidence ends the peer's membership at once; of other evidence the service takes
// note.
func (m *Member) Suspect(ctx context.Context, peer serry.TaskID, life serry.Incarnation, e serry.Evidence) error {
	call, answered := m.changing()
	defer answered()
	_, err := m.call(ctx, coord.Suspect{Call: call, Peer: peer, Life: life, Hard: e.Hard, Evidence: e.Detail})
	return err
}
