package server_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/lab/shareddisk"
	"github.com/serry-dev/serry/server"
	"github.com/serry-dev/serry/wire/rpc"
	"github.com/serry-dev/serry/wire/stream"
	"github.com/serry-dev/serry/wire/xlapb"
)

// A host is the end of a stream, with what it heard.
type host struct {
	*stream.Host
	t *testing.T

	mu        sync.Mutex
	server    *server.Server // where new connections end up
	away      bool           // the network is
	loss      int            // of so many packets one is lost; 0: none
	luck      *rand.Rand
	conns     []net.Conn
	served    sync.WaitGroup
	last      rpc.CallID
	replies   map[rpc.CallID]stream.Reply
	standings []stream.Standing
	epochs    []serry.Incarnation
	downs     int
}

// dialHost connects a host to a server, in memory.
func dialHost(t *testing.T, s *server.Server, kind stream.Kind) *host {
	t.Helper()
	h := &host{t: t, server: s, replies: make(map[rpc.CallID]stream.Reply)}
	h.Host = stream.NewHost(stream.HostConfig{
		Addresses: []string{"service"}, Kind: kind, Sink: h,
		Dial: func(context.Context, string) (net.Conn, error) {
			h.mu.Lock()
			defer h.mu.Unlock()
			if h.away {
				return nil, errors.New("no route to host")
			}
			near, far := net.Pipe()
			s := h.server
			h.conns = append(h.conns, near)
			if h.loss == 0 {
				h.served.Go(func() { s.ServeStream(far) })
				return near, nil
			}
			h.served.Go(func() { s.ServeStream(lossy{far, h}) })
			return lossy{near, h}, nil
		},
	})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		h.Close(ctx)
		h.served.Wait()
	})
	synctest.Wait()
	return h
}

// lossy is a connection that loses packets: a write takes as long as it takes to send it again.
type lossy struct {
	net.Conn
	host *host
}

// Write implements net.Conn.
func (l lossy) Write(p []byte) (int, error) {
	for again := 200 * time.Millisecond; l.host.loses(); again *= 2 {
		time.Sleep(again)
	}
	return l.Conn.Write(p)
}

// lossy lets connections to come lose one packet in so many.
func (h *host) lossy(loss int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.loss, h.luck = loss, rand.New(rand.NewPCG(1, 2))
}

func (h *host) loses() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.luck.IntN(h.loss) == 0
}

// cut ends the connection of the host, as a broken network does.
func (h *host) cut(away bool) {
	h.mu.Lock()
	h.away = away
	conns := h.conns
	h.conns = nil
	h.mu.Unlock()
	for _, c := range conns {
		c.Close()
	}
}

// back ends what cut began.
func (h *host) back() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.away = false
}

// succeed kills the server, which led a disk, and starts its successor.
func (h *host) succeed(s *server.Server, dead *shareddisk.Handle, disk *shareddisk.Disk, cfg server.Config) *server.Server {
	h.t.Helper()
	dead.Kill()
	disk.Expire()
	s.Close()
	h.cut(true)
	time.Sleep(time.Second)
	cfg, _ = lead(h.t, disk, cfg)
	next := start(h.t, cfg)
	h.follow(next)
	h.back()
	time.Sleep(2 * time.Second) // longer than it waits between attempts
	return next
}

// follow makes the host dial another server from now on.
func (h *host) follow(s *server.Server) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.server = s
}

func (h *host) Reply(r stream.Reply) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.replies[r.Call] = r
}

func (h *host) Standing(s stream.Standing) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.standings = append(h.standings, s)
}

func (h *host) Epoch(s serry.Incarnation) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.epochs = append(h.epochs, s)
}

func (h *host) Up(uint64, serry.Incarnation) {}
func (h *host) Flush()                       {}
func (h *host) Down(error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.downs++
}

// send makes a call on a connection and lets happen what can.
func (h *host) send(c stream.Call, m proto.Message) rpc.CallID {
	h.t.Helper()
	body, err := proto.Marshal(m)
	if err != nil {
		h.t.Fatal(err)
	}
	c.Body = body
	return h.raw(c)
}

// raw is send for a call with a body.
func (h *host) raw(c stream.Call) rpc.CallID {
	h.t.Helper()
	h.mu.Lock()
	h.last++
	c.ID = h.last
	h.mu.Unlock()
	if err := h.Call(c); err != nil {
		h.t.Fatal(err)
	}
	h.Host.Flush()
	synctest.Wait()
	return c.ID
}

// reply is how a call ended; the test fails if it has not.
func (h *host) reply(call rpc.CallID) stream.Reply {
	h.t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	r, ok := h.replies[call]
	if !ok {
		h.t.Fatalf("call %d has not been answered", call)
	}
	return r
}

// waits says that a call has no answer yet.
func (h *host) waits(call rpc.CallID) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, ok := h.replies[call]
	return !ok
}

// known is what the host heard last of a life.
func (h *host) known(own serry.Incarnation) (stream.Standing, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range slices.Backward(h.standings) {
		if s.Incarnation == own {
			return s, true
		}
	}
	return stream.Standing{}, false
}

// incarnation is that of task i in these tests.
func incarnation(i int) serry.Incarnation { return serry.Incarnation(100 + i) }

// register registers task i on a connection of its own, whose number is that of the task plus one.
func (h *host) register(i int) {
	h.t.Helper()
	conn := stream.ConnID(i + 1)
	h.Open(conn)
	h.send(stream.Call{Conn: conn, Number: 1, Method: xlapb.CoordinationService_RegisterTask_FullMethodName},
		&xlapb.RegisterTaskRequest{SourceTaskId: int32(i), Incarnation: uint64(incarnation(i))})
}

// poll holds an error poll of task i.
func (h *host) poll(i int) rpc.CallID {
	h.t.Helper()
	return h.send(stream.Call{Conn: stream.ConnID(i + 1), Method: xlapb.CoordinationService_PollForError_FullMethodName},
		&xlapb.PollForErrorRequest{SourceTaskId: int32(i), Incarnations: &xlapb.Incarnations{TaskIncarnation: uint64(incarnation(i))}})
}

// beat says that task i has sent a heartbeat.
func (h *host) beat(i int) {
	h.Heard(serry.Life{Task: serry.TaskID{Index: i}, Incarnation: incarnation(i)})
}

// beating lets tasks beat for a while.
func beating(d time.Duration, beats map[*host][]int) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		for h, tasks := range beats {
			for _, i := range tasks {
				h.beat(i)
			}
		}
		time.Sleep(timeout / 4)
	}
}

// wantText checks that an error poll ended because of a loss, told in these words.
func wantText(t *testing.T, r stream.Reply, code codes.Code) string {
	t.Helper()
	if r.Status.Code != code {
		t.Errorf("reply %v: %s; want %v", r.Status.Code, r.Status.Message, code)
	}
	return r.Status.Message
}
