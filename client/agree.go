package client

import (
	"context"
	"fmt"
	"slices"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/wire"
)

// Agree waits until every living task of the set has called it with the same set, and tells all of
// them the same: which tasks are alive, in which life, and the word that each handed in. The caller must be in
// the set. A word has at most 1 KiB; a stock service passes none on.
//
// If ctx ends first the call stands, and the others may be told that this task agreed. The next call for the
// set gets the answer to the first one, with the word of the first one. A stock service cannot do that.
func (m *Member) Agree(ctx context.Context, word []byte, tasks ...serry.TaskID) (serry.Agreement, error) {
	if word != nil && m.dialect != wire.Serry {
		return serry.Agreement{}, fmt.Errorf("agree with a word: %w", ErrUnsupported)
	}
	set := setOf(tasks)
	call := m.beginAgree(set)
	alive, err := as[*coord.Alive](m.call(ctx, coord.GetAliveTasks{Call: call, Tasks: tasks, Word: word}))
	m.endAgree(set, call.ID, err == nil || ctx.Err() == nil)
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

// setOf names a set of tasks, however it is written.
func setOf(tasks []serry.TaskID) string {
	tasks = slices.Clone(tasks)
	slices.SortFunc(tasks, serry.TaskID.Compare)
	return fmt.Sprint(slices.Compact(tasks))
}

// keptNumbers is how many later calls a member may make before it forgets one that it has given up.
// Until then the service has to keep the results of all of them (C-REQ-3), which it does not do for ever.
const keptNumbers = 1 << 12

// beginAgree is the call for a set: the one that was given up, under its id, or a new one.
func (m *Member) beginAgree(set string) coord.Call {
	m.mu.Lock()
	id, ok := m.mu.givenUp[set]
	delete(m.mu.givenUp, set)
	m.mu.Unlock()
	if !ok {
		call, _ := m.changing()
		return call
	}
	call := m.caller()
	call.ID = id
	return call
}

// endAgree notes the end of a call, or that it was given up.
func (m *Member) endAgree(set string, id coord.RequestID, answered bool) {
	if id.Requester == 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, taken := m.mu.givenUp[set]; answered || taken {
		m.mu.numbers.Deliver(id.Number)
		return
	}
	m.mu.givenUp[set] = id
}

// forgetGivenUp forgets calls that were given up long before a call of that number. mu must be held.
func (m *Member) forgetGivenUp(number uint64) {
	for set, id := range m.mu.givenUp {
		if id.Number+keptNumbers < number {
			delete(m.mu.givenUp, set)
			m.mu.numbers.Deliver(id.Number)
		}
	}
}
