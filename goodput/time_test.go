package goodput_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/serry-dev/serry/goodput"
	"github.com/serry-dev/serry/internal/lab/clause"
)

// A job is a ledger and a clock.
type job struct {
	*goodput.Ledger
	now time.Time
}

func newJob() *job {
	now := time.Date(2026, 11, 16, 12, 0, 0, 0, time.UTC)
	return &job{goodput.NewLedger(now), now}
}

// step finishes a step after so many seconds.
func (j *job) step(seconds float64, n int64) { j.report(seconds, goodput.Step{Number: n}) }

func (j *job) report(seconds float64, s goodput.Step) {
	j.pass(seconds)
	j.Step(j.now, s)
}

func (j *job) pass(seconds float64) { j.now = j.now.Add(time.Duration(seconds * float64(time.Second))) }

// steps finishes steps of a second each, up to one.
func (j *job) steps(from, to int64) {
	for n := from; n <= to; n++ {
		j.step(1, n)
	}
}

// total is all time that is accounted for.
func total(g goodput.Goodput) time.Duration {
	sum := g.Productive
	for _, d := range g.Lost {
		sum += d
	}
	return sum
}

type lost = map[goodput.Cause]time.Duration

func TestLedger(t *testing.T) {
	clause.Cite(t, "D-GP-2", "D-GP-7", "TD-GP-3")
	for name, c := range map[string]struct {
		run        func(*job)
		productive time.Duration
		lost       lost
	}{
		"a start and steps": {func(j *job) {
			j.step(30, 0)
			j.steps(1, 100)
		}, 100 * time.Second, lost{goodput.Start: 30 * time.Second}},
		"a stall": {func(j *job) {
			j.step(10, 0)
			j.steps(1, 20)
			j.step(62, 21)
		}, 22 * time.Second, lost{goodput.Start: 10 * time.Second, goodput.Stall: 60 * time.Second}},
		"a checkpoint": {func(j *job) {
			j.step(10, 0)
			j.steps(1, 20)
			j.report(0, goodput.Step{Number: 20, Phase: "checkpoint"})
			j.report(40, goodput.Step{Number: 20})
			j.step(1, 21)
		}, 21 * time.Second, lost{goodput.Start: 10 * time.Second, goodput.Checkpoint: 40 * time.Second}},
		"a checkpoint within a step": {func(j *job) {
			j.step(10, 0)
			j.steps(1, 20)
			j.report(0.5, goodput.Step{Number: 20, Phase: "checkpoint"})
			j.report(40, goodput.Step{Number: 20})
			j.step(0.5, 21)
		}, 21 * time.Second, lost{goodput.Start: 10 * time.Second, goodput.Checkpoint: 40 * time.Second}},
		"a failure and steps again": {func(j *job) {
			j.step(10, 0)
			j.steps(1, 120)
			j.pass(5)
			j.Failed(j.now)
			j.pass(1)
			j.Failed(j.now) // another rank, which follows
			j.Opened(j.now)
			j.step(19, 100) // from a checkpoint
			j.steps(101, 130)
		}, 130 * time.Second, lost{goodput.Start: 10 * time.Second, goodput.Detect: 5 * time.Second, goodput.Restart: 20 * time.Second, goodput.Redo: 20 * time.Second}},
		"reports that leave steps out": {func(j *job) {
			j.step(10, 0)
			j.step(10, 10)
			j.step(20, 30)
		}, 30 * time.Second, lost{goodput.Start: 10 * time.Second}},
		"reports across the end of what is done again": {func(j *job) {
			j.step(10, 0)
			j.steps(1, 20)
			j.Failed(j.now)
			j.step(10, 10)
			j.step(20, 30)
		}, 30 * time.Second, lost{goodput.Start: 10 * time.Second, goodput.Restart: 10 * time.Second, goodput.Redo: 10 * time.Second}},
		"a program that goes back by itself": {func(j *job) {
			j.step(10, 0)
			j.steps(1, 20)
			j.step(3, 10)
			j.steps(11, 25)
		}, 25 * time.Second, lost{goodput.Start: 10 * time.Second, goodput.Redo: 13 * time.Second}},
		"a failure before the first step": {func(j *job) {
			j.pass(7)
			j.Failed(j.now)
			j.step(3, 0)
		}, 0, lost{goodput.Start: 10 * time.Second}},
		"an end and another attempt": {func(j *job) {
			j.step(10, 0)
			j.steps(1, 20)
			j.pass(1)
			j.Ended(j.now)
			j.pass(100)
			j.Failed(j.now) // what is said after the end counts for nothing
			j.Opened(j.now)
			j.step(5, 21)
		}, 21 * time.Second, lost{goodput.Start: 15 * time.Second, goodput.Stopped: 100 * time.Second}},
		"another server": {func(j *job) {
			j.TookOver(j.now)
			j.step(4, 500)
			j.steps(501, 510)
		}, 10 * time.Second, lost{goodput.Coordinator: 4 * time.Second}},
		"a clock that goes back": {func(j *job) {
			j.step(10, 0)
			j.step(-5, 1)
			j.step(6, 2)
		}, time.Second, lost{goodput.Start: 10 * time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			j := newJob()
			c.run(j)
			got := j.Goodput(j.now)
			if got.Productive != c.productive || !cmp.Equal(got.Lost, c.lost) {
				t.Errorf("Goodput() = %v productive, lost %v; want %v, %v", got.Productive, got.Lost, c.productive, c.lost)
			}
			if total(got) != got.Wall {
				t.Errorf("%v are accounted for of %v", total(got), got.Wall)
			}
		})
	}
}

// Whatever happens, every moment is counted once, and what is settled never shrinks.
func TestLedgerAddsUp(t *testing.T) {
	clause.Cite(t, "D-GP-7", "TD-GP-3")
	rapid.Check(t, func(t *rapid.T) {
		j := newJob()
		was := j.Settled(j.now)
		for range rapid.IntRange(1, 60).Draw(t, "events") {
			j.pass(float64(rapid.IntRange(0, 5000).Draw(t, "ms")) / 1000)
			switch rapid.IntRange(0, 6).Draw(t, "event") {
			case 0:
				j.Failed(j.now)
			case 1:
				j.Opened(j.now)
			case 2:
				j.Ended(j.now)
			case 3:
				j.TookOver(j.now)
			default:
				j.Step(j.now, goodput.Step{Number: rapid.Int64Range(0, 40).Draw(t, "n"), Phase: rapid.SampledFrom([]string{"", "", "checkpoint", "eval"}).Draw(t, "phase")})
			}
			g := j.Goodput(j.now)
			if total(g) != g.Wall || g.Wall != j.now.Sub(newJob().now) {
				t.Fatalf("%v are accounted for of %v: %+v", total(g), g.Wall, g)
			}
			s := j.Settled(j.now)
			if total(s) != s.Wall || s.Productive < was.Productive {
				t.Fatalf("Settled() = %+v, before %+v", s, was)
			}
			for cause, d := range was.Lost {
				if s.Lost[cause] < d {
					t.Fatalf("%s has shrunk from %v to %v", cause, d, s.Lost[cause])
				}
			}
			was = s
		}
	})
}

// A program that makes up phases does not make the metrics page large.
func TestLedgerBoundsPhases(t *testing.T) {
	j := newJob()
	j.step(1, 0)
	for i := range 100 {
		j.report(1, goodput.Step{Number: 0, Phase: fmt.Sprintf("p%d", i)})
	}
	if g := j.Goodput(j.now.Add(time.Second)); len(g.Lost) > 25 || g.Lost[goodput.OtherPhase] == 0 {
		t.Errorf("%d causes: %v; want some of them together", len(g.Lost), g.Lost)
	}
}

func TestReadStep(t *testing.T) {
	clause.Cite(t, "D-GP-1", "D-GP-2", "TD-GP-1")
	for _, c := range []struct {
		text string
		want goodput.Step
		ok   bool
	}{
		{"812", goodput.Step{Number: 812}, true},
		{"812\n", goodput.Step{Number: 812}, true},
		{"12345678", goodput.Step{Number: 12345678}, true},
		{"812 checkpoint\n", goodput.Step{Number: 812, Phase: "checkpoint"}, true},
		{"\x2c\x03\x00\x00\x00\x00\x00\x00", goodput.Step{Number: 812}, true},
		{"812 checkpoint 300\n", goodput.Step{Number: 812, Phase: "checkpoint", Limit: 5 * time.Minute}, true},
		{"812 checkpoint 0", goodput.Step{}, false},
		{"812 checkpoint +3", goodput.Step{}, false},
		{"812 checkpoint 3m", goodput.Step{}, false},
		{"812 checkpoint ", goodput.Step{Number: 812, Phase: "checkpoint"}, true},
		{"812 checkpoint 99999999", goodput.Step{}, false},
		{"812  300", goodput.Step{}, false},
		{"", goodput.Step{}, false},
		{"\n", goodput.Step{}, false},
		{"-1", goodput.Step{}, false},
		{"+1", goodput.Step{}, false},
		{"8 1 2", goodput.Step{}, false},
		{"812 Checkpoint", goodput.Step{}, false},
		{"81x", goodput.Step{}, false},
		{"\xff\xff\xff\xff\xff\xff\xff\xff", goodput.Step{}, false},
		{"99999999999999999999", goodput.Step{}, false},
		{"\x2c\x03\x00", goodput.Step{}, false},
	} {
		got, err := goodput.ReadStep([]byte(c.text))
		if got != c.want || (err == nil) != c.ok {
			t.Errorf("ReadStep(%q) = %v, %v; want %v, %v", c.text, got, err, c.want, c.ok)
		}
	}
}

func FuzzReadStep(f *testing.F) {
	f.Add([]byte("812 checkpoint"))
	f.Add([]byte("812 checkpoint 300"))
	f.Add([]byte{1, 2, 3, 4, 5, 6, 0, 0})
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := goodput.ReadStep(text)
		if err != nil {
			return
		}
		if again, err := goodput.ReadStep([]byte(s.String())); err != nil || again != s {
			t.Errorf("ReadStep(%q) = %v, which reads as %v, %v", text, s, again, err)
		}
	})
}
