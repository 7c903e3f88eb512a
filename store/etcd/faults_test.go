package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/serry-dev/serry/internal/lab/conform"
	"github.com/serry-dev/serry/store"
	"github.com/serry-dev/serry/store/etcd"
	"github.com/serry-dev/serry/store/member"
)

func open(t testing.TB, cfg etcd.Config) store.Store {
	t.Helper()
	st, err := etcd.Open(t.Context(), cfg)
	if err != nil {
		t.Fatalf("Open() = %v", err)
	}
	t.Cleanup(func() { st.Close() })
	return st
}

// NEW-50: a leader that died without a word is replaced when its lease has ended.
func TestLeaseEnds(t *testing.T) {
	_, client := one(t, member.Config{})
	a := open(t, etcd.Config{Client: client, LeaseTTL: 5 * time.Second}) // long enough to look at it
	b := open(t, etcd.Config{Client: client, LeaseTTL: time.Minute})
	old := conform.Campaign(t, a, "a")
	conform.Append(t, old, "one")
	etcd.Kill(a)
	if l, err := b.Leader(t.Context()); err != nil || l.Term != old.Term() {
		t.Fatalf("Leader() = %v, %v; want the dead one, while its lease lasts", l, err)
	}
	r := conform.Campaign(t, b, "b")
	if r.Term() <= old.Term() {
		t.Errorf("Term() = %d after %d", r.Term(), old.Term())
	}
	if l := conform.Load(t, r); len(l.Batches) != 1 {
		t.Errorf("Load() = %v; want one batch", l)
	}
}

// A candidate that has lost its lease while it waited does not believe that it leads.
func TestLeaseEndsWhileWaiting(t *testing.T) {
	_, client := one(t, member.Config{})
	a, b := open(t, etcd.Config{Client: client, LeaseTTL: time.Minute}), open(t, etcd.Config{Client: client, LeaseTTL: time.Minute})
	r := conform.Campaign(t, a, "a")
	won := make(chan store.Reign, 1)
	go func() {
		r, _ := b.Campaign(context.WithoutCancel(t.Context()), store.Candidate{Address: "b"})
		won <- r
	}()
	candidate := func() *clientv3.GetResponse { // the younger of two keys
		for {
			resp, err := client.Get(t.Context(), "/serry/election/", clientv3.WithLastCreate()...)
			if err != nil {
				t.Fatal(err)
			}
			if string(resp.Kvs[0].Value) == "b" {
				return resp
			}
		}
	}
	first := candidate().Kvs[0]
	if _, err := client.Revoke(t.Context(), clientv3.LeaseID(first.Lease)); err != nil {
		t.Fatal(err)
	}
	if err := r.Resign(t.Context()); err != nil {
		t.Fatal(err)
	}
	next := <-won
	if next == nil || next.Term() == uint64(first.CreateRevision) {
		t.Fatalf("Campaign() with a lease that was lost = %v", next)
	}
	conform.Append(t, next, "one")
}

// A watch that asks for what etcd has dropped from its history looks again, instead of for ever.
func TestCompaction(t *testing.T) {
	_, client := one(t, member.Config{})
	st := open(t, etcd.Config{Client: client, Compact: true})
	r := conform.Campaign(t, st, "a")
	leaders := st.Watch(t.Context())
	<-leaders
	for i := range 3 {
		conform.Append(t, r, "one", "two")
		if err := r.Save(t.Context(), r.Mark(), fmt.Append(nil, i), nil); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := client.Get(t.Context(), "x", clientv3.WithRev(int64(r.Term()))); err == nil {
		t.Fatal("Save() has compacted nothing")
	}
	etcd.Changed(t.Context(), st, 1) // ends
	conform.Append(t, r, "three")
	if l := conform.Load(t, r); l.Snapshot != "2" || len(l.Batches) != 1 {
		t.Errorf("Load() = %v; want the last snapshot and a batch", l)
	}
	if err := r.Resign(t.Context()); err != nil {
		t.Fatal(err)
	}
	if l := <-leaders; l != (store.Leader{}) {
		t.Errorf("Watch() sends %v; want nobody", l)
	}
}

// three starts a cluster of three members. restart starts one that was closed.
func three(t testing.TB) (members map[string]*member.Member, restart func(name string)) {
	t.Helper()
	members = make(map[string]*member.Member)
	peers := map[string]string{"a": reserve(t), "b": reserve(t), "c": reserve(t)}
	cfgs := make(map[string]member.Config)
	started := make(chan string)
	var mu sync.Mutex
	for name := range peers {
		cfgs[name] = member.Config{Name: name, Peers: peers, Dir: folder(t)}
	}
	for name := range peers {
		go func() {
			defer func() { started <- name }()
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			m, err := member.Start(ctx, cfgs[name])
			if err != nil {
				t.Errorf("Start(%s) = %v", name, err)
				return
			}
			t.Cleanup(func() { m.Close() })
			mu.Lock()
			defer mu.Unlock()
			members[name] = m
		}()
	}
	for range peers {
		<-started
	}
	if t.Failed() {
		t.FailNow()
	}
	return members, func(name string) { members[name] = start(t, cfgs[name]) }
}

// C-LOG-2: without a majority nothing is acknowledged, and nothing is given up: an append goes on when
// the majority is back.
func TestNoMajority(t *testing.T) {
	members, restart := three(t)
	st, err := members["a"].Open(t.Context(), etcd.Config{LeaseTTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close() // while there is a majority to tell
	r := conform.Campaign(t, st, "a")
	conform.Append(t, r, "one")
	hasty, err := members["a"].Open(t.Context(), etcd.Config{Prefix: "/hasty", LeaseTTL: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer hasty.Close()
	short := conform.Campaign(t, hasty, "a")
	for _, name := range []string{"b", "c"} {
		if err := members[name].Close(); err != nil {
			t.Fatalf("Close(%s) = %v", name, err)
		}
	}
	done := make(chan error, 1)
	go func() { done <- r.Append(t.Context(), []byte("two")) }()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := r.Confirm(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Confirm() without a majority = %v; want %v", err, context.DeadlineExceeded)
	}
	select {
	case err := <-done:
		t.Fatalf("Append() without a majority = %v", err)
	default:
	}
	// Who cannot renew its lease knows that it may have a successor, and does not wait for ever.
	if err := short.Append(t.Context(), []byte("one")); !errors.Is(err, store.ErrDeposed) {
		t.Errorf("Append() after the lease has ended = %v; want %v", err, store.ErrDeposed)
	}
	<-short.Deposed()
	restart("b")
	if err := <-done; err != nil {
		t.Fatalf("Append() = %v, although the majority is back", err)
	}
	if l := conform.Load(t, r); len(l.Batches) != 2 {
		t.Errorf("Load() = %v; want both batches", l)
	}
	if err := r.Confirm(t.Context()); err != nil {
		t.Errorf("Confirm() = %v", err)
	}
}
