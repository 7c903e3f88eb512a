package goodput_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/serry-dev/serry/goodput"
	"github.com/serry-dev/serry/internal/lab/clause"
)

// Ranks report every second whatever step they have come to. Rank 2 passes each step 300 ms after the others.
func TestAccountFindsStragglersBySteps(t *testing.T) {
	clause.Cite(t, "D-GP-1", "D-GP-3", "D-GP-4", "TD-GP-1")
	began := time.Date(2026, 11, 16, 12, 0, 0, 0, time.UTC)
	a := goodput.NewAccount(began)
	a.Opened(began, 4)
	for second := range 200 {
		for rank := range 4 {
			behind := 0.0
			if rank == 2 {
				behind = 0.3
			}
			now := began.Add(time.Duration(second)*time.Second + time.Duration(rank)*10*time.Millisecond)
			made := (now.Sub(began).Seconds() - behind) * 3.3 // steps a second
			a.Step(now, rank, goodput.Step{Number: int64(max(0, made))}, nil)
		}
	}
	got := a.Stragglers()
	if len(got) != 1 || got[0].Rank != 2 {
		t.Errorf("Stragglers() = %+v; want rank 2", got)
	}
	if steps := a.Steps(); len(steps) != 4 || steps[0] < 600 || steps[2] > steps[0] {
		t.Errorf("Steps() = %v", steps)
	}
	g := a.Goodput(began.Add(200 * time.Second))
	if !g.Known() || g.Share() < 0.95 {
		t.Errorf("Goodput() = %+v; want nearly all of it", g)
	}
}

// The ledger goes by the lowest rank that reports, and by nothing that no rank of the job reports.
func TestAccountOfOneReporter(t *testing.T) {
	clause.Cite(t, "D-GP-7", "D-GP-8")
	began := time.Date(2026, 11, 16, 12, 0, 0, 0, time.UTC)
	a := goodput.NewAccount(began)
	a.Opened(began, 4)
	a.Step(began, 4, goodput.Step{}, nil)
	a.Step(began, -1, goodput.Step{}, nil)
	if g := a.Goodput(began.Add(time.Second)); g.Known() || a.Steps() != nil {
		t.Errorf("Goodput() = %+v; want none without steps", g)
	}
	for i := range 20 {
		now := began.Add(time.Duration(i) * time.Second)
		a.Step(now, 3, goodput.Step{Number: int64(i)}, nil)
		if i >= 10 {
			a.Step(now, 1, goodput.Step{Number: int64(i)}, nil)
		}
	}
	if got, want := a.Steps(), []int64{-1, 19, -1, 19}; !slices.Equal(got, want) {
		t.Errorf("Steps() = %v; want %v", got, want)
	}
	if g := a.Goodput(began.Add(19 * time.Second)); g.Productive != 19*time.Second || g.Step != 19 {
		t.Errorf("Goodput() = %+v; want 19 s", g)
	}
}

func ExampleAccount() {
	launched := time.Date(2026, 11, 16, 12, 0, 0, 0, time.UTC)
	a := goodput.NewAccount(launched)
	a.Opened(launched, 2)
	for n := range int64(91) {
		a.Step(launched.Add(10*time.Second+time.Duration(n)*time.Second), 0, goodput.Step{Number: n}, nil)
	}
	g := a.Goodput(launched.Add(100 * time.Second))
	fmt.Printf("step %d, goodput %.0f %%, lost %v\n", g.Step, 100*g.Share(), g.Lost)
	// Output: step 90, goodput 90 %, lost map[start:10s]
}
