package server_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/lab"
	"github.com/serry-dev/serry/internal/lab/shareddisk"
	"github.com/serry-dev/serry/server"
	"github.com/serry-dev/serry/wire"
	"github.com/serry-dev/serry/wire/xlapb"
)

// What failed first is known after a hand-over, whose snapshot takes the place of all records, and can be read from the journal
// alone.
func TestFirstFailureOutlivesItsServer(t *testing.T) {
	lab.Clause(t, "D-EV-7", "TD-EV-1", "C-LOG-3")
	synctest.Test(t, func(t *testing.T) {
		disk := shareddisk.New(shareddisk.Config{})
		cfg := cluster(3)
		l, seat := serveOn(t, disk, cfg)
		tasks := fleet(t, l, 3, 100)
		if _, err := tasks[0].InsertKeyValue(t.Context(), &xlapb.InsertKeyValueRequest{
			Incarnations: tasks[0].who(), Kv: &xlapb.KeyValueEntry{Key: "dir/verdict", Value: []byte("stalled")},
		}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		l.Lost(serry.TaskID{Job: "worker", Index: 1}, "process exited: signal 11")
		synctest.Wait()
		live := statusOf(t, l.Server)
		if live.First == nil || live.First.Task != "worker/1" {
			t.Fatalf("first failure = %+v; want that of worker/1", live.First)
		}

		// From the journal, as a person reads it elsewhere.
		end, err := server.Recall(t.Context(), disk.Journal(), nil)
		if err != nil {
			t.Fatalf("Recall() = %v", err)
		}
		past := end.Status(wire.StatusQuery{Tasks: true})
		live.Waiting, past.Waiting = 0, 0 // most calls that wait leave no record
		for i := range live.Tasks {
			t := &live.Tasks[i] // nor do last calls
			t.LastCall, t.LastOf, t.CallSeconds, t.CallWaits = "", "", 0, false
		}
		if diff := cmp.Diff(live, past); diff != "" {
			t.Errorf("Status() at the end of the journal differs from what the server said (-live +journal):\n%s", diff)
		}
		if v, ok := end.Value("dir/verdict"); !ok || string(v) != "stalled" {
			t.Errorf("Value() = %q, %v; want what was stored", v, ok)
		}
		if all, err := end.List(t.Context(), "dir"); err != nil || len(all) != 1 {
			t.Errorf("List() = %v, %v; want one key", all, err)
		}
		if _, ok := end.Value("other"); ok {
			t.Error("Value() of a key that was never written is there")
		}

		// After a hand-over.
		if err := l.Handover(t.Context()); err != nil {
			t.Fatalf("Handover() = %v", err)
		}
		l, _ = succeed(t, l, seat, disk, cfg, time.Minute)
		next := statusOf(t, l.Server)
		if diff := cmp.Diff(live.First, next.First); diff != "" {
			t.Errorf("first failure after a hand-over (-before +after):\n%s", diff)
		}
		if len(next.Notes) <= len(live.Notes) {
			t.Errorf("%d notes after a hand-over, %d before; want those and one of the new leader", len(next.Notes), len(live.Notes))
		}

		// The outage took a minute that service time does not have, so the time of day is not known any more.
		if end, err = server.Recall(t.Context(), disk.Journal(), nil); err != nil {
			t.Fatalf("Recall() = %v", err)
		}
		if past = end.Status(wire.StatusQuery{}); !past.Clock.IsZero() {
			t.Errorf("clock at the end of the journal = %v; want none, since another server has led", past.Clock)
		}
	})
}
