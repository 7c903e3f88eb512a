package member_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/serry-dev/serry/internal/lab"
	"github.com/serry-dev/serry/internal/lab/conform"
	"github.com/serry-dev/serry/store"
	"github.com/serry-dev/serry/store/etcd"
	"github.com/serry-dev/serry/store/member"
)

func start(t *testing.T, cfg member.Config) (*member.Member, store.Store) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	m, err := member.Start(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	st, err := m.Open(t.Context(), etcd.Config{LeaseTTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	return m, st
}

// A member whose database is mostly free gives the space back.
func TestUpkeep(t *testing.T) {
	m, st := start(t, member.Config{Name: "a", Peers: map[string]string{"a": reserve(t, 1)[0]}, Dir: folder(t), QuotaBytes: 10 << 20})
	r := conform.Campaign(t, st, "a")
	for n := range 12 {
		conform.Append(t, r, string(conform.Bytes(fmt.Sprint(n), 500_000)))
	}
	if err := r.Save(t.Context(), r.Mark(), []byte("all"), nil); err != nil {
		t.Fatalf("Save() = %v", err)
	}
	before := m.Size()
	for begun := time.Now(); m.Size() > before/2; { // the member compacts in the background, and counts what is free when it writes its database
		if time.Since(begun) > time.Minute {
			t.Fatalf("the database has %d bytes of %d after upkeep", m.Size(), before)
		}
		if err := m.Tend(t.Context()); err != nil {
			t.Fatal(err)
		}
		conform.Append(t, r, "x")
	}
	if l := conform.Load(t, r); l.Snapshot != "all" {
		t.Errorf("Load() = %v; want the snapshot", l)
	}
}

// Members do not defragment at the same time: while one has the turn, the others leave it for later.
func TestUpkeepInTurn(t *testing.T) {
	_, members, stores := several(t, 3, 16<<20)
	client := members["a"].Client()
	if _, err := client.Put(t.Context(), member.TurnKey, "another"); err != nil {
		t.Fatal(err)
	}
	r := conform.Campaign(t, stores["a"], "a")
	for n := range 20 {
		conform.Append(t, r, string(conform.Bytes(fmt.Sprint(n), 500_000)))
	}
	if err := r.Save(t.Context(), r.Mark(), []byte("all"), nil); err != nil {
		t.Fatalf("Save() = %v", err)
	}
	for name, m := range members {
		for !m.Wants() { // its history is dropped while it goes on
			conform.Append(t, r, "x")
		}
		before := m.Size()
		if err := m.Tend(t.Context()); err != nil || m.Size() < before {
			t.Errorf("%s: Tend() = %v, and the size went from %d to %d; want it to wait for its turn", name, err, before, m.Size())
		}
	}
	released, err := client.Delete(t.Context(), member.TurnKey)
	if err != nil {
		t.Fatal(err)
	}
	var tends sync.WaitGroup
	for name, m := range members {
		tends.Go(func() {
			for m.Wants() {
				if err := m.Tend(t.Context()); err != nil {
					t.Errorf("%s: Tend() = %v", name, err)
					return
				}
			}
		})
	}
	tends.Wait()
	conform.Append(t, r, "goes on")
	took := make(map[string]int)
	free := true
	for ev := range turns(t, client, released.Header.Revision+1) {
		if ev.Type == clientv3.EventTypeDelete {
			free = true
			continue
		}
		if !free && ev.IsCreate() {
			t.Errorf("%s took the turn of another", ev.Kv.Value)
		}
		free = false
		took[string(ev.Kv.Value)]++
	}
	if len(took) != len(members) {
		t.Errorf("these took turns: %v; want all", took)
	}
}

// Members that have found their quota reached make room one after the other, and all goes on by itself.
func TestReclaimInTurn(t *testing.T) {
	lab.Clause(t, "C-LIM-1")
	_, members, stores := several(t, 3, 16<<20)
	r := conform.Campaign(t, stores["a"], "a")
	for _, m := range members {
		if err := m.Alarm(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	conform.Append(t, r, "waits for room")
	for name, m := range members {
		for len(m.Full()) > 0 { // it learns of the last one a moment later
			conform.Append(t, r, "x")
		}
		if err := m.Tend(t.Context()); err != nil {
			t.Errorf("%s: Tend() = %v", name, err)
		}
	}
}

// turns are the changes of the key of turns, from a revision to now.
func turns(t *testing.T, client *clientv3.Client, from int64) iter.Seq[*clientv3.Event] {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	now, err := client.Put(ctx, member.TurnKey+"/end", "")
	if err != nil {
		t.Fatal(err)
	}
	watch := client.Watch(ctx, member.TurnKey, clientv3.WithPrefix(), clientv3.WithRev(from))
	return func(yield func(*clientv3.Event) bool) {
		for resp := range watch {
			if err := resp.Err(); err != nil {
				t.Error(err)
				return
			}
			for _, ev := range resp.Events {
				if ev.Kv.ModRevision >= now.Header.Revision || !yield(ev) {
					return
				}
			}
		}
	}
}

// A journal that has outgrown its quota waits, and is found whole by a member with a larger one.
func TestLargerQuota(t *testing.T) {
	lab.Clause(t, "C-LIM-1")
	cfg := member.Config{Name: "a", Peers: map[string]string{"a": reserve(t, 1)[0]}, Dir: folder(t), QuotaBytes: 6 << 20}
	m, st := start(t, cfg)
	r := conform.Campaign(t, st, "a")
	ctx, giveUp := context.WithCancelCause(t.Context())
	defer giveUp(nil)
	stopped := errors.New("stopped")
	context.AfterFunc(full(t, r), func() { giveUp(stopped) })
	n := 0
	var err error
	for ; err == nil; n++ {
		err = r.Append(ctx, conform.Bytes(fmt.Sprint(n), 500_000))
	}
	if !errors.Is(err, stopped) || !strings.Contains(err.Error(), "is full") || !strings.Contains(err.Error(), "--quota") {
		t.Fatalf("Append() = %v; want to wait, and to hear when it is given up why, and what to do", err)
	}
	st.Close()
	if err := m.Close(); err != nil {
		t.Fatalf("Close() = %v", err)
	}
	cfg.QuotaBytes = 1 << 30 // a quota is passed by what is written until the member looks at the size of its database again
	_, st = start(t, cfg)
	r = conform.Campaign(t, st, "a")
	if l := conform.Load(t, r); len(l.Batches) < n-1 {
		t.Errorf("Load() finds %d batches; want %d", len(l.Batches), n-1)
	}
	conform.Append(t, r, "goes on")
}

// full ends when a reign says that its store is full because etcd has refused a write.
func full(t *testing.T, r store.Reign) context.Context {
	ctx, done := context.WithCancel(t.Context())
	go func() {
		defer done()
		for ctx.Err() == nil {
			if err := r.(store.Limited).Full(); err != nil && errors.Is(err, rpctypes.ErrNoSpace) {
				return
			}
			runtime.Gosched()
		}
	}()
	return ctx
}
