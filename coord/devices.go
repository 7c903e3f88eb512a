package coord

// serve lets all tasks meet and joins their devices (C-WAT): each task describes its own devices,
// and hears the description of all. The first description of a task stays; what it sends later is
// ignored (C-WAT-1).
func (ev WaitForAllTasks) serve(m *Machine, w *waiter) (Result, error) {
	t, err := m.activeCaller(w)
	if err == nil {
		err = m.mayWait(w)
	}
	if err == nil && len(t.devices) == 0 {
		err = m.ep.keys.reserve(int64(len(ev.Devices)), m.cfg.Limits)
	}
	if err != nil {
		return nil, err
	}
	if len(t.devices) == 0 {
		t.devices = ev.Devices
		m.touch()
	}
	b := m.ep.devices
	w.kind = waitDevices
	if b.counter < 0 {
		b.fixed = true
		m.openBarrier(b, 0, saturate(m.now, deviceTimeout))
		if failed := m.failedMember(b); failed != nil {
			m.finish(b, m.memberFailed(b, failed))
		}
	}
	if !b.open {
		return m.outcome(w, b.instance)
	}
	m.wait(b, t, w)
	m.hold(w, waitDevices)
	m.arrive(b, t, arrival{inc: t.inc})
	return nil, nil
}

// joinDevices puts the descriptions of all tasks in a row, in the order of tasks (C-WAT-3). They
// are serialized messages of one type, and the bytes of two such messages in a row are a message
// with the fields of both: the machine joins the lists without reading them.
func (m *Machine) joinDevices() {
	for _, t := range m.ep.tasks {
		m.ep.joined = append(m.ep.joined, t.devices...)
	}
}
