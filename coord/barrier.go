package coord

import (
	"cmp"
	"iter"
	"slices"
	"time"

	"github.com/serry-dev/serry"
)

// A barrier is the record of one id. It has one instance after the other, numbered by its counter;
// at most one is open. Members are fixed by the first instance and kept for all later ones
// (C-BAR-1, C-BAR-5).
//
// When an instance ends its slots go. What stays is the result, and who arrived, as far as a
// repeated call needs it: nothing where all arrived with the counter of the instance (C-BAR-24).
type barrier struct {
	id      string
	kind    barrierKind
	fixed   bool    // members are known
	members []index // sorted; nil: all tasks
	instance

	// While open.
	open     bool
	slots    []slot // by position of the member
	arrived  int
	first    serry.TaskID
	since    Time
	deadline Time
	heapAt   int

	turn   uint64     // when it was opened or, after that, ended; orders barriers
	weight int        // as weigh has found it
	past   []instance // earlier ones that are still some member's last, oldest first
}

type barrierKind int

const (
	userBarrier barrierKind = iota
	deviceBarrier
	registerBarrier
	shutdownBarrier
)

// An instance is one use of a barrier: its number and, once it has ended, its result.
type instance struct {
	counter  int64 // -1 before the first
	err      error
	ended    int64     // the version when it ended
	everyone bool      // all members arrived, each with the counter of the instance
	arrivals []arrival // otherwise: who did, sorted by task
}

// An arrival is what is remembered of a member's call (C-REQ-4).
type arrival struct {
	at   index
	inc  serry.Incarnation
	sent int64 // the counter that the caller sent
}

// A slot is the place of a member in an open instance.
type slot struct {
	arrival
	arrived   bool
	restarted bool // since it arrived (C-SYNC-2)
	w         *waiter
}

// A barrierTurn is a barrier that was opened, or has ended, at a turn. It is over with the next turn.
type barrierTurn struct {
	*barrier
	at uint64
}

// over implements what a roll asks.
func (b barrierTurn) over() bool { return b.turn != b.at }

// nextTurn gives a barrier that is opened or has ended its place in the order of all.
func (m *Machine) nextTurn(b *barrier) barrierTurn {
	m.openings++
	b.turn = m.openings
	return barrierTurn{b, b.turn}
}

func newBarrier(id string, kind barrierKind) *barrier {
	return &barrier{id: id, kind: kind, instance: instance{counter: -1}}
}

// maxForgotten bounds the counter at which an id that was forgotten may go on, so that none overflows.
const maxForgotten = 1 << 62

// maxPast bounds how many earlier instances are remembered for members that lag behind.
const maxPast = 4

// serve handles a call of a client, in the order of C-BAR-3.
func (ev Barrier) serve(m *Machine, w *waiter) {
	b, t := m.ep.barriers[ev.ID], m.task(ev.Task)
	if err := m.checkBarrierCall(w, ev, b, t); err != nil {
		m.answer(w, nil, err)
		return
	}
	if w.inc == 0 {
		w.inc = t.inc
	}
	a := arrival{at: t.at, inc: w.inc, sent: ev.Counter}
	if b == nil {
		b = m.addBarrier(ev.ID)
		if m.ep.forgot && ev.Counter > 0 && ev.Counter < maxForgotten { // it may be one that was forgotten: its members know where they were
			b.counter = ev.Counter - 1
		}
	}
	if past := b.repeated(t, a); past != nil && !(b.open && past == &b.instance) {
		m.answerPassed(w, *past)
		return
	}
	mayJump := (m.cfg.Recoverable || ev.Recoverable) && ev.Counter == 0 && !b.hasMet(t, a.inc) // C-BAR-21
	if !b.open && (ev.Counter == b.counter+1 || b.counter >= 0 && mayJump) {
		if !m.beginInstance(b, t, ev) {
			m.answerPassed(w, b.instance)
			return
		}
	} else if b.counter < 0 { // an id never used, by a client that outlived the service
		b.counter = 0
		m.hasEnded(b, m.mismatch(b, t, ev.Counter))
		m.answer(w, nil, b.err)
		return
	} else if ev.Counter != b.counter && !mayJump && (!b.open || b.repeated(t, a) == nil) {
		m.failCall(b, t, w, m.mismatch(b, t, ev.Counter))
		return
	}
	if err := m.checkMembers(b, t, ev.Tasks); err != nil {
		m.failCall(b, t, w, err)
		return
	}
	if !b.open {
		m.answerPassed(w, b.instance)
		return
	}
	m.wait(b, t, w)
	m.hold(w, waitBarrier)
	m.arrive(b, t, a)
}

// checkBarrierCall refuses calls that touch no barrier at all.
func (m *Machine) checkBarrierCall(w *waiter, ev Barrier, b *barrier, t *task) error {
	refused := func(why error) error {
		return &serry.BarrierError{ID: ev.ID, Counter: ev.Counter, Task: ev.Task, Err: why}
	}
	switch {
	case m.stopped:
		return refused(serry.ErrStopped)
	case len(ev.ID) > MaxNameBytes:
		return &serry.InvalidError{What: "barrier id is longer than 1024 bytes: " + ev.ID[:64] + "..."}
	case m.reserved(ev.ID):
		return refused(serry.ErrReservedName)
	case t == nil: // C-BAR-11
		return refused(serry.ErrUnknownTask)
	}
	if _, err := m.caller(w); err != nil {
		return err
	}
	if err := m.mayWait(w); err != nil || b != nil {
		return err
	}
	return m.roomForBarrier()
}

// roomForBarrier makes room for another id. If there are as many as allowed, the one that ended longest ago
// is forgotten: programs use a fresh id for every meeting, for days. What members may miss by that stands
// at [Limits.Barriers]. A call is refused only where so many barriers are open.
func (m *Machine) roomForBarrier() error {
	if len(m.ep.barriers) >= m.cfg.Limits.Barriers && !m.forgetBarrier() {
		return &serry.LimitError{Limit: "barriers", Max: int64(m.cfg.Limits.Barriers)}
	}
	return nil
}

// forgetBarrier forgets the barrier that ended longest ago, if one has.
func (m *Machine) forgetBarrier() bool {
	old, ok := m.ep.ended.takeFirst()
	if ok {
		delete(m.ep.barriers, old.id)
		m.ep.weight -= old.weight
		m.ep.forgot = true
		m.touch()
	}
	return ok
}

// maxWeight bounds how many arrivals and missing tasks are remembered of barriers that failed, all together.
// Of those that passed none are.
const maxWeight = 1 << 23

// weigh counts what is remembered of a barrier for members that lag behind.
func (ep *epoch) weigh(b *barrier) {
	ep.weight -= b.weight
	b.weight = b.instance.weight()
	for i := range b.past {
		b.weight += b.past[i].weight()
	}
	ep.weight += b.weight
}

func (i *instance) weight() int {
	n := len(i.arrivals)
	if err, ok := i.err.(*serry.BarrierError); ok {
		n += len(err.Missing)
	}
	return n
}

// addBarrier makes the record of an id. There is room for it.
func (m *Machine) addBarrier(id string) *barrier {
	b := newBarrier(id, userBarrier)
	m.ep.barriers[id] = b
	m.touch()
	return b
}

// hasEnded notes the result of an instance.
func (m *Machine) hasEnded(b *barrier, err error) {
	b.err, b.ended = err, m.version
	m.ep.weigh(b)
	if turn := m.nextTurn(b); b.kind == userBarrier {
		m.ep.ended.add(turn)
	}
}

// reserved says whether the service itself uses the id (C-BAR-23).
func (m *Machine) reserved(id string) bool {
	return id == m.ep.register.id || id == m.ep.shutdown.id || id == m.ep.devices.id
}

// beginInstance sets up the next instance, which may fail at once (C-BAR-5 to C-BAR-7).
func (m *Machine) beginInstance(b *barrier, t *task, ev Barrier) bool {
	m.touch()
	if !b.fixed {
		members, stranger := m.memberList(ev.Tasks)
		if !stranger.IsZero() {
			b.nextCounter()
			m.hasEnded(b, &serry.BarrierError{ID: b.id, Counter: b.counter, Task: stranger, Err: serry.ErrUnknownTask})
			return false
		}
		b.members, b.fixed = members, true
	}
	b.nextCounter()
	if failed := m.failedMember(b); failed != nil {
		m.hasEnded(b, m.memberFailed(b, failed))
		return false
	}
	m.openBarrier(b, b.counter, saturate(m.now, ev.Timeout))
	return true
}

// nextCounter puts the ended instance away and numbers the next.
func (b *barrier) nextCounter() {
	if b.counter >= 0 && (b.everyone || len(b.arrivals) > 0) {
		b.past = append(b.past, b.instance)
		b.past = b.past[max(0, len(b.past)-maxPast):]
	}
	b.instance = instance{counter: b.counter + 1}
}

// memberList turns the tasks of a call into members: nil for all, or the first unknown one.
func (m *Machine) memberList(tasks []serry.TaskID) (members []index, stranger serry.TaskID) {
	for _, id := range tasks {
		t := m.task(id)
		if t == nil {
			return nil, id
		}
		members = append(members, t.at)
	}
	slices.Sort(members)
	members = slices.Compact(members)
	if len(members) == len(m.ep.tasks) {
		return nil, stranger
	}
	return members, stranger
}

// checkMembers compares the caller's idea of the members with the record's (C-BAR-11).
func (m *Machine) checkMembers(b *barrier, t *task, tasks []serry.TaskID) error {
	switch {
	case !b.fixed: // it never had members: cancelled or failed before it began
		return nil
	case len(tasks) == 0 && b.members != nil:
		return m.blame(b, t, serry.ErrNoMembers)
	case len(tasks) == 0:
		return nil
	case len(tasks) != m.size(b):
		return m.blame(b, t, serry.ErrMembers)
	}
	for _, id := range tasks {
		if u := m.task(id); u == nil || b.position(u) < 0 {
			return m.blame(b, t, serry.ErrMembers)
		}
	}
	if b.position(t) < 0 {
		return m.blame(b, t, serry.ErrNotMember)
	}
	return nil
}

// failCall ends an open instance for all because of one bad call. Of an ended one only the caller
// hears: a result never changes (C-BAR-10).
func (m *Machine) failCall(b *barrier, t *task, w *waiter, err error) {
	if b.open {
		if b.position(t) >= 0 {
			m.wait(b, t, w)
			m.hold(w, waitBarrier)
		}
		m.finish(b, err)
	}
	m.answer(w, nil, err)
}

// openBarrier begins an instance.
func (m *Machine) openBarrier(b *barrier, counter int64, deadline Time) {
	m.touch()
	b.counter, b.open = counter, true
	b.slots, b.arrived, b.first = make([]slot, m.size(b)), 0, serry.TaskID{}
	b.since, b.deadline = m.now, deadline
	m.ep.weigh(b)
	m.nextTurn(b)
	m.listOpen(b)
}

// listOpen puts an open barrier where its deadline, and where its members, find it.
func (m *Machine) listOpen(b *barrier) {
	turn := barrierTurn{b, b.turn}
	m.ep.deadlines.push(b)
	if b.members == nil {
		m.ep.open.add(turn)
	}
	for _, at := range b.members {
		m.ep.tasks[at].open.add(turn)
	}
}

// closeBarrier takes the open instance out of the set of open ones.
func (m *Machine) closeBarrier(b *barrier) {
	m.touch()
	b.open = false
	b.slots = nil
	m.nextTurn(b)
	m.ep.deadlines.remove(b)
}

// wait makes w the call that stands for the member in the open instance (C-BAR-9, C-REG-10).
func (m *Machine) wait(b *barrier, t *task, w *waiter) {
	s := &b.slots[b.position(t)]
	if old := s.w; old != nil && old != w {
		if b.kind == registerBarrier {
			m.answer(old, nil, serry.ErrSuperseded)
		} else {
			m.answer(old, nil, &serry.BarrierError{ID: b.id, Counter: b.counter, Task: t.id, Err: serry.ErrSuperseded})
		}
	}
	s.w = w
}

// arrive counts a member once, and ends the instance with the last (C-BAR-13).
func (m *Machine) arrive(b *barrier, t *task, a arrival) {
	m.touch()
	if b.first.IsZero() {
		b.first = t.id
	}
	s := &b.slots[b.position(t)]
	if !s.arrived {
		s.arrived = true
		b.arrived++
	}
	a.at = t.at
	s.arrival, s.restarted = a, false
	if b.arrived == len(b.slots) {
		for u := range m.membersOf(b) { // C-SYNC-4
			u.unsynced = false
		}
		m.finish(b, nil)
	} else {
		m.planScan()
	}
}

// takeBack undoes an arrival.
func (b *barrier) takeBack(s *slot) {
	*s = slot{}
	b.arrived--
	if b.arrived == 0 {
		b.first = serry.TaskID{}
	}
}

// finish ends the open instance, answers everybody who waits, and only then lets the
// consequences come (C-BAR-14, C-ORD-4).
func (m *Machine) finish(b *barrier, err error) {
	slots := b.slots
	missing := m.missing(b)
	m.closeBarrier(b)
	m.hasEnded(b, err)
	b.remember(slots)
	m.ep.weigh(b)
	for m.ep.weight > maxWeight && m.forgetBarrier() {
	}
	m.note(Note{What: "barrier ended", Barrier: b.id, Counter: b.counter, Count: b.arrived, Of: len(slots), Err: err})
	switch {
	case b.kind == registerBarrier && err == nil:
		m.allRegistered(slots)
	case b.kind == shutdownBarrier && err == nil:
		m.allLeave(b, slots)
	case b.kind == shutdownBarrier:
		m.shutdownFailedForAll(b, slots, missing)
	default:
		if b.kind == deviceBarrier {
			m.joinDevices()
		}
		for i := range slots {
			if w := slots[i].w; w != nil {
				m.answerPassed(w, b.instance)
			}
		}
		if b.kind == registerBarrier {
			m.registrationFailed(err)
		}
	}
}

// remember keeps of the slots what repeated calls will need (C-BAR-24).
func (b *barrier) remember(slots []slot) {
	b.everyone = true
	for i := range slots {
		b.everyone = b.everyone && slots[i].arrived && !slots[i].restarted && slots[i].sent == b.counter
	}
	if b.everyone {
		b.past = nil
		return
	}
	for i := range slots {
		if slots[i].arrived {
			b.arrivals = append(b.arrivals, slots[i].arrival)
		}
	}
}

// answerPassed answers a call with the result of an instance.
func (m *Machine) answerPassed(w *waiter, i instance) {
	switch {
	case i.err != nil:
		m.answer(w, nil, i.err)
	case w.kind == waitDevices:
		m.answer(w, AllDevices{Devices: m.ep.joined}, nil)
	default:
		m.answer(w, Passed{Counter: i.counter}, nil)
	}
}

// repeated finds the instance that a call repeats: the same life of the member, with the same
// counter, has arrived there last (C-REQ-4).
func (b *barrier) repeated(t *task, a arrival) *instance {
	if i, last, ok := b.lastArrival(t); ok && last.inc == a.inc && last.sent == a.sent {
		return i
	}
	return nil
}

// hasMet says whether this life of the task has arrived at the barrier before.
func (b *barrier) hasMet(t *task, inc serry.Incarnation) bool {
	_, last, ok := b.lastArrival(t)
	return ok && last.inc == inc
}

// lastArrival finds where a task arrived last, in the present instance or an earlier one.
func (b *barrier) lastArrival(t *task) (*instance, arrival, bool) {
	if b.fixed && b.position(t) < 0 {
		return nil, arrival{}, false
	}
	if b.open {
		if s := b.slots[b.position(t)]; s.arrived {
			return &b.instance, s.arrival, true
		}
	} else if a, ok := b.instance.arrivalOf(t); ok {
		return &b.instance, a, true
	}
	for i := len(b.past) - 1; i >= 0; i-- {
		if a, ok := b.past[i].arrivalOf(t); ok {
			return &b.past[i], a, true
		}
	}
	return nil, arrival{}, false
}

// arrivalOf says how a member arrived at an instance that has ended. Where everyone did, the
// version tells whether it was its present life.
func (i *instance) arrivalOf(t *task) (arrival, bool) {
	if i.everyone {
		return arrival{at: t.at, inc: t.inc, sent: i.counter}, t.registered <= i.ended
	}
	at, ok := slices.BinarySearchFunc(i.arrivals, t.at, func(a arrival, at index) int { return int(a.at - at) })
	if !ok {
		return arrival{}, false
	}
	return i.arrivals[at], true
}

// expire ends a barrier whose time is over (C-BAR-15).
func (m *Machine) expire(b *barrier) { m.finish(b, m.barrierError(b, serry.ErrTimeout)) }

// leaveBarriers takes a task that failed, left or restarted out of every open barrier. Where it
// cannot come back the barrier fails (C-BAR-16); else it waits for it (C-BAR-18).
func (m *Machine) leaveBarriers(t *task, reason error) {
	for _, turn := range m.openOf(t) {
		b := turn.barrier
		if turn.over() || b.kind == registerBarrier || b.kind == shutdownBarrier && t.exited {
			continue
		}
		if !t.recoverable {
			err := m.barrierError(b, serry.ErrMemberLost)
			err.Task, err.Reason = t.id, reason
			m.finish(b, err)
			continue
		}
		s := &b.slots[b.position(t)]
		old := s.w
		s.w = nil
		switch {
		case s.arrived && m.cfg.ExcludeUnsynced: // C-SYNC-2
			s.restarted = true
		case s.arrived:
			b.takeBack(s)
		}
		m.answer(old, nil, &serry.BarrierError{ID: b.id, Counter: b.counter, Task: t.id, Reason: reason, Err: serry.ErrWithdrawn})
	}
}

// openOf lists the open barriers that a task is a member of, in the order they were opened.
func (m *Machine) openOf(t *task) []barrierTurn {
	return inTurn(slices.Concat(t.open.live(), m.ep.open.live()))
}

// allOpen lists all open barriers in the order they were opened.
func (m *Machine) allOpen() []barrierTurn {
	var all []barrierTurn
	for _, b := range m.ep.deadlines.heap {
		all = append(all, barrierTurn{b, b.turn})
	}
	return inTurn(all)
}

func inTurn(all []barrierTurn) []barrierTurn {
	slices.SortFunc(all, func(a, b barrierTurn) int { return cmp.Compare(a.at, b.at) })
	return all
}

// serve ends an open barrier for everybody (C-CAN).
func (ev CancelBarrier) serve(m *Machine, w *waiter) {
	b := m.ep.barriers[ev.ID]
	refused := &serry.BarrierError{ID: ev.ID, Counter: ev.Counter, Sent: ev.Counter, Task: ev.Task}
	if b != nil {
		refused.Counter = b.counter
	}
	switch {
	case m.stopped:
		refused.Err = serry.ErrStopped
	case len(ev.ID) > MaxNameBytes:
		m.answer(w, nil, &serry.InvalidError{What: "barrier id is longer than 1024 bytes: " + ev.ID[:64] + "..."})
		return
	case m.reserved(ev.ID):
		refused.Err = serry.ErrReservedName
	case m.staleCaller(w):
		m.answer(w, nil, serry.ErrStale)
		return
	case b == nil && ev.Counter != 0:
		refused.Counter, refused.Err = 0, serry.ErrCounter
	case b == nil: // C-CAN-5: the first call will hear of it
		if err := m.roomForBarrier(); err != nil {
			m.answer(w, nil, err)
			return
		}
		b = m.addBarrier(ev.ID)
		b.counter = 0
		m.hasEnded(b, &serry.BarrierError{ID: ev.ID, Task: ev.Task, Err: serry.ErrCancelled})
		m.answer(w, Done{}, nil)
		return
	case ev.Counter != b.counter:
		refused.Err = serry.ErrCounter
	case !b.open:
		refused.Err = serry.ErrAlreadyPassed
	default:
		m.finish(b, &serry.BarrierError{ID: b.id, Counter: b.counter, Task: ev.Task, Err: serry.ErrCancelled})
		m.answer(w, Done{}, nil)
		return
	}
	m.answer(w, nil, refused)
}

// staleCaller says whether a call comes from a life that has been replaced, of a known task.
func (m *Machine) staleCaller(w *waiter) bool {
	_, err := m.caller(w)
	return err == serry.ErrStale
}

// scanInterval is how often barriers are looked at for members that are out of step.
const scanInterval = time.Second

// planScan asks for a look at the open barriers while some task is out of step (C-SYNC-3).
func (m *Machine) planScan() {
	if m.cfg.ExcludeUnsynced && m.ep.nextScan == never && len(m.ep.deadlines.heap) > 0 {
		m.ep.nextScan = saturate(m.now, scanInterval)
		m.touch()
	}
}

// scanUnsynced lets barriers pass that wait only for tasks which are out of step.
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

// serve meets everybody and joins their devices (C-WAT).
func (ev WaitForAllTasks) serve(m *Machine, w *waiter) {
	if m.stopped {
		m.answer(w, nil, serry.ErrStopped)
		return
	}
	t, err := m.caller(w)
	if err == nil {
		err = m.mayWait(w)
	}
	if err == nil && len(t.devices) == 0 {
		err = m.ep.keys.reserve(int64(len(ev.Devices)), m.cfg.Limits)
	}
	if err != nil {
		m.answer(w, nil, err)
		return
	}
	if len(t.devices) == 0 {
		t.devices = ev.Devices
		m.touch()
	}
	b := m.ep.devices
	w.kind = waitDevices
	if b.counter < 0 {
		b.fixed = true
		m.openBarrier(b, 0, saturate(m.now, DeviceTimeout))
		if failed := m.failedMember(b); failed != nil {
			m.finish(b, m.memberFailed(b, failed))
		}
	}
	if !b.open {
		m.answerPassed(w, b.instance)
		return
	}
	m.wait(b, t, w)
	m.hold(w, waitDevices)
	m.arrive(b, t, arrival{inc: t.inc})
}

// joinDevices puts what the tasks said in a row, in the order of tasks (C-WAT-3).
func (m *Machine) joinDevices() {
	for _, t := range m.ep.tasks {
		m.ep.joined = append(m.ep.joined, t.devices...)
	}
}

// position finds a member's slot, or -1.
func (b *barrier) position(t *task) int {
	if b.members == nil {
		return int(t.at)
	}
	at, ok := slices.BinarySearch(b.members, t.at)
	if !ok {
		return -1
	}
	return at
}

func (m *Machine) size(b *barrier) int {
	if b.members == nil {
		return len(m.ep.tasks)
	}
	return len(b.members)
}

// membersOf goes through the members in order.
func (m *Machine) membersOf(b *barrier) iter.Seq[*task] {
	return func(yield func(*task) bool) {
		if b.members == nil {
			for _, t := range m.ep.tasks {
				if !yield(t) {
					return
				}
			}
			return
		}
		for _, at := range b.members {
			if !yield(m.ep.tasks[at]) {
				return
			}
		}
	}
}

// missing lists who has not arrived at the open instance.
func (m *Machine) missing(b *barrier) []*task {
	if b.arrived == len(b.slots) {
		return nil
	}
	var missing []*task
	for t := range m.membersOf(b) {
		if !b.slots[b.position(t)].arrived {
			missing = append(missing, t)
		}
	}
	return missing
}

// failedMember finds a member that has failed and cannot come back (C-BAR-6).
func (m *Machine) failedMember(b *barrier) *task {
	for t := range m.membersOf(b) {
		if t.state == serry.Failed && !t.recoverable {
			return t
		}
	}
	return nil
}

func (m *Machine) memberFailed(b *barrier, t *task) error {
	return &serry.BarrierError{ID: b.id, Counter: b.counter, Task: t.id, Reason: t.err, Err: serry.ErrMemberFailed}
}

func (m *Machine) mismatch(b *barrier, t *task, sent int64) error {
	err := m.blame(b, t, serry.ErrCounter)
	err.Sent = sent
	return err
}

// blame makes the error of a call that spoils a barrier.
func (m *Machine) blame(b *barrier, t *task, err error) *serry.BarrierError {
	return &serry.BarrierError{ID: b.id, Counter: b.counter, Task: t.id, Err: err}
}

// barrierError describes the open instance at its end.
func (m *Machine) barrierError(b *barrier, err error) *serry.BarrierError {
	e := &serry.BarrierError{ID: b.id, Counter: b.counter, First: b.first, Arrived: b.arrived, Members: len(b.slots), Err: err}
	for _, t := range m.missing(b) {
		e.Missing = append(e.Missing, t.id)
	}
	return e
}
