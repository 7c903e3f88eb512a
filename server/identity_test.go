package server_test

import (
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc/codes"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/lab"
	"github.com/serry-dev/serry/server"
	"github.com/serry-dev/serry/wire/tfpb"
)

func TestReplacedLifeOnItsOldConnection(t *testing.T) {
	lab.Clause(t, "C-INC-6", "NEW-57")
	synctest.Test(t, func(t *testing.T) {
		cfg := cluster(2)
		cfg.Cluster.RegisterBarrier = false
		cfg.Cluster.Recoverable = true
		l := lab.Serve(t, cfg)
		old, other, present := l.O(t), l.O(t), l.O(t)
		register := func(c *lab.O, id int32, inc uint64) {
			t.Helper()
			if _, err := c.RegisterTask(t.Context(), &tfpb.RegisterTaskRequest{SourceTask: tf(id), Incarnation: inc}); err != nil {
				t.Fatalf("RegisterTask(%d, %d) = %v", id, inc, err)
			}
		}
		register(old, 0, 100)
		register(other, 1, 101)
		register(present, 0, 200)

		_, barrier := old.Barrier(t.Context(), &tfpb.BarrierRequest{SourceTask: tf(0), BarrierId: "b", BarrierTimeoutInMs: 1000})
		_, poll := old.PollForError(t.Context(), &tfpb.PollForErrorRequest{SourceTask: tf(0)})
		_, shutdown := old.ShutdownTask(t.Context(), &tfpb.ShutdownTaskRequest{SourceTask: tf(0)})
		for name, err := range map[string]error{"Barrier": barrier, "PollForError": poll, "ShutdownTask": shutdown} {
			e := lab.Failure(t, err)
			if p, ok := e.Payloads[lab.ServicePayload]; e.Code != codes.Aborted || !ok || len(p) > 0 {
				t.Errorf("%s of a replaced life = %v; want ABORTED with an empty payload", name, e)
			}
		}
		if got := state(l, 0); got != serry.Connected {
			t.Errorf("the new life is %v; want connected", got)
		}
		meet := func(c *lab.O, id int32) <-chan error {
			return async(func() error {
				_, err := c.Barrier(t.Context(), &tfpb.BarrierRequest{SourceTask: tf(id), BarrierId: "b", BarrierTimeoutInMs: 1000})
				return err
			})
		}
		for i, end := range []<-chan error{meet(present, 0), meet(other, 1)} {
			if err := <-end; err != nil {
				t.Errorf("Barrier() of task %d = %v; want OK", i, err)
			}
		}
	})
}

func TestTwoTasksOfDialectOOnOneConnection(t *testing.T) {
	lab.Clause(t, "C-INC-6", "NEW-57")
	synctest.Test(t, func(t *testing.T) {
		l := lab.Serve(t, cluster(2))
		both := l.O(t)
		var ends []<-chan error
		for id := range int32(2) {
			ends = append(ends, async(func() error {
				_, err := both.RegisterTask(t.Context(), &tfpb.RegisterTaskRequest{SourceTask: tf(id), Incarnation: uint64(100 + id)})
				return err
			}))
		}
		for _, end := range ends {
			if err := <-end; err != nil {
				t.Fatalf("RegisterTask() = %v", err)
			}
		}
		ends = nil
		for id := range int32(2) {
			ends = append(ends, async(func() error {
				_, err := both.Barrier(t.Context(), &tfpb.BarrierRequest{SourceTask: tf(id), BarrierId: "b", BarrierTimeoutInMs: 1000})
				return err
			}))
		}
		for id, end := range ends {
			if err := <-end; err != nil {
				t.Errorf("Barrier() of task %d = %v; want OK", id, err)
			}
		}
		// Each beat counts for its own task alone.
		for range 30 {
			time.Sleep(timeout / 10)
			_, _ = both.Heartbeat(t.Context(), &tfpb.HeartbeatRequest{SourceTask: tf(0), Incarnation: 100})
		}
		if e := l.View().Failure; e == nil || !strings.Contains(e.Error(), "worker/1") || strings.Contains(e.Error(), "worker/0") {
			t.Errorf("the job failed for %v; want the silence of worker/1", e)
		}
	})
}

func TestGoodHeartbeatsBypassTheMachine(t *testing.T) {
	lab.Clause(t, "C-HB-8", "NEW-58", "F-14")
	synctest.Test(t, func(t *testing.T) {
		cfg := cluster(2)
		l := lab.Serve(t, cfg)
		tasks := fleet(t, l, 2, 100)
		before := metric(t, l.Server, "serry_events_total")
		for range 5000 {
			time.Sleep(time.Millisecond) // a client that calls at all times at once would be cut off
			for _, k := range tasks {
				if err := k.beat(t.Context()); err != nil {
					t.Fatalf("Heartbeat() = %v", err)
				}
			}
		}
		if n := metric(t, l.Server, "serry_events_total") - before; n != 0 {
			t.Errorf("10,000 good heartbeats were %v events; want none", n)
		}
		zombie := &task{N: l.N(t), id: 1, own: 77, service: tasks[1].service}
		wantCode(t, "Heartbeat of another incarnation", zombie.beat(t.Context()), codes.Aborted)
		if n := metric(t, l.Server, "serry_events_total") - before; n != 1 {
			t.Errorf("one bad heartbeat was %v events; want 1", n)
		}
	})
}

// metric reads a number without labels, or with the labels in its name, from the metrics page.
func metric(t *testing.T, s *server.Server, name string) float64 {
	t.Helper()
	page := httptest.NewRecorder()
	promhttp.HandlerFor(s.Metrics(), promhttp.HandlerOpts{}).ServeHTTP(page, httptest.NewRequest("GET", "/metrics", nil))
	line := regexp.MustCompile("(?m)^" + regexp.QuoteMeta(name) + " (.*)$").FindStringSubmatch(page.Body.String())
	if line == nil {
		t.Fatalf("the metrics page has no %s:\n%s", name, page.Body)
	}
	n, err := strconv.ParseFloat(line[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
