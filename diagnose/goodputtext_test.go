package diagnose_test

import (
	"testing"

	"github.com/serry-dev/serry/diagnose"
	"github.com/serry-dev/serry/goodput"
	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/wire"
)

func TestStragglerVerdict(t *testing.T) {
	clause.Cite(t, "D-SC-12", "D-GP-6")
	s := wire.Status{
		Size: 4, Counts: map[string]int{wire.StateConnected: 4}, Jobs: []wire.JobStatus{{Name: "worker", Tasks: 4}},
		Stragglers: []wire.StragglerStatus{{Task: "worker/3", Class: goodput.StepClass, CostSeconds: 8, OfSeconds: 42, Places: 32, Slower: 0.25, Share: 0.19}},
	}
	r := diagnose.Judge(diagnose.Evidence{Status: s})
	const want = "no failure; rank 3 is 25 % slower than the others over the last 32 steps (cost 8.0s of 42s, 19.0 % of the time)"
	if r.Verdict != want || !r.Healthy || r.Grade != diagnose.Likely || len(r.Advice) != 1 {
		t.Errorf("Judge() = %+v; want %q, likely", r, want)
	}
	s.First = &wire.NoteStatus{Task: "worker/1", Cause: "task is dead"}
	if r := diagnose.Judge(diagnose.Evidence{Status: s}); r.Kind != diagnose.Failed {
		t.Errorf("Judge() of a job that has failed = %q; want the failure", r.Verdict)
	}
	s.Jobs = append(s.Jobs, wire.JobStatus{Name: "ps", Tasks: 1})
	s.Stragglers = append(s.Stragglers, wire.StragglerStatus{Host: "node-b", Class: "save-#", CostSeconds: 1, OfSeconds: 100, Places: 32, Slower: 1.5, Share: 0.01}, s.Stragglers[0])
	lines := diagnose.StragglerLines(s, 2)
	if len(lines) != 3 || lines[1] != "host node-b is 150 % slower than the others over the last 32 barriers of save-# (cost 1.0s of 1m40s, 1.0 % of the time)" ||
		lines[2] != "and 1 more are slow" || lines[0][:8] != "worker/3" {
		t.Errorf("StragglerLines() = %q", lines)
	}
}

func TestGoodputText(t *testing.T) {
	clause.Cite(t, "D-GP-7", "D-GP-8")
	for want, g := range map[string]*wire.GoodputStatus{
		"unknown: no steps reported (see serry help steps)": nil,
		"100 % of 10s, at step 9":                           {WallSeconds: 10, ProductiveSeconds: 10, Step: 9},
		"93 % of 12m04s, at step 8124, in checkpoint; lost 31s to start, 12s to checkpoint, 8.0s to stall": {
			WallSeconds: 724, ProductiveSeconds: 673, Step: 8124, Phase: "checkpoint",
			LostSeconds: map[string]float64{"start": 31, "stall": 8, "checkpoint": 12, "redo": 5, "detect": 0.1},
		},
	} {
		if got := diagnose.GoodputText(g); got != want {
			t.Errorf("GoodputText(%+v) = %q; want %q", g, got, want)
		}
	}
}
