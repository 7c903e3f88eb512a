package relay

import (
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/wire"
	"github.com/serry-dev/serry/wire/rpc"
	"github.com/serry-dev/serry/wire/stream"
)

// outage is what a relay knows of its way to the service. It is guarded by Relay.mu.
type outage struct {
	down     bool        // the service is out of reach
	since    time.Time   // when it went down, or came up
	why      error       // with down: what the last attempt met
	patience *time.Timer // calls giveUp; nil where the relay never gives up
	gaveUp   bool        // it has been down for too long, and clients were told

	// What the log has said, so that it says each thing once.
	reached  bool // the service was up at least once
	missed   bool // it was down at least once
	stopping bool // the relay itself ends: an outage is no news

	// The service, as it was last seen.
	address string
	term    uint64
	service serry.Incarnation // the epoch; 0 until the service is reached

	// For people.
	ended   int           // outages that are over
	longest time.Duration // of those
	last    time.Duration // the newest of those
}

// stop stops the timer of the outage.
func (o *outage) stop() {
	if o.patience != nil {
		o.patience.Stop()
	}
}

// sink is the side of a relay that the stream sees. It implements [stream.Sink].
type sink Relay

// Reply implements [stream.Sink].
func (s *sink) Reply(p stream.Reply) {
	r := (*Relay)(s)
	r.mu.Lock()
	var replies []reply
	if p.Conn == r.ownConn {
		replies = r.seen(p)
	} else {
		replies = r.answered(p)
	}
	r.mu.Unlock()
	s.queue(replies)
}

// Standing implements [stream.Sink].
func (s *sink) Standing(st stream.Standing) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.mu.lives.standing(st); l == nil || l.open == 0 {
		(*Relay)(s).unfollow(st.Incarnation) // the service tells every host that the life came by
	}
}

// Epoch implements [stream.Sink].
func (s *sink) Epoch(service serry.Incarnation) {
	r := (*Relay)(s)
	r.mu.Lock()
	replies := r.epoch(service)
	r.mu.Unlock()
	s.queue(replies)
}

// Up implements [stream.Sink]. The stream has queued all calls without an answer already; what is left to do is
// to answer those of an epoch that is over.
func (s *sink) Up(term uint64, service serry.Incarnation) {
	r := (*Relay)(s)
	r.mu.Lock()
	o := &r.mu.outage
	was, lasted := o.down, time.Since(o.since)
	if was {
		o.stop()
		o.down, o.gaveUp, o.why, o.since = false, false, nil, time.Now()
		if o.reached {
			o.ended++
			o.longest, o.last = max(o.longest, lasted), lasted
		}
		o.reached = true
	}
	o.term = term
	if at := r.dialled.Load(); at != nil {
		o.address = *at
	}
	address := o.address
	replies := r.epoch(service)
	calls := r.mu.held
	r.mu.Unlock()
	r.host.Flush()
	s.queue(replies)
	if was {
		r.cfg.Log.Info("service found", "peer", address, "term", term, "outage", lasted, "calls", calls)
	}
}

// Down implements [stream.Sink].
func (s *sink) Down(err error) {
	s.mu.Lock()
	o := &s.mu.outage
	first := !o.down
	if first {
		o.down, o.since = true, time.Now()
		if o.patience != nil {
			o.patience.Reset(s.cfg.GiveUp)
		}
	}
	o.why = err
	never := !o.reached && !o.missed
	o.missed = true
	calls, stopping := s.mu.held, o.stopping
	s.mu.Unlock()
	switch {
	case stopping:
	case first:
		s.cfg.Log.Warn("service lost", "err", err, "calls", calls)
	case never:
		s.cfg.Log.Warn("service not reached", "err", err)
	default:
		s.cfg.Log.Debug("service still lost", "err", err)
	}
}

// Flush implements [stream.Sink].
func (s *sink) Flush() {
	for c := range s.dirty {
		c.Flush()
	}
	clear(s.dirty)
}

// queue delivers replies that leave with the next Flush.
func (s *sink) queue(replies []reply) {
	for _, p := range replies {
		p.conn.Reply(p.call, p.body, p.status)
		s.dirty[p.conn] = struct{}{}
	}
}

// answered takes the service's answer to a call of a client, and returns what to send. It needs
// Relay.mu.
func (r *Relay) answered(p stream.Reply) []reply {
	c := r.mu.byID[p.Conn]
	if c == nil {
		return nil // the client's connection has closed
	}
	k := c.calls[p.Call]
	if k == nil {
		return nil // the client has given the call up
	}
	r.finish(c, p.Call, k)
	replies := []reply{{c.conn, p.Call, p.Body, p.Status}}
	switch k.kind {
	case coord.KindRegisterTask:
		if done, ok := result(k, p).(coord.Registered); ok {
			return append(replies, r.registered(k.life, done.Service)...)
		}
		if k.life != nil && k.life.service == 0 { // refused, and no other registration of it was accepted
			c.forget(k.life)
		}
	case coord.KindHeartbeat: // of a life that registered elsewhere; the next ones are answered here
		if done, ok := result(k, p).(coord.Registered); ok && k.life != nil && !k.life.told {
			return append(replies, r.registered(k.life, done.Service)...)
		}
	case coord.KindShutdownTask:
		if _, ok := result(k, p).(coord.Done); ok && k.life != nil {
			return append(replies, r.left(k.life)...)
		}
	case coord.KindPollForError:
		if k.life != nil && k.life.poll == (pollKey{c, p.Call}) {
			k.life.poll = pollKey{}
		}
	}
	return replies
}

// result reads the reply to a call that succeeded; it is nil for one that did not.
func result(k *held, p stream.Reply) coord.Result {
	if !p.Status.OK() {
		return nil
	}
	var ev coord.Event = coord.ShutdownTask{}
	if k.kind != coord.KindShutdownTask {
		ev = coord.RegisterTask{}
	}
	done, err := k.shape.Dialect.Result(ev, p.Body)
	if err != nil {
		return nil
	}
	return done
}

// registered notes that the service has accepted a life (A-SIDE-7). From now on the relay answers its
// heartbeats, also if the standing of the life is yet to come.
func (r *Relay) registered(l *life, service serry.Incarnation) []reply {
	if l != nil {
		l.service = service
		if !l.told {
			l.told, l.state = true, serry.Connected
		}
	}
	return r.epoch(service)
}

// left ends the error polls of a life that has left (A-SIDE-4). The service would do so, too; but if the answer
// were lost in an outage, the next leader would not know these polls.
func (r *Relay) left(l *life) []reply {
	l.told, l.state, l.poll = true, serry.Disconnected, pollKey{}
	var replies []reply
	for at := range l.polls {
		k := at.client.calls[at.call]
		body, st := k.refuse(serry.ErrLeft)
		replies = append(replies, reply{at.client.conn, at.call, body, st})
		r.drop(at.client, at.call, k)
	}
	return replies
}

// epoch notes which epoch the service is in, and answers the calls of older ones (A-SIDE-9).
func (r *Relay) epoch(service serry.Incarnation) []reply {
	if service == 0 || service == r.mu.outage.service {
		return nil
	}
	r.mu.outage.service = service
	replies := r.release(func(k *held) ([]byte, rpc.Status, bool) { return k.older(service) })
	r.mu.watches.renew(r)
	return replies
}

// giveUp answers what waits when the service has been out of reach for too long (A-SIDE-10). Clients whose error
// poll is answered in this way end themselves, and with them the job: a job that nothing coordinates must not
// hold its machines for ever. Registrations go on waiting: they have a deadline of their own.
func (r *Relay) giveUp() {
	r.mu.Lock()
	o := &r.mu.outage
	if !o.down || time.Since(o.since) < r.cfg.GiveUp {
		r.mu.Unlock()
		return // the service came back while the timer fired
	}
	o.gaveUp = true
	lasted, why := time.Since(o.since), o.why
	replies := r.release(func(k *held) ([]byte, rpc.Status, bool) {
		return nil, wire.OutOfReach(), k.kind != coord.KindRegisterTask
	})
	r.mu.Unlock()
	send(replies)
	r.cfg.Log.Error("service given up", "outage", lasted, "calls", len(replies), "err", why)
}
