package coord_test

import (
	"fmt"
	"slices"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
)

// barrier follows the steps of C-BAR-3, in their order.
func (m *model) barrier(ev coord.Barrier, t int, req coord.Req) {
	b := m.barriers[ev.ID]
	if b == nil {
		b = &modelBarrier{id: ev.ID}
		m.barriers[ev.ID] = b
	}
	inc, c := m.tasks[t].inc, ev.Counter
	last := b.last(t)
	repeats := last >= 0 && b.instances[last].arrivals[t] == modelArrival{inc, c}
	if repeats && !b.instances[last].open { // C-REQ-4
		m.answer(req, b.instances[last].result)
		return
	}
	newcomer := m.recoverable && c == 0 && !(last >= 0 && b.instances[last].arrivals[t].inc == inc) // C-BAR-21
	switch {
	case !b.open() && (c == b.counter()+1 || len(b.instances) > 0 && newcomer): // C-BAR-4
		if !m.begin(b, ev) {
			m.answer(req, b.now().result)
			return
		}
	case len(b.instances) == 0:
		b.instances = append(b.instances, &modelInstance{result: barrierText(b.id, 0, serry.ErrCounter)})
		m.answer(req, b.now().result)
		return
	case c != b.counter() && !newcomer && !repeats: // C-BAR-10
		m.spoil(b, t, req, serry.ErrCounter)
		return
	}
	if err := b.check(ev.Tasks, t); err != nil { // C-BAR-11
		m.spoil(b, t, req, err)
		return
	}
	i := b.now()
	if !i.open { // C-BAR-12
		m.answer(req, i.result)
		return
	}
	m.answer(i.waiting[t], barrierText(b.id, b.counter(), serry.ErrSuperseded)) // C-BAR-9
	i.waiting[t] = req
	i.arrivals[t] = modelArrival{inc, c}
	if len(i.arrivals) == len(b.members) {
		m.end(b, fmt.Sprint("passed ", b.counter()))
	}
}

func (b *modelBarrier) counter() int64 { return int64(len(b.instances)) - 1 }

func (b *modelBarrier) now() *modelInstance { return b.instances[len(b.instances)-1] }

func (b *modelBarrier) open() bool { return len(b.instances) > 0 && b.now().open }

// last is the instance at which a task arrived last, or -1. Only a few are remembered of those at
// which somebody arrived.
func (b *modelBarrier) last(t int) int {
	remembered := 0
	for n := len(b.instances) - 1; n >= 0 && remembered <= 4; n-- {
		i := b.instances[n]
		if _, ok := i.arrivals[t]; ok {
			return n
		}
		if n == len(b.instances)-1 || len(i.arrivals) > 0 {
			remembered++
		}
	}
	return -1
}

// begin sets up an instance, which may fail at once (C-BAR-5, C-BAR-6).
func (m *model) begin(b *modelBarrier, ev coord.Barrier) bool {
	i := &modelInstance{
		open: true, deadline: m.now + coord.Time(max(ev.Timeout, 0)),
		arrivals: make(map[int]modelArrival), waiting: make(map[int]coord.Req),
	}
	b.instances = append(b.instances, i)
	if b.members == nil {
		b.members = []int{0, 1, 2}
		if len(ev.Tasks) > 0 {
			b.members = indexes(ev.Tasks)
		}
	}
	m.opened = append(m.opened, b)
	for _, t := range b.members {
		if m.tasks[t].state == serry.Failed && !m.recoverable {
			m.end(b, barrierText(b.id, b.counter(), serry.ErrMemberFailed))
			return false
		}
	}
	return true
}

func (b *modelBarrier) check(tasks []serry.TaskID, t int) error {
	list := indexes(tasks)
	switch {
	case b.members == nil || len(tasks) == 0 && len(b.members) == modelTasks:
		return nil
	case len(tasks) == 0:
		return serry.ErrNoMembers
	case len(tasks) != len(b.members) || !slices.Equal(list, b.members):
		return serry.ErrMembers
	case !slices.Contains(b.members, t):
		return serry.ErrNotMember
	}
	return nil
}

// spoil ends an open instance for all because of one call; of an ended one only the caller hears.
func (m *model) spoil(b *modelBarrier, t int, req coord.Req, err error) {
	text := barrierText(b.id, b.counter(), err)
	if b.open() {
		if slices.Contains(b.members, t) {
			m.answer(b.now().waiting[t], barrierText(b.id, b.counter(), serry.ErrSuperseded))
		}
		m.end(b, text)
	}
	m.answer(req, text)
}

func (m *model) end(b *modelBarrier, result string) {
	i := b.now()
	i.open, i.result = false, result
	m.opened = slices.DeleteFunc(m.opened, func(o *modelBarrier) bool { return o == b })
	for _, req := range i.waiting {
		m.answer(req, result)
	}
}

func (m *model) leaveBarriers(t int) {
	for _, b := range slices.Clone(m.opened) {
		if !slices.Contains(b.members, t) {
			continue
		}
		if !m.recoverable {
			m.end(b, barrierText(b.id, b.counter(), serry.ErrMemberLost))
			continue
		}
		m.answer(b.now().waiting[t], barrierText(b.id, b.counter(), serry.ErrWithdrawn))
		delete(b.now().arrivals, t)
		delete(b.now().waiting, t)
	}
}

func (m *model) expire() {
	for _, b := range slices.Clone(m.opened) {
		if b.now().deadline <= m.now {
			m.end(b, barrierText(b.id, b.counter(), serry.ErrTimeout))
		}
	}
}

func (m *model) cancelBarrier(ev coord.CancelBarrier, req coord.Req) {
	b := m.barriers[ev.ID]
	if b == nil || len(b.instances) == 0 {
		if ev.Counter != 0 {
			m.answer(req, barrierText(ev.ID, 0, serry.ErrCounter))
			return
		}
		result := barrierText(ev.ID, 0, serry.ErrCancelled)
		m.barriers[ev.ID] = &modelBarrier{id: ev.ID, instances: []*modelInstance{{result: result}}}
		m.answer(req, "ok")
		return
	}
	switch {
	case ev.Counter != b.counter():
		m.answer(req, barrierText(b.id, b.counter(), serry.ErrCounter))
	case !b.open():
		m.answer(req, barrierText(b.id, b.counter(), serry.ErrAlreadyPassed))
	default:
		m.end(b, barrierText(b.id, b.counter(), serry.ErrCancelled))
		m.answer(req, "ok")
	}
}

func (m *model) alive(ev coord.GetAliveTasks, t int, req coord.Req) {
	set := indexes(ev.Tasks)
	if !slices.Contains(set, t) {
		m.answer(req, serry.ErrNotMember.Error())
		return
	}
	at := slices.IndexFunc(m.groups, func(g *modelGroup) bool { return slices.Equal(g.set, set) })
	if at < 0 {
		at = len(m.groups)
		m.groups = append(m.groups, &modelGroup{set: set, asked: make(map[int]serry.Incarnation)})
	}
	g := m.groups[at]
	g.asked[t] = m.tasks[t].inc
	g.calls = append(g.calls, modelCall{req: req, task: t})
	m.checkGroups()
}

// checkGroups ends every group in which all that are alive have asked.
func (m *model) checkGroups() {
	m.groups = slices.DeleteFunc(m.groups, func(g *modelGroup) bool {
		var alive []string
		for _, t := range g.set {
			if k := m.tasks[t]; k.state == serry.Connected {
				if inc, ok := g.asked[t]; !ok || inc != k.inc {
					return false
				}
				alive = append(alive, fmt.Sprintf("%d/%d", t, k.inc))
			}
		}
		for _, c := range g.calls {
			m.answer(c.req, fmt.Sprint(alive))
		}
		return true
	})
}

// dropAlive ends the calls of a life that has a successor.
func (m *model) dropAlive(t int) {
	for _, g := range m.groups {
		delete(g.asked, t)
		g.calls = slices.DeleteFunc(g.calls, func(c modelCall) bool {
			if c.task == t {
				m.answer(c.req, serry.ErrStale.Error())
			}
			return c.task == t
		})
	}
}

func barrierText(id string, counter int64, err error) string {
	return fmt.Sprintf("barrier %s::%d: %v", id, counter, err)
}

func taskText(err error) string { return fmt.Sprintf("task: %v", err) }

func indexes(tasks []serry.TaskID) []int {
	var list []int
	for _, id := range tasks {
		list = append(list, id.Index)
	}
	slices.Sort(list)
	return list
}
