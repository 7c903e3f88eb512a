package client_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/client"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/internal/lab"
	"github.com/serry-dev/serry/wire"
	"github.com/serry-dev/serry/wire/serrypb"
	"github.com/serry-dev/serry/wire/tfpb"
	"github.com/serry-dev/serry/wire/xlapb"
)

func TestHeartbeatOfAnotherService(t *testing.T) {
	lab.Clause(t, "T-AG-45")
	inDialects(t, func(t *testing.T, d client.Dialect) {
		k, _ := play(t, d, func(_ context.Context, ev coord.Event) answer {
			if _, ok := ev.(coord.Heartbeat); ok {
				return answer{result: coord.Registered{Service: scripted + 1}}
			}
			return answer{}
		})
		k.fault(t, client.FaultServerChanged, serry.ErrMismatch)
		_, err := k.KV().Get(t.Context(), "k")
		wantIs(t, "Get() of a lost member", err, k.Err())
	})
}

func TestHeartbeats(t *testing.T) {
	lab.Clause(t, "A-GO-4", "T-AG-46")
	inDialects(t, func(t *testing.T, d client.Dialect) {
		k, s := play(t, d, nil)
		time.Sleep(10 * heartbeat)
		k.lives(t)
		beats := when[coord.Heartbeat](s)
		if len(beats) < 25 || len(beats) > 38 {
			t.Errorf("%d heartbeats in ten timeouts; want about three in each", len(beats))
		}
		for i := range beats[1:] {
			if gap := beats[i+1].Sub(beats[i]); gap > heartbeat/2 {
				t.Errorf("%v without a heartbeat; want less than half a timeout", gap)
			}
		}
	})
}

func TestOutages(t *testing.T) {
	lab.Clause(t, "A-GO-3", "T-AG-46", "T-AG-47")
	const tolerance = time.Minute
	for name, away := range map[string]func(ctx context.Context) answer{
		"refused": func(context.Context) answer { return answer{lost: errCut} },
		"silent":  forever,
		"stopped": func(context.Context) answer { return answer{err: serry.ErrStopped} },
	} {
		for _, length := range []time.Duration{tolerance / 2, tolerance * 2} {
			t.Run(name+" for "+length.String(), func(t *testing.T) {
				inDialects(t, func(t *testing.T, d client.Dialect) {
					start := time.Now()
					from := start.Add(time.Hour)
					s := newScript(func(ctx context.Context, ev coord.Event) answer {
						if _, poll := ev.(coord.PollForError); poll && time.Now().Before(from) {
							return forever(ctx) // only heartbeats notice
						}
						if now := time.Now(); now.Before(from) || now.After(from.Add(length)) {
							return answer{}
						}
						return away(ctx)
					})
					var log strings.Builder
					cfg := scriptConfig(d, s)
					cfg.OutageTolerance, cfg.Log = tolerance, slog.New(slog.NewTextHandler(&log, nil))
					m, err := client.Join(t.Context(), cfg)
					if err != nil {
						t.Fatalf("Join() = %v", err)
					}
					k := &task{Member: m, cfg: cfg}
					defer k.Close()
					time.Sleep(time.Until(from.Add(length + 2*heartbeat)))
					if length < tolerance {
						k.lives(t)
						if got := k.Stats(); got.Outages != 1 || got.Beats == 0 {
							t.Errorf("Stats() = %+v; want one outage", got)
						}
						k.Close()
						wantText(t, errors.New(log.String()), "service is back")
						return
					}
					k.fault(t, client.FaultSilence, nil)
					wantText(t, errors.New(log.String()), "membership lost")
				})
			})
		}
	}
}

func TestTolerance(t *testing.T) {
	lab.Clause(t, "T-AG-46")
	for name, tolerance := range map[string]time.Duration{"ten seconds": 10 * time.Second, "none": -1} {
		t.Run(name, func(t *testing.T) {
			inDialects(t, func(t *testing.T, d client.Dialect) {
				cfg := loose(1)
				cfg.Cluster.HeartbeatTimeout = 100 * time.Second
				f := newFleet(t, d, cfg)
				f.cfg.HeartbeatTimeout, f.cfg.OutageTolerance = 100*time.Second, tolerance
				k := f.again(0)
				time.Sleep(20 * time.Second) // longer than it tolerates, but nobody was asked anything
				k.lives(t)
				start := time.Now()
				f.Shutdown(t.Context())
				k.fault(t, client.FaultSilence, nil)
				if got := time.Since(start); got < tolerance || got > max(0, tolerance)+time.Second {
					t.Errorf("the member was lost after %v; want %v", got, tolerance)
				}
			})
		})
	}
}

func TestDeadToTheService(t *testing.T) {
	lab.Clause(t, "T-AG-12")
	inDialects(t, func(t *testing.T, d client.Dialect) {
		f := newFleet(t, d, loose(2))
		f.cfg.HeartbeatTimeout = 100 * time.Second // the service expects one every 3s
		f.join(2)[0].fault(t, client.FaultSelf, serry.ErrTaskDead)
	})
}

func TestLeaveDuringAHeartbeat(t *testing.T) {
	lab.Clause(t, "T-AG-49")
	inDialects(t, func(t *testing.T, d client.Dialect) {
		k, s := play(t, d, func(ctx context.Context, ev coord.Event) answer {
			if _, ok := ev.(coord.Heartbeat); ok {
				return forever(ctx)
			}
			return answer{}
		})
		time.Sleep(heartbeat / 2)
		if len(seen[coord.Heartbeat](s)) != 1 {
			t.Fatalf("%d heartbeats are under way; want 1", len(seen[coord.Heartbeat](s)))
		}
		start := time.Now()
		if err := leave(k); err != nil {
			t.Errorf("Leave() = %v", err)
		}
		if got := time.Since(start); got != 0 {
			t.Errorf("Leave() took %v; want no time", got)
		}
	})
}

func TestLeaveOnlyOnce(t *testing.T) {
	lab.Clause(t, "A-GO-9", "T-AG-26")
	inDialects(t, func(t *testing.T, d client.Dialect) {
		k := alone(t, d)
		if err := leave(k); err != nil {
			t.Errorf("Leave() = %v", err)
		}
		wantIs(t, "Leave() again", leave(k), serry.ErrLeft)
		wantIs(t, "Barrier() after Leave()", k.meet("b", barrier), serry.ErrLeft)
		if err := k.Close(); err != nil {
			t.Errorf("Close() after Leave() = %v", err)
		}
	})
}

func TestFailIsTheOthersFault(t *testing.T) {
	lab.Clause(t, "T-AG-51", "T-AG-34", "T-AG-57")
	inDialects(t, func(t *testing.T, d client.Dialect) {
		tasks := newFleet(t, d, cluster(3)).join(3)
		if err := tasks[1].Fail(t.Context(), errors.New("out of memory")); err != nil {
			t.Errorf("Fail() = %v", err)
		}
		for _, k := range []*task{tasks[0], tasks[2]} {
			fault := k.fault(t, client.FaultPeer, serry.ErrReported)
			te, ok := errors.AsType[*serry.TaskError](error(fault))
			if !ok || te.Task != worker(1) || te.Code != int(codes.Internal) || te.Text != "out of memory" {
				t.Errorf("the fault of %v is %+v; want the words of worker/1", k.Task(), te)
			}
			wantText(t, fault, "worker/1")
		}
	})
}

func TestAliveListsOfUnequalLength(t *testing.T) {
	lab.Clause(t, "T-AG-53")
	lies := map[client.Dialect]proto.Message{
		client.Serry: &serrypb.Reply{Result: &serrypb.Reply_Agreement{Agreement: &serrypb.Agreement{
			Tasks: []*serrypb.Task{{Job: "worker"}, {Job: "worker", Index: 1}}, Incarnations: []uint64{1}, Words: [][]byte{nil, nil},
		}}},
		client.XLA:        &xlapb.GetAliveTasksResponse{AliveTaskIds: []int32{0, 1}, Incarnations: []uint64{1}},
		client.TensorFlow: &tfpb.GetAliveTasksResponse{AliveTasks: []*tfpb.CoordinatedTask{{}, {TaskId: 1}}, Incarnations: []uint64{1}},
	}
	inDialects(t, func(t *testing.T, d client.Dialect) {
		body, err := proto.Marshal(lies[d])
		if err != nil {
			t.Fatal(err)
		}
		k, _ := play(t, d, func(_ context.Context, ev coord.Event) answer {
			if _, ok := ev.(coord.GetAliveTasks); ok {
				return answer{body: body}
			}
			return answer{}
		})
		if a, err := k.Agree(t.Context(), nil, workers(0, 1)...); err == nil {
			t.Errorf("Agree() = %+v; want an error", a)
		}
	})
}

func TestSuspect(t *testing.T) {
	lab.Clause(t, "A-GO-11", "T-AG-56", "NEW-38", "T-AG-33")
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, client.Serry, cluster(3))
		tasks := f.join(3)
		seen, stuck := tasks[0], tasks[2]
		for name, e := range map[string]serry.Evidence{
			"weak evidence":    {Detail: "connection reset"},
			"of a former life": {Hard: true, Detail: "process exited: signal 9"},
		} {
			life := stuck.Incarnation()
			if e.Hard {
				life--
			}
			if err := seen.Suspect(t.Context(), stuck.Task(), life, e); err != nil {
				t.Errorf("Suspect() with %s = %v", name, err)
			}
			synctest.Wait()
			for _, k := range tasks {
				k.lives(t)
			}
		}
		start := time.Now()
		err := seen.Suspect(t.Context(), stuck.Task(), stuck.Incarnation(), serry.Evidence{Hard: true, Detail: "process exited: signal 9"})
		// The news of the failure may overtake the answer.
		if err != nil && !errors.Is(err, serry.ErrTaskDead) {
			t.Errorf("Suspect() with hard evidence = %v", err)
		}
		for _, k := range tasks[:2] {
			fault := k.fault(t, client.FaultPeer, serry.ErrTaskDead)
			wantText(t, fault, "worker/2")
			wantText(t, fault, "process exited: signal 9")
			wantText(t, fault, "worker/0") // who saw it
		}
		if got := time.Since(start); got != 0 {
			t.Errorf("the job heard of it after %v; want at once", got)
		}
	})
}

func TestStockServicesLackSomeCalls(t *testing.T) {
	lab.Clause(t, "C-REQ-1")
	in(t, func(t *testing.T, d client.Dialect) {
		k := alone(t, d)
		_, agree := k.Agree(t.Context(), []byte("word"), worker(0))
		var watch error
		for _, err := range k.KV().Watch(t.Context(), "d") {
			watch = err
		}
		for what, err := range map[string]error{
			"Suspect()":           k.Suspect(t.Context(), worker(0), 1, serry.Evidence{}),
			"Swap()":              k.KV().Swap(t.Context(), "k", nil, nil),
			"Agree() with a word": agree,
			"KV.Watch()":          watch,
		} {
			wantIs(t, what, err, client.ErrUnsupported)
		}
		k.lives(t)
	}, client.XLA, client.TensorFlow)
}

func TestRequestIDs(t *testing.T) {
	lab.Clause(t, "C-REQ-1")
	inDialects(t, func(t *testing.T, d client.Dialect) {
		k, s := play(t, d, func(_ context.Context, ev coord.Event) answer {
			switch ev.(type) {
			case coord.IncrementKeyValue, coord.TryGetKeyValue, coord.GetKeyValue:
				return answer{result: coord.Value{Value: []byte("1")}}
			case coord.GetAliveTasks:
				return answer{result: &coord.Alive{}}
			case coord.GetKeyValueDir:
				return answer{result: coord.Entries{}}
			case coord.WatchTasks:
				return answer{result: &coord.Picture{}}
			}
			return answer{}
		})
		ctx, kv := t.Context(), k.KV()
		_, add := kv.Add(ctx, "k", 1)
		_, agree := k.Agree(ctx, nil, worker(0))
		_, get := kv.Get(ctx, "k")
		_, wait := kv.Wait(ctx, "k")
		_, list := kv.List(ctx, "k")
		_, tasks := k.Tasks(ctx)
		errs := []error{add, agree, get, wait, list, tasks, kv.Create(ctx, "k", nil), kv.Put(ctx, "k", nil), kv.Delete(ctx, "k"),
			k.meet("b", barrier), k.Fail(ctx, errors.New("for the test"))}
		if d == client.Serry {
			errs = append(errs, kv.Swap(ctx, "k", nil, nil))
		}
		for i, err := range errs {
			if err != nil && i < 11 {
				t.Errorf("call %d = %v", i, err)
			}
		}
		checkIDs(t, d, s)
	})
}

// checkIDs checks the request ids of all calls that were made one after the other.
func checkIDs(t *testing.T, d client.Dialect, s *script) {
	t.Helper()
	var last coord.RequestID
	for _, ev := range seen[coord.Event](s) {
		c, _ := coord.CallOf(ev)
		changes := true
		switch ev.(type) {
		case coord.Heartbeat, coord.PollForError, coord.GetKeyValue, coord.TryGetKeyValue, coord.GetKeyValueDir, coord.WatchTasks:
			changes = false
		}
		switch {
		case d != client.Serry || !changes:
			if c.ID != (coord.RequestID{}) {
				t.Errorf("%T carries %+v; want no request id", ev, c.ID)
			}
			continue
		case c.ID.Requester == 0 || last.Requester != 0 && c.ID.Requester != last.Requester:
			t.Errorf("%T is by requester %d after %d; want the same", ev, c.ID.Requester, last.Requester)
		case c.ID.Number != last.Number+1 || c.ID.Watermark != last.Number:
			t.Errorf("%T carries %+v after %+v; want the next number, and all before acknowledged", ev, c.ID, last)
		}
		last = c.ID
	}
	if d == client.Serry && last.Number < 8 {
		t.Errorf("%d calls carried an id; want all that change something", last.Number)
	}
}

func TestErrorsKeepTheirFacts(t *testing.T) {
	lab.Clause(t, "A-ERR-1", "T-AG-32", "T-AG-33", "T-AG-34", "T-AG-35", "T-AG-36")
	for name, c := range map[string]struct {
		sent error
		says func(err error) bool
	}{
		"code and text": {serry.ErrNotConnected, func(err error) bool { return errors.Is(err, serry.ErrNotConnected) }},
		"origin": {&serry.TaskError{Task: worker(3), Was: 4, Now: 5, Err: serry.ErrRestarted}, func(err error) bool {
			te, ok := errors.AsType[*serry.TaskError](err)
			return ok && te.Task == worker(3) && te.Err == serry.ErrRestarted
		}},
		"reported": {&serry.TaskError{Task: worker(3), Code: 9, Text: "disk full", Err: serry.ErrReported}, func(err error) bool {
			te, ok := errors.AsType[*serry.TaskError](err)
			return ok && te.Task == worker(3) && te.Err == serry.ErrReported && te.Code == 9 && te.Text == "disk full"
		}},
		"barrier": {&serry.BarrierError{ID: "b", Counter: 8, Task: worker(1), Err: serry.ErrCancelled}, func(err error) bool {
			be, ok := errors.AsType[*serry.BarrierError](err)
			return ok && be.ID == "b" && be.Counter == 8 && be.Task == worker(1) && be.Err == serry.ErrCancelled
		}},
	} {
		t.Run(name, func(t *testing.T) {
			inDialects(t, func(t *testing.T, d client.Dialect) {
				k, _ := play(t, d, func(_ context.Context, ev coord.Event) answer {
					switch ev.(type) {
					case coord.Barrier, coord.ReportError:
						return answer{err: c.sent}
					}
					return answer{}
				})
				err := k.meet("b", barrier)
				if name == "code and text" { // a barrier has no such end
					err = k.Fail(t.Context(), errors.New("for the test"))
				}
				if !c.says(err) {
					t.Errorf("the caller got %#v; want what was sent, %v", err, c.sent)
				}
			})
		})
	}
}

func TestManyMembersOnOneLine(t *testing.T) {
	lab.Clause(t, "A-GO-5", "C-INC-6")
	const n = 50
	inDialects(t, func(t *testing.T, d client.Dialect) {
		f := newFleet(t, d, cluster(n))
		f.cfg.Transport = f.Line(t, client.DialOptions{})
		var failed atomic.Int32
		ends := make([]<-chan error, n)
		for i := range n {
			cfg := f.cfg
			cfg.Task = worker(i)
			ends[i] = async(func() error {
				m, err := client.Join(context.Background(), cfg)
				if err != nil {
					return err
				}
				defer m.Close()
				if err := m.Barrier(context.Background(), "b", serry.BarrierOptions{}); err != nil {
					return err
				}
				return m.Leave(context.Background())
			})
		}
		for _, end := range ends {
			if err := <-end; err != nil && failed.Add(1) == 1 {
				t.Errorf("a member ended with %v", err)
			}
		}
	})
}

// ask makes a call of a dialect without being a member.
func ask(t *testing.T, tr client.Transport, d wire.Dialect, ev coord.Event) (coord.Result, error) {
	t.Helper()
	path, body, err := d.Request(ev)
	if err != nil {
		t.Fatal(err)
	}
	reply, st, err := tr.Call(t.Context(), path, body)
	switch {
	case err != nil:
		return nil, err
	case !st.OK():
		return nil, d.Error(st.Code, st.Message, st.Details)
	}
	return d.Result(ev, reply)
}
