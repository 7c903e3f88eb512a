package coord

import (
	"slices"
	"time"
)

// Tasks that are out of step (C-SYNC). Workers loop over barrier A, some steps, and barrier B.
// One of them restarts during the steps and waits at A, while the others wait at B: without help
// all wait forever. With Config.ExcludeUnsynced a task that restarted is out of step until it has
// met the others at some barrier, and a barrier that waits only for such tasks passes without
// them.

// scanInterval is how often barriers are looked at for members that are out of step.
const scanInterval = time.Second

// planScan asks for a look at the open barriers while some task is out of step (C-SYNC-3). A look
// at every arrival would let a barrier pass before a task that restarts quickly has had a chance
// to come.
func (m *Machine) planScan() {
	if m.cfg.ExcludeUnsynced && m.ep.nextScan == never && m.ep.deadlines.tree.Len() > 0 {
		m.ep.nextScan = saturate(m.now, scanInterval)
		m.touch()
	}
}

// scanUnsynced lets barriers pass that wait only for tasks which are out of step (C-SYNC-3).
func (m *Machine) scanUnsynced() {
	m.ep.nextScan = never
	for _, turn := range m.allOpen() {
		b := turn.barrier
		if turn.over() || b.kind != userBarrier || b.arrived == 0 {
			continue
		}
		waitsForOthers := slices.ContainsFunc(m.missing(b), func(t *task) bool { return !t.unsynced })
		if !waitsForOthers {
			m.finish(b, nil)
		}
	}
	if slices.ContainsFunc(m.ep.tasks, func(t *task) bool { return t.unsynced }) {
		m.planScan()
	}
}
