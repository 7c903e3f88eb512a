package coord

import "github.com/serry-dev/serry"

// A barrier is the record of one id. It has one instance after the other, numbered by its
// counter; at most one is open. Members are fixed by the first instance and kept for all later
// ones (C-BAR-1, C-BAR-5).
//
// Clients count the instances, too, and send their number with each call. That is how a member
// which restarted, or lost a reply, is told from one that comes to the next instance. An example
// with two members:
//
//	worker/0 calls "save" with counter 0   instance 0 opens, worker/0 has arrived
//	worker/1 calls "save" with counter 0   all have arrived: both are answered, instance 0 has passed
//	worker/0 calls "save" with counter 1   instance 1 opens
//	worker/1 calls "save" with counter 0   it lost the reply: it hears that instance 0 has passed
//	worker/1 calls "save" with counter 3   the members disagree: instance 1 fails for both
//
// When an instance ends its slots go. What stays is the result, and who arrived, as far as a
// repeated call needs it: nothing where all arrived with the counter of the instance (C-BAR-24).
// A job of ten thousand tasks that uses a fresh id for each of a million steps costs no more
// memory than one that uses the same id.
//
// This file has the record and the call, instance.go how an instance opens, fills and ends,
// members.go which tasks belong to it.
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

	turn   uint64     // when it was opened or, after that, ended; orders barriers
	weight int        // as weigh has found it
	past   []instance // earlier ones that are still some member's last, oldest first
}

// A barrierKind tells the barriers of clients from those of the service, which have consequences
// of their own when they end. The order counts when a service stops: those that end others come
// last (C-BAR-20).
type barrierKind int

const (
	userBarrier     barrierKind = iota
	deviceBarrier               // of WaitForAllTasks
	registerBarrier             // of RegisterTask
	shutdownBarrier             // of ShutdownTask
)

// An instance is one use of a barrier: its number and, once it has ended, its result. A result
// never changes: all members hear the same of one instance, however late they ask (C-BAR-10).
type instance struct {
	counter  int64 // -1 before the first
	err      error
	ended    int64     // the version when it ended
	everyone bool      // all members arrived, each with the counter of the instance
	arrivals []arrival // otherwise: who did, sorted by task
}

// An arrival is what is remembered of a member's call, to know a call that repeats it (C-REQ-4).
type arrival struct {
	at   index
	inc  serry.Incarnation
	sent int64 // the counter that the caller sent
}

// A slot is the place of a member in an open instance: whether it has arrived, and the call that
// waits for the others, if one does. A member can have arrived without a call, when its
// connection broke.
type slot struct {
	arrival
	arrived   bool
	restarted bool // since it arrived (C-SYNC-2)
	w         *waiter
}

// A barrierTurn is a barrier that was opened, or has ended, at a turn: an entry in a list of
// barriers. It is over when the barrier takes its next turn, so a list need not be told that a
// barrier was closed.
type barrierTurn struct {
	*barrier
	at uint64
}

// over says whether a list may forget it.
func (b barrierTurn) over() bool { return b.turn != b.at }

// nextTurn gives a barrier that is opened, or has ended, its place in the order of all such
// moments.
func (m *Machine) nextTurn(b *barrier) barrierTurn {
	m.turns++
	b.turn = m.turns
	return barrierTurn{b, b.turn}
}

func newBarrier(id string, kind barrierKind) *barrier {
	return &barrier{id: id, kind: kind, instance: instance{counter: -1}}
}

// maxForgotten bounds the counter at which an id that was forgotten may go on, so that no counter
// overflows.
const maxForgotten = 1 << 62

// maxPast bounds how many earlier instances are remembered for members that lag behind. A member
// can be one instance behind in a job that works; more only where several instances failed
// without it.
const maxPast = 4

// serve handles a call of a client, in the order of C-BAR-3: refuse what touches no barrier, find
// a call that is repeated, begin an instance if the counter says so, check counter and members,
// and count the arrival.
func (ev Barrier) serve(m *Machine, w *waiter) (Result, error) {
	b, t := m.ep.barriers[ev.ID], m.task(ev.Task)
	if err := m.checkBarrierCall(w, ev, b, t); err != nil {
		return nil, err
	}
	if w.inc == 0 {
		w.inc = t.inc
	}
	a := arrival{at: t.at, inc: w.inc, sent: ev.Counter}
	if b == nil {
		b = m.addBarrier(ev.ID)
		// It may be an id that was forgotten. Its members know where they were, so it goes on
		// there.
		if m.ep.forgot && ev.Counter > 0 && ev.Counter < maxForgotten {
			b.counter = ev.Counter - 1
		}
	}
	// A repeated call hears how its instance ended. If that instance is still open, the call goes
	// on below and takes the place of the one before it.
	if past := b.repeated(t, a); past != nil && !(b.open && past == &b.instance) {
		return m.outcome(w, *past)
	}
	// A member that restarted does not know the counter, and sends 0. Its life tells that it is
	// new here, and it may join whatever instance there is (C-BAR-21).
	mayJump := (m.cfg.Recoverable || ev.Recoverable) && ev.Counter == 0 && !b.hasMet(t, a.inc)
	if !b.open && (ev.Counter == b.counter+1 || b.counter >= 0 && mayJump) {
		if !m.beginInstance(b, t, ev) {
			return m.outcome(w, b.instance)
		}
	} else if b.counter < 0 { // an id never used, by a client that outlived the service
		b.counter = 0
		m.hasEnded(b, m.mismatch(b, t, ev.Counter))
		return nil, b.err
	} else if ev.Counter != b.counter && !mayJump && (!b.open || b.repeated(t, a) == nil) {
		return nil, m.failCall(b, t, w, m.mismatch(b, t, ev.Counter))
	}
	if err := m.checkMembers(b, t, ev.Tasks); err != nil {
		return nil, m.failCall(b, t, w, err)
	}
	if !b.open { // the counter of an instance that has ended: this member missed it
		return m.outcome(w, b.instance)
	}
	m.wait(b, t, w)
	m.hold(w, waitBarrier)
	m.arrive(b, t, a)
	return nil, nil
}

// checkBarrierCall refuses calls that touch no barrier at all. Only their caller hears of it: a
// bad call to a barrier that it could take part in fails the barrier for all members, see
// failCall.
func (m *Machine) checkBarrierCall(w *waiter, ev Barrier, b *barrier, t *task) error {
	refused := func(why error) error {
		return &serry.BarrierError{ID: ev.ID, Counter: ev.Counter, Task: ev.Task, Err: why}
	}
	switch {
	case m.stopped:
		return refused(serry.ErrStopped)
	case len(ev.ID) > MaxNameBytes:
		return longID(ev.ID)
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

// roomForBarrier makes room for another id. If there are as many as allowed, the one that ended
// longest ago is forgotten: programs use a fresh id for every meeting, for days. What members may
// miss by that stands at [Limits]. A call is refused only where so many barriers are open.
func (m *Machine) roomForBarrier() error {
	if len(m.ep.barriers) >= m.cfg.Limits.Barriers && !m.forgetBarrier() {
		return &serry.LimitError{Limit: "barriers", Max: int64(m.cfg.Limits.Barriers)}
	}
	return nil
}

// forgetBarrier forgets the barrier that ended longest ago, if one has ended. From then on an id
// that is not known may be one that was forgotten, see forgot.
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

// maxWeight bounds how many arrivals and missing tasks are remembered of barriers that failed,
// all together. Of those that passed none are.
const maxWeight = 1 << 23

// weigh counts what is remembered of a barrier for members that lag behind. The sum over all
// barriers is kept up to date by taking away what this one counted before.
func (ep *epoch) weigh(b *barrier) {
	ep.weight -= b.weight
	b.weight = b.instance.weight()
	for i := range b.past {
		b.weight += b.past[i].weight()
	}
	ep.weight += b.weight
}

// weight is how many tasks are remembered for an instance.
func (i *instance) weight() int {
	n := len(i.arrivals)
	if err, ok := i.err.(*serry.BarrierError); ok {
		n += len(err.Missing)
	}
	return n
}

// addBarrier makes the record of an id. The caller has made room for it.
func (m *Machine) addBarrier(id string) *barrier {
	b := newBarrier(id, userBarrier)
	m.ep.barriers[id] = b
	m.touch()
	return b
}

// hasEnded notes the result of an instance, and the version at which it ended, by which the lives
// of its members are told from later ones. Barriers of clients are listed in the order of their
// ends, because the oldest are forgotten first.
func (m *Machine) hasEnded(b *barrier, err error) {
	b.err, b.ended = err, m.version
	m.ep.weigh(b)
	if turn := m.nextTurn(b); b.kind == userBarrier {
		m.ep.ended.add(turn)
	}
}

// reserved says whether the service itself uses the id (C-BAR-23). A client that called it would
// end the registration or the shutdown of the job.
func (m *Machine) reserved(id string) bool {
	return id == m.ep.register.id || id == m.ep.shutdown.id || id == m.ep.devices.id
}

// beginInstance sets up the next instance, which may fail at once (C-BAR-5 to C-BAR-7): with a
// member that is not in the cluster, or with one that has failed and cannot come back. It says
// whether the instance is open. The first instance fixes the members of the barrier.
func (m *Machine) beginInstance(b *barrier, t *task, ev Barrier) bool {
	m.touch()
	if !b.fixed {
		members, unknown := m.memberList(ev.Tasks)
		if !unknown.IsZero() {
			b.nextCounter()
			m.hasEnded(b, &serry.BarrierError{ID: b.id, Counter: b.counter, Task: unknown, Err: serry.ErrUnknownTask})
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

// nextCounter puts the ended instance away, for members that lag behind, and numbers the next.
// One without any arrival, such as a barrier that was cancelled before its first call, is not
// worth a place.
func (b *barrier) nextCounter() {
	if b.counter >= 0 && (b.everyone || len(b.arrivals) > 0) {
		b.past = append(b.past, b.instance)
		b.past = b.past[max(0, len(b.past)-maxPast):]
	}
	b.instance = instance{counter: b.counter + 1}
}

// failCall ends an open instance for all because of one bad call. Of an ended one only the caller
// hears: a result never changes (C-BAR-10). It returns err.
func (m *Machine) failCall(b *barrier, t *task, w *waiter, err error) error {
	if b.open {
		if b.position(t) >= 0 {
			m.wait(b, t, w) // so that finish answers it together with the others
			m.hold(w, waitBarrier)
		}
		m.finish(b, err)
	}
	return err
}

// serve ends an open barrier for all its members (C-CAN). Any task may cancel, member or not
// (C-CAN-4).
func (ev CancelBarrier) serve(m *Machine, w *waiter) (Result, error) {
	b := m.ep.barriers[ev.ID]
	refused := &serry.BarrierError{ID: ev.ID, Counter: ev.Counter, Sent: ev.Counter, Task: ev.Task}
	if b != nil {
		refused.Counter = b.counter
	}
	switch {
	case m.stopped:
		refused.Err = serry.ErrStopped
	case len(ev.ID) > MaxNameBytes:
		return nil, longID(ev.ID)
	case m.reserved(ev.ID):
		refused.Err = serry.ErrReservedName
	case m.staleCaller(w):
		return nil, serry.ErrStale
	case b == nil && ev.Counter != 0:
		refused.Counter, refused.Err = 0, serry.ErrCounter
	case b == nil: // C-CAN-5: the first call will hear of it
		if err := m.roomForBarrier(); err != nil {
			return nil, err
		}
		b = m.addBarrier(ev.ID)
		b.counter = 0
		m.hasEnded(b, &serry.BarrierError{ID: ev.ID, Task: ev.Task, Err: serry.ErrCancelled})
		return Done{}, nil
	case ev.Counter != b.counter:
		refused.Err = serry.ErrCounter
	case !b.open:
		refused.Err = serry.ErrAlreadyPassed
	default:
		m.finish(b, &serry.BarrierError{ID: b.id, Counter: b.counter, Task: ev.Task, Err: serry.ErrCancelled})
		return Done{}, nil
	}
	return nil, refused
}

func longID(id string) error {
	return &serry.InvalidError{What: "barrier id is longer than 1024 bytes: " + id[:64] + "..."}
}

// staleCaller says whether a call comes from a life that has been replaced, of a task that is
// known. A call of an unknown task is not stale; the methods decide themselves what it is.
func (m *Machine) staleCaller(w *waiter) bool {
	_, err := m.caller(w)
	return err == serry.ErrStale
}
