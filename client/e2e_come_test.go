package client_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/client"
	"github.com/serry-dev/serry/internal/lab"
)

func TestAllComeAndGoTogether(t *testing.T) {
	lab.Clause(t, "A-SHUT-1", "T-E2E-1", "T-E2E-7", "IT-01", "IT-03", "PJ-01", "PJ-07")
	inDialects(t, func(t *testing.T, d client.Dialect) {
		f := newFleet(t, d, cluster(3))
		var tasks []*task
		for i := range 3 {
			for _, k := range tasks {
				select {
				case <-k.done:
					t.Fatalf("Join() of %v returned (%v) before all had come", k.cfg.Task, k.err)
				default:
				}
			}
			tasks = append(tasks, f.begin(i))
			synctest.Wait()
		}
		f.joined(tasks...)

		var ends []<-chan error
		for _, k := range tasks {
			for _, end := range ends {
				waits(t, "Leave() before all leave", end)
			}
			ends = append(ends, async(func() error { return leave(k) }))
		}
		for i, end := range ends {
			if err := <-end; err != nil {
				t.Errorf("Leave() of task %d = %v", i, err)
			}
			if e := tasks[i].line.Refused("PollForError"); e != nil && e.Code != codes.Canceled {
				t.Errorf("the error poll of task %d = %v; want it cancelled", i, e)
			}
			tasks[i].fault(t, client.FaultLocal, serry.ErrLeft)
		}
	})
}

func TestLateTasksAreAwaited(t *testing.T) {
	lab.Clause(t, "T-E2E-4", "T-E2E-12", "IT-07", "PJ-04", "PJ-11")
	for name, late := range map[string]time.Duration{"a little": 200 * time.Millisecond, "with the default timeout": 5 * time.Second} {
		t.Run(name, func(t *testing.T) {
			inDialects(t, func(t *testing.T, d client.Dialect) {
				cfg := cluster(3)
				cfg.Cluster.RegisterTimeout = time.Hour
				f := newFleet(t, d, cfg)
				f.cfg.RegisterTimeout = 0 // the default
				var tasks []*task
				for i := range 3 {
					tasks = append(tasks, f.begin(i))
					time.Sleep(late)
				}
				f.joined(tasks...)
				all(t, "Leave()", tasks, leave)
			})
		})
	}
}

func TestOneNeverComes(t *testing.T) {
	lab.Clause(t, "T-E2E-13", "IT-08", "PJ-12")
	inDialects(t, func(t *testing.T, d client.Dialect) {
		f := newFleet(t, d, cluster(3))
		start := time.Now()
		for _, k := range []*task{f.begin(0), f.begin(1)} {
			<-k.done
			wantIs(t, "Join()", k.err, serry.ErrTimeout)
			k.refused(t, "RegisterTask", codes.DeadlineExceeded, "Barrier timed out", lab.BarrierPayload)
		}
		if got := time.Since(start); got != 2*time.Second {
			t.Errorf("Join() took %v; want the 2s of the service", got)
		}
	})
}

func TestRestartAfterAllHaveCome(t *testing.T) {
	lab.Clause(t, "T-E2E-14", "IT-09", "PJ-13")
	for _, polite := range []bool{true, false} {
		t.Run(map[bool]string{true: "left alone", false: "vanished"}[polite], func(t *testing.T) {
			inDialects(t, func(t *testing.T, d client.Dialect) {
				cfg := cluster(3)
				cfg.Cluster.RegisterTimeout, cfg.Cluster.ShutdownTimeout = 5*time.Second, 5*time.Second
				cfg.Cluster.HeartbeatTimeout = time.Minute // once all are silent, the next run may begin
				f := newFleet(t, d, cfg)
				f.cfg.ShutdownTimeout = 5 * time.Second
				tasks := f.join(3)
				if polite {
					wantIs(t, "Leave() without the others", leave(tasks[2]), serry.ErrShutdownFailed)
				} else {
					tasks[2].vanish(true)
				}
				second := f.begin(2)
				<-second.done
				wantIs(t, "Join() of the second life", second.err, serry.ErrRestarted, serry.ErrAlreadyFailed)
				wantIs(t, "Join() of the second life", second.err, serry.ErrTimeout) // it tried to the end
				second.refused(t, "RegisterTask", codes.Aborted, "already in error", lab.ServicePayload)
				for _, k := range tasks[:2] {
					fault, ok := errors.AsType[*client.Fault](leave(k))
					if !ok || fault.Kind != client.FaultPeer {
						t.Errorf("Leave() of a survivor = %v; want the fault of its peer", k.Err())
					}
				}
			})
		})
	}
}

func TestRestartWhileOthersCome(t *testing.T) {
	lab.Clause(t, "T-E2E-15", "IT-10", "PJ-14")
	inDialects(t, func(t *testing.T, d client.Dialect) {
		f := newFleet(t, d, cluster(3))
		first, old := f.begin(0), f.begin(2)
		synctest.Wait()
		present := f.begin(2)
		<-old.done
		wantIs(t, "Join() of the replaced life", old.err, serry.ErrSuperseded)
		old.refused(t, "RegisterTask", codes.AlreadyExists, "request from a newer incarnation", lab.ServicePayload)
		all(t, "Leave()", f.joined(first, f.begin(1), present), leave)
	})
}

func TestCompressedRequests(t *testing.T) {
	lab.Clause(t, "T-E2E-37", "PJ-30")
	inDialects(t, func(t *testing.T, d client.Dialect) {
		f := newFleet(t, d, cluster(1))
		cfg := f.cfg
		cfg.Task, cfg.Transport = worker(0), f.Line(t, client.DialOptions{Gzip: true})
		m, err := client.Join(t.Context(), cfg)
		if err != nil {
			t.Fatalf("Join() = %v", err)
		}
		defer m.Close()
		value := make([]byte, 1<<20)
		if err := m.KV().Create(t.Context(), "large", value); err != nil {
			t.Errorf("Create() = %v", err)
		}
		if got, err := m.KV().Get(t.Context(), "large"); err != nil || len(got) != len(value) {
			t.Errorf("Get() = %d bytes, %v; want %d", len(got), err, len(value))
		}
		if err := m.Leave(t.Context()); err != nil {
			t.Errorf("Leave() = %v", err)
		}
	})
}
