package server

import (
	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/wire/rpc"
)

// A waiter is a call that the machine has not answered: where the reply goes when it comes. A call that waits
// is an entry in two maps, owner.waiting by the machine's number and peer.calls by the client's, and costs no
// goroutine; ten thousand tasks at a barrier are ten thousand entries.
//
// Several equal gets on one connection share a waiter (see share).
//
// A handle is kept and not a goroutine for three reasons. A goroutine for each call would cost a stack.
// Goroutines that are woken together run in any order, but replies must keep the order of the machine
// (C-ORD-1). And when a connection ends, all of its calls are found in a map and withdrawn, while each
// goroutine would have to be told.
type waiter struct {
	to   origin     // where the reply goes, and how it is written
	req  coord.Req  // the machine's number
	kind coord.Kind // of the call
	life serry.Life // the caller

	bytes    int64      // of its request, where limits on waiting calls count it
	stranger bool       // it came from a stranger
	since    coord.Time // when the first call came, on the clock: the metrics page shows how long calls wait

	// Of a GetKeyValue that others have joined.
	key  shareKey
	more []rpc.CallID // the other calls; some of them may have been withdrawn
	live int          // calls that still wait, to.call included
}

// hold keeps a call that the machine did not answer at once, until owner.reply finds it or its caller gives up.
func (o *owner) hold(it *item, k coord.Kind, l serry.Life) {
	if get, ok := it.event.(coord.GetKeyValue); ok && o.share(it, get) {
		return
	}
	w := &waiter{to: it.from, req: it.req, kind: k, life: l, since: o.now, live: 1}
	if k.Row().Limited() {
		w.bytes, w.stranger = it.bytes, it.stranger
		o.waitingBytes += w.bytes
		if w.stranger {
			o.strangerBytes += w.bytes
		}
		it.from.peer.waitingBytes += w.bytes
	}
	o.waiting[it.req] = w
	it.from.peer.calls[it.from.call] = w
	if get, ok := it.event.(coord.GetKeyValue); ok {
		w.key = keyOf(it, get)
		it.from.peer.shared[w.key] = w
	}
	if k.Row().Meets {
		o.meeting++
	}
	// The task of a waiting registration is not connected yet, and sends no heartbeat. The detector must know
	// that the registration waits, or it would take the silence of the life for its end.
	if k == coord.KindRegisterTask {
		o.detector.Registering(l, +1)
	}
}

// share lets a get join an equal one that waits on the same connection, if there is one. Stock clients leave
// gets open that they gave up long ago, and ask again; without sharing each would be an entry in the machine
// for as long as the connection lasts (C-LIM-4). The machine has checked this call like any other, and is
// told at once that no caller waits for it: the waiter that it joins gets the answer for both.
func (o *owner) share(it *item, get coord.GetKeyValue) bool {
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

// keyOf is what two gets must have in common to share a waiter.
func keyOf(it *item, get coord.GetKeyValue) shareKey {
	return shareKey{
		caller:  serry.Life{Task: get.Task, Incarnation: get.Incarnation},
		service: get.Service,
		key:     get.Key,
		shape:   it.from.shape,
	}
}

// release forgets a waiter whose call is answered or withdrawn. It undoes everything that hold did: what is counted
// there and not here would be lost from its budget for as long as the server leads. It goes by what the waiter
// says, not by what the connection is now: a stranger may have become a task since.
func (o *owner) release(w *waiter) {
	delete(o.waiting, w.req)
	o.waitingBytes -= w.bytes
	if w.stranger {
		o.strangerBytes -= w.bytes
	}
	w.to.peer.waitingBytes -= w.bytes
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

// reply finds the calls that r answers and puts a reply to each on the wave. It is either the reply to the
// call that is being stepped, or to calls that wait. Nothing is sent here: the wave leaves when the journal has the
// events that it follows from.
func (o *owner) reply(r coord.Reply) {
	// The owner completes a status, because the machine knows only a part of it. A question for the status
	// never waits, so its reply always comes while its call is being stepped.
	if s, ok := r.Result.(coord.Status); ok && o.current != nil {
		r.Result = o.status(s, o.current.from.shape)
	}
	if o.current != nil && r.Req == o.current.req {
		o.answered = true
		caller, _ := coord.CallOf(o.current.event)
		kind := coord.KindOf(o.current.event)
		o.settle(r, kind, o.speaker(caller), o.current.from.peer)
		o.noteRefusal(r.Err, kind, caller, o.current.from.peer)
		o.wave.replies = append(o.wave.replies, outgoing{to: o.current.from, reply: r})
		return
	}
	w := o.waiting[r.Req]
	if w == nil {
		return // its caller has given up
	}
	o.release(w)
	p := w.to.peer
	o.settle(r, w.kind, w.life, p)
	// One reply for each call that shares the waiter. The fanout encodes it once for all of them.
	out := outgoing{to: w.to, reply: r, waited: o.now - w.since, kind: w.kind}
	for _, call := range append([]rpc.CallID{w.to.call}, w.more...) {
		if p.calls[call] != w {
			continue // this caller has given up, others have not
		}
		delete(p.calls, call)
		out.to.call = call
		o.wave.replies = append(o.wave.replies, out)
	}
}

// admitted is for registrations that the machine has accepted: the task is about to learn that it is registered,
// perhaps once more. It cannot send a heartbeat before it knows. Until then it is not silent, and its time begins
// then, however long the journal takes to let the reply out.
func (o *owner) admitted(l serry.Life) {
	if s := o.epoch.task(l.Task); s != nil {
		s.registering.Add(1)
		o.wave.admitted = append(o.wave.admitted, s)
	}
}

// heard notes a sign of life, if l is the present life of its task. Heartbeats that pass through the machine come
// here; the others never reach the owner.
func (o *owner) heard(l serry.Life) {
	if o.detector.Present(l) {
		o.epoch.task(l.Task).seen.Store(int64(o.now))
	}
}

// settle notes what a reply says about its caller: that it is registered, that it is alive, or that its error
// poll has an answer. The machine knows; this is for the tables outside of it.
func (o *owner) settle(r coord.Reply, k coord.Kind, l serry.Life, p *peer) {
	switch k {
	case coord.KindRegisterTask:
		if ok, is := r.Result.(coord.Registered); is {
			p.admitted(l, ok.Service)
			o.admitted(l)
		}
	case coord.KindHeartbeat:
		if r.Err == nil {
			o.heard(l)
		}
	case coord.KindPollForError:
		o.detector.Polled(l, false)
	}
}
