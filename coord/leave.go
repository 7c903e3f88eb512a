package coord

import (
	"strconv"

	"github.com/serry-dev/serry"
)

// How tasks leave: politely and together at the shutdown barrier, politely and alone, by a reset,
// by ending well without a word, or with an error of their own. How they are lost stands in
// epoch.go.

// ShutdownBarrierID is the id under which the shutdown barrier of a service incarnation appears to people.
func ShutdownBarrierID(service serry.Incarnation) string {
	return "Shutdown::" + strconv.FormatUint(uint64(service), 10)
}

// serve is the polite end of a task (C-SHUT).
//
// With a shutdown timeout, tasks leave together: the call waits until all tasks that cannot come
// back have made it (C-SHUT-3). So a task that is lost during the last steps of its peers still
// fails the job, and no task believes in a success that one member did not have. A task that may
// come back does not hold up the others, and leaves alone (C-SHUT-1).
func (ev ShutdownTask) serve(m *Machine, w *waiter) (Result, error) {
	t, err := m.activeCaller(w)
	if err != nil { // C-SHUT-9
		return nil, err
	}
	switch b := m.ep.shutdown; {
	case m.cfg.ShutdownTimeout <= 0 || m.cfg.Recoverable || ev.Recoverable: // C-SHUT-1
		return m.leave(t)
	case b.counter < 0 && !t.recoverable:
		return m.openShutdown(w, t)
	case b.counter < 0 || b.open && b.position(t) < 0:
		return nil, m.blame(b, t, serry.ErrNotMember)
	case b.open:
		return m.arriveToLeave(w, t)
	case b.err != nil: // C-SHUT-8: it stays failed
		return nil, shutdownFailed(t, b.err)
	case t.state == serry.Disconnected: // C-SHUT-7
		return nil, shutdownFailed(t, serry.ErrLeft)
	}
	return m.leave(t) // it came back after the barrier had passed
}

// leave disconnects a task without asking the others (C-SHUT-2).
func (m *Machine) leave(t *task) (Result, error) {
	if t.state == serry.Disconnected {
		return nil, serry.ErrLeft
	}
	m.disconnect(t)
	return Done{}, nil
}

// openShutdown begins the shutdown barrier of all tasks that cannot come back (C-SHUT-3). Where
// one of them has failed already it fails at once, its consequences first (C-SHUT-6, C-ORD-4).
//
// Processes that ended well before the barrier opened count as arrived: they will never call.
func (m *Machine) openShutdown(w *waiter, t *task) (Result, error) {
	b := m.ep.shutdown
	for _, u := range m.ep.tasks {
		if !u.recoverable {
			b.members = append(b.members, u.at)
		}
	}
	if len(b.members) == len(m.ep.tasks) {
		b.members = nil // means all
	}
	b.fixed = true
	m.openBarrier(b, 0, saturate(m.now, m.cfg.ShutdownTimeout))
	if failed := m.failedMember(b); failed != nil {
		m.finish(b, m.memberFailed(b, failed))
		m.notifyWatchers()
		return nil, shutdownFailed(t, b.err)
	}
	// Should they be all but the caller, its own arrival below ends the barrier.
	for u := range m.membersOf(b) {
		if u.exited && u != t {
			m.arrive(b, u, arrival{inc: u.inc})
		}
	}
	return m.arriveToLeave(w, t)
}

// exit lets tasks leave whose processes ended well. Tasks that wait at the shutdown barrier do
// not wait for them.
//
// This is stronger than a departure: the process is known to be gone, so no call of it can be
// repeated and its results are dropped.
func (m *Machine) exit(gone []serry.Life) {
	for _, d := range gone {
		t := m.task(d.Task)
		if t == nil || d.Incarnation == 0 || t.inc != d.Incarnation {
			continue // another process has this task now
		}
		if t.state == serry.Connected {
			t.exited = true
			m.disconnect(t)
			if b := m.ep.shutdown; b.open && b.position(t) >= 0 {
				m.arrive(b, t, arrival{inc: t.inc})
			}
		}
		if b := m.ep.register; b.open && b.slots[t.at].arrived {
			m.withdraw(b.slots[t.at].w)
		}
		m.hasDeparted(t)
		m.dropRequesters(d.Incarnation)
	}
}

// arriveToLeave lets a task wait at the open shutdown barrier.
func (m *Machine) arriveToLeave(w *waiter, t *task) (Result, error) {
	m.wait(m.ep.shutdown, t, w)
	m.hold(w, waitShutdown)
	m.arrive(m.ep.shutdown, t, arrival{inc: t.inc})
	return nil, nil
}

// allLeave disconnects all tasks that met at the shutdown barrier, after their calls were
// answered (C-SHUT-4). In the other order a client would first see its own disconnection.
func (m *Machine) allLeave(b *barrier, slots []slot) {
	for i := range slots {
		m.answer(slots[i].w, Done{}, nil)
	}
	for t := range m.membersOf(b) {
		if t.state != serry.Disconnected {
			m.disconnect(t)
		}
	}
}

// shutdownFailedForAll answers the calls that wait at the shutdown barrier, propagates the
// failure, and puts every task in state Failed. A task that were left disconnected could silently
// register again (C-SHUT-5).
func (m *Machine) shutdownFailedForAll(b *barrier, slots []slot, missing []*task) {
	for i := range slots {
		if w := slots[i].w; w != nil {
			m.answer(w, nil, shutdownFailed(m.task(w.task), b.err))
		}
	}
	m.ep.failed = true
	m.propagate(&serry.TaskError{Reason: b.err, Err: serry.ErrShutdownFailed}, missing)
	for _, t := range m.ep.tasks {
		m.fail(t, &serry.TaskError{Reason: b.err, Err: serry.ErrShutdownFailed})
	}
}

func shutdownFailed(t *task, reason error) error {
	return &serry.TaskError{Task: t.id, Incarnation: t.inc, Reason: reason, Err: serry.ErrShutdownFailed}
}

// serve disconnects the caller, from any state but disconnected, whatever the shutdown timeout is
// (C-RST).
func (ev ResetTask) serve(m *Machine, w *waiter) (Result, error) {
	t, err := m.activeCaller(w)
	if err != nil {
		return nil, err
	}
	return m.leave(t)
}

// maxReportBytes bounds the text of a reported error; no client is shown more.
const maxReportBytes = 4 << 10

// serve puts the caller in state Failed with an error of its own (C-ERR). The error is told to
// the other tasks like any failure.
func (ev ReportError) serve(m *Machine, w *waiter) (Result, error) {
	const codeUnknown, lastCode = 2, 16
	t, err := m.activeCaller(w)
	switch {
	case err != nil:
		return nil, err
	case ev.Code == 0: // C-ERR-3
		return nil, &serry.InvalidError{What: "an error report needs a code other than OK"}
	case t.state != serry.Connected:
		return nil, serry.ErrNotConnected
	case ev.Code < 0 || ev.Code > lastCode:
		ev.Code = codeUnknown
	}
	reported := &serry.TaskError{
		Task: t.id, Incarnation: t.inc, Code: ev.Code, Text: ev.Text[:min(len(ev.Text), maxReportBytes)], Err: serry.ErrReported,
	}
	m.fail(t, reported)
	m.propagate(reported, []*task{t})
	return Done{}, nil
}
