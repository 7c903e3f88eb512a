package client_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/client"
	"github.com/serry-dev/serry/internal/lab"
)

// A witness notes what a member is told of a task.
type witness struct {
	seen []serry.TaskInfo // each time that it changed
	stop context.CancelFunc
	done chan struct{}
}

// witness watches a task until the test has seen enough.
func (k *task) witness(t *testing.T, of serry.TaskID) *witness {
	ctx, stop := context.WithCancel(t.Context())
	w := &witness{stop: stop, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		for s, err := range k.Watch(ctx) {
			if err != nil {
				return
			}
			info := s.Tasks[of.Index]
			if n := len(w.seen); n == 0 || w.seen[n-1].State != info.State || w.seen[n-1].Incarnation != info.Incarnation {
				w.seen = append(w.seen, info)
			}
		}
	}()
	synctest.Wait()
	return w
}

// told ends the watch and returns what the member was told.
func (w *witness) told() []serry.TaskInfo {
	synctest.Wait()
	w.stop()
	<-w.done
	return w.seen
}

// suspects has several members report a task.
func suspects(t *testing.T, by []*task, of *task, e serry.Evidence, times int) {
	t.Helper()
	for i := range times {
		if err := by[i%len(by)].Suspect(t.Context(), of.cfg.Task, of.Incarnation(), e); err != nil {
			t.Fatalf("Suspect(%+v) = %v", e, err)
		}
	}
}

// Members of a recoverable job report a task. Hard evidence ends its life at once, with that cause; ten reports do so once. Weak evidence
// changes nothing: of a task that lives nothing is lost, and one that is gone is lost by what the service sees of it.
func TestSuspicions(t *testing.T) {
	lab.Clause(t, "CL-ABT-21", "CLT-ABT-19", "CL-TRN-6", "A-GO-11", "C-LOST-3")
	exit, refused := serry.Evidence{Hard: true, Detail: "process exited: signal 9"}, serry.Evidence{Hard: true, Detail: "connection refused"}
	reset, silent := serry.Evidence{Detail: "connection reset"}, serry.Evidence{Detail: "silent for 1s"}
	for _, row := range []struct {
		name   string
		before func(k *task)
		e      serry.Evidence
		after  time.Duration // when it is lost; less than 0 is never
		cause  string
	}{
		{"an exit seen by a neighbour", func(*task) {}, exit, 0, "process exited: signal 9, reported by worker/0"},
		{"a refused connection", func(*task) {}, refused, 0, "connection refused, reported by worker/0"},
		{"a reset of a task that lives", func(*task) {}, reset, -1, ""},
		{"the silence of a task that lives", func(*task) {}, silent, -1, ""},
		{"a reset of a task that is gone", func(k *task) { k.vanish(false) }, reset, time.Second, "connection closed"},
		{"the silence of a task that is stuck", func(k *task) { k.vanish(true) }, silent, 4 * time.Second, "task is dead"},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, client.Serry, recoverable(3))
				tasks := f.join(3)
				watch := tasks[0].witness(t, worker(2))
				row.before(tasks[2])
				start := time.Now()
				suspects(t, tasks[:2], tasks[2], row.e, 10)
				synctest.Wait()
				if row.after > 0 {
					time.Sleep(row.after + time.Second)
				}
				told := watch.told()
				if row.after < 0 {
					if len(told) != 1 || told[0].State != serry.Connected {
						t.Errorf("the others were told %+v; want nothing new", told)
					}
					tasks[2].lives(t)
					return
				}
				if len(told) != 2 || told[1].State != serry.Failed || !strings.Contains(fmt.Sprint(told[1].Err), row.cause) {
					t.Errorf("the others were told %+v; want that it failed, once, with %q", told, row.cause)
				}
				if at := time.Since(start); row.after == 0 && at > 0 {
					t.Errorf("the others were told after %v; want at once", at)
				}
				for _, k := range tasks[:2] {
					k.lives(t)
				}
			})
		})
	}
}

// A report about a life that is over does not touch the one that took its place.
func TestSuspicionOfAFormerLife(t *testing.T) {
	lab.Clause(t, "CL-ABT-21", "CLT-ABT-19", "C-LOST-2")
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, client.Serry, recoverable(2))
		tasks := f.join(2)
		former := tasks[1]
		e := serry.Evidence{Hard: true, Detail: "process exited: signal 9"}
		suspects(t, tasks[:1], former, e, 1)
		former.vanish(false)
		next := f.again(1)
		watch := tasks[0].witness(t, worker(1))
		suspects(t, tasks[:1], former, e, 10)
		if told := watch.told(); len(told) != 1 || told[0].State != serry.Connected || told[0].Incarnation != next.Incarnation() {
			t.Errorf("the others were told %+v; want that the new life is connected", told)
		}
		next.lives(t)
	})
}
