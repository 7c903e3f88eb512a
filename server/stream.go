package server

import (
	"errors"
	"io"
	"net"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/detect"
	"github.com/serry-dev/serry/wire/rpc"
	"github.com/serry-dev/serry/wire/stream"
)

// ServeStream serves a connection of our own protocol to its end (see package stream). Serve calls it for
// those among its connections that begin so.
func (s *Server) ServeStream(conn net.Conn) {
	// How a connection ends is the business of its session.
	_ = s.streams.Serve(conn)
}

func newStreams(cfg Config, h *handler, m rpc.Methods) *stream.Server {
	return stream.NewServer(stream.ServerConfig{
		Handler: hosts{h},
		Methods: m,
		Store:   cfg.Store,
		Term:    cfg.Term,
		Version: cfg.StreamVersion,
		Planted: cfg.Planted,
		Service: func() serry.Incarnation { return h.epoch.Load().service },
		Log:     cfg.Log,
	})
}

// hosts takes what hosts say and hands it to the owner. A virtual connection is a connection like any
// other to it, and calls on it differ only in what stands beside the request.
type hosts struct{ *handler }

// beside is what a call on our stream says beside its request.
type beside struct {
	id    coord.RequestID
	stamp stream.Stamp
}

// An errand is a word to the owner that knows itself what is to be done.
type errand interface{ do(o *owner) }

// Open implements [stream.Handler].
func (h hosts) Open(c *stream.Conn) { h.handler.Open(c) }

// Call implements [stream.Handler].
func (h hosts) Call(c *stream.Conn, call *stream.Call) {
	b := beside{stamp: call.Stamp}
	if call.Number != 0 {
		b.id = coord.RequestID{Requester: uint64(call.Conn), Number: call.Number, Watermark: call.Watermark}
	}
	h.serve(c, call.ID, call.Method, call.Body, b)
}

// Served implements [stream.Handler].
func (h hosts) Served(*stream.Session) { h.help() }

// Cancel implements [stream.Handler].
func (h hosts) Cancel(c *stream.Conn, call rpc.CallID) { h.handler.Cancel(c, call) }

// Shut implements [stream.Handler].
func (h hosts) Shut(c *stream.Conn, how stream.Ending) {
	var err error = io.EOF
	if how == stream.NotReading {
		err = rpc.ErrNotReading
	}
	h.handler.Close(c, err)
	h.tell(c.Session(), acknowledged{coord.Acknowledge{Requester: uint64(c.ID()), Farewell: true}})
}

// Heard implements [stream.Handler]. Good heartbeats leave an atomic store behind and nothing else
// (C-HB-8); what is wrong with the others is told to the host.
func (h hosts) Heard(s *stream.Session, lives []stream.Life) {
	e, now := h.epoch.Load(), h.clock.now()
	var odd []serry.Life
	for _, l := range h.own(s, e, lives) {
		if !e.beat(coord.Call{Task: l.Task, Incarnation: l.Incarnation}, now) {
			odd = append(odd, l)
		}
	}
	if len(odd) > 0 {
		h.tell(s, followed{s, odd})
	}
}

// Follow implements [stream.Handler].
func (h hosts) Follow(s *stream.Session, lives []stream.Life) {
	h.tell(s, followed{s, h.own(s, h.epoch.Load(), lives)})
}

// Delivered implements [stream.Handler]. A full queue does without it: the next watermark covers this one.
func (h hosts) Delivered(requester stream.ConnID, watermark uint64) {
	_ = h.queue.put(item{word: acknowledged{coord.Acknowledge{Requester: uint64(requester), Watermark: watermark}}}, true)
}

// Exited implements [stream.Handler].
func (h hosts) Exited(s *stream.Session, l stream.Life, cause string) {
	for _, l := range h.own(s, h.epoch.Load(), []stream.Life{l}) {
		h.tell(s, perished{s, l, cause})
	}
}

// Closed implements [stream.Handler].
func (h hosts) Closed(s *stream.Session, c stream.Closure) {
	report := detect.Report{Resumes: c.Resumes, Evidence: detect.ConnectionClosed}
	if c.How == stream.NotReading {
		report.Evidence = detect.NotReading
	}
	for _, report.Life = range h.own(s, h.epoch.Load(), []stream.Life{c.Life}) {
		h.tell(s, lastClosed{s, report})
	}
}

// Online implements [stream.Handler].
func (h hosts) Online(s *stream.Session) { h.tell(s, online{s}) }

// Offline implements [stream.Handler].
func (h hosts) Offline(s *stream.Session) {
	// A server that has ended has no use for it.
	_ = h.queue.push(offline{s})
}

// Bye implements [stream.Handler].
func (h hosts) Bye(s *stream.Session) { h.tell(s, left{s}) }

// Quiet implements [stream.Handler]. While nothing comes from a host, the silence of its tasks does not
// count: they have as long as they had before, when it is heard of again (C-LOST-5).
func (h hosts) Quiet(s *stream.Session, d time.Duration) {
	e, now := h.epoch.Load(), h.clock.now()
	for _, c := range s.Conns() {
		v, ok := h.peers.Load(rpc.Conn(c))
		if !ok {
			continue
		}
		for _, l := range v.(*peer).carried() {
			if t := e.seat(l.Task); t != nil && e.present(l.Life) {
				t.pardon(coord.Time(d), now)
			}
		}
	}
}

// Silent implements [stream.Handler].
func (h hosts) Silent(gone []*stream.Session) {
	var w muted
	for _, s := range gone {
		m := mutedHost{session: s}
		for _, c := range s.Conns() {
			if p := h.drop(c); p != nil {
				m.peers = append(m.peers, p)
			}
		}
		w = append(w, m)
	}
	// A server that has ended has no use for it.
	_ = h.queue.push(w)
}

// tell queues a word for the owner, which looks at it after the frames that came with it. A server that
// has ended has no use for it. A host that goes on while the queue is far beyond its limits loses its
// connection: the word itself is kept, since the host would not repeat it.
func (h hosts) tell(s *stream.Session, w errand) {
	_ = h.queue.put(item{word: w}, false)
	if h.queue.length() > mostItems {
		s.Break(errBehind)
	}
}

var errBehind = errors.New("the server has more to do than it can remember")

// own names lives as the service does, and leaves out those that the host may not speak for.
func (h hosts) own(s *stream.Session, e *epoch, lives []stream.Life) []serry.Life {
	list := make([]serry.Life, 0, len(lives))
	for _, l := range lives {
		if t := e.nameOf(l.Task); h.mayBe(s, t) {
			list = append(list, serry.Life{Task: t, Incarnation: l.Incarnation})
		}
	}
	return list
}

// nameOf is the name by which the service knows a task. In a cluster of one job the name of the job
// does not matter, and dialect XLA has none (C-VER-1).
func (e *epoch) nameOf(t serry.TaskID) serry.TaskID {
	if len(e.seats) > 0 && (t.Job == "" || len(e.jobs) == 1) {
		t.Job = e.seats[0].task.Job
	}
	return t
}

// identify says whose a call without an incarnation is: what the relay stamped on it, or else what the
// connection knows (C-INC-6).
func (b beside) identify(p *peer, e *epoch, task serry.TaskID) (own, service serry.Incarnation) {
	s := b.stamp
	if s.Incarnation != 0 && (task.IsZero() || e.nameOf(s.Task) == task) {
		return s.Incarnation, s.Service
	}
	return p.identify(e, task)
}

// Hosts is how many relays and clients are connected by streams, or may resume theirs.
func (s *Server) Hosts() int { return s.streams.Sessions() }
