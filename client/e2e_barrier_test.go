package client_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/client"
	"github.com/serry-dev/serry/internal/lab"
)

func TestBarriersPass(t *testing.T) {
	lab.Clause(t, "T-E2E-16", "T-E2E-19", "IT-11", "IT-14", "PJ-15")
	inDialects(t, func(t *testing.T, d client.Dialect) {
		tasks := newFleet(t, d, cluster(2)).join(2)
		for _, id := range []string{"barrier_1", "barrier_2", "barrier_1", "barrier_2"} {
			all(t, "Barrier("+id+")", tasks, func(k *task) error { return k.meet(id, barrier) })
		}
		all(t, "Leave()", tasks, leave)
	})
}

func TestBarrierTimesOut(t *testing.T) {
	lab.Clause(t, "T-E2E-17", "IT-12", "PJ-16")
	inDialects(t, func(t *testing.T, d client.Dialect) {
		tasks := newFleet(t, d, cluster(2)).join(2)
		for i, want := range []time.Duration{barrier, 0} { // the second comes late, and hears it at once
			start := time.Now()
			wantIs(t, "Barrier()", tasks[i].meet("b", barrier), serry.ErrTimeout)
			tasks[i].refused(t, "Barrier", codes.DeadlineExceeded, "Barrier timed out", lab.BarrierPayload)
			if got := time.Since(start); got != want {
				t.Errorf("Barrier() of task %d took %v; want %v", i, got, want)
			}
		}
	})
}

func TestDifferentBarriers(t *testing.T) {
	lab.Clause(t, "T-E2E-18", "IT-13", "PJ-17")
	inDialects(t, func(t *testing.T, d client.Dialect) {
		tasks := newFleet(t, d, cluster(2)).join(2)
		for i, err := range atOnce(tasks, func(k *task) error { return k.meet("of "+k.Task().String(), barrier) }) {
			wantIs(t, "Barrier()", err, serry.ErrTimeout)
			tasks[i].refused(t, "Barrier", codes.DeadlineExceeded, "Barrier timed out", lab.BarrierPayload)
		}
	})
}

func TestRestartedTaskDoesNotKnowTheCount(t *testing.T) {
	lab.Clause(t, "T-E2E-20", "IT-15")
	inDialects(t, func(t *testing.T, d client.Dialect) {
		f := newFleet(t, d, loose(2))
		tasks := f.join(2)
		for range 3 {
			all(t, "Barrier()", tasks, func(k *task) error { return k.meet("b", barrier) })
		}
		if err := leave(tasks[1]); err != nil {
			t.Fatalf("Leave() = %v", err)
		}
		second := f.again(1)
		wantIs(t, "Barrier() of the second life", second.meet("b", barrier), serry.ErrCounter)
		second.refused(t, "Barrier", codes.Internal, "restarted", lab.BarrierPayload)
	})
}

func TestStragglerGetsTheSameError(t *testing.T) {
	lab.Clause(t, "T-E2E-21", "IT-16")
	inDialects(t, func(t *testing.T, d client.Dialect) {
		tasks := newFleet(t, d, cluster(2)).join(2)
		for _, k := range tasks {
			wantIs(t, "Barrier()", k.meet("b", barrier), serry.ErrTimeout)
			k.refused(t, "Barrier", codes.DeadlineExceeded, "Barrier timed out", lab.BarrierPayload)
		}
		all(t, "Barrier() again", tasks, func(k *task) error { return k.meet("b", barrier) })
	})
}

func TestQuickAndSlowTask(t *testing.T) {
	lab.Clause(t, "T-E2E-22", "IT-17")
	inDialects(t, func(t *testing.T, d client.Dialect) {
		tasks := newFleet(t, d, cluster(2)).join(2)
		for range 2 {
			all(t, "Barrier()", tasks, func(k *task) error { return k.meet("b", barrier) })
		}
		for range 2 {
			wantIs(t, "Barrier() of the quick one", tasks[0].meet("b", barrier), serry.ErrTimeout)
		}
		wantIs(t, "Barrier() of the slow one", tasks[1].meet("b", barrier), serry.ErrCounter)
		tasks[1].refused(t, "Barrier", codes.Internal, "too quick / slow", lab.BarrierPayload)
	})
}

func TestBarrierAmongSome(t *testing.T) {
	lab.Clause(t, "T-E2E-23", "IT-18", "PJ-18")
	inDialects(t, func(t *testing.T, d client.Dialect) {
		tasks := newFleet(t, d, cluster(3)).join(3)
		all(t, "Barrier()", tasks[:2], func(k *task) error {
			return k.Barrier(context.Background(), "b", serry.BarrierOptions{Among: workers(0, 1), Timeout: barrier})
		})
		tasks[2].lives(t)
		all(t, "Leave()", tasks, leave)
	})
}

func TestBarrierMembersDisagree(t *testing.T) {
	lab.Clause(t, "T-E2E-24", "IT-19")
	inDialects(t, func(t *testing.T, d client.Dialect) {
		tasks := newFleet(t, d, cluster(2)).join(2)
		among := func(i int) serry.BarrierOptions {
			return serry.BarrierOptions{Among: workers(i), Timeout: barrier}
		}
		if err := tasks[0].Barrier(t.Context(), "b", among(0)); err != nil {
			t.Errorf("Barrier() of task 0 alone = %v", err)
		}
		wantIs(t, "Barrier() of task 1 alone", tasks[1].Barrier(t.Context(), "b", among(1)), serry.ErrMembers)
		tasks[1].refused(t, "Barrier", codes.InvalidArgument, "Conflicting tasks specified", lab.BarrierPayload)
	})
}

func TestCancelOfAnUnknownBarrier(t *testing.T) {
	lab.Clause(t, "T-E2E-25")
	inDialects(t, func(t *testing.T, d client.Dialect) {
		k := newFleet(t, d, cluster(1)).join(1)[0]
		wantIs(t, "CancelBarrier()", k.CancelBarrier(t.Context(), "never heard of"), client.ErrNotOpen)
		if e := k.line.Refused("CancelBarrier"); e != nil {
			t.Errorf("CancelBarrier() reached the service, which said %v; want it refused here", e)
		}
	})
}

func TestBarrierOfOthers(t *testing.T) {
	lab.Clause(t, "T-E2E-26", "IT-21", "PJ-19")
	inDialects(t, func(t *testing.T, d client.Dialect) {
		tasks := newFleet(t, d, cluster(3)).join(3)
		meet := func(k *task) error {
			return k.Barrier(context.Background(), "b", serry.BarrierOptions{Among: workers(0, 1), Timeout: time.Minute})
		}
		errs := atOnce(tasks[1:], meet)
		synctest.Wait()
		errs = append(errs, meet(tasks[0]))
		for i, k := range []*task{tasks[1], tasks[2], tasks[0]} {
			wantIs(t, "Barrier()", errs[i], serry.ErrNotMember)
			k.refused(t, "Barrier", codes.InvalidArgument, "non-participating task", lab.BarrierPayload)
		}
	})
}

func TestBarrierWithManyMissing(t *testing.T) {
	lab.Clause(t, "T-E2E-38", "IT-28")
	inDialects(t, func(t *testing.T, d client.Dialect) {
		k := newFleet(t, d, loose(100)).again(0)
		wantIs(t, "Barrier()", k.meet("b", 100*time.Millisecond), serry.ErrTimeout)
		k.refused(t, "Barrier", codes.DeadlineExceeded, "Barrier timed out", lab.BarrierPayload)
	})
}

func TestCloseEndsWhatWaits(t *testing.T) {
	lab.Clause(t, "A-GO-8", "T-E2E-39", "T-AG-50")
	inDialects(t, func(t *testing.T, d client.Dialect) {
		k := newFleet(t, d, loose(2)).join(2)[0]
		ends := map[string]<-chan error{
			"Barrier()": async(func() error { return k.meet("b", time.Hour) }),
			"Wait()":    async(func() error { _, err := k.KV().Wait(context.Background(), "absent"); return err }),
			"Agree()": async(func() error {
				_, err := k.Agree(context.Background(), nil, workers(0, 1)...)
				return err
			}),
			"Watch()": async(func() error {
				for _, err := range k.Watch(context.Background()) {
					if err != nil {
						return err
					}
				}
				return nil
			}),
		}
		for what, end := range ends {
			waits(t, what, end)
		}
		start := time.Now()
		k.Close()
		for what, end := range ends {
			err := <-end
			wantIs(t, what, err, serry.ErrCancelled)
			wantIs(t, what, err, k.Err())
		}
		if got := time.Since(start); got != 0 {
			t.Errorf("it took %v; want no time", got)
		}
	})
}

func TestAgreeOnWhoLives(t *testing.T) {
	lab.Clause(t, "T-E2E-27", "IT-22", "PJ-20")
	inDialects(t, func(t *testing.T, d client.Dialect) {
		tasks := newFleet(t, d, cluster(3)).join(3)
		all(t, "Agree()", tasks, func(k *task) error {
			a, err := k.Agree(context.Background(), nil, workers(0, 1, 2)...)
			if err != nil {
				return err
			}
			if len(a.Alive) != 3 {
				t.Errorf("Agree() = %v; want three tasks", a.Alive)
			}
			for _, other := range tasks {
				if a.Alive[other.Task()] != other.Incarnation() {
					t.Errorf("Agree() says that %v is %v; want %v", other.Task(), a.Alive[other.Task()], other.Incarnation())
				}
			}
			return nil
		})
	})
}

func TestAgreeOfOthers(t *testing.T) {
	lab.Clause(t, "T-E2E-28", "TC-TOP-31", "PJ-21")
	inDialects(t, func(t *testing.T, d client.Dialect) {
		tasks := newFleet(t, d, cluster(3)).join(3)
		for i, k := range tasks {
			_, err := k.Agree(t.Context(), nil, workers((i+1)%3, (i+2)%3)...)
			wantIs(t, "Agree() of others", err, serry.ErrNotMember)
			k.refused(t, "GetAliveTasks", codes.InvalidArgument, "", "")
		}
	})
}
