package coord

import "github.com/serry-dev/serry"

// serve is the polite end of a task (C-SHUT).
func (ev ShutdownTask) serve(m *Machine, w *waiter) {
	if m.stopped {
		m.answer(w, nil, serry.ErrStopped)
		return
	}
	t, err := m.caller(w)
	switch b := m.ep.shutdown; {
	case err != nil: // C-SHUT-9
		m.answer(w, nil, err)
	case m.cfg.ShutdownTimeout <= 0 || m.cfg.Recoverable || ev.Recoverable: // C-SHUT-1
		m.leave(w, t)
	case b.counter < 0 && !t.recoverable:
		m.openShutdown(w, t)
	case b.counter < 0 || b.open && b.position(t) < 0:
		m.answer(w, nil, m.blame(b, t, serry.ErrNotMember))
	case b.open:
		m.arriveToLeave(w, t)
	case b.err != nil: // C-SHUT-8: it stays failed
		m.answer(w, nil, shutdownFailed(t, b.err))
	case t.state == serry.Disconnected: // C-SHUT-7
		m.answer(w, nil, shutdownFailed(t, serry.ErrLeft))
	default:
		m.leave(w, t)
	}
}

// leave disconnects a task without asking the others (C-SHUT-2).
func (m *Machine) leave(w *waiter, t *task) {
	if t.state == serry.Disconnected {
		m.answer(w, nil, serry.ErrLeft)
		return
	}
	m.disconnect(t)
	m.answer(w, Done{}, nil)
}

// openShutdown begins the shutdown barrier of all tasks that cannot come back (C-SHUT-3). Where one
// of them has failed already it fails at once, its consequences first (C-SHUT-6, C-ORD-4).
func (m *Machine) openShutdown(w *waiter, t *task) {
	b := m.ep.shutdown
	for _, u := range m.ep.tasks {
		if !u.recoverable {
			b.members = append(b.members, u.at)
		}
	}
	if len(b.members) == len(m.ep.tasks) {
		b.members = nil
	}
	b.fixed = true
	m.openBarrier(b, 0, saturate(m.now, m.cfg.ShutdownTimeout))
	if failed := m.failedMember(b); failed != nil {
		m.finish(b, m.memberFailed(b, failed))
		m.notifyWatchers()
		m.answer(w, nil, shutdownFailed(t, b.err))
		return
	}
	for u := range m.membersOf(b) {
		if u.exited && u != t {
			m.arrive(b, u, arrival{inc: u.inc})
		}
	}
	m.arriveToLeave(w, t)
}

// exit lets tasks leave whose processes ended well. Those who wait at the shutdown barrier do not
// wait for them.
func (m *Machine) exit(gone []Departure) {
	for _, d := range gone {
		t := m.task(d.Task)
		if t == nil || d.Incarnation == 0 || t.inc != d.Incarnation {
			continue
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

func (m *Machine) arriveToLeave(w *waiter, t *task) {
	m.wait(m.ep.shutdown, t, w)
	m.hold(w, waitShutdown)
	m.arrive(m.ep.shutdown, t, arrival{inc: t.inc})
}

// allLeave disconnects everybody who met at the shutdown barrier, after their calls were answered
// (C-SHUT-4).
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

// shutdownFailedForAll answers those who wait at the shutdown barrier, tells everybody, and leaves
// nobody in a state from which it could silently come back (C-SHUT-5).
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

// serve disconnects the caller, from any state but disconnected (C-RST).
func (ev ResetTask) serve(m *Machine, w *waiter) {
	if m.stopped {
		m.answer(w, nil, serry.ErrStopped)
		return
	}
	t, err := m.caller(w)
	if err != nil {
		m.answer(w, nil, err)
		return
	}
	m.leave(w, t)
}

// maxReportBytes bounds the text of a reported error; no client is shown more.
const maxReportBytes = 4 << 10

// serve puts the caller in state Failed with an error of its own (C-ERR).
func (ev ReportError) serve(m *Machine, w *waiter) {
	const codeUnknown, lastCode = 2, 16
	if m.stopped {
		m.answer(w, nil, serry.ErrStopped)
		return
	}
	t, err := m.caller(w)
	switch {
	case err != nil:
		m.answer(w, nil, err)
		return
	case ev.Code == 0: // C-ERR-3
		m.answer(w, nil, &serry.InvalidError{What: "an error report needs a code other than OK"})
		return
	case t.state != serry.Connected:
		m.answer(w, nil, serry.ErrNotConnected)
		return
	case ev.Code < 0 || ev.Code > lastCode:
		ev.Code = codeUnknown
	}
	reported := &serry.TaskError{
		Task: t.id, Incarnation: t.inc, Code: ev.Code, Text: ev.Text[:min(len(ev.Text), maxReportBytes)], Err: serry.ErrReported,
	}
	m.fail(t, reported)
	m.propagate(reported, []*task{t})
	m.answer(w, Done{}, nil)
}
