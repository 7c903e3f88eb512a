package coord

import "github.com/serry-dev/serry"

// bump raises the version that watchers wait for (C-WATCH-1).
func (m *Machine) bump() {
	m.version++
	m.touch()
	m.dirty = true
	m.pictures = nil
}

// serve answers at once if the caller is behind, and else when something changes (C-WATCH). A
// version from the future is one from the past (C-WATCH-3).
func (ev WatchTasks) serve(m *Machine, w *waiter) {
	_, knownJob := m.ep.base[ev.Job]
	switch {
	case m.stopped:
		m.answer(w, &Picture{Version: -1}, nil)
	case m.replaced(w):
		m.answer(w, nil, serry.ErrStale)
	case ev.Job != "" && !knownJob:
		m.answer(w, nil, serry.ErrUnknownTask)
	case ev.Version != m.version:
		m.answer(w, m.picture(ev.Job), nil)
	default:
		if err := m.mayWait(w); err != nil {
			m.answer(w, nil, err)
			return
		}
		w.key = ev.Job
		m.ep.watchers.add(w)
		m.hold(w, waitWatch)
	}
}

// notifyWatchers answers every watcher if something has changed since they were last told.
func (m *Machine) notifyWatchers() {
	if !m.dirty {
		return
	}
	m.dirty = false
	for _, w := range m.ep.watchers.take() {
		m.answer(w, m.picture(w.key), nil)
	}
}

// picture shows all tasks of a job, or of all jobs. It is made once per version (C-WATCH-9).
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

func (t *task) info() TaskInfo {
	i := TaskInfo{Task: t.id, State: t.state, Incarnation: t.inc}
	if t.err != nil {
		i.Err = t.err
	}
	return i
}

// serve shows some tasks, in the order asked (C-GTS-1).
func (ev GetTaskState) serve(m *Machine, w *waiter) {
	p := &Picture{Version: m.version, Tasks: make([]TaskInfo, 0, len(ev.Tasks))}
	for _, id := range ev.Tasks {
		t := m.task(id)
		if t == nil {
			m.answer(w, nil, serry.ErrUnknownTask)
			return
		}
		p.Tasks = append(p.Tasks, t.info())
	}
	m.answer(w, p, nil)
}
