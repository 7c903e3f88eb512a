package server

import (
	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/detect"
	"github.com/serry-dev/serry/wire"
	"github.com/serry-dev/serry/wire/stream"
)

// A push is word to a host that no call asked for: what it must know of a life that came by it, so that
// it can answer heartbeats itself (A-SIDE-3).
type push struct {
	session  *stream.Session
	standing stream.Standing
}

// standing is what a host is told of a life: what the task shows, if it is its present one.
func (o *owner) standing(l serry.Life) stream.Standing {
	st := stream.Standing{Life: stream.Life{Task: l.Task, Incarnation: l.Incarnation}, Service: o.epoch.service}
	if !o.detector.Present(l) {
		return st
	}
	st.State = o.detector.Task(l.Task).State
	if err := o.epoch.seat(l.Task).err; err != nil {
		st.Error = wire.MarshalError(err)
	}
	return st
}

// tellOf puts on the wave what the hosts of a life must know.
func (o *owner) tellOf(l serry.Life) {
	if hosts := o.detector.Hosts(l); len(hosts) > 0 {
		st := o.standing(l)
		for _, s := range hosts {
			o.wave.pushes = append(o.wave.pushes, push{s, st})
		}
	}
}

// tell puts on the wave what one host must know of a life.
func (o *owner) tell(s *stream.Session, l serry.Life) {
	o.wave.pushes = append(o.wave.pushes, push{s, o.standing(l)})
}

// follow notes that a life came by a connection of a host.
func (o *owner) follow(p *peer, l serry.Life) {
	if c, ok := p.conn.(*stream.Conn); ok {
		o.detector.Follow(l, c.Session())
	}
}

// Words of hosts to the owner.
type (
	acknowledged struct{ event coord.Acknowledge } // results have been delivered
	followed     struct {                          // a host wants to know
		session *stream.Session
		lives   []serry.Life
	}
	perished struct { // a process that carried a life has ended
		session *stream.Session
		life    serry.Life // without an incarnation: the present one
		cause   string
	}
	lastClosed struct { // the last local connection of a life has closed
		session *stream.Session
		report  detect.Report
	}
	online    struct{ session *stream.Session } // a host has a connection
	offline   struct{ session *stream.Session } // a host has no connection
	left      struct{ session *stream.Session } // a host said goodbye
	muted     []mutedHost                       // nothing is heard of these hosts any more
	mutedHost struct {
		session *stream.Session
		peers   []*peer
	}
)

func (w acknowledged) do(o *owner) { o.step(w.event) }

func (w followed) do(o *owner) {
	for _, l := range w.lives {
		if o.detector.Present(l) {
			o.detector.Follow(l, w.session)
		}
		o.tell(w.session, l)
	}
}

// do answers with the standing of the life, by which the host knows that it was understood.
func (w perished) do(o *owner) {
	t := o.detector.Task(w.life.Task)
	if t == nil {
		return
	}
	l := w.life
	if l.Incarnation == 0 {
		l = t.Life
	}
	o.detector.Exited(w.life, w.cause, o.now)
	o.judge()
	o.tell(w.session, l)
}

// do follows the life for the host, which says the same to every server until it hears that the life is
// not connected.
func (w lastClosed) do(o *owner) {
	followed{w.session, []serry.Life{w.report.Life}}.do(o)
	o.detector.Reported(w.report, o.now)
}

func (w online) do(o *owner) { o.detector.Online(w.session, w.session.Kind() == stream.Client) }

func (w offline) do(o *owner) { o.detector.Offline(w.session, o.now) }

func (w left) do(o *owner) { o.detector.Left(w.session) }

// do ends the connections of the hosts before it tells the detector of their silence: only then is it
// known which lives no other host carries.
func (w muted) do(o *owner) {
	var hosts []*stream.Session
	for _, m := range w {
		hosts = append(hosts, m.session)
		for _, p := range m.peers {
			for _, c := range p.carried() {
				o.detector.Follow(c.Life, m.session)
			}
			o.end(ended{p, detect.SilentEvidence(m.session.Kind() == stream.Client)})
		}
	}
	o.detector.Silenced(hosts)
}

// push queues for hosts what they are to know; flushPushes sends it.
func (p *performer) push(w *wave) {
	for i := range w.pushes {
		w.pushes[i].session.Standing(w.pushes[i].standing)
	}
}

func (w *wave) flushPushes() {
	for i := range w.pushes {
		w.pushes[i].session.Flush()
	}
}

// taskError is nil for a nil pointer, unlike the pointer itself.
func taskError(e *serry.TaskError) error {
	if e == nil {
		return nil
	}
	return e
}
