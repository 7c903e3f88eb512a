package match

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/plant"
)

// Config is what a machine is told once. Fields that are zero have the default.
type Config struct {
	Odd  bool   // this life draws odd numbers, the other one even ones
	Peer string // names the other life in texts

	Detection time.Duration // how long a verdict is waited for after a deadline or a cancellation; default 3s
	Ask       time.Duration // after which a message without an answer is repeated, then after twice as long; default 1s
	Stall     time.Duration // how long a transfer may not move while there is contact; default 20s

	Carry  int64 // how many bytes that offers carry may be without an answer, asked for and not; default 1 MiB
	Live   int   // greatest number of operations that this life may have posted; default 65,536
	Offers int   // greatest number of offers of the peer that wait for a receive; default 65,536
	Window int   // how many transfers that have ended are remembered; default 65,536

	Planted plant.Faults // none, but in tests of tests
}

const (
	defaultDetection = 3 * time.Second
	defaultAsk       = time.Second
	defaultStall     = 20 * time.Second
	defaultCarry     = 1 << 20
	defaultLimit     = 1 << 16

	maxAsk = 30 * time.Second
)

func (c Config) withDefaults() Config {
	c.Detection = cmp.Or(c.Detection, defaultDetection)
	c.Ask = cmp.Or(c.Ask, defaultAsk)
	c.Stall = cmp.Or(c.Stall, defaultStall)
	c.Carry = cmp.Or(c.Carry, defaultCarry)
	c.Live = cmp.Or(c.Live, defaultLimit)
	c.Offers = cmp.Or(c.Offers, defaultLimit)
	c.Window = cmp.Or(c.Window, defaultLimit)
	return c
}

// A Ref is the engine's name of an operation.
type Ref uint64

// An Op is a half of a transfer: what one of the two processes does.
type Op struct {
	Ref      Ref // not used before
	Send     bool
	ID       ID
	Shape    Shape
	Class    uint8
	Deadline Time  // Never if there is none
	Ready    bool  // see [Machine.Ready]
	Place    Place // of a send; see [Machine.Place]

	// Carried says of a send that its data are so few that offers can carry them, and of a receive that its memory can be written
	// from what an offer carries.
	Carried bool
}

// An Action is what the engine must do: one of *[Tell], [Move], [Expect], [Take], [Stop], [End], [Release] and [Correct].
type Action interface{ action() }

// Tell is a message to the peer. It may be lost.
type Tell struct {
	Message Message
	Ref     Ref  // of an offer: the send
	Carry   bool // it is an offer, and the engine adds all data of the send
}

// Move is to send bytes of a send. The engine calls Sent when the last one has left.
type Move struct {
	Ref    Ref
	Number Number
	Ranges Ranges
}

// Expect is to take bytes for a receive. The engine calls Started when it has given memory to the link, and Arrived for the
// bytes that are there. Where the place of the data is known, the engine copies them from there; if it cannot, it calls
// Unreadable, and takes them from the link.
type Expect struct {
	Ref    Ref
	Number Number
	Class  uint8 // of the sender
	Ranges Ranges
	Place  Place
	Early  bool // the data are not there yet: memory for the first of them is enough
}

// Take is to write the data that an offer carried into the memory of a receive: all of it, before the next action.
type Take struct {
	Ref  Ref
	Data []byte
}

// Stop is to end a Move or an Expect. The engine calls Stopped when no memory of the operation is used any more.
type Stop struct{ Ref Ref }

// End tells the program how an operation ended, once.
type End struct {
	Ref     Ref
	Verdict Verdict

	// Held says of a send that the receiver may still read its memory: a Release follows. Until then the memory must stay
	// as it is, or the receiver could take other data for these (TR-CAN-7).
	Held bool
}

// Release says that the receiver does not read the memory of a send any more that has ended.
type Release struct{ Ref Ref }

// Correct says that the verdict of a send that ended unconfirmed is known now.
type Correct struct {
	Ref     Ref
	Verdict Verdict
}

func (*Tell) action()   {}
func (Move) action()    {}
func (Expect) action()  {}
func (Take) action()    {}
func (Stop) action()    {}
func (End) action()     {}
func (Release) action() {}
func (Correct) action() {}

// A Machine has all transfers between this life and one life of another task. Calls must not overlap, and their times
// must not go backwards.
type Machine struct {
	cfg       Config
	now       Time
	contact   bool
	turned    Time     // when contact was made or lost last
	lost      *Verdict // of everything, once the life of the peer is over
	abandoned bool     // the peer may live all the same
	number    Number   // of the next send
	alarms    alarms
	actions   []Action
	tells     []Tell // that are not used yet
	blank     []send // likewise

	ops      map[Ref]op          // all that have not ended
	sends    map[Number]*send    // that have not ended
	outgoing map[ID]*send        // the same
	unagreed map[Number]*parting // sends that have ended, and the receiver has not said that it knows
	held     map[Number]Ref      // sends that have ended, and whose memory the receiver may read
	cargo    cargo               // data that offers carry
	receives map[ID]*receive     // that have not ended
	offers   map[ID]*offer       // that no receive was posted for
	met      int                 // sends and receives that have not ended and have met their other half
	past     window
}

// An op is a send or a receive that has not ended.
type op interface {
	ready()
	cancel(Verdict) // the program wants to end it
	fail(Verdict)   // it cannot begin
	stopped(sent bool)
	waits() Wait
}

// New makes a machine that has no contact yet.
func New(c Config) *Machine {
	m := &Machine{
		cfg: c.withDefaults(), number: 2,
		ops: make(map[Ref]op), sends: make(map[Number]*send), outgoing: make(map[ID]*send), unagreed: make(map[Number]*parting),
		held:     make(map[Number]Ref),
		receives: make(map[ID]*receive), offers: make(map[ID]*offer),
	}
	m.past.limit = m.cfg.Window
	if c.Odd {
		m.number = 1
	}
	return m
}

// Take returns what has become necessary since the last call, in order.
func (m *Machine) Take() []Action {
	list := m.actions
	m.actions = nil
	return list
}

func (m *Machine) do(a Action) { m.actions = append(m.actions, a) }

// doTell adds a message, which the caller fills in.
func (m *Machine) doTell() *Tell {
	t := next(&m.tells)
	m.do(t)
	return t
}

// blockSize is how many messages and sends are made at once: many come together, and most are short-lived.
const blockSize = 16

// next takes the next one of a block.
func next[T any](block *[]T) *T {
	if len(*block) == 0 {
		*block = make([]T, blockSize)
	}
	first := &(*block)[0]
	*block = (*block)[1:]
	return first
}

// tell sends a message, if there is contact.
func (m *Machine) tell(msg Message) {
	if m.contact {
		*m.doTell() = Tell{Message: msg}
	}
}

// Advance moves the machine to a time: every alarm up to it rings first, in order.
func (m *Machine) Advance(now Time) {
	for m.alarms.next() <= now {
		m.now = max(m.now, m.alarms.next())
		m.alarms.ring()
	}
	m.now = max(m.now, now)
}

// Deadline is when Advance must be called if nothing else happens; Never if there is nothing to wait for.
func (m *Machine) Deadline() Time { return m.alarms.next() }

// Post adds a half of a transfer. An error means that nothing has changed. It may end at once: if its other half has.
func (m *Machine) Post(now Time, o Op) error {
	m.Advance(now)
	switch {
	case m.lost != nil:
		return fmt.Errorf("transfer %v: stale epoch: %s: %w", o.ID, m.lost.Text, serry.ErrStale)
	case len(m.ops) >= m.cfg.Live:
		return &serry.LimitError{Limit: "transfers with one peer", Max: int64(m.cfg.Live)}
	case o.Shape.Bytes < 0 || len(o.Shape.Text) > MaxText:
		return &serry.InvalidError{What: fmt.Sprintf("transfer %v of %d bytes", o.ID, o.Shape.Bytes)}
	case m.used(o):
		return fmt.Errorf("transfer %v: %w", o.ID, ErrUsed)
	case o.Send:
		m.postSend(o)
	default:
		m.postReceive(o)
	}
	return nil
}

// used says whether the id of an operation was used before on this side, as far as is remembered.
func (m *Machine) used(o Op) bool {
	if o.Send {
		_, live := m.outgoing[o.ID]
		return live || m.past.find(o.ID, true) != nil
	}
	_, live := m.receives[o.ID]
	past := m.past.find(o.ID, false)
	return live || past != nil && !past.unposted
}

// Ready says that the memory of an operation can be used: the data of a send are there, or that of a receive is allocated.
// Nothing that is scarce is taken for a transfer before both halves are ready (TR-BPR-4).
func (m *Machine) Ready(now Time, r Ref) { m.on(now, r, op.ready) }

// Early says that the data of a send will be there without anything that this process still has to do: a device was told to make
// them. The receiver then gets memory for the first of them ready, and the engine may prepare to send them; no byte leaves before
// Ready. That no byte comes meanwhile is no stall.
func (m *Machine) Early(now Time, r Ref) {
	m.Advance(now)
	if s, ok := m.ops[r].(*send); ok && !s.Ready && s.wish == nil && s.Shape.Bytes > 0 {
		s.early, s.asked = true, 0
		s.ask()
	}
}

// Place says where the receiver can read the data of a send, from now on and until contact is lost. The receiver then needs
// nothing more than the offer. The memory must stay as it is until the send has ended, or its Release.
func (m *Machine) Place(now Time, r Ref, p Place) {
	m.Advance(now)
	if s, ok := m.ops[r].(*send); ok && m.contact {
		s.Place = p
		if s.Ready && !s.taken && s.wish == nil {
			s.asked = 0
			s.ask()
		}
	}
}

// Unreadable says that the engine cannot read the data of a receive where the sender says that they are. They come by the
// link then.
func (m *Machine) Unreadable(now Time, r Ref) {
	m.Advance(now)
	if r, ok := m.ops[r].(*receive); ok && r.taking && r.verdict == nil {
		r.place = Place{}
		r.accept()
	}
}

// Fail says that an operation can never be ready, and why. It ends so, and the other side is told.
func (m *Machine) Fail(now Time, r Ref, v Verdict) {
	m.on(now, r, func(o op) { o.fail(v) })
}

// Cancel says that the program wants an operation to end. It may end otherwise, if it has come too far.
func (m *Machine) Cancel(now Time, r Ref, v Verdict) {
	m.on(now, r, func(o op) { o.cancel(v) })
}

// Stopped says that a Move or an Expect that was to stop has. sent says whether all bytes of a send had left.
func (m *Machine) Stopped(now Time, r Ref, sent bool) {
	m.on(now, r, func(o op) { o.stopped(sent) })
}

// on calls f for an operation, unless it has ended.
func (m *Machine) on(now Time, r Ref, f func(op)) {
	m.Advance(now)
	if o := m.ops[r]; o != nil {
		f(o)
	}
}

// Up says that there is contact with the peer, by connections that are new. Everything that has no verdict is told again.
func (m *Machine) Up(now Time) {
	m.Advance(now)
	m.contact, m.turned = true, m.now
	if m.cfg.Planted.Has(plant.NoReask) {
		return
	}
	for _, n := range slices.Sorted(maps.Keys(m.sends)) {
		m.sends[n].asked = 0
		m.sends[n].ask()
	}
	for _, n := range slices.Sorted(maps.Keys(m.unagreed)) {
		m.unagreed[n].asked = 0
		m.unagreed[n].ask()
	}
}

// Down says that contact is lost, and with it all data that were under way: no Move and no Expect goes on.
func (m *Machine) Down(now Time) {
	m.Advance(now)
	m.contact, m.turned = false, m.now
	m.carryNothing()
	for _, n := range slices.Sorted(maps.Keys(m.sends)) {
		m.sends[n].suspend()
	}
	for _, id := range slices.SortedFunc(maps.Keys(m.receives), ID.Compare) {
		m.receives[id].suspend()
	}
}

// Lose says that the life of the peer is over: everything ends with this verdict, and nothing can be posted any more.
func (m *Machine) Lose(now Time, v Verdict) {
	m.end(now, v)
	for _, n := range slices.Sorted(maps.Keys(m.held)) {
		m.release(n)
	}
}

// Abandon ends everything, like Lose, although the peer may live. It may go on reading memory, so what is held stays so: no
// Release will follow.
func (m *Machine) Abandon(now Time, v Verdict) {
	m.abandoned = true
	m.end(now, v)
}

func (m *Machine) end(now Time, v Verdict) {
	m.Advance(now)
	if m.lost != nil {
		return
	}
	m.lost = &v
	m.contact, m.turned = false, m.now
	m.carryNothing()
	for n := range m.unagreed {
		m.agreed(n)
	}
	clear(m.offers)
	for _, n := range slices.Sorted(maps.Keys(m.sends)) {
		m.sends[n].done(v)
	}
	for _, id := range slices.SortedFunc(maps.Keys(m.receives), ID.Compare) {
		m.receives[id].decide(v)
	}
}

// Receive takes a message of the peer.
func (m *Machine) Receive(now Time, msg Message) {
	m.Advance(now)
	if m.lost != nil {
		return
	}
	switch msg.Kind {
	case Offer:
		m.offered(msg)
	case Cancel:
		m.cancelled(msg)
	case Accept:
		m.accepted(msg)
	case Done:
		m.done(msg)
	}
}

// Refuse ends a receive of the peer that waits for a send which this side will not post: the peer is told the verdict until it
// has answered.
func (m *Machine) Refuse(now Time, id ID, v Verdict) {
	m.Advance(now)
	if m.lost != nil {
		return
	}
	p := &parting{id: id, number: m.number, verdict: v, wish: v}
	m.number += 2
	m.remember(record{side: side{id, true}, number: p.number, verdict: v})
	m.part(p)
	p.ask()
}

// Used says whether a send with this id was posted or refused, as far as is remembered.
func (m *Machine) Used(id ID) bool { return m.used(Op{Send: true, ID: id}) }

// Paired says whether a receive has met its send, or has ended.
func (m *Machine) Paired(r Ref) bool {
	o, ok := m.ops[r].(*receive)
	return !ok || o.number != 0
}

// Busy says whether contact is of use: there are operations that have not ended, or ends that the peer does not know.
func (m *Machine) Busy() bool { return len(m.ops)+len(m.unagreed) > 0 }

// Met says whether an operation that has not ended has met its other half.
func (m *Machine) Met() bool { return m.met > 0 }

// Awaited says whether the peer has sends that no receive was posted for.
func (m *Machine) Awaited() bool { return len(m.offers) > 0 }

// Sender finds the send that is offered under a number.
func (m *Machine) Sender(n Number) (Ref, bool) {
	s := m.sends[n]
	if s == nil {
		return 0, false
	}
	return s.Ref, true
}

// A Wait says what an operation waits for.
type Wait struct {
	Ref    Ref
	For    string
	Self   bool // that is up to this side
	Since  Time // when it began to wait for that
	Paired bool // it has met its other half
}

// Waits lists the operations that have not ended, in the order in which they were posted.
func (m *Machine) Waits() []Wait {
	var list []Wait
	for _, r := range slices.Sorted(maps.Keys(m.ops)) {
		w := m.ops[r].waits()
		w.Ref = r
		list = append(list, w)
	}
	return list
}

// An Unclaimed is a send of the peer that no receive was posted for.
type Unclaimed struct {
	ID    ID
	Shape Shape
	Since Time
}

// Unclaimed lists sends of the peer that no receive was posted for, at most so many, in the order of their ids.
func (m *Machine) Unclaimed(most int) (list []Unclaimed) {
	ids := slices.SortedFunc(maps.Keys(m.offers), ID.Compare)
	for _, id := range ids[:min(most, len(ids))] {
		list = append(list, Unclaimed{id, m.offers[id].shape, m.offers[id].since})
	}
	return list
}

// ErrUsed is the error of an operation whose id was used before.
var ErrUsed = fmt.Errorf("key was used before: %w", serry.ErrExists)
