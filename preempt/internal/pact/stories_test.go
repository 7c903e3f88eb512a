package pact

import (
	"flag"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/serry-dev/serry/internal/lab/clause"
)

var (
	stories    = flag.Uint64("stories", 3000, "how many random histories to play")
	everything = flag.Bool("everything", false, "play all small histories, also of three tasks with three notices")
	first      = flag.Uint64("first", 1, "the seed of the first")
)

// A dice is a luck that draws.
type dice struct {
	*rand.Rand
	faulty   float64 // how many calls have a fault
	deaths   bool
	slowest  time.Duration
	stepTime time.Duration
}

func (d *dice) fault(*world, *task, Command) fault {
	if d.faulty == 0 || d.Float64() >= d.faulty {
		return none
	}
	if d.deaths {
		return fault(1 + d.IntN(faultKinds))
	}
	return fault(1 + d.IntN(2))
}

func (d *dice) latency(*task) time.Duration { return time.Duration(d.Int64N(int64(d.slowest))) }
func (d *dice) pace(*task) time.Duration {
	return d.stepTime/2 + time.Duration(d.Int64N(int64(d.stepTime)))
}
func (d *dice) downtime() time.Duration { return time.Duration(d.Int64N(int64(5 * time.Second))) }
func (d *dice) coin() bool              { return d.IntN(2) == 0 }

// story makes a world for one random history.
func story(seed uint64) *world {
	r := rand.New(rand.NewPCG(seed, seed))
	d := &dice{Rand: r, slowest: time.Duration(1+r.IntN(50)) * time.Millisecond, stepTime: time.Duration(1+r.IntN(50)) * 10 * time.Millisecond}
	if r.IntN(4) > 0 {
		d.faulty, d.deaths = r.Float64()/8, r.IntN(2) == 0
	}
	tasks := 1 + r.IntN(5)
	w := newWorld(d, tasks, Config{Margin: 2, Lead: 2 * time.Second, Patience: 3 * time.Second}, time.Duration(1+r.IntN(20))*time.Second)
	span := int64(10*time.Millisecond) << r.IntN(11)
	for range 1 + r.IntN(4) {
		deadline := time.Duration(0)
		if r.IntN(2) == 0 {
			deadline = time.Duration(r.Int64N(int64(10 * time.Second)))
		}
		w.post(r.IntN(tasks), time.Duration(r.Int64N(span)), deadline)
	}
	return w
}

// TestStories plays random histories: tasks of different speed, notices at any time and with any
// deadline, calls that fail before or after they took effect, tasks that die and come back. In each, all
// tasks save at one step, or the reason why not has a name.
func TestStories(t *testing.T) {
	clause.Cite(t, "A-PRE-24", "T-PRE-25")
	began := time.Now()
	total, seed, err := play(*first, *stories, func(seed uint64) (tally, error) {
		w := story(seed)
		if *stories == 1 {
			w.trace = t.Logf
		}
		err := w.run()
		return w.tally, err
	})
	if err != nil {
		t.Fatalf("story %d: %v\nto repeat it: go test ./preempt/internal/pact -run TestStories -first %d -stories 1 -v", seed, err, seed)
	}
	t.Logf("%d stories in %v: %d saves; agreements, as each task saw them: %d, failed attempts %d, rounds without a step %d; %d faults, %d restarts",
		*stories, time.Since(began).Round(time.Millisecond), total.saves, total.agreed, total.failed, total.ended, total.faults, total.restarts)
	if *stories >= 1000 && (total.saves == 0 || total.ended == 0 || total.failed == 0 || total.restarts == 0) {
		t.Error("the stories leave something out")
	}
}

// The stories are worth something only if they find what is wrong. A store in which two tasks can create
// the same key makes them save at different steps.
func TestStoriesFindASplit(t *testing.T) {
	_, seed, err := play(*first, 10_000, func(seed uint64) (tally, error) {
		w := story(seed)
		w.careless = true
		err := w.run()
		return w.tally, err
	})
	if err == nil {
		t.Fatal("no story found it")
	}
	t.Logf("story %d: %v", seed, err)
}

// play runs many histories on all processors and returns the lowest seed that fails.
func play(first, n uint64, one func(seed uint64) (tally, error)) (total tally, bad uint64, err error) {
	var (
		done sync.WaitGroup
		mu   sync.Mutex
		next atomic.Uint64
	)
	for range runtime.GOMAXPROCS(0) {
		done.Go(func() {
			for {
				seed := first + next.Add(1) - 1
				if seed >= first+n {
					return
				}
				t, fail := one(seed)
				mu.Lock()
				total.add(t)
				if fail != nil && (err == nil || seed < bad) {
					bad, err = seed, fail
				}
				stop := err != nil
				mu.Unlock()
				if stop {
					return
				}
			}
		})
	}
	done.Wait()
	return total, bad, err
}
