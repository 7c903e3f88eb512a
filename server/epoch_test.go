package server_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/internal/lab"
	"github.com/serry-dev/serry/wire/tfpb"
	"github.com/serry-dev/serry/wire/xlapb"
)

// leave ends a run by the shutdown barrier.
func leave(t *testing.T, tasks []*task) {
	t.Helper()
	var ends []<-chan error
	for _, k := range tasks {
		ends = append(ends, async(func() error { return k.shutdown(t.Context()) }))
	}
	for i, end := range ends {
		if err := <-end; err != nil {
			t.Fatalf("ShutdownTask(%d) = %v", i, err)
		}
	}
}

func (k *task) insert(ctx context.Context, key string) error {
	_, err := k.InsertKeyValue(ctx, &xlapb.InsertKeyValueRequest{
		Incarnations: k.who(), Kv: &xlapb.KeyValueEntry{Key: key, Value: []byte("v")},
	})
	return err
}

func (k *task) tryGet(ctx context.Context, key string) error {
	_, err := k.TryGetKeyValue(ctx, &xlapb.TryGetKeyValueRequest{Incarnations: k.who(), Key: key})
	return err
}

func (k *task) watch(ctx context.Context, version int64) (*xlapb.WatchTasksResponse, error) {
	return k.WatchTasks(ctx, &xlapb.WatchTasksRequest{Incarnations: k.who(), VersionNumber: version})
}

func TestSecondRun(t *testing.T) {
	lab.Clause(t, "C-EPOCH-2", "C-EPOCH-4", "NEW-39")
	synctest.Test(t, func(t *testing.T) {
		l := lab.Serve(t, cluster(2))
		first := fleet(t, l, 2, 100)
		if err := first[0].insert(t.Context(), "k"); err != nil {
			t.Fatalf("InsertKeyValue() = %v", err)
		}
		end := async(func() error { return first[0].barrier(t.Context(), "b", 0) })
		if err := first[1].barrier(t.Context(), "b", 0); err != nil {
			t.Fatalf("Barrier() = %v", err)
		}
		<-end
		leave(t, first)
		before := l.View()
		for _, k := range first {
			k.Close()
		}
		second := fleet(t, l, 2, 200)
		if second[0].service == first[0].service {
			t.Error("the second run has the service incarnation of the first")
		}
		if err := second[0].tryGet(t.Context(), "k"); err == nil {
			t.Error("TryGetKeyValue() found a key of the first run")
		}
		end = async(func() error { return second[0].barrier(t.Context(), "b", 0) })
		if err := second[1].barrier(t.Context(), "b", 0); err != nil {
			t.Errorf("Barrier() = %v; want counters from 0", err)
		}
		<-end
		if after := l.View(); after.Epoch != 2 || after.Version <= before.Version {
			t.Errorf("epoch %d, version %d; want epoch 2 and a version above %d", after.Epoch, after.Version, before.Version)
		}
	})
}

func TestNewcomerWaitsForDeparture(t *testing.T) {
	lab.Clause(t, "C-EPOCH-3", "C-EPOCH-4", "NEW-40")
	synctest.Test(t, func(t *testing.T) {
		l := lab.Serve(t, cluster(2))
		first := fleet(t, l, 2, 100)
		leave(t, first)
		first[0].Close()
		newcomers := []*task{{N: l.N(t), id: 0, own: 200}, {N: l.N(t), id: 1, own: 201}}
		var ends []<-chan error
		for _, k := range newcomers {
			ends = append(ends, async(func() error { return k.register(t.Context()) }))
		}
		time.Sleep(time.Second)
		pending(t, "RegisterTask", ends[0])
		if err := first[1].beat(t.Context()); err != nil {
			t.Errorf("Heartbeat() of a task that left = %v; want OK", err)
		}
		if _, err := first[1].watch(t.Context(), -1); err != nil {
			t.Errorf("WatchTasks() of a task that left = %v; want OK", err)
		}
		pending(t, "RegisterTask", ends[1])
		first[1].Close()
		for i, end := range ends {
			if err := <-end; err != nil {
				t.Errorf("RegisterTask(%d) = %v; want OK once the former run has departed", i, err)
			}
		}
		if newcomers[0].service == first[0].service {
			t.Error("the newcomers were taken into the former epoch")
		}
	})
}

func TestSilentLeaverDeparts(t *testing.T) {
	lab.Clause(t, "C-EPOCH-3")
	synctest.Test(t, func(t *testing.T) {
		l := lab.Serve(t, cluster(1))
		first := fleet(t, l, 1, 100)
		leave(t, first)
		start := time.Now()
		next := &task{N: l.N(t), id: 0, own: 200}
		if err := next.register(t.Context()); err != nil {
			t.Fatalf("RegisterTask() = %v", err)
		}
		if took := time.Since(start); took < timeout || took > timeout+time.Second {
			t.Errorf("the newcomer waited %v for a silent task; want the timeout of %v", took, timeout)
		}
	})
}

func TestFailedRun(t *testing.T) {
	lab.Clause(t, "C-EPOCH-2", "C-EPOCH-4", "NEW-41")
	synctest.Test(t, func(t *testing.T) {
		l := lab.Serve(t, cluster(2))
		first := fleet(t, l, 2, 100)
		polls := []<-chan error{first[0].poll(t.Context()), first[1].poll(t.Context())}
		first[1].Cut()
		wantCode(t, "PollForError", <-polls[0], codes.Unavailable)
		<-polls[1]
		next := &task{N: l.N(t), id: 1, own: 201}
		wantCode(t, "RegisterTask while a task of the failed run is there", next.register(t.Context()), codes.Aborted)
		first[0].Close()
		time.Sleep(time.Second)
		newcomers := []*task{{N: l.N(t), id: 0, own: 200}, next}
		registerAll(t, newcomers)
		if newcomers[0].service == first[0].service {
			t.Error("the newcomers were taken into the failed epoch")
		}
	})
}

func TestRunAfterFailedRegistration(t *testing.T) {
	lab.Clause(t, "C-REG-11", "C-EPOCH-2", "NEW-41")
	synctest.Test(t, func(t *testing.T) {
		cfg := cluster(2)
		cfg.Cluster.RegisterTimeout = time.Minute
		l := lab.Serve(t, cfg)
		alone := &task{N: l.N(t), id: 0, own: 100}
		wantCode(t, "RegisterTask of the only one that came", alone.register(t.Context()), codes.DeadlineExceeded)
		next := &task{N: l.N(t), id: 1, own: 201}
		wantCode(t, "RegisterTask while the first one is there", next.register(t.Context()), codes.Aborted)
		alone.Close()
		time.Sleep(time.Second)
		registerAll(t, []*task{{N: l.N(t), id: 0, own: 200}, next})
	})
}

func TestWaitingClientGivesUp(t *testing.T) {
	lab.Clause(t, "C-REG-15", "NEW-9", "NEW-65")
	synctest.Test(t, func(t *testing.T) {
		cfg := cluster(2)
		cfg.Cluster.RegisterTimeout = time.Minute
		l := lab.Serve(t, cfg)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		gone := &task{N: l.N(t), id: 0, own: 100}
		wantCode(t, "RegisterTask", gone.register(ctx), codes.DeadlineExceeded)
		time.Sleep(2 * time.Minute)
		fleet(t, l, 2, 200)
	})
}

// calls makes one call of every kind of dialect N with the words of k.
func (k *task) calls(ctx context.Context) map[string]error {
	who := k.who()
	_, poll := k.PollForError(ctx, &xlapb.PollForErrorRequest{Incarnations: who, SourceTaskId: k.id})
	_, report := k.ReportErrorToService(ctx, &xlapb.ReportErrorToServiceRequest{Incarnations: who, ErrorCode: 1})
	_, watch := k.watch(ctx, -1)
	_, get := k.GetKeyValue(ctx, &xlapb.GetKeyValueRequest{Incarnations: who, Key: "k"})
	_, dir := k.GetKeyValueDir(ctx, &xlapb.GetKeyValueDirRequest{Incarnations: who, DirectoryKey: "k"})
	_, del := k.DeleteKeyValue(ctx, &xlapb.DeleteKeyValueRequest{Incarnations: who, Key: "k"})
	_, inc := k.IncrementKeyValue(ctx, &xlapb.IncrementKeyValueRequest{Incarnations: who, Key: "k", Increment: 1})
	_, cancel := k.CancelBarrier(ctx, &xlapb.CancelBarrierRequest{Incarnations: who, BarrierId: "b"})
	_, alive := k.GetAliveTasks(ctx, &xlapb.GetAliveTasksRequest{Incarnations: who, RequestingTaskId: k.id, TaskIds: []int32{k.id}})
	return map[string]error{
		"Heartbeat": k.beat(ctx), "ShutdownTask": k.shutdown(ctx), "Barrier": k.barrier(ctx, "b", 0),
		"InsertKeyValue": k.insert(ctx, "k"), "TryGetKeyValue": k.tryGet(ctx, "k"),
		"PollForError": poll, "ReportErrorToService": report, "WatchTasks": watch, "GetKeyValue": get,
		"GetKeyValueDir": dir, "DeleteKeyValue": del, "IncrementKeyValue": inc, "CancelBarrier": cancel,
		"GetAliveTasks": alive,
	}
}

func TestCallsOfAFormerEpoch(t *testing.T) {
	lab.Clause(t, "C-EPOCH-5", "NEW-42")
	synctest.Test(t, func(t *testing.T) {
		l := lab.Serve(t, cluster(2))
		n := &task{N: l.N(t), id: 0, own: 100}
		o := l.O(t)
		end := async(func() error { return n.register(t.Context()) })
		if _, err := o.RegisterTask(t.Context(), &tfpb.RegisterTaskRequest{SourceTask: tf(1), Incarnation: 101}); err != nil {
			t.Fatalf("RegisterTask() = %v", err)
		}
		if err := <-end; err != nil {
			t.Fatalf("RegisterTask() = %v", err)
		}
		if err := l.OpenEpoch(t.Context(), nil); err != nil {
			t.Fatalf("OpenEpoch() = %v", err)
		}
		fleet(t, l, 2, 200)

		for name, err := range n.calls(t.Context()) {
			e := lab.Failure(t, err)
			if _, mismatch := e.Payloads[lab.MismatchPayload]; e.Code != codes.Internal || !mismatch {
				t.Errorf("%s = %v with %v; want INTERNAL with the payload of a mismatch", name, e, e.Payloads)
			}
		}
		_, barrier := o.Barrier(t.Context(), &tfpb.BarrierRequest{SourceTask: tf(1), BarrierId: "b", BarrierTimeoutInMs: 1000})
		_, poll := o.PollForError(t.Context(), &tfpb.PollForErrorRequest{SourceTask: tf(1)})
		_, shutdown := o.ShutdownTask(t.Context(), &tfpb.ShutdownTaskRequest{SourceTask: tf(1)})
		_, beat := l.O(t).Heartbeat(t.Context(), &tfpb.HeartbeatRequest{SourceTask: tf(1), Incarnation: 101})
		for name, err := range map[string]error{"Barrier": barrier, "PollForError": poll, "ShutdownTask": shutdown, "Heartbeat": beat} {
			e := lab.Failure(t, err)
			if p, ok := e.Payloads[lab.ServicePayload]; e.Code != codes.Aborted || !ok || len(p) > 0 {
				t.Errorf("%s in dialect O = %v with %v; want ABORTED with an empty payload", name, e, e.Payloads)
			}
		}
		for i, k := range l.View().Tasks {
			if k.State != serry.Connected {
				t.Errorf("task %d of the present epoch is %v; want connected", i, k.State)
			}
		}
	})
}

// A view is of the time at which it is taken, also while nothing happens: a launcher tells by it how long ranks have waited.
func TestViewOfAQuietJob(t *testing.T) {
	lab.Clause(t, "D-HG-4", "D-SC-9")
	synctest.Test(t, func(t *testing.T) {
		l := lab.Serve(t, cluster(2))
		tasks := fleet(t, l, 2, 100)
		end := async(func() error { return tasks[0].barrier(t.Context(), "b", 0) })
		for _, waited := range []time.Duration{0, time.Second, 2 * time.Second} {
			time.Sleep(waited)
			synctest.Wait()
			v := l.View()
			if len(v.Barriers) != 1 {
				t.Fatalf("View().Barriers = %+v; want one", v.Barriers)
			}
			if got := time.Duration(v.Now - v.Barriers[0].Since); got < waited {
				t.Errorf("%v after the last event the barrier is open for %v", waited, got)
			}
		}
		if err := tasks[1].barrier(t.Context(), "b", 0); err != nil {
			t.Errorf("Barrier() = %v", err)
		}
		<-end
	})
}

func TestOpenEpochByCommand(t *testing.T) {
	lab.Clause(t, "C-EPOCH-2", "C-EPOCH-5", "NEW-43")
	synctest.Test(t, func(t *testing.T) {
		l := lab.Serve(t, cluster(2))
		first := fleet(t, l, 2, 100)
		ends := map[string]<-chan error{
			"Barrier": async(func() error { return first[0].barrier(t.Context(), "b", 0) }),
			"GetKeyValue": async(func() error {
				_, err := first[0].GetKeyValue(t.Context(), &xlapb.GetKeyValueRequest{Incarnations: first[0].who(), Key: "absent"})
				return err
			}),
			"PollForError": first[1].poll(t.Context()),
		}
		synctest.Wait()
		if err := l.OpenEpoch(t.Context(), []coord.Job{{Name: "worker", Tasks: 3}}); err != nil {
			t.Fatalf("OpenEpoch() = %v", err)
		}
		for name, end := range ends {
			e := lab.Failure(t, <-end)
			if _, mismatch := e.Payloads[lab.MismatchPayload]; e.Code != codes.Internal || !mismatch {
				t.Errorf("%s = %v; want INTERNAL with the payload of a mismatch", name, e)
			}
		}
		fleet(t, l, 3, 200)
		if n := len(l.View().Tasks); n != 3 {
			t.Errorf("the new epoch has %d tasks; want 3", n)
		}
		if err := l.OpenEpoch(t.Context(), []coord.Job{{Name: "", Tasks: 3}}); err == nil {
			t.Error("OpenEpoch() with a job without a name = nil; want an error")
		}
	})
}
