package load

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/serry-dev/serry/wire/back"
	"github.com/serry-dev/serry/wire/rpc"
	"github.com/serry-dev/serry/wire/xlapb"
)

// A Cluster is a set of tasks connected to a server. Tasks are dealt to the connections in turn.
type Cluster struct {
	Conns   []Line
	Streams bool // the connections speak serry's own stream, else HTTP/2
	Tasks   int
	Service uint64       // incarnation of the service
	Refused atomic.Int64 // calls that had to be sent again
}

// A Line is a connection that carries the calls of some tasks.
type Line interface {
	Start(task int, method string, request []byte, done back.Done)
	Flush()
	Close()
}

// plainLine is a connection of HTTP/2.
type plainLine struct{ *back.Conn }

// Start implements [Line].
func (l plainLine) Start(_ int, method string, request []byte, done back.Done) {
	l.Conn.Start(method, request, done)
}

// Patience bounds every wait; it is far beyond what any server needs.
const Patience = 2 * time.Minute

// dialers bounds the connections being made at one time.
const dialers = 8

// New is a cluster that is not connected yet.
func New(tasks, conns int) *Cluster {
	return &Cluster{Conns: make([]Line, conns), Tasks: tasks}
}

// Connect makes the connections and registers all tasks, and returns the time from the first dial
// to the last registration answered. Without secure it speaks plain text.
func (c *Cluster) Connect(ctx context.Context, addr string, secure *tls.Config) (time.Duration, error) {
	requests := c.Each(func(task int) proto.Message {
		return &xlapb.RegisterTaskRequest{Incarnation: Incarnation(task), SourceTaskId: int32(task)}
	})
	g := NewGather(c.Tasks)
	start := time.Now()
	if err := c.dial(ctx, addr, secure, requests, g); err != nil {
		return 0, err
	}
	end, last, err := g.Wait(ctx)
	if err != nil {
		return 0, fmt.Errorf("register: %w", err)
	}
	var reply xlapb.RegisterTaskResponse
	if err := proto.Unmarshal(last, &reply); err != nil || reply.ServiceIncarnation == 0 {
		return 0, fmt.Errorf("registration answered %x, error %v: want a service incarnation", last, err)
	}
	c.Service = reply.ServiceIncarnation
	return end.Sub(start), nil
}

func (c *Cluster) dial(ctx context.Context, addr string, secure *tls.Config, requests [][]byte, g *Gather) error {
	var next atomic.Int64
	errs := make([]error, dialers)
	var wg sync.WaitGroup
	for d := range dialers {
		wg.Go(func() {
			for errs[d] == nil {
				i := int(next.Add(1)) - 1
				if i >= len(c.Conns) {
					return
				}
				conn, err := Dial(ctx, addr, LineOptions{Stream: c.Streams, TLS: secure})
				if err != nil {
					errs[d] = err
					return
				}
				c.Conns[i] = conn
				c.callOn(i, RegisterTask, requests, g)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// LineOptions say how a line is made.
type LineOptions struct {
	Stream  bool                                                     // it speaks serry's own stream, else HTTP/2
	TLS     *tls.Config                                              // nil: plain text
	Connect func(ctx context.Context, addr string) (net.Conn, error) // in place of the network, below TLS; or nil
}

// Dial makes a line to a server.
func Dial(ctx context.Context, addr string, o LineOptions) (Line, error) {
	if o.Stream {
		return dialStream(ctx, addr, o)
	}
	conn, err := back.Dial(ctx, addr, back.Options{TLS: o.TLS, Connect: o.Connect})
	return plainLine{conn}, err
}

// Close ends all connections. The server should be gone by then: it takes them for dying tasks.
func (c *Cluster) Close() {
	var wg sync.WaitGroup
	for _, conn := range c.Conns {
		if conn != nil {
			wg.Go(conn.Close)
		}
	}
	wg.Wait()
}

// Conn is the connection of a task.
func (c *Cluster) Conn(task int) Line { return c.Conns[task%len(c.Conns)] }

// callOn sends the calls of the tasks on one connection in one write.
func (c *Cluster) callOn(conn int, method string, requests [][]byte, g *Gather) {
	for task := conn; task < len(requests); task += len(c.Conns) {
		one := &call{c, c.Conns[conn], task, method, requests[task], g, 0}
		one.conn.Start(task, method, one.request, one.done)
	}
	c.Conns[conn].Flush()
}

// A call is one of a wave. The stock service takes in at most about a thousand calls that it has
// not looked at yet; beyond that gRPC answers some of them CANCELLED, unseen by the service. Such a
// call is sent again.
type call struct {
	cluster *Cluster
	conn    Line
	task    int
	method  string
	request []byte
	gather  *Gather
	again   int
}

// Failure is what went wrong with a call, or nil.
func Failure(st rpc.Status, err error) error {
	if err == nil && !st.OK() {
		err = status.Error(st.Code, st.Message)
	}
	return err
}

// maxAgain is how often a call is sent again before that counts as a failure.
const maxAgain = 100

func (k *call) done(reply []byte, st rpc.Status, err error) {
	if st.Code == codes.Canceled && k.again < maxAgain {
		k.again++
		k.cluster.Refused.Add(1)
		k.conn.Start(k.task, k.method, k.request, k.done)
		return
	}
	k.gather.Done(reply, st, err)
}

// All makes one call per task and returns the time from the first one sent to the last reply, and
// that reply.
func (c *Cluster) All(ctx context.Context, method string, requests [][]byte) (time.Duration, []byte, error) {
	g := NewGather(len(requests))
	start := time.Now()
	for i := range c.Conns {
		c.callOn(i, method, requests, g)
	}
	end, last, err := g.Wait(ctx)
	return end.Sub(start), last, err
}

// Hold makes one call per task that is answered much later, or never.
func (c *Cluster) Hold(method string, requests [][]byte) *Gather {
	g := NewGather(len(requests))
	for i := range c.Conns {
		c.callOn(i, method, requests, g)
	}
	return g
}

// A Gather waits for a number of replies, or for the first error among them.
type Gather struct {
	left  atomic.Int64
	once  sync.Once // of ending
	ended chan struct{}

	// Valid once ended is closed: of the last reply, or of the first error.
	last  time.Time
	reply []byte
	err   error
}

// NewGather waits for n replies.
func NewGather(n int) *Gather {
	g := &Gather{ended: make(chan struct{})}
	g.left.Store(int64(n))
	return g
}

// Done takes the end of a call.
func (g *Gather) Done(reply []byte, st rpc.Status, err error) {
	err = Failure(st, err)
	if left := g.left.Add(-1); left > 0 && err == nil {
		return
	}
	g.once.Do(func() {
		g.last, g.reply, g.err = time.Now(), reply, err
		close(g.ended)
	})
}

// Wait returns when the last reply has come: when that was, and the reply.
func (g *Gather) Wait(ctx context.Context) (time.Time, []byte, error) {
	timer := time.NewTimer(Patience)
	defer timer.Stop()
	select {
	case <-g.ended:
		return g.last, g.reply, g.err
	case <-ctx.Done():
		return time.Time{}, nil, context.Cause(ctx)
	case <-timer.C:
		return time.Time{}, nil, fmt.Errorf("%d replies are missing after %v", g.left.Load(), Patience)
	}
}
