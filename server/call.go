package server

import (
	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/wire"
	"github.com/serry-dev/serry/wire/stream"
)

// This file is what the owner does with a call of a client, from the queue to the machine. waiter.go has
// the rest of a call that must wait.

// call steps the machine with a call. The order matters:
//
//  1. Limits come first, because a call that is refused must leave no trace.
//  2. The connection is noted as one that carries the caller's life before the machine sees the call: if the
//     machine answers by a change of that life, hosts and detector must know it.
//  3. The machine is stepped. Its reply to this very call, if there is one, comes back by owner.reply while
//     o.current is set.
//  4. A call without a reply is held.
//  5. The detector is told last what the call says about its caller, which may depend on the reply.
func (o *owner) call(it *item) {
	p := it.from.peer
	if p.closed {
		return // one goroutine read the call while another saw the connection end
	}
	caller, _ := coord.CallOf(it.event)
	kind := coord.KindOf(it.event)
	// A call that may wait is refused before it does. One that would be answered at once is refused with it:
	// which of the two it is, only the machine knows.
	if err := o.mayWait(it, kind); err != nil {
		o.wave.replies = append(o.wave.replies, outgoing{to: it.from, reply: coord.Reply{Err: err}})
		return
	}
	if o.refuse(it, caller) {
		return
	}
	if kind == coord.KindRegisterTask {
		o.departIdle()
	}
	l := o.speaker(caller)
	o.carry(it.from, l, kind)
	o.current, o.answered = it, false
	o.accountant.called(it.event, it.at)
	o.step(it.event)
	o.current = nil
	// A machine that has stopped, or refuses the call, answers at once like any other; what it leaves without an
	// answer waits for an event of another task, or for a deadline.
	if !o.answered {
		o.hold(it, kind, l)
	}
	o.noteCall(it, kind, caller.Task)
	switch kind {
	case coord.KindPollForError:
		o.detector.Polled(l, !o.answered)
	case coord.KindRegisterTask:
		o.detector.DepartFormer(l)
	}
}

// refuse answers a call for which the store has no room, and says whether it did. The answer does not go with the
// wave: the journal may stand still for the same reason that the call is refused.
func (o *owner) refuse(it *item, caller coord.Call) bool {
	err := o.refuses(it, caller)
	if err == nil {
		return false
	}
	it.from.answer(refusal(it.from.shape, err))
	it.from.peer.conn.Flush()
	return true
}

// turnAway refuses calls while the journal takes no more waves because the store is full. They would be refused when
// their turn comes, but that may be hours later: as many reads as waves may wait are enough to fill the
// journal. All other items keep their order.
func (o *owner) turnAway() {
	if o.room.Limited == nil || o.room.Full() == nil {
		return
	}
	came, _ := o.queue.drain(nil)
	for i := range came {
		it := &came[i]
		if caller, ok := coord.CallOf(it.event); ok && !it.from.peer.closed && o.refuse(it, caller) {
			o.queue.stepped(came[i : i+1])
			continue
		}
		o.rest = append(o.rest, *it)
	}
}

// mayWait says which limit a call would pass if it had to wait, or nil. A call that waits keeps its request in
// memory for as long as it waits, perhaps for hours, so bytes are limited, for each connection and for all of
// them. Strangers share a small part of that, and cannot take from tasks more than this part.
func (o *owner) mayWait(it *item, kind coord.Kind) error {
	p, l := it.from.peer, o.handler.limits
	switch {
	case !kind.Row().Limited():
	case len(p.calls) >= l.CallsWaiting:
		return &serry.LimitError{Limit: "calls waiting on one connection", Max: int64(l.CallsWaiting)}
	case p.waitingBytes+it.bytes > l.WaitingBytes:
		return &serry.LimitError{Limit: "bytes of calls waiting on one connection", Max: l.WaitingBytes}
	case o.waitingBytes+it.bytes > l.AllWaitingBytes:
		return &serry.LimitError{Limit: "bytes of calls waiting", Max: l.AllWaitingBytes}
	case it.stranger && o.strangerBytes+it.bytes > l.StrangerBytes:
		return &serry.LimitError{Limit: "bytes of calls waiting of strangers", Max: l.StrangerBytes}
	}
	return nil
}

// departIdle lets lives depart that no connection carries, if the job has failed: only then can a
// registration open the next epoch, and their departure decides whether it does (C-EPOCH-2b). In a job that
// goes on they may come back, and a departure would take their place from them.
func (o *owner) departIdle() {
	if o.machine.Failed() {
		o.detector.DepartIdle()
		o.judge()
	}
}

// speaker is the life that a call is of: the one it names, or else the one that the task has now. Handlers have
// filled in what the connection knows about a caller that does not name itself; what is still missing here is
// taken for the present life.
func (o *owner) speaker(c coord.Call) serry.Life {
	l := serry.Life{Task: c.Task, Incarnation: c.Incarnation}
	if t := o.detector.Task(c.Task); t != nil && l.Incarnation == 0 {
		l.Incarnation = t.Incarnation
	}
	return l
}

// carry notes that the connection of a call carries l, if l is a life that the service knows, or one that
// wants to register. The connections of a life are what the detector judges it by (C-LOST-4).
func (o *owner) carry(from origin, l serry.Life, k coord.Kind) {
	registers := k == coord.KindRegisterTask
	t, p := o.detector.Task(l.Task), from.peer
	if t == nil || l.Incarnation == 0 || !registers && t.Incarnation != l.Incarnation {
		return
	}
	present := t.Incarnation == l.Incarnation
	switch {
	case registers && present:
		o.epoch.task(l.Task).seen.Store(int64(o.now)) // C-HB-7
		if t.Departed {
			o.detector.Returned(l)
			o.publish(l.Task)
		}
	case registers:
		// A registration says nothing about another life of the task. If it counted for the present
		// one, a process that hangs would stay alive for as long as its successor tries to replace it.
		// A registration that is accepted counts when the machine says so, see changed.
	case p.carries(l):
		return
	}
	// The present life of a connected task stays on the connection even if another process of that task
	// registers by it: the machine has not decided yet which of them it takes.
	added, replaced := p.carry(l, registers, func(other serry.Life) bool {
		return t.State == serry.Connected && t.Incarnation == other.Incarnation
	})
	// People are shown the address of another life only while the present one is not connected. Otherwise they
	// would look for the task on the host of a process that is turned away.
	if added && (present || t.State != serry.Connected) {
		remote := p.conn.RemoteAddr()
		o.epoch.task(l.Task).from.Store(&remote)
	}
	// The transport now counts unfinished requests of the connection as those of a task, and no longer as those
	// of a stranger (SEC-102).
	if c, ok := p.conn.(interface{ Known() }); ok {
		c.Known()
	}
	if added {
		o.detector.Attached(l, from.shape.Dialect == wire.Serry)
	}
	if c, ok := p.conn.(*stream.Conn); ok {
		o.detector.Came(l, c.Session())
	}
	if registers && present {
		o.informHosts(l)
	}
	for _, other := range replaced {
		o.detector.Detached(other, "", o.now)
	}
}

// opened takes over a new epoch. The machine says so in the middle of a step; the Changed effects of its
// tasks follow, and find the new epoch.
func (o *owner) opened(e coord.Opened) {
	o.epoch = newEpoch(e, wire.NewCodec(e.Jobs))
	o.history.opened()
	o.accountant.opened(o.epoch, o.now)
	o.wave.epoch = o.epoch
	// The call that is being stepped may be the registration that has opened the epoch. The detector then keeps
	// what it knows of that life. An operator, or a departure, opens an epoch without a call.
	var opener serry.Life
	if o.current != nil {
		c, _ := coord.CallOf(o.current.event)
		opener = serry.Life{Task: c.Task, Incarnation: c.Incarnation}
	}
	o.detector.Opened(e.Jobs, opener)
}
