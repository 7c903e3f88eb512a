package server_test

import (
	"net"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/server"
	"github.com/serry-dev/serry/wire/rpc"
)

// A fakeConn is a connection without a transport: what is sent to it is kept.
type fakeConn struct {
	handler rpc.Handler

	mu struct {
		sync.Mutex
		last    rpc.CallID
		replies map[rpc.CallID]fakeReply
		flushes int
		dirty   bool // replies since the last flush
	}
}

type fakeReply struct {
	body   []byte
	status rpc.Status
}

func dialFake(t testing.TB, s *server.Server) *fakeConn {
	c := &fakeConn{handler: s.Handler()}
	c.mu.replies = make(map[rpc.CallID]fakeReply)
	c.handler.Open(c)
	t.Cleanup(func() { c.handler.Close(c, net.ErrClosed) })
	return c
}

func (c *fakeConn) Reply(call rpc.CallID, body []byte, st rpc.Status) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.replies[call] = fakeReply{body, st}
	c.mu.dirty = true
}

func (c *fakeConn) Flush() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.flushes++
	c.mu.dirty = false
}

func (c *fakeConn) RemoteAddr() net.Addr { return &net.UnixAddr{} }

// send makes a call.
func (c *fakeConn) send(t testing.TB, method string, m proto.Message) rpc.CallID {
	t.Helper()
	body, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return c.sendBytes(method, body)
}

func (c *fakeConn) sendBytes(method string, body []byte) rpc.CallID {
	c.mu.Lock()
	c.mu.last++
	call := c.mu.last
	c.mu.Unlock()
	c.handler.Serve(c, call, method, body)
	c.handler.Served(c)
	return call
}

// reply is how a call ended, if it has.
func (c *fakeConn) reply(call rpc.CallID) (fakeReply, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r, ok := c.mu.replies[call]
	return r, ok
}

// code is how a call ended; the test fails if it has not.
func (c *fakeConn) code(t testing.TB, what string, call rpc.CallID) codes.Code {
	t.Helper()
	r, ok := c.reply(call)
	if !ok {
		t.Fatalf("%s has not been answered", what)
	}
	return r.status.Code
}

func serryTask(i int) serry.TaskID { return serry.TaskID{Job: "worker", Index: i} }
