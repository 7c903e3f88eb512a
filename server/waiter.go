package server

import (
	"slices"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/wire/rpc"
)

// A waiter is where the reply to a held Req goes: one call, or many that ask the same.
type waiter struct {
	to    origin
	req   coord.Req
	kind  coord.Kind
	life  serry.Life // who asks
	since coord.Time // when the first call came
	key   shareKey   // of a GetKeyValue
	more  []rpc.CallID
	live  int // calls that still wait, to.call included
}

// hold keeps a call that the machine did not answer at once.
func (o *owner) hold(it *item, k coord.Kind, l serry.Life) {
	if get, ok := it.event.(coord.GetKeyValue); ok && o.share(it, get, l) {
		return
	}
	w := &waiter{to: it.from, req: it.req, kind: k, life: l, since: o.now, live: 1}
	o.waiting[it.req] = w
	it.from.peer.calls[it.from.call] = w
	if get, ok := it.event.(coord.GetKeyValue); ok {
		w.key = keyOf(it, get)
		it.from.peer.shared[w.key] = w
	}
	if k.Row().Meets {
		o.meeting++
	}
	if k == coord.KindRegisterTask {
		o.detector.Registering(l, +1)
	}
}

// share lets a get join an equal one that waits on the same connection, if there is one. Clients
// leave gets open that they gave up long ago; the machine keeps one entry for all (C-LIM-4). It has
// judged this one as it judges all, and is told that nobody waits for it.
func (o *owner) share(it *item, get coord.GetKeyValue, l serry.Life) bool {
	p := it.from.peer
	w := p.shared[keyOf(it, get)]
	if w == nil {
		return false
	}
	o.step(coord.Cancel{Req: it.req})
	w.more = append(w.more, it.from.call)
	w.live++
	p.calls[it.from.call] = w
	return true
}

func keyOf(it *item, get coord.GetKeyValue) shareKey {
	return shareKey{
		asker:   serry.Life{Task: get.Task, Incarnation: get.Incarnation},
		service: get.Service,
		key:     get.Key,
		shape:   it.from.shape,
	}
}

// withdraw ends a call that nobody waits for any more. Unknown ones have been answered.
func (o *owner) withdraw(c withdrawn) {
	w := c.peer.calls[c.call]
	if w == nil {
		return
	}
	delete(c.peer.calls, c.call)
	if w.live--; w.live == 0 {
		o.release(w)
		o.step(coord.Cancel{Req: w.req})
	} else if len(w.more) > 2*w.live {
		w.more = slices.DeleteFunc(w.more, func(call rpc.CallID) bool { return c.peer.calls[call] != w })
	}
}

// release forgets w.
func (o *owner) release(w *waiter) {
	delete(o.waiting, w.req)
	if w.kind == coord.KindGetKeyValue {
		delete(w.to.peer.shared, w.key)
	}
	if w.kind.Row().Meets {
		o.meeting--
	}
	if w.kind == coord.KindRegisterTask {
		o.detector.Registering(w.life, -1)
		o.heard(w.life) // a task that waits is not silent
	}
}

// reply finds the calls that r answers and puts it on the wave.
func (o *owner) reply(r coord.Reply) {
	if s, ok := r.Result.(coord.Status); ok {
		r.Result = o.history.report(s)
	}
	if o.asked != nil && r.Req == o.asked.req {
		o.answered = true
		asked, _ := coord.CallOf(o.asked.event)
		o.settle(r, coord.KindOf(o.asked.event), o.speaker(asked), o.asked.from.peer)
		o.wave.replies = append(o.wave.replies, outgoing{to: o.asked.from, reply: r})
		return
	}
	w := o.waiting[r.Req]
	if w == nil {
		return // it was withdrawn
	}
	o.release(w)
	p := w.to.peer
	o.settle(r, w.kind, w.life, p)
	out := outgoing{to: w.to, reply: r, waited: o.now - w.since, kind: w.kind}
	for _, call := range append([]rpc.CallID{w.to.call}, w.more...) {
		if p.calls[call] != w {
			continue // this one was withdrawn
		}
		delete(p.calls, call)
		out.to.call = call
		o.wave.replies = append(o.wave.replies, out)
	}
}

// greet notes that a task is about to learn that it is registered, perhaps once more. It cannot beat
// before: until then it is not silent, and its time begins then, however long the journal takes.
func (o *owner) greet(l serry.Life) {
	if s := o.epoch.seat(l.Task); s != nil {
		s.greetings.Add(1)
		o.wave.greeted = append(o.wave.greeted, s)
	}
}

// heard notes a sign of life, if l is the present life of its task.
func (o *owner) heard(l serry.Life) {
	if o.detector.Present(l) {
		o.epoch.seat(l.Task).seen.Store(int64(o.now))
	}
}

// settle draws the server's own conclusions from a reply.
func (o *owner) settle(r coord.Reply, k coord.Kind, l serry.Life, p *peer) {
	switch k {
	case coord.KindRegisterTask:
		if ok, is := r.Result.(coord.Registered); is {
			p.admitted(l, ok.Service)
			o.greet(l)
		}
	case coord.KindHeartbeat:
		if r.Err == nil {
			o.heard(l)
		}
	case coord.KindPollForError:
		o.detector.Polled(l, false)
	}
}
