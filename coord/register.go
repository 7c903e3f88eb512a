package coord

import "github.com/serry-dev/serry"

// RegisterBarrierID is the id under which the register barrier appears to people. Clients cannot
// call it by name, nor the two others that the service itself uses.
const RegisterBarrierID = "[Init]Wait_for_all_tasks_to_register"

// serve makes the caller a member (C-REG). Decisions are taken in the order of C-REG-5.
//
// What can happen to a registration:
//
//   - it is refused to the caller alone: stopped, unknown task, replaced life
//   - it belongs to the next epoch, and opens it or waits for it (C-EPOCH-4)
//   - it is admitted, and waits at the register barrier or connects at once (C-REG-7, C-REG-8, C-REG-12)
//   - the task is connected already, and connects again in place (C-REG-13)
//   - it is refused, and the task fails with it: two processes claim to be the same task (C-REG-14)
func (ev RegisterTask) serve(m *Machine, w *waiter) (Result, error) {
	t := m.task(ev.Task)
	switch {
	case m.stopped:
		return nil, serry.ErrStopped
	case t == nil:
		return nil, serry.ErrUnknownTask
	case ev.Incarnation == 0:
		return nil, &serry.InvalidError{What: "incarnation is zero"}
	}
	// An incarnation that is known belongs to this epoch. If it is not the present one of its
	// task, this call was sent by a process that has been replaced; it must not take its
	// successor's place.
	if at, known := m.ep.known[ev.Incarnation]; known && (at != t.at || t.inc != ev.Incarnation) {
		return nil, serry.ErrStale
	} else if !known && m.nextEpoch(w, ev) {
		return nil, nil
	}
	if may := m.cfg.Recoverable || ev.Recoverable; t.recoverable != may { // C-REG-4: also if it is refused then
		t.recoverable = may
		m.touch()
	}
	switch {
	case m.admits(t, ev.Incarnation):
		return m.admit(w, t, ev.Incarnation)
	case t.state == serry.Connected && (t.inc == ev.Incarnation || t.recoverable): // C-REG-13
		return m.reconnect(t, ev.Incarnation)
	}
	return nil, m.refuse(t, ev.Incarnation)
}

// admits says whether a task that is not connected may come (back) (C-REG-6). A recoverable one
// may come back from any error of its own with a new incarnation (C-ERR-4). No task comes back
// from an error that came upon the whole job: it needs a new epoch.
func (m *Machine) admits(t *task, inc serry.Incarnation) bool {
	if t.state != serry.Failed {
		return t.state == serry.Disconnected
	}
	if ofCluster(t.err) {
		return false
	}
	return unavailable(t.err) && (t.recoverable || m.cfg.AllowReconnect) || t.recoverable && inc != t.inc
}

// admit connects a task, or lets it wait for the others (C-REG-7, C-REG-8, C-REG-12). A task that
// waits has its incarnation stored and is still disconnected: it is not expected to send
// heartbeats, and may restart any number of times before the last task has come.
func (m *Machine) admit(w *waiter, t *task, inc serry.Incarnation) (Result, error) {
	if !m.cfg.RegisterBarrier || m.ep.registered {
		return m.reconnect(t, inc)
	}
	m.adopt(t, inc)
	m.changed(t)
	m.bump()
	b := m.ep.register
	if !b.open {
		b.fixed = true
		m.openBarrier(b, 0, saturate(m.now, m.cfg.RegisterTimeout))
	}
	w.task, w.inc = t.id, inc
	m.wait(b, t, w)
	m.hold(w, waitRegister)
	m.arrive(b, t, arrival{inc: inc})
	return nil, nil
}

// reconnect connects a task at once. One that restarted leaves the barriers in which its former
// life waited, and is out of step with the others (C-SYNC-1).
func (m *Machine) reconnect(t *task, inc serry.Incarnation) (Result, error) {
	restarted := t.inc != inc
	m.adopt(t, inc)
	if t.recoverable && restarted {
		t.unsynced = true
		m.leaveBarriers(t, serry.ErrRestarted)
	}
	m.connect(t)
	m.planScan()
	return Registered{Service: m.ep.service}, nil
}

// refuse turns a registration down, which is the end of the task and, unless it may fail alone,
// of the job (C-REG-14). It returns the error for the caller, whose reply comes last (C-ORD-3).
func (m *Machine) refuse(t *task, inc serry.Incarnation) error {
	err := &serry.TaskError{Task: t.id, Incarnation: t.inc, Was: t.inc, Now: inc, Err: serry.ErrRestarted}
	if t.state == serry.Failed {
		err = &serry.TaskError{Task: t.id, Incarnation: t.inc, Reason: t.err, Err: serry.ErrAlreadyFailed}
	}
	m.fail(t, err)
	m.propagate(err, []*task{t})
	return err
}

// withdraw takes back the arrival at the register barrier of a call that is gone: without this,
// the barrier could pass with a process that has died. With the last arrival the deadline lapses,
// too: no caller is left to time out (C-REG-15).
func (m *Machine) withdraw(w *waiter) {
	b, t := m.ep.register, m.task(w.task)
	if t == nil || !b.open {
		return
	}
	s := &b.slots[t.at]
	if s.w != w {
		return
	}
	m.unhold(w)
	m.forget(w)
	w.answered, w.req = true, 0
	b.takeBack(s)
	m.touch()
	m.note(Note{What: "registration withdrawn", Task: t.id, Incarnation: w.inc})
	if b.arrived == 0 {
		m.closeBarrier(b)
		b.counter = -1
	}
}

// allRegistered connects all tasks, which have all arrived, and then answers their calls
// (C-REG-9). All are connected before any watcher hears of it: no watcher sees a job that is half
// there (C-ORD-5).
func (m *Machine) allRegistered(slots []slot) {
	m.ep.registered = true
	for _, t := range m.ep.tasks {
		m.connect(t)
	}
	for i := range slots {
		m.answer(slots[i].w, Registered{Service: m.ep.service}, nil)
	}
	m.note(Note{What: "all tasks registered", Count: len(slots), Of: len(slots)})
}

// registrationFailed ends the job before it began: every task fails, also those that never came,
// and no registration is taken until a new epoch opens (C-REG-11).
func (m *Machine) registrationFailed(err error) {
	m.ep.failed = true
	m.ep.failure = err
	for _, t := range m.ep.tasks {
		m.fail(t, &serry.TaskError{Reason: err, Err: serry.ErrRegistrationFailed})
	}
}
