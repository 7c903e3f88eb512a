package coord

import "github.com/serry-dev/serry"

// Watches of tasks. There is one version for the whole job. It rises with every change of a task,
// and a watcher says which version it knows: if that is not the present one it is answered at
// once, else it waits for the next change. So a watcher misses no last state, however slow it is,
// and several changes that happen before it asks again reach it as one (C-WATCH-5).

// bump raises the version that watchers wait for (C-WATCH-1). They are told at the end of the
// step, once, or earlier where the order of replies asks for it; see notifyWatchers.
func (m *Machine) bump() {
	m.version++
	m.touch()
	m.dirty = true
	m.pictures = nil
}

// serve answers at once if the caller is behind, and else when something changes (C-WATCH). A
// version from the future is one from the past (C-WATCH-3): its caller knew another service.
func (ev WatchTasks) serve(m *Machine, w *waiter) (Result, error) {
	_, knownJob := m.ep.base[ev.Job]
	switch {
	case m.stopped: // C-WATCH-6
		return &Picture{Version: -1}, nil
	case m.replaced(w):
		return nil, serry.ErrStale
	case ev.Job != "" && !knownJob:
		return nil, serry.ErrUnknownTask
	case ev.Version != m.version:
		return m.picture(ev.Job), nil
	}
	if err := m.mayWait(w); err != nil {
		return nil, err
	}
	w.key = ev.Job
	m.ep.watchers.add(w)
	return m.hold(w, waitWatch)
}

// notifyWatchers answers every watcher if something has changed since they were last told.
//
// A failure tells watchers before it tells error polls (C-ORD-3): a client that hears of an error
// ends, and must know before that who failed. That is why propagate calls this, and not only the
// end of a step.
func (m *Machine) notifyWatchers() {
	if !m.dirty {
		return
	}
	m.dirty = false
	for _, w := range m.ep.watchers.take() {
		m.answer(w, m.picture(w.key), nil)
	}
}

// picture shows all tasks of a job, or of all jobs. It is made once per version and shared by all
// watchers (C-WATCH-9): ten thousand watchers of ten thousand tasks would otherwise need a
// hundred million entries for one change.
func (m *Machine) picture(job string) *Picture {
	if p := m.pictures[job]; p != nil {
		return p
	}
	row := jobRow{tasks: len(m.ep.tasks)}
	if job != "" {
		row = m.ep.base[job]
	}
	p := &Picture{Version: m.version, Tasks: make([]TaskInfo, 0, row.tasks)}
	for _, t := range m.ep.tasks[row.first : int(row.first)+row.tasks] {
		p.Tasks = append(p.Tasks, t.info())
	}
	if m.pictures == nil {
		m.pictures = make(map[string]*Picture)
	}
	m.pictures[job] = p
	return p
}

// info is what others may know of a task. Err is set only where there is an error: a nil
// *TaskError in an interface would not be nil.
func (t *task) info() TaskInfo {
	i := TaskInfo{Task: t.id, State: t.state, Incarnation: t.inc}
	if t.err != nil {
		i.Err = t.err
	}
	return i
}

// serve shows some tasks, in the order asked (C-GTS-1).
func (ev GetTaskState) serve(m *Machine, w *waiter) (Result, error) {
	p := &Picture{Version: m.version, Tasks: make([]TaskInfo, 0, len(ev.Tasks))}
	for _, id := range ev.Tasks {
		t := m.task(id)
		if t == nil {
			return nil, serry.ErrUnknownTask
		}
		p.Tasks = append(p.Tasks, t.info())
	}
	return p, nil
}
