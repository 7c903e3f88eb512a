package pact

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/serry-dev/serry/internal/lab/clause"
)

// A history is a small one, of which there are so few that all can be played.
type history struct {
	tasks   int
	slow    int // the task whose calls take longer, or -1
	notices []planned
	call    int // the call that has the fault, from 1 on; 0: none
	kind    fault
	keep    bool // barriers outlive the death of a task
}

// A planned notice comes to a task at a time.
type planned struct {
	task     int
	in       time.Duration
	deadline time.Duration
}

func (h *history) String() string {
	return fmt.Sprintf("%d tasks, slow: %d, notices %v, fault %d at call %d, barriers outlive tasks: %v",
		h.tasks, h.slow, h.notices, h.kind, h.call, h.keep)
}

const testLead = 200 * time.Millisecond

// Calls take 10 ms, or 25 ms where they are slow, and steps 16 ms: a few are made while the tasks agree.
func (h *history) latency(t *task) time.Duration {
	if t.index == h.slow {
		return 25 * time.Millisecond
	}
	return 10 * time.Millisecond
}

func (h *history) pace(t *task) time.Duration { return time.Duration(16+t.index) * time.Millisecond }
func (h *history) downtime() time.Duration    { return 300 * time.Millisecond }
func (h *history) coin() bool                 { return !h.keep }

func (h *history) fault(w *world, _ *task, _ Command) fault {
	if w.calls == h.call {
		return h.kind
	}
	return none
}

// play plays the history and says how many calls it had.
func (h *history) play() (calls int, t tally, err error) {
	w := newWorld(h, h.tasks, Config{Margin: 2, Lead: testLead, Patience: 2 * time.Second}, time.Hour)
	for _, n := range h.notices {
		w.post(n.task, n.in, n.deadline)
	}
	err = w.run()
	return w.calls, w.tally, err
}

// all calls f for every set of at most n notices to some tasks: now or in the middle of the protocol, for
// now or for later.
func all(tasks, n int, f func([]planned)) {
	var options []planned
	for task := range tasks {
		for _, in := range []time.Duration{30 * time.Millisecond, 110 * time.Millisecond} {
			for _, deadline := range []time.Duration{0, testLead + 150*time.Millisecond} {
				options = append(options, planned{task, in, deadline})
			}
		}
	}
	var extend func(from int, set []planned)
	extend = func(from int, set []planned) {
		if len(set) > 0 {
			f(set)
		}
		if len(set) == n {
			return
		}
		for i := from; i < len(options); i++ {
			extend(i, append(set[:len(set):len(set)], options[i]))
		}
	}
	extend(0, nil)
}

// withFaults plays a history without a fault, and then with every fault at every call.
func (h history) withFaults() (total tally, played int, err error) {
	try := func() (int, error) {
		calls, t, err := h.play()
		total.add(t)
		played++
		if err != nil {
			err = fmt.Errorf("%v: %w", &h, err)
		}
		return calls, err
	}
	calls, err := try()
	if err == nil && total.ended > 0 {
		err = fmt.Errorf("%v: a round ended without a step", &h)
	}
	if err != nil {
		return total, played, err
	}
	for h.call = 1; h.call <= calls; h.call++ {
		for h.kind = failBefore; int(h.kind) <= faultKinds; h.kind++ {
			for _, h.keep = range []bool{false, true} {
				if _, err := try(); err != nil {
					return total, played, err
				}
				if h.kind < crashBefore {
					break // no task dies
				}
			}
		}
	}
	return total, played, nil
}

// TestSmallHistories plays all histories of up to three tasks and three notices with one fault: every
// call fails once before and once after its effect, and is the last one of its task. Without -everything,
// two tasks have two notices and three have one.
func TestSmallHistories(t *testing.T) {
	clause.Cite(t, "A-PRE-24", "T-PRE-25", "T-PRE-26")
	work := make(chan history)
	var (
		done   sync.WaitGroup
		mu     sync.Mutex
		total  tally
		played int
	)
	for range runtime.GOMAXPROCS(0) {
		done.Go(func() {
			for h := range work {
				tally, n, err := h.withFaults()
				mu.Lock()
				total.add(tally)
				if played += n; err != nil {
					t.Error(err)
				}
				mu.Unlock()
			}
		})
	}
	for tasks := 1; tasks <= 3; tasks++ {
		notices := 4 - tasks
		if *everything {
			notices = 3
		}
		all(tasks, notices, func(set []planned) {
			for slow := -1; slow < tasks; slow++ {
				if slow >= 0 && !*everything && tasks < 3 {
					continue
				}
				work <- history{tasks: tasks, slow: slow, notices: set}
			}
		})
	}
	close(work)
	done.Wait()
	t.Logf("%d histories: %d saves, %d failed attempts and %d rounds without a step, as each task saw them; %d restarts",
		played, total.saves, total.failed, total.ended, total.restarts)
}
