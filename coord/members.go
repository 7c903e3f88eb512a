package coord

import (
	"iter"
	"slices"

	"github.com/serry-dev/serry"
)

// Who belongs to a barrier, who is missing, and the errors that name them.

// memberList turns the tasks of a call into members: nil for all tasks, whether the caller named
// them or not, so that both forms mean the same barrier. unknown is the first task that is not in
// the cluster, or zero.
func (m *Machine) memberList(tasks []serry.TaskID) (members []index, unknown serry.TaskID) {
	for _, id := range tasks {
		t := m.task(id)
		if t == nil {
			return nil, id
		}
		members = append(members, t.at)
	}
	// Callers may name members in any order, and twice.
	slices.Sort(members)
	members = slices.Compact(members)
	if len(members) == len(m.ep.tasks) {
		return nil, unknown
	}
	return members, unknown
}

// checkMembers compares the caller's idea of the members with the record's (C-BAR-11). Members
// that disagree would wait for different tasks, and some of them forever, so the disagreement is
// told to all of them.
func (m *Machine) checkMembers(b *barrier, t *task, tasks []serry.TaskID) error {
	switch {
	case !b.fixed: // it never had members: it was cancelled, or failed, before it began
		return nil
	case len(tasks) == 0 && b.members != nil:
		return m.blame(b, t, serry.ErrNoMembers)
	case len(tasks) == 0:
		return nil
	case len(tasks) != m.size(b):
		return m.blame(b, t, serry.ErrMembers)
	}
	// The number of entries was compared above, so a list with a task twice is refused, too.
	for _, id := range tasks {
		if u := m.task(id); u == nil || b.position(u) < 0 {
			return m.blame(b, t, serry.ErrMembers)
		}
	}
	if b.position(t) < 0 {
		return m.blame(b, t, serry.ErrNotMember)
	}
	return nil
}

// position finds a member's slot, or -1. Most barriers are of all tasks: those have no list of
// members, and the slot of a task is its index.
func (b *barrier) position(t *task) int {
	if b.members == nil {
		return int(t.at)
	}
	at, ok := slices.BinarySearch(b.members, t.at)
	if !ok {
		return -1
	}
	return at
}

// size is how many members the barrier has.
func (m *Machine) size(b *barrier) int {
	if b.members == nil {
		return len(m.ep.tasks)
	}
	return len(b.members)
}

// membersOf visits the members in order.
func (m *Machine) membersOf(b *barrier) iter.Seq[*task] {
	return func(yield func(*task) bool) {
		if b.members == nil {
			for _, t := range m.ep.tasks {
				if !yield(t) {
					return
				}
			}
			return
		}
		for _, at := range b.members {
			if !yield(m.ep.tasks[at]) {
				return
			}
		}
	}
}

// missing lists the members that have not arrived at the open instance. It is for errors and
// views; whether all have arrived is told by a count.
func (m *Machine) missing(b *barrier) []*task {
	if b.arrived == len(b.slots) {
		return nil
	}
	var missing []*task
	for t := range m.membersOf(b) {
		if !b.slots[b.position(t)].arrived {
			missing = append(missing, t)
		}
	}
	return missing
}

// failedMember finds a member that has failed and cannot come back, or nil (C-BAR-6).
func (m *Machine) failedMember(b *barrier) *task {
	for t := range m.membersOf(b) {
		if t.state == serry.Failed && !t.recoverable {
			return t
		}
	}
	return nil
}

// memberFailed is the error of an instance that begins with a failed member.
func (m *Machine) memberFailed(b *barrier, t *task) error {
	return &serry.BarrierError{ID: b.id, Counter: b.counter, Task: t.id, Reason: t.err, Err: serry.ErrMemberFailed}
}

// mismatch is the error of a call with another counter than the service has.
func (m *Machine) mismatch(b *barrier, t *task, sent int64) error {
	err := m.blame(b, t, serry.ErrCounter)
	err.Sent = sent
	return err
}

// blame makes the error of a call that spoils a barrier. It names the task that made the call:
// the members that hear of it want to know whose counter or list was wrong.
func (m *Machine) blame(b *barrier, t *task, err error) *serry.BarrierError {
	return &serry.BarrierError{ID: b.id, Counter: b.counter, Task: t.id, Err: err}
}

// barrierError describes the open instance at its end: who came first, how many came, and who did
// not. The missing are what an operator wants to know first.
func (m *Machine) barrierError(b *barrier, err error) *serry.BarrierError {
	e := &serry.BarrierError{ID: b.id, Counter: b.counter, First: b.first, Arrived: b.arrived, Members: len(b.slots), Err: err}
	for _, t := range m.missing(b) {
		e.Missing = append(e.Missing, t.id)
	}
	return e
}
