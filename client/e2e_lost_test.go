package client_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/client"
	"github.com/serry-dev/serry/internal/lab"
)

// ways are the ways in which a task can vanish, and in which the others hear of it.
var ways = map[string]struct {
	stuck  bool // its connection stays
	byBeat bool // errors are told in heartbeats only
}{
	"stuck":         {stuck: true},
	"dead":          {},
	"stuck, quiet":  {stuck: true, byBeat: true},
	"closed, quiet": {byBeat: true},
}

func TestSurvivorsCannotLeaveInPeace(t *testing.T) {
	lab.Clause(t, "T-E2E-5", "T-E2E-6", "IT-02", "PJ-05", "PJ-06")
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			inDialects(t, func(t *testing.T, d client.Dialect) {
				cfg := cluster(3)
				cfg.Cluster.ErrorsByBeat = way.byBeat
				f := newFleet(t, d, cfg)
				tasks := f.join(3)
				tasks[0].vanish(way.stuck)
				for i, err := range atOnce(tasks[1:], leave) {
					// A member that closes its stream is lost at once, perhaps before the others begin to leave.
					wantIs(t, "Leave() of a survivor", err, serry.ErrShutdownFailed, serry.ErrTaskDead)
					e := tasks[1+i].line.Refused("ShutdownTask")
					switch {
					case d == client.Serry:
					case e == nil || e.Code != codes.Internal:
						t.Errorf("ShutdownTask = %v; want INTERNAL", e)
					case way.stuck || way.byBeat:
						tasks[1+i].refused(t, "ShutdownTask", codes.Internal, "timed out", lab.ServicePayload)
					default:
						tasks[1+i].refused(t, "ShutdownTask", codes.Internal, "heartbeat timeout", lab.ServicePayload)
					}
				}
			})
		})
	}
}

func TestSurvivorsAreTold(t *testing.T) {
	lab.Clause(t, "T-E2E-6", "T-E2E-8", "T-E2E-9", "IT-02", "IT-04", "PJ-08", "PJ-09", "T-AG-57")
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			inDialects(t, func(t *testing.T, d client.Dialect) {
				cfg := cluster(3)
				cfg.Cluster.ErrorsByBeat = way.byBeat
				f := newFleet(t, d, cfg)
				tasks := f.join(3)
				tasks[0].vanish(way.stuck)
				for _, k := range tasks[1:] {
					fault := k.fault(t, client.FaultPeer, serry.ErrTaskDead)
					wantText(t, fault, "worker/0")
					wantIs(t, "Leave() of a lost member", leave(k), fault)
				}
			})
		})
	}
}

func TestLeavingAloneFailsForAll(t *testing.T) {
	lab.Clause(t, "T-E2E-10", "IT-05")
	inDialects(t, func(t *testing.T, d client.Dialect) {
		f := newFleet(t, d, cluster(2))
		tasks := f.join(2)
		wantIs(t, "Leave() of task 0", leave(tasks[0]), serry.ErrShutdownFailed)
		tasks[0].refused(t, "ShutdownTask", codes.Internal, "Shutdown barrier has failed", lab.ServicePayload)
		tasks[1].fault(t, client.FaultPeer, serry.ErrShutdownFailed)
		tasks[1].refused(t, "PollForError", codes.Internal, "Shutdown barrier has failed", lab.ServicePayload)
	})
}

func TestServiceGoesAway(t *testing.T) {
	lab.Clause(t, "T-E2E-11", "IT-06", "PJ-10")
	for name, tolerance := range map[string]time.Duration{"no tolerance": -1, "tolerance": 20 * time.Second} {
		t.Run(name, func(t *testing.T) {
			inDialects(t, func(t *testing.T, d client.Dialect) {
				f := newFleet(t, d, cluster(3))
				f.cfg.OutageTolerance = tolerance
				tasks := f.join(3)
				start := time.Now()
				f.Shutdown(t.Context())
				for _, k := range tasks {
					fault := k.fault(t, client.FaultSilence, nil)
					wantIs(t, "Leave() after the service went", leave(k), fault)
				}
				if got := time.Since(start); got < tolerance || got > max(tolerance, 0)+heartbeat {
					t.Errorf("it took %v to notice; want %v and little more", got, tolerance)
				}
			})
		})
	}
}

func TestDeathOfOneThatMayNot(t *testing.T) {
	lab.Clause(t, "T-E2E-41", "IT-31")
	inDialects(t, func(t *testing.T, d client.Dialect) {
		f := newFleet(t, d, cluster(3))
		first := f.begin(0)
		f.cfg.Recoverable = true // in jaxlib's dialect that is for the cluster to say
		tasks := f.joined(first, f.begin(1), f.begin(2))
		start := time.Now()
		tasks[0].vanish(true)
		for _, k := range tasks[1:] {
			k.fault(t, client.FaultPeer, serry.ErrTaskDead)
			k.refused(t, "PollForError", codes.Unavailable, "stopped sending heartbeats", lab.ServicePayload)
		}
		if got := time.Since(start); got > heartbeat+time.Second {
			t.Errorf("the others were told after %v; want %v", got, heartbeat)
		}
		tasks[0].fault(t, client.FaultLocal, serry.ErrCancelled) // nobody told it anything
	})
}

func TestDeathOfOneThatMay(t *testing.T) {
	lab.Clause(t, "T-E2E-42", "IT-32")
	for _, stuck := range []bool{true, false} {
		t.Run(map[bool]string{true: "stuck", false: "dead"}[stuck], func(t *testing.T) {
			inDialects(t, func(t *testing.T, d client.Dialect) {
				cfg := cluster(3)
				cfg.Cluster.Recoverable = d == client.XLA
				f := newFleet(t, d, cfg)
				first := f.begin(0)
				f.cfg.Recoverable = true
				tasks := f.joined(first, f.begin(1), f.begin(2))
				tasks[1].vanish(stuck)
				time.Sleep(2 * heartbeat)
				tasks[0].lives(t)
				tasks[2].lives(t)
			})
		})
	}
}

func TestAnotherServiceInThePlace(t *testing.T) {
	lab.Clause(t, "A-ERR-2", "T-E2E-44", "IT-34", "T-AG-44")
	calls := map[string]func(ctx context.Context, k *task) error{
		"GetKeyValue":       func(ctx context.Context, k *task) error { _, err := k.KV().Wait(ctx, "k"); return err },
		"TryGetKeyValue":    func(ctx context.Context, k *task) error { _, err := k.KV().Get(ctx, "k"); return err },
		"InsertKeyValue":    func(ctx context.Context, k *task) error { return k.KV().Create(ctx, "k", nil) },
		"DeleteKeyValue":    func(ctx context.Context, k *task) error { return k.KV().Delete(ctx, "k") },
		"IncrementKeyValue": func(ctx context.Context, k *task) error { _, err := k.KV().Add(ctx, "k", 1); return err },
		"GetKeyValueDir":    func(ctx context.Context, k *task) error { _, err := k.KV().List(ctx, "k"); return err },
		"Barrier":           func(ctx context.Context, k *task) error { return k.Barrier(ctx, "b", serry.BarrierOptions{}) },
		"GetAliveTasks":     func(ctx context.Context, k *task) error { _, err := k.Agree(ctx, nil, k.Task()); return err },
		"WatchTasks":        func(ctx context.Context, k *task) error { _, err := k.Tasks(ctx); return err },
		"ShutdownTask":      func(ctx context.Context, k *task) error { return k.Leave(ctx) },
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, d client.Dialect) {
				cfg := loose(10)
				cfg.Cluster.HeartbeatTimeout, cfg.Cluster.ErrorsByBeat = time.Minute, true
				f := newFleet(t, d, cfg)
				f.cfg.HeartbeatTimeout = time.Minute
				k := f.again(3)
				synctest.Wait()
				f.Replace(t, cfg)
				err := call(t.Context(), k)
				wantIs(t, name, err, serry.ErrMismatch)
				k.refused(t, name, codes.Internal, "wrong service incarnation", lab.MismatchPayload)
				if name != "ShutdownTask" {
					k.fault(t, client.FaultServerChanged, serry.ErrMismatch)
				}
			}, client.Serry, client.XLA)
		})
	}
}

// wantText checks that an error says something.
func wantText(t *testing.T, err error, text string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("error %v; want %q in it", err, text)
	}
}
