package relay

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/wire"
	"github.com/serry-dev/serry/wire/rpc"
	"github.com/serry-dev/serry/wire/stream"
	"github.com/serry-dev/serry/wire/xlapb"
)

// upstream is a service that follows a script. What it knows, it keeps over its deaths, as a journal
// would: which request ids it has served, and what it answered.
type upstream struct {
	t      *testing.T
	server *stream.Server // the leader; replaced by lead
	work   sync.WaitGroup
	exited chan string // what was said of processes; has room

	mu struct {
		sync.Mutex
		refuse  bool // nobody listens
		conns   []*cuttable
		dials   int
		service serry.Incarnation
		store   serry.StoreID
		term    uint64
		version int64
		next    int // bytes after which each new connection is cut; negative: never

		hold   func(*stream.Call) bool // says which calls wait; nil: none
		answer func(*stream.Call) ([]byte, rpc.Status, bool)

		calls     []stream.Call // all that were taken, in order
		done      map[requestID]int
		kept      map[requestID]kept
		waiting   []waitingCall
		cancelled []rpc.CallID
		shut      []stream.Ending
		shutConns []stream.ConnID
		closed    []stream.Closure
		polled    map[stream.ConnID]bool // connections that have polled
		heard     []serry.Life
		marks     map[stream.ConnID]uint64
		sessions  map[*stream.Session]bool
		lives     map[serry.Incarnation]stream.Standing
	}
}

type requestID struct {
	conn   stream.ConnID
	number uint64
}

type kept struct {
	body []byte
	st   rpc.Status
}

type waitingCall struct {
	conn *stream.Conn
	call stream.Call
}

func newUpstream(t *testing.T) *upstream {
	u := &upstream{t: t, exited: make(chan string, 64)}
	u.mu.service, u.mu.store, u.mu.version, u.mu.next = 77, 1, 5, -1
	u.mu.done, u.mu.kept = make(map[requestID]int), make(map[requestID]kept)
	u.mu.polled, u.mu.marks = make(map[stream.ConnID]bool), make(map[stream.ConnID]uint64)
	u.mu.sessions, u.mu.lives = make(map[*stream.Session]bool), make(map[serry.Incarnation]stream.Standing)
	u.lead(1)
	return u
}

// lead makes a new leader, which knows no connection and no call that waits.
func (u *upstream) lead(term uint64) {
	old := u.server
	u.mu.Lock()
	u.mu.term = term
	store := u.mu.store
	u.mu.waiting, u.mu.polled = nil, make(map[stream.ConnID]bool)
	u.mu.sessions = make(map[*stream.Session]bool)
	u.mu.Unlock()
	fresh := stream.NewServer(stream.ServerConfig{
		Handler: (*script)(u), Methods: wire.Methods(1 << 20), Store: store, Term: term,
		Service: func() serry.Incarnation {
			u.mu.Lock()
			defer u.mu.Unlock()
			return u.mu.service
		},
	})
	u.mu.Lock()
	u.server = fresh
	u.mu.Unlock()
	if old != nil {
		u.kill(old)
	}
}

// beginAnew makes a leader of another store, in which terms and epochs are counted anew.
func (u *upstream) beginAnew(service serry.Incarnation) {
	u.mu.Lock()
	u.mu.store++
	u.mu.service = service
	u.mu.done, u.mu.kept = make(map[requestID]int), make(map[requestID]kept)
	u.mu.lives = make(map[serry.Incarnation]stream.Standing)
	u.mu.Unlock()
	u.lead(1)
}

// kill ends a server at once.
func (u *upstream) kill(s *stream.Server) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	s.Shutdown(ctx)
}

func (u *upstream) close() {
	u.cut()
	u.kill(u.server)
	u.work.Wait()
}

// dial connects to whoever leads.
func (u *upstream) dial(context.Context, string) (net.Conn, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.mu.dials++
	if u.mu.refuse {
		return nil, errors.New("connection refused")
	}
	here, there := net.Pipe()
	c := &cuttable{Conn: there, after: u.mu.next}
	u.mu.conns = append(u.mu.conns, c)
	s := u.server
	u.work.Go(func() { s.Serve(c) })
	return here, nil
}

// down cuts all connections and refuses new ones, or lets them in again.
func (u *upstream) down(down bool) {
	u.mu.Lock()
	u.mu.refuse = down
	u.mu.Unlock()
	if down {
		u.cut()
	}
}

func (u *upstream) cut() {
	u.mu.Lock()
	conns := u.mu.conns
	u.mu.conns = nil
	u.mu.Unlock()
	for _, c := range conns {
		c.Close()
	}
}

// holding makes calls of these methods wait.
func (u *upstream) holding(methods ...string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.mu.hold = func(c *stream.Call) bool {
		for _, m := range methods {
			if strings.HasSuffix(c.Method, "/"+m) {
				return true
			}
		}
		return false
	}
}

// release answers all calls that wait.
func (u *upstream) release() {
	u.mu.Lock()
	u.mu.hold = nil
	list := u.mu.waiting
	u.mu.waiting = nil
	u.mu.Unlock()
	for _, w := range list {
		u.reply(w)
		w.conn.Flush()
	}
}

// reply serves a call: one with a request id once and for all.
func (u *upstream) reply(w waitingCall) {
	id := requestID{w.call.Conn, w.call.Number}
	u.mu.Lock()
	k, ok := u.mu.kept[id]
	if !ok || id.number == 0 {
		k.body, k.st = u.serve(&w.call)
		if id.number != 0 {
			u.mu.done[id]++
			u.mu.kept[id] = k
		}
	}
	u.mu.Unlock()
	w.conn.Reply(w.call.ID, k.body, k.st)
}

// serve makes up an answer; mu is held.
func (u *upstream) serve(c *stream.Call) ([]byte, rpc.Status) {
	if u.mu.answer != nil {
		if body, st, ok := u.mu.answer(c); ok {
			return body, st
		}
	}
	switch {
	case strings.HasSuffix(c.Method, "/RegisterTask"):
		u.mu.lives[c.Stamp.Incarnation] = u.standing(c.Stamp.Life, serry.Connected, nil)
		body, _ := proto.Marshal(&xlapb.RegisterTaskResponse{ServiceIncarnation: uint64(u.mu.service)})
		return body, rpc.Status{}
	case strings.HasSuffix(c.Method, "/WatchTasks"), strings.HasSuffix(c.Method, "/WatchJobState"):
		body, _ := proto.Marshal(&xlapb.WatchTasksResponse{VersionNumber: u.mu.version})
		return body, rpc.Status{}
	}
	return echo(c.Body), rpc.Status{}
}

// echo is the answer to a request that shows which one it was.
func echo(request []byte) []byte { return append([]byte("reply to "), request...) }

// standing is what the service says of a life, whose job it calls worker.
func (u *upstream) standing(l serry.Life, state serry.TaskState, err error) stream.Standing {
	s := stream.Standing{Life: l, State: state, Service: u.mu.service}
	s.Task.Job = "worker"
	if err != nil {
		s.Error = wire.MarshalError(err)
	}
	return s
}

// stand tells all relays how a life stands.
func (u *upstream) stand(p *peer, state serry.TaskState, err error) {
	u.mu.Lock()
	s := u.standing(serry.Life{Task: p.task, Incarnation: p.own}, state, err)
	u.mu.lives[p.own] = s
	sessions := u.mu.sessions
	u.mu.Unlock()
	for n := range sessions {
		n.Standing(s)
		n.Flush()
	}
}

// open opens another epoch.
func (u *upstream) open(service serry.Incarnation) {
	u.mu.Lock()
	u.mu.service = service
	u.mu.lives = make(map[serry.Incarnation]stream.Standing)
	u.mu.Unlock()
	u.server.Epoch(service)
}

// taken are the calls of a method that came, in order.
func (u *upstream) taken(method string) []stream.Call {
	u.mu.Lock()
	defer u.mu.Unlock()
	var list []stream.Call
	for _, c := range u.mu.calls {
		if strings.HasSuffix(c.Method, "/"+method) {
			list = append(list, c)
		}
	}
	return list
}

// executed checks that no request was served twice.
func (u *upstream) executed(b *bench) {
	b.Helper()
	u.mu.Lock()
	defer u.mu.Unlock()
	for id, n := range u.mu.done {
		if n != 1 {
			b.Errorf("request %v was served %d times; want once", id, n)
		}
	}
}

// script is the side of an upstream that hosts see. It implements [stream.Handler].
type script upstream

func (s *script) Open(c *stream.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.sessions[c.Session()] = true
}

func (s *script) Call(c *stream.Conn, call *stream.Call) {
	copied := *call
	copied.Body = bytes.Clone(call.Body)
	s.mu.Lock()
	s.mu.calls = append(s.mu.calls, copied)
	if strings.HasSuffix(call.Method, "/PollForError") {
		s.mu.polled[call.Conn] = true
	}
	w := waitingCall{c, copied}
	hold := s.mu.hold != nil && s.mu.hold(&copied) || s.waits(&copied)
	if hold {
		s.mu.waiting = append(s.mu.waiting, w)
	}
	s.mu.Unlock()
	if hold {
		return
	}
	(*upstream)(s).reply(w)
	if strings.HasSuffix(call.Method, "/RegisterTask") {
		s.mu.Lock()
		st, ok := s.mu.lives[call.Stamp.Incarnation]
		s.mu.Unlock()
		if ok {
			c.Session().Standing(st)
		}
	}
}

// waits says whether a watch knows everything; mu is held.
func (s *script) waits(c *stream.Call) bool {
	if !strings.HasSuffix(c.Method, "/WatchTasks") && !strings.HasSuffix(c.Method, "/WatchJobState") {
		return false
	}
	ev, _, err := new(wire.Codec).Decode(c.Method, c.Body, wire.Origin{})
	return err == nil && ev.(coord.WatchTasks).Version == s.mu.version
}

func (s *script) Served(*stream.Session) {}

func (s *script) Cancel(_ *stream.Conn, call rpc.CallID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.cancelled = append(s.mu.cancelled, call)
	for i, w := range s.mu.waiting {
		if w.call.ID == call {
			s.mu.waiting = append(s.mu.waiting[:i:i], s.mu.waiting[i+1:]...)
			break
		}
	}
}

func (s *script) Shut(c *stream.Conn, how stream.Ending) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.shut = append(s.mu.shut, how)
	s.mu.shutConns = append(s.mu.shutConns, c.ID())
}

func (s *script) Heard(_ *stream.Session, lives []serry.Life) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.heard = append(s.mu.heard, lives...)
}

func (s *script) Quiet(*stream.Session, time.Duration) {}

func (s *script) Follow(n *stream.Session, lives []serry.Life) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.sessions[n] = true
	for _, l := range lives {
		if st, ok := s.mu.lives[l.Incarnation]; ok {
			n.Standing(st)
		}
	}
}

func (s *script) Delivered(requester stream.ConnID, watermark uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.marks[requester] = watermark
}

func (s *script) Exited(_ *stream.Session, l serry.Life, cause string) {
	s.exited <- l.Task.String() + " " + cause
}

func (s *script) Closed(_ *stream.Session, c stream.Closure) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.closed = append(s.mu.closed, c)
}

func (s *script) Online(*stream.Session)   {}
func (s *script) Offline(*stream.Session)  {}
func (s *script) Bye(*stream.Session)      {}
func (s *script) Silent([]*stream.Session) {}
