package pact

import (
	"fmt"
)

// calm says whether all tasks live, all notices were posted, and no task has heard of one that is not
// served.
func (w *world) calm() bool {
	for _, t := range w.tasks {
		if !t.alive || t.pact.phase != listening || t.pact.heard > 0 || t.pact.round != w.tasks[0].pact.round {
			return false
		}
		if !t.busy || t.command.Do != Wait {
			return false
		}
		if _, ok := w.find(t.command.Key); ok {
			return false
		}
		for _, p := range t.postings {
			if !p.done {
				return false
			}
		}
	}
	return true
}

// check holds what must be true at every moment: an agreed step that one task has not passed yet is the
// same for all that have not.
func (w *world) check() error {
	for _, t := range w.tasks {
		for _, o := range w.tasks[:t.index] {
			if t.alive && o.alive && t.pact.ahead && o.pact.ahead && t.pact.point.Round == o.pact.point.Round && t.pact.point != o.pact.point {
				return fmt.Errorf("tasks %d and %d are to save at %v and %v", t.index, o.index, t.pact.point, o.pact.point)
			}
		}
	}
	return nil
}

// judge looks at a whole history: where one task saved all did, and every notice led to a save, or to a
// round that ended with a reason.
func (w *world) judge() error {
	saved := make(map[int64]int)
	for _, t := range w.tasks {
		for _, m := range t.made {
			if m.verdict == Save {
				saved[m.step] = t.index
			}
		}
	}
	for _, t := range w.tasks {
		for _, m := range t.made {
			who, some := saved[m.step]
			switch {
			case m.verdict == Skipped:
				return fmt.Errorf("task %d left out a step to save at before step %d", t.index, m.step)
			case some && m.verdict != Save:
				return fmt.Errorf("task %d saved at step %d, and task %d passed it", who, m.step, t.index)
			}
		}
		for _, p := range t.postings {
			if err := w.served(t, p); err != nil {
				return err
			}
		}
	}
	return nil
}

// served says whether a notice led to a save of its task. A notice to a life that has died needs none,
// and with faults a round may end without a step, which the tasks are told.
func (w *world) served(t *task, p *posted) error {
	for _, m := range t.made {
		if m.verdict == Save && !m.at.Before(p.at) {
			return nil
		}
	}
	if p.life != t.life || w.faults > 0 && w.tally.ended > 0 {
		return nil
	}
	return fmt.Errorf("task %d did not save after its notice of %v", t.index, p.at.Sub(epoch))
}
