package client_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/client"
	"github.com/serry-dev/serry/internal/lab"
)

// alone joins as the only task of a job.
func alone(t *testing.T, d client.Dialect) *task {
	t.Helper()
	return newFleet(t, d, cluster(1)).join(1)[0]
}

// put stores values that must not be there yet.
func put(t *testing.T, k *task, keys ...string) {
	t.Helper()
	for _, key := range keys {
		if err := k.KV().Create(t.Context(), key, []byte("value of "+key)); err != nil {
			t.Fatalf("Create(%q) = %v", key, err)
		}
	}
}

// wantValue checks what is stored under a key.
func wantValue(t *testing.T, k *task, key, want string) {
	t.Helper()
	if got, err := k.KV().Wait(t.Context(), key); err != nil || string(got) != want {
		t.Errorf("Wait(%q) = %q, %v; want %q", key, got, err, want)
	}
}

// wantKeys checks which keys are below a directory.
func wantKeys(t *testing.T, k *task, dir string, want ...string) {
	t.Helper()
	entries, err := k.KV().List(t.Context(), dir)
	if err != nil {
		t.Fatalf("List(%q) = %v", dir, err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Key)
		if string(e.Value) != "value of "+e.Key {
			t.Errorf("List(%q) has %q for %q", dir, e.Value, e.Key)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("List(%q) (-want +got):\n%s", dir, diff)
	}
}

func TestListOfADirectory(t *testing.T) {
	lab.Clause(t, "T-E2E-29", "IT-23", "PJ-22")
	inDialects(t, func(t *testing.T, d client.Dialect) {
		k := alone(t, d)
		put(t, k, "test_dir/sub_dir/1", "test_dir/sub_dir/2", "test_dir/3", "test")
		wantKeys(t, k, "test_dir/", "test_dir/3", "test_dir/sub_dir/1", "test_dir/sub_dir/2")
	})
}

func TestCreateTwice(t *testing.T) {
	lab.Clause(t, "T-E2E-30", "IT-24", "PJ-23")
	inDialects(t, func(t *testing.T, d client.Dialect) {
		k := alone(t, d)
		put(t, k, "k")
		wantIs(t, "Create() again", k.KV().Create(t.Context(), "k", []byte("other")), serry.ErrExists)
		k.refused(t, "InsertKeyValue", codes.AlreadyExists, "", "")
		wantValue(t, k, "k", "value of k")
	})
}

func TestPutTwice(t *testing.T) {
	lab.Clause(t, "T-E2E-31", "IT-25", "PJ-24")
	inDialects(t, func(t *testing.T, d client.Dialect) {
		k := alone(t, d)
		put(t, k, "k")
		if err := k.KV().Put(t.Context(), "k", []byte("other")); err != nil {
			t.Errorf("Put() = %v", err)
		}
		wantValue(t, k, "k", "other")
	})
}

func TestGetOfWhatIsThere(t *testing.T) {
	lab.Clause(t, "T-E2E-32", "PJ-25")
	inDialects(t, func(t *testing.T, d client.Dialect) {
		k := alone(t, d)
		_, err := k.KV().Get(t.Context(), "k")
		wantIs(t, "Get()", err, serry.ErrNotFound)
		k.refused(t, "TryGetKeyValue", codes.NotFound, "", lab.ServicePayload)
		put(t, k, "k")
		if got, err := k.KV().Get(t.Context(), "k"); err != nil || string(got) != "value of k" {
			t.Errorf("Get() = %q, %v; want the value", got, err)
		}
	})
}

func TestWaitForAValue(t *testing.T) {
	lab.Clause(t, "T-E2E-33", "PJ-26")
	inDialects(t, func(t *testing.T, d client.Dialect) {
		k := alone(t, d)
		end := async(func() error { wantValue(t, k, "k", "value of k"); return nil })
		waits(t, "Wait()", end)
		put(t, k, "k")
		<-end
	})
}

func TestAddToANumber(t *testing.T) {
	lab.Clause(t, "T-E2E-34", "PJ-27")
	inDialects(t, func(t *testing.T, d client.Dialect) {
		k := alone(t, d)
		if err := k.KV().Put(t.Context(), "k", []byte("10")); err != nil {
			t.Fatalf("Put() = %v", err)
		}
		if got, err := k.KV().Add(t.Context(), "k", 1); err != nil || got != 11 {
			t.Errorf("Add(1) = %d, %v; want 11", got, err)
		}
		if got, err := k.KV().Get(t.Context(), "k"); err != nil || string(got) != "11" {
			t.Errorf("Get() = %q, %v; want 11", got, err)
		}
	})
}

func TestDeleteOfAKey(t *testing.T) {
	lab.Clause(t, "T-E2E-35", "IT-26", "PJ-28", "T-AG-3")
	inDialects(t, func(t *testing.T, d client.Dialect) {
		k := alone(t, d)
		put(t, k, "gone", "stays")
		if err := k.KV().Delete(t.Context(), "gone"); err != nil {
			t.Errorf("Delete() = %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		_, err := k.KV().Wait(ctx, "gone")
		wantIs(t, "Wait() for a deleted key", err, context.DeadlineExceeded)
		if got := time.Since(start); got != time.Second {
			t.Errorf("Wait() took %v; want 1s", got)
		}
		wantValue(t, k, "stays", "value of stays")
	})
}

func TestDeleteOfADirectory(t *testing.T) {
	lab.Clause(t, "T-E2E-36", "IT-27", "PJ-29")
	inDialects(t, func(t *testing.T, d client.Dialect) {
		k := alone(t, d)
		put(t, k, "test_dir/sub_dir/1", "test_dir/sub_dir/2", "test_dir/3")
		if err := k.KV().Delete(t.Context(), "test_dir/"); err != nil {
			t.Errorf("Delete() = %v", err)
		}
		wantKeys(t, k, "test_dir/")
	})
}

func TestTimedOutWaitIsWithdrawn(t *testing.T) {
	lab.Clause(t, "T-AG-42")
	inDialects(t, func(t *testing.T, d client.Dialect) {
		f := newFleet(t, d, cluster(1))
		k := f.join(1)[0]
		before := f.View().Waiters
		ctx, cancel := context.WithCancel(t.Context())
		end := async(func() error { _, err := k.KV().Wait(ctx, "absent"); return err })
		synctest.Wait()
		if got := f.View().Waiters; got != before+1 {
			t.Fatalf("%d calls wait at the service; want %d", got, before+1)
		}
		cancel()
		wantIs(t, "Wait()", <-end, context.Canceled)
		synctest.Wait()
		if got := f.View().Waiters; got != before {
			t.Errorf("%d calls wait at the service after the end; want %d", got, before)
		}
	})
}
