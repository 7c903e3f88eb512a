package launch

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/serry-dev/serry/diagnose"
	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/wire"
)

// Ranks that compile for long, and those that keep the others waiting again and again, are told of once.
func TestNotesBesideHangs(t *testing.T) {
	clause.Cite(t, "D-HG-12", "D-HG-13")
	notes := new(noteRecord)
	j := &Job{cfg: Config{planted: notesInline, Display: notes}, plan: newPlan(4, 0, RestartNever, false)}
	j.plan.begin()
	for task := range 4 {
		class := diagnose.ClassCompiling
		if task == 2 {
			class = diagnose.ClassMoving
		}
		j.hangs.keep(diagnose.RankEvidence{Rank: task, Condition: diagnose.Condition{Class: class, Since: time.Duration(min(task, 2)) * time.Minute}})
	}
	for now := time.Minute; now < time.Hour; now += time.Minute {
		j.tellLongCompilations(now)
	}
	stall := &diagnose.Hang{Kind: diagnose.HangStill, Ranks: []diagnose.RankEvidence{{Rank: 3}}}
	for _, at := range []time.Duration{0, 30, 50, 85, 95, 100, 110, 111, 112} {
		j.tellOften(stall, at*time.Minute)
	}
	want := []string{
		"rank 0 has been compiling for 30m00s", "rank 1 has been compiling for 30m00s", "rank 3 has been compiling for 30m00s",
		"rank 3 has kept the others waiting 4 times within an hour",
	}
	if d := cmp.Diff(want, notes.all()); d != "" {
		t.Error(d)
	}
	if len(j.hangs.past) != 1 {
		t.Errorf("kept for why: %q; want the stalls", j.hangs.past)
	}
}

// Where steps are reported, a stall is a hang soon.
func TestHangWithSteps(t *testing.T) {
	clause.Cite(t, "D-HG-5")
	for _, c := range []struct {
		name string
		used *wire.GoodputStatus
		says bool
	}{
		{"steps of a second", &wire.GoodputStatus{Step: 100, UsualSeconds: 1}, true},
		{"too few steps", &wire.GoodputStatus{Step: 3}, false},
		{"no steps", nil, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const hangs = 20 * time.Second
				begun := time.Now()
				s := &scene{steps: c.used}
				s.play(t, Config{}, standsIn(hangs, "train_step", time.Minute), standsIn(hangs, "load_batch", time.Minute), standsIn(hangs, "train_step", time.Minute))
				const want = "rank 1 is stuck since SINCE (LONG); ranks 0,2 wait for it in Gloo all-reduce; it is at load_batch (train.py:10)"
				i := slices.IndexFunc(s.display.said, func(text string) bool { return withoutTime(text, begun.Add(hangs)) == want })
				if c.says != (i >= 0) || c.says && s.display.at[i] > hangs+40*time.Second {
					t.Errorf("said %q at %v; want %q within 40 s: %v", s.display.said, s.display.at, want, c.says)
				}
			})
		})
	}
}

// In a later attempt the steps of former ones do not count before there is one of its own.
func TestStepsOfALaterAttempt(t *testing.T) {
	clause.Cite(t, "D-HG-5")
	service := &skyService{steps: &wire.GoodputStatus{Step: 100, UsualSeconds: 2}}
	j := &Job{plan: newPlan(2, 1, RestartAll, false), service: service}
	j.plan.begin()
	j.plan.attempt = 2
	for _, c := range []struct {
		now  time.Duration
		step int64
		want time.Duration
	}{{5 * time.Second, 100, 0}, {8 * time.Second, 101, 0}, {16 * time.Second, 100, 0}, {30 * time.Second, 101, 2 * time.Second}} {
		service.steps.Step = c.step
		if j.askStepTime(c.now); j.hangs.steps.usual != c.want {
			t.Errorf("at %v, step %d: a step takes %v; want %v", c.now, c.step, j.hangs.steps.usual, c.want)
		}
	}
}
