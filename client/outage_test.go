package client_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/client"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/internal/lab"
	"github.com/serry-dev/serry/wire"
	"github.com/serry-dev/serry/wire/rpc"
)

// A lossy transport passes calls on and loses the first answer to each call that changes something.
// Losses of kinds that are listed wait for each other, and happen in the order of the list.
type lossy struct {
	client.Transport
	codec *wire.Codec
	early bool          // lose the call instead, before the service sees it
	gate  chan struct{} // or nil; each loss takes one from it, in its turn

	mu struct {
		sync.Mutex
		order []string
		lost  map[uint64]bool // request ids
		turn  *sync.Cond
	}
}

func newLossy(inner client.Transport, order ...string) *lossy {
	l := &lossy{Transport: inner, codec: wire.NewCodec([]coord.Job{{Name: "worker", Tasks: 8}})}
	l.mu.order, l.mu.lost, l.mu.turn = order, make(map[uint64]bool), sync.NewCond(&l.mu)
	return l
}

func (l *lossy) Call(ctx context.Context, path string, body []byte) ([]byte, rpc.Status, error) {
	ev, _, err := l.codec.Decode(path, body, wire.Origin{Req: 1})
	if err != nil {
		return nil, rpc.Status{}, err
	}
	c, _ := coord.CallOf(ev)
	if c.ID == (coord.RequestID{}) || !l.first(c.ID.Number) {
		return l.Transport.Call(ctx, path, body)
	}
	if !l.early {
		if _, st, err := l.Transport.Call(ctx, path, body); err != nil || !st.OK() {
			return nil, st, err
		}
	}
	l.await(strings.TrimPrefix(fmt.Sprintf("%T", ev), "coord."))
	return nil, rpc.Status{}, errCut
}

// first says whether a request is seen for the first time.
func (l *lossy) first(number uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	seen := l.mu.lost[number]
	l.mu.lost[number] = true
	return !seen
}

// await waits until it is the turn of a kind of calls.
func (l *lossy) await(kind string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	place := 0
	for i, k := range l.mu.order {
		if k == kind {
			place = i + 1
		}
	}
	for place > 0 && len(l.mu.order) > 0 && l.mu.order[0] != kind {
		l.mu.turn.Wait()
	}
	if place > 0 && l.gate != nil {
		l.mu.Unlock()
		<-l.gate
		l.mu.Lock()
	}
	if place > 0 {
		l.mu.order = l.mu.order[1:]
		l.mu.turn.Broadcast()
	}
}

// lossyMember joins through a transport that loses things.
func lossyMember(t *testing.T, f *fleet, l *lossy, i int) *client.Member {
	t.Helper()
	cfg := f.cfg
	cfg.Task, cfg.Transport = worker(i), l
	m, err := client.Join(t.Context(), cfg)
	if err != nil {
		t.Fatalf("Join() = %v", err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// orders lists in which orders three calls can be lost.
func orders() [][]string {
	return [][]string{
		{"IncrementKeyValue", "InsertKeyValue", "Barrier"},
		{"IncrementKeyValue", "Barrier", "InsertKeyValue"},
		{"InsertKeyValue", "IncrementKeyValue", "Barrier"},
		{"InsertKeyValue", "Barrier", "IncrementKeyValue"},
		{"Barrier", "IncrementKeyValue", "InsertKeyValue"},
		{"Barrier", "InsertKeyValue", "IncrementKeyValue"},
	}
}

func TestCallsTakeEffectOnce(t *testing.T) {
	lab.Clause(t, "C-REQ-1", "C-REQ-2", "C-REQ-3")
	for _, early := range []bool{false, true} {
		for _, order := range append(orders(), nil) {
			name := map[bool]string{false: "answers", true: "calls"}[early] + " lost, " + strings.Join(order, ", ")
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := newFleet(t, client.Serry, loose(2))
					l := newLossy(f.Line(t, client.DialOptions{}), order...)
					l.early = early
					m := lossyMember(t, f, l, 0)
					ctx := t.Context()
					add := async(func() error {
						got, err := m.KV().Add(ctx, "sum", 1)
						if err == nil && got != 1 {
							err = fmt.Errorf("Add() = %d; want 1", got)
						}
						return err
					})
					create := async(func() error { return m.KV().Create(ctx, "k", []byte("v")) })
					meet := async(func() error {
						return m.Barrier(ctx, "b", serry.BarrierOptions{Among: workers(0)})
					})
					for what, end := range map[string]<-chan error{"Add()": add, "Create()": create, "Barrier()": meet} {
						if err := <-end; err != nil {
							t.Errorf("%s = %v", what, err)
						}
					}
					if got, err := m.KV().Add(ctx, "sum", 1); err != nil || got != 2 {
						t.Errorf("Add() again = %d, %v; want 2", got, err)
					}
					if err := m.Barrier(ctx, "b", serry.BarrierOptions{Among: workers(0)}); err != nil {
						t.Errorf("Barrier() again = %v", err)
					}
					if got := m.Stats(); got.Repeats != 5 || got.Outages == 0 {
						t.Errorf("Stats() = %+v; want each of five calls sent again", got)
					}
					if err := m.Leave(ctx); err != nil {
						t.Errorf("Leave() = %v", err)
					}
				})
			})
		}
	}
}

func TestStockServiceMayHaveTakenTheCall(t *testing.T) {
	lab.Clause(t, "C-REQ-1")
	for _, d := range []client.Dialect{client.XLA, client.TensorFlow} {
		synctest.Test(t, func(t *testing.T) {
			k, _ := play(t, d, func(_ context.Context, ev coord.Event) answer {
				switch ev.(type) {
				case coord.IncrementKeyValue, coord.InsertKeyValue:
					return answer{lost: errCut}
				}
				return answer{}
			})
			_, add := k.KV().Add(t.Context(), "k", 1)
			for what, err := range map[string]error{"Add()": add, "Create()": k.KV().Create(t.Context(), "k", nil)} {
				wantIs(t, what, err, client.ErrUncertain)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			wantIs(t, "Put()", k.KV().Put(ctx, "k", nil), context.DeadlineExceeded) // it may be sent again
			k.lives(t)
		})
	}
}

func TestCutConnection(t *testing.T) {
	lab.Clause(t, "C-REQ-2", "C-LOST-3", "A-SIDE-18")
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, client.Serry, cluster(2))
		tasks := f.join(2)
		ctx := t.Context()
		for round := range 5 {
			ends := []<-chan error{
				async(func() error { return tasks[0].Barrier(ctx, "b", serry.BarrierOptions{}) }),
				async(func() error { _, err := tasks[0].KV().Wait(ctx, fmt.Sprint("key", round)); return err }),
				async(func() error { _, err := tasks[0].Agree(ctx, []byte("w"), workers(0, 1)...); return err }),
			}
			synctest.Wait()
			tasks[0].line.Cut()
			for _, end := range ends {
				waits(t, "a call of a member without a connection", end)
			}
			time.Sleep(time.Second)
			put(t, tasks[1], fmt.Sprint("key", round))
			if _, err := tasks[1].Agree(ctx, nil, workers(0, 1)...); err != nil {
				t.Errorf("round %d: Agree() = %v", round, err)
			}
			if err := tasks[1].meet("b", 0); err != nil {
				t.Errorf("round %d: Barrier() = %v", round, err)
			}
			for i, end := range ends {
				if err := <-end; err != nil {
					t.Errorf("round %d: call %d = %v", round, i, err)
				}
			}
			time.Sleep(2 * heartbeat)
		}
		for _, k := range tasks {
			k.lives(t)
		}
		// The stream is resumed on another connection, and nobody notices.
		if got := tasks[0].Stats(); got.Outages != 0 || got.Repeats != 0 {
			t.Errorf("Stats() = %+v; want no outage", got)
		}
		all(t, "Leave()", tasks, leave)
	})
}

func TestServiceIsReplaced(t *testing.T) {
	lab.Clause(t, "C-EPOCH-5", "T-AG-44")
	in(t, func(t *testing.T, d client.Dialect) {
		f := newFleet(t, d, loose(1))
		k := f.again(0)
		end := async(func() error { return k.meet("b", time.Hour) })
		synctest.Wait()
		f.Replace(t, loose(1))
		k.fault(t, client.FaultServerChanged, serry.ErrMismatch)
		<-end
	}, client.Serry, client.XLA)
}

func TestWatchOutlivesAnOutage(t *testing.T) {
	lab.Clause(t, "C-WATCH-3")
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, client.Serry, recoverable(2))
		tasks := f.join(2)
		states := make(chan serry.TaskState, 16)
		ctx, cancel := context.WithCancel(t.Context())
		end := async(func() error {
			for s, err := range tasks[0].Watch(ctx) {
				if err != nil {
					return err
				}
				states <- s.Tasks[1].State
			}
			return nil
		})
		if got := <-states; got != serry.Connected {
			t.Errorf("task 1 is %v; want it connected", got)
		}
		tasks[0].line.Cut()
		time.Sleep(time.Second)
		if err := leave(tasks[1]); err != nil {
			t.Fatal(err)
		}
		for got := range states {
			if got == serry.Disconnected {
				break
			}
		}
		cancel()
		wantIs(t, "Watch()", <-end, context.Canceled)
	})
}
