package node_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/serry-dev/serry/client"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/internal/lab"
	"github.com/serry-dev/serry/internal/lab/shareddisk"
	"github.com/serry-dev/serry/node"
	"github.com/serry-dev/serry/server"
	"github.com/serry-dev/serry/wire"
	"github.com/serry-dev/serry/wire/xlapb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// leaseTTL is much longer than any take-over that does not wait for it.
const leaseTTL = 30 * time.Second

// A cluster is a service of several nodes on one disk, in memory.
type cluster struct {
	disk  *shareddisk.Disk
	nodes map[string]*process
	depos atomic.Int32 // depositions
	loops atomic.Int32 // connections by the network of nodes to themselves

	walled atomic.Bool // a firewall refuses connections between nodes, not those of clients

	mu struct {
		sync.Mutex
		doors map[string]*bufconn.Listener // addresses that answer
		hung  map[string]bool              // addresses that are silent
		conns map[string][]net.Conn        // by the address that was dialled
	}
}

// A process is a node with what a crash takes from it.
type process struct {
	*node.Node
	address string
	seat    *shareddisk.Handle
	served  chan error
}

// start makes a cluster of nodes a, b and c, led by a.
func start(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{nodes: make(map[string]*process)}
	c.disk = shareddisk.New(shareddisk.Config{LeaseTTL: leaseTTL, Fault: func(op shareddisk.Op) error {
		if op.Action == shareddisk.OpDepose && op.Done {
			c.depos.Add(1)
		}
		return nil
	}})
	c.mu.doors = make(map[string]*bufconn.Listener)
	c.mu.hung = make(map[string]bool)
	c.mu.conns = make(map[string][]net.Conn)
	for _, name := range []string{"a", "b", "c"} {
		c.join(t, name)
		synctest.Wait()
	}
	c.waitFor(t, "a")
	return c
}

// join starts a node.
func (c *cluster) join(t *testing.T, name string) *process {
	t.Helper()
	p := &process{address: name, seat: c.disk.Open(), served: make(chan error, 1)}
	l := bufconn.Listen(256 << 10)
	c.mu.Lock()
	c.mu.doors[name] = l
	c.mu.Unlock()
	n, err := node.New(node.Config{
		Store: p.seat, Address: name,
		Dial: func(ctx context.Context, address string) (net.Conn, error) {
			if c.walled.Load() && address != name {
				return nil, syscall.ECONNREFUSED
			}
			if address == name {
				c.loops.Add(1)
			}
			return c.dial(ctx, address)
		},
		Server: server.Config{Cluster: coord.Config{
			Jobs:            []coord.Job{{Name: "worker", Tasks: 2}},
			RegisterBarrier: true, RegisterTimeout: time.Hour,
			HeartbeatTimeout: time.Minute, ShutdownTimeout: time.Minute,
		}},
	})
	if err != nil {
		t.Fatalf("New() = %v", err)
	}
	p.Node = n
	go func() { p.served <- n.Serve(l) }()
	t.Cleanup(func() {
		p.Shutdown(context.Background())
		p.seat.Close()
		<-p.served
	})
	c.nodes[name] = p
	return p
}

func (c *cluster) dial(ctx context.Context, address string) (net.Conn, error) {
	c.mu.Lock()
	l, hung := c.mu.doors[address], c.mu.hung[address]
	c.mu.Unlock()
	switch {
	case hung:
		<-ctx.Done()
		return nil, context.Cause(ctx)
	case l == nil:
		return nil, syscall.ECONNREFUSED
	}
	nc, err := l.DialContext(ctx)
	if err != nil {
		return nil, syscall.ECONNREFUSED
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.conns[address] = append(c.mu.conns[address], nc)
	return nc, nil
}

// cut breaks the connections that were made to an address.
func (c *cluster) cut(address string) {
	c.mu.Lock()
	conns := c.mu.conns[address]
	delete(c.mu.conns, address)
	c.mu.Unlock()
	for _, nc := range conns {
		nc.Close()
	}
}

// kill takes a process away: its address refuses, its connections break, its lease is not renewed.
func (c *cluster) kill(name string) {
	c.mu.Lock()
	l := c.mu.doors[name]
	delete(c.mu.doors, name)
	c.mu.Unlock()
	c.nodes[name].seat.Kill()
	l.Close()
	c.cut(name)
}

// waitFor waits until a node leads.
func (c *cluster) waitFor(t *testing.T, name string) (took time.Duration) {
	t.Helper()
	began := time.Now()
	for range 100_000 {
		if _, here := c.nodes[name].Leader(); here {
			return time.Since(began)
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatalf("node %s does not lead after %v", name, time.Since(began))
	return 0
}

// A task is a client of one of the nodes.
type task struct {
	xlapb.CoordinationServiceClient
	id  int32
	who *xlapb.Incarnations
}

// connect makes a client of a node.
func (c *cluster) connect(t *testing.T, address string) xlapb.CoordinationServiceClient {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+address,
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(c.dial), grpc.WithIdleTimeout(0))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return xlapb.NewCoordinationServiceClient(conn)
}

// status asks for the status of the service at a node.
func (c *cluster) status(t *testing.T, address string) wire.Status {
	t.Helper()
	line, err := client.Dial(address, client.DialOptions{Connect: c.dial})
	if err != nil {
		t.Fatal(err)
	}
	defer line.Close()
	path, body, err := wire.StatusQuery{}.Request()
	if err != nil {
		t.Fatal(err)
	}
	reply, _, err := line.Call(t.Context(), path, body)
	if err != nil {
		t.Fatal(err)
	}
	s, err := wire.ReadStatus(reply)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// tasks registers two tasks at two nodes.
func (c *cluster) tasks(t *testing.T, at ...string) []*task {
	t.Helper()
	var all []*task
	ends := make(chan error, len(at))
	for i, address := range at {
		k := &task{c.connect(t, address), int32(i), &xlapb.Incarnations{TaskIncarnation: uint64(100 + i)}}
		all = append(all, k)
		go func() {
			r, err := k.RegisterTask(t.Context(), &xlapb.RegisterTaskRequest{SourceTaskId: k.id, Incarnation: k.who.TaskIncarnation}, grpc.WaitForReady(true))
			k.who.ServiceIncarnation = r.GetServiceIncarnation()
			ends <- err
		}()
	}
	for range at {
		if err := <-ends; err != nil {
			t.Fatalf("RegisterTask() = %v", err)
		}
	}
	return all
}

func (k *task) barrier(ctx context.Context, id string) error {
	_, err := k.Barrier(ctx, &xlapb.BarrierRequest{
		Incarnations: k.who, SourceTaskId: k.id, BarrierId: id, BarrierTimeoutInMs: time.Hour.Milliseconds(),
	})
	return err
}

func (k *task) increment(ctx context.Context) (string, error) {
	r, err := k.IncrementKeyValue(ctx, &xlapb.IncrementKeyValueRequest{Incarnations: k.who, Key: "n", Increment: 1})
	return string(r.GetKv().GetValue()), err
}

func (k *task) poll(ctx context.Context) error {
	_, err := k.PollForError(ctx, &xlapb.PollForErrorRequest{Incarnations: k.who, SourceTaskId: k.id})
	return err
}

func async(f func() error) <-chan error {
	end := make(chan error, 1)
	go func() { end <- f() }()
	return end
}

func pending(t *testing.T, what string, end <-chan error) {
	t.Helper()
	synctest.Wait()
	select {
	case err := <-end:
		t.Errorf("%s = %v; want it to wait", what, err)
	default:
	}
}

func TestKilledLeaderIsReplacedAtOnce(t *testing.T) {
	lab.Clause(t, "C-TERM-3", "NEW-50", "A-HA-9", "A-SIDE-0", "D-SC-14")
	synctest.Test(t, func(t *testing.T) {
		c := start(t)
		tasks := c.tasks(t, "b", "c") // neither of them leads
		polls := []<-chan error{
			async(func() error { return tasks[0].poll(t.Context()) }),
			async(func() error { return tasks[1].poll(t.Context()) }),
		}
		if n, err := tasks[0].increment(t.Context()); n != "1" || err != nil {
			t.Fatalf("IncrementKeyValue() = %q, %v", n, err)
		}
		held := async(func() error { return tasks[0].barrier(t.Context(), "b") })
		synctest.Wait()
		c.kill("a")
		if took := c.waitFor(t, "b"); took > leaseTTL/10 {
			t.Errorf("the killed leader was replaced after %v; want that not to wait for its lease of %v", took, leaseTTL)
		}
		if err := errors.Join(tasks[1].barrier(t.Context(), "b"), <-held); err != nil {
			t.Errorf("Barrier() over the death of the leader = %v; want OK", err)
		}
		if n, err := tasks[1].increment(t.Context()); n != "2" || err != nil {
			t.Errorf("IncrementKeyValue() after the death of the leader = %q, %v; want 2", n, err)
		}
		for _, p := range polls {
			pending(t, "PollForError()", p)
		}
		if s := c.status(t, "c"); s.Leader != "b" || s.Takeover == nil || s.Takeover.From != "a" || s.Takeover.TookSeconds <= 0 || s.Takeover.TookSeconds > leaseTTL.Seconds() {
			t.Errorf("Takeover = %+v of leader %q; want b in the place of a, after some time", s.Takeover, s.Leader)
		}
	})
}

// Servers that refuse each other, though all of them are well, do not take the leadership from each other
// for ever.
func TestServersThatRefuseEachOther(t *testing.T) {
	lab.Clause(t, "C-TERM-3", "NEW-50")
	synctest.Test(t, func(t *testing.T) {
		c := start(t)
		c.walled.Store(true)
		for _, name := range []string{"a", "b", "c"} {
			c.cut(name)
		}
		time.Sleep(time.Minute)
		settled := c.depos.Load()
		if settled > 6 { // each of three may depose each of the others once
			t.Errorf("%d depositions in a minute; want each node to depose each other one once at most", settled)
		}
		time.Sleep(10 * time.Minute)
		if got := c.depos.Load(); got != settled {
			t.Errorf("%d depositions in ten minutes after that; want none", got-settled)
		}

		// Once they reach each other again, a killed leader is replaced at once, as ever.
		c.walled.Store(false)
		time.Sleep(time.Minute)
		l, _ := c.nodes["a"].Leader()
		c.kill(l.Address)
		next := map[string]string{"a": "b", "b": "a", "c": "a"}[l.Address]
		began := time.Now()
		for {
			if now, _ := c.nodes[next].Leader(); now.Term > l.Term {
				break
			}
			if time.Since(began) > leaseTTL/10 {
				t.Fatalf("the killed leader %s was not replaced after %v", l.Address, time.Since(began))
			}
			time.Sleep(time.Millisecond)
		}
	})
}

func TestBrokenConnectionOfALivingLeader(t *testing.T) {
	lab.Clause(t, "C-TERM-3", "NEW-50")
	synctest.Test(t, func(t *testing.T) {
		c := start(t)
		for range 5 {
			c.cut("a")
			time.Sleep(time.Second)
		}
		if l, here := c.nodes["a"].Leader(); !here || l.Term != 1 || c.depos.Load() != 0 {
			t.Errorf("after broken connections %v leads with term %d, %d depositions; want a with term 1", l.Address, l.Term, c.depos.Load())
		}
	})
}

func TestSilentLeaderKeepsItsLease(t *testing.T) {
	lab.Clause(t, "C-TERM-3", "NEW-50", "C-TERM-2")
	synctest.Test(t, func(t *testing.T) {
		c := start(t)
		began := time.Now()
		c.mu.Lock()
		c.mu.hung["a"] = true
		c.mu.Unlock()
		c.nodes["a"].seat.Cut()
		c.waitFor(t, "b")
		if took := time.Since(began); took < leaseTTL || c.depos.Load() != 0 {
			t.Errorf("the silent leader was replaced after %v, with %d depositions; want after its lease of %v", took, c.depos.Load(), leaseTTL)
		}
		c.nodes["a"].seat.Heal()
		synctest.Wait()
		time.Sleep(time.Second)
		if l, here := c.nodes["a"].Leader(); here || l.Address != "b" {
			t.Errorf("the former leader knows %v as leader, itself: %v; want b", l.Address, here)
		}
	})
}

func TestHandover(t *testing.T) {
	lab.Clause(t, "C-STOP-4", "NEW-51", "A-HA-7", "A-HA-8", "C-LOG-4")
	synctest.Test(t, func(t *testing.T) {
		c := start(t)
		tasks := c.tasks(t, "a", "b") // one at the leader itself
		poll := async(func() error { return tasks[0].poll(t.Context()) })
		held := async(func() error { return tasks[0].barrier(t.Context(), "b") })
		get := async(func() error {
			_, err := tasks[1].GetKeyValue(t.Context(), &xlapb.GetKeyValueRequest{Incarnations: tasks[1].who, Key: "later"})
			return err
		})
		synctest.Wait()
		began := time.Now()
		if err := c.nodes["a"].Handover(t.Context()); err != nil {
			t.Fatalf("Handover() = %v", err)
		}
		c.waitFor(t, "b")
		if took := time.Since(began); took > time.Second {
			t.Errorf("the hand-over took %v; want milliseconds", took)
		}
		for what, end := range map[string]<-chan error{"PollForError()": poll, "Barrier()": held, "GetKeyValue()": get} {
			pending(t, what+" over a hand-over", end)
		}
		if _, err := tasks[0].InsertKeyValue(t.Context(), &xlapb.InsertKeyValueRequest{
			Incarnations: tasks[0].who, Kv: &xlapb.KeyValueEntry{Key: "later", Value: []byte("v")},
		}); err != nil {
			t.Errorf("InsertKeyValue() at the successor = %v", err)
		}
		if err := errors.Join(tasks[1].barrier(t.Context(), "b"), <-held, <-get); err != nil {
			t.Errorf("calls that waited over the hand-over = %v; want OK", err)
		}
		if s := c.status(t, "b"); s.Takeover == nil || s.Takeover.From != "a" || s.Takeover.TookSeconds != 0 {
			t.Errorf("Takeover = %+v; want b in the place of a, by a hand-over", s.Takeover)
		}
		if err := c.nodes["a"].Handover(t.Context()); !errors.Is(err, node.ErrStandby) {
			t.Errorf("Handover() of a node that stands by = %v; want %v", err, node.ErrStandby)
		}
		pending(t, "PollForError()", poll)
	})
}

func TestShutdownHandsOver(t *testing.T) {
	lab.Clause(t, "C-STOP-4", "NEW-51", "A-HA-7")
	synctest.Test(t, func(t *testing.T) {
		c := start(t)
		tasks := c.tasks(t, "b", "c")
		poll := async(func() error { return tasks[0].poll(t.Context()) })
		held := async(func() error { return tasks[1].barrier(t.Context(), "b") })
		synctest.Wait()
		c.nodes["a"].Shutdown(t.Context())
		pending(t, "PollForError()", poll)
		pending(t, "Barrier()", held)
		c.waitFor(t, "b")

		// The next one has a client of its own: its poll ends as a client can bear, and its calls go on
		// elsewhere.
		c.nodes["b"].Shutdown(t.Context())
		if got := status.Code(<-poll); got != codes.Canceled {
			t.Errorf("PollForError() at a node that ends = %v; want CANCELLED", got)
		}
		c.waitFor(t, "c")
		pending(t, "Barrier() at another node", held)
	})
}

// All nodes are told to end at once, as by a restart of every host. The one that is started next goes on
// with the job.
func TestShutdownOfAllNodesLeavesTheJob(t *testing.T) {
	lab.Clause(t, "C-STOP-4", "NEW-51")
	synctest.Test(t, func(t *testing.T) {
		c := start(t)
		tasks := c.tasks(t, "b", "c")
		if n, err := tasks[0].increment(t.Context()); n != "1" || err != nil {
			t.Fatalf("IncrementKeyValue() = %q, %v", n, err)
		}
		held := async(func() error { return tasks[0].barrier(t.Context(), "b") })
		poll := async(func() error { return tasks[1].poll(t.Context()) })
		synctest.Wait()
		before := c.nodes["a"].Server().View()
		var ends sync.WaitGroup
		for _, n := range c.nodes {
			ends.Go(func() { n.Shutdown(t.Context()) })
		}
		ends.Wait()
		if got := status.Code(<-held); got != codes.Unavailable {
			t.Errorf("Barrier() of a direct client = %v; want UNAVAILABLE", got)
		}
		if got := status.Code(<-poll); got != codes.Canceled {
			t.Errorf("PollForError() of a direct client = %v; want CANCELLED, which it outlives", got)
		}
		time.Sleep(leaseTTL)

		c.join(t, "d")
		c.waitFor(t, "d")
		if after := c.nodes["d"].Server().View(); after.Service != before.Service || after.Epoch != before.Epoch || after.Stopped {
			t.Errorf("the node that was started next serves epoch %d of %x; want epoch %d of %x", after.Epoch, after.Service, before.Epoch, before.Service)
		}
		for _, k := range tasks {
			k.CoordinationServiceClient = c.connect(t, "d")
		}
		if n, err := tasks[1].increment(t.Context()); n != "2" || err != nil {
			t.Errorf("IncrementKeyValue() after the restart = %q, %v; want 2", n, err)
		}
		again := async(func() error { return tasks[0].barrier(t.Context(), "b") })
		if err := errors.Join(tasks[1].barrier(t.Context(), "b"), <-again); err != nil {
			t.Errorf("Barrier() after the restart = %v; want OK", err)
		}
	})
}

// The last node has no other to hand over to.
func TestHandoverOfTheLastNode(t *testing.T) {
	lab.Clause(t, "C-STOP-4")
	synctest.Test(t, func(t *testing.T) {
		c := start(t)
		for _, name := range []string{"b", "a"} {
			c.nodes[name].Shutdown(t.Context())
		}
		c.waitFor(t, "c")
		if err := c.nodes["c"].Handover(t.Context()); !errors.Is(err, node.ErrNoSuccessor) {
			t.Errorf("Handover() of the last node = %v; want %v", err, node.ErrNoSuccessor)
		}
	})
}

// Stop ends the job for everybody, and the nodes stand for the next one.
func TestStopEndsTheJob(t *testing.T) {
	lab.Clause(t, "C-STOP-1", "C-STOP-4", "NEW-51", "C-EPOCH-2")
	synctest.Test(t, func(t *testing.T) {
		c := start(t)
		tasks := c.tasks(t, "b", "c")
		held := async(func() error { return tasks[0].barrier(t.Context(), "b") })
		poll := async(func() error { return tasks[1].poll(t.Context()) })
		synctest.Wait()
		if err := c.nodes["b"].Stop(t.Context()); !errors.Is(err, node.ErrStandby) {
			t.Errorf("Stop() of a node that stands by = %v; want %v", err, node.ErrStandby)
		}
		if err := c.nodes["a"].Stop(t.Context()); err != nil {
			t.Errorf("Stop() = %v", err)
		}
		if got := status.Code(<-held); got != codes.Aborted {
			t.Errorf("Barrier() of a service that ends = %v; want ABORTED", got)
		}
		if got := status.Code(<-poll); got != codes.Canceled {
			t.Errorf("PollForError() of a service that ends = %v; want CANCELLED", got)
		}
		c.waitFor(t, "b")
		if v := c.nodes["b"].Server().View(); v.Epoch != 2 || v.Stopped {
			t.Errorf("after Stop() epoch %d is served, stopped: %v; want the next one", v.Epoch, v.Stopped)
		}
	})
}

func TestNodeOfAnotherJobEnds(t *testing.T) {
	lab.Clause(t, "C-EPOCH-2", "NEW-51")
	synctest.Test(t, func(t *testing.T) {
		c := start(t)
		c.tasks(t, "a", "a")
		c.nodes["b"].Shutdown(t.Context())
		c.nodes["c"].Shutdown(t.Context())
		seat := c.disk.Open()
		other, err := node.New(node.Config{
			Store: seat, Address: "d", Dial: c.dial,
			Server: server.Config{Cluster: coord.Config{Jobs: []coord.Job{{Name: "worker", Tasks: 3}}}},
		})
		if err != nil {
			t.Fatalf("New() = %v", err)
		}
		defer seat.Close()
		synctest.Wait()
		if err := c.nodes["a"].Handover(t.Context()); err != nil {
			t.Fatalf("Handover() = %v", err)
		}
		<-other.Done()
		if err := other.Err(); !errors.Is(err, server.ErrOtherJob) {
			t.Errorf("Err() = %v; want %v", err, server.ErrOtherJob)
		}
		c.waitFor(t, "a")
	})
}

func TestManyLeaders(t *testing.T) {
	lab.Clause(t, "C-REQ-2", "NEW-25", "NEW-50")
	synctest.Test(t, func(t *testing.T) {
		c := start(t)
		tasks := c.tasks(t, "a", "b")
		stop := make(chan struct{})
		counted := make(chan error, 1)
		go func() {
			for i := 1; ; i++ {
				n, err := tasks[1].increment(t.Context())
				if err != nil || n != fmt.Sprint(i) {
					counted <- fmt.Errorf("increment %d gave %q, %v", i, n, err)
					return
				}
				select {
				case <-stop:
					counted <- nil
					return
				case <-time.After(3 * time.Millisecond):
				}
			}
		}()
		for range 10 {
			time.Sleep(time.Second)
			for _, n := range c.nodes {
				if _, here := n.Leader(); here {
					if err := n.Handover(t.Context()); err != nil {
						t.Errorf("Handover() = %v", err)
					}
					break
				}
			}
		}
		close(stop)
		if err := <-counted; err != nil {
			t.Errorf("increments over ten leaders: %v", err)
		}
	})
}

// A client of the leader reaches it in memory. When the leadership moves, and comes back, its calls go
// where the leader is, and each takes effect once.
func TestClientOfTheLeader(t *testing.T) {
	lab.Clause(t, "A-HA-8", "A-SIDE-2", "C-REQ-2")
	synctest.Test(t, func(t *testing.T) {
		c := start(t)
		task := c.tasks(t, "a", "a")[0]
		done := make(chan struct{})
		ended := async(func() error {
			for i := 1; ; i++ {
				if n, err := task.increment(t.Context()); err != nil || n != fmt.Sprint(i) {
					return fmt.Errorf("increment %d = %s, %w", i, n, err)
				}
				select {
				case <-done:
					return nil
				case <-time.After(time.Millisecond):
				}
			}
		})
		for _, next := range []string{"b", "c", "a", "b", "c", "a"} {
			time.Sleep(time.Second)
			for _, p := range c.nodes {
				if _, here := p.Leader(); here {
					if err := p.Handover(t.Context()); err != nil {
						t.Fatalf("Handover() = %v", err)
					}
					break
				}
			}
			c.waitFor(t, next)
		}
		time.Sleep(time.Second)
		close(done)
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if n := c.loops.Load(); n != 0 {
			t.Errorf("nodes have connected to themselves by the network %d times; want never", n)
		}
	})
}
