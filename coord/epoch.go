package coord

import (
	"slices"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/plant"
)

// A service may stand for several runs of a job, one after the other. Each run is an epoch:
// everything in it begins empty, and calls of an earlier run never touch it (C-EPOCH-1,
// C-EPOCH-5). This file has what ends an epoch: tasks that are lost or depart, and the
// registration that opens the next one.

// nextEpoch decides whether a registration of an unknown incarnation belongs to the next epoch,
// and deals with it if so (C-EPOCH-4).
func (m *Machine) nextEpoch(w *waiter, ev RegisterTask) bool {
	w.register = ev // the call acts later, in another epoch
	switch {
	case m.over():
		m.ep.newcomers.add(w)
		w.kind = waitNewcomer
		m.openEpoch(ev.Next, nil)
	case m.allLeft(): // but some may still call: a mismatch would kill them after a successful run
		m.ep.newcomers.add(w)
		m.hold(w, waitNewcomer)
		m.touch()
		m.note(Note{What: "registration waits for the former run to depart", Task: ev.Task, Incarnation: ev.Incarnation})
	default:
		return false
	}
	return true
}

// settleNewcomers looks again at registrations that were held until all have departed. It runs at
// the end of every step, because many events can make the last task depart, and none of them
// should have to know.
func (m *Machine) settleNewcomers() {
	if m.stopped || m.ep.newcomers.live() == 0 {
		return
	}
	switch {
	case m.over():
		m.openEpoch(m.ep.newcomers.first().register.Next, nil)
	case !m.allLeft(): // a task came back: the epoch goes on, and these are judged by its rules
		for _, w := range m.ep.newcomers.take() {
			m.run(w.register, w)
		}
	}
}

// over says whether the next epoch may open (C-EPOCH-2): the run has ended, well or not, and no
// process of it can call any more.
func (m *Machine) over() bool {
	return m.ep.present == 0 && (m.ep.failed || m.allLeft())
}

// allLeft says whether every task has left politely, so that the run ended well.
func (m *Machine) allLeft() bool { return m.ep.left == len(m.ep.tasks) }

// recount counts a task for over and allLeft, before (-1) and after (+1) what they ask of it
// changes. With the counts, a job of ten thousand tasks need not be searched after every step.
func (ep *epoch) recount(t *task, by int) {
	if t.left {
		ep.left += by
	}
	if t.inc != 0 && !t.departed {
		ep.present += by
	}
}

// lose takes the verdict of the detectors (C-LOST). It counts only against present incarnations:
// a verdict that was on its way while the task restarted must not hit the new process. The
// results of the lost stay: the verdict may be wrong, and then they repeat their calls (C-REQ-3).
//
// Tasks that are lost together are one error for the others, which names them all: if a host
// dies, its eight tasks are one message and not eight.
func (m *Machine) lose(ev Lost) {
	var lost []*serry.TaskError
	var sources []*task
	for _, l := range slices.SortedFunc(slices.Values(ev.Tasks), func(a, b Loss) int { return a.Task.Compare(b.Task) }) {
		t := m.task(l.Task)
		if t == nil || l.Incarnation == 0 || t.inc != l.Incarnation && !m.cfg.has(plant.IgnoreIncarnation) {
			continue
		}
		// Whatever its state, no call of this life is expected any more. If the verdict is wrong,
		// its next registration takes that back.
		m.hasDeparted(t)
		if ev.DropsResults || m.cfg.has(plant.DropRequester) {
			m.dropRequesters(l.Incarnation)
		}
		if b := m.ep.register; b.open && b.slots[t.at].arrived { // C-LOST-2
			m.withdraw(b.slots[t.at].w)
		}
		if t.state != serry.Connected { // it has left, or failed before: the first error stays (C-ST-4)
			continue
		}
		err := &serry.TaskError{Task: t.id, Incarnation: t.inc, Evidence: l.Evidence, Err: serry.ErrTaskDead}
		m.fail(t, err)
		lost = append(lost, err)
		sources = append(sources, t)
	}
	if len(lost) > 0 {
		m.propagate(&serry.LostError{Lost: lost}, sources)
	}
}

// maxEvidenceBytes bounds what a member may say of another. It reaches every survivor, in the
// trailer of a reply that must stay small.
const maxEvidenceBytes = 256

// serve hears a member about another (C-LOST-3). Hard evidence counts like a verdict of the
// detectors; weak evidence, such as a call that was slow, is only noted, because the fault may
// lie with the one that reports.
func (ev Suspect) serve(m *Machine, w *waiter) (Result, error) {
	if _, err := m.activeCaller(w); err != nil {
		return nil, err
	}
	peer := m.task(ev.Peer.Task)
	if peer == nil {
		return nil, serry.ErrUnknownTask
	}
	seen := ev.Evidence[:min(len(ev.Evidence), maxEvidenceBytes)] + ", reported by " + w.task.String()
	m.note(Note{What: "task suspected", Task: peer.id, Incarnation: ev.Peer.Incarnation, Err: &serry.TaskError{
		Task: peer.id, Incarnation: ev.Peer.Incarnation, Evidence: seen, Err: serry.ErrTaskDead,
	}})
	if ev.Hard {
		m.lose(Lost{Tasks: []Loss{{Life: ev.Peer, Evidence: seen}}, DropsResults: ev.DropsResults})
	}
	return Done{}, nil
}

// depart notes incarnations of which no call is expected any more. That is a verdict like a loss:
// a host that was silent for long enough, or did not come back to the next leader. So the results
// of a life stay, whatever its state, until another one takes its place, its requesters say
// farewell, its process is seen to end, or the epoch ends. That is at most one life a task.
func (m *Machine) depart(ev Departed) {
	for _, d := range ev.Tasks {
		t := m.task(d.Task)
		present := t != nil && d.Incarnation != 0 && t.inc == d.Incarnation
		if present {
			m.hasDeparted(t)
		}
		if !present || ev.DropsResults {
			m.dropRequesters(d.Incarnation)
		}
	}
}

// hasDeparted notes that no call of the present incarnation of t can come any more.
func (m *Machine) hasDeparted(t *task) {
	if !t.departed {
		m.ep.recount(t, -1)
		t.departed = true
		m.ep.recount(t, +1)
		m.touch()
	}
}
