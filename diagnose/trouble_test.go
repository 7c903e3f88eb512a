package diagnose

import (
	"fmt"
	"testing"
	"time"

	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/preempt"
	"github.com/serry-dev/serry/wire"
)

// Where a job is well, the verdict on the ranks of a screen is the one on all ranks; where it is not, all are needed.
func TestVerdictOfAPart(t *testing.T) {
	clause.Cite(t, "D-CLI-3")
	whole := func(change func(*wire.Status)) wire.Status {
		s := wire.Status{Version: 1, Clock: time.Date(2026, 11, 16, 12, 1, 7, 0, time.UTC), UpSeconds: 100, Size: 200, Jobs: []wire.JobStatus{{Name: "worker", Tasks: 200}}, Counts: map[string]int{wire.StateConnected: 200}}
		for i := range 200 {
			s.Tasks = append(s.Tasks, wire.TaskStatus{Task: fmt.Sprintf("worker/%d", i), State: wire.StateConnected, LastCall: "Barrier", LastOf: "a", CallSeconds: float64(i % 150)})
		}
		change(&s)
		return s
	}
	for name, c := range map[string]struct {
		change  func(*wire.Status)
		hang    *HangReport
		saves   preempt.Records
		trouble bool
	}{
		"well":           {change: func(*wire.Status) {}},
		"quiet for long": {change: func(s *wire.Status) { s.Tasks[150].CallSeconds = 300 }},
		"slow": {change: func(s *wire.Status) {
			s.Stragglers = []wire.StragglerStatus{{Task: "worker/120", Places: 32, Slower: 0.25}}
		}},
		"takeover": {change: func(s *wire.Status) { s.Takeover = &wire.Takeover{From: "c1", At: s.Clock} }},
		"a barrier": {change: func(s *wire.Status) {
			s.Barriers = []wire.BarrierStatus{{ID: "a", Members: 200, Arrived: 1, ForSeconds: 3, UsualSeconds: 2}}
		}},
		"a late barrier": {change: func(s *wire.Status) {
			s.Barriers = []wire.BarrierStatus{{ID: "a", Members: 200, Arrived: 1, ForSeconds: 3}}
		}, trouble: true},
		"a failure":      {change: func(s *wire.Status) { s.First = &wire.NoteStatus{Task: "worker/3"} }, trouble: true},
		"a failed rank":  {change: func(s *wire.Status) { s.Counts[wire.StateFailed] = 1 }, trouble: true},
		"an awaited key": {change: func(s *wire.Status) { s.Tasks[9].LastCall, s.Tasks[9].CallWaits = "GetKeyValue", true }, trouble: true},
		"jax's notice": {change: func(s *wire.Status) {
			s.Tasks[9].LastCall, s.Tasks[9].LastOf, s.Tasks[9].CallWaits = "GetKeyValue", wire.NoticeKey, true
		}},
		"a stall":      {change: func(*wire.Status) {}, hang: &HangReport{Hang: &Hang{}}, trouble: true},
		"a saved rank": {change: func(*wire.Status) {}, saves: preempt.Records{Receipts: make([]preempt.Receipt, 1)}, trouble: true},
		"a launcher":   {change: func(*wire.Status) {}, hang: &HangReport{}},
	} {
		all := Evidence{Status: whole(c.change), Hang: c.hang, Saves: c.saves}
		part := all
		part.Status.Picks(wire.Pick{Limit: 10, Order: wire.ByTrouble})
		if part.InTrouble() != c.trouble || all.InTrouble() != c.trouble && name != "an awaited key" {
			t.Errorf("%s: InTrouble() = %v of a part; want %v", name, part.InTrouble(), c.trouble)
		}
		if got, want := Judge(part.Whole()), Judge(all); !c.trouble && (got.Verdict != want.Verdict || got.Kind != want.Kind) {
			t.Errorf("%s: the verdict on a part is %q; on all it is %q", name, got.Verdict, want.Verdict)
		}
	}
}
