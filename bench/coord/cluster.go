package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
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

// A layout says how a cluster is made.
type layout struct {
	tasks, conns int
	identity     *identity // nil: plain text
	real         bool      // the clients are those of jaxlib, else our own
}

func (l layout) String() string {
	s := fmt.Sprintf("%d tasks on %d connections", l.tasks, l.conns)
	if l.identity != nil {
		s += " with mTLS"
	}
	if l.real {
		s += " by jaxlib"
	}
	return s
}

// A cluster is a set of tasks connected to a server. Tasks are dealt to the connections in turn.
type cluster struct {
	conns   []*back.Conn
	tasks   int
	service uint64       // incarnation of the service
	refused atomic.Int64 // calls that had to be sent again
}

// dialers bounds the connections being made at one time.
const dialers = 8

func newCluster(l layout) *cluster {
	return &cluster{conns: make([]*back.Conn, l.conns), tasks: l.tasks}
}

// connect makes the connections and registers all tasks, and returns the time from the first dial
// to the last registration answered.
func (c *cluster) connect(ctx context.Context, addr string, id *identity) (time.Duration, error) {
	requests := c.each(func(task int) proto.Message {
		return &xlapb.RegisterTaskRequest{Incarnation: incarnation(task), SourceTaskId: int32(task)}
	})
	g := newGather(c.tasks)
	start := time.Now()
	if err := c.dial(ctx, addr, id, requests, g); err != nil {
		return 0, err
	}
	end, last, err := g.wait(ctx)
	if err != nil {
		return 0, fmt.Errorf("register: %w", err)
	}
	var reply xlapb.RegisterTaskResponse
	if err := proto.Unmarshal(last, &reply); err != nil || reply.ServiceIncarnation == 0 {
		return 0, fmt.Errorf("registration answered %x, error %v: want a service incarnation", last, err)
	}
	c.service = reply.ServiceIncarnation
	return end.Sub(start), nil
}

func (c *cluster) dial(ctx context.Context, addr string, id *identity, requests [][]byte, g *gather) error {
	var secure *tls.Config
	if id != nil {
		secure = id.load
	}
	var next atomic.Int64
	errs := make([]error, dialers)
	var wg sync.WaitGroup
	for d := range dialers {
		wg.Go(func() {
			for errs[d] == nil {
				i := int(next.Add(1)) - 1
				if i >= len(c.conns) {
					return
				}
				conn, err := back.Dial(ctx, addr, back.Options{TLS: secure})
				if err != nil {
					errs[d] = err
					return
				}
				c.conns[i] = conn
				c.callOn(i, registerTask, requests, g)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// close ends all connections. The server should be gone by then: it takes them for dying tasks.
func (c *cluster) close() {
	var wg sync.WaitGroup
	for _, conn := range c.conns {
		if conn != nil {
			wg.Go(conn.Close)
		}
	}
	wg.Wait()
}

// conn is the connection of a task.
func (c *cluster) conn(task int) *back.Conn { return c.conns[task%len(c.conns)] }

// callOn sends the calls of the tasks on one connection in one write.
func (c *cluster) callOn(conn int, method string, requests [][]byte, g *gather) {
	for task := conn; task < len(requests); task += len(c.conns) {
		one := &call{c, c.conns[conn], method, requests[task], g, 0}
		one.conn.Start(method, one.request, one.done)
	}
	c.conns[conn].Flush()
}

// A call is one of a wave. The stock service takes in at most about a thousand calls that it has
// not looked at yet; beyond that gRPC answers some of them CANCELLED, unseen by the service. Such a
// call is sent again.
type call struct {
	cluster *cluster
	conn    *back.Conn
	method  string
	request []byte
	gather  *gather
	again   int
}

// failure is what went wrong with a call, or nil.
func failure(st rpc.Status, err error) error {
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
		k.cluster.refused.Add(1)
		k.conn.Start(k.method, k.request, k.done)
		return
	}
	k.gather.done(reply, st, err)
}

// all makes one call per task and returns the time from the first one sent to the last reply, and
// that reply.
func (c *cluster) all(ctx context.Context, method string, requests [][]byte) (time.Duration, []byte, error) {
	g := newGather(len(requests))
	start := time.Now()
	for i := range c.conns {
		c.callOn(i, method, requests, g)
	}
	end, last, err := g.wait(ctx)
	return end.Sub(start), last, err
}

// hold makes one call per task that is answered much later, or never.
func (c *cluster) hold(method string, requests [][]byte) *gather {
	g := newGather(len(requests))
	for i := range c.conns {
		c.callOn(i, method, requests, g)
	}
	return g
}

// A gather waits for a number of replies, or for the first error among them.
type gather struct {
	left  atomic.Int64
	once  sync.Once // of ending
	ended chan struct{}

	// Valid once ended is closed: of the last reply, or of the first error.
	last  time.Time
	reply []byte
	err   error
}

func newGather(n int) *gather {
	g := &gather{ended: make(chan struct{})}
	g.left.Store(int64(n))
	return g
}

func (g *gather) done(reply []byte, st rpc.Status, err error) {
	err = failure(st, err)
	if left := g.left.Add(-1); left > 0 && err == nil {
		return
	}
	g.once.Do(func() {
		g.last, g.reply, g.err = time.Now(), reply, err
		close(g.ended)
	})
}

// wait returns when the last reply has come: when that was, and the reply.
func (g *gather) wait(ctx context.Context) (time.Time, []byte, error) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-g.ended:
		return g.last, g.reply, g.err
	case <-ctx.Done():
		return time.Time{}, nil, context.Cause(ctx)
	case <-timer.C:
		return time.Time{}, nil, fmt.Errorf("%d replies are missing after %v", g.left.Load(), patience)
	}
}
