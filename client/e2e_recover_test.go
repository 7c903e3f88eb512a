package client_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/client"
	"github.com/serry-dev/serry/internal/lab"
)

// recoverableFleet is one of n tasks of which those named may fail and come back. In jaxlib's dialect
// that is said for the cluster, in the others each task says it.
func recoverableFleet(t *testing.T, d client.Dialect, n int, may ...int) (*fleet, []*task) {
	t.Helper()
	cfg := cluster(n)
	cfg.Cluster.Recoverable = d == client.XLA
	f := newFleet(t, d, cfg)
	tasks := make([]*task, n)
	for i := range tasks {
		f.cfg.Recoverable = false
		for _, m := range may {
			f.cfg.Recoverable = f.cfg.Recoverable || m == i
		}
		tasks[i] = f.begin(i)
	}
	f.cfg.Recoverable = true // who comes again may
	return f, f.joined(tasks...)
}

func TestOneThatMayFailNeverComes(t *testing.T) {
	lab.Clause(t, "T-E2E-40", "IT-30")
	inDialects(t, func(t *testing.T, d client.Dialect) {
		cfg := cluster(3)
		cfg.Cluster.Recoverable = d == client.XLA
		f := newFleet(t, d, cfg)
		tasks := []*task{f.begin(0)}
		f.cfg.Recoverable = true
		tasks = append(tasks, f.begin(1))
		time.Sleep(2500 * time.Millisecond) // the service waits for 2s
		tasks = append(tasks, f.begin(2))
		for _, k := range tasks {
			<-k.done
			wantIs(t, "Join()", k.err, serry.ErrTimeout, serry.ErrAlreadyFailed)
			if e := k.line.Refused("RegisterTask"); d != client.Serry && (e == nil || e.Code != codes.DeadlineExceeded && e.Code != codes.Aborted) {
				t.Errorf("RegisterTask of %v = %v; want DEADLINE_EXCEEDED or ABORTED", k.cfg.Task, e)
			}
		}
	})
}

func TestRestartedTaskStartsTheBarrier(t *testing.T) {
	lab.Clause(t, "T-E2E-43", "IT-33")
	for _, polite := range []bool{true, false} {
		t.Run(map[bool]string{true: "left", false: "vanished"}[polite], func(t *testing.T) {
			inDialects(t, func(t *testing.T, d client.Dialect) {
				f, tasks := recoverableFleet(t, d, 2, 0)
				for range 3 {
					all(t, "Barrier()", tasks, func(k *task) error { return k.meet("b", barrier) })
				}
				restart(t, f, tasks, 0, polite, 0)
				end := async(func() error { return tasks[0].meet("b", barrier) })
				waits(t, "Barrier() of the second life", end)
				if err := tasks[1].meet("b", barrier); err != nil {
					t.Errorf("Barrier() of task 1 = %v", err)
				}
				if err := <-end; err != nil {
					t.Errorf("Barrier() of the second life = %v", err)
				}
				all(t, "Barrier(before_shutdown)", tasks, func(k *task) error { return k.meet("before_shutdown", barrier) })
			})
		})
	}
}

// restart ends the life of a task and joins anew in its place.
func restart(t *testing.T, f *fleet, tasks []*task, i int, polite bool, after time.Duration) {
	t.Helper()
	if polite {
		if err := leave(tasks[i]); err != nil {
			t.Fatalf("Leave() = %v", err)
		}
	} else {
		tasks[i].vanish(true)
	}
	time.Sleep(after)
	tasks[i] = f.again(i)
}

// variants runs a test for all ways in which a task can restart.
func variants(t *testing.T, f func(t *testing.T, d client.Dialect, polite bool, after time.Duration, rounds int)) {
	t.Helper()
	for _, polite := range []bool{true, false} {
		for _, after := range []time.Duration{0, 2 * heartbeat} {
			for _, rounds := range []int{0, 3} {
				t.Run(fmt.Sprintf("polite=%v,after=%v,rounds=%d", polite, after, rounds), func(t *testing.T) {
					inDialects(t, func(t *testing.T, d client.Dialect) { f(t, d, polite, after, rounds) })
				})
			}
		}
	}
}

func TestRestartedTaskJoinsTheBarrier(t *testing.T) {
	lab.Clause(t, "T-E2E-45", "IT-35")
	variants(t, func(t *testing.T, d client.Dialect, polite bool, after time.Duration, rounds int) {
		f, tasks := recoverableFleet(t, d, 2, 1)
		for range rounds {
			all(t, "Barrier()", tasks, func(k *task) error { return k.meet("b", barrier) })
		}
		end := async(func() error { return tasks[0].meet("b", 10*time.Second) })
		waits(t, "Barrier() of task 0", end)
		restart(t, f, tasks, 1, polite, after)
		if err := tasks[1].meet("b", 10*time.Second); err != nil {
			t.Errorf("Barrier() of the second life = %v", err)
		}
		if err := <-end; err != nil {
			t.Errorf("Barrier() of task 0 = %v", err)
		}
		all(t, "Barrier(before_shutdown)", tasks, func(k *task) error { return k.meet("before_shutdown", barrier) })
	})
}

func TestRestartedTaskComesToTheBarrierAgain(t *testing.T) {
	lab.Clause(t, "T-E2E-46", "IT-36")
	variants(t, func(t *testing.T, d client.Dialect, polite bool, after time.Duration, rounds int) {
		f, tasks := recoverableFleet(t, d, 3, 0)
		for range rounds {
			all(t, "Barrier()", tasks, func(k *task) error { return k.meet("b", barrier) })
		}
		meet := func(k *task) <-chan error {
			return async(func() error { return k.meet("b", 10*time.Second) })
		}
		old, other := meet(tasks[0]), meet(tasks[1])
		synctest.Wait()
		first := tasks[0]
		if !polite && after == 0 { // it is still there when its next life comes
			tasks[0] = f.again(0)
			wantIs(t, "Barrier() of the first life", <-old, serry.ErrWithdrawn, serry.ErrStale)
			first.refused(t, "Barrier", codes.Canceled, "silently connected again", lab.BarrierPayload)
		} else {
			restart(t, f, tasks, 0, polite, after)
			wantIs(t, "Barrier() of the first life", <-old, serry.ErrWithdrawn, serry.ErrCancelled, serry.ErrLeft)
		}
		again := meet(tasks[0])
		waits(t, "Barrier() of the second life", again)
		for i, end := range []<-chan error{again, other, meet(tasks[2])} {
			if err := <-end; err != nil {
				t.Errorf("Barrier() %d = %v", i, err)
			}
		}
		all(t, "Barrier(before_shutdown)", tasks, func(k *task) error { return k.meet("before_shutdown", barrier) })
	})
}

// TestReplacedMemberIsTold: a second process joins as a task whose first one lives, and may. The first is
// lost at once, with the reason, whichever way errors are delivered; with delivery by heartbeat that is at
// its next one.
func TestReplacedMemberIsTold(t *testing.T) {
	lab.Clause(t, "C-INC-3", "C-INC-6", "C-POLL-11")
	for _, byBeat := range []bool{false, true} {
		inDialects(t, func(t *testing.T, d client.Dialect) {
			cfg := recoverable(2)
			cfg.Cluster.ErrorsByBeat = byBeat
			f := newFleet(t, d, cfg)
			f.cfg.Recoverable = true
			tasks := f.join(2)
			second := f.again(1)
			if byBeat {
				time.Sleep(heartbeat)
			}
			wantIs(t, "Err() of the first process", tasks[1].Err(), serry.ErrStale)
			var fault *client.Fault
			if !errors.As(context.Cause(tasks[1].Context()), &fault) || fault.Kind != client.FaultSelf {
				t.Errorf("its context ended with %v; want that the service refuses us", context.Cause(tasks[1].Context()))
			}
			for _, k := range []*task{tasks[0], second} {
				if k.Err() != nil {
					t.Errorf("Err() of %v = %v; want nil", k.cfg.Task, k.Err())
				}
			}
		})
	}
}
