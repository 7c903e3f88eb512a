package server_test

import (
	"bytes"
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/lab"
	"github.com/serry-dev/serry/internal/lab/shareddisk"
	"github.com/serry-dev/serry/wire/rpc"
	"github.com/serry-dev/serry/wire/stream"
	"github.com/serry-dev/serry/wire/xlapb"
)

// A slowDisk is a store whose writes can be made to stand still.
type slowDisk struct {
	*shareddisk.Disk
	stuck atomic.Pointer[chan struct{}]
}

func newSlowDisk() *slowDisk {
	d := &slowDisk{}
	d.Disk = shareddisk.New(shareddisk.Config{Fault: func(op shareddisk.Op) error {
		if thawed := d.stuck.Load(); thawed != nil && op.Action == shareddisk.OpAppend && !op.Done {
			<-*thawed
		}
		return nil
	}})
	return d
}

// freeze lets no write end until thaw is called.
func (d *slowDisk) freeze() (thaw func()) {
	thawed := make(chan struct{})
	d.stuck.Store(&thawed)
	return func() {
		d.stuck.Store(nil)
		close(thawed)
	}
}

// insertBody is a call that writes a key with a value of so many bytes.
func insertBody(t *testing.T, own uint64, key string, size int) []byte {
	t.Helper()
	body, err := proto.Marshal(&xlapb.InsertKeyValueRequest{
		Incarnations: &xlapb.Incarnations{TaskIncarnation: own},
		Kv:           &xlapb.KeyValueEntry{Key: key, Value: make([]byte, size)},
	})
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// flood makes so many calls that a journal which stands still takes no more: almost as many waves as may
// wait for it, and then large calls that were read together and make up several waves.
func (c *fakeConn) flood(t *testing.T, own uint64) (calls []rpc.CallID) {
	t.Helper()
	const method = xlapb.CoordinationService_InsertKeyValue_FullMethodName
	for i := range 64 {
		calls = append(calls, c.sendBytes(method, insertBody(t, own, fmt.Sprint("small/", i), 1)))
		synctest.Wait()
	}
	for i := range 40 {
		c.mu.Lock()
		c.mu.last++
		call := c.mu.last
		c.mu.Unlock()
		c.handler.Serve(c, call, method, insertBody(t, own, fmt.Sprint("large/", i), 60_000))
		calls = append(calls, call)
	}
	c.handler.Served(c)
	return calls
}

// A journal that stands still never keeps a reader from its connection: heartbeats are read and answered,
// and no call is lost.
func TestSlowJournalDoesNotBlockReaders(t *testing.T) {
	lab.Clause(t, "C-HB-8", "C-LOST-6", "C-LOG-2")
	synctest.Test(t, func(t *testing.T) {
		disk := newSlowDisk()
		cfg, _ := lead(t, disk.Disk, cluster(1))
		s := start(t, cfg)
		c := dialFake(t, s)
		c.send(t, xlapb.CoordinationService_RegisterTask_FullMethodName, &xlapb.RegisterTaskRequest{Incarnation: 7})
		synctest.Wait()
		thaw := disk.freeze()
		var calls []rpc.CallID
		read := make(chan struct{})
		go func() {
			calls = c.flood(t, 7)
			close(read)
		}()
		time.Sleep(time.Second)
		select {
		case <-read:
		default:
			t.Error("a reader waits for the journal")
			thaw()
			<-read
			return
		}
		for range 3 * timeout / time.Second { // far beyond the heartbeat timeout
			beat := c.send(t, xlapb.CoordinationService_Heartbeat_FullMethodName, &xlapb.HeartbeatRequest{Incarnation: 7})
			if code := c.code(t, "Heartbeat", beat); code != codes.OK {
				t.Fatalf("Heartbeat() while the journal stands still = %v; want OK", code)
			}
			time.Sleep(time.Second)
		}
		thaw()
		time.Sleep(time.Second) // writes wait a little for each other
		for _, call := range calls {
			if code := c.code(t, fmt.Sprint("call ", call), call); code != codes.OK {
				t.Errorf("call %d after the journal stood still = %v; want OK", call, code)
			}
		}
		if got := s.View().Tasks[0]; got.State != serry.Connected {
			t.Errorf("the task is %v, %v; want connected", got.State, got.Err)
		}
	})
}

// The same behind streams: while the disk stands still for longer than a host may be silent, hosts publish
// large values, live and beat.
func TestSlowDiskIsNoSilentHost(t *testing.T) {
	lab.Clause(t, "C-LOST-5", "C-LOST-6")
	const n = 30
	synctest.Test(t, func(t *testing.T) {
		disk := newSlowDisk()
		cfg, _ := lead(t, disk.Disk, cluster(n))
		s := start(t, cfg)
		hosts := make([]*host, n)
		for i := range hosts {
			hosts[i] = dialHost(t, s, stream.Relay)
			hosts[i].register(i)
		}
		thaw := disk.freeze()
		calls := make([][]rpc.CallID, n)
		for round := range 8 {
			for i, h := range hosts {
				calls[i] = append(calls[i], h.raw(stream.Call{
					Conn: stream.ConnID(i + 1), Number: uint64(2 + round), Method: xlapb.CoordinationService_InsertKeyValue_FullMethodName,
					Body: insertBody(t, uint64(incarnation(i)), fmt.Sprint(i, "/", round), 60_000),
				}))
			}
		}
		beats := make(map[*host][]int)
		for i, h := range hosts {
			beats[h] = []int{i}
		}
		beating(2*stream.SilentAfter, beats)
		thaw()
		beating(stream.SilentAfter, beats)
		for i, h := range hosts {
			if got := s.View().Tasks[i]; got.State != serry.Connected {
				t.Errorf("task %d, which lives and beats, is %v: %v", i, got.State, got.Err)
			}
			for _, call := range calls[i] {
				if r := h.reply(call); !r.Status.OK() {
					t.Errorf("InsertKeyValue() of host %d = %v; want OK", i, r.Status)
				}
			}
		}
	})
}

// What a stalled journal leaves waiting has a bound: calls beyond it are refused, vital ones are not, and
// the server goes on when the journal does.
func TestSlowJournalLeavesBoundedWork(t *testing.T) {
	lab.Clause(t, "C-LIM-1", "NEW-62")
	synctest.Test(t, func(t *testing.T) {
		disk := newSlowDisk()
		cfg := cluster(1)
		cfg.Limits.QueueEvents = 50
		cfg, _ = lead(t, disk.Disk, cfg)
		s := start(t, cfg)
		c := dialFake(t, s)
		c.send(t, xlapb.CoordinationService_RegisterTask_FullMethodName, &xlapb.RegisterTaskRequest{Incarnation: 7})
		synctest.Wait()
		thaw := disk.freeze()
		calls := c.flood(t, 7)
		for range 200 {
			calls = append(calls, c.sendBytes(xlapb.CoordinationService_InsertKeyValue_FullMethodName, insertBody(t, 7, "k", 1)))
		}
		last := calls[len(calls)-1]
		if code := c.code(t, "InsertKeyValue", last); code != codes.ResourceExhausted {
			t.Errorf("InsertKeyValue() beyond the limit of the queue = %v; want RESOURCE_EXHAUSTED", code)
		}
		poll := c.send(t, xlapb.CoordinationService_PollForError_FullMethodName, &xlapb.PollForErrorRequest{Incarnations: &xlapb.Incarnations{TaskIncarnation: 7}})
		if r, ok := c.reply(poll); ok {
			t.Errorf("PollForError() with a full queue = %v; want it to wait", r.status.Code)
		}
		thaw()
		time.Sleep(time.Second) // writes wait a little for each other
		for _, call := range calls {
			if _, ok := c.reply(call); !ok {
				t.Fatalf("call %d has no answer", call)
			}
		}
		after := c.sendBytes(xlapb.CoordinationService_InsertKeyValue_FullMethodName, insertBody(t, 7, "after", 1))
		time.Sleep(time.Second)
		if code := c.code(t, "InsertKeyValue", after); code != codes.OK {
			t.Errorf("InsertKeyValue() after the journal stood still = %v; want OK", code)
		}
	})
}

// A connection that floods the queue with calls which must not be refused is bounded, too.
func TestFloodOfVitalCalls(t *testing.T) {
	lab.Clause(t, "C-LIM-1")
	synctest.Test(t, func(t *testing.T) {
		disk := newSlowDisk()
		cfg, _ := lead(t, disk.Disk, cluster(1))
		s := start(t, cfg)
		c := dialFake(t, s)
		c.send(t, xlapb.CoordinationService_RegisterTask_FullMethodName, &xlapb.RegisterTaskRequest{Incarnation: 7})
		synctest.Wait()
		thaw := disk.freeze()
		defer thaw()
		c.flood(t, 7)
		refused := 0
		for range 2000 {
			poll := c.send(t, xlapb.CoordinationService_PollForError_FullMethodName, &xlapb.PollForErrorRequest{Incarnations: &xlapb.Incarnations{TaskIncarnation: 7}})
			if r, ok := c.reply(poll); ok && r.status.Code == codes.ResourceExhausted {
				refused++
			}
		}
		if refused < 900 || refused > 1000 {
			t.Errorf("%d of 2000 polls of one task on one connection were refused; want those beyond some 1000", refused)
		}
		if beat := c.send(t, xlapb.CoordinationService_Heartbeat_FullMethodName, &xlapb.HeartbeatRequest{Incarnation: 7}); c.code(t, "Heartbeat", beat) != codes.OK {
			t.Error("Heartbeat() of a task that floods the queue is refused")
		}
	})
}

// timedBarrier arrives at a barrier that times out.
func (k *task) timedBarrier(ctx context.Context, id string, patience time.Duration) error {
	_, err := k.Barrier(ctx, &xlapb.BarrierRequest{
		Incarnations: k.who(), SourceTaskId: k.id, BarrierId: id, BarrierTimeoutInMs: patience.Milliseconds(),
	})
	return err
}

// A barrier whose time is over while the server stands still waits for the arrivals that the stall held up.
func TestStallExtendsDeadlines(t *testing.T) {
	lab.Clause(t, "C-TIME-1", "C-BAR-15", "C-LOG-3")
	const patience, frozen = 5 * time.Second, 8 * time.Second
	for name, late := range map[string]func(t *testing.T, c *fakeConn, k *task) <-chan error{
		"the arrival lies in the queue": func(t *testing.T, c *fakeConn, k *task) <-chan error {
			c.flood(t, 100)
			time.Sleep(patience - time.Second)
			return async(func() error { return k.timedBarrier(t.Context(), "b", patience) })
		},
		"the member waits for an answer": func(t *testing.T, _ *fakeConn, k *task) <-chan error {
			return async(func() error {
				if err := k.insert(t.Context(), "k"); err != nil {
					return err
				}
				return k.timedBarrier(t.Context(), "b", patience)
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				disk := newSlowDisk()
				cfg := cluster(2)
				cfg.Cluster.HeartbeatTimeout = time.Hour
				l, _ := serveOn(t, disk.Disk, cfg)
				tasks := fleet(t, l, 2, 100)
				began := time.Now()
				first := async(func() error { return tasks[0].timedBarrier(t.Context(), "b", patience) })
				synctest.Wait()
				thaw := disk.freeze()
				second := late(t, dialFake(t, l.Server), tasks[1])
				time.Sleep(time.Until(began.Add(frozen)))
				pending(t, "Barrier() while the journal stands still", first)
				thaw()
				wantCode(t, "Barrier() of the first", <-first, codes.OK)
				wantCode(t, "Barrier() of the one that the server held up", <-second, codes.OK)

				// Time goes on: one that nobody else comes to ends, and the journal tells the same story.
				began = time.Now()
				wantCode(t, "Barrier() alone", tasks[0].timedBarrier(t.Context(), "c", patience), codes.DeadlineExceeded)
				if took := time.Since(began); took < patience || took > patience+2*time.Second {
					t.Errorf("Barrier() alone ended after %v; want %v", took, patience)
				}
				j := readJournal(t, disk.Disk)
				if err := l.Handover(t.Context()); err != nil {
					t.Fatalf("Handover() = %v", err)
				}
				if got, want := j.replay(t, cfg), readJournal(t, disk.Disk); !bytes.Equal(got, want.snapshot) {
					t.Error("the journal does not replay to the state of the server")
				}
			})
		})
	}
}

// A deadline that no stall has touched is as exact as ever.
func TestDeadlinesAreExactWithoutAStall(t *testing.T) {
	lab.Clause(t, "C-BAR-15")
	synctest.Test(t, func(t *testing.T) {
		l, _ := serveOn(t, newSlowDisk().Disk, cluster(2))
		tasks := fleet(t, l, 2, 100)
		for _, k := range tasks {
			k.beating(t.Context())
		}
		for range 3 {
			time.Sleep(7 * time.Second)
			began := time.Now()
			wantCode(t, "Barrier()", tasks[0].timedBarrier(t.Context(), fmt.Sprint(began), time.Second), codes.DeadlineExceeded)
			if took := time.Since(began); took != time.Second {
				t.Errorf("Barrier() ended after %v; want 1s", took)
			}
		}
	})
}
