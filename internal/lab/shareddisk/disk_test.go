package shareddisk_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/serry-dev/serry/internal/lab/conform"
	"github.com/serry-dev/serry/internal/lab/shareddisk"
	"github.com/serry-dev/serry/internal/plant"
	"github.com/serry-dev/serry/store"
)

// clauses are those that the table of behaviours shows.
var clauses = []string{"C-LIM-2", "C-LOG-2", "C-LOG-3", "C-LOG-4", "C-LOG-5", "C-TERM-1", "C-TERM-2", "C-TERM-3", "NEW-45", "NEW-53"}

func TestShared(t *testing.T) {
	conform.Run(t, clauses, func(t *testing.T) conform.Rig {
		shared := shareddisk.New(shareddisk.Config{})
		return conform.Rig{
			Open: func(*testing.T) store.Store { return shared.Open() },
			Kill: func(_ *testing.T, st store.Store) {
				st.(*shareddisk.Handle).Kill()
				shared.Expire()
			},
			Leftovers: func(*testing.T) int { return shared.Values() },
			Whole:     true,
			PartBytes: 1000,
		}
	})
}

// TestAnotherDisk shows that a disk that is made again is not taken for the one
// before it, whose terms it counts anew.
func TestAnotherDisk(t *testing.T) {
	t.Run("C-TERM-1", func(t *testing.T) {
		before, after := conform.Campaign(t, shareddisk.New(shareddisk.Config{}).Open(), "a"), conform.Campaign(t, shareddisk.New(shareddisk.Config{}).Open(), "a")
		if before.Store() == after.Store() || before.Term() != after.Term() {
			t.Errorf("store %d, term %d; then store %d, term %d; want two stores that count alike",
				before.Store(), before.Term(), after.Store(), after.Term())
		}
	})
}

const ttl = 3 * time.Second

// lead campaigns, and gives the time at which the campaign was won, since start.
func lead(t *testing.T, handle *shareddisk.Handle, address string, start time.Time) (store.Reign, time.Duration) {
	t.Helper()
	r := conform.Campaign(t, handle, address)
	return r, time.Since(start)
}

// NEW-50: a leader that is silent is replaced when its lease has ended, one that is known to be dead at
// once.
func TestSharedLease(t *testing.T) {
	for _, c := range []struct {
		name string
		fail func(t *testing.T, leader, standby *shareddisk.Handle, r store.Reign)
		want time.Duration
	}{
		{"killed, and deposed", func(t *testing.T, leader, standby *shareddisk.Handle, r store.Reign) {
			leader.Kill()
			if err := standby.Depose(t.Context(), store.Leader{Term: r.Term()}); err != nil {
				t.Fatal(err)
			}
		}, 0},
		{"killed", func(_ *testing.T, leader, _ *shareddisk.Handle, _ store.Reign) { leader.Kill() }, ttl},
		{"cut off", func(_ *testing.T, leader, _ *shareddisk.Handle, _ store.Reign) { leader.Cut() }, ttl},
		{"closed", func(_ *testing.T, leader, _ *shareddisk.Handle, _ store.Reign) { leader.Close() }, 0},
	} {
		t.Run("NEW-50 "+c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				shared := shareddisk.New(shareddisk.Config{LeaseTTL: ttl})
				a, b := shared.Open(), shared.Open()
				start := time.Now()
				r, _ := lead(t, a, "a", start)
				c.fail(t, a, b, r)
				if _, took := lead(t, b, "b", start); took != c.want {
					t.Errorf("took over after %v; want %v", took, c.want)
				}
				<-r.Deposed()
			})
		})
	}
}

// A leadership that could not be given back in time, and then was, does not live on in the lease of the
// next one.
func TestSharedLeaseOfASecondReign(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := shareddisk.New(shareddisk.Config{LeaseTTL: ttl})
		a, b := shared.Open(), shared.Open()
		r, _ := lead(t, a, "a", time.Now())
		late, cancel := context.WithCancel(t.Context())
		cancel()
		if err := r.Resign(late); !errors.Is(err, context.Canceled) {
			t.Fatalf("Resign() too late = %v", err)
		}
		if err := r.Resign(t.Context()); err != nil {
			t.Fatalf("Resign() = %v", err)
		}
		lead(t, a, "a", time.Now())
		start := time.Now()
		a.Kill()
		if _, took := lead(t, b, "b", start); took != ttl {
			t.Errorf("took over after %v; want %v", took, ttl)
		}
	})
}

// A cut shorter than the lease changes nothing but the time it takes.
func TestSharedShortCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := shareddisk.New(shareddisk.Config{LeaseTTL: ttl})
		a := shared.Open()
		start := time.Now()
		r, _ := lead(t, a, "a", start)
		a.Cut()
		time.AfterFunc(ttl-1, a.Heal)
		conform.Append(t, r, "one")
		if took := time.Since(start); took != ttl-1 {
			t.Errorf("Append() took %v; want %v", took, ttl-1)
		}
		time.Sleep(time.Hour)
		if err := r.Confirm(t.Context()); err != nil {
			t.Errorf("Confirm() = %v", err)
		}
		a.Cut()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := r.Append(ctx, []byte("two")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Append() of a handle cut off = %v; want %v", err, context.DeadlineExceeded)
		}
	})
}

// NEW-49: a leader that was frozen finds that it is deposed, even if it has not heard so; without the
// fence it would not.
func TestSharedFrozen(t *testing.T) {
	for _, c := range []struct {
		planted plant.Faults
		want    error
	}{{0, store.ErrDeposed}, {plant.NoFence, nil}} {
		t.Run("NEW-49 "+fmt.Sprint("planted ", c.planted), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				shared := shareddisk.New(shareddisk.Config{LeaseTTL: ttl, Notice: time.Second, Planted: c.planted})
				a, b := shared.Open(), shared.Open()
				old, _ := lead(t, a, "a", time.Now())
				if err := b.Depose(t.Context(), store.Leader{Term: old.Term()}); err != nil {
					t.Fatal(err)
				}
				r, _ := lead(t, b, "b", time.Now())
				conform.Append(t, r, "of the successor")
				select {
				case <-old.Deposed():
					t.Error("it has heard already")
				default:
				}
				if err := old.Confirm(t.Context()); !errors.Is(err, c.want) {
					t.Errorf("Confirm() = %v; want %v", err, c.want)
				}
				if err := old.Append(t.Context(), []byte("old")); !errors.Is(err, c.want) {
					t.Errorf("Append() = %v; want %v", err, c.want)
				}
				start := time.Now()
				<-old.Deposed()
				if late := time.Since(start); late != time.Second {
					t.Errorf("it hears of it after %v; want %v", late, time.Second)
				}
			})
		})
	}
}

// Faults come before an operation, when it has no effect, and after it, when its answer is lost.
func TestSharedFaults(t *testing.T) {
	broken := errors.New("broken")
	for _, c := range []struct {
		done bool
		want int // batches
	}{{false, 0}, {true, 1}} {
		t.Run("NEW-45 "+fmt.Sprint("done=", c.done), func(t *testing.T) {
			var ops []shareddisk.Op
			shared := shareddisk.New(shareddisk.Config{Fault: func(op shareddisk.Op) error {
				ops = append(ops, op)
				if op.Action == shareddisk.OpAppend && op.Done == c.done {
					return broken
				}
				return nil
			}})
			r := conform.Campaign(t, shared.Open(), "a")
			if err := r.Append(t.Context(), []byte("one")); err != broken {
				t.Fatalf("Append() = %v; want %v", err, broken)
			}
			if l := conform.Load(t, shared.Journal()); len(l.Batches) != c.want {
				t.Errorf("Load() = %v; want %d batches", l, c.want)
			}
			last := ops[len(ops)-1]
			if last.Leader != (store.Leader{Address: "a", Term: 1}) || last.Bytes != 3 {
				t.Errorf("Fault() was told %+v", last)
			}
		})
	}
}

// A fault may be a crash, at the very moment.
func TestSharedCrashInOperation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var handle *shareddisk.Handle
		shared := shareddisk.New(shareddisk.Config{LeaseTTL: ttl, Fault: func(op shareddisk.Op) error {
			if op.Action == shareddisk.OpAppend && op.Done {
				handle.Kill()
			}
			return nil
		}})
		handle = shared.Open()
		r := conform.Campaign(t, handle, "a")
		if err := r.Append(t.Context(), []byte("one")); !errors.Is(err, store.ErrClosed) {
			t.Fatalf("Append() = %v; want %v", err, store.ErrClosed)
		}
		if l := conform.Load(t, conform.Campaign(t, shared.Open(), "b")); len(l.Batches) != 1 {
			t.Errorf("Load() = %v; want the batch", l)
		}
	})
}

// Who waits is served in the order of arrival, a handle that is cut off is passed over, and one that dies
// does not wait any more.
func TestSharedOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := shareddisk.New(shareddisk.Config{LeaseTTL: ttl})
		first := conform.Campaign(t, shared.Open(), "first")
		won := make(chan string, 10)
		handles := map[string]*shareddisk.Handle{}
		for _, name := range []string{"dead", "cut", "b", "c"} {
			handle := shared.Open()
			handles[name] = handle
			go func() {
				if _, err := handle.Campaign(t.Context(), store.Candidate{Address: name}); err == nil {
					won <- name
				}
			}()
			synctest.Wait()
		}
		if _, err := handles["b"].Campaign(t.Context(), store.Candidate{}); err == nil {
			t.Error("one handle campaigns twice")
		}
		handles["dead"].Kill()
		handles["cut"].Cut()
		if err := first.Resign(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"b", "c"} {
			if got := <-won; got != want {
				t.Errorf("%s leads; want %s", got, want)
			}
			shared.Expire()
		}
		handles["cut"].Heal()
		if got := <-won; got != "cut" {
			t.Errorf("%s leads; want the one that was cut off", got)
		}
	})
}

// Watchers of a handle that is cut off hear nothing, and then the last.
func TestSharedWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := shareddisk.New(shareddisk.Config{})
		handle := shared.Open()
		leaders := handle.Watch(t.Context())
		<-leaders
		handle.Cut()
		for range 3 {
			conform.Campaign(t, shared.Open(), "a")
			shared.Expire()
		}
		r := conform.Campaign(t, shared.Open(), "b")
		synctest.Wait()
		select {
		case l := <-leaders:
			t.Fatalf("Watch() sends %v to a handle that is cut off", l)
		default:
		}
		handle.Heal()
		if l := <-leaders; l != (store.Leader{Address: "b", Term: r.Term()}) {
			t.Errorf("Watch() sends %v; want the last", l)
		}
		handle.Kill()
		if l, ok := <-leaders; ok {
			t.Errorf("Watch() sends %v to a handle that is dead", l)
		}
	})
}

func ExampleNew() {
	ctx := context.Background()
	shared := shareddisk.New(shareddisk.Config{})
	a, b := shared.Open(), shared.Open()
	old, _ := a.Campaign(ctx, store.Candidate{Address: "a"})
	_ = b.Depose(ctx, store.Leader{Address: "a", Term: old.Term()})
	successor, _ := b.Campaign(ctx, store.Candidate{Address: "b"})
	fmt.Println("a:", old.Append(ctx, []byte("late")))
	fmt.Println("b:", successor.Append(ctx, []byte("in time")))
	// Output:
	// a: no longer the leader
	// b: <nil>
}
