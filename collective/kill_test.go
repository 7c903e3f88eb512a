package collective_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/serry-dev/serry/collective"
	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/internal/lab/search"
	"github.com/serry-dev/serry/internal/plant"
)

var onlyOp = flag.String("op", "", "of these scenarios, play only those of one operation; put is the exchange by Put and Signal")

var every = flag.Int("every", 151, "play one in so many of the scenarios in which something goes wrong at a step; 1 is all of them")

// A fault is what goes wrong in a scenario.
type fault string

const (
	kills   fault = "kill"   // the process of the victim ends
	cancels fault = "cancel" // the victim gives its operation up
	parts   fault = "part"   // the connections between the victim and the next rank break
)

// A scenario is a clique that runs one operation again and again, until something goes wrong: just before the victim
// makes its write number step.
type scenario struct {
	ranks, op, size int
	fault           fault
	victim, step    int
}

// An outcome is what one rank saw.
type outcome struct {
	succeeded int
	err       error // of the first operation that failed
	next      error // of the one after it
	at        time.Duration
}

const (
	sizeSmall = 24      // one message that is sent at once
	sizeLarge = 70_001  // messages that wait for memory, uneven
	sizeTiles = 600_001 // of all-to-all and others that have a block of this size for each rank: two tiles
)

// play plays a scenario and judges what all ranks saw. It says whether the fault struck.
func (s scenario) play(t *testing.T, planted plant.Faults) (struck bool, err error) {
	inBubble(t, func(t *testing.T, w *world) {
		w.group.Planted = planted
		procs := w.startAll(s.ranks)
		comms := w.clique(procs, devices(s.ranks))
		synctest.Wait() // all links are there
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		mine, giveUp := context.WithCancelCause(ctx)
		defer giveUp(nil)

		var strikes atomic.Bool
		var began time.Time
		strike := func() {
			strikes.Store(true)
			began = time.Now()
			switch s.fault {
			case kills:
				w.kill(procs[s.victim])
			case cancels:
				giveUp(errors.New("enough"))
			case parts:
				w.network.part(hostOf(procs[s.victim].life), hostOf(procs[(s.victim+1)%s.ranks].life))
			}
		}
		w.atWrite(procs[s.victim], s.step, strike)

		x := trials(s.ranks, s.size, s.ranks-1)[s.op]
		outcomes := make([]outcome, s.ranks)
		each(comms, func(r int, c *collective.Comm) error {
			o, ctx := &outcomes[r], ctx
			if r == s.victim && s.fault == cancels {
				ctx = mine
			}
			for o.err == nil && o.succeeded < 200 {
				if o.err = x.Run(ctx, c, false); o.err == nil {
					o.succeeded++
					time.Sleep(time.Microsecond) // a root that waits for no rank lets the others go on
				}
			}
			if ctx.Err() != nil && c.Err() == nil { // it gave up between two operations
				c.Revoke(o.err)
				o.err = c.Err()
			}
			o.at = time.Since(began)
			o.next = x.Run(context.WithoutCancel(ctx), c, false)
			return nil
		})
		struck = strikes.Load()
		if struck {
			err = s.judge(outcomes, procs)
		}
	})
	if err != nil {
		err = fmt.Errorf("%+v: %w", s, err)
	}
	return struck, err
}

// judge says what is wrong with what the ranks saw. A rank that was killed may have seen anything.
func (s scenario) judge(outcomes []outcome, procs []*process) error {
	least, most := 1<<30, 0
	for r, o := range outcomes {
		if s.fault == kills && r == s.victim {
			continue
		}
		least, most = min(least, o.succeeded), max(most, o.succeeded)
		for _, err := range []error{o.err, o.next} {
			e, ok := errors.AsType[*collective.Error](err)
			if !ok {
				return fmt.Errorf("rank %d: %v, after %d operations", r, err, o.succeeded)
			}
			if err := s.explains(e, procs); err != nil {
				return fmt.Errorf("rank %d: %w: %v", r, err, e)
			}
		}
		if o.at > 200*time.Millisecond {
			return fmt.Errorf("rank %d fails after %v: %v", r, o.at, o.err)
		}
	}
	if meets := []string{"allreduce", "reducescatter", "allgather", "alltoall", "barrier", "put"}; most > least+1 &&
		slices.Contains(meets, trials(s.ranks, 0, 0)[s.op].Name) { // in the others a root may be several operations ahead
		return fmt.Errorf("a rank went on after another had failed: %d and %d operations", least, most)
	}
	return nil
}

// explains says what is wrong with the cause that a rank got.
func (s scenario) explains(e *collective.Error, procs []*process) error {
	next := (s.victim + 1) % s.ranks
	switch s.fault {
	case kills:
		if !errors.Is(e, collective.ErrPeerFailed) || !slices.Equal(e.Ranks, []int{s.victim}) || e.Life != procs[s.victim].life {
			return errors.New("it does not name the lost rank")
		}
	case cancels:
		if !errors.Is(e, collective.ErrCancelled) || e.Origin != s.victim {
			return errors.New("it does not name the rank that gave up")
		}
	case parts:
		if !errors.Is(e, collective.ErrTransport) || !slices.Equal(e.Ranks, []int{min(s.victim, next), max(s.victim, next)}) {
			return errors.New("it does not name the link")
		}
	}
	return nil
}

// scenarios calls f for every scenario until f returns false: every operation, for two to four ranks, several sizes, every
// victim and every step until the operation goes on without it for long.
func scenarios(ops int, f func(s scenario) (struck, goOn bool)) {
	for ranks := 2; ranks <= 4; ranks++ {
		for op := range ops {
			for _, size := range []int{sizeSmall, sizeLarge, sizeTiles} {
				for _, what := range []fault{kills, cancels, parts} {
					for victim := range ranks {
						for step := range 40 {
							if _, goOn := f(scenario{ranks, op, size, what, victim, step}); !goOn {
								return
							}
						}
					}
				}
			}
		}
	}
}

// Something goes wrong at every step of every operation of up to four ranks. Each live member gets the right data or the
// same typed error; once one has failed, every other fails this or its next operation; none hangs.
func TestFaultAtEveryStep(t *testing.T) {
	clause.Cite(t, "CL-SIM-3", "CL-ERR-9", "CL-ERR-6", "CL-ABT-15", "CL-ABT-20", "CLT-DES-15")
	n, struck := 0, 0
	every := *every * search.Pick(1, 3)
	list := trials(2, 1, 0)
	scenarios(len(list), func(s scenario) (bool, bool) {
		if *onlyOp != "" && list[s.op].Name != *onlyOp {
			return false, true
		}
		n++
		if n%every != 0 {
			return false, true
		}
		did, err := s.play(t, 0)
		if err != nil {
			t.Errorf("scenario %d: %v", n, err)
		}
		if did {
			struck++
		}
		return did, !t.Failed()
	})
	t.Logf("%d scenarios, of which one in %d was played; the fault struck in %d", n, every, struck)
	if struck < n/every/2 {
		t.Errorf("the fault struck in %d of %d scenarios only", struck, n/every)
	}
}

// The scenarios find what they look for.
func TestPlantedFaultsAreFound(t *testing.T) {
	clause.Cite(t, "CL-SIM-3")
	for _, fault := range []plant.Faults{plant.AbortSucceeds, plant.MissRevoke} {
		t.Run(fault.String(), func(t *testing.T) {
			var found error
			n := 0
			scenarios(1, func(s scenario) (bool, bool) {
				if n++; n%7 != 0 {
					return false, true
				}
				_, found = s.play(t, fault)
				return true, found == nil
			})
			if found == nil {
				t.Fatalf("not found in %d scenarios", n)
			}
			t.Logf("found: %v", found)
		})
	}
}
