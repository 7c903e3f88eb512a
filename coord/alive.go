package coord

import (
	"encoding/binary"
	"slices"

	"github.com/serry-dev/serry"
)

// A group is a set of tasks that ask who of them is alive. It ends when every one that is alive
// has asked (C-ALIVE-2).
type group struct {
	key     string
	asked   []serry.TaskID // the set as the first caller wrote it
	members []index        // known tasks of the set, sorted
	calls   []aliveCall
	next    int // all members before this one have asked or are not alive
	waiters waiters
}

// An aliveCall is what a member said, and which life of it.
type aliveCall struct {
	asked bool
	inc   serry.Incarnation
	word  []byte
}

// getAliveTasks waits until every living task of the set has called (5.13).
func (m *Machine) getAliveTasks(w *waiter, ev GetAliveTasks) {
	t := m.task(ev.Task)
	switch {
	case !m.asksOfItself(ev, t): // C-ALIVE-1
		m.answer(w, nil, serry.ErrNotMember)
		return
	case t != nil && m.staleCaller(w):
		m.answer(w, nil, serry.ErrStale)
		return
	case len(ev.Word) > MaxWordBytes:
		m.answer(w, nil, &serry.InvalidError{What: "word is longer than 1024 bytes"})
		return
	case m.stopped: // C-ALIVE-7
		m.answer(w, &Alive{}, nil)
		return
	}
	if err := m.mayWait(w); err != nil {
		m.answer(w, nil, err)
		return
	}
	g, err := m.group(ev.Tasks)
	if err != nil {
		m.answer(w, nil, err)
		return
	}
	if t != nil && w.inc == 0 {
		w.inc = t.inc
	}
	m.touch()
	g.waiters.add(w)
	m.hold(w, waitAlive)
	if t != nil {
		g.calls[g.position(t)] = aliveCall{asked: true, inc: t.inc, word: ev.Word}
	}
	m.checkGroup(g)
}

// asksOfItself says whether the caller is in the set it asks for.
func (m *Machine) asksOfItself(ev GetAliveTasks, t *task) bool {
	if g := m.newestGroup(ev.Tasks); g != nil && t != nil {
		return g.has(t)
	}
	return slices.Contains(ev.Tasks, ev.Task)
}

// newestGroup is the group made last, if that is what the list means. Members of one job write the
// same set alike, at about the same time.
func (m *Machine) newestGroup(tasks []serry.TaskID) *group {
	if n := len(m.ep.order); n > 0 && sameList(m.ep.order[n-1].asked, tasks) {
		return m.ep.order[n-1]
	}
	return nil
}

// group finds or makes the group of a set of tasks. Ids that nobody has are part of the set and
// never alive.
func (m *Machine) group(tasks []serry.TaskID) (*group, error) {
	if g := m.newestGroup(tasks); g != nil {
		return g, nil
	}
	members := make([]index, 0, len(tasks))
	var strangers []serry.TaskID
	for _, id := range tasks {
		if t := m.task(id); t != nil {
			members = append(members, t.at)
		} else {
			strangers = append(strangers, id)
		}
	}
	if !slices.IsSorted(members) {
		slices.Sort(members)
	}
	members = slices.Compact(members)
	key := groupKey(members, strangers)
	if g := m.ep.groups[key]; g != nil {
		return g, nil
	}
	if len(m.ep.groups) >= m.cfg.Limits.AliveGroups {
		return nil, &serry.LimitError{Limit: "alive-groups", Max: int64(m.cfg.Limits.AliveGroups)}
	}
	g := &group{key: key, asked: tasks, members: members, calls: make([]aliveCall, len(members))}
	m.ep.groups[key] = g
	m.ep.order = append(m.ep.order, g)
	return g, nil
}

// sameList is slices.Equal, and quick where both are one list.
func sameList(a, b []serry.TaskID) bool {
	if len(a) == len(b) && len(a) > 0 && &a[0] == &b[0] {
		return true
	}
	return slices.Equal(a, b)
}

func groupKey(members []index, strangers []serry.TaskID) string {
	b := make([]byte, 0, 4*len(members))
	for _, at := range members {
		b = binary.LittleEndian.AppendUint32(b, uint32(at))
	}
	slices.SortFunc(strangers, serry.TaskID.Compare)
	for _, id := range slices.Compact(strangers) {
		b = append(b, "\xff"+id.String()...)
	}
	return string(b)
}

func (g *group) position(t *task) int {
	at, _ := slices.BinarySearch(g.members, t.at)
	return at
}

func (g *group) has(t *task) bool {
	_, ok := slices.BinarySearch(g.members, t.at)
	return ok
}

// checkGroup ends a group that waits for nobody any more.
func (m *Machine) checkGroup(g *group) {
	for ; g.next < len(g.members); g.next++ {
		if m.awaited(g, g.next) {
			return
		}
	}
	a := new(Alive)
	for i, at := range g.members {
		t := m.ep.tasks[at]
		if t.state != serry.Connected {
			continue
		}
		if m.awaited(g, i) { // it came to life, or anew, after it was passed over
			g.next = i
			return
		}
		a.Tasks = append(a.Tasks, t.id)
		a.Incarnations = append(a.Incarnations, t.inc)
		a.Words = append(a.Words, g.calls[i].word)
	}
	m.endGroup(g, a, nil)
}

// awaited says whether a member is alive and has not asked in its present life (C-ALIVE-6).
func (m *Machine) awaited(g *group, i int) bool {
	t := m.ep.tasks[g.members[i]]
	return t.state == serry.Connected && !(g.calls[i].asked && g.calls[i].inc == t.inc)
}

func (m *Machine) endGroup(g *group, a *Alive, err error) {
	m.touch()
	delete(m.ep.groups, g.key)
	m.ep.order = slices.DeleteFunc(m.ep.order, func(o *group) bool { return o == g })
	for _, w := range g.waiters.take() {
		if err != nil {
			m.answer(w, nil, err)
		} else {
			m.answer(w, a, nil)
		}
	}
}

// recheckGroups looks again at the groups of a task that is no longer alive (C-ALIVE-3).
func (m *Machine) recheckGroups(t *task) {
	for _, g := range slices.Clone(m.ep.order) {
		if g.has(t) {
			m.checkGroup(g)
		}
	}
}

// dropAliveCalls ends the calls of a life that is being replaced: its successor has not asked.
func (m *Machine) dropAliveCalls(t *task) {
	for _, g := range m.ep.order {
		if !g.has(t) || !g.calls[g.position(t)].asked {
			continue
		}
		g.calls[g.position(t)] = aliveCall{}
		g.next = min(g.next, g.position(t))
		for _, w := range slices.Clone(g.waiters.all) {
			if w.task == t.id && !w.answered {
				m.answer(w, nil, serry.ErrStale)
				g.waiters.bury()
			}
		}
	}
}
