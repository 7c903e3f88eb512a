package server_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/internal/lab"
	"github.com/serry-dev/serry/internal/lab/shareddisk"
	"github.com/serry-dev/serry/server"
	"github.com/serry-dev/serry/wire"
	"github.com/serry-dev/serry/wire/rpc"
	"github.com/serry-dev/serry/wire/serrypb"
	"github.com/serry-dev/serry/wire/stream"
	"github.com/serry-dev/serry/wire/xlapb"
)

func TestStopAnswersEverybodyFirst(t *testing.T) {
	lab.Clause(t, "C-STOP-1", "C-STOP-2", "C-BAR-20", "C-POLL-8", "C-KV-11", "C-WATCH-6")
	synctest.Test(t, func(t *testing.T) {
		l := lab.Serve(t, cluster(2))
		tasks := fleet(t, l, 2, 100)
		a, b := tasks[0], tasks[1]
		version := l.View().Version
		ends := map[codes.Code]<-chan error{
			codes.Aborted: async(func() error { return a.barrier(t.Context(), "b", 0) }),
			codes.OK: async(func() error {
				r, err := a.watch(t.Context(), version)
				if r.GetVersionNumber() != -1 || len(r.GetTaskState()) > 0 {
					t.Errorf("WatchTasks() = %v; want an empty list and version -1", r)
				}
				return err
			}),
			codes.Canceled: b.poll(t.Context()),
		}
		get := async(func() error {
			_, err := b.GetKeyValue(t.Context(), &xlapb.GetKeyValueRequest{Incarnations: b.who(), Key: "absent"})
			return err
		})
		synctest.Wait()
		start := time.Now()
		l.Shutdown(t.Context())
		for want, end := range ends {
			wantCode(t, "a call that waited", <-end, want)
		}
		wantCode(t, "GetKeyValue", <-get, codes.Canceled)
		if took := time.Since(start); took >= 5*time.Second {
			t.Errorf("Shutdown() took %v; want it to end when the clients have read their answers", took)
		}
		if err := a.beat(t.Context()); err == nil {
			t.Error("Heartbeat() after Shutdown = OK; want no connection")
		}
		if !l.View().Stopped {
			t.Error("View() after Shutdown does not say that the service stopped")
		}
		l.Shutdown(t.Context()) // a second time does no harm
		if err := l.OpenEpoch(t.Context(), nil); err != serry.ErrStopped {
			t.Errorf("OpenEpoch() after Shutdown = %v; want %v", err, serry.ErrStopped)
		}
	})
}

func TestHeartbeatAfterStop(t *testing.T) {
	lab.Clause(t, "C-HB-1", "C-INC-4")
	synctest.Test(t, func(t *testing.T) {
		s := start(t, cluster(1))
		c := dialFake(t, s)
		c.send(t, xlapb.CoordinationService_RegisterTask_FullMethodName, &xlapb.RegisterTaskRequest{Incarnation: 7})
		beat := func() codes.Code {
			call := c.send(t, xlapb.CoordinationService_Heartbeat_FullMethodName, &xlapb.HeartbeatRequest{Incarnation: 7})
			synctest.Wait()
			return c.code(t, "Heartbeat", call)
		}
		synctest.Wait()
		if code := beat(); code != codes.OK {
			t.Errorf("Heartbeat() = %v; want OK", code)
		}
		s.Shutdown(t.Context())
		if code := beat(); code != codes.Internal {
			t.Errorf("Heartbeat() after the end = %v; want INTERNAL", code)
		}
	})
}

func TestShutdownDoesNotWaitForADeafClient(t *testing.T) {
	lab.Clause(t, "C-STOP-2")
	synctest.Test(t, func(t *testing.T) {
		l := lab.Serve(t, cluster(1))
		fleet(t, l, 1, 100)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		start := time.Now()
		l.Shutdown(ctx)
		if took := time.Since(start); took > time.Second {
			t.Errorf("Shutdown() with an ended context took %v; want it to close at once", took)
		}
	})
}

func TestUnknownMethod(t *testing.T) {
	lab.Clause(t, "C-VER-5")
	synctest.Test(t, func(t *testing.T) {
		l := lab.Serve(t, cluster(1))
		err := l.Dial(t).Conn.Invoke(t.Context(), "/xla.coordination.CoordinationService/Nothing",
			&xlapb.HeartbeatRequest{}, &xlapb.HeartbeatResponse{})
		if e := lab.Failure(t, err); e.Code != codes.Unimplemented || e.Details != nil {
			t.Errorf("an unknown method = %v with %v; want UNIMPLEMENTED without details", e, e.Details)
		}
	})
}

func TestClientOfOurOwnMayComeBack(t *testing.T) {
	lab.Clause(t, "C-LOST-3", "C-LOST-4", "NEW-35")
	synctest.Test(t, func(t *testing.T) {
		cfg := cluster(2)
		cfg.Cluster.RegisterBarrier = false
		l := lab.Serve(t, cfg)
		stock := &task{N: l.N(t), id: 0, own: 100}
		if err := stock.register(t.Context()); err != nil {
			t.Fatal(err)
		}
		survivor := stock.poll(t.Context())
		link := l.Dial(t)
		own := serrypb.NewCoordinationServiceClient(link.Conn)
		request := func() *serrypb.Request {
			return &serrypb.Request{Task: &serrypb.Task{Job: "worker", Index: 1}, Incarnation: 101}
		}
		register, beat := request(), request()
		register.Call = &serrypb.Request_Register{Register: &serrypb.Register{}}
		beat.Call = &serrypb.Request_Heartbeat{Heartbeat: &serrypb.Empty{}}
		if _, err := own.Do(t.Context(), register); err != nil {
			t.Fatalf("Do(register) = %v", err)
		}
		link.Cut()
		time.Sleep(3 * time.Second)
		if _, err := own.Do(t.Context(), beat); err != nil {
			t.Fatalf("Do(heartbeat) on a new connection = %v", err)
		}
		time.Sleep(3 * time.Second)
		pending(t, "PollForError of task 0", survivor)

		link.Close()
		start := time.Now()
		err := lab.Failure(t, <-survivor)
		if took := time.Since(start); took != 4*time.Second || !strings.Contains(err.Message, "task 1: stream not resumed") {
			t.Errorf("after %v PollForError() = %v; want after 4s that the stream of task 1 was not resumed", took, err)
		}
	})
}

func TestProgressLines(t *testing.T) {
	lab.Clause(t, "C-REG-16")
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer // written by the owner, read when it has ended
		cfg := cluster(9)
		cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
		s := start(t, cfg)
		c := dialFake(t, s)
		c.send(t, xlapb.CoordinationService_RegisterTask_FullMethodName, &xlapb.RegisterTaskRequest{Incarnation: 7})
		time.Sleep(10 * time.Minute)
		s.Shutdown(t.Context())

		var waits []string
		for line := range strings.Lines(log.String()) {
			if strings.Contains(line, `msg="waiting for tasks to register"`) {
				waits = append(waits, strings.TrimSpace(line))
			}
		}
		// After 5, 10, 20, 40, 80, 140, ... seconds: one a minute in the long run.
		if n := len(waits); n < 10 || n > 16 {
			t.Errorf("%d lines in ten minutes; want about one a minute:\n%s", n, log.String())
		}
		want := `arrived=1 of=9 missing="worker/1 worker/2 worker/3 worker/4 worker/5 and 3 more" since=5s`
		if len(waits) == 0 || !strings.HasSuffix(waits[0], want) {
			t.Errorf("first line %q; want it to end %s", waits[:min(1, len(waits))], want)
		}
	})
}

func TestLogOfAMassFailureIsShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer // written by the owner, read when it has ended
		cfg := cluster(5000)
		cfg.Cluster.RegisterTimeout = time.Second
		cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
		s := start(t, cfg)
		dialFake(t, s).send(t, xlapb.CoordinationService_RegisterTask_FullMethodName, &xlapb.RegisterTaskRequest{Incarnation: 7})
		time.Sleep(time.Minute)
		s.Shutdown(t.Context())
		if n := log.Len(); n > 32<<10 {
			t.Errorf("the log of a failed registration of 5000 tasks has %d bytes; want a few lines", n)
		}
		if want := `msg="more of the same" note="task failed" count=4990`; !strings.Contains(log.String(), want) {
			t.Errorf("the log does not have %s:\n%s", want, log.String())
		}
	})
}

func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := lab.Serve(t, cluster(3))
		tasks := fleet(t, l, 3, 100)
		polls := []<-chan error{tasks[0].poll(t.Context()), tasks[1].poll(t.Context())}
		for i := range 2 {
			go tasks[i].barrier(t.Context(), "b", 0)
		}
		time.Sleep(2 * time.Second)
		tasks[0].beat(t.Context())
		for name, want := range map[string]float64{
			`serry_tasks{state="connected"}`:                 3,
			`serry_connections`:                              3,
			`serry_error_polls`:                              2,
			`serry_barriers_open`:                            1,
			`serry_calls_waiting`:                            4,
			`serry_heartbeat_age_max_seconds`:                2,
			`serry_heartbeat_age_seconds_bucket{le="0.001"}`: 1,
			`serry_heartbeat_age_seconds_count`:              3,
			`serry_epoch`:                                    1,
			`serry_calls_total{code="OK",dialect="xla.coordination",method="RegisterTask"}`: 3,
			`serry_lost_tasks_total{evidence="connection"}`:                                 0,
		} {
			if got := metric(t, l.Server, name); got != want {
				t.Errorf("%s = %v; want %v", name, got, want)
			}
		}
		tasks[1].Cut()
		<-polls[0]
		for name, want := range map[string]float64{
			`serry_tasks{state="failed"}`:                   1,
			`serry_lost_tasks_total{evidence="connection"}`: 1,
			`serry_barrier_wait_seconds_count`:              1,
			`serry_barriers_open`:                           0,
			`serry_calls_total{code="Internal",dialect="xla.coordination",method="Barrier"}`: 1,
		} {
			if got := metric(t, l.Server, name); got != want {
				t.Errorf("%s = %v; want %v", name, got, want)
			}
		}
		<-polls[1]
	})
}

func TestConfig(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*server.Config)
		want   string // in the error; empty for none
	}{
		"good":                   {func(*server.Config) {}, ""},
		"no jobs":                {func(c *server.Config) { c.Cluster.Jobs = nil }, "0 tasks"},
		"job named twice":        {func(c *server.Config) { c.Cluster.Jobs = append(c.Cluster.Jobs, c.Cluster.Jobs...) }, "twice"},
		"negative heartbeat":     {func(c *server.Config) { c.Cluster.HeartbeatTimeout = -1 }, "heartbeat timeout"},
		"no register timeout":    {func(c *server.Config) { c.Cluster.RegisterTimeout = 0 }, "register timeout"},
		"negative shutdown":      {func(c *server.Config) { c.Cluster.ShutdownTimeout = -1 }, "shutdown timeout"},
		"negative limit":         {func(c *server.Config) { c.Limits.QueueEvents = -1 }, "limit"},
		"unknown recoverable":    {func(c *server.Config) { c.Cluster.RecoverableJobs = []string{"ps"} }, `"ps"`},
		"service may be unknown": {func(c *server.Config) { c.Cluster.Service = 0 }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := cluster(2)
			c.change(&cfg)
			err := cfg.Validate()
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("Validate() = %v; want an error with %q", err, c.want)
			}
		})
	}
}

func ExampleNew() {
	s, err := server.New(server.Config{Cluster: coord.Config{
		Jobs:            []coord.Job{{Name: "worker", Tasks: 4}},
		RegisterBarrier: true,
		RegisterTimeout: time.Hour,
	}})
	if err != nil {
		panic(err)
	}
	// Now s.Serve(listener) lets clients in.
	s.Shutdown(context.Background())
	// Output:
}

// The records that tell how a service ended stay in its journal, even if a signal comes while it ends.
func TestShutdownDuringStopKeepsTheLastRecords(t *testing.T) {
	lab.Clause(t, "C-STOP-1", "C-STOP-4")
	synctest.Test(t, func(t *testing.T) {
		var saves atomic.Int32
		disk := shareddisk.New(shareddisk.Config{Fault: func(op shareddisk.Op) error {
			switch {
			case op.Action == shareddisk.OpSave && op.Done:
				saves.Add(1)
			case op.Action == shareddisk.OpAppend && !op.Done:
				time.Sleep(time.Second)
			}
			return nil
		}})
		cfg, _ := lead(t, disk, cluster(1))
		s := start(t, cfg)
		before := saves.Load()
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			s.Stop(t.Context())
		}()
		synctest.Wait() // the end is being written
		s.Shutdown(t.Context())
		<-stopped
		if n := saves.Load() - before; n != 0 {
			t.Errorf("%d snapshots were saved after the service was stopped; want none", n)
		}
		if !s.View().Stopped {
			t.Error("View() does not say that the service stopped")
		}
	})
}

// A server with a journal that is told to end leaves the job to the next one: behind a relay nothing ends.
func TestShutdownLeavesTheJobToTheNextServer(t *testing.T) {
	lab.Clause(t, "C-STOP-4", "NEW-51", "A-HA-7")
	synctest.Test(t, func(t *testing.T) {
		disk := shareddisk.New(shareddisk.Config{})
		cfg, seat := lead(t, disk, cluster(3))
		s, err := server.New(cfg)
		if err != nil {
			t.Fatalf("New() = %v", err)
		}
		h := dialHost(t, s, stream.Relay)
		h.register(0)
		h.register(1)
		direct := dialFake(t, s)
		direct.send(t, xlapb.CoordinationService_RegisterTask_FullMethodName, &xlapb.RegisterTaskRequest{SourceTaskId: 2, Incarnation: 7})
		arrive := func(task int) rpc.CallID {
			return h.send(stream.Call{Conn: stream.ConnID(task + 1), Number: 2, Method: xlapb.CoordinationService_Barrier_FullMethodName}, &xlapb.BarrierRequest{
				Incarnations: &xlapb.Incarnations{TaskIncarnation: uint64(incarnation(task))}, SourceTaskId: int32(task), BarrierId: "b",
				TaskIds: []int32{0, 1}, BarrierTimeoutInMs: time.Hour.Milliseconds(),
			})
		}
		poll, barrier := h.poll(0), arrive(0)
		ended := direct.send(t, xlapb.CoordinationService_PollForError_FullMethodName,
			&xlapb.PollForErrorRequest{SourceTaskId: 2, Incarnations: &xlapb.Incarnations{TaskIncarnation: 7}})
		synctest.Wait()
		before := s.View()
		h.cut(true) // it finds nobody before the next server is there
		began := time.Now()
		s.Shutdown(t.Context())
		if took := time.Since(began); took > time.Second {
			t.Errorf("Shutdown() took %v; want it not to wait for calls that it does not answer", took)
		}
		if code := direct.code(t, "PollForError", ended); code != codes.Canceled {
			t.Errorf("PollForError() of a direct client = %v; want CANCELLED, which it outlives", code)
		}
		seat.Close()

		cfg, _ = lead(t, disk, cluster(3))
		next := start(t, cfg)
		h.mu.Lock()
		h.server = next
		h.mu.Unlock()
		h.back()
		time.Sleep(2 * time.Second)
		if after := next.View(); after.Service != before.Service || after.Epoch != before.Epoch || after.Stopped {
			t.Errorf("the next server has epoch %d of %x; want epoch %d of %x", after.Epoch, after.Service, before.Epoch, before.Service)
		}
		if !h.waits(poll) || !h.waits(barrier) {
			t.Error("a call behind a relay ended with the server; want it to wait for the next one")
		}
		arrive(1)
		time.Sleep(time.Second)
		if r := h.reply(barrier); !r.Status.OK() {
			t.Errorf("Barrier() over the restart = %v; want OK", r.Status)
		}
	})
}

// People may ask for the end of the service where whoever made the server says so.
func TestStopIsAsked(t *testing.T) {
	lab.Clause(t, "C-STOP-4")
	for _, stoppable := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			cfg := cluster(1)
			cfg.Stoppable = stoppable
			s := start(t, cfg)
			c := dialFake(t, s)
			call := c.sendBytes(wire.LeadMethod, wire.LeadRequest{Stop: true}.Bytes())
			code, want := c.code(t, "Lead", call), codes.FailedPrecondition
			if stoppable {
				want = codes.OK
				r, _ := c.reply(call)
				if reply, err := wire.ReadLeadReply(r.body); err != nil || !reply.Stopping {
					t.Errorf("Lead(stop) = %+v, %v; want that the service ends", reply, err)
				}
				<-s.StopAsked()
			}
			if code != want {
				t.Errorf("Lead(stop) with Stoppable %v = %v; want %v", stoppable, code, want)
			}
		})
	}
}
