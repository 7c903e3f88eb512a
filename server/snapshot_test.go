package server_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/serry-dev/serry/internal/lab"
	"github.com/serry-dev/serry/internal/lab/shareddisk"
	"github.com/serry-dev/serry/server"
	"github.com/serry-dev/serry/store"
	"github.com/serry-dev/serry/wire/xlapb"
)

// A slowSaver is a job of one task. Snapshots are worth it from 10,000 bytes on, and once it is slow they
// take a minute.
type slowSaver struct {
	*lab.Lab
	task *task
	cfg  server.Config
	disk *shareddisk.Disk
	seat *shareddisk.Handle

	slow  atomic.Bool
	saves atomic.Int32 // begun while it was
}

func newSlowSaver(t *testing.T) *slowSaver {
	s := &slowSaver{cfg: cluster(1)}
	s.disk = shareddisk.New(shareddisk.Config{Fault: func(op shareddisk.Op) error {
		if s.slow.Load() && op.Action == shareddisk.OpSave && !op.Done {
			s.saves.Add(1)
			time.Sleep(time.Minute)
		}
		return nil
	}})
	s.cfg.SnapshotBytes = 10_000
	s.Lab, s.seat = serveOn(t, s.disk, s.cfg)
	s.task = fleet(t, s.Lab, 1, 100)[0]
	s.slow.Store(true)
	return s
}

// insertion is a key with a value of a size.
func insertion(key string, size int) *xlapb.InsertKeyValueRequest {
	return &xlapb.InsertKeyValueRequest{Kv: &xlapb.KeyValueEntry{Key: key, Value: make([]byte, size)}}
}

func TestJournalGoesOnWhileASnapshotIsSaved(t *testing.T) {
	lab.Clause(t, "C-LOG-4", "C-LOG-2")
	synctest.Test(t, func(t *testing.T) {
		s := newSlowSaver(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		s.task.beating(ctx)
		insert := func(key string, size int) {
			t.Helper()
			began := time.Now()
			if _, err := s.task.InsertKeyValue(t.Context(), insertion(key, size)); err != nil || time.Since(began) != 0 {
				t.Fatalf("InsertKeyValue(%s) = %v after %v; want it at once", key, err, time.Since(began))
			}
		}
		insert("large", 10_000) // a snapshot is due
		for i := range 5 {
			insert(fmt.Sprint("small ", i), 10)
		}
		if n := s.saves.Load(); n != 1 {
			t.Fatalf("%d snapshots are being saved; want 1", n)
		}
		if j := readJournal(t, s.disk); len(j.snapshot) > 1000 || len(j.batches) < 6 {
			t.Errorf("while it is saved: a snapshot of %d bytes and %d batches; want the old one and all batches", len(j.snapshot), len(j.batches))
		}
		time.Sleep(2 * time.Minute)
		if j := readJournal(t, s.disk); len(j.snapshot) < 10_000 || len(j.batches) != 5 {
			t.Errorf("when it is saved: a snapshot of %d bytes and %d batches; want the new one and the 5 batches after it", len(j.snapshot), len(j.batches))
		}
		s.slow.Store(false)
		l, _ := succeed(t, s.Lab, s.seat, s.disk, s.cfg, time.Second)
		if v := l.View(); v.Keys != 6 {
			t.Errorf("%d keys after a restart; want 6", v.Keys)
		}
	})
}

// Who writes faster than snapshots can be saved waits for them, so that the store does not fill up.
func TestJournalWaitsForASnapshotThatTakesTooLong(t *testing.T) {
	lab.Clause(t, "C-LOG-4")
	synctest.Test(t, func(t *testing.T) {
		s := newSlowSaver(t)
		began := time.Now()
		for i := range 5 { // the first is worth a snapshot; while that is saved there is room for two of its kind
			if _, err := s.task.InsertKeyValue(t.Context(), insertion(fmt.Sprint(i), 10_000)); err != nil {
				t.Fatalf("InsertKeyValue() = %v", err)
			}
		}
		if took := time.Since(began); took != time.Minute {
			t.Errorf("five large writes took %v; want the minute of a snapshot", took)
		}
	})
}

func TestSaveFails(t *testing.T) {
	lab.Clause(t, "C-LOG-4", "NEW-45")
	synctest.Test(t, func(t *testing.T) {
		full := &store.FullError{What: "disk", Fix: "make room", Err: errors.New("no space left on device")}
		var begin atomic.Bool
		disk := shareddisk.New(shareddisk.Config{Fault: func(op shareddisk.Op) error {
			if begin.Load() && op.Action == shareddisk.OpSave {
				time.Sleep(time.Second)
				return full
			}
			return nil
		}})
		cfg, _ := lead(t, disk, cluster(1))
		cfg.SnapshotBytes = 10_000
		l := lab.Serve(t, cfg)
		k := fleet(t, l, 1, 100)[0]
		begin.Store(true)
		if _, err := k.InsertKeyValue(t.Context(), insertion("large", 10_000)); err != nil {
			t.Fatalf("InsertKeyValue() = %v", err)
		}
		<-l.Done()
		if err := l.Err(); !errors.Is(err, full) {
			t.Errorf("Err() = %v; want %v", err, full)
		}
	})
}

// A hand-over saves a snapshot of its own, when the one before it is done.
func TestHandoverWaitsForASnapshot(t *testing.T) {
	lab.Clause(t, "C-LOG-4", "C-STOP-4")
	synctest.Test(t, func(t *testing.T) {
		s := newSlowSaver(t)
		for _, r := range []*xlapb.InsertKeyValueRequest{insertion("large", 10_000), insertion("small", 10)} {
			if _, err := s.task.InsertKeyValue(t.Context(), r); err != nil {
				t.Fatalf("InsertKeyValue() = %v", err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := s.Handover(ctx); err != nil {
			t.Fatalf("Handover() = %v", err)
		}
		if j := readJournal(t, s.disk); s.saves.Load() != 2 || len(j.batches) != 0 {
			t.Errorf("%d snapshots were saved, and %d batches are left; want 2, and none", s.saves.Load(), len(j.batches))
		}
	})
}
