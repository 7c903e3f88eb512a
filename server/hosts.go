package server

import (
	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/detect"
	"github.com/serry-dev/serry/wire"
	"github.com/serry-dev/serry/wire/stream"
)

// A host is the other end of a stream: a relay with many tasks behind it, or one client. This file is what
// hosts say to the owner, and what the owner says to hosts without being asked.
//
// A relay answers the heartbeats of its tasks itself, also while the service is out of reach (A-SIDE-3). So
// it must know what the service thinks of each life that came by it, and learn of every change. The
// detector remembers which life came by which host, because it needs that for silent hosts; the owner asks
// it whom to inform.

// A push is one standing for one host. It leaves with the wave of the step that caused it.
type push struct {
	session  *stream.Session
	standing stream.Standing
}

// standing is what a host is told of a life: what the machine says of the task, if that is its present
// life, and disconnected otherwise.
func (o *owner) standing(l serry.Life) stream.Standing {
	st := stream.Standing{Life: serry.Life{Task: l.Task, Incarnation: l.Incarnation}, Service: o.epoch.service}
	if !o.detector.Present(l) {
		return st
	}
	st.State = o.detector.Task(l.Task).State
	if err := o.epoch.task(l.Task).err; err != nil {
		st.Error = wire.MarshalError(err)
	}
	return st
}

// informHosts puts the standing of a life on the wave, for every host that the life came by.
func (o *owner) informHosts(l serry.Life) {
	if hosts := o.detector.Hosts(l); len(hosts) > 0 {
		st := o.standing(l)
		for _, s := range hosts {
			o.wave.pushes = append(o.wave.pushes, push{s, st})
		}
	}
}

// inform puts the standing of a life on the wave, for one host that has asked, or that must know that it was
// understood.
func (o *owner) inform(s *stream.Session, l serry.Life) {
	o.wave.pushes = append(o.wave.pushes, push{s, o.standing(l)})
}

// Commands of hosts to the owner.
type (
	// resultsDelivered: the callers have the results of calls up to a number.
	resultsDelivered struct{ event coord.Acknowledge }

	// hostFollows: a host has lives, and wants to know of them from now on.
	hostFollows struct {
		session *stream.Session
		lives   []serry.Life
	}

	// processExited: a host saw the process of a life end. Without an incarnation it is the present life. An
	// empty cause is a good end.
	processExited struct {
		session *stream.Session
		life    serry.Life
		cause   string
	}

	// lastConnClosed: the last local connection of a life has closed, perhaps before this server led.
	lastConnClosed struct {
		session *stream.Session
		report  detect.Report
	}

	hostOnline  struct{ session *stream.Session } // a host has a connection
	hostOffline struct{ session *stream.Session } // a host has none, and may resume its stream
	hostLeft    struct{ session *stream.Session } // a host closed its stream in order

	// hostsSilent: nothing was heard of these hosts for stream.SilentAfter.
	hostsSilent []silentHost
	silentHost  struct {
		session *stream.Session
		peers   []*peer // its virtual connections
	}
)

// do lets the machine forget results that their caller has (C-REQ-2). It is an event like a call, since a successor
// must forget the same ones.
func (c resultsDelivered) do(o *owner) { o.step(c.event) }

// do informs the host at once, also of lives that the service does not know: for a life that was replaced, or
// that an epoch has forgotten, the standing says disconnected, and the host stops asking.
func (c hostFollows) do(o *owner) {
	for _, l := range c.lives {
		if o.detector.Present(l) {
			o.detector.Came(l, c.session)
		}
		o.inform(c.session, l)
	}
}

// do answers with the standing of the life after the verdict. The host repeats the exit to every server
// until such a standing shows that one has understood.
func (c processExited) do(o *owner) {
	t := o.detector.Task(c.life.Task)
	if t == nil {
		return
	}
	l := c.life
	if l.Incarnation == 0 {
		l = t.Life
	}
	o.detector.Exited(c.life, c.cause, o.now)
	o.judge()
	o.inform(c.session, l)
}

// do follows the life for the host, which repeats the report until it hears that the life is not connected. The life
// may be at another host by now, so the report does not say that it is at this one.
func (c lastConnClosed) do(o *owner) {
	if o.detector.Present(c.report.Life) {
		o.detector.Follow(c.report.Life, c.session)
	}
	o.inform(c.session, c.report.Life)
	o.detector.Reported(c.report, o.now)
}

// do tells the detector that the stream of a host is connected. A client that has a stream of its own is a host with
// one task, and its silence is that of the task.
func (c hostOnline) do(o *owner) { o.detector.Online(c.session, c.session.Kind() == stream.Client) }

// do begins the time in which the host must resume its stream. Its tasks are not lost with the connection: a relay
// that loses one link dials again at once.
func (c hostOffline) do(o *owner) { o.detector.Offline(c.session, o.now) }

// do forgets a host that has said goodbye: a relay that ends after its tasks. Nothing is lost by that.
func (c hostLeft) do(o *owner) { o.detector.Left(c.session) }

// do ends the connections of the hosts before it tells the detector of their silence: only then is it
// known which lives no other host carries.
func (c hostsSilent) do(o *owner) {
	var hosts []*stream.Session
	for _, h := range c {
		hosts = append(hosts, h.session)
		for _, p := range h.peers {
			// A life may have come by a connection of the host before an epoch forgot that.
			for _, l := range p.carried() {
				o.detector.Follow(l.Life, h.session)
			}
			connClosed{p, detect.SilentEvidence(h.session.Kind() == stream.Client)}.do(o)
		}
	}
	o.detector.Silenced(hosts)
}
