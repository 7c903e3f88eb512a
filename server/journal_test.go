package server_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
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
	"github.com/serry-dev/serry/internal/plant"
	"github.com/serry-dev/serry/server"
	"github.com/serry-dev/serry/store"
	"github.com/serry-dev/serry/wire"
	"github.com/serry-dev/serry/wire/xlapb"
)

// lead makes cfg that of the leader of a disk.
func lead(t testing.TB, disk *shareddisk.Disk, cfg server.Config) (server.Config, *shareddisk.Handle) {
	t.Helper()
	seat := disk.Open()
	reign, err := seat.Campaign(t.Context(), store.Candidate{Address: "lab"})
	if err != nil {
		t.Fatalf("Campaign() = %v", err)
	}
	cfg.Journal = reign
	return cfg, seat
}

// serveOn starts a server that leads a disk.
func serveOn(t testing.TB, disk *shareddisk.Disk, cfg server.Config) (*lab.Lab, *shareddisk.Handle) {
	t.Helper()
	cfg, seat := lead(t, disk, cfg)
	return lab.Serve(t, cfg), seat
}

// succeed kills a leader, lets the outage pass, and starts its successor.
func succeed(t testing.TB, l *lab.Lab, dead *shareddisk.Handle, disk *shareddisk.Disk, cfg server.Config, outage time.Duration) (*lab.Lab, *shareddisk.Handle) {
	t.Helper()
	var seat *shareddisk.Handle
	dead.Kill()
	disk.Expire()
	return l.Crash(t, func() server.Config {
		time.Sleep(outage)
		cfg, seat = lead(t, disk, cfg)
		return cfg
	}), seat
}

// A journal is what a disk holds.
type journal struct {
	settings []byte
	snapshot []byte // of the machine
	batches  [][]byte
}

func readJournal(t testing.TB, disk *shareddisk.Disk) journal {
	t.Helper()
	snapshot, batches, err := disk.Journal().Load(t.Context())
	if err != nil {
		t.Fatalf("Load() = %v", err)
	}
	size, n := binary.Uvarint(snapshot)
	j := journal{settings: snapshot[n : n+int(size)], snapshot: snapshot[n+int(size):]}
	for b, err := range batches {
		if err != nil {
			t.Fatalf("Load() = %v", err)
		}
		j.batches = append(j.batches, b)
	}
	return j
}

// events lists what is in a journal.
func (j journal) events(t testing.TB) (all []coord.Event) {
	t.Helper()
	for _, b := range j.batches {
		for len(b) > 0 {
			_, ev, rest, err := coord.ReadRecord(b, nil)
			if err != nil {
				t.Fatalf("ReadRecord() = %v", err)
			}
			all, b = append(all, ev), rest
		}
	}
	return all
}

func TestJournalHoldsWhatChangesState(t *testing.T) {
	lab.Clause(t, "C-LOG-1", "NEW-44", "C-HB-8", "NEW-58")
	synctest.Test(t, func(t *testing.T) {
		disk := shareddisk.New(shareddisk.Config{})
		cfg := cluster(2)
		l, _ := serveOn(t, disk, cfg)
		tasks := fleet(t, l, 2, 100)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		tasks[0].poll(ctx)
		tasks[1].poll(ctx)
		for i := range 20 {
			key := fmt.Sprint("k", i)
			if err := tasks[i%2].insert(t.Context(), key); err != nil {
				t.Fatalf("InsertKeyValue() = %v", err)
			}
			if err := tasks[(i+1)%2].tryGet(t.Context(), key); err != nil {
				t.Fatalf("TryGetKeyValue() = %v", err)
			}
			tasks[0].beat(t.Context())
			tasks[0].watch(t.Context(), -1)
			end := async(func() error { return tasks[0].barrier(t.Context(), "b", int64(i)) })
			if err := errors.Join(tasks[1].barrier(t.Context(), "b", int64(i)), <-end); err != nil {
				t.Fatalf("Barrier() = %v", err)
			}
		}
		j := readJournal(t, disk)
		count := make(map[string]int)
		for _, ev := range j.events(t) {
			count[strings.TrimPrefix(fmt.Sprintf("%T", ev), "coord.")]++
		}
		want := map[string]int{"RegisterTask": 2, "PollForError": 1, "InsertKeyValue": 20, "Barrier": 40}
		if fmt.Sprint(count) != fmt.Sprint(want) {
			t.Errorf("the journal holds %v; want %v", count, want)
		}
		if err := l.Handover(t.Context()); err != nil {
			t.Fatalf("Handover() = %v", err)
		}
		if got, want := j.replay(t, cfg), readJournal(t, disk); !bytes.Equal(got, want.snapshot) || len(want.batches) != 0 {
			t.Errorf("the journal replays to a snapshot of %d bytes, and %d batches after it; want the one of %d that the leader left", len(got), len(want.batches), len(want.snapshot))
		}
	})
}

// replay gives the snapshot to which a journal leads.
func (j journal) replay(t testing.TB, cfg server.Config) []byte {
	t.Helper()
	cfg.Cluster.Service = 1 // the snapshot has another
	m, err := coord.Restore(cfg.Cluster, j.snapshot, nil)
	if err != nil {
		t.Fatalf("Restore() = %v", err)
	}
	for _, b := range j.batches {
		for len(b) > 0 {
			at, ev, rest, err := coord.ReadRecord(b, nil)
			if err != nil {
				t.Fatalf("ReadRecord() = %v", err)
			}
			m.Step(at, ev)
			b = rest
		}
	}
	return m.Snapshot(nil)
}

func TestAppendFails(t *testing.T) {
	lab.Clause(t, "C-LOG-2", "NEW-45")
	synctest.Test(t, func(t *testing.T) {
		full := &store.FullError{What: "disk", Fix: "make room", Err: errors.New("no space left on device")}
		var broken atomic.Bool
		disk := shareddisk.New(shareddisk.Config{Fault: func(op shareddisk.Op) error {
			if broken.Load() && op.Action == shareddisk.OpAppend {
				time.Sleep(time.Second)
				return full
			}
			return nil
		}})
		cfg, _ := lead(t, disk, cluster(1))
		s := start(t, cfg)
		c := dialFake(t, s)
		c.send(t, xlapb.CoordinationService_RegisterTask_FullMethodName, &xlapb.RegisterTaskRequest{Incarnation: 7})
		synctest.Wait()
		broken.Store(true)
		calls := []any{
			c.send(t, xlapb.CoordinationService_InsertKeyValue_FullMethodName, &xlapb.InsertKeyValueRequest{Kv: &xlapb.KeyValueEntry{Key: "k"}}),
			c.send(t, xlapb.CoordinationService_TryGetKeyValue_FullMethodName, &xlapb.TryGetKeyValueRequest{Key: "other"}),
		}
		<-s.Done()
		calls = append(calls, c.send(t, xlapb.CoordinationService_TryGetKeyValue_FullMethodName, &xlapb.TryGetKeyValueRequest{Key: "k"}))
		synctest.Wait()
		c.mu.Lock()
		defer c.mu.Unlock()
		if len(c.mu.replies) != 1 {
			t.Errorf("%d of %d calls were answered; want only the registration before the disk was full", len(c.mu.replies), 1+len(calls))
		}
		if err := s.Err(); !errors.Is(err, full) || !strings.Contains(err.Error(), "to fix it, make room") {
			t.Errorf("Err() = %v; want %v", err, full)
		}
	})
}

func TestCallsThatGatherAreOneWrite(t *testing.T) {
	lab.Clause(t, "C-LOG-2")
	synctest.Test(t, func(t *testing.T) {
		var appends atomic.Int32
		disk := shareddisk.New(shareddisk.Config{Fault: func(op shareddisk.Op) error {
			if op.Action == shareddisk.OpAppend && !op.Done {
				appends.Add(1)
				time.Sleep(time.Second)
			}
			return nil
		}})
		cfg, _ := lead(t, disk, cluster(1))
		s := start(t, cfg)
		c := dialFake(t, s)
		for i := range 30 {
			c.send(t, xlapb.CoordinationService_InsertKeyValue_FullMethodName, &xlapb.InsertKeyValueRequest{Kv: &xlapb.KeyValueEntry{Key: fmt.Sprint(i)}})
			synctest.Wait() // the owner steps on while the disk is slow
		}
		if keys := s.View().Keys; keys != 30 {
			t.Errorf("View().Keys = %d while the first write is under way; want 30", keys)
		}
		c.mu.Lock()
		early := len(c.mu.replies)
		c.mu.Unlock()
		time.Sleep(3 * time.Second)
		c.mu.Lock()
		defer c.mu.Unlock()
		if n := appends.Load(); early != 0 || n != 2 || len(c.mu.replies) != 30 {
			t.Errorf("%d replies before the first write, %d writes, %d replies; want 0, 2, 30", early, n, len(c.mu.replies))
		}
	})
}

func TestPlantedReplyBeforeJournal(t *testing.T) {
	lab.Clause(t, "C-LOG-2")
	synctest.Test(t, func(t *testing.T) {
		disk := shareddisk.New(shareddisk.Config{Fault: func(op shareddisk.Op) error {
			if op.Action == shareddisk.OpAppend {
				return store.ErrDeposed
			}
			return nil
		}})
		cfg, _ := lead(t, disk, cluster(1))
		cfg.Planted = plant.ReplyBeforeJournal
		s := start(t, cfg)
		c := dialFake(t, s)
		c.send(t, xlapb.CoordinationService_InsertKeyValue_FullMethodName, &xlapb.InsertKeyValueRequest{Kv: &xlapb.KeyValueEntry{Key: "k"}})
		<-s.Done()
		c.mu.Lock()
		defer c.mu.Unlock()
		if len(c.mu.replies) != 1 {
			t.Error("the planted fault shows no reply before the journal")
		}
	})
}

func TestRestartKeepsTheJob(t *testing.T) {
	lab.Clause(t, "C-LOG-3", "NEW-46", "C-LOST-6", "NEW-37", "C-CFG-1", "C-WATCH-1")
	synctest.Test(t, func(t *testing.T) {
		disk := shareddisk.New(shareddisk.Config{})
		cfg := cluster(3)
		l, seat := serveOn(t, disk, cfg)
		tasks := fleet(t, l, 3, 100)
		if err := tasks[0].insert(t.Context(), "k"); err != nil {
			t.Fatalf("InsertKeyValue() = %v", err)
		}
		first := async(func() error { return tasks[0].barrier(t.Context(), "b", 0) })
		alive := async(func() error { return tasks[0].alive(t.Context()) })
		poll := tasks[2].poll(t.Context())
		before := l.View()

		l, _ = succeed(t, l, seat, disk, cfg, 3*timeout)
		for what, end := range map[string]<-chan error{"Barrier": first, "GetAliveTasks": alive, "PollForError": poll} {
			if err := lab.Failure(t, <-end); err.Code != codes.Unavailable || err.Details != nil {
				t.Errorf("%s() of a leader that died = %v with %q; want UNAVAILABLE from the transport", what, err, err.Details)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for _, k := range tasks {
			k.beating(ctx)
		}
		time.Sleep(5 * timeout)
		after := l.View()
		if after.Service != before.Service || after.Version < before.Version || after.Epoch != 1 {
			t.Errorf("after the restart: service %x, version %d, epoch %d; want %x, %d or more, 1", after.Service, after.Version, after.Epoch, before.Service, before.Version)
		}
		for _, v := range after.Tasks {
			if v.State != serry.Connected {
				t.Errorf("%v is %v after the restart; want connected", v.Task, v.State)
			}
		}
		if err := tasks[1].tryGet(t.Context(), "k"); err != nil {
			t.Errorf("TryGetKeyValue() = %v; want the value", err)
		}
		// Task 0 has arrived: the others are enough, and its repeat is told. For live tasks it must come
		// before them: a repeat without a request id is a new round if the lost one has ended.
		again := async(func() error { return tasks[0].alive(t.Context()) })
		pending(t, "GetAliveTasks(0) again", again)
		ends := []<-chan error{
			again,
			async(func() error { return tasks[1].barrier(t.Context(), "b", 0) }),
			async(func() error { return tasks[2].barrier(t.Context(), "b", 0) }),
			async(func() error { return tasks[0].barrier(t.Context(), "b", 0) }),
			async(func() error { return tasks[1].alive(t.Context()) }),
			async(func() error { return tasks[2].alive(t.Context()) }),
		}
		for i, end := range ends {
			if err := <-end; err != nil {
				t.Errorf("call %d after the restart = %v; want OK", i, err)
			}
		}
	})
}

func (k *task) alive(ctx context.Context) error {
	_, err := k.GetAliveTasks(ctx, &xlapb.GetAliveTasksRequest{Incarnations: k.who(), RequestingTaskId: k.id, TaskIds: []int32{0, 1, 2}})
	return err
}

func TestRestartWhileTasksRegister(t *testing.T) {
	lab.Clause(t, "C-LOG-3", "NEW-46", "C-REG-15")
	synctest.Test(t, func(t *testing.T) {
		disk := shareddisk.New(shareddisk.Config{})
		cfg := cluster(2)
		l, seat := serveOn(t, disk, cfg)
		first, second := &task{N: l.N(t), id: 0, own: 100}, &task{N: l.N(t), id: 1, own: 101}
		early := async(func() error { return first.register(t.Context()) })
		synctest.Wait()
		l, _ = succeed(t, l, seat, disk, cfg, time.Second)
		wantCode(t, "RegisterTask() of a leader that died", <-early, codes.Unavailable)
		late := async(func() error { return second.register(t.Context()) })
		pending(t, "RegisterTask(1) while task 0 has to come again", late)
		registerAll(t, []*task{first})
		if err := <-late; err != nil {
			t.Errorf("RegisterTask(1) = %v", err)
		}
		if n := len(l.View().Tasks); n != 2 {
			t.Errorf("View() has %d tasks", n)
		}
	})
}

func TestDeadlineIsExtendedByTheOutage(t *testing.T) {
	lab.Clause(t, "C-TIME-1", "NEW-47")
	synctest.Test(t, func(t *testing.T) {
		disk := shareddisk.New(shareddisk.Config{})
		cfg := cluster(2)
		cfg.Cluster.HeartbeatTimeout = time.Hour
		l, seat := serveOn(t, disk, cfg)
		tasks := fleet(t, l, 2, 100)
		wait := func() error {
			_, err := tasks[0].Barrier(t.Context(), &xlapb.BarrierRequest{
				Incarnations: tasks[0].who(), BarrierId: "b", BarrierTimeoutInMs: (10 * time.Second).Milliseconds(),
			})
			return err
		}
		first := async(wait)
		time.Sleep(4 * time.Second)
		succeed(t, l, seat, disk, cfg, time.Minute)
		wantCode(t, "Barrier() of a leader that died", <-first, codes.Unavailable)
		resumed := time.Now()
		wantCode(t, "Barrier() again", wait(), codes.DeadlineExceeded)
		if took := time.Since(resumed); took < 6*time.Second || took > 7*time.Second {
			t.Errorf("the barrier timed out %v after the restart; want 6s to 7s", took)
		}
		ticks := 0
		for _, ev := range readJournal(t, disk).events(t) {
			if ev == (coord.Tick{}) {
				ticks++
			}
		}
		if ticks < 8 || ticks > 12 {
			t.Errorf("%d ticks in the journal; want one a second while the barrier was open", ticks)
		}
	})
}

func TestFrozenLeaderAnswersNothing(t *testing.T) {
	lab.Clause(t, "C-TERM-2", "NEW-49")
	synctest.Test(t, func(t *testing.T) {
		disk := shareddisk.New(shareddisk.Config{})
		cfg := cluster(1)
		old, seat := serveOn(t, disk, cfg)
		tasks := fleet(t, old, 1, 100)
		if err := tasks[0].insert(t.Context(), "k"); err != nil {
			t.Fatalf("InsertKeyValue() = %v", err)
		}
		seat.Cut() // its process stands still, as far as the disk can tell
		disk.Expire()
		successor, _ := serveOn(t, disk, cfg)
		other := &task{N: successor.N(t), own: tasks[0].own, service: tasks[0].service}
		if _, err := other.DeleteKeyValue(t.Context(), &xlapb.DeleteKeyValueRequest{Incarnations: other.who(), Key: "k"}); err != nil {
			t.Fatalf("DeleteKeyValue() = %v", err)
		}
		get := async(func() error { return tasks[0].tryGet(t.Context(), "k") })
		pending(t, "TryGetKeyValue() of a leader that is cut off", get)
		seat.Heal()
		if err := lab.Failure(t, <-get); err.Code != codes.Unavailable || err.Details != nil {
			t.Errorf("TryGetKeyValue() of a deposed leader = %v; want UNAVAILABLE from the transport", err)
		}
		<-old.Done()
		if err := old.Err(); !errors.Is(err, store.ErrDeposed) {
			t.Errorf("Err() = %v; want %v", err, store.ErrDeposed)
		}
	})
}

func TestHandoverAnswersNobody(t *testing.T) {
	lab.Clause(t, "C-STOP-4", "NEW-51", "C-LOG-4", "A-HA-8")
	synctest.Test(t, func(t *testing.T) {
		disk := shareddisk.New(shareddisk.Config{})
		cfg := cluster(2)
		cfg, seat := lead(t, disk, cfg)
		l := lab.Serve(t, cfg)
		tasks := fleet(t, l, 2, 100)
		held := map[string]<-chan error{
			"Barrier":      async(func() error { return tasks[0].barrier(t.Context(), "b", 0) }),
			"PollForError": tasks[1].poll(t.Context()),
		}
		if err := l.Handover(t.Context()); err != nil {
			t.Fatalf("Handover() = %v", err)
		}
		held["TryGetKeyValue"] = async(func() error { return tasks[0].tryGet(t.Context(), "k") })
		for what, end := range held {
			pending(t, what+"() at a leader that has handed over", end)
		}
		time.Sleep(2 * time.Second) // what falls due meanwhile is for the successor, and no reason to hurry
		if err := cfg.Journal.Resign(t.Context()); err != nil {
			t.Fatalf("Resign() = %v", err)
		}
		seat.Close()
		l = l.Crash(t, func() server.Config {
			next, _ := lead(t, disk, cluster(2))
			return next
		})
		for what, end := range held {
			if err := lab.Failure(t, <-end); err.Code != codes.Unavailable || err.Details != nil {
				t.Errorf("%s() = %v; want UNAVAILABLE from the transport", what, err)
			}
		}
		again := async(func() error { return tasks[0].barrier(t.Context(), "b", 0) })
		if err := errors.Join(tasks[1].barrier(t.Context(), "b", 0), <-again); err != nil {
			t.Errorf("Barrier() at the successor = %v; want OK", err)
		}
		if j := readJournal(t, disk); len(j.snapshot) == 0 {
			t.Error("the journal has no snapshot after the hand-over")
		}
	})
}

// TestSlowJournalIsNotSilence: a task that registers hears of it when the journal has it, and its time
// begins then.
func TestSlowJournalIsNotSilence(t *testing.T) {
	lab.Clause(t, "C-HB-6", "C-LOG-2", "C-LOST-6")
	synctest.Test(t, func(t *testing.T) {
		disk := shareddisk.New(shareddisk.Config{Fault: func(op shareddisk.Op) error {
			if op.Action == shareddisk.OpAppend {
				time.Sleep(2 * timeout)
			}
			return nil
		}})
		l, _ := serveOn(t, disk, cluster(1))
		fleet(t, l, 1, 100)
		time.Sleep(timeout - time.Second)
		if got := state(l, 0); got != serry.Connected {
			t.Errorf("less than a timeout after its registration the task is %v; want connected", got)
		}
		time.Sleep(3 * time.Second)
		if got := state(l, 0); got != serry.Failed {
			t.Errorf("more than a timeout after its registration the task is %v; want failed", got)
		}
	})
}

// The same for a task that was registered by a leader who could not tell it any more.
func TestSlowSuccessorIsNotSilence(t *testing.T) {
	lab.Clause(t, "C-HB-6", "C-LOG-2", "C-LOST-6")
	synctest.Test(t, func(t *testing.T) {
		var slow atomic.Bool
		disk := shareddisk.New(shareddisk.Config{Fault: func(op shareddisk.Op) error {
			if slow.Load() && op.Action == shareddisk.OpAppend {
				time.Sleep(2 * timeout)
			}
			return nil
		}})
		cfg := cluster(1)
		l, seat := serveOn(t, disk, cfg)
		k := fleet(t, l, 1, 100)[0]
		slow.Store(true)
		l, _ = succeed(t, l, seat, disk, cfg, time.Second)
		began := time.Now()
		if err := k.register(t.Context()); err != nil || time.Since(began) < 2*timeout {
			t.Fatalf("RegisterTask() again = %v after %v; want OK when the journal has let it pass", err, time.Since(began))
		}
		time.Sleep(timeout - time.Second)
		if got := state(l, 0); got != serry.Connected {
			t.Errorf("less than a timeout after it was told the task is %v; want connected", got)
		}
	})
}

func TestHandoverNeedsAJournal(t *testing.T) {
	lab.Clause(t, "NEW-51")
	synctest.Test(t, func(t *testing.T) {
		l := lab.Serve(t, cluster(1))
		if err := l.Handover(t.Context()); err == nil {
			t.Error("Handover() without a journal = nil; want an error")
		}
	})
}

func TestLargeValuesLieAside(t *testing.T) {
	lab.Clause(t, "C-LOG-5", "C-LIM-2", "NEW-53")
	synctest.Test(t, func(t *testing.T) {
		var crash atomic.Bool
		disk := shareddisk.New(shareddisk.Config{Fault: func(op shareddisk.Op) error {
			if crash.Load() && op.Action == shareddisk.OpAppend {
				return errors.New("crash")
			}
			return nil
		}})
		const limit = 4 << 20
		cfg := cluster(1)
		cfg.Cluster.Limits.ValueBytes = limit
		l, seat := serveOn(t, disk, cfg)
		tasks := fleet(t, l, 1, 100)
		value := bytes.Repeat([]byte("abcdefgh"), limit/8)
		put := func(key string, v []byte) error {
			_, err := tasks[0].InsertKeyValue(t.Context(), &xlapb.InsertKeyValueRequest{
				Incarnations: tasks[0].who(), Kv: &xlapb.KeyValueEntry{Key: key, Value: v},
			})
			return err
		}
		if err := put("large", value); err != nil {
			t.Fatalf("InsertKeyValue() = %v", err)
		}
		wantCode(t, "InsertKeyValue() one byte over the limit", put("larger", append(value, 0)), codes.ResourceExhausted)
		size := 0
		for _, b := range readJournal(t, disk).batches {
			size += len(b)
		}
		if size > 1<<10 {
			t.Errorf("the journal of a value of 4 MiB has %d bytes; want a few hundred", size)
		}
		crash.Store(true)
		wantCode(t, "InsertKeyValue() when the leader crashes before the record", put("lost", slices.Concat(value[1:], value[:1])), codes.Unavailable)
		crash.Store(false)
		l, seat = succeed(t, l, seat, disk, cfg, time.Second)
		r, err := tasks[0].TryGetKeyValue(t.Context(), &xlapb.TryGetKeyValueRequest{Incarnations: tasks[0].who(), Key: "large"})
		if err != nil || !bytes.Equal(r.GetKv().GetValue(), value) {
			t.Errorf("TryGetKeyValue() after the restart = %d bytes, %v; want the value", len(r.GetKv().GetValue()), err)
		}
		wantCode(t, "TryGetKeyValue() of what was never acknowledged", tasks[0].tryGet(t.Context(), "lost"), codes.NotFound)
		if err := l.Handover(t.Context()); err != nil {
			t.Fatalf("Handover() = %v", err)
		}
		succeed(t, l, seat, disk, cfg, time.Second)
		r, err = tasks[0].TryGetKeyValue(t.Context(), &xlapb.TryGetKeyValueRequest{Incarnations: tasks[0].who(), Key: "large"})
		if err != nil || !bytes.Equal(r.GetKv().GetValue(), value) {
			t.Errorf("TryGetKeyValue() from a snapshot = %d bytes, %v; want the value", len(r.GetKv().GetValue()), err)
		}
	})
}

func TestSnapshotsKeepTheJournalShort(t *testing.T) {
	lab.Clause(t, "C-LOG-4")
	synctest.Test(t, func(t *testing.T) {
		disk := shareddisk.New(shareddisk.Config{})
		cfg, _ := lead(t, disk, cluster(1))
		cfg.SnapshotBytes = 4 << 20
		s := start(t, cfg)
		c := dialFake(t, s)
		value := bytes.Repeat([]byte("v"), 32<<10)
		for range 1000 { // 32 MiB of records, of which one stays true
			c.send(t, xlapb.CoordinationService_InsertKeyValue_FullMethodName, &xlapb.InsertKeyValueRequest{
				Kv: &xlapb.KeyValueEntry{Key: "k", Value: value}, AllowOverwrite: true,
			})
			synctest.Wait()
		}
		size := 0
		for _, b := range readJournal(t, disk).batches {
			size += len(b)
		}
		if size > 5<<20 {
			t.Errorf("the journal has %d bytes after 1000 writes of one key; want at most 4 MiB and one wave", size)
		}
	})
}

func TestErrorsByHeartbeatSurviveARestart(t *testing.T) {
	lab.Clause(t, "A-HA-2", "A-HA-3", "A-HA-6", "C-POLL-11", "NEW-54")
	synctest.Test(t, func(t *testing.T) {
		disk := shareddisk.New(shareddisk.Config{})
		cfg := cluster(2)
		cfg.Cluster.ErrorsByBeat = true
		l, seat := serveOn(t, disk, cfg)
		tasks := fleet(t, l, 2, 100)
		for _, k := range tasks {
			wantCode(t, "PollForError()", <-k.poll(t.Context()), codes.Canceled)
		}
		service := tasks[0].service
		l, _ = succeed(t, l, seat, disk, cfg, timeout/2)
		for _, k := range tasks {
			if err := k.beat(t.Context()); err != nil {
				t.Errorf("Heartbeat(%d) after the restart = %v; want OK", k.id, err)
			}
		}
		if got := uint64(l.View().Service); got != service {
			t.Errorf("service incarnation %x after the restart; want %x", got, service)
		}
		l.Lost(serry.TaskID{Job: "worker", Index: 1}, "host silent")
		synctest.Wait()
		if err := lab.Failure(t, tasks[0].beat(t.Context())); err.Code != codes.Aborted || !strings.Contains(err.Message, "host silent") {
			t.Errorf("Heartbeat() after the loss of task 1 = %v; want ABORTED that names it", err)
		}
	})
}

func TestStoppedServiceStandsForAnotherRun(t *testing.T) {
	lab.Clause(t, "C-STOP-1", "NEW-51", "C-EPOCH-2")
	synctest.Test(t, func(t *testing.T) {
		disk := shareddisk.New(shareddisk.Config{})
		cfg, seat := lead(t, disk, cluster(2))
		l := lab.Serve(t, cfg)
		tasks := fleet(t, l, 2, 100)
		held := async(func() error { return tasks[0].barrier(t.Context(), "b", 0) })
		synctest.Wait()
		l.Stop(t.Context())
		wantCode(t, "Barrier() of a service that ends", <-held, codes.Aborted)
		seat.Close()
		next, _ := lead(t, disk, cluster(2))
		l = l.Crash(t, func() server.Config { return next })
		fleet(t, l, 2, 200)
		if v := l.View(); v.Epoch != 2 || v.Stopped {
			t.Errorf("View() after the restart: epoch %d, stopped %v; want the second epoch", v.Epoch, v.Stopped)
		}
	})
}

func TestNotesAscendOverLeaders(t *testing.T) {
	lab.Clause(t, "C-LOG-3")
	synctest.Test(t, func(t *testing.T) {
		disk := shareddisk.New(shareddisk.Config{})
		cfg := cluster(2)
		l, seat := serveOn(t, disk, cfg)
		fleet(t, l, 2, 100)
		seen := uint64(0)
		for i := range 3 {
			time.Sleep(time.Second)
			fresh := 0
			for _, n := range notesAfter(t, l, seen) {
				seen, fresh = n.Number, fresh+1
			}
			if fresh == 0 || i > 0 && fresh > 3 {
				t.Errorf("%d notes after those that were seen under the former leader; want those of the new one", fresh)
			}
			if err := l.Handover(t.Context()); err != nil { // with a snapshot, so that nothing is replayed
				t.Fatalf("Handover() = %v", err)
			}
			l, seat = succeed(t, l, seat, disk, cfg, time.Minute)
		}
	})
}

// notesAfter asks for the notes with greater numbers, as serry watch does.
func notesAfter(t *testing.T, l *lab.Lab, number uint64) []wire.NoteStatus {
	t.Helper()
	return notesOf(t, l.Server, number)
}

// notesOf are the notes of a server after one.
func notesOf(t *testing.T, s *server.Server, number uint64) []wire.NoteStatus {
	t.Helper()
	c := dialFake(t, s)
	path, body, err := wire.StatusQuery{After: number}.Request()
	if err != nil {
		t.Fatal(err)
	}
	call := c.sendBytes(path, body)
	synctest.Wait()
	r, _ := c.reply(call)
	st, err := wire.ReadStatus(r.body)
	if err != nil {
		t.Fatalf("status: %v, %v", r.status, err)
	}
	return st.Notes
}

func TestOtherSettingsAfterARestart(t *testing.T) {
	lab.Clause(t, "C-LOG-3", "C-EPOCH-2")
	synctest.Test(t, func(t *testing.T) {
		disk := shareddisk.New(shareddisk.Config{})
		cfg := cluster(2)
		l, seat := serveOn(t, disk, cfg)
		fleet(t, l, 2, 100)

		cfg.Cluster.ShutdownTimeout = 0
		l, seat = succeed(t, l, seat, disk, cfg, time.Second)
		j := readJournal(t, disk)
		if strings.Contains(string(j.settings), "shutdown_timeout") {
			t.Errorf("settings of the journal %s; want those of now", j.settings)
		}
		if v := l.View(); v.Epoch != 1 || v.Tasks[0].State != serry.Connected {
			t.Errorf("View() after other settings: epoch %d, %v; want the same job", v.Epoch, v.Tasks[0].State)
		}
		l.Close()
		seat.Kill()
		disk.Expire()
		other := cluster(3)
		other, seat = lead(t, disk, other)
		if _, err := server.New(other); err == nil || !strings.Contains(err.Error(), "worker/0 is still connected") {
			t.Errorf("New() for another job = %v; want an error that says who is still there", err)
		}
	})
}

// TestOtherSettingsAfterAHandover starts a server with other settings on a journal that ends with a snapshot, as every polite stop leaves
// it: nothing follows that would have to be replayed under the former settings, and those of now count all the same.
func TestOtherSettingsAfterAHandover(t *testing.T) {
	lab.Clause(t, "C-LOG-3", "C-SHUT-1")
	synctest.Test(t, func(t *testing.T) {
		disk := shareddisk.New(shareddisk.Config{})
		cfg := cluster(2)
		l, seat := serveOn(t, disk, cfg)
		fleet(t, l, 2, 100)
		if err := l.Handover(t.Context()); err != nil {
			t.Fatalf("Handover() = %v", err)
		}
		if n := len(readJournal(t, disk).batches); n != 0 {
			t.Fatalf("%d batches behind the snapshot of a hand-over; want none", n)
		}
		cfg.Cluster.ShutdownTimeout = 0 // a task that leaves waits for no other
		l, _ = succeed(t, l, seat, disk, cfg, time.Second)
		began := time.Now()
		leaver := &task{N: l.N(t), id: 0, own: 100}
		if err := leaver.shutdown(t.Context()); err != nil || time.Since(began) > time.Second {
			t.Errorf("ShutdownTask(0) = %v after %v; want nil at once", err, time.Since(began))
		}
	})
}
