package server_test

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/internal/lab"
	"github.com/serry-dev/serry/internal/lab/shareddisk"
	"github.com/serry-dev/serry/server"
	"github.com/serry-dev/serry/wire"
)

// A journal shows the service as it was at any time of it, in whatever order people look.
func TestPast(t *testing.T) {
	lab.Clause(t, "D-WEB-4")
	synctest.Test(t, func(t *testing.T) {
		disk := shareddisk.New(shareddisk.Config{})
		l, _ := serveOn(t, disk, cluster(3))
		var live []wire.Status
		look := func() {
			s := statusOf(t, l.Server)
			s.Waiting = 0 // most calls that wait leave no record
			for i := range s.Tasks {
				k := &s.Tasks[i] // nor do last calls
				k.LastCall, k.LastOf, k.CallSeconds, k.CallWaits = "", "", 0, false
			}
			live = append(live, s)
		}
		look()
		time.Sleep(time.Second)
		tasks := fleet(t, l, 3, 100)
		look()
		time.Sleep(time.Second)
		for _, k := range tasks[:2] {
			async(func() error { return k.barrier(t.Context(), "save-100", 0) })
			synctest.Wait()
		}
		look()
		time.Sleep(7 * time.Second)
		look() // between two records: the barrier is older then
		time.Sleep(time.Second)
		l.Lost(serry.TaskID{Job: "worker", Index: 2}, "process exited: signal 11")
		synctest.Wait()
		look()

		past, err := server.OpenPast(t.Context(), disk.Journal(), nil)
		if err != nil {
			t.Fatalf("OpenPast() = %v", err)
		}
		defer past.Close()
		span := past.Span()
		if span.Begin != 0 || span.End < coord.Time(9*time.Second) || span.Records < 5 || span.Wall.IsZero() || len(span.Moments) < 3 {
			t.Errorf("Span() = %+v; want one of 9 s with a time of day, a registration, a barrier and a loss", span)
		}
		for _, i := range []int{0, 1, 2, 3, 4, 2, 0, 3} {
			want := live[i]
			end, err := past.At(t.Context(), coord.Time(math.Round(want.UpSeconds*float64(time.Second))))
			if err != nil {
				t.Fatalf("At(%v) = %v", want.UpSeconds, err)
			}
			got := end.Status(wire.StatusQuery{Tasks: true})
			got.Waiting = 0
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("At(%v) differs from what the server said then (-live +journal):\n%s", want.UpSeconds, diff)
			}
		}
		if b := live[3].Barriers; len(b) != 1 || b[0].ForSeconds < 7 {
			t.Errorf("barriers %+v; want one that is open for 7 s", b)
		}
	})
}
