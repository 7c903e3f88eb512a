package collective_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/collective"
	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/internal/lab/search"
)

// uses asks for the clique of all processes with a traffic, runs an all-reduce in it, and gives it back.
func (p *process) uses(traffic uint64) error {
	t := p.world.t
	n := len(p.world.procs)
	c, err := p.Clique(t.Context(), devices(n), collective.CliqueOptions{Traffic: traffic})
	if err != nil {
		return fmt.Errorf("Clique() = %w", err)
	}
	in, out := fill(100, 7), make([]byte, 100)
	if err := c.Do(t.Context(), sum(out, in)); err != nil {
		return fmt.Errorf("Do() = %w", err)
	}
	if out[1] != in[1]*byte(n) {
		return fmt.Errorf("wrong sum %d of %d times %d", out[1], n, in[1])
	}
	return c.Close(t.Context())
}

// freeze keeps from a process for a while what the others have sent it.
func (w *world) freeze(p *process, d time.Duration) {
	for _, other := range w.procs {
		if other != p {
			time.AfterFunc(d, w.network.hold(hostOf(p.life), hostOf(other.life)))
		}
	}
}

// A program asks for a clique at the moment at which it was idle for too long, and the programs of the other members later. None
// of them notices: either all find the clique, or all form another one.
func TestIdleCliqueIsWanted(t *testing.T) {
	clause.Cite(t, "CL-CCH-4")
	const age, way = time.Minute, time.Millisecond
	for first := range 3 {
		t.Run(fmt.Sprintf("by rank %d", first), func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				w.group.IdleTime = age
				procs := w.startAll(3)
				w.delay(way)
				for at := -3 * way; at < 12*way; at += search.Pick(way/4, way) {
					if err := errors.Join(each(procs, func(_ int, p *process) error { return p.uses(0) })...); err != nil {
						t.Fatalf("before: %v", err)
					}
					synctest.Wait()
					errs := each(procs, func(i int, p *process) error {
						if time.Sleep(age + at); i != first {
							time.Sleep(3 * time.Second)
						}
						return p.uses(0)
					})
					if err := errors.Join(errs...); err != nil {
						t.Fatalf("%v after the clique was too old: %v", at, err)
					}
				}
				c := procs[0].Counters()
				if c.Evicted == 0 || c.Created < 2 {
					t.Errorf("Counters() = %+v; want that some were closed, and formed anew", c)
				}
			})
		})
	}
}

// Programs use more cliques than are kept, in one order, each at its own pace, and some of them find one that is too old. No call fails.
func TestCliquesComeAndGo(t *testing.T) {
	clause.Cite(t, "CL-CCH-4", "CLT-CCH-3")
	for seed := range search.Pick[uint64](20, 5) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				draw := rand.New(rand.NewPCG(seed, 1))
				w.group.Idle, w.group.IdleTime = 1+draw.IntN(3), time.Duration(1+draw.IntN(200))*time.Millisecond
				procs := w.startAll(2 + draw.IntN(3))
				w.delay(time.Duration(draw.IntN(2000)) * time.Microsecond)
				errs := each(procs, func(i int, p *process) error {
					return errors.Join(each([]uint64{0, 100}, func(_ int, base uint64) error { // two goroutines with cliques of their own
						order, pace := rand.New(rand.NewPCG(seed, base)), rand.New(rand.NewPCG(seed, base+uint64(i)+2))
						for range 60 {
							if err := p.uses(base + order.Uint64N(6)); err != nil {
								return err
							}
							time.Sleep(time.Duration(pace.IntN(30)) * time.Millisecond)
						}
						return nil
					})...)
				})
				if err := errors.Join(errs...); err != nil {
					t.Error(err)
				}
				var evicted uint64
				for _, p := range procs {
					c := p.Counters()
					evicted += c.Evicted
					if c.Aborted > 0 {
						t.Errorf("Counters() = %+v; want that none was aborted", c)
					}
				}
				if evicted == 0 {
					t.Error("no clique was closed")
				}
			})
		})
	}
}

// Runs acquire cliques that were idle for about as long as they are kept. No run fails.
func TestRunsFindIdleCliques(t *testing.T) {
	clause.Cite(t, "CL-CCH-4", "CL-ACQ-13")
	for seed := range uint64(10) {
		inBubble(t, func(t *testing.T, w *world) {
			w.group.IdleTime = 20 * time.Millisecond
			procs := w.startAll(3)
			w.delay(time.Duration(seed*200) * time.Microsecond)
			errs := each(procs, func(i int, p *process) error {
				requests, pace := wants(t, p.Group, serry.DeviceID(i), ids{0, 1, 2}, ids{2, 1, 0}), rand.New(rand.NewPCG(seed, uint64(i)))
				for run := range uint64(60) {
					time.Sleep(time.Duration(pace.IntN(50)) * time.Millisecond)
					lease, err := requests.Acquire(t.Context(), collective.Execution{ID: run + 1})
					if err != nil {
						return err
					}
					for n := range 2 {
						x := []int64{1}
						if err := collective.AllReduceSlice(t.Context(), lease.Comm(n), x, x, collective.Sum); err != nil || x[0] != 3 {
							return fmt.Errorf("run %d: sum is %d: %w", run, x[0], err)
						}
					}
					lease.Release()
				}
				return nil
			})
			if err := errors.Join(errs...); err != nil {
				t.Errorf("seed %d: %v", seed, err)
			}
			if c := procs[0].Counters(); c.Evicted == 0 || c.Hits == 0 {
				t.Errorf("seed %d: Counters() = %+v; want that some were closed, and some found", seed, c)
			}
		})
	}
}

// Programs use 300 cliques, of which 256 are kept: the oldest are closed, and what they held is given back. One that a caller holds stays.
func TestHundredsOfCliques(t *testing.T) {
	clause.Cite(t, "CL-CCH-3", "CL-CCH-4", "CLT-CCH-3")
	inBubble(t, func(t *testing.T, w *world) {
		const keys, kept = 300, 256
		procs := w.startAll(2)
		held := w.tagged(keys)
		var all [keys][]*collective.Comm
		running := 0
		for traffic := range all {
			all[traffic] = w.tagged(uint64(traffic))
			giveBack(t, all[traffic])
			time.Sleep(time.Millisecond)
			if synctest.Wait(); traffic == kept-1 {
				running = runtime.NumGoroutine()
			}
		}
		for traffic, comms := range all {
			for i, c := range comms {
				if closed := errors.Is(c.Err(), collective.ErrClosed); closed != (traffic < keys-kept) {
					t.Errorf("clique %d, rank %d: %v; want that the %d oldest are closed", traffic, i, c.Err(), keys-kept)
				}
			}
		}
		works(t, held, 100)
		if n := runtime.NumGoroutine(); n > running || len(procs[0].net.Links()) != 1 {
			t.Errorf("%d goroutines run, and there are %d links; want at most %d, as with %d cliques, and 1", n, len(procs[0].net.Links()), running, kept)
		}
	})
}

// A process has too many idle cliques, and the others have room. They close what it proposes, but not what one of them holds.
func TestTooManyIdleOnOneProcess(t *testing.T) {
	clause.Cite(t, "CL-CCH-4", "CLT-CCH-3")
	inBubble(t, func(t *testing.T, w *world) {
		first, second := w.start(life(0, 10)), w.start(life(1, 11))
		w.group.Idle = 1
		third := w.start(life(2, 12))
		held, free, last := w.tagged(1), w.tagged(2), w.tagged(3)
		giveBack(t, held[1:])
		time.Sleep(time.Second)
		giveBack(t, free)
		time.Sleep(time.Second)
		giveBack(t, last) // now the third process has two too many
		time.Sleep(time.Second)
		for i, c := range held {
			if c.Err() != nil {
				t.Errorf("rank %d: a clique that rank 0 holds is closed: %v", i, c.Err())
			}
		}
		if free[0].Err() == nil || last[0].Err() != nil {
			t.Errorf("the older idle clique: %v; the newer one: %v; want that the older one is closed", free[0].Err(), last[0].Err())
		}
		again := w.tagged(1)
		works(t, again, 100)
		if again[2] != held[2] {
			t.Error("the third process has another clique than the one that was kept")
		}
		if got := [3]uint64{first.Counters().Evicted, second.Counters().Evicted, third.Counters().Evicted}; got != [3]uint64{1, 0, 0} {
			t.Errorf("evicted %v; want one, by the process of rank 0", got)
		}
	})
}

// While the members agree that an idle clique is closed, one of them dies, or stands still, or closes its group, or the link between two
// breaks, at every moment. The calls that wait for the clique end, and those that are left can work.
func TestTroubleWhileIdleCliqueIsClosed(t *testing.T) {
	clause.Cite(t, "CL-CCH-4", "CL-ABT-5")
	const age, way = time.Minute, time.Millisecond
	trouble := map[string]func(w *world, p *process, c *collective.Comm){
		"dies":    func(w *world, p *process, _ *collective.Comm) { w.kill(p); w.lose(p.life, "process exited: signal 9") },
		"closes":  func(w *world, p *process, _ *collective.Comm) { go p.Group.Close(w.t.Context()) },
		"breaks":  func(w *world, p *process, _ *collective.Comm) { w.network.reset(hostOf(p.life)) },
		"freezes": func(w *world, p *process, _ *collective.Comm) { w.freeze(p, 2*time.Second) }, // for less than a link needs to be given up
		"revokes": func(_ *world, _ *process, c *collective.Comm) { c.Revoke(nil) },
	}
	for name, strike := range trouble {
		for victim := range 3 {
			t.Run(fmt.Sprintf("rank %d %s", victim, name), func(t *testing.T) {
				for at := -way; at < 6*way; at += search.Pick(way/2, 3*way/2) {
					inBubble(t, func(t *testing.T, w *world) {
						w.group.IdleTime, w.group.Timeout = age, time.Minute
						procs := w.startAll(3)
						w.delay(way)
						comms := w.tagged(0)
						giveBack(t, comms)
						time.Sleep(age + at)
						strike(w, procs[victim], comms[victim])
						started := time.Now()
						errs := each(procs, func(i int, p *process) error {
							time.Sleep(time.Duration(i) * way)
							return p.uses(0)
						})
						if time.Since(started) > 2*time.Minute {
							t.Errorf("%v: the calls took %v", at, time.Since(started))
						}
						if err := errors.Join(errs...); err != nil && name == "freezes" {
							t.Errorf("%v: %v", at, err)
						}
						// Of the first calls some may have got the clique that ended, and the others have met in vain.
						allLive := name == "breaks" || name == "revokes"
						for turn := 0; allLive && turn < 3; turn++ {
							errs = each(procs, func(_ int, p *process) error { return p.uses(0) })
						}
						if err := errors.Join(errs...); err != nil && allLive {
							t.Errorf("%v: after the clique ended: %v", at, err)
						}
					})
				}
			})
		}
	}
}
