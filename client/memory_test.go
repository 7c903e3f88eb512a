package client_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/client"
	"github.com/serry-dev/serry/internal/lab"
)

// inMemory runs a test on an empty store of this process, in virtual time.
func inMemory(t *testing.T, f func(t *testing.T, s *client.Memory, kv *client.KV)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := client.NewMemory()
		f(t, s, s.KV())
	})
}

// wantStored checks what a store has under a key; an empty want means nothing.
func wantStored(t *testing.T, kv *client.KV, key, want string) {
	t.Helper()
	got, err := kv.Get(t.Context(), key)
	if want == "" && !errors.Is(err, serry.ErrNotFound) || want != "" && (err != nil || string(got) != want) {
		t.Errorf("Get(%q) = %q, %v; want %q", key, got, err, want)
	}
}

// set stores values under keys, given in pairs.
func set(t *testing.T, kv *client.KV, pairs ...string) {
	t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		if err := kv.Put(t.Context(), pairs[i], []byte(pairs[i+1])); err != nil {
			t.Fatalf("Put(%q) = %v", pairs[i], err)
		}
	}
}

// wait starts to wait for a key.
func wait(ctx context.Context, kv *client.KV, key, want string) <-chan error {
	return async(func() error {
		got, err := kv.Wait(ctx, key)
		if err == nil && string(got) != want {
			err = fmt.Errorf("Wait(%q) = %q; want %q", key, got, want)
		}
		return err
	})
}

func TestMemoryKeeps(t *testing.T) {
	lab.Clause(t, "T-MEM-1", "T-MEM-2", "T-MEM-3", "T-MEM-4", "T-MEM-7", "T-MEM-8", "T-MEM-9")
	inMemory(t, func(t *testing.T, _ *client.Memory, kv *client.KV) {
		wantStored(t, kv, "k", "")
		set(t, kv, "k", "one", "k", "two")
		wantStored(t, kv, "k", "two")
		wantIs(t, "Create()", kv.Create(t.Context(), "k", []byte("three")), serry.ErrExists)
		wantStored(t, kv, "k", "two")
		if got, err := kv.Wait(t.Context(), "k"); err != nil || string(got) != "two" {
			t.Errorf("Wait() = %q, %v; want two at once", got, err)
		}
	})
}

func TestMemoryIsNotShared(t *testing.T) {
	lab.Clause(t, "T-MEM-4")
	inMemory(t, func(t *testing.T, _ *client.Memory, kv *client.KV) {
		value := []byte("value")
		if err := kv.Put(t.Context(), "d/k", value); err != nil {
			t.Fatal(err)
		}
		value[0] = 'X'
		got, err := kv.Get(t.Context(), "d/k")
		if err != nil {
			t.Fatal(err)
		}
		got[0] = 'Y'
		list, err := kv.List(t.Context(), "d")
		if err != nil || len(list) != 1 {
			t.Fatalf("List() = %v, %v", list, err)
		}
		list[0].Value[0] = 'Z'
		wantStored(t, kv, "d/k", "value")
	})
}

func TestMemoryWaits(t *testing.T) {
	lab.Clause(t, "T-MEM-5", "T-MEM-6", "T-MEM-10", "T-MEM-11", "T-MEM-12")
	inMemory(t, func(t *testing.T, _ *client.Memory, kv *client.KV) {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		start := time.Now()
		_, err := kv.Wait(ctx, "absent")
		wantIs(t, "Wait() for an absent key", err, context.DeadlineExceeded)
		if got := time.Since(start); got != 50*time.Millisecond {
			t.Errorf("Wait() took %v; want 50ms", got)
		}
		one, other := make([]<-chan error, 3), wait(t.Context(), kv, "other", "2")
		for i := range one {
			one[i] = wait(t.Context(), kv, "one", "1")
		}
		synctest.Wait()
		set(t, kv, "one", "1")
		for i, end := range one {
			if err := <-end; err != nil {
				t.Errorf("waiter %d: %v", i, err)
			}
		}
		waits(t, "Wait() for another key", other)
		set(t, kv, "other", "2")
		if err := <-other; err != nil {
			t.Error(err)
		}
	})
}

func TestMemoryWaitsAreCancelled(t *testing.T) {
	lab.Clause(t, "T-MEM-13", "T-MEM-14", "T-MEM-15")
	inMemory(t, func(t *testing.T, _ *client.Memory, kv *client.KV) {
		ctx, cancel := context.WithCancel(t.Context())
		gone, stays := wait(ctx, kv, "k", "v"), wait(t.Context(), kv, "k", "v")
		synctest.Wait()
		cancel()
		wantIs(t, "a cancelled Wait()", <-gone, context.Canceled)
		waits(t, "the other Wait()", stays)
		set(t, kv, "k", "v")
		if err := <-stays; err != nil {
			t.Error(err)
		}
		cancel() // too late
		waits(t, "a second end of a cancelled Wait()", gone)
		wantStored(t, kv, "k", "v")
	})
}

func TestMemoryCloses(t *testing.T) {
	lab.Clause(t, "T-MEM-16")
	inMemory(t, func(t *testing.T, s *client.Memory, kv *client.KV) {
		set(t, kv, "k", "v")
		end := wait(t.Context(), kv, "absent", "")
		synctest.Wait()
		s.Close()
		wantIs(t, "Wait() on a closed store", <-end, serry.ErrStopping, serry.ErrCancelled)
		s.Close()
	})
}

func TestMemoryForMany(t *testing.T) {
	lab.Clause(t, "T-MEM-17")
	inMemory(t, func(t *testing.T, _ *client.Memory, kv *client.KV) {
		var all sync.WaitGroup
		for i := range 50 {
			key := fmt.Sprint("key", i)
			all.Go(func() {
				if err := <-wait(t.Context(), kv, key, key); err != nil {
					t.Error(err)
				}
			})
			all.Go(func() {
				if err := kv.Create(t.Context(), key, []byte(key)); err != nil {
					t.Errorf("Create() = %v", err)
				}
			})
		}
		all.Wait()
	})
}

func TestMemoryDeletes(t *testing.T) {
	lab.Clause(t, "T-MEM-18", "T-MEM-19", "T-MEM-20")
	inMemory(t, func(t *testing.T, _ *client.Memory, kv *client.KV) {
		set(t, kv, "k", "v", "dir", "0", "dir/a", "1", "dir/b/c", "2", "directory", "3", "dir2/a", "4")
		for _, key := range []string{"k", "absent", "dir"} {
			if err := kv.Delete(t.Context(), key); err != nil {
				t.Errorf("Delete(%q) = %v", key, err)
			}
		}
		for key, want := range map[string]string{"k": "", "dir": "", "dir/a": "", "dir/b/c": "", "directory": "3", "dir2/a": "4"} {
			wantStored(t, kv, key, want)
		}
	})
}

func TestWatchFarBehind(t *testing.T) {
	lab.Clause(t, "T-MEM-6")
	synctest.Test(t, func(t *testing.T) {
		cfg := cluster(1)
		cfg.Cluster.Limits.Changes = 2 // so that nobody can be far behind
		kv := newFleet(t, client.Serry, cfg).join(1)[0].KV()
		set(t, kv, "d/a", "1", "d/b", "1", "d/c", "1")
		var told []string
		for e, err := range kv.Watch(t.Context(), "d") {
			if err != nil {
				t.Fatal(err)
			}
			told = append(told, fmt.Sprintf("%s %s %v", e.Key, e.Value, e.Deleted))
			if len(told) == 3 { // while we are told the rest, much happens
				for _, key := range []string{"d/a", "d/c"} {
					if err := kv.Delete(t.Context(), key); err != nil {
						t.Fatal(err)
					}
				}
				set(t, kv, "d/b", "2", "x", "1", "d/e", "3", "y", "1")
			}
			if e.Key == "d/e" {
				break
			}
		}
		want := []string{"d/a 1 false", "d/b 1 false", "d/c 1 false", "d/a  true", "d/c  true", "d/b 2 false", "d/e 3 false"}
		if diff := cmp.Diff(want, told); diff != "" {
			t.Errorf("Watch() tells (-want +got):\n%s", diff)
		}
	})
}

// stores are the two kinds of stores that can do everything.
func stores(t *testing.T, f func(t *testing.T, kv *client.KV)) {
	t.Helper()
	t.Run("memory", func(t *testing.T) {
		inMemory(t, func(t *testing.T, _ *client.Memory, kv *client.KV) { f(t, kv) })
	})
	t.Run("service", func(t *testing.T) {
		in(t, func(t *testing.T, d client.Dialect) { f(t, alone(t, d).KV()) }, client.Serry)
	})
}

func TestViewsOfAPart(t *testing.T) {
	lab.Clause(t, "T-MEM-4")
	stores(t, func(t *testing.T, kv *client.KV) {
		sub := kv.Sub("/a/").Sub("b")
		set(t, kv, "a/b/c/d", "1", "a/x", "2")
		wantStored(t, sub, "c/d", "1")
		wantStored(t, sub, "x", "")
		set(t, sub, "e", "3")
		wantStored(t, kv, "a/b/e", "3")
		got, err := sub.List(t.Context(), "")
		want := []serry.Entry{{Key: "c/d", Value: []byte("1")}, {Key: "e", Value: []byte("3")}}
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("List() = %v (-want +got):\n%s", err, diff)
		}
		if err := sub.Delete(t.Context(), "c"); err != nil {
			t.Errorf("Delete() = %v", err)
		}
		wantStored(t, kv, "a/b/c/d", "")
	})
}

// Empty parts do not count, neither in a key nor in the prefix of a view.
func TestViewsWithEmptyParts(t *testing.T) {
	lab.Clause(t, "T-MEM-4")
	stores(t, func(t *testing.T, kv *client.KV) {
		for _, sub := range []*client.KV{kv.Sub("a//b").Sub(""), kv.Sub("").Sub("//a/").Sub("b")} {
			set(t, sub, "c", "1")
			wantStored(t, kv, "a/b/c", "1")
			got, err := sub.List(t.Context(), "")
			want := []serry.Entry{{Key: "c", Value: []byte("1")}}
			if diff := cmp.Diff(want, got); err != nil || diff != "" {
				t.Errorf("List() = %v (-want +got):\n%s", err, diff)
			}
		}
	})
}

func TestSwap(t *testing.T) {
	lab.Clause(t, "T-MEM-3")
	stores(t, func(t *testing.T, kv *client.KV) {
		for _, c := range []struct {
			name     string
			old, new []byte
			want     error
			then     string
		}{
			{"none for one", nil, []byte("1"), nil, "1"},
			{"none, but there is one", nil, []byte("2"), serry.ErrChanged, "1"},
			{"the right one", []byte("1"), []byte("3"), nil, "3"},
			{"a wrong one", []byte("1"), []byte("4"), serry.ErrChanged, "3"},
		} {
			if err := kv.Swap(t.Context(), "k", c.old, c.new); !errors.Is(err, c.want) {
				t.Errorf("%s: Swap(%q, %q) = %v; want %v", c.name, c.old, c.new, err, c.want)
			}
			wantStored(t, kv, "k", c.then)
		}
	})
}

func TestWatchOfKeys(t *testing.T) {
	lab.Clause(t, "T-MEM-6")
	stores(t, func(t *testing.T, kv *client.KV) {
		set(t, kv, "dir/a", "1", "other", "0")
		ctx, cancel := context.WithCancel(t.Context())
		events := make(chan string)
		end := async(func() error {
			for e, err := range kv.Watch(ctx, "dir") {
				if err != nil {
					return err
				}
				events <- fmt.Sprintf("%s=%s deleted=%v", e.Key, e.Value, e.Deleted)
			}
			return nil
		})
		next := func(want string) {
			t.Helper()
			if got := <-events; got != want {
				t.Errorf("Watch() tells %q; want %q", got, want)
			}
		}
		next("dir/a=1 deleted=false")
		set(t, kv, "other", "5", "dir/b", "2")
		next("dir/b=2 deleted=false")
		if err := kv.Delete(t.Context(), "dir/a"); err != nil {
			t.Fatal(err)
		}
		next("dir/a= deleted=true")
		cancel()
		wantIs(t, "Watch()", <-end, context.Canceled)
	})
}
