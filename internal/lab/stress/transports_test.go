package stress

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/server"
	"github.com/serry-dev/serry/wire/conn"
	"github.com/serry-dev/serry/wire/front"
	"github.com/serry-dev/serry/wire/rpc"
	"github.com/serry-dev/serry/wire/stream"
	"github.com/serry-dev/serry/wire/xlapb"
)

const echo = "/test/Echo"

var methods = rpc.Methods{echo: {MaxRequestBytes: 4 << 20}}

// An echoer answers every call with its body: every third at once, the others from goroutines of their
// own, which flush at the same time.
type echoer struct {
	count atomic.Uint64
	work  sync.WaitGroup
}

func (e *echoer) answer(c rpc.Conn, call rpc.CallID, body []byte) {
	body = bytes.Clone(body)
	if e.count.Add(1)%3 == 0 {
		c.Reply(call, body, rpc.Status{})
		return
	}
	e.work.Go(func() {
		c.Reply(call, body, rpc.Status{})
		c.Flush()
	})
}

// An echoHandler is an echoer for the front.
type echoHandler struct{ echoer }

func (h *echoHandler) Open(rpc.Conn)               {}
func (h *echoHandler) Served(rpc.Conn)             {}
func (h *echoHandler) Cancel(rpc.Conn, rpc.CallID) {}
func (h *echoHandler) Close(rpc.Conn, error)       {}
func (h *echoHandler) Serve(c rpc.Conn, call rpc.CallID, _ string, body []byte) {
	h.answer(c, call, body)
}

// TestFront stresses the front and, at the other end, package back.
func TestFront(t *testing.T) {
	for _, secure := range []bool{false, true} {
		t.Run(fmt.Sprint("tls=", secure), func(t *testing.T) {
			h := new(echoHandler)
			cfg := front.Config{Handler: h, Methods: methods}
			var client *tls.Config
			if secure {
				cfg.TLS, client = certificates(t)
			}
			s, l := front.New(cfg), listen(t)
			var serving sync.WaitGroup
			serving.Go(func() { s.Serve(l) })
			t.Cleanup(func() { s.Close(); serving.Wait(); h.work.Wait() })
			conn := share(t, l.Addr().String(), client)
			drive(t, func(i int) caller { return unary(conn(i), echo) })
		})
	}
}

// TestServer stresses a whole server: values are set and read again.
func TestServer(t *testing.T) {
	s, err := server.New(server.Config{
		Cluster: coord.Config{Jobs: []coord.Job{{Name: "worker", Tasks: 1}}, HeartbeatTimeout: time.Hour},
	})
	if err != nil {
		t.Fatal(err)
	}
	l := listen(t)
	var serving sync.WaitGroup
	serving.Go(func() { s.Serve(l) })
	t.Cleanup(func() { s.Close(); serving.Wait() })
	conn := share(t, l.Addr().String(), nil)
	drive(t, func(i int) caller {
		return keys(serry.TaskID{Job: "key", Index: i}.String(),
			unary(conn(i), xlapb.CoordinationService_InsertKeyValue_FullMethodName),
			unary(conn(i), xlapb.CoordinationService_TryGetKeyValue_FullMethodName))
	})
}

// keys is a caller that sets a key, and reads it.
func keys(key string, set, get caller) caller {
	return func(ctx context.Context, value []byte) ([]byte, error) {
		request, err := proto.Marshal(&xlapb.InsertKeyValueRequest{
			Kv: &xlapb.KeyValueEntry{Key: key, Value: value}, AllowOverwrite: true,
		})
		if err != nil {
			return nil, err
		}
		if _, err := set(ctx, request); err != nil {
			return nil, err
		}
		if request, err = proto.Marshal(&xlapb.TryGetKeyValueRequest{Key: key}); err != nil {
			return nil, err
		}
		body, err := get(ctx, request)
		if err != nil {
			return nil, err
		}
		var reply xlapb.TryGetKeyValueResponse
		err = proto.Unmarshal(body, &reply)
		return reply.GetKv().GetValue(), err
	}
}

// A desk is an echoer for streams.
type desk struct{ echoer }

func (d *desk) Call(c *stream.Conn, call *stream.Call)     { d.answer(c, call.ID, call.Body) }
func (d *desk) Open(*stream.Conn)                          {}
func (d *desk) Served(*stream.Session)                     {}
func (d *desk) Cancel(*stream.Conn, rpc.CallID)            {}
func (d *desk) Shut(*stream.Conn, stream.Ending)           {}
func (d *desk) Heard(*stream.Session, []serry.Life)        {}
func (d *desk) Follow(*stream.Session, []serry.Life)       {}
func (d *desk) Delivered(stream.ConnID, uint64)            {}
func (d *desk) Exited(*stream.Session, serry.Life, string) {}
func (d *desk) Online(*stream.Session)                     {}
func (d *desk) Offline(*stream.Session)                    {}
func (d *desk) Closed(*stream.Session, stream.Closure)     {}
func (d *desk) Bye(*stream.Session)                        {}
func (d *desk) Quiet(*stream.Session, time.Duration)       {}
func (d *desk) Silent([]*stream.Session)                   {}

// A hub wakes callers of a stream. A connection that breaks is a failure: both ends are healthy.
type hub struct {
	t    *testing.T
	over atomic.Bool // the host is about to end
	wait sync.Map    // stream.ConnID -> chan stream.Reply, with room for one
}

func (h *hub) Reply(r stream.Reply) {
	if c, ok := h.wait.Load(r.Conn); ok {
		c.(chan stream.Reply) <- r
	}
}
func (h *hub) Standing(stream.Standing)     {}
func (h *hub) Epoch(serry.Incarnation)      {}
func (h *hub) Up(uint64, serry.Incarnation) {}
func (h *hub) Flush()                       {}
func (h *hub) Down(err error) {
	if !h.over.Load() {
		h.t.Errorf("a healthy connection was lost: %v", err)
	}
}

// An opaque is a connection whose socket is not known: every write may block.
type opaque struct{ net.Conn }

// TestStream stresses serry's own stream: all callers share one connection.
func TestStream(t *testing.T) {
	same := func(c net.Conn) net.Conn { return c }
	t.Run("socket", func(t *testing.T) { testStream(t, same, nil, nil) })
	t.Run("opaque", func(t *testing.T) { testStream(t, func(c net.Conn) net.Conn { return opaque{c} }, nil, nil) })
	t.Run("tls", func(t *testing.T) {
		server, client := certificates(t)
		testStream(t, same, server, client)
	})
}

func testStream(t *testing.T, wrap func(net.Conn) net.Conn, server, client *tls.Config) {
	d, l := new(desk), listen(t)
	s := stream.NewServer(stream.ServerConfig{
		Handler: d, Methods: methods, Term: 1, Service: func() serry.Incarnation { return 7 },
	})
	a := conn.NewAcceptor(conn.AcceptorConfig{
		Protocols: []conn.Protocol{stream.Accept(func(nc net.Conn) { s.Serve(wrap(nc)) })}, TLS: server,
	})
	var serving sync.WaitGroup
	serving.Go(func() { a.Serve(l) })
	sink := &hub{t: t}
	h := stream.NewHost(stream.HostConfig{
		Addresses: []string{l.Addr().String()}, Kind: stream.Relay, Sink: sink, TLS: client,
		Dial: func(ctx context.Context, address string) (net.Conn, error) {
			nc, err := dial(ctx, address)
			if err != nil {
				return nil, err
			}
			return wrap(nc), nil
		},
	})
	t.Cleanup(func() {
		sink.over.Store(true)
		h.Close(context.Background())
		a.Stop()
		s.Shutdown(context.Background())
		serving.Wait()
		a.Wait()
		d.work.Wait()
	})
	drive(t, func(i int) caller { return sink.caller(h, stream.ConnID(i+1)) })
}

// caller makes calls one after the other on a virtual connection of its own.
func (h *hub) caller(host *stream.Host, conn stream.ConnID) caller {
	replies := make(chan stream.Reply, 1)
	h.wait.Store(conn, replies)
	host.Open(conn)
	last := rpc.CallID(0)
	return func(ctx context.Context, value []byte) ([]byte, error) {
		last++
		err := host.Call(stream.Call{Conn: conn, ID: last, Number: uint64(last), Watermark: uint64(last) - 1, Method: echo, Body: value})
		if err != nil {
			return nil, err
		}
		host.Flush()
		select {
		case r := <-replies:
			return r.Body, nil
		case <-ctx.Done():
			return nil, errNoAnswer
		}
	}
}
