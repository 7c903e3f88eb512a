package storm_test

import (
	"flag"
	"strings"
	"testing"
	"time"

	"github.com/serry-dev/serry/internal/lab"
	"github.com/serry-dev/serry/internal/lab/storm"
	"github.com/serry-dev/serry/internal/plant"
)

var collectives = flag.Uint64("collectives", someCliques, "how many schedules of cliques to play")

// TestCliques plays schedules of jobs that run collective operations. It stops at the first that goes wrong.
func TestCliques(t *testing.T) {
	lab.Clause(t, "CL-SIM-1", "CL-SIM-2", "CL-ERR-9", "CL-ABT-17")
	began := time.Now()
	var total tally
	n := *collectives
	o := storm.Options{Cliques: true, Planted: wanted(), Verbose: n == 1, Without: strings.Split(*without, ",")}
	if seed, err := searchStorm(t, o, *first, n, &total); err != nil {
		t.Fatalf("schedule %d: %v\nto repeat it: go test ./internal/lab/storm -run TestCliques -first %d -collectives 1 -count 20", seed, err, seed)
	}
	t.Logf("%d schedules from %d on, %v each; %d leaderships; faults: %v", n, *first,
		(time.Since(began) / time.Duration(n)).Round(time.Microsecond), total.reigns, total.struck)
	for _, fault := range storm.CliqueFaults() {
		if n >= 200 && total.struck[fault] == 0 {
			t.Errorf("no schedule had the fault %q", fault)
		}
	}
}

// TestSteps plays schedules of jobs that train in steps, while members are killed, replaced, cut off and in doubt, and the coordinator fails over.
func TestSteps(t *testing.T) {
	lab.Clause(t, "CL-SIM-2", "CL-ATM-4", "CLT-RCV-3")
	began := time.Now()
	var total tally
	n := max(1, *collectives/4)
	o := storm.Options{Steps: true, Planted: wanted(), Verbose: n == 1, Without: strings.Split(*without, ",")}
	if seed, err := searchStorm(t, o, *first, n, &total); err != nil {
		t.Fatalf("schedule %d: %v\nto repeat it: go test ./internal/lab/storm -run TestSteps -first %d -collectives 1 -count 20", seed, err, seed)
	}
	t.Logf("%d schedules from %d on, %v each; %d leaderships; faults: %v", n, *first,
		(time.Since(began) / time.Duration(n)).Round(time.Microsecond), total.reigns, total.struck)
}

// A fleet of cliques that finds nothing may be one that cannot.
func TestPlantedFaultsOfCliquesAreFound(t *testing.T) {
	const enough = 200
	for _, fault := range []plant.Faults{plant.AbortSucceeds, plant.MissRevoke, plant.StaleFrames, plant.OwnView, plant.EarlySignal, plant.CommitInDoubt} {
		t.Run(fault.String(), func(t *testing.T) {
			seed, err := searchStorm(t, storm.Options{Cliques: true, Steps: fault == plant.CommitInDoubt, Planted: fault}, *first, enough, new(tally))
			if err == nil {
				t.Fatalf("not found in %d schedules", enough)
			}
			t.Logf("found after %d schedules: %.600v", seed-*first+1, err)
		})
	}
}
