package collective_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/collective"
	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/internal/lab/search"
)

// adds is the part of a rank that sums a number over all ranks.
func adds(c *collective.Comm, x []int64) func(ctx context.Context, live collective.Live) error {
	return func(ctx context.Context, _ collective.Live) error {
		return collective.AllReduceSlice(ctx, c, x, x, collective.Sum)
	}
}

// All members commit their steps, one after the other, with one rank or several in a process.
func TestStep(t *testing.T) {
	clause.Cite(t, "CL-ATM-4", "CL-ATM-5")
	onEach(t, func(t *testing.T, w *world) {
		w.group.Owners = map[serry.DeviceID]serry.TaskID{7: life(0, 0).Task, 3: life(1, 0).Task, 5: life(0, 0).Task}
		procs := w.startAll(2)
		var comms []*collective.Comm
		for _, c := range w.clique(procs, []serry.DeviceID{7, 3, 5}) {
			comms = append(comms, c.Local()...)
		}
		for step := uint64(1); step < 4; step++ {
			errs := each(comms, func(_ int, c *collective.Comm) error {
				x := []int64{1}
				return collective.Step(t.Context(), c, func(ctx context.Context, live collective.Live) error {
					if live.Step != step || !slices.Equal(live.Devices, []serry.DeviceID{3, 5, 7}) || len(live.Lives) != 2 || live.Lives[life(1, 0).Task] != 11 {
						return fmt.Errorf("step %d has %+v", step, live)
					}
					if err := adds(c, x)(ctx, live); err != nil || x[0] != 3 {
						return fmt.Errorf("sum %d: %w", x[0], err)
					}
					return nil
				})
			})
			if err := errors.Join(errs...); err != nil {
				t.Fatalf("Step() number %d = %v", step, err)
			}
		}
	})
}

// stepError is the error of a step that is not committed.
func stepError(t *testing.T, err error) *collective.StepError {
	t.Helper()
	e, ok := errors.AsType[*collective.StepError](err)
	if !ok || !errors.Is(err, collective.ErrStepFailed) {
		t.Fatalf("Step() = %v; want a *StepError", err)
	}
	return e
}

var errOwn = errors.New("out of memory")

// The part of a member fails, before or after it has summed, on one or on several. All members return an error that names the lowest, and the
// next clique commits the step.
func TestStepFails(t *testing.T) {
	clause.Cite(t, "CL-ATM-4", "CLT-RCV-4")
	for _, row := range []struct {
		name  string
		fails []int
		after bool
		names int
	}{{"before", []int{2}, false, 2}, {"after", []int{2}, true, 2}, {"two", []int{3, 1}, true, 1}, {"two before", []int{3, 1}, false, 1}} {
		t.Run(row.name, func(t *testing.T) {
			onEach(t, func(t *testing.T, w *world) {
				procs := w.startAll(4)
				comms := w.clique(procs, devices(4))
				var came sync.WaitGroup // the parts that fail do so at the same time
				came.Add(len(row.fails))
				errs := each(comms, func(i int, c *collective.Comm) error {
					x := []int64{1}
					return collective.Step(t.Context(), c, func(ctx context.Context, live collective.Live) error {
						fails := slices.Contains(row.fails, i)
						if !fails || row.after {
							if err := adds(c, x)(ctx, live); err != nil {
								return err
							}
						}
						if fails {
							came.Done()
							came.Wait()
							return fmt.Errorf("%w: %s", errOwn, strings.Repeat("x", 5000))
						}
						return nil
					})
				})
				for i, err := range errs {
					e := stepError(t, err)
					if e.Rank != row.names || e.Life != procs[row.names].life || e.Step != 1 || e.Lost || !strings.HasPrefix(e.Detail, "out of memory: xxx") || len(e.Detail) > 1024 {
						t.Errorf("rank %d: Step() = %.200v; want that of rank %d, with a text of at most 1 KiB", i, err, row.names)
					}
					if own := slices.Contains(row.fails, i); errors.Is(err, errOwn) != own {
						t.Errorf("rank %d: Step() = %.200v; has its own error: %v", i, err, !own)
					}
					if err := collective.Step(t.Context(), comms[i], adds(comms[i], []int64{1})); err == nil {
						t.Errorf("rank %d: a step of a clique that has ended succeeds", i)
					}
				}
				next := reformAll(t, comms)
				if err := errors.Join(each(next, func(_ int, c *collective.Comm) error { return collective.Step(t.Context(), c, adds(c, []int64{1})) })...); err != nil {
					t.Errorf("Step() of the next clique = %v", err)
				}
			})
		})
	}
}

// The part of a member fails before the others have begun the step. They name it all the same, and not those of them that begin last.
func TestStepBegunLate(t *testing.T) {
	clause.Cite(t, "CL-ATM-4", "CLT-RCV-4")
	inBubble(t, func(t *testing.T, w *world) {
		comms := w.clique(w.startAll(4), devices(4))
		began := time.Now()
		errs := each(comms, func(i int, c *collective.Comm) error {
			pause(time.Duration(3-i) * 100 * time.Millisecond)
			return collective.Step(t.Context(), c, func(ctx context.Context, live collective.Live) error {
				if i == 3 {
					return errOwn
				}
				return adds(c, []int64{1})(ctx, live)
			})
		})
		for i, err := range errs {
			if e := stepError(t, err); e.Rank != 3 || e.Detail != errOwn.Error() || time.Since(began) > time.Second {
				t.Errorf("rank %d: Step() = %v after %v; want that of rank 3", i, err, time.Since(began))
			}
		}
	})
}

// reformAll forms the next clique.
func reformAll(t *testing.T, comms []*collective.Comm) []*collective.Comm {
	t.Helper()
	next := make([]*collective.Comm, len(comms))
	errs := each(comms, func(i int, c *collective.Comm) (err error) {
		next[i], err = c.Reform(t.Context())
		return err
	})
	if err := errors.Join(errs...); err != nil {
		t.Fatalf("Reform() = %v", err)
	}
	return next
}

// A member is killed before it has voted. The others fail the step and name it, also if it is restarted before they know: its next life does not
// hold them up.
func TestStepLosesAMember(t *testing.T) {
	clause.Cite(t, "CL-EX-1", "CL-ATM-4", "CLT-RCV-8")
	for _, restarts := range []bool{false, true} {
		inBubble(t, func(t *testing.T, w *world) {
			procs := w.startAll(3)
			comms := w.clique(procs, devices(3))
			errs := each(comms, func(i int, c *collective.Comm) error {
				return collective.Step(t.Context(), c, func(ctx context.Context, live collective.Live) error {
					if err := adds(c, []int64{1})(ctx, live); err != nil || i < 2 {
						return err
					}
					pause(time.Second) // the others wait at the end of the step
					w.kill(procs[2])
					if restarts {
						w.start(life(2, 20))
					} else {
						w.lose(procs[2].life, "process exited: signal 9")
					}
					return errOwn
				})
			})
			for i, err := range errs[:2] {
				if e := stepError(t, err); e.Rank != 2 || !e.Lost || !errors.Is(err, collective.ErrPeerFailed) || e.Life != procs[2].life {
					t.Errorf("rank %d: Step() = %v; want that rank 2 is lost", i, err)
				}
			}
			if restarts {
				go w.procs[3].Clique(t.Context(), devices(3), collective.CliqueOptions{})
			}
			next := reformAll(t, comms[:2])
			if want := 2 + len(w.procs) - 3; next[0].Size() != want {
				t.Errorf("the next clique has %d ranks; want %d", next[0].Size(), want)
			}
		})
	}
}

// The answer of the service does not reach a member, and the others commit. It does not, cannot form the next clique, and comes back like
// a process that was restarted.
func TestStepInDoubt(t *testing.T) {
	clause.Cite(t, "CL-ATM-4", "CLT-RCV-8")
	inBubble(t, func(t *testing.T, w *world) {
		procs := w.startAll(3)
		comms := w.clique(procs, devices(3))
		w.withhold(procs[0].life, true)
		errs := each(comms, func(_ int, c *collective.Comm) error {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			return collective.Step(ctx, c, adds(c, []int64{1}))
		})
		if !errors.Is(errs[0], collective.ErrInDoubt) || errs[1] != nil || errs[2] != nil {
			t.Fatalf("Step() = %v; want that rank 0 is in doubt, and the others commit", errs)
		}
		w.withhold(procs[0].life, false)
		if _, err := comms[0].Reform(t.Context()); !errors.Is(err, collective.ErrInDoubt) {
			t.Errorf("Reform() in doubt = %v; want ErrInDoubt", err)
		}
		synctest.Wait()
		for i, c := range comms[1:] {
			if err := collective.Step(t.Context(), c, adds(c, []int64{1})); err == nil {
				t.Errorf("rank %d: a step without rank 0 succeeds", i+1)
			}
		}
		next := make([]*collective.Comm, 3)
		errs = each(comms, func(i int, c *collective.Comm) (err error) {
			if i == 0 {
				c.Close(t.Context())
				next[i], err = procs[0].Clique(t.Context(), devices(3), collective.CliqueOptions{})
				return err
			}
			next[i], err = c.Reform(t.Context())
			return err
		})
		if err := errors.Join(errs...); err != nil {
			t.Fatalf("the next clique: %v", err)
		}
		if next[0].Rank() != 2 || next[1].Rank() != 0 {
			t.Errorf("ranks of the next clique: %d, %d; want those that committed first", next[0].Rank(), next[1].Rank())
		}
		works(t, next, 100)
	})
}

// After a loss the clique is smaller than its lineage. A member finds the next loss outside of a step and forms the next clique; the others are in a step,
// whose end it never comes to. They do not wait for it.
func TestStepOfSomeOnly(t *testing.T) {
	clause.Cite(t, "CL-ATM-4")
	inBubble(t, func(t *testing.T, w *world) {
		procs := w.startAll(4)
		comms := w.clique(procs, devices(4))
		w.kill(procs[3])
		w.lose(procs[3].life, "process exited: signal 9")
		synctest.Wait()
		comms = reformAll(t, comms[:3])
		next := make([]*collective.Comm, 3)
		began := time.Now()
		errs := each(comms, func(i int, c *collective.Comm) (err error) {
			if i == 0 {
				pause(time.Second)
				c.Revoke(errors.New("something outside of the step"))
			} else if err := collective.Step(t.Context(), c, adds(c, []int64{1})); err == nil {
				return errors.New("a step without rank 0 succeeds")
			}
			next[i], err = c.Reform(t.Context())
			return err
		})
		if err := errors.Join(errs...); err != nil || time.Since(began) > 20*time.Second {
			t.Fatalf("after %v: %v", time.Since(began), err)
		}
		works(t, next, 100)
	})
}

// Ranks of one process: one has begun a step, and another one finds the clique failed before it begins it.
func TestStepOfRanksOfOneProcess(t *testing.T) {
	clause.Cite(t, "CL-ATM-4")
	for _, calls := range []bool{true, false} {
		inBubble(t, func(t *testing.T, w *world) {
			comms := ranksOf(w.clique([]*process{one(w, 2)}, devices(2)))
			began := time.Now()
			errs := each(comms, func(i int, c *collective.Comm) error {
				if i == 1 {
					pause(time.Second)
					c.Revoke(errors.New("enough"))
					if !calls {
						return errOwn
					}
				}
				return collective.Step(t.Context(), c, adds(c, []int64{1}))
			})
			for i, err := range errs {
				if err == nil || time.Since(began) > time.Minute {
					t.Errorf("rank %d: Step() = %v after %v; want an error soon", i, err, time.Since(began))
				}
			}
		})
	}
}

// A trainee is a member of a training in steps: its state is the sum of what was committed, and how many steps there were.
type trainee struct {
	p     *process
	comm  *collective.Comm
	step  int64
	state int64
}

// trains makes steps until all have made enough, or the process is killed.
func (r *trainee) trains(ctx context.Context, log *ledger) {
	for ctx.Err() == nil && !log.isFull() {
		err := r.once(ctx, log)
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return
		case errors.Is(err, collective.ErrInDoubt):
			r.comm.Close(ctx)
			r.comm = nil
		case r.comm != nil:
			r.reform(ctx)
		}
	}
}

// reform forms the next clique, and tries again as long as that fails.
func (r *trainee) reform(ctx context.Context) {
	for before := r.comm; ctx.Err() == nil; {
		next, err := before.Reform(ctx)
		if err == nil {
			before.Close(ctx)
			r.comm = next
			r.share(ctx) // if it fails, so does the next step
			return
		}
	}
}

// once forms the clique if there is none, or makes a step.
func (r *trainee) once(ctx context.Context, log *ledger) (err error) {
	if r.comm == nil {
		bounded, cancel := context.WithTimeout(ctx, 30*time.Second)
		defer cancel()
		if r.comm, err = r.p.Clique(bounded, devices(3), collective.CliqueOptions{}); err != nil {
			return err
		}
		return r.share(ctx)
	}
	pause(20 * time.Millisecond)
	bounded, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	x := []int64{r.step*100 + int64(r.p.life.Task.Index), int64(len(r.comm.Returned()))}
	if err := collective.Step(bounded, r.comm, adds(r.comm, x)); err != nil {
		return err
	}
	if r.step < log.steps { // then it only keeps the others company
		r.step, r.state = r.step+1, r.state*31+x[0]
	}
	if log.committed(r); x[1] > 0 {
		return errReturned
	}
	return nil
}

var errReturned = errors.New("tasks have returned")

// share gives all the newest state.
func (r *trainee) share(ctx context.Context) error {
	all := make([]int64, 2*r.comm.Size())
	if err := collective.AllGatherSlice(ctx, r.comm, all, []int64{r.step, r.state}); err != nil {
		return err
	}
	for i := 0; i < len(all); i += 2 {
		if all[i] > r.step {
			r.step, r.state = all[i], all[i+1]
		}
	}
	return nil
}

// A ledger has the state after each step, as the first member said it.
type ledger struct {
	steps  int64 // of the whole training
	mu     sync.Mutex
	states map[int64]int64
	ended  map[serry.TaskID]bool
	holds  map[serry.Life]bool // processes that live and have a state
	calm   bool                // no trouble comes any more
}

// committed notes the state of a member after a step.
func (l *ledger) committed(r *trainee) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if known, ok := l.states[r.step]; ok && known != r.state {
		r.p.world.t.Errorf("%v has the state %d after step %d; another member has %d", r.p.life, r.state, r.step, known)
	}
	l.states[r.step] = r.state
	l.ended[r.p.life.Task] = r.step == l.steps
	if _, lives := l.holds[r.p.life]; lives {
		l.holds[r.p.life] = true
	}
}

// begins notes a new life of a task.
func (l *ledger) begins(life serry.Life) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended[life.Task], l.holds[life] = false, false
}

// mayEnd notes the end of a life, unless it is the last that has a state.
func (l *ledger) mayEnd(life serry.Life) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for other, holds := range l.holds {
		if other != life && holds {
			delete(l.holds, life)
			return true
		}
	}
	return false
}

// calmDown notes that no trouble comes any more.
func (l *ledger) calmDown() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calm = true
}

// isFull says whether all three tasks have made all steps, and no trouble comes any more.
func (l *ledger) isFull() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, ended := range l.ended {
		if ended {
			n++
		}
	}
	return n == 3 && l.calm
}

// Members of a training are killed and restarted at any moment, and answers of the service do not reach one of them for a while. After every step all that
// have committed it have the same state, and all come to the end.
func TestTrainingInSteps(t *testing.T) {
	clause.Cite(t, "CL-EX-1", "CL-ATM-4", "CLT-RCV-3", "CLT-RCV-8")
	for seed := range search.Pick[uint64](30, 8) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				w.group.Timeout = 40 * time.Second
				r := rand.New(rand.NewPCG(seed, 3))
				log := &ledger{steps: 100, states: make(map[int64]int64), ended: make(map[serry.TaskID]bool), holds: make(map[serry.Life]bool)}
				var running sync.WaitGroup
				begins := func(l serry.Life) (p *process, kill func()) {
					ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
					log.begins(l)
					p = w.start(l)
					running.Go(func() { (&trainee{p: p}).trains(ctx, log) })
					return p, func() { cancel(); w.kill(p) }
				}
				procs, kills := make([]*process, 3), make([]func(), 3)
				for i := range procs {
					procs[i], kills[i] = begins(life(i, uint64(10+i)))
				}
				w.delay(time.Duration(r.IntN(3000)) * time.Microsecond)
				for n := range 6 {
					pause(time.Duration(r.IntN(400)) * time.Millisecond)
					victim := r.IntN(3)
					if r.IntN(3) == 0 {
						w.withhold(procs[victim].life, true)
						pause(time.Duration(r.IntN(40)) * time.Second)
						w.withhold(procs[victim].life, false)
						continue
					}
					if !log.mayEnd(procs[victim].life) {
						continue
					}
					kills[victim]()
					if r.IntN(2) == 0 {
						pause(time.Duration(r.IntN(50)) * time.Millisecond)
						w.lose(procs[victim].life, "process exited: signal 9")
						pause(time.Duration(r.IntN(3000)) * time.Millisecond)
					}
					procs[victim], kills[victim] = begins(life(victim, uint64(20+10*n+victim)))
				}
				log.calmDown()
				started := time.Now()
				running.Wait()
				if !log.isFull() {
					t.Errorf("%v after the last trouble: %v", time.Since(started), log.ended)
				}
				for _, kill := range kills {
					kill()
				}
			})
		})
	}
}
