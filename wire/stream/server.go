package stream

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/plant"
	"github.com/serry-dev/serry/wire/conn"
	"github.com/serry-dev/serry/wire/rpc"
)

// A Handler takes what hosts send. No method may block. Those of one session are called one at a time,
// in the order of its frames; Bye or Silent comes last.
type Handler interface {
	// Open announces a virtual connection before its first call.
	Open(c *Conn)

	// Call takes a call, whose method is one of those served and whose body is no longer than that
	// allows. Call and body are valid until the method returns. The session is flushed after the calls that
	// came together, before which comes Served.
	Call(c *Conn, call *Call)

	// Served follows the frames that came together.
	Served(s *Session)

	// Cancel says that the caller does not wait for the reply any more.
	Cancel(c *Conn, call rpc.CallID)

	// Shut says that a local connection has ended, with all its calls, and how. Its requester will make
	// no more calls.
	Shut(c *Conn, how Ending)

	// Heard says which lives sent heartbeats since the last time (A-SIDE-3).
	Heard(s *Session, lives []serry.Life)

	// Follow says that lives are at the host, which asks for their standings from now on.
	Follow(s *Session, lives []serry.Life)

	// Delivered raises the watermark of a requester (C-REQ-3).
	Delivered(requester ConnID, watermark uint64)

	// Exited says that the process of a life has ended; an empty cause is a good end. A life without
	// an incarnation is the present one.
	Exited(s *Session, l serry.Life, cause string)

	// Closed says that the last local connection of a life that came by the host has closed, with its
	// error poll unanswered. The host says so to every server until a [Standing] shows that the life is
	// not connected: the connection may have closed before this server led (A-SIDE-12).
	Closed(s *Session, c Closure)

	// Online says that a host has a connection, the first one or another.
	Online(s *Session)

	// Offline says that the connection of a host has ended. It may resume on another.
	Offline(s *Session)

	// Bye says that a host is gone for good. All its connections were shut before.
	Bye(s *Session)

	// Quiet says that for another d the server has heard nothing from a host, and so nothing of its lives:
	// their silence is not their own.
	Quiet(s *Session, d time.Duration)

	// Silent says that the server has heard nothing from these hosts for [SilentAfter]. Their sessions are
	// over, with all connections they had.
	Silent(gone []*Session)
}

// ServerConfig says what a [Server] serves. Handler, Methods and Service must be given.
type ServerConfig struct {
	Handler Handler
	Methods rpc.Methods
	Store   serry.StoreID            // whose terms are counted; 0 is drawn at random: a store of its own
	Term    uint64                   // of this leadership
	Service func() serry.Incarnation // the present epoch
	Log     *slog.Logger             // nil is silent

	// MaxUnfinishedBytes bounds the memory of large calls that are not complete: see conn.NewBudget.
	MaxUnfinishedBytes int64

	// Version stands for another build in tests: the version that this end claims. Zero means [Speaks].
	Version Version

	Planted plant.Faults // none, but in tests of tests
}

// A Server is the end that serves sessions. Make it with NewServer.
type Server struct {
	// Set in NewServer, then constant.
	cfg    ServerConfig
	base   time.Time
	budget *conn.Budget
	names  map[string]string // methods, by themselves
	stop   chan struct{}     // closed by Shutdown
	work   sync.WaitGroup    // connections, and the scanner

	mu struct {
		sync.Mutex
		sessions map[uint64]*Session
		pipes    map[*pipe]bool
		scanning bool
		stopped  bool
	}
}

// NewServer makes a server that serves nothing yet.
func NewServer(cfg ServerConfig) *Server {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	cfg.Store = cmp.Or(cfg.Store, serry.NewStoreID())
	cfg.Version = cmp.Or(cfg.Version, Speaks())
	s := &Server{
		cfg:    cfg,
		base:   time.Now(),
		budget: conn.NewBudget(cfg.MaxUnfinishedBytes),
		names:  make(map[string]string, len(cfg.Methods)),
		stop:   make(chan struct{}),
	}
	for name := range cfg.Methods {
		s.names[name] = name
	}
	s.mu.sessions = make(map[uint64]*Session)
	s.mu.pipes = make(map[*pipe]bool)
	return s
}

// errStopped ends connections to a server that is shut down.
var errStopped = errors.New("stream: server closed")

// Accept makes a protocol of an acceptor whose connections serve takes.
func Accept(serve func(net.Conn)) conn.Protocol {
	return conn.Protocol{Name: Protocol, First: Preface, Serve: func(c *conn.Conn) {
		c.Greeted()
		serve(c)
	}}
}

// Serve serves a connection to its end, and closes it. The error says why it ended.
func (s *Server) Serve(nc net.Conn) error {
	s.mu.Lock()
	if s.mu.stopped {
		s.mu.Unlock()
		Redirect(nc, "") // a host that gets no answer cannot tell which protocol is spoken here
		return errStopped
	}
	p := newPipe(conn.New(nc), s.base, s.cfg.Planted)
	s.mu.pipes[p] = true
	s.work.Add(1)
	s.mu.Unlock()
	defer s.work.Done()

	in := &serverConn{server: s, pipe: p}
	in.frames = frameReader{handler: in, limit: serverLimits, budget: s.budget, patient: true}
	in.uris = p.nc.PeerURIs()
	nc.SetReadDeadline(time.Now().Add(helloPatience))
	err := p.read(&in.frames)
	if cause := p.Err(); cause != nil {
		err = cause
	}
	if errors.Is(err, errBye) {
		p.drain(helloPatience)
	}
	p.Fail(err)
	p.Wait()
	s.mu.Lock()
	delete(s.mu.pipes, p)
	s.mu.Unlock()
	if in.session != nil {
		in.session.detach(p)
	}
	s.cfg.Log.Debug("stream ended", "peer", nc.RemoteAddr(), "err", err)
	return err
}

// Shutdown closes all connections once their output is out, or when ctx ends, and returns when nothing
// of the server runs any more. Hosts look for another server at once.
func (s *Server) Shutdown(ctx context.Context) {
	s.mu.Lock()
	if !s.mu.stopped {
		s.mu.stopped = true
		close(s.stop)
	}
	pipes := slices.Collect(maps.Keys(s.mu.pipes))
	s.mu.Unlock()
	for _, p := range pipes {
		p.Flush()
	}
	release := context.AfterFunc(ctx, func() {
		for _, p := range pipes {
			p.Fail(errStopped)
		}
	})
	defer release()
	for _, p := range pipes {
		p.Drain()
		p.Fail(errStopped)
	}
	s.work.Wait()
}

// Redirect answers a connection with the address of the leader, empty if it is not known, and closes it. A
// server that does not lead calls it.
func Redirect(nc net.Conn, address string) {
	defer nc.Close()
	nc.SetDeadline(time.Now().Add(redirectPatience))
	b := appendFrame([]byte(Preface), &redirect{address})
	if _, err := nc.Write(b); err != nil {
		return
	}
	// The host closes the connection when it has read the answer. If the server closed first, a reset might
	// take the answer from the host.
	var rest [1 << 10]byte
	for {
		if _, err := nc.Read(rest[:]); err != nil {
			return
		}
	}
}

const redirectPatience = 2 * time.Second

// session finds the session of a hello, or makes it.
func (s *Server) session(h hello, nc net.Conn) (*Session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.mu.sessions[h.session]
	switch {
	case s.mu.stopped:
		return nil, errStopped
	case old != nil && old.kind != h.kind:
		return nil, errOrder
	case old != nil:
		return old, nil
	case len(s.mu.sessions) >= maxSessions:
		return nil, &serry.LimitError{Limit: "sessions", Max: maxSessions}
	}
	n := &Session{server: s, number: h.session, kind: h.kind, remote: nc.RemoteAddr(), conns: make(map[ConnID]*Conn)}
	s.mu.sessions[h.session] = n
	if !s.mu.scanning {
		s.mu.scanning = true
		s.work.Go(s.scan)
	}
	return n, nil
}

// forget takes a session out of the table, and says whether it was in it.
func (s *Server) forget(n *Session) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.sessions[n.number] != n {
		return false
	}
	delete(s.mu.sessions, n.number)
	return true
}

// Sessions is how many hosts there are.
func (s *Server) Sessions() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.mu.sessions)
}

// Epoch tells all hosts that another epoch has opened.
func (s *Server) Epoch(service serry.Incarnation) {
	for _, n := range s.all() {
		if p := n.pipe.Load(); p != nil {
			p.send(&epoch{service})
			p.Flush()
		}
	}
}

func (s *Server) all() []*Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.mu.sessions))
}

const (
	scanEvery  = BeatEvery / 2
	quietAfter = 3 * BeatEvery / 2
	ackAfter   = 3 * BeatEvery / 2 // without output: the beats of the host may wait behind a large call
)

// scan looks at all sessions a few times a second.
func (s *Server) scan() {
	tick := time.NewTicker(scanEvery)
	defer tick.Stop()
	last := time.Now()
	for {
		select {
		case <-s.stop:
			return
		case <-tick.C:
		}
		now := time.Now()
		held := now.Sub(last) > scanEvery+maxLateness // C-LOST-6: this process did not run, and beats may be unread
		last = now
		var gone []*Session
		for _, n := range s.all() {
			if held {
				n.heard.Store(int64(now.Sub(s.base)))
			}
			if d := n.quiet(int64(now.Sub(s.base))); d > 0 {
				s.cfg.Handler.Quiet(n, d)
			}
			if n.look(int64(now.Sub(s.base))) && s.forget(n) {
				n.close(errSilent)
				gone = append(gone, n)
			}
		}
		if len(gone) > 0 {
			s.cfg.Log.Warn("hosts silent", "count", len(gone), "peer", gone[0].remote)
			s.cfg.Handler.Silent(gone)
		}
	}
}

// quiet is by how much the silence of the session has grown since the last call, or 0 while it is short. Only
// the scanner calls it.
func (n *Session) quiet(now int64) (d time.Duration) {
	last := n.heard.Load()
	if p := n.pipe.Load(); p != nil {
		last = max(last, p.heard.Load())
	}
	silent := time.Duration(now - last)
	if silent < quietAfter {
		n.told = 0
		return 0
	}
	d, n.told = silent-min(n.told, silent), silent
	return d
}

// look says whether the session has been silent for too long. It acknowledges beats on an idle connection,
// and ends one whose host does not read.
func (n *Session) look(now int64) (silent bool) {
	last, p := n.heard.Load(), n.pipe.Load()
	patience := SilentAfter
	if n.server.cfg.Planted.Has(plant.HastySilence) {
		patience /= 4
	}
	if p == nil {
		return time.Duration(now-last) >= patience
	}
	if n.waiting() {
		p.heard.Store(now)
	}
	p.Lock()
	stuck, bytes := p.Stuck(), p.Backlog()
	p.Unlock()
	if time.Duration(now-p.sent.Load()) >= ackAfter {
		n.ack(p)
		p.Flush()
	}
	if stuck >= stallTime || stuck >= pileTime && bytes > maxPile {
		p.Fail(rpc.ErrNotReading)
	}
	return time.Duration(now-max(last, p.heard.Load())) >= patience
}

// methodLimit is how long a call of a method may be, with ok false if there is no such method.
func (s *Server) methodLimit(method []byte) (name string, most int64, ok bool) {
	name, ok = s.names[string(method)]
	return name, s.cfg.Methods[name].MaxRequestBytes, ok
}

// serverLimits says which frames a server takes, and how long they may be.
func serverLimits(t frameType) frameLimit {
	switch t {
	case frameCall:
		return bodyLimit
	case frameHello, frameOpen, frameCancel, frameShut, frameBeat, frameExited, frameSynced, frameBye, frameFollow, frameClosed:
		return plainLimit
	}
	return frameLimit{}
}
