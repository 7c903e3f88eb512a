package client_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/client"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/internal/lab"
	"github.com/serry-dev/serry/wire"
	"github.com/serry-dev/serry/wire/rpc"
)

func TestWaitAgainstAScript(t *testing.T) {
	lab.Clause(t, "T-AG-1", "T-AG-2", "T-AG-3", "T-AG-5")
	for name, c := range map[string]struct {
		after, timeout time.Duration // zero: at once; without an end
		want           error
	}{
		"at once":                 {},
		"at once, with a timeout": {timeout: 10 * time.Second},
		"late, within the time":   {after: 5 * time.Second, timeout: 10 * time.Second},
		"never":                   {after: time.Hour, timeout: time.Second, want: context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			inDialects(t, func(t *testing.T, d client.Dialect) {
				k, _ := play(t, d, func(ctx context.Context, ev coord.Event) answer {
					if get, ok := ev.(coord.GetKeyValue); ok {
						select {
						case <-time.After(c.after):
						case <-ctx.Done():
						}
						return answer{result: coord.Value{Key: get.Key, Value: []byte("v")}}
					}
					return answer{}
				})
				ctx, start := t.Context(), time.Now()
				if c.timeout > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, c.timeout)
					defer cancel()
				}
				got, err := k.KV().Wait(ctx, "k")
				took := time.Since(start)
				if c.want != nil && (!errors.Is(err, c.want) || took != c.timeout) {
					t.Errorf("Wait() = %v after %v; want %v after %v", err, took, c.want, c.timeout)
				}
				if c.want == nil && (err != nil || string(got) != "v" || took != c.after) {
					t.Errorf("Wait() = %q, %v after %v; want v after %v", got, err, took, c.after)
				}
			})
		})
	}
}

func TestLateAnswerDoesNoHarm(t *testing.T) {
	lab.Clause(t, "A-KV-3", "A-KV-4", "T-AG-4", "T-AG-6")
	inDialects(t, func(t *testing.T, d client.Dialect) {
		k := alone(t, d)
		ctx, cancel := context.WithCancel(t.Context())
		end := async(func() error { _, err := k.KV().Wait(ctx, "k"); return err })
		waits(t, "Wait()", end)
		cancel()
		wantIs(t, "Wait()", <-end, context.Canceled)
		put(t, k, "k")
		waits(t, "a second end of Wait()", end)
		wantValue(t, k, "k", "value of k")
		k.lives(t)
	})
}

func TestKeysAgainstAScript(t *testing.T) {
	lab.Clause(t, "T-AG-7", "T-AG-8", "T-AG-9", "T-AG-13", "T-AG-43")
	inDialects(t, func(t *testing.T, d client.Dialect) {
		sum := "11"
		k, s := play(t, d, func(_ context.Context, ev coord.Event) answer {
			switch ev.(type) {
			case coord.TryGetKeyValue:
				return answer{result: coord.Value{Key: "k", Value: []byte("v")}}
			case coord.IncrementKeyValue:
				return answer{result: coord.Value{Key: "k", Value: []byte(sum)}}
			case coord.GetKeyValueDir:
				return answer{result: coord.Entries{Entries: []coord.Entry{{Key: "d/a", Value: []byte("1")}, {Key: "d/b", Value: []byte("2")}}}}
			}
			return answer{}
		})
		if got := k.Task(); got != worker(0) || got.String() != "worker/0" {
			t.Errorf("Task() = %v; want worker/0", got)
		}
		if got, err := k.KV().Get(t.Context(), "k"); err != nil || string(got) != "v" {
			t.Errorf("Get() = %q, %v; want v", got, err)
		}
		if got, err := k.KV().Add(t.Context(), "k", 1); err != nil || got != 11 {
			t.Errorf("Add() = %d, %v; want 11", got, err)
		}
		if got := seen[coord.IncrementKeyValue](s); len(got) != 1 || got[0].By != 1 {
			t.Errorf("the service saw %v; want one increment by 1", got)
		}
		if got, err := k.KV().List(t.Context(), "d"); err != nil || len(got) != 2 {
			t.Errorf("List() = %v, %v; want both entries", got, err)
		}
		sum = "eleven"
		_, err := k.KV().Add(t.Context(), "k", 1)
		wantIs(t, "Add() that is answered with a word", err, serry.ErrNotNumber)
	})
}

func TestEndOfTheErrorPoll(t *testing.T) {
	lab.Clause(t, "A-POLL-4", "A-CON-5", "T-AG-10", "T-AG-11", "T-AG-12", "T-AG-47", "T-AG-48")
	for name, c := range map[string]struct {
		first answer
		lost  bool // the member
		again bool // it polls again
	}{
		"cancelled":           {first: answer{status: refusal(codes.Canceled)}},
		"invalid argument":    {first: answer{status: refusal(codes.InvalidArgument)}, lost: true},
		"failed precondition": {first: answer{status: refusal(codes.FailedPrecondition)}, lost: true},
		"connection broken":   {first: answer{lost: errCut}, again: true},
		"success":             {first: answer{result: coord.Done{}}, again: true},
		"service stops":       {first: answer{err: serry.ErrStopping}, again: true},
	} {
		t.Run(name, func(t *testing.T) {
			inDialects(t, func(t *testing.T, d client.Dialect) {
				var polls atomic.Int32
				k, s := play(t, d, func(_ context.Context, ev coord.Event) answer {
					if _, ok := ev.(coord.PollForError); ok && polls.Add(1) == 1 {
						return c.first
					}
					return answer{}
				})
				time.Sleep(2 * time.Second)
				if got := k.Err() != nil; got != c.lost {
					t.Errorf("the member was lost by %v; want lost: %v", k.Err(), c.lost)
				}
				want := 1
				if c.again {
					want = 2
				}
				if got := len(seen[coord.PollForError](s)); got != want {
					t.Errorf("%d polls; want %d", got, want)
				}
			})
		})
	}
}

func TestRegisterIsTriedAgain(t *testing.T) {
	lab.Clause(t, "A-CON-2", "T-AG-15", "T-AG-17", "T-AG-40", "T-AG-41")
	for name, first := range map[string]answer{
		"aborted":       {status: refusal(codes.Aborted)},
		"internal":      {status: refusal(codes.Internal)},
		"unknown error": {status: &rpc.Status{Code: codes.InvalidArgument, Message: "by a proxy"}},
		"failed before": {err: &serry.TaskError{Task: worker(0), Err: serry.ErrAlreadyFailed, Reason: serry.ErrRegistrationFailed}},
		"not reached":   {lost: errCut},
	} {
		t.Run(name, func(t *testing.T) {
			inDialects(t, func(t *testing.T, d client.Dialect) {
				var tries atomic.Int32
				_, s := play(t, d, func(_ context.Context, ev coord.Event) answer {
					if _, ok := ev.(coord.RegisterTask); ok && tries.Add(1) <= 2 {
						return first
					}
					return answer{}
				})
				calls := seen[coord.RegisterTask](s)
				if len(calls) != 3 {
					t.Fatalf("%d registrations; want 3", len(calls))
				}
				for _, c := range calls {
					if c.Incarnation != calls[0].Incarnation {
						t.Errorf("incarnation %v after %v; want the same", c.Incarnation, calls[0].Incarnation)
					}
				}
			})
		})
	}
}

func TestRegisterIsNotTriedForEver(t *testing.T) {
	lab.Clause(t, "A-CON-6", "T-AG-16", "T-AG-40", "T-AG-41")
	inDialects(t, func(t *testing.T, d client.Dialect) {
		refuse := func(_ context.Context, ev coord.Event) answer {
			return answer{status: refusal(codes.Aborted)}
		}
		scripts := []*script{newScript(refuse), newScript(refuse)}
		start := time.Now()
		for _, end := range []<-chan error{
			async(func() error { _, err := client.Join(context.Background(), scriptConfig(d, scripts[0])); return err }),
			async(func() error { _, err := client.Join(context.Background(), scriptConfig(d, scripts[1])); return err }),
		} {
			err := <-end
			wantIs(t, "Join()", err, serry.ErrTimeout)
			wantText(t, err, "as the script says")
			if got := time.Since(start); got != 3001*time.Millisecond {
				t.Errorf("Join() took %v; want its 3s and the grace", got)
			}
		}
		a, b := when[coord.RegisterTask](scripts[0]), when[coord.RegisterTask](scripts[1])
		if slices.Equal(a, b) {
			t.Errorf("two members tried at the same %d times; want them apart", len(a))
		}
	})
}

func TestRegisterIsRefused(t *testing.T) {
	lab.Clause(t, "T-AG-40")
	for name, refused := range map[string]answer{
		"invalid argument":  {status: refusal(codes.InvalidArgument)},
		"unimplemented":     {status: &rpc.Status{Code: codes.Unimplemented}},
		"permission denied": {status: &rpc.Status{Code: codes.PermissionDenied}},
		"unknown task":      {err: serry.ErrUnknownTask},
		"replaced":          {err: serry.ErrSuperseded},
	} {
		t.Run(name, func(t *testing.T) {
			inDialects(t, func(t *testing.T, d client.Dialect) {
				s := newScript(func(context.Context, coord.Event) answer { return refused })
				start := time.Now()
				_, err := client.Join(t.Context(), scriptConfig(d, s))
				if err == nil || time.Since(start) != 0 || len(seen[coord.RegisterTask](s)) != 1 {
					t.Errorf("Join() = %v after %v and %d tries; want an error at once",
						err, time.Since(start), len(seen[coord.RegisterTask](s)))
				}
			})
		})
	}
}

func TestJoinEndsWithItsContext(t *testing.T) {
	lab.Clause(t, "T-AG-40")
	inDialects(t, func(t *testing.T, d client.Dialect) {
		s := newScript(func(context.Context, coord.Event) answer { return answer{lost: errCut} })
		why := errors.New("no more time")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, why)
		defer cancel()
		start := time.Now()
		_, err := client.Join(ctx, scriptConfig(d, s))
		wantText(t, err, errCut.Error())
		if got := time.Since(start); got != time.Second {
			t.Errorf("Join() took %v; want 1s", got)
		}
	})
}

func TestDialectIsFound(t *testing.T) {
	lab.Clause(t, "A-GO-7", "T-AG-58")
	for _, speaks := range []client.Dialect{client.Serry, client.XLA, client.TensorFlow, client.Auto} {
		t.Run(speaks.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScript(nil)
				only := &deaf{script: s, hears: map[client.Dialect]string{
					client.Serry: "/serry.", client.XLA: "/xla.", client.TensorFlow: "/tensorflow.", client.Auto: "/none.",
				}[speaks]}
				cfg := scriptConfig(client.Auto, s)
				cfg.Transport = only
				m, err := client.Join(t.Context(), cfg)
				if speaks == client.Auto {
					wantText(t, err, "no coordination service")
					return
				}
				if err != nil {
					t.Fatalf("Join() = %v", err)
				}
				defer m.Close()
				// In all dialects the first call names no service, since none is known yet.
				if probes := seen[coord.TryGetKeyValue](s); len(probes) != 1 || probes[0].Service != 0 {
					t.Errorf("the service was probed with %+v; want one call that names no service", probes)
				}
				if err := m.KV().Put(t.Context(), "k", nil); err != nil {
					t.Errorf("Put() = %v", err)
				}
			})
		})
	}
}

// A deaf service knows one dialect.
type deaf struct {
	*script
	hears string // how its paths begin
}

func (s *deaf) Call(ctx context.Context, path string, body []byte) ([]byte, rpc.Status, error) {
	if len(path) < len(s.hears) || path[:len(s.hears)] != s.hears {
		return nil, rpc.Status{Code: codes.Unimplemented, Message: "unknown service"}, nil
	}
	return s.script.Call(ctx, path, body)
}

func TestCallsBeforeRegistration(t *testing.T) {
	lab.Clause(t, "T-AG-58")
	for _, d := range []wire.Dialect{wire.Serry, wire.XLA, wire.TF} {
		synctest.Test(t, func(t *testing.T) {
			line := lab.Serve(t, cluster(2)).Line(t, client.DialOptions{})
			if _, err := ask(t, line, d, coord.InsertKeyValue{Key: "k", Value: []byte("v")}); err != nil {
				t.Errorf("InsertKeyValue in dialect %v = %v; want it served", d, err)
			}
			got, err := ask(t, line, d, coord.GetKeyValue{Key: "k"})
			if v, ok := got.(coord.Value); err != nil || !ok || string(v.Value) != "v" {
				t.Errorf("GetKeyValue in dialect %v = %v, %v; want v", d, got, err)
			}
		})
	}
}

func TestBarrierCounters(t *testing.T) {
	lab.Clause(t, "A-BAR-4", "T-AG-18", "T-AG-20", "T-AG-21")
	failed := &serry.BarrierError{ID: "b", Counter: 0, Task: worker(1), Err: serry.ErrMemberLost}
	for name, c := range map[string]struct {
		first answer
		fails func(error) bool // whether the first call ended as it should
		sent  []int64
	}{
		"passed": {sent: []int64{0, 1}, fails: func(err error) bool { return err == nil }},
		"failed": {first: answer{err: failed}, sent: []int64{0, 1},
			fails: func(err error) bool { return errors.Is(err, serry.ErrMemberLost) }},
		"connection broken": {first: answer{lost: errCut}, sent: []int64{0, 0, 1},
			fails: func(err error) bool { return err == nil }},
		"refused": {first: answer{status: refusal(codes.ResourceExhausted)}, sent: []int64{0, 0},
			fails: func(err error) bool { return status.Code(err) == codes.ResourceExhausted }},
	} {
		t.Run(name, func(t *testing.T) {
			inDialects(t, func(t *testing.T, d client.Dialect) {
				var calls atomic.Int32
				k, s := play(t, d, func(_ context.Context, ev coord.Event) answer {
					if _, ok := ev.(coord.Barrier); ok && calls.Add(1) == 1 {
						return c.first
					}
					return answer{}
				})
				if err := k.meet("b", barrier); !c.fails(err) {
					t.Errorf("Barrier() = %v; want another end", err)
				}
				if err := k.meet("b", barrier); err != nil {
					t.Errorf("Barrier() again = %v; want OK", err)
				}
				var sent []int64
				for _, b := range seen[coord.Barrier](s) {
					sent = append(sent, b.Counter)
				}
				if !slices.Equal(sent, c.sent) {
					t.Errorf("counters %v were sent; want %v", sent, c.sent)
				}
			})
		})
	}
}

func TestOneCallPerBarrier(t *testing.T) {
	lab.Clause(t, "A-BAR-3", "T-AG-19", "T-AG-22", "T-AG-52")
	inDialects(t, func(t *testing.T, d client.Dialect) {
		var open atomic.Bool
		k, s := play(t, d, func(ctx context.Context, ev coord.Event) answer {
			if _, ok := ev.(coord.Barrier); ok && open.Load() {
				return forever(ctx)
			}
			return answer{}
		})
		for range 3 {
			if err := k.meet("b", barrier); err != nil {
				t.Fatalf("Barrier() = %v", err)
			}
		}
		open.Store(true)
		ctx, cancel := context.WithCancel(t.Context())
		end := async(func() error { return k.Barrier(ctx, "b", serry.BarrierOptions{}) })
		synctest.Wait()
		wantIs(t, "a second Barrier()", k.meet("b", barrier), client.ErrInUse)
		if got := len(seen[coord.Barrier](s)); got != 4 {
			t.Errorf("%d calls were sent; want 4", got)
		}
		if err := k.CancelBarrier(t.Context(), "b"); err != nil {
			t.Errorf("CancelBarrier() = %v", err)
		}
		if got := seen[coord.CancelBarrier](s); len(got) != 1 || got[0].Counter != 3 || got[0].ID != "b" {
			t.Errorf("the service saw %+v; want the cancel of use 3", got)
		}
		cancel()
		wantIs(t, "Barrier()", <-end, context.Canceled)
	})
}

func TestCancelOfABarrierThatIsNotOpen(t *testing.T) {
	lab.Clause(t, "A-BAR-6", "T-AG-23", "T-AG-24", "T-AG-25")
	inDialects(t, func(t *testing.T, d client.Dialect) {
		k, s := play(t, d, func(_ context.Context, ev coord.Event) answer {
			if b, ok := ev.(coord.Barrier); ok && b.ID == "failed" {
				return answer{err: &serry.BarrierError{ID: b.ID, Err: serry.ErrTimeout}}
			}
			return answer{}
		})
		if err := k.meet("passed", barrier); err != nil {
			t.Errorf("Barrier() = %v", err)
		}
		wantIs(t, "Barrier()", k.meet("failed", barrier), serry.ErrTimeout)
		for _, id := range []string{"never used", "passed", "failed"} {
			wantIs(t, "CancelBarrier("+id+")", k.CancelBarrier(t.Context(), id), client.ErrNotOpen)
		}
		if got := seen[coord.CancelBarrier](s); len(got) != 0 {
			t.Errorf("the service saw %v; want nothing", got)
		}
	})
}

func TestFailThenLeave(t *testing.T) {
	lab.Clause(t, "A-ST-1", "A-SHUT-4", "T-AG-26", "T-AG-51")
	inDialects(t, func(t *testing.T, d client.Dialect) {
		var k *task
		k, s := play(t, d, func(_ context.Context, ev coord.Event) answer {
			if _, ok := ev.(coord.ReportError); ok && k.Err() != nil {
				t.Errorf("the member was over (%v) when its report was sent", k.Err())
			}
			return answer{}
		})
		cause := errors.New("out of memory")
		if err := k.Fail(t.Context(), cause); err != nil {
			t.Errorf("Fail() = %v", err)
		}
		k.fault(t, client.FaultLocal, cause)
		if got := seen[coord.ReportError](s); len(got) != 1 || got[0].Text != cause.Error() || got[0].Code != int(codes.Internal) {
			t.Errorf("the service saw %+v; want the report", got)
		}
		wantIs(t, "Leave() after Fail()", leave(k), cause)
		if got := seen[coord.ShutdownTask](s); len(got) != 0 {
			t.Errorf("the service saw %v; want no farewell", got)
		}
	})
}

// A task that was too slow says so by the code of its report.
func TestFailByTimeout(t *testing.T) {
	lab.Clause(t, "CL-TMO-5")
	inDialects(t, func(t *testing.T, d client.Dialect) {
		k, s := play(t, d, func(context.Context, coord.Event) answer { return answer{} })
		if err := k.Fail(t.Context(), fmt.Errorf("step 12: %w", serry.ErrTimeout)); err != nil {
			t.Errorf("Fail() = %v", err)
		}
		if got := seen[coord.ReportError](s); len(got) != 1 || got[0].Code != int(codes.DeadlineExceeded) {
			t.Errorf("the service saw %+v; want DEADLINE_EXCEEDED", got)
		}
	})
}
