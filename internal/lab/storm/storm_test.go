package storm_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/serry-dev/serry/internal/lab"
	"github.com/serry-dev/serry/internal/lab/search"
	"github.com/serry-dev/serry/internal/lab/storm"
	"github.com/serry-dev/serry/internal/plant"
)

var (
	schedules = flag.Uint64("schedules", 300, "how many schedules of fleets to play")
	first     = flag.Uint64("first", 1, "the seed of the first")
	without   = flag.String("without", "", "kinds of faults that shall not happen, between commas")
	large     = flag.Bool("large", false, "let every fleet be a large one")
	planted   = flag.String("planted", "", "a fault of package plant to look for")
	enough    = flag.Uint64("enough", 10_000, "within how many schedules a planted fault must be found")
	idle      = flag.Duration("idle", longIdle, "how long, in virtual time, an idle job must live without a false alarm")
)

// TestFleets plays schedules. It stops at the first that cannot be true.
func TestFleets(t *testing.T) {
	lab.Clause(t, "C-REQ-2", "C-LOG-2", "C-LOG-3", "C-TERM-1", "C-TERM-2", "C-LOST-6", "C-TIME-1", "A-SIDE-2", "A-SIDE-6", "NEW-45")
	began := time.Now()
	n := min(*schedules, search.Pick(*schedules, 75))
	var total tally
	if seed, err := searchStorm(t, storm.Options{Planted: wanted(), Verbose: n == 1, Large: *large, Without: strings.Split(*without, ",")}, *first, n, &total); err != nil {
		t.Fatalf("schedule %d: %v\nto repeat it: go test ./internal/lab/storm -run TestFleets -first %d -schedules 1 -count 20", seed, err, seed)
	}
	took := time.Since(began)
	t.Logf("%d schedules from %d on, %v each; %d leaderships; faults: %v", n, *first,
		(took / time.Duration(n)).Round(time.Microsecond), total.reigns, total.struck)
	for _, fault := range storm.Faults() {
		if n >= 300 && total.struck[fault] == 0 {
			t.Errorf("no schedule had the fault %q", fault)
		}
	}
}

// wanted is the fault that the flag names, or none.
func wanted() plant.Faults {
	for _, f := range plant.All() {
		if f.String() == *planted {
			return f
		}
	}
	return 0
}

// TestFilesOfFleets plays schedules with one server on a real file, whose disk fails.
func TestFilesOfFleets(t *testing.T) {
	lab.Clause(t, "C-LOG-2", "C-LOG-3", "C-LOG-4", "C-REQ-2")
	var total tally
	n := max(1, search.Pick(*schedules/20, min(*schedules, 100)/20))
	o := storm.Options{Dir: t.TempDir(), Verbose: *schedules == 1, Large: *large}
	if seed, err := searchStorm(t, o, *first, n, &total); err != nil {
		t.Fatalf("schedule %d: %v\nto repeat it: go test ./internal/lab/storm -run TestFilesOfFleets -first %d -schedules 1 -count 20", seed, err, seed)
	}
	t.Logf("%d schedules from %d on; %d leaderships; faults: %v", n, *first, total.reigns, total.struck)
	for _, fault := range storm.FileFaults() {
		if n >= 60 && total.struck[fault] == 0 {
			t.Errorf("no schedule had the fault %q", fault)
		}
	}
}

// A tally is what happened in many schedules.
type tally struct {
	mu     sync.Mutex
	struck map[string]int
	reigns int
}

func (c *tally) add(r *storm.Report) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.struck == nil {
		c.struck = make(map[string]int)
	}
	for k, n := range r.Struck {
		c.struck[k] += n
	}
	c.reigns += r.Reigns
}

// near is where the search for a fault begins that most schedules do not show, to save time: shortly before
// the first schedule that does.
var near = map[plant.Faults]uint64{plant.NoConfirm: 4480}

// TestPlantedFaultsAreFound looks for every fault of package plant: in a real file for those of one, and
// else in memory. For those of etcd see TestPlantedFaultsOfEtcdAreFound; those of links are found by the
// tests of package link, those of transfers by the tests of transfer and transfer/internal/match, and for those of cliques see
// TestPlantedFaultsOfCliquesAreFound.
func TestPlantedFaultsAreFound(t *testing.T) {
	for _, fault := range plant.All() {
		if fault.Has(plant.LateDuplicate|plant.StaleLink|plant.CreditLeak|plant.AbortSucceeds|plant.MissRevoke|plant.StaleFrames|plant.OwnView|plant.EarlySignal|plant.CommitInDoubt) || fault >= plant.SenderDecides {
			continue
		}
		t.Run(fault.String(), func(t *testing.T) {
			o, most := storm.Options{Planted: fault}, *enough
			if fault.Has(plant.UnreadableStage | plant.SweepBeforeSwitch) {
				o.Dir, most = t.TempDir(), *enough/20
			}
			from := max(*first, near[fault])
			seed, err := searchStorm(t, o, from, most, new(tally))
			if err == nil {
				t.Fatalf("not found in %d schedules from %d on", most, from)
			}
			t.Logf("found after %d schedules from %d on: %.600v", seed-from+1, from, err)
		})
	}
}

// searchStorm plays n schedules, in virtual time as many at once as there are processors, and returns the lowest seed that
// fails among those that were played.
func searchStorm(t *testing.T, o storm.Options, from, n uint64, total *tally) (uint64, error) {
	t.Helper()
	type failure struct {
		seed uint64
		err  error
	}
	workers := uint64(runtime.GOMAXPROCS(0))
	if o.Etcd != "" {
		workers = etcdAtOnce
	}
	var next, stop atomic.Uint64
	stop.Store(from + n)
	next.Store(from)
	failures := make(chan failure, workers)
	some := func(t *testing.T) {
		for {
			seed := next.Add(1) - 1
			if seed >= stop.Load() {
				return
			}
			if err := play(t, seed, o, total); err != nil {
				failures <- failure{seed, err}
				stop.Store(0)
				return
			}
		}
	}
	if o.Etcd != "" {
		atOnce(workers, func() { some(t) })
	} else {
		t.Run("play", func(t *testing.T) {
			for range workers {
				t.Run("", func(t *testing.T) {
					t.Parallel()
					some(t)
				})
			}
		})
	}
	close(failures)
	var found failure
	for f := range failures {
		if found.err == nil || f.seed < found.seed {
			found = f
		}
	}
	return found.seed, found.err
}

// play plays one schedule.
func play(t *testing.T, seed uint64, o storm.Options, total *tally) error {
	var report *storm.Report
	watchdog := time.AfterFunc(time.Minute, func() {
		fmt.Fprintf(os.Stderr, "schedule %d hangs\n", seed)
	})
	defer watchdog.Stop()
	defer func() {
		if p := recover(); p != nil {
			fmt.Fprintf(os.Stderr, "schedule %d panics\n", seed)
			panic(p)
		}
	}()
	if o.Dir != "" {
		o.Dir = filepath.Join(o.Dir, strconv.FormatUint(seed, 10))
		defer os.RemoveAll(o.Dir)
	}
	if o.Etcd != "" {
		report = storm.Run(seed, o)
	} else {
		synctest.Test(t, func(*testing.T) { report = storm.Run(seed, o) })
	}
	if o.Verbose {
		t.Logf("%s\n%s", report.Plan, strings.Join(report.Trace, "\n"))
	}
	total.add(report)
	return report.Check()
}

// TestNoFalseAlarm lets a job be idle on machines in trouble. That the trouble is real shows when it is
// more than anybody has to bear.
func TestNoFalseAlarm(t *testing.T) {
	lab.Clause(t, "C-LOST-5", "NEW-36")
	for _, stall := range []time.Duration{storm.LongestStall, 3 * storm.LongestStall} {
		var report *storm.Report
		synctest.Test(t, func(*testing.T) { report = storm.Idle(*first, *idle, stall) })
		err := report.Check()
		if dead := err != nil; dead != (stall > storm.LongestStall) {
			t.Errorf("seed %d, stalls up to %v for %v: %v", *first, stall, *idle, err)
		}
	}
	t.Logf("none in %v, with processes stopped for up to the heartbeat timeout, hosts for up to %v, and 5 %% loss", *idle, storm.LongestStall)
}
