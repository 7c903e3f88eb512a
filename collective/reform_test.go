package collective_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/collective"
	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/internal/lab/search"
)

// works checks that a clique sums right.
func works(t *testing.T, comms []*collective.Comm, size int) {
	t.Helper()
	errs := each(comms, func(i int, c *collective.Comm) error {
		in, out := bytes.Repeat([]byte{1}, size), make([]byte, size)
		if err := c.Do(t.Context(), sum(out, in)); err != nil {
			return err
		}
		if !bytes.Equal(out, bytes.Repeat([]byte{byte(len(comms))}, size)) {
			return fmt.Errorf("rank %d has a wrong sum", c.Rank())
		}
		return nil
	})
	if err := errors.Join(errs...); err != nil {
		t.Errorf("all-reduce of %d bytes on %d ranks: %v", size, len(comms), err)
	}
}

// reform re-forms a clique on all of these ranks, and checks its devices and generation.
func reform(t *testing.T, comms []*collective.Comm, generation uint32, devices ...serry.DeviceID) []*collective.Comm {
	t.Helper()
	next := make([]*collective.Comm, len(comms))
	errs := each(comms, func(i int, c *collective.Comm) (err error) {
		next[i], err = c.Reform(t.Context())
		return err
	})
	if err := errors.Join(errs...); err != nil {
		t.Fatalf("Reform() = %v", err)
	}
	for i, c := range next {
		if !slices.Equal(c.Key().Devices(), devices) || c.Key().Generation != generation {
			t.Errorf("Reform() on rank %d gives %v; want devices %v in generation %d", comms[i].Rank(), c.Key(), devices, generation)
		}
	}
	return next
}

func without[T any](list []T, i int) []T { return slices.Delete(slices.Clone(list), i, i+1) }

// The survivors of a lost member go on without it. When it is restarted they take it in again.
func TestReform(t *testing.T) {
	clause.Cite(t, "CL-REC-1", "CL-REC-4", "CL-REC-5", "CL-REC-9", "CL-KEY-16", "CL-DES-7", "CLT-RCV-2")
	for dead := range 4 {
		inBubble(t, func(t *testing.T, w *world) {
			procs := w.startAll(4)
			comms := w.clique(procs, devices(4))
			works(t, comms, 1<<20)
			w.kill(procs[dead])
			alive := without(comms, dead)
			each(alive, func(_ int, c *collective.Comm) error { _, err := loop(t.Context(), c, 1000); return err })
			rest := without(devices(4), dead)
			alive = reform(t, alive, 1, rest...)
			works(t, alive, 1<<20)

			again := w.start(life(dead, 77))
			comeback := make(chan *collective.Comm, 1)
			go func() {
				c, err := again.Clique(t.Context(), devices(4), collective.CliqueOptions{})
				if err != nil {
					t.Errorf("Clique() of the restarted process = %v", err)
				}
				comeback <- c
			}()
			synctest.Wait()
			for _, c := range alive {
				if got := c.Returned(); !slices.Equal(got, []serry.DeviceID{serry.DeviceID(dead)}) {
					t.Errorf("Returned() on rank %d = %v; want [%d]", c.Rank(), got, dead)
				}
			}
			alive = reform(t, alive, 2, append(rest, serry.DeviceID(dead))...)
			works(t, append(alive, <-comeback), 1<<20)
			if got := alive[0].Returned(); got != nil {
				t.Errorf("Returned() = %v with all members in the clique", got)
			}
		})
	}
}

// A process is restarted before the survivors have re-formed the clique: it is in the next one.
func TestQuickRestart(t *testing.T) {
	clause.Cite(t, "CL-EX-1", "CL-REC-9", "CL-DES-7")
	for _, early := range []bool{false, true} {
		inBubble(t, func(t *testing.T, w *world) {
			procs := w.startAll(3)
			comms := w.clique(procs, devices(3))
			w.kill(procs[0])
			w.lose(procs[0].life, "process exited: signal 9")
			again := w.start(life(0, 77))
			var newcomer *collective.Comm
			var all sync.WaitGroup
			all.Go(func() {
				if !early {
					time.Sleep(time.Second) // the others call for it before it has called Clique
				}
				var err error
				if newcomer, err = again.Clique(t.Context(), devices(3), collective.CliqueOptions{}); err != nil {
					t.Errorf("Clique() of the restarted process = %v", err)
				}
			})
			if early {
				synctest.Wait()
			}
			next := reform(t, comms[1:], 1, 1, 2, 0)
			all.Wait()
			works(t, append(next, newcomer), 1000)
		})
	}
}

// A process is restarted and summoned; then all members of the clique are lost before they have agreed. Their successors know
// of no clique, and the first one does not wait for members that are gone: all meet anew.
func TestSummonsLapses(t *testing.T) {
	clause.Cite(t, "CL-REC-9", "CL-DES-7")
	inBubble(t, func(t *testing.T, w *world) {
		procs := slices.Clone(w.startAll(3))
		comms := w.clique(procs, devices(3))
		all := make([]*collective.Comm, 3)
		var work sync.WaitGroup
		replace := func(tasks ...int) {
			w.change(func() {
				for _, i := range tasks {
					w.job.dead[procs[i].life] = true
					l := life(i, 77)
					w.tasks[l.Task] = serry.TaskInfo{Task: l.Task, Incarnation: l.Incarnation, State: serry.Connected}
				}
			})
			for _, i := range tasks {
				w.network.kill(hostOf(procs[i].life))
			}
		}
		restart := func(i int) {
			again := w.start(life(i, 77))
			work.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				var err error
				if all[i], err = again.Clique(ctx, devices(3), collective.CliqueOptions{}); err != nil {
					t.Errorf("Clique() of process %d = %v", i, err)
				}
			})
		}
		replace(0)
		restart(0)
		work.Go(func() { comms[1].Reform(t.Context()) }) // it waits for rank 2
		time.Sleep(2 * time.Second)
		replace(1, 2)
		restart(1)
		restart(2)
		time.Sleep(time.Second)
		procs[1].end() // what is left of the process that was killed
		work.Wait()
		if !t.Failed() {
			works(t, all, 1000)
		}
	})
}

// A process that was restarted and summoned calls Clique with a context that has ended, or that ends before it can answer: it gets an
// error, and no clique that is none.
func TestSummonedTooLate(t *testing.T) {
	clause.Cite(t, "CL-REC-9", "CL-DES-7")
	for _, patience := range []time.Duration{0, time.Nanosecond, time.Second} {
		inBubble(t, func(t *testing.T, w *world) {
			procs := w.startAll(3)
			comms := w.clique(procs, devices(3))
			w.kill(procs[2])
			w.lose(procs[2].life, "process exited: signal 9")
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			go comms[0].Reform(ctx) // it waits for rank 1
			again := w.start(life(2, 77))
			time.Sleep(2 * time.Second) // it is summoned
			late, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			if c, err := again.Clique(late, devices(3), collective.CliqueOptions{}); !errors.Is(err, collective.ErrTimeout) {
				t.Errorf("Clique() with %v left = %v, and a clique: %v; want ErrTimeout", patience, err, c != nil)
			}
		})
	}
}

// A process that was restarted comes to the first meeting of its clique, and is called to the next clique from there. It takes its wish to
// meet back: a process that comes to that meeting later waits for it, and forms no clique with a process that is elsewhere.
func TestSummonedLeavesTheMeeting(t *testing.T) {
	clause.Cite(t, "CL-REC-9", "CL-RDV-11", "CL-DES-7")
	inBubble(t, func(t *testing.T, w *world) {
		procs := w.startAll(2)
		comms := w.clique(procs, devices(2))
		w.kill(procs[1])
		w.lose(procs[1].life, "process exited: signal 9")
		again := w.start(life(1, 77))
		next := make([]*collective.Comm, 2)
		errs := each([]*process{procs[0], again}, func(i int, p *process) (err error) {
			if i == 0 {
				pause(time.Second) // the other has joined the meeting that this process hosts
				next[0], err = comms[0].Reform(t.Context())
			} else {
				next[1], err = again.Clique(t.Context(), devices(2), collective.CliqueOptions{})
			}
			return err
		})
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if c, err := procs[0].Clique(ctx, devices(2), collective.CliqueOptions{}); !errors.Is(err, collective.ErrTimeout) {
			t.Errorf("Clique() = %v, and a clique: %v; want ErrTimeout, since the other process does not come", err, c != nil)
		}
		works(t, next, 1000)
	})
}

// A member summons a process that was restarted, gives its Reform up, and forms the clique like all others did before. The process that it summoned does not
// wait for it any more: all meet, at the latest when they try again.
func TestReformGivenUp(t *testing.T) {
	clause.Cite(t, "CL-REC-9", "CL-DES-7")
	inBubble(t, func(t *testing.T, w *world) {
		procs := w.startAll(3)
		comms := w.clique(procs, devices(3))
		w.kill(procs[2])
		w.lose(procs[2].life, "process exited: signal 9")
		all := []*process{procs[0], procs[1], w.start(life(2, 77))}
		next := make([]*collective.Comm, 3)
		errs := each(all, func(i int, p *process) (err error) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			switch i {
			case 0:
				tries, stop := context.WithTimeout(ctx, 3*time.Second) // it waits for rank 1, and has called the others meanwhile
				defer stop()
				if c, err := comms[0].Reform(tries); !errors.Is(err, collective.ErrTimeout) {
					t.Errorf("Reform() = %v, %v; want ErrTimeout", c, err)
				}
			case 1:
				pause(10 * time.Second)
			}
			for next[i] == nil && ctx.Err() == nil {
				next[i], err = p.Clique(ctx, devices(3), collective.CliqueOptions{})
			}
			return err
		})
		if err := errors.Join(errs...); err != nil {
			t.Fatalf("Clique() = %v", err)
		}
		works(t, next, 1000)
	})
}

// A member that has no communicator any more, because it gave up when the others formed the clique with it, calls Clique. The
// others summon it like a newcomer, although its life is in the key that they hold.
func TestMemberWithoutCommunicator(t *testing.T) {
	clause.Cite(t, "CL-REC-9", "CL-DES-7")
	inBubble(t, func(t *testing.T, w *world) {
		procs := w.startAll(3)
		comms := w.clique(procs, devices(3))
		comms[2].Revoke(errors.New("it gave up"))
		comms[2].Close(t.Context())
		next := make([]*collective.Comm, 3)
		errs := each(procs, func(i int, p *process) (err error) {
			if i == 2 {
				next[i], err = p.Clique(t.Context(), devices(3), collective.CliqueOptions{})
				return err
			}
			next[i], err = comms[i].Reform(t.Context())
			return err
		})
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		works(t, next, 1000)
	})
}

// Devices that did not belong to the clique join it.
func TestExtend(t *testing.T) {
	clause.Cite(t, "CL-REC-9")
	inBubble(t, func(t *testing.T, w *world) {
		comms := w.clique(w.startAll(2), devices(2))
		works(t, comms, 1000)
		p := w.start(life(2, 30))
		var newcomer *collective.Comm
		var all sync.WaitGroup
		all.Go(func() {
			var err error
			if newcomer, err = p.Clique(t.Context(), devices(3), collective.CliqueOptions{}); err != nil {
				t.Errorf("Clique() of the newcomer = %v", err)
			}
		})
		next := make([]*collective.Comm, 2)
		errs := each(comms, func(i int, c *collective.Comm) (err error) {
			next[i], err = c.Extend(t.Context(), 2)
			return err
		})
		if err := errors.Join(errs...); err != nil {
			t.Fatalf("Extend() = %v", err)
		}
		all.Wait()
		works(t, append(next, newcomer), 1000)
		if err := comms[0].Do(t.Context(), collective.Barrier{}); !errors.Is(err, collective.ErrClosed) {
			t.Errorf("an operation of the former clique = %v; want ErrClosed", err)
		}
	})
}

// Another member dies at any moment while the survivors form the next clique: those that are left succeed.
func TestLossWhileReforming(t *testing.T) {
	clause.Cite(t, "CL-REC-9", "CLT-RCV-5")
	for at := 0; at < 30; at += search.Pick(1, 4) {
		for _, second := range []int{0, 1, 3} {
			inBubble(t, func(t *testing.T, w *world) {
				procs := w.startAll(4)
				comms := w.clique(procs, devices(4))
				synctest.Wait()
				w.delay(10 * time.Microsecond)
				w.kill(procs[2])
				time.AfterFunc(time.Duration(at)*20*time.Microsecond, func() { w.kill(procs[second]) })
				var left []int
				for i := range 4 {
					if i != 2 && i != second {
						left = append(left, i)
					}
				}
				each([]int{0, 1, 3}, func(_ int, i int) error {
					c := comms[i]
					ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
					defer cancel()
					for ctx.Err() == nil {
						in, out := []byte{1}, []byte{0}
						if err := c.Do(ctx, sum(out, in)); err == nil && c.Size() == 2 {
							if out[0] != 2 {
								t.Errorf("killed at %d: rank %d sums %d; want 2", at, i, out[0])
							}
							return nil
						} else if err == nil {
							continue
						}
						next, err := c.Reform(ctx)
						if err == nil {
							c = next
						} else if ctx.Err() != nil && i != second {
							t.Errorf("killed at %d: rank %d: Reform() = %v", at, i, err)
						}
					}
					if i != second {
						t.Errorf("killed at %d, rank %d too: rank %d did not go on with %v", at, second, i, left)
					}
					return nil
				})
			})
		}
	}
}
