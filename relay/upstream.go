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
	down     bool
	since    time.Time // when it went down, or came up
	given    bool      // it has been down for too long
	found    bool      // it was up before
	sought   bool      // it was found missing before
	ending   bool      // the relay itself goes
	patience *time.Timer
	why      error // of the present outage

	address string // of the leader last seen
	term    uint64
	service serry.Incarnation // the epoch; 0 until the service is reached
	ended   int               // outages that are over
	longest time.Duration     // of those
}

// stop stops the clock of the outage.
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
	if p.Conn == r.house {
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
	s.mu.lives.standing(st)
}

// Epoch implements [stream.Sink].
func (s *sink) Epoch(service serry.Incarnation) {
	r := (*Relay)(s)
	r.mu.Lock()
	replies := r.epoch(service)
	r.mu.Unlock()
	s.queue(replies)
}

// Up implements [stream.Sink].
func (s *sink) Up(term uint64, service serry.Incarnation) {
	r := (*Relay)(s)
	r.mu.Lock()
	o := &r.mu.outage
	was, lasted := o.down, time.Since(o.since)
	if was {
		o.stop()
		o.down, o.given, o.why, o.since = false, false, nil, time.Now()
		if o.found {
			o.ended++
			o.longest = max(o.longest, lasted)
		}
		o.found = true
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
	never := !o.found && !o.sought
	o.sought = true
	calls, ending := s.mu.held, o.ending
	s.mu.Unlock()
	switch {
	case ending:
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
		return nil // it has closed
	}
	k := c.calls[p.Call]
	if k == nil {
		return nil // nobody waits any more
	}
	r.finish(c, p.Call, k)
	replies := []reply{{c.conn, p.Call, p.Body, p.Status}}
	switch k.kind {
	case coord.KindRegisterTask:
		if done, ok := result(k, p).(coord.Registered); ok {
			return append(replies, r.registered(k.life, done.Service)...)
		}
		if k.life != nil && k.life.service == 0 { // turned down, and not in for another reason
			c.forget(k.life)
		}
	case coord.KindHeartbeat: // of a life that registered elsewhere; the next ones are answered here
		if done, ok := result(k, p).(coord.Registered); ok && k.life != nil && !k.life.said {
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

// registered notes that the service has taken a life (A-SIDE-7).
func (r *Relay) registered(l *life, service serry.Incarnation) []reply {
	if l != nil {
		l.service = service
		if !l.said {
			l.said, l.state = true, serry.Connected
		}
	}
	return r.epoch(service)
}

// left ends the error polls of a life that has left (A-SIDE-4).
func (r *Relay) left(l *life) []reply {
	l.said, l.state, l.poll = true, serry.Disconnected, pollKey{}
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

// giveUp ends what waits when the service has been out of reach for too long (A-SIDE-10). Clients
// whose error poll ends in this way end themselves. Registrations have a deadline of their own, and
// would end their client before it has begun.
func (r *Relay) giveUp() {
	r.mu.Lock()
	o := &r.mu.outage
	if !o.down || time.Since(o.since) < r.cfg.GiveUp {
		r.mu.Unlock()
		return // it was found just now
	}
	o.given = true
	lasted, why := time.Since(o.since), o.why
	replies := r.release(func(k *held) ([]byte, rpc.Status, bool) {
		return nil, wire.OutOfReach(), k.kind != coord.KindRegisterTask
	})
	r.mu.Unlock()
	send(replies)
	r.cfg.Log.Error("service given up", "outage", lasted, "calls", len(replies), "err", why)
}
