package match

import (
	"time"

	"github.com/serry-dev/serry/internal/plant"
)

// A receive is a transfer whose data this life wants.
type receive struct {
	Op
	machine  *Machine
	posted   Time
	step     Time   // when it last went on
	number   Number // of the send that it is paired with, or 0
	class    uint8  // of the send
	place    Place  // of the data of the send, as far as it is known and can be read
	carried  bool   // the data come with an offer
	wanted   bool   // the sender was told so since there is contact
	offered  bool   // the data of the send are there
	early    bool   // they will be soon
	started  bool   // the engine has memory for some of them
	taking   bool   // the engine takes bytes
	halting  bool   // the engine was told to stop
	got      Ranges
	progress Time     // when bytes came last, once the engine has begun; else Never
	verdict  *Verdict // once it is decided
	alarm    alarm
}

// An offer is a send of the peer that no receive was posted for. It is all that such a send occupies here (TR-MAT-7).
type offer struct {
	number Number
	shape  Shape
	class  uint8
	ready  bool
	early  bool
	place  Place
	carry  bool // offers can carry its data; what they carry is dropped (TR-MAT-7)
	since  Time
}

func (m *Machine) postReceive(o Op) {
	r := &receive{Op: o, machine: m, posted: m.now, step: m.now, progress: Never}
	r.alarm.act = r.wake
	m.ops[o.Ref], m.receives[o.ID] = r, r
	if past := m.past.find(o.ID, false); past != nil { // the sender has ended before
		v := past.verdict
		r.meet(past.number)
		m.past.forget(past)
		r.verdict = &v
		r.end() // the sender was told then
		return
	}
	r.set()
	if waiting := m.offers[o.ID]; waiting != nil {
		delete(m.offers, o.ID)
		r.pair(*waiting, nil)
	}
}

// offered takes an Offer. It may come again and again: the sender asks by it where the receiver stands.
func (m *Machine) offered(msg Message) {
	o := offer{msg.Number, msg.Shape, msg.Class, msg.Ready, msg.Early, msg.Place, msg.Carried, m.now}
	r := m.receives[msg.ID]
	if r != nil && r.number == 0 { // the usual case: nothing else is known of the id
		r.pair(o, msg.Data)
		return
	}
	past := m.past.find(msg.ID, false)
	waiting := m.offers[msg.ID]
	switch {
	case past != nil && (past.number == msg.Number || past.number == 0):
		past.number = msg.Number
		m.answer(msg, past.verdict)
	case r != nil && r.number == msg.Number:
		if msg.Ready && !r.offered {
			r.offered, r.step = true, m.now
			r.clock()
		}
		r.early = msg.Early
		if !r.taking {
			r.find(msg.Place, msg.Carried)
		}
		r.advance(true, msg.Data)
	case waiting != nil && waiting.number == msg.Number:
		waiting.ready, waiting.early = waiting.ready || msg.Ready, msg.Early
		waiting.carry = msg.Carried
		if msg.Place.Known() {
			waiting.place = msg.Place
		}
	case past != nil || r != nil || waiting != nil:
		m.answer(msg, verdict(Exists, "the receiver knows another send by %v", msg.ID))
	case len(m.offers) >= m.cfg.Offers:
		m.answer(msg, verdict(Exhausted, "the receiver holds %d offers that no receive was posted for", len(m.offers)))
	default:
		m.offers[msg.ID] = &o
	}
}

// cancelled takes a Cancel: the sender has ended, or wants to. If the receiver is done already, that stands.
func (m *Machine) cancelled(msg Message) {
	r := m.receives[msg.ID]
	past := m.past.find(msg.ID, false)
	switch {
	case past != nil && (past.number == msg.Number || past.number == 0):
		past.number = msg.Number
		m.answer(msg, past.verdict)
	case r != nil && (r.number == msg.Number || r.number == 0):
		r.meet(msg.Number)
		r.decide(msg.Verdict)
	case past != nil || r != nil:
		m.answer(msg, verdict(Exists, "the receiver knows another send by %v", msg.ID))
	default: // a receive that is posted later ends at once (TR-ERR-4)
		if waiting := m.offers[msg.ID]; waiting != nil && waiting.number == msg.Number {
			delete(m.offers, msg.ID)
		}
		m.remember(record{side: side{id: msg.ID}, number: msg.Number, verdict: msg.Verdict, unposted: true})
		m.answer(msg, msg.Verdict)
	}
}

// answer tells the sender of a message how its transfer ended here.
func (m *Machine) answer(msg Message, v Verdict) {
	m.tell(Message{Kind: Done, Number: msg.Number, ID: msg.ID, Verdict: v})
}

// meet notes the send that this is the receive of.
func (r *receive) meet(n Number) {
	if r.number == 0 && n != 0 {
		r.machine.met++
	}
	r.number = n
}

// pair joins the receive with a send, if they agree on what is moved. data are what the offer carries, or nil.
func (r *receive) pair(o offer, data []byte) {
	r.meet(o.number)
	r.class, r.offered, r.early = o.class, o.ready, o.early
	r.find(o.place, o.carry)
	r.step = r.machine.now
	if o.shape.Bytes != r.Shape.Bytes || o.shape.Digest != r.Shape.Digest {
		r.decide(verdict(Invalid, "the sender has %s of %d bytes, the receiver wants %s of %d bytes",
			o.shape.Text, o.shape.Bytes, r.Shape.Text, r.Shape.Bytes))
		return
	}
	r.advance(true, data)
}

// find notes how the data can come, as the sender says: read from its memory, carried by an offer, or else by the link.
func (r *receive) find(p Place, carry bool) {
	if p.Known() {
		r.place = p
	}
	r.carried = r.Carried && carry && !r.place.Known()
}

// advance lets the data come, once everything is there that they need. asked says that the sender wants to know where this
// side stands; data are what its offer carries, or nil.
func (r *receive) advance(asked bool, data []byte) {
	m := r.machine
	if r.verdict != nil {
		if asked {
			r.tellDone()
		}
		return
	}
	early := r.early && !r.offered && !r.carried && r.Shape.Bytes > 0
	if r.number == 0 || !r.offered && !early || !r.Ready || !m.contact {
		return
	}
	if r.carried && !r.taking && r.got.Bytes() < r.Shape.Bytes {
		r.fetch(asked, data)
		return
	}
	missing := r.got.missing(r.Shape.Bytes)
	switch {
	case len(missing) == 0:
		r.decide(Verdict{})
		return
	case !r.taking:
		r.taking, r.step = true, m.now
		m.do(Expect{r.Ref, r.number, r.class, missing, r.place, early})
	case !asked:
		return
	}
	r.accept()
}

// fetch takes the data out of an offer, or asks for an offer that carries them.
func (r *receive) fetch(asked bool, data []byte) {
	m := r.machine
	switch {
	case data != nil && int64(len(data)) != r.Shape.Bytes:
		r.decide(verdict(Internal, "an offer of %d bytes carries %d", r.Shape.Bytes, len(data)))
	case data != nil:
		m.do(Take{r.Ref, data})
		r.decide(Verdict{})
	case asked || !r.wanted:
		r.wanted = true
		r.step, r.progress = m.now, min(r.progress, m.now)
		r.set()
		r.accept()
	}
}

// accept has the sender send what is missing, unless this side reads it from the memory of the sender.
func (r *receive) accept() {
	if !r.place.Known() {
		r.machine.tell(Message{Kind: Accept, Number: r.number, ID: r.ID, Missing: r.got.missing(r.Shape.Bytes), Carried: r.carried})
	}
}

func (r *receive) ready() {
	r.Ready, r.step = true, r.machine.now
	r.advance(false, nil)
}

func (r *receive) fail(v Verdict) { r.decide(v) }

func (r *receive) cancel(v Verdict) { r.decide(verdict(v.Code, "by the receiver: %s", v.Text)) }

// Started says that the engine has given the memory of a receive to the link. From now on bytes have to come.
func (m *Machine) Started(now Time, ref Ref) {
	m.Advance(now)
	if r, ok := m.ops[ref].(*receive); ok && r.taking {
		r.started = true
		r.clock()
	}
}

// clock begins to count the time in which no byte comes, once the data are there and there is memory for them.
func (r *receive) clock() {
	if r.taking && r.started && r.offered && r.progress == Never {
		r.progress = r.machine.now
		r.set()
	}
}

// Arrived says that some bytes of a receive are in its memory.
func (m *Machine) Arrived(now Time, ref Ref, bytes Range) {
	m.Advance(now)
	r, ok := m.ops[ref].(*receive)
	if !ok || !r.taking || r.verdict != nil {
		return
	}
	r.got = r.got.add(bytes)
	r.progress = m.now
	if len(r.got.missing(r.Shape.Bytes)) == 0 {
		r.taking = false // the engine has nothing left to take
		r.decide(Verdict{})
		return
	}
	r.set()
}

// decide ends the transfer for both sides. The first verdict stands.
func (r *receive) decide(v Verdict) {
	m := r.machine
	if r.verdict != nil {
		return
	}
	v.Unconfirmed = false
	r.verdict = &v
	m.alarms.set(&r.alarm, Never)
	if r.taking && !m.cfg.Planted.Has(plant.LateWrites) {
		if !r.halting {
			r.halting = true
			m.do(Stop{r.Ref})
		}
		return
	}
	r.finish()
}

// tellDone tells the sender the verdict, once this side does not use its memory: the sender may free it then.
func (r *receive) tellDone() {
	if r.number != 0 && !r.halting {
		r.machine.tell(Message{Kind: Done, Number: r.number, ID: r.ID, Verdict: *r.verdict})
	}
}

// finish tells the sender the verdict, and ends the transfer on this side.
func (r *receive) finish() {
	r.tellDone()
	r.end()
}

// end ends the transfer on this side. The verdict is remembered: the sender may not have it yet.
func (r *receive) end() {
	m := r.machine
	if r.number != 0 {
		m.met--
	}
	delete(m.ops, r.Ref)
	delete(m.receives, r.ID)
	m.do(End{Ref: r.Ref, Verdict: *r.verdict})
	if !m.cfg.Planted.Has(plant.ForgetVerdict) {
		m.remember(record{side: side{id: r.ID}, number: r.number, verdict: *r.verdict})
	}
}

func (r *receive) stopped(bool) {
	if r.halting {
		r.taking, r.halting = false, false
		r.finish()
	}
}

// suspend notes that contact is lost. What has come is kept; the rest is asked for when there is contact again.
func (r *receive) suspend() {
	if r.machine.cfg.Planted.Has(plant.WrongResume) && r.taking && len(r.got) > 0 {
		r.got = r.got.add(Range{0, r.got[len(r.got)-1].To})
	}
	r.taking, r.started, r.halting, r.wanted, r.progress, r.place = false, false, false, false, Never, Place{}
	if r.verdict != nil {
		r.finish()
		return
	}
	r.set()
}

// set sets the alarm to the deadline, or to when the transfer counts as stalled. Without contact nothing can stall.
func (r *receive) set() {
	at := r.Deadline
	if r.progress < Never && r.machine.contact {
		at = min(at, r.progress+r.machine.cfg.Stall)
	}
	r.machine.alarms.set(&r.alarm, at)
}

// wake is called when the alarm rings.
func (r *receive) wake() {
	m := r.machine
	if m.now >= r.Deadline {
		r.decide(verdict(Late, "the receiver's deadline has passed, with %d of %d bytes, after %v",
			r.got.Bytes(), r.Shape.Bytes, (m.now - r.posted).Round(time.Millisecond)))
		return
	}
	r.decide(verdict(Late, "stalled: no byte for %v, with %d of %d bytes", m.cfg.Stall, r.got.Bytes(), r.Shape.Bytes))
}

func (r *receive) waits() Wait {
	w := Wait{Since: r.step, Paired: r.number != 0}
	switch {
	case r.halting:
		w.For, w.Self = "the engine, to stop", true
	case r.number == 0:
		w.For = "a send"
	case !r.Ready:
		w.For, w.Self = "its memory", true
	case !r.machine.contact:
		w.For, w.Since = "contact", max(r.step, r.machine.turned)
	case !r.offered:
		w.For = "the sender's data"
	case r.progress < Never:
		w.For, w.Since = "bytes to come", r.progress
	default:
		w.For = "bytes to come"
	}
	return w
}
