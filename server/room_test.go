package server_test

import (
	"bytes"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/serry-dev/serry/internal/lab"
	"github.com/serry-dev/serry/internal/lab/faultydisk"
	"github.com/serry-dev/serry/internal/lab/shareddisk"
	"github.com/serry-dev/serry/server"
	"github.com/serry-dev/serry/store"
	"github.com/serry-dev/serry/wire/xlapb"
)

// A smallReign is the reign of a store with little room.
type smallReign struct {
	store.Reign
	capacity int64
	full     atomic.Pointer[store.FullError]
}

func (r *smallReign) Capacity() int64        { return r.capacity }
func (r *smallReign) Full() *store.FullError { return r.full.Load() }

// serveSmall serves one task on a store with room for a million bytes.
func serveSmall(t *testing.T, fault func(shareddisk.Op) error) (*task, *smallReign, *lab.Lab) {
	t.Helper()
	cfg, _ := lead(t, shareddisk.New(shareddisk.Config{Fault: fault}), cluster(1))
	r := &smallReign{Reign: cfg.Journal, capacity: 1_000_000}
	cfg.Journal, cfg.SnapshotBytes = r, server.DefaultSnapshotBytes
	l := lab.Serve(t, cfg)
	return fleet(t, l, 1, 100)[0], r, l
}

func (k *task) store(t *testing.T, key string, value []byte) error {
	t.Helper()
	_, err := k.InsertKeyValue(t.Context(), &xlapb.InsertKeyValueRequest{
		Incarnations: k.who(), AllowOverwrite: true, Kv: &xlapb.KeyValueEntry{Key: key, Value: value},
	})
	return err
}

func TestStoreWithoutRoom(t *testing.T) {
	lab.Clause(t, "C-LIM-1", "NEW-62")
	for name, size := range map[string]int{"in the journal": 10_000, "aside": 100_000} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k, _, l := serveSmall(t, nil)
				var err error
				stored := 0
				for ; err == nil; stored++ {
					err = k.store(t, fmt.Sprint("dir/", stored), bytes.Repeat([]byte{byte(stored)}, size))
				}
				wantLimit(t, "InsertKeyValue", err, "room in the store")
				if total := stored * size; total < 400_000 || total > 1_000_000 {
					t.Errorf("%d bytes were stored in a store for 1,000,000; want most of the half of it, or of all", total)
				}
				if err := k.tryGet(t.Context(), "dir/0"); err != nil {
					t.Errorf("TryGetKeyValue() = %v; want OK", err)
				}
				if err := k.barrier(t.Context(), "b", 0); err != nil {
					t.Errorf("Barrier() = %v; want OK", err)
				}
				if _, err := k.DeleteKeyValue(t.Context(), &xlapb.DeleteKeyValueRequest{Key: "dir", IsDirectory: true}); err != nil {
					t.Errorf("DeleteKeyValue() = %v; want OK", err)
				}
				time.Sleep(time.Second) // the snapshots without these keys are saved
				if err := k.store(t, "k", make([]byte, size)); err != nil {
					t.Errorf("InsertKeyValue() after the others were deleted = %v; want OK", err)
				}
				served(t, k)
				select {
				case <-l.Done():
					t.Errorf("the service has ended: %v", l.Err())
				default:
				}
			})
		})
	}
}

// A barrier that is cancelled before its first call is remembered, so that such calls fill a store like any
// other: they are refused before it is full.
func TestRoomForCancelledBarriers(t *testing.T) {
	lab.Clause(t, "C-LIM-1", "C-CAN-5")
	synctest.Test(t, func(t *testing.T) {
		k, _, _ := serveSmall(t, nil)
		for i := range 3_000 {
			_, err := k.CancelBarrier(t.Context(), &xlapb.CancelBarrierRequest{
				Incarnations: k.who(), BarrierId: fmt.Sprintf("%01000d", i), SourceTaskId: int32(k.id),
			})
			if err != nil {
				wantLimit(t, "CancelBarrier", err, "room in the store")
				return
			}
		}
		t.Error("3,000 ids of 1,000 bytes were remembered in a store for 1,000,000; want them refused")
	})
}

// Values that replace each other leave garbage until a snapshot is saved; that comes in time.
func TestRoomIsMadeInTime(t *testing.T) {
	lab.Clause(t, "C-LIM-1", "C-LOG-4")
	for name, size := range map[string]int{"in the journal": 10_000, "aside": 100_000} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k, _, _ := serveSmall(t, nil)
				for i := range 300 {
					if err := k.store(t, "k", bytes.Repeat([]byte{byte(i)}, size)); err != nil {
						t.Fatalf("InsertKeyValue(%d) = %v; want OK", i, err)
					}
					synctest.Wait() // for a snapshot that is being saved
				}
			})
		})
	}
}

// A successor counts what the journal has named, finds out what of it is needed, and has room for more.
func TestRoomAfterARestart(t *testing.T) {
	lab.Clause(t, "C-LIM-1", "C-LOG-3")
	synctest.Test(t, func(t *testing.T) {
		disk := shareddisk.New(shareddisk.Config{})
		l, seat := serveOn(t, disk, cluster(1)) // which has any amount of room
		k := fleet(t, l, 1, 100)[0]
		for i := range 20 {
			if err := k.store(t, "overwritten", bytes.Repeat([]byte{byte(i)}, 100_000)); err != nil {
				t.Fatalf("InsertKeyValue() = %v", err)
			}
		}
		seat.Kill()
		disk.Expire()
		l = l.Crash(t, func() server.Config {
			cfg, _ := lead(t, disk, cluster(1))
			cfg.Journal = &smallReign{Reign: cfg.Journal, capacity: 1_000_000}
			return cfg
		})
		next := &task{N: l.N(t), id: k.id, own: k.own}
		if err := next.register(t.Context()); err != nil {
			t.Fatalf("RegisterTask() = %v", err)
		}
		time.Sleep(time.Second) // snapshots are saved
		if err := next.store(t, "another", bytes.Repeat([]byte("x"), 100_000)); err != nil {
			t.Errorf("InsertKeyValue() after a restart = %v; want OK", err)
		}
	})
}

// A store that takes no writes keeps what must be written waiting. Callers that would store something are
// told at once.
func TestFullStore(t *testing.T) {
	lab.Clause(t, "C-LIM-1", "C-LOG-2")
	synctest.Test(t, func(t *testing.T) {
		var r *smallReign
		k, r, l := serveSmall(t, func(op shareddisk.Op) error {
			for op.Action == shareddisk.OpAppend && r != nil && r.full.Load() != nil {
				time.Sleep(time.Second)
			}
			return nil
		})
		if err := k.store(t, "k", []byte("v")); err != nil {
			t.Fatalf("InsertKeyValue() = %v", err)
		}
		r.full.Store(&store.FullError{What: "the etcd database", Fix: "make room", Err: errors.New("no space")})
		wantLimit(t, "InsertKeyValue", k.store(t, "other", []byte("v")), "the etcd database is full (make room)")
		if err := k.tryGet(t.Context(), "k"); err != nil {
			t.Errorf("TryGetKeyValue() = %v; want OK: nothing is to be written for it", err)
		}
		met := make(chan error, 1)
		go func() { met <- k.barrier(t.Context(), "b", 0) }()
		time.Sleep(time.Minute)
		select {
		case err := <-met:
			t.Errorf("Barrier() = %v, although the journal does not have it", err)
		case <-l.Done():
			t.Fatalf("the service has ended: %v", l.Err())
		default:
		}
		wantLimit(t, "InsertKeyValue behind a barrier that waits", k.store(t, "other", []byte("v")), "the etcd database is full (make room)")
		if err := k.beat(t.Context()); err != nil {
			t.Errorf("Heartbeat() = %v; want OK", err)
		}
		r.full.Store(nil)
		if err := <-met; err != nil {
			t.Errorf("Barrier() = %v, although there is room", err)
		}
		wantCode(t, "InsertKeyValue", k.store(t, "other", []byte("v")), codes.OK)
	})
}

// As many reads as the journal takes waves, and more, wait for a store that is full, and the deadline of a barrier is
// pending. Callers that would store something are told at once all the same, and nothing is lost.
func TestFullStoreBehindReads(t *testing.T) {
	lab.Clause(t, "C-LIM-1", "C-LOG-2", "C-TIME-1")
	synctest.Test(t, func(t *testing.T) {
		var r *smallReign
		cfg, _ := lead(t, shareddisk.New(shareddisk.Config{Fault: func(op shareddisk.Op) error {
			for op.Action == shareddisk.OpAppend && r != nil && r.full.Load() != nil {
				time.Sleep(time.Second)
			}
			return nil
		}}), cluster(2))
		r = &smallReign{Reign: cfg.Journal, capacity: 1_000_000}
		cfg.Journal, cfg.SnapshotBytes = r, server.DefaultSnapshotBytes
		tasks := fleet(t, lab.Serve(t, cfg), 2, 100)
		for _, k := range tasks {
			k.beating(t.Context())
		}
		met := async(func() error { return tasks[0].timedBarrier(t.Context(), "b", time.Minute) })
		synctest.Wait()
		r.full.Store(&store.FullError{What: "the etcd database", Fix: "make room", Err: errors.New("no space")})
		time.Sleep(time.Hour)
		var reads []<-chan error
		for range 100 {
			reads = append(reads, async(func() error { return tasks[0].tryGet(t.Context(), "k") }))
			synctest.Wait()
		}
		arrival := async(func() error { return tasks[1].timedBarrier(t.Context(), "b", time.Minute) })
		for range 3 {
			refused := async(func() error { return tasks[0].store(t, "other", []byte("v")) })
			time.Sleep(time.Minute)
			select {
			case err := <-refused:
				wantLimit(t, "InsertKeyValue", err, "the etcd database is full (make room)")
			default:
				t.Error("InsertKeyValue() waits; want it refused")
			}
		}
		pending(t, "Barrier()", met)
		r.full.Store(nil)
		for _, read := range reads {
			wantCode(t, "TryGetKeyValue", <-read, codes.NotFound)
		}
		wantCode(t, "Barrier() of the first", <-met, codes.OK)
		wantCode(t, "Barrier() of the second", <-arrival, codes.OK)
		wantCode(t, "InsertKeyValue", tasks[0].store(t, "other", []byte("v")), codes.OK)
	})
}

// A disk that is full does not end a server with its journal in a file. What was being written waits, other
// calls that store something are refused, and heartbeats go on. With room everything goes on.
func TestFullDisk(t *testing.T) {
	lab.Clause(t, "C-LIM-1", "C-LOG-2", "NEW-62")
	synctest.Test(t, func(t *testing.T) {
		disk := faultydisk.New(faultydisk.Config{Dir: t.TempDir(), RoomPause: 250 * time.Millisecond})
		st, err := disk.Open()
		if err != nil {
			t.Fatal(err)
		}
		defer st.Close()
		cfg := cluster(1)
		if cfg.Journal, err = st.Campaign(t.Context(), store.Candidate{}); err != nil {
			t.Fatal(err)
		}
		l := lab.Serve(t, cfg)
		k := fleet(t, l, 1, 100)[0]
		if err := k.store(t, "a", []byte("1")); err != nil {
			t.Fatalf("InsertKeyValue() = %v", err)
		}
		disk.Fill(true)
		waiting := make(chan error, 1)
		go func() { waiting <- k.store(t, "b", []byte("2")) }()
		time.Sleep(time.Second)
		for range 3 {
			wantLimit(t, "InsertKeyValue", k.store(t, "c", []byte("3")), "is full (free space there")
			if err := k.beat(t.Context()); err != nil {
				t.Errorf("Heartbeat() = %v; want OK", err)
			}
			time.Sleep(4 * time.Second)
		}
		select {
		case err := <-waiting:
			t.Errorf("InsertKeyValue() = %v on a full disk; want it to wait", err)
		default:
		}
		disk.Fill(false)
		if err := <-waiting; err != nil {
			t.Errorf("InsertKeyValue() = %v when there is room; want OK", err)
		}
		if err := k.store(t, "c", []byte("3")); err != nil {
			t.Errorf("InsertKeyValue() after that = %v; want OK", err)
		}
		served(t, k)
		select {
		case <-l.Done():
			t.Errorf("the service has ended: %v", l.Err())
		default:
		}
	})
}
