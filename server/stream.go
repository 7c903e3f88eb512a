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

// ServeStream serves a connection of serry's own protocol to its end (see package stream). [Server.Serve]
// calls it for connections that begin with the preface of that protocol.
func (s *Server) ServeStream(conn net.Conn) {
	// The error says how the connection ended, which its session has taken care of.
	_ = s.streams.Serve(conn)
}

// newStreams makes the end of streams that serves. It asks for the present epoch itself when a host connects, so
// that the welcome of a host never names an older one than the handler answers with.
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

// hosts is the handler of what comes by streams. A virtual connection is to it a connection like any other,
// so that a call of a stock client takes the same way whether a relay stands in between or not. Only the
// envelope of the call differs.
//
// Its methods are called by the goroutine that reads the stream, one session at a time. None of them waits,
// and none touches the machine: what concerns that becomes a command for the owner (see hosts.go).
type hosts struct{ *handler }

// An envelope is what a stream says about a call outside of the request: the request id that makes a
// repeated call the same call (C-REQ-1), and whose call it is. Both are zero for direct clients.
type envelope struct {
	id    coord.RequestID
	stamp stream.Stamp
}

// Open implements [stream.Handler].
func (h hosts) Open(c *stream.Conn) { h.handler.Open(c) }

// Call implements [stream.Handler].
func (h hosts) Call(c *stream.Conn, call *stream.Call) {
	e := envelope{stamp: call.Stamp}
	if call.Number != 0 {
		e.id = coord.RequestID{Requester: uint64(call.Conn), Number: call.Number, Watermark: call.Watermark}
	}
	h.serve(c, call.ID, call.Method, call.Body, e)
}

// Served implements [stream.Handler].
func (h hosts) Served(*stream.Session) { h.help() }

// Cancel implements [stream.Handler].
func (h hosts) Cancel(c *stream.Conn, call rpc.CallID) { h.handler.Cancel(c, call) }

// Shut implements [stream.Handler]. The connection is the requester of its calls, so its end is also the
// farewell of that: the machine keeps no results for it any more (C-REQ-3). The order counts: the calls of the
// connection are withdrawn before the machine forgets their results.
func (h hosts) Shut(c *stream.Conn, how stream.Ending) {
	var err error = io.EOF
	if how == stream.NotReading {
		err = rpc.ErrNotReading
	}
	h.handler.Close(c, err)
	h.order(c.Session(), resultsDelivered{coord.Acknowledge{Requester: uint64(c.ID()), Farewell: true}})
}

// Heard implements [stream.Handler]. A good heartbeat is one atomic store and nothing else (C-HB-8). For the
// others the host learns the standing of the life, which is the answer that it lacks.
func (h hosts) Heard(s *stream.Session, lives []serry.Life) {
	e, now := h.epoch.Load(), h.clock.now()
	var bad []serry.Life
	for _, l := range h.permitted(s, e, lives) {
		if !e.beat(coord.Call{Task: l.Task, Incarnation: l.Incarnation}, now) {
			bad = append(bad, l)
		}
	}
	if len(bad) > 0 {
		h.order(s, hostFollows{s, bad})
	}
}

// Follow implements [stream.Handler]. A host follows lives again after a fail-over, of which this server has heard
// nothing from it yet.
func (h hosts) Follow(s *stream.Session, lives []serry.Life) {
	h.order(s, hostFollows{s, h.permitted(s, h.epoch.Load(), lives)})
}

// Delivered implements [stream.Handler]. A full queue may refuse it: the next watermark covers this one.
func (h hosts) Delivered(requester stream.ConnID, watermark uint64) {
	_ = h.queue.put(item{command: resultsDelivered{coord.Acknowledge{Requester: uint64(requester), Watermark: watermark}}}, true)
}

// Exited implements [stream.Handler]. A relay speaks for the processes of its own host; with [Config].TaskURI only
// for those that its certificate names.
func (h hosts) Exited(s *stream.Session, l serry.Life, cause string) {
	for _, l := range h.permitted(s, h.epoch.Load(), []serry.Life{l}) {
		h.order(s, processExited{s, l, cause})
	}
}

// Closed implements [stream.Handler].
func (h hosts) Closed(s *stream.Session, c stream.Closure) {
	report := detect.Report{Resumes: c.Resumes, Evidence: detect.ConnectionClosed}
	if c.How == stream.NotReading {
		report.Evidence = detect.NotReading
	}
	// The list is empty if the certificate of the host does not name the life: then there is nothing to report.
	for _, report.Life = range h.permitted(s, h.epoch.Load(), []serry.Life{c.Life}) {
		h.order(s, lastConnClosed{s, report})
	}
}

// Online implements [stream.Handler].
func (h hosts) Online(s *stream.Session) { h.order(s, hostOnline{s}) }

// Offline implements [stream.Handler]. No frame follows the end of a connection, so this command wakes the owner.
func (h hosts) Offline(s *stream.Session) {
	// A server that has ended has no use for it.
	_ = h.queue.push(hostOffline{s})
}

// Bye implements [stream.Handler].
func (h hosts) Bye(s *stream.Session) { h.order(s, hostLeft{s}) }

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
			if t := e.task(l.Task); t != nil && e.present(l.Life) {
				t.pardon(coord.Time(d), now)
			}
		}
	}
}

// Silent implements [stream.Handler]. The connections are taken out of the table here, so that what their
// readers still have under way finds no peer; the owner ends them.
func (h hosts) Silent(gone []*stream.Session) {
	var silent hostsSilent
	for _, s := range gone {
		host := silentHost{session: s}
		for _, c := range s.Conns() {
			if p := h.drop(c); p != nil {
				host.peers = append(host.peers, p)
			}
		}
		silent = append(silent, host)
	}
	// A server that has ended has no use for it.
	_ = h.queue.push(silent)
}

// order queues a command. It does not wake the owner: Served follows the frames that came together, and takes
// the turn for all of them. The command is queued whatever the limits, because the host would not repeat
// it; but a host that goes on while the queue is far beyond its limits loses its connection.
func (h hosts) order(s *stream.Session, c command) {
	// The error is that the server has ended, which has no use for the command.
	_ = h.queue.put(item{command: c}, false)
	if h.queue.length() > maxQueuedItems {
		s.Break(errBehind)
	}
}

// errBehind is why a host loses its connection that floods a server whose journal stands still.
var errBehind = errors.New("the server has more to do than it can remember")

// permitted names lives as the service does, and leaves out those that the host's certificate does not name.
func (h hosts) permitted(s *stream.Session, e *epoch, lives []serry.Life) []serry.Life {
	list := make([]serry.Life, 0, len(lives))
	for _, l := range lives {
		if t := e.nameOf(l.Task); h.binding.mayBe(s, t) {
			list = append(list, serry.Life{Task: t, Incarnation: l.Incarnation})
		}
	}
	return list
}

// identify says whose a call without an incarnation is: what the relay stamped on it, or else what the
// connection knows (C-INC-6).
func (v envelope) identify(p *peer, e *epoch, task serry.TaskID) (own, service serry.Incarnation) {
	s := v.stamp
	if s.Incarnation != 0 && (task.IsZero() || e.nameOf(s.Task) == task) {
		return s.Incarnation, s.Service
	}
	return p.identify(e, task)
}

// Hosts is how many relays and clients are connected by streams, or may resume theirs.
func (s *Server) Hosts() int { return s.streams.Sessions() }
