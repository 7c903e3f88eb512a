package match

import (
	"time"

	"github.com/serry-dev/serry/internal/plant"
)

// A send is a transfer whose data this life has.
type send struct {
	Op
	machine *Machine
	number  Number
	posted  Time
	early   bool     // its data will be there soon
	moving  bool     // the engine sends bytes, or prepares to
	taken   bool     // the receiver has accepted since there is contact
	met     bool     // the receiver has accepted at some time
	loaded  *int64   // the last offer carried the data, and has no answer: what they are counted in; or nil
	queued  bool     // its data are wanted, and wait for room
	sent    bool     // all bytes have left at some time: the receiver may have them
	halting bool     // the engine was told to stop
	wish    *Verdict // by which this side wants to end, or nil
	told    *Verdict // by the receiver, or nil
	giveUp  Time     // when to end by the wish alone; Never if there is none
	repeat  Time     // when to ask again
	asked   int      // how often, without an answer
	asking  bool     // the receiver was asked to end it since there is contact
	step    Time     // when it last went on
	exposed bool     // the receiver was told where the data are: it may read them at any time
	over    bool     // it has ended on this side
	alarm   alarm
}

func (m *Machine) postSend(o Op) {
	s := next(&m.blank)
	*s = send{Op: o, machine: m, number: m.number, posted: m.now, step: m.now, giveUp: Never, repeat: Never}
	s.alarm.act = s.wake
	if !m.contact {
		s.Place = Place{} // what was lent, was lent to connections that are gone
	}
	m.number += 2
	m.ops[o.Ref], m.sends[s.number], m.outgoing[o.ID] = s, s, s
	s.ask()
}

// meet notes that the receiver has accepted.
func (s *send) meet() {
	if !s.met {
		s.met = true
		s.machine.met++
	}
}

// ask tells the receiver where this side stands. The receiver answers by what it wants next, or by its verdict.
func (s *send) ask() {
	m := s.machine
	m.unload(s) // what it carried before has no answer yet, and may be lost
	tell := Tell{Ref: s.Ref, Message: Message{Kind: Offer, Number: s.number, ID: s.ID, Shape: s.Shape, Class: s.Class, Ready: s.Ready}}
	tell.Message.Early = s.early && !s.Ready
	if s.wish != nil {
		tell.Message = Message{Kind: Cancel, Number: s.number, ID: s.ID, Verdict: *s.wish}
		s.asking = m.contact
	} else {
		tell.Message.Carried = s.Carried && !s.Place.Known()
	}
	if s.wish == nil && s.Ready {
		tell.Message.Place = s.Place
		tell.Carry = tell.Message.Carried && s.asked == 0 && m.load(s)
		s.exposed = s.exposed || m.contact && s.Place.Known()
		s.sent = s.sent || s.Shape.Bytes == 0 || tell.Carry || m.contact && s.Place.Known() // the receiver needs nothing more
	}
	if m.contact {
		*m.doTell() = tell
	}
	s.repeat = m.again(&s.asked)
	s.set()
}

// again is when to ask again, after twice as long each time.
func (m *Machine) again(asked *int) Time {
	if !m.contact {
		return Never
	}
	d := min(m.cfg.Ask<<min(*asked, 8), maxAsk)
	*asked++
	return m.now + d
}

// set sets the alarm to the first time at which there is something to do.
func (s *send) set() {
	at := min(s.repeat, s.giveUp)
	if s.wish == nil {
		at = min(at, s.Deadline)
	}
	if s.over {
		at = Never
	}
	s.machine.alarms.set(&s.alarm, at)
}

// wake is called when the alarm rings.
func (s *send) wake() {
	m := s.machine
	switch {
	case s.wish == nil && m.now >= s.Deadline:
		s.want(verdict(Late, "the sender's deadline has passed, after %v", (m.now - s.posted).Round(time.Millisecond)))
		return
	case m.now >= s.repeat:
		s.ask()
	}
	s.settle()
	s.set()
}

func (s *send) ready() {
	if !s.Ready {
		s.Ready, s.step = true, s.machine.now
		s.asked = 0
		s.ask()
		if s.moving { // the receiver has accepted
			s.repeat = Never
			s.set()
		}
	}
}

// fail implements op. A send that was never ready has moved no byte, so the receiver cannot be done: there is no doubt to
// wait for.
func (s *send) fail(v Verdict) {
	switch {
	case s.wish != nil:
	case s.Ready || s.moving:
		s.want(v)
	default:
		s.wish = &v
		s.finish(v, s.machine.cfg.Planted.Has(plant.NoRefusal))
	}
}

func (s *send) cancel(v Verdict) {
	if s.wish == nil {
		s.want(verdict(v.Code, "by the sender: %s", v.Text))
	}
}

// want begins to end the transfer: the receiver is asked to, and the engine stops. The receiver may be done already; so its
// verdict is waited for, unless there is no doubt.
func (s *send) want(v Verdict) {
	m := s.machine
	s.wish, s.step = &v, m.now
	s.giveUp = m.now
	if m.contact || v.Code == Cancelled {
		s.giveUp += m.cfg.Detection
	}
	s.asked = 0
	s.settle()
	if !s.over {
		s.ask()
	}
}

// settle ends the transfer if it can end.
func (s *send) settle() {
	m := s.machine
	if s.wish == nil && s.told == nil {
		return
	}
	if s.moving && !m.cfg.Planted.Has(plant.LateWrites) {
		if !s.halting {
			s.halting = true
			m.do(Stop{s.Ref})
		}
		return
	}
	switch late := s.wish != nil && s.wish.Code == Late; {
	case s.told != nil:
		s.finish(*s.told, true)
	case late && !s.sent: // the receiver cannot have all bytes
		s.finish(*s.wish, false)
	case m.now < s.giveUp:
	case late:
		v := verdict(Unavailable, "the last byte was sent, and %s gave no verdict", m.cfg.Peer)
		v.Unconfirmed = true
		s.finish(v, false)
	default:
		v := *s.wish
		v.Unconfirmed = true
		s.finish(v, false)
	}
}

// finish ends the transfer on this side. Until the receiver has agreed, it goes on being asked.
func (s *send) finish(v Verdict, agreed bool) {
	m := s.machine
	s.over = true
	if s.met {
		m.met--
	}
	s.set()
	m.unload(s)
	delete(m.ops, s.Ref)
	delete(m.sends, s.number)
	delete(m.outgoing, s.ID)
	held := s.exposed && (s.told == nil || m.abandoned) && !m.cfg.Planted.Has(plant.EarlyRelease)
	if held {
		m.held[s.number] = s.Ref
	}
	m.do(End{s.Ref, v, held})
	m.remember(record{side: side{s.ID, true}, number: s.number, verdict: v})
	if agreed || m.lost != nil {
		return
	}
	p := &parting{id: s.ID, number: s.number, ref: s.Ref, verdict: v}
	if s.wish != nil {
		p.wish = *s.wish
	}
	m.part(p)
	if s.asking {
		p.asked = s.asked
		m.alarms.set(&p.alarm, m.again(&p.asked))
	} else {
		p.ask()
	}
}

func (s *send) stopped(sent bool) {
	if !s.halting {
		return // contact was lost meanwhile
	}
	s.moving, s.halting = false, false
	s.sent = s.sent || sent
	s.settle()
	s.set()
}

// suspend notes that contact is lost. What was sent may have come.
func (s *send) suspend() {
	s.moving, s.halting, s.taken, s.asking = false, false, false, false
	s.Place = Place{}
	s.repeat = Never
	s.settle()
	s.set()
}

// Sent says that all bytes of a Move have left. The memory is kept: the receiver may ask for some of them again.
func (m *Machine) Sent(now Time, r Ref) {
	m.Advance(now)
	s, ok := m.ops[r].(*send)
	if !ok || !s.moving {
		return
	}
	s.moving, s.halting, s.sent, s.step = false, false, true, m.now
	if m.cfg.Planted.Has(plant.SenderDecides) {
		s.finish(Verdict{}, true)
		return
	}
	s.asked = 0
	s.repeat = m.again(&s.asked)
	s.settle()
	s.set()
}

// accepted takes an Accept: the receiver has memory.
func (m *Machine) accepted(msg Message) {
	s := m.sends[msg.Number]
	switch {
	case s == nil:
		m.refuse(msg)
	case !s.Ready && !s.early || s.wish != nil || s.taken:
		// It crossed a Cancel, or came twice. Within one contact a receiver accepts once.
	case !msg.Missing.within(s.Shape.Bytes) || len(msg.Missing) == 0:
		s.want(verdict(Internal, "%s asked for bytes %v of %d", m.cfg.Peer, msg.Missing, s.Shape.Bytes))
	case msg.Carried && s.Carried:
		s.wanted()
	default:
		m.unload(s)
		s.meet()
		s.taken, s.moving, s.sent, s.step = true, true, false, m.now
		s.repeat = Never
		s.set()
		m.do(Move{s.Ref, s.number, msg.Missing})
	}
}

// refuse answers an Accept for a send that has ended, unless the receiver knows that: then the message was late.
func (m *Machine) refuse(msg Message) {
	v := verdict(Stale, "the sender does not know this transfer any more")
	if r := m.past.find(msg.ID, true); r != nil && r.number == msg.Number {
		p := m.unagreed[msg.Number]
		if p == nil {
			return
		}
		v = p.wish
	}
	m.tell(Message{Kind: Cancel, Number: msg.Number, ID: msg.ID, Verdict: v})
}

// done takes a Done: the verdict of the receiver.
func (m *Machine) done(msg Message) {
	m.release(msg.Number)
	if s := m.sends[msg.Number]; s != nil {
		s.done(msg.Verdict)
		return
	}
	p := m.unagreed[msg.Number]
	if p == nil {
		return
	}
	m.agreed(msg.Number)
	if p.verdict.Unconfirmed {
		if m.cfg.Planted.Has(plant.SecondEnd) {
			m.do(End{Ref: p.ref, Verdict: msg.Verdict})
			return
		}
		m.do(Correct{p.ref, msg.Verdict})
	}
}

// release lets the memory of a send that has ended be used again, because the receiver does not read it any more: it has
// given its verdict, or its life is over.
func (m *Machine) release(n Number) {
	if ref, ok := m.held[n]; ok {
		delete(m.held, n)
		m.do(Release{ref})
	}
}

func (s *send) done(v Verdict) {
	if s.told == nil {
		v.Unconfirmed = false
		s.told = &v
		s.settle()
	}
}

func (s *send) waits() Wait {
	w := Wait{Since: s.step, Paired: s.met || s.told != nil}
	switch {
	case s.halting:
		w.For, w.Self = "the engine, to stop", true
	case s.wish != nil:
		w.For = "the verdict of the receiver, to end by: " + s.wish.String()
	case !s.machine.contact:
		w.For, w.Since = "contact", max(s.step, s.machine.turned)
	case !s.Ready:
		w.For, w.Self = "its data", true
	case s.moving:
		w.For = "bytes to leave"
	case s.sent && !s.met: // it may have all it needs
		w.For = "a receive, or its verdict"
	case s.sent:
		w.For = "the verdict of the receiver"
	default:
		w.For = "a receive"
	}
	return w
}
