package server_test

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"unsafe"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/protobuf/proto"

	"github.com/serry-dev/serry/internal/lab"
	"github.com/serry-dev/serry/server"
	"github.com/serry-dev/serry/wire/rpc"
	"github.com/serry-dev/serry/wire/xlapb"
)

// start runs a server without a transport, for fake connections.
func start(t testing.TB, cfg server.Config) *server.Server {
	t.Helper()
	s, err := server.New(cfg)
	if err != nil {
		t.Fatalf("New() = %v", err)
	}
	t.Cleanup(func() { s.Shutdown(t.Context()) })
	return s
}

func TestAbandonedGets(t *testing.T) {
	lab.Clause(t, "A-KEY-3", "C-LIM-4", "NEW-63")
	synctest.Test(t, func(t *testing.T) {
		s := start(t, cluster(1))
		c := dialFake(t, s)
		register := c.send(t, xlapb.CoordinationService_RegisterTask_FullMethodName, &xlapb.RegisterTaskRequest{Incarnation: 7})
		synctest.Wait()
		if code := c.code(t, "RegisterTask", register); code != codes.OK {
			t.Fatalf("RegisterTask() = %v", code)
		}
		get := func(key string) rpc.CallID {
			return c.send(t, xlapb.CoordinationService_GetKeyValue_FullMethodName,
				&xlapb.GetKeyValueRequest{Key: key, Incarnations: &xlapb.Incarnations{TaskIncarnation: 7}})
		}
		gets := rpc.CallID(100_000)
		if testing.Short() {
			gets /= 10
		}
		first := get("absent")
		for range gets - 1 {
			get("absent")
		}
		last := get("absent")
		beat := c.send(t, xlapb.CoordinationService_Heartbeat_FullMethodName, &xlapb.HeartbeatRequest{Incarnation: 7})
		other := get("other")
		synctest.Wait()
		if code := c.code(t, "Heartbeat", beat); code != codes.OK {
			t.Errorf("Heartbeat() = %v; want OK", code)
		}
		if n := s.View().Waiters; n != 2 {
			t.Errorf("the machine keeps %d waiting calls; want 2, one for each key", n)
		}
		// Half of them are withdrawn in the end, the first one among them.
		for call := first; call < first+gets/2; call++ {
			c.handler.Cancel(c, call)
		}
		insert := func(key string) rpc.CallID {
			return c.send(t, xlapb.CoordinationService_InsertKeyValue_FullMethodName,
				&xlapb.InsertKeyValueRequest{Kv: &xlapb.KeyValueEntry{Key: key, Value: []byte("v")}})
		}
		insert("other")
		insert("absent")
		synctest.Wait()
		for _, call := range []rpc.CallID{other, last, first + gets/2} {
			if code := c.code(t, "GetKeyValue", call); code != codes.OK {
				t.Errorf("GetKeyValue() = %v; want OK", code)
			}
		}
		if _, answered := c.reply(first); answered {
			t.Error("a get that was withdrawn was answered")
		}
		if n := s.View().Waiters; n != 0 {
			t.Errorf("the machine keeps %d waiting calls; want none", n)
		}
	})
}

// The keys of gets that wait have a limit: of one connection, and of all. It is free again when they are withdrawn.
func TestBytesOfWaitingGets(t *testing.T) {
	lab.Clause(t, "SEC-102", "C-LIM-1")
	synctest.Test(t, func(t *testing.T) {
		cfg := cluster(1)
		cfg.Limits.WaitingBytes, cfg.Limits.AllWaitingBytes = 10_000, 25_000
		s := start(t, cfg)
		conns := []*fakeConn{dialFake(t, s), dialFake(t, s), dialFake(t, s)}
		get := func(c *fakeConn, key string) rpc.CallID {
			return c.send(t, xlapb.CoordinationService_GetKeyValue_FullMethodName, &xlapb.GetKeyValueRequest{Key: strings.Repeat("k", 900) + key})
		}
		waiting := 0
		var last rpc.CallID
		for _, c := range conns {
			for i := range 20 {
				call := get(c, fmt.Sprint(i))
				synctest.Wait()
				if _, refused := c.reply(call); !refused {
					waiting, last = waiting+1, call
				} else if code := c.code(t, "GetKeyValue", call); code != codes.ResourceExhausted {
					t.Errorf("GetKeyValue() = %v; want ResourceExhausted", code)
				}
			}
		}
		if waiting != 27 {
			t.Errorf("%d gets wait; want 11 of two connections, and 5 of the last", waiting)
		}
		c := conns[2]
		beat := c.send(t, xlapb.CoordinationService_Heartbeat_FullMethodName, &xlapb.HeartbeatRequest{Incarnation: 7})
		c.handler.Cancel(c, last)
		again := get(c, "again")
		synctest.Wait()
		if _, answered := c.reply(again); answered {
			t.Errorf("a get in the place of a withdrawn one: %v; want it to wait", c.code(t, "GetKeyValue", again))
		}
		if code := c.code(t, "Heartbeat", beat); code == codes.ResourceExhausted {
			t.Errorf("Heartbeat() = %v; want no limit on it", code)
		}
	})
}

// Connections that carry no task share a small part of the memory for calls that wait; a task has its own.
func TestBytesOfStrangers(t *testing.T) {
	lab.Clause(t, "SEC-102")
	synctest.Test(t, func(t *testing.T) {
		cfg := cluster(1)
		cfg.Limits.StrangerBytes = 10_000
		s := start(t, cfg)
		get := func(c *fakeConn, i int) (waits bool) {
			call := c.send(t, xlapb.CoordinationService_GetKeyValue_FullMethodName, &xlapb.GetKeyValueRequest{Key: strings.Repeat("k", 900) + fmt.Sprint(i)})
			synctest.Wait()
			if _, refused := c.reply(call); !refused {
				return true
			}
			if code := c.code(t, "GetKeyValue", call); code != codes.ResourceExhausted {
				t.Errorf("GetKeyValue() = %v; want ResourceExhausted", code)
			}
			return false
		}
		waiting := func(c *fakeConn) (n int) {
			for i := range 20 {
				if get(c, i) {
					n++
				}
			}
			return n
		}
		first, second, task := dialFake(t, s), dialFake(t, s), dialFake(t, s)
		if n, m := waiting(first), waiting(second); n != 11 || m != 0 {
			t.Errorf("%d and %d gets of strangers wait; want 11 and none", n, m)
		}
		joined := task.send(t, xlapb.CoordinationService_RegisterTask_FullMethodName, &xlapb.RegisterTaskRequest{Incarnation: 7})
		synctest.Wait()
		if code := task.code(t, "RegisterTask", joined); code != codes.OK {
			t.Fatalf("RegisterTask() = %v", code)
		}
		if n := waiting(task); n != 20 {
			t.Errorf("%d gets of a task wait beside those of strangers; want all 20", n)
		}
		first.handler.Close(first, io.EOF)
		synctest.Wait()
		if n := waiting(second); n != 11 {
			t.Errorf("%d gets of a stranger wait after another one has gone; want 11", n)
		}
	})
}

func TestLastWithdrawnGetFreesTheEntry(t *testing.T) {
	lab.Clause(t, "C-LIM-4", "C-WIRE-6")
	synctest.Test(t, func(t *testing.T) {
		s := start(t, cluster(1))
		c := dialFake(t, s)
		var calls []rpc.CallID
		for range 3 {
			calls = append(calls, c.send(t, xlapb.CoordinationService_GetKeyValue_FullMethodName, &xlapb.GetKeyValueRequest{Key: "absent"}))
		}
		for i, call := range calls {
			synctest.Wait()
			if n := s.View().Waiters; n != 1 {
				t.Errorf("%d gets withdrawn: the machine keeps %d waiting calls; want 1", i, n)
			}
			c.handler.Cancel(c, call)
		}
		synctest.Wait()
		if n := s.View().Waiters; n != 0 {
			t.Errorf("all gets withdrawn: the machine keeps %d waiting calls; want 0", n)
		}
	})
}

// A watcher asks for changes again and again.
type watcher struct {
	conn    *fakeConn
	call    rpc.CallID
	version int64 // that it knows
}

func (w *watcher) ask(t *testing.T) {
	t.Helper()
	w.call = w.conn.send(t, xlapb.CoordinationService_WatchTasks_FullMethodName, &xlapb.WatchTasksRequest{VersionNumber: w.version})
}

// hear takes the answer, if there is one, asks on, and notes which bytes carried the version.
func (w *watcher) hear(t *testing.T, seen map[int64]map[*byte]bool) bool {
	t.Helper()
	r, ok := w.conn.reply(w.call)
	if !ok {
		return false
	}
	var m xlapb.WatchTasksResponse
	if err := proto.Unmarshal(r.body, &m); err != nil {
		t.Fatal(err)
	}
	w.version = m.VersionNumber
	if seen[w.version] == nil {
		seen[w.version] = make(map[*byte]bool)
	}
	seen[w.version][unsafe.SliceData(r.body)] = true
	w.ask(t)
	return true
}

func TestWatchFanOut(t *testing.T) {
	lab.Clause(t, "C-WATCH-9", "NEW-64")
	synctest.Test(t, func(t *testing.T) {
		cfg := cluster(2)
		cfg.Cluster.RegisterBarrier = false
		cfg.Cluster.ShutdownTimeout = 0
		s := start(t, cfg)
		const changes = 10
		watchers := make([]*watcher, 1000)
		for i := range watchers {
			watchers[i] = &watcher{conn: dialFake(t, s), version: s.View().Version}
			watchers[i].ask(t)
		}
		actor := dialFake(t, s)
		seen := make(map[int64]map[*byte]bool)
		for range changes / 2 {
			actor.send(t, xlapb.CoordinationService_RegisterTask_FullMethodName, &xlapb.RegisterTaskRequest{Incarnation: 7})
			actor.send(t, xlapb.CoordinationService_ShutdownTask_FullMethodName, &xlapb.ShutdownTaskRequest{})
			for _, w := range watchers {
				w.hear(t, seen)
			}
		}
		for more := true; more; {
			synctest.Wait()
			more = false
			for _, w := range watchers {
				more = w.hear(t, seen) || more
			}
		}
		last := s.View().Version
		for i, w := range watchers {
			if w.version != last {
				t.Fatalf("watcher %d was left at version %d; want %d", i, w.version, last)
			}
		}
		for version, bodies := range seen {
			if len(bodies) != 1 {
				t.Errorf("version %d was encoded %d times; want once", version, len(bodies))
			}
		}
	})
}

func TestOneFlushAWave(t *testing.T) {
	lab.Clause(t, "F-13")
	synctest.Test(t, func(t *testing.T) {
		s := start(t, cluster(1))
		conns := []*fakeConn{dialFake(t, s), dialFake(t, s)}
		actor := dialFake(t, s)
		actor.send(t, xlapb.CoordinationService_InsertKeyValue_FullMethodName, &xlapb.InsertKeyValueRequest{Kv: &xlapb.KeyValueEntry{Key: "k"}})
		for i := range 100 {
			conns[i%2].send(t, xlapb.CoordinationService_WatchTasks_FullMethodName, &xlapb.WatchTasksRequest{VersionNumber: s.View().Version})
		}
		synctest.Wait()
		actor.send(t, xlapb.CoordinationService_RegisterTask_FullMethodName, &xlapb.RegisterTaskRequest{Incarnation: 7})
		synctest.Wait()
		for i, c := range conns {
			if c.mu.flushes != 1 || len(c.mu.replies) != 50 {
				t.Errorf("connection %d got %d replies and %d flushes; want 50 and 1", i, len(c.mu.replies), c.mu.flushes)
			}
		}
	})
}

func TestFullConnection(t *testing.T) {
	lab.Clause(t, "C-LIM-1", "NEW-62")
	synctest.Test(t, func(t *testing.T) {
		cfg := cluster(1)
		cfg.Limits.CallsWaiting = 1
		l := lab.Serve(t, cfg)
		k := fleet(t, l, 1, 100)[0]
		poll := k.poll(t.Context())
		_, err := k.GetKeyValue(t.Context(), &xlapb.GetKeyValueRequest{Incarnations: k.who(), Key: "absent"})
		wantLimit(t, "GetKeyValue", err, "calls waiting")
		if err := k.insert(t.Context(), "k"); err != nil {
			t.Errorf("InsertKeyValue() = %v; want OK, it does not wait", err)
		}
		pending(t, "PollForError", poll)
		served(t, k)
	})
}

func TestFullServer(t *testing.T) {
	lab.Clause(t, "C-LIM-1", "NEW-62")
	synctest.Test(t, func(t *testing.T) {
		cfg := cluster(1)
		cfg.Limits.Connections = 1
		l := lab.Serve(t, cfg)
		first := &task{N: l.N(t), id: 0, own: 99}
		if err := first.insert(t.Context(), "k"); err != nil {
			t.Fatalf("InsertKeyValue() = %v", err)
		}
		k := fleet(t, l, 1, 100)[0]
		wantLimit(t, "InsertKeyValue on a surplus connection", k.insert(t.Context(), "other"), "connections")
		served(t, k)
	})
}

func TestFullMachine(t *testing.T) {
	lab.Clause(t, "C-LIM-1", "NEW-62")
	synctest.Test(t, func(t *testing.T) {
		cfg := cluster(1)
		cfg.Cluster.Limits.Keys = 1
		l := lab.Serve(t, cfg)
		k := fleet(t, l, 1, 100)[0]
		if err := k.insert(t.Context(), "k"); err != nil {
			t.Fatalf("InsertKeyValue() = %v", err)
		}
		wantLimit(t, "InsertKeyValue", k.insert(t.Context(), "another"), "keys")
		served(t, k)
	})
}

// TestFreshBarriers: a job may use a fresh id for every barrier for as long as it lives.
func TestFreshBarriers(t *testing.T) {
	lab.Clause(t, "C-LIM-1", "C-BAR-24")
	synctest.Test(t, func(t *testing.T) {
		cfg := cluster(1)
		cfg.Cluster.Limits.Barriers = 10
		l := lab.Serve(t, cfg)
		k := fleet(t, l, 1, 100)[0]
		for i := range 1000 {
			if err := k.barrier(t.Context(), fmt.Sprint("step ", i), 0); err != nil {
				t.Fatalf("Barrier() of id %d = %v", i, err)
			}
		}
	})
}

// served checks that calls which a client cannot live without are served by a full server.
func served(t *testing.T, k *task) {
	t.Helper()
	if err := k.register(t.Context()); err != nil {
		t.Errorf("RegisterTask() = %v; want OK", err)
	}
	if err := k.beat(t.Context()); err != nil {
		t.Errorf("Heartbeat() = %v; want OK", err)
	}
	poll := k.poll(t.Context())
	pending(t, "PollForError", poll)
	if err := k.shutdown(t.Context()); err != nil {
		t.Errorf("ShutdownTask() = %v; want OK", err)
	}
	wantCode(t, "PollForError", <-poll, codes.Canceled)
}

func wantLimit(t *testing.T, what string, err error, name string) {
	t.Helper()
	e := lab.Failure(t, err)
	if e.Code != codes.ResourceExhausted || !strings.Contains(e.Message, name) || e.Details != nil && len(e.Payloads) > 0 {
		t.Errorf("%s = %v with %v; want RESOURCE_EXHAUSTED naming %q, without payloads", what, e, e.Payloads, name)
	}
}

func TestGzip(t *testing.T) {
	lab.Clause(t, "C-WIRE-3", "C-LIM-3", "NEW-14", "NEW-62")
	synctest.Test(t, func(t *testing.T) {
		cfg := cluster(1)
		cfg.Cluster.Limits.ValueBytes = 1 << 20
		l := lab.Serve(t, cfg)
		k := fleet(t, l, 1, 100)[0]
		put := func(key string, size int) error {
			_, err := k.InsertKeyValue(t.Context(), &xlapb.InsertKeyValueRequest{
				Incarnations: k.who(), Kv: &xlapb.KeyValueEntry{Key: key, Value: bytes.Repeat([]byte{'x'}, size)},
			}, grpc.UseCompressor(gzip.Name))
			return err
		}
		if err := put("k", 1<<20); err != nil {
			t.Errorf("InsertKeyValue() of a compressed MiB = %v; want OK", err)
		}
		wantLimit(t, "InsertKeyValue of one byte too many", put("large", 1<<20+1), "value")
		if !testing.Short() { // it takes seconds to compress with the race detector on
			wantCode(t, "InsertKeyValue of 65 MiB in a few KiB", put("bomb", 65<<20), codes.ResourceExhausted)
		}
		if err := k.beat(t.Context()); err != nil {
			t.Errorf("Heartbeat() afterwards = %v; want OK", err)
		}
	})
}
