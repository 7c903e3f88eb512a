package coord

import (
	"encoding/binary"
	"slices"

	"github.com/serry-dev/serry"
)

// A group is a set of tasks that ask who of them is alive. It ends when every one that is alive
// has asked (C-ALIVE-2). Groups of different sets are independent, also where the sets overlap
// (C-ALIVE-3).
//
// A member that fails, or leaves, does not end the group with an error as it would end a barrier:
// the others stop waiting for it, and it is not in the answer. An example with three members:
//
//	worker/0 asks                  it waits for the other two
//	worker/1 asks                  both wait for worker/2
//	lost worker/2                  both hear: worker/0 and worker/1 are alive
//
// So the survivors of a failure agree on which tasks survived, and can go on without a restart of the
// job. Each may hand in a word that all of them get with the answer (C-ALIVE-8), for example the
// last step that it has saved.
type group struct {
	key     string
	asked   []serry.TaskID // the set as the first caller wrote it
	members []index        // known tasks of the set, sorted
	calls   []aliveCall
	next    int // all members before this one have asked or are not alive
	waiters waiters
	ended   bool
}

// over says whether a list may forget it.
func (g *group) over() bool { return g.ended }

// An aliveCall is what a member said, and which life of it. A call counts for the life that made
// it: if the member restarts, its new process has not asked (C-ALIVE-6).
type aliveCall struct {
	asked bool
	inc   serry.Incarnation
	word  []byte
	by    lazyList[*waiter] // the calls of the member that wait
}

// serve waits until every living task of the set has called (C-ALIVE).
//
// The answer is one list for all callers, so that they can go on together without the dead. That
// is what makes this call more than a query: two tasks never hold different lists for one
// meeting.
func (ev GetAliveTasks) serve(m *Machine, w *waiter) (Result, error) {
	t := m.task(ev.Task)
	switch {
	case !m.asksOfItself(ev, t): // C-ALIVE-1
		return nil, serry.ErrNotMember
	case t != nil && m.staleCaller(w):
		return nil, serry.ErrStale
	case len(ev.Word) > MaxWordBytes:
		return nil, &serry.InvalidError{What: "word is longer than 1024 bytes"}
	case m.stopped: // C-ALIVE-7
		return &Alive{}, nil
	}
	if err := m.mayWait(w); err != nil {
		return nil, err
	}
	g, err := m.group(ev.Tasks)
	if err != nil {
		return nil, err
	}
	if t != nil && w.inc == 0 {
		w.inc = t.inc
	}
	// The call counts from now on, also if its connection breaks: a successor must know that it
	// was made.
	m.touch()
	g.waiters.add(w)
	m.hold(w, waitAlive)
	if t != nil {
		call := &g.calls[g.position(t)]
		call.asked, call.inc, call.word = true, t.inc, ev.Word
		call.by.add(w)
	}
	m.checkGroup(g)
	return nil, nil
}

// asksOfItself says whether the caller is in the set it asks for. A caller that is not would wait
// for a meeting at which it is not expected.
func (m *Machine) asksOfItself(ev GetAliveTasks, t *task) bool {
	if g := m.newestGroup(ev.Tasks); g != nil && t != nil {
		return g.has(t)
	}
	return slices.Contains(ev.Tasks, ev.Task)
}

// newestGroup is the group made last, if that is what the list means. Members of one job write
// the same set alike, at about the same time, so this saves nearly all of them the sorting of
// their list.
func (m *Machine) newestGroup(tasks []serry.TaskID) *group {
	if n := len(m.ep.order.all); n > 0 && !m.ep.order.all[n-1].ended && sameList(m.ep.order.all[n-1].asked, tasks) {
		return m.ep.order.all[n-1]
	}
	return nil
}

// group finds or makes the group of a set of tasks. Ids that no task has are part of the set and
// never alive. The set is what counts, not the list: the members are sorted, and doubles are
// dropped.
func (m *Machine) group(tasks []serry.TaskID) (*group, error) {
	if g := m.newestGroup(tasks); g != nil {
		return g, nil
	}
	members := make([]index, 0, len(tasks))
	var unknown []serry.TaskID
	for _, id := range tasks {
		if t := m.task(id); t != nil {
			members = append(members, t.at)
		} else {
			unknown = append(unknown, id)
		}
	}
	if !slices.IsSorted(members) {
		slices.Sort(members)
	}
	members = slices.Compact(members)
	key := groupKey(members, unknown)
	if g := m.ep.groups[key]; g != nil {
		return g, nil
	}
	// Sets that all their callers gave up are kept until their room is needed.
	if len(m.ep.groups) >= m.cfg.Limits.AliveGroups {
		m.forgetAbandoned()
	}
	if len(m.ep.groups) >= m.cfg.Limits.AliveGroups {
		return nil, &serry.LimitError{Limit: "alive-groups", Max: int64(m.cfg.Limits.AliveGroups)}
	}
	g := &group{key: key, asked: tasks, members: members, calls: make([]aliveCall, len(members))}
	m.addGroup(g)
	return g, nil
}

// addGroup puts a group where its set, and where each of its members, finds it.
func (m *Machine) addGroup(g *group) {
	m.ep.groups[g.key] = g
	m.ep.order.add(g)
	for _, at := range g.members {
		m.ep.tasks[at].groups.add(g)
	}
}

// forgetAbandoned ends the groups for which no call waits any more. What their callers did is
// kept as long as there is room, because a call that was given up may be made again (C-WIRE-6).
// It looks at all groups, but only if a call was given up since it last did: otherwise a client
// that fills the table could make every call cost a walk through it.
func (m *Machine) forgetAbandoned() {
	if !m.ep.givenUp {
		return
	}
	m.ep.givenUp = false
	for _, g := range slices.Clone(m.ep.order.live()) {
		if !slices.ContainsFunc(g.waiters.all, m.isAwaited) {
			m.endGroup(g, nil, serry.ErrCancelled)
		}
	}
}

// isAwaited says whether the answer to a call in a group can still reach its caller. It must
// depend on nothing but what a journal knows, because a successor has to forget the same groups.
// For a call with an id that is the word of the requester: up to its watermark everything has
// been answered or given up.
func (m *Machine) isAwaited(w *waiter) bool {
	if w.answered || w.id.Requester == 0 {
		return !w.answered
	}
	return m.remembered(w) && w.id.Number > m.ep.requesters[w.id.Requester].watermark
}

// sameList is slices.Equal, and quick where both are one list. In a job of ten thousand tasks
// each of ten thousand calls has a list of ten thousand.
func sameList(a, b []serry.TaskID) bool {
	if len(a) == len(b) && len(a) > 0 && &a[0] == &b[0] {
		return true
	}
	return slices.Equal(a, b)
}

// groupKey is the same text for equal sets: the sorted members as numbers, then the sorted names
// of ids that no task has.
func groupKey(members []index, unknown []serry.TaskID) string {
	b := make([]byte, 0, 4*len(members))
	for _, at := range members {
		b = binary.LittleEndian.AppendUint32(b, uint32(at))
	}
	slices.SortFunc(unknown, serry.TaskID.Compare)
	for _, id := range slices.Compact(unknown) {
		b = append(b, "\xff"+id.String()...)
	}
	return string(b)
}

// position is where a member of the group stands in members and calls.
func (g *group) position(t *task) int {
	at, _ := slices.BinarySearch(g.members, t.at)
	return at
}

func (g *group) has(t *task) bool {
	_, ok := slices.BinarySearch(g.members, t.at)
	return ok
}

// checkGroup ends a group if no living member is left that has not asked.
//
// next remembers how far the members have been found to be done, so that ten thousand calls do
// not each look at ten thousand members. A member before next may become one to wait for again,
// when it comes back to life: the second loop, which makes the answer, finds that, and the group
// waits on from there.
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

// awaited says whether the group waits for a member: it is alive, and its present life has not
// asked (C-ALIVE-6).
func (m *Machine) awaited(g *group, i int) bool {
	t := m.ep.tasks[g.members[i]]
	return t.state == serry.Connected && !(g.calls[i].asked && g.calls[i].inc == t.inc)
}

// endGroup answers all calls of a group with the same list, or with an error.
func (m *Machine) endGroup(g *group, a *Alive, err error) {
	m.touch()
	delete(m.ep.groups, g.key)
	g.ended = true
	g.asked, g.members, g.calls = nil, nil, nil // the lists that it is in may keep it for a while
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
	for _, g := range slices.Clone(t.groups.live()) {
		if !g.ended {
			m.checkGroup(g)
		}
	}
}

// dropAliveCalls ends the calls of a life that is being replaced: its successor has not asked,
// and must not be counted as if it had.
func (m *Machine) dropAliveCalls(t *task) {
	for _, g := range t.groups.live() {
		at := g.position(t)
		if !g.calls[at].asked {
			continue
		}
		waiting := g.calls[at].by.live()
		g.calls[at] = aliveCall{}
		g.next = min(g.next, at)
		for _, w := range waiting {
			m.answer(w, nil, serry.ErrStale)
			g.waiters.noteCancelled()
		}
		m.ep.givenUp = true
	}
}
