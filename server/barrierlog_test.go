package server_test

import (
	"encoding/json"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/internal/lab"
	"github.com/serry-dev/serry/server"
	"github.com/serry-dev/serry/wire"
)

// loggedBarriers asks a server for the barriers that have ended.
func loggedBarriers(t *testing.T, s *server.Server, argument string) wire.BarrierLog {
	t.Helper()
	c := dialFake(t, s)
	g := c.gathered(t, gather(c, wire.Inquiry{Kind: wire.BarriersEvidence, Argument: argument}))
	var log wire.BarrierLog
	if len(g.Parts) != 1 || g.Asked != 0 {
		t.Fatalf("gathered %+v; want one part, of the service itself", g)
	}
	if err := json.Unmarshal(g.Parts[0].Body, &log); err != nil {
		t.Fatal(err)
	}
	return log
}

// The service knows when each rank came to the last barriers, and which was the last, also at one that failed.
func TestBarrierLog(t *testing.T) {
	lab.Clause(t, "D-WEB-2", "D-WEB-12")
	synctest.Test(t, func(t *testing.T) {
		cfg := cluster(3)
		cfg.Cluster.HeartbeatTimeout = time.Hour
		l := lab.Serve(t, cfg)
		tasks := fleet(t, l, 3, 100)
		began := time.Now()
		meetings(t, tasks, 1, 0, 2) // rank 1 works a quarter of a second longer
		failed := async(func() error { return tasks[2].barrier(t.Context(), "save", 0) })
		time.Sleep(2 * time.Hour)
		if err := <-failed; err == nil {
			t.Fatal("a barrier without the others passed")
		}
		log := loggedBarriers(t, l.Server, "")
		if len(log.Barriers) < 3 || log.Barriers[0].ID != "save" || log.Barriers[1].ID != "step-1" || log.Barriers[2].ID != "step-0" {
			t.Fatalf("barriers %+v; want save, step-1 and step-0 first", log.Barriers)
		}
		if b := log.Barriers[0]; b.Error == "" || b.Arrived != 1 || b.Members != 3 || b.Last != "worker/2" || len(b.Missing) != 2 {
			t.Errorf("a barrier that failed = %+v; want worker/2 alone there, and an error", b)
		}
		b := log.Barriers[2]
		if b.First != "worker/0" || b.Last != "worker/1" || math.Abs(b.Lag-0.248) > 0.01 || math.Abs(b.Seconds-0.25) > 0.01 || b.Error != "" || b.Began.Sub(began).Round(time.Second) != time.Second || b.Arrivals != nil {
			t.Errorf("step-0 = %+v; want worker/0 first, after a second, and worker/1 last, a quarter of a second later", b)
		}
		one := loggedBarriers(t, l.Server, fmt.Sprint(b.Number))
		if len(one.Barriers) != 1 || len(one.Barriers[0].Arrivals) != 3 || one.Barriers[0].Arrivals[0] != 0 || math.Abs(one.Barriers[0].Arrivals[1]-0.25) > 0.01 {
			t.Errorf("barrier %d = %+v; want its arrivals", b.Number, one.Barriers)
		}
		if len(one.Jobs) != 1 || one.Jobs[0].Tasks != 3 {
			t.Errorf("jobs %+v; want worker with 3", one.Jobs)
		}
		if none := loggedBarriers(t, l.Server, "999"); len(none.Barriers) != 0 {
			t.Errorf("barrier 999 = %+v; want none", none.Barriers)
		}
		c := dialFake(t, l.Server)
		if code := c.code(t, "gather", gather(c, wire.Inquiry{Kind: wire.BarriersEvidence, Argument: "first"})); code != codes.InvalidArgument {
			t.Errorf("a barrier by another name = %v; want an error", code)
		}
	})
}

// However many barriers a job has, the service keeps few.
func TestBarrierLogIsBounded(t *testing.T) {
	lab.Clause(t, "D-WEB-2")
	synctest.Test(t, func(t *testing.T) {
		cfg := cluster(1)
		cfg.Cluster.HeartbeatTimeout = time.Hour
		l := lab.Serve(t, cfg)
		task := fleet(t, l, 1, 100)[0]
		for i := range 100 {
			if err := task.barrier(t.Context(), fmt.Sprintf("step-%d", i), 0); err != nil {
				t.Fatal(err)
			}
		}
		if log := loggedBarriers(t, l.Server, ""); len(log.Barriers) != 64 || log.Barriers[0].ID != "step-99" {
			t.Errorf("%d barriers are kept, the newest %+v; want 64, step-99", len(log.Barriers), log.Barriers[0])
		}
	})
}

// The start of an attempt is a barrier, too: which rank registered last is known, and ranks that come back later change nothing.
func TestBarrierLogHasTheStart(t *testing.T) {
	lab.Clause(t, "D-WEB-2")
	synctest.Test(t, func(t *testing.T) {
		cfg := cluster(2)
		cfg.Cluster.RegisterBarrier, cfg.Cluster.HeartbeatTimeout = true, time.Hour
		l := lab.Serve(t, cfg)
		late := &task{N: l.N(t), id: 1, own: 101}
		first := &task{N: l.N(t), id: 0, own: 100}
		end := async(func() error { return first.register(t.Context()) })
		time.Sleep(3 * time.Second)
		for range 2 { // the second time changes nothing
			if err := late.register(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if err := <-end; err != nil {
			t.Fatal(err)
		}
		log := loggedBarriers(t, l.Server, "1")
		if len(log.Barriers) != 1 {
			t.Fatalf("barriers %+v; want one", log.Barriers)
		}
		b := log.Barriers[0]
		if b.ID != coord.RegisterBarrierID || b.Last != "worker/1" || b.Seconds != 3 || len(b.Arrivals) != 2 || b.Arrivals[1] != 3 {
			t.Errorf("the start = %+v; want rank 1 last, after 3 s", b)
		}
		if all := loggedBarriers(t, l.Server, ""); len(all.Barriers) != 1 {
			t.Errorf("barriers %+v; want the start alone", all.Barriers)
		}
	})
}
