package collective_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/collective"
	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/memory"
)

// sum is an all-reduce of count bytes.
func sum(out, in []byte) collective.Op {
	return collective.AllReduce{In: memory.Of(in), Out: memory.Of(out), Count: int64(len(in)), Type: memory.U8, Reduction: collective.Sum}
}

// loop runs all-reduces until one fails, and checks that the next one fails, too. It returns both errors.
func loop(ctx context.Context, c *collective.Comm, size int) (first, next error) {
	in, out := fill(size, uint64(c.Rank())), make([]byte, size)
	for first == nil {
		first = c.Do(ctx, sum(out, in))
	}
	return first, c.Do(ctx, sum(out, in))
}

// A member dies in the middle of an all-reduce. Every survivor names it, whether it saw the loss or was told.
func TestLostMember(t *testing.T) {
	clause.Cite(t, "CL-EX-1", "CL-ABT-20", "CL-ERR-7", "CL-ERR-9", "CL-ABT-15", "CLT-ABT-18", "CL-TRN-5")
	for _, size := range []int{8, 50_000, 3 << 20} {
		for dead := range 4 {
			inBubble(t, func(t *testing.T, w *world) {
				procs := w.startAll(4)
				comms := w.clique(procs, devices(4))
				time.AfterFunc(time.Millisecond, func() { w.kill(procs[dead]) })
				w.delay(100 * time.Microsecond)
				began := time.Now()
				each(comms, func(i int, c *collective.Comm) error {
					first, next := loop(t.Context(), c, size)
					if i == dead {
						return nil
					}
					for _, err := range []error{first, next} {
						if e := failure(t, err); !errors.Is(e, collective.ErrPeerFailed) || !slices.Equal(e.Ranks, []int{dead}) || e.Life != procs[dead].life {
							t.Errorf("%d bytes, rank %d dies: rank %d gets %v", size, dead, i, err)
						}
					}
					return nil
				})
				if took := time.Since(began); took > 100*time.Millisecond {
					t.Errorf("%d bytes, rank %d dies: the survivors know after %v", size, dead, took)
				}
			})
		}
	}
}

// Cliques without the lost member go on.
func TestAbortIsSelective(t *testing.T) {
	clause.Cite(t, "CL-ABT-5", "CL-ABT-6", "CL-ABT-16", "CLT-ABT-7")
	inBubble(t, func(t *testing.T, w *world) {
		procs := w.startAll(3)
		w.delay(100 * time.Microsecond)
		pairs := [][]int{{0, 1}, {1, 2}, {0, 2}}
		var comms [3][]*collective.Comm
		for i, pair := range pairs {
			comms[i] = w.clique([]*process{procs[pair[0]], procs[pair[1]]}, []serry.DeviceID{serry.DeviceID(pair[0]), serry.DeviceID(pair[1])})
		}
		time.AfterFunc(5*time.Millisecond, func() { w.kill(procs[2]) })
		each([]int{0, 1, 2}, func(_ int, i int) error {
			each(comms[i], func(j int, c *collective.Comm) error {
				if i > 0 {
					if first, _ := loop(t.Context(), c, 50_000); pairs[i][j] != 2 && !errors.Is(first, collective.ErrPeerFailed) {
						t.Errorf("clique %v: process %d gets %v; want that its peer has failed", pairs[i], pairs[i][j], first)
					}
					return nil
				}
				in, out := fill(50_000, 1), make([]byte, 50_000)
				for range 200 { // the loss is seen meanwhile
					if err := c.Do(t.Context(), sum(out, in)); err != nil {
						t.Errorf("the clique without the lost process: %v", err)
						break
					}
				}
				return nil
			})
			return nil
		})
	})
}

// The service tells of a life that was replaced, or of a task that left: cliques with that life end, the others stay. The first
// thing that it tells ends nothing.
func TestServiceTellsOfALoss(t *testing.T) {
	clause.Cite(t, "TC-DINC-01", "TC-DINC-02", "TC-DINC-03", "CL-ABT-5")
	for _, now := range []serry.TaskInfo{{Incarnation: 99, State: serry.Connected}, {Incarnation: 11, State: serry.Disconnected}} {
		inBubble(t, func(t *testing.T, w *world) {
			procs := w.startAll(3)
			with := w.clique([]*process{procs[0], procs[1]}, []serry.DeviceID{0, 1})[0]
			without := w.clique([]*process{procs[0], procs[2]}, []serry.DeviceID{0, 2})[0]
			synctest.Wait()
			if with.Err() != nil || without.Err() != nil {
				t.Errorf("before a loss: %v, %v", with.Err(), without.Err())
			}
			now.Task = procs[1].life.Task
			w.set(now)
			synctest.Wait()
			if e := failure(t, with.Err()); !errors.Is(e, collective.ErrPeerFailed) || e.Life != procs[1].life {
				t.Errorf("the clique with the lost life = %v; want that it names %v", e, procs[1].life)
			}
			if without.Err() != nil {
				t.Errorf("the clique without it = %v", without.Err())
			}
		})
	}
}

// doCancelled begins an operation that cannot end yet, and cancels it. On a busy host a context may end before the operation
// has begun: that only withdraws it, and the next one is given longer.
func doCancelled(ctx context.Context, c *collective.Comm, why error) error {
	for wait := 20 * time.Millisecond; ; wait *= 2 {
		ctx, cancel := context.WithCancelCause(ctx)
		timer := time.AfterFunc(wait, func() { cancel(why) })
		err, _ := loop(ctx, c, 100_000)
		timer.Stop()
		cancel(nil)
		if c.Err() != nil {
			return err
		}
	}
}

// A user's revoke, and a context that is cancelled, end the clique for all and name the origin.
func TestRevokeAndCancel(t *testing.T) {
	clause.Cite(t, "CL-ABT-14", "CL-DES-3", "CL-ABT-20", "CLT-ABT-18", "CLT-ABT-12", "CL-HLT-1")
	for _, cancels := range []bool{false, true} {
		onEach(t, func(t *testing.T, w *world) {
			comms := w.clique(w.startAll(3), devices(3))
			ended := make(chan struct{}) // the call of rank 1
			errs := each(comms, func(i int, c *collective.Comm) error {
				switch {
				case i == 0 && cancels: // it comes late, so that the others wait
					<-ended
					fallthrough
				case i != 1:
					_, err := loop(t.Context(), c, 100_000)
					return err
				case cancels:
					defer close(ended)
					return doCancelled(t.Context(), c, errors.New("enough"))
				}
				c.Revoke(errors.New("enough"))
				c.Revoke(errors.New("again"))
				return errors.Join(c.Err(), c.Do(t.Context(), collective.Barrier{}))
			})
			for i, err := range errs {
				if e := failure(t, err); !errors.Is(e, collective.ErrCancelled) || e.Origin != 1 || !strings.Contains(e.Error(), "enough") {
					t.Errorf("cancelled %v: rank %d gets %v; want ErrCancelled of rank 1", cancels, i, err)
				}
			}
		})
	}
}

// A context that has ended before the call only withdraws it.
func TestCancelledBeforeItBegins(t *testing.T) {
	clause.Cite(t, "CL-DES-3")
	inBubble(t, func(t *testing.T, w *world) {
		comms := w.clique(w.startAll(2), devices(2))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := comms[0].Do(ctx, collective.Barrier{}); !errors.Is(err, context.Canceled) {
			t.Errorf("Do() with a context that has ended = %v", err)
		}
		if errs := each(comms, func(_ int, c *collective.Comm) error { return c.Do(t.Context(), collective.Barrier{}) }); errors.Join(errs...) != nil {
			t.Errorf("the barrier after it = %v", errs)
		}
	})
}

// A member that does not come is named by those that wait, and gets the same error when it comes. The deadline is that
// of the context, or that of the group.
func TestDeadline(t *testing.T) {
	clause.Cite(t, "CL-TMO-8", "CL-TMO-9", "CL-TMO-10", "CLT-TMO-5", "CLT-TMO-6")
	for _, ofGroup := range []bool{false, true} {
		for _, x := range trials(4, 9000, 0) {
			inBubble(t, func(t *testing.T, w *world) {
				if ofGroup {
					w.group.Timeout = 5 * time.Second
				}
				comms := w.clique(w.startAll(4), devices(4))
				began := time.Now()
				errs := each(comms, func(i int, c *collective.Comm) error {
					ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
					defer cancel()
					if ofGroup {
						ctx = t.Context()
					}
					if i == 2 {
						time.Sleep(7 * time.Second)
					}
					if err := x.Run(ctx, c, false); err != nil {
						return err
					}
					return c.Do(t.Context(), collective.Barrier{})
				})
				for i, err := range errs {
					e := failure(t, err)
					if !errors.Is(e, collective.ErrTimeout) || !slices.Contains(e.Ranks, 2) && e.Seq == 1 {
						t.Errorf("%s: rank %d gets %v; want a timeout that names rank 2", x.Name, i, err)
					}
				}
				if took := time.Since(began); took > 11*time.Second {
					t.Errorf("%s took %v", x.Name, took)
				}
			})
		}
	}
}

// The text of a timeout says what each missing rank did last, and how long its pings have told nothing new.
func TestTimeoutSaysWhatWasSeen(t *testing.T) {
	clause.Cite(t, "CL-TMO-10", "CL-TMO-11", "CL-TRN-7")
	for after, pings := range map[time.Duration]string{
		time.Second:      "",
		10 * time.Second: ", answers pings, and has begun and ended no operation for 9s",
	} {
		inBubble(t, func(t *testing.T, w *world) {
			comms := w.clique(w.startAll(2), devices(2))
			each(comms, func(_ int, c *collective.Comm) error { return c.Do(t.Context(), collective.Barrier{}) })
			ctx, cancel := context.WithTimeout(t.Context(), after)
			defer cancel()
			err := comms[0].Do(ctx, sum(make([]byte, 8), make([]byte, 8)))
			want := fmt.Sprintf("timed out, waiting for rank 1: allreduce of 8 u8 by sum after %v; rank 1 was last seen in operation 1, barrier%s"+
				" (found by rank 0 in operation 2)", after, pings)
			if err == nil || err.Error() != want {
				t.Errorf("Do() = %v; want %s", err, want)
			}
		})
	}
}

// Two members die at once, and a user revokes: later calls of all survivors name the lower of the two.
func TestStrongestCauseWins(t *testing.T) {
	clause.Cite(t, "CL-ABT-20", "CLT-ABT-18")
	inBubble(t, func(t *testing.T, w *world) {
		procs := w.startAll(5)
		comms := w.clique(procs, devices(5))
		synctest.Wait() // all links are there
		comms[0].Revoke(errors.New("enough"))
		w.kill(procs[3])
		w.kill(procs[1])
		time.Sleep(time.Second)
		for _, i := range []int{0, 2, 4} {
			err := comms[i].Do(t.Context(), collective.Barrier{})
			if e := failure(t, err); !errors.Is(e, collective.ErrPeerFailed) || !slices.Equal(e.Ranks, []int{1}) {
				t.Errorf("rank %d gets %v; want that rank 1 has failed", i, err)
			}
		}
	})
}

// A connection breaks, and both processes live: all members blame that link.
func TestBrokenLink(t *testing.T) {
	clause.Cite(t, "CL-TRN-5", "CL-ABT-20", "CLT-ABT-22")
	inBubble(t, func(t *testing.T, w *world) {
		procs := w.startAll(4)
		comms := w.clique(procs, devices(4))
		w.delay(100 * time.Microsecond)
		time.AfterFunc(5*time.Millisecond, func() { w.network.part(hostOf(procs[1].life), hostOf(procs[2].life)) })
		errs := each(comms, func(_ int, c *collective.Comm) error { _, err := loop(t.Context(), c, 1<<20); return err })
		for i, err := range errs {
			if e := failure(t, err); !errors.Is(e, collective.ErrTransport) || !slices.Equal(e.Ranks, []int{1, 2}) {
				t.Errorf("rank %d gets %v; want that the link between ranks 1 and 2 broke", i, err)
			}
		}
	})
}

// A host is cut off, and nothing closes: the detector decides.
func TestCutLink(t *testing.T) {
	clause.Cite(t, "CL-TRN-7", "CL-REC-11", "CLT-RCV-10")
	inBubble(t, func(t *testing.T, w *world) {
		procs := w.startAll(3)
		comms := w.clique(procs, devices(3))
		w.delay(100 * time.Microsecond)
		var cut time.Time
		time.AfterFunc(5*time.Millisecond, func() {
			cut = time.Now()
			for _, p := range procs[:2] {
				w.network.cut(hostOf(p.life), hostOf(procs[2].life))
			}
		})
		each(comms, func(i int, c *collective.Comm) error {
			first, _ := loop(t.Context(), c, 1<<20)
			if e := failure(t, first); !errors.Is(e, collective.ErrTransport) || e.Ranks[1] != 2 {
				t.Errorf("rank %d gets %v; want that a link to rank 2 broke", i, first)
			}
			if took := time.Since(cut); took < 3*time.Second || took > 3500*time.Millisecond {
				t.Errorf("rank %d knows after %v; want 3 s to 3.5 s", i, took)
			}
			return nil
		})
	})
}

// Two members cannot reach each other, in one direction or both, and nothing has noticed that yet. A revoke of one of them
// reaches the other through the third.
func TestRevokeAroundACut(t *testing.T) {
	clause.Cite(t, "CL-TRN-8", "CL-ABT-15")
	for name, ways := range map[string][][2]int{"both ways": {{0, 1}, {1, 0}}, "to it": {{0, 1}}, "from it": {{1, 0}}} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				procs := w.startAll(3)
				comms := w.clique(procs, devices(3))
				w.delay(100 * time.Microsecond)
				time.AfterFunc(5*time.Millisecond, func() {
					for _, way := range ways {
						w.network.cut(hostOf(procs[way[0]].life), hostOf(procs[way[1]].life))
					}
				})
				start := time.Now()
				time.AfterFunc(10*time.Millisecond, func() { comms[0].Revoke(errors.New("enough")) })
				each(comms, func(i int, c *collective.Comm) error {
					_, err := loop(t.Context(), c, 1<<20)
					if took := time.Since(start); !errors.Is(err, collective.ErrCancelled) || took > 100*time.Millisecond {
						t.Errorf("rank %d gets %v after %v; want the revoke at once", i, err, took)
					}
					return nil
				})
			})
		})
	}
}

// After an error no memory of the operation is touched, although the other members go on sending.
func TestMemoryIsQuietAfterAnError(t *testing.T) {
	clause.Cite(t, "CL-ABT-17", "CL-ERR-6", "CLT-ABT-13")
	for at := range 20 {
		inBubble(t, func(t *testing.T, w *world) {
			procs := w.startAll(3)
			comms := w.clique(procs, devices(3))
			w.delay(20 * time.Microsecond)
			time.AfterFunc(time.Duration(at)*100*time.Microsecond, func() { w.kill(procs[2]) })
			each(comms, func(i int, c *collective.Comm) error {
				size := []int{50_000, 200_000, 50_000, 1 << 20}[at%4]
				in, out := fill(size, uint64(i)), make([]byte, size)
				for c.Do(t.Context(), sum(out, in)) == nil {
				}
				mine := fill(size, 77)
				copy(in, mine)
				copy(out, mine)
				time.Sleep(time.Second)
				if !bytes.Equal(in, mine) || !bytes.Equal(out, mine) {
					t.Errorf("killed after %d steps: the memory of rank %d changed after its error", at, i)
				}
				return nil
			})
		})
	}
}

// A process that closes its group after its last operation does not disturb members that are still in it.
func TestLeave(t *testing.T) {
	clause.Cite(t, "CL-DES-7", "CL-ABT-14")
	onEach(t, func(t *testing.T, w *world) {
		procs := w.startAll(4)
		comms := w.clique(procs, devices(4))
		errs := each(comms, func(i int, c *collective.Comm) error {
			for n := range 20 {
				if err := trials(4, 100+n*n*100, 0)[4].Run(t.Context(), c, false); err != nil { // a broadcast: the root is done first
					return err
				}
			}
			if err := procs[i].Group.Close(t.Context()); err != nil {
				return err
			}
			return procs[i].net.Close(t.Context())
		})
		if err := errors.Join(errs...); err != nil {
			t.Error(err)
		}
	})
}

// A member that leaves because another one has left still waits for those that need its last messages.
func TestSecondToLeaveWaits(t *testing.T) {
	clause.Cite(t, "CL-DES-7")
	inBubble(t, func(t *testing.T, w *world) {
		procs := w.startAll(3)
		comms := w.clique(procs, devices(3))
		errs := each(comms, func(i int, c *collective.Comm) error {
			if i == 2 {
				time.Sleep(5 * time.Second) // the others have sent all they have to, and want to leave
			}
			if err := trials(3, 1000, 0)[4].Run(t.Context(), c, false); err != nil {
				return err
			}
			time.Sleep(time.Duration(1-i%2) * time.Second) // rank 1 leaves first
			return errors.Join(procs[i].Group.Close(t.Context()), procs[i].net.Close(t.Context()))
		})
		if err := errors.Join(errs...); err != nil {
			t.Error(err)
		}
	})
}

// A member that is slower than the one that leaves is waited for, and gets ErrClosed from its next operation.
func TestSlowMemberIsWaitedFor(t *testing.T) {
	clause.Cite(t, "CL-DES-7")
	inBubble(t, func(t *testing.T, w *world) {
		procs := w.startAll(2)
		comms := w.clique(procs, devices(2))
		each(comms, func(i int, c *collective.Comm) error {
			x := trials(2, 1000, 0)[4]
			if i == 1 {
				time.Sleep(3 * time.Second)
			}
			if err := x.Run(t.Context(), c, false); err != nil {
				t.Errorf("broadcast on rank %d = %v", i, err)
			}
			if i == 0 {
				began := time.Now()
				if err := errors.Join(procs[0].Group.Close(t.Context()), procs[0].net.Close(t.Context())); err != nil || time.Since(began) < 3*time.Second {
					t.Errorf("Close() = %v after %v; want it to wait for rank 1", err, time.Since(began))
				}
				return nil
			}
			time.Sleep(time.Second)
			if e := failure(t, x.Run(t.Context(), c, false)); !errors.Is(e, collective.ErrClosed) || !slices.Equal(e.Ranks, []int{0}) {
				t.Errorf("the next operation = %v; want that rank 0 has closed", e)
			}
			return nil
		})
	})
}

// While a large vector is on its way, pings and the word that the clique has ended do not wait behind it.
func TestControlDoesNotWaitBehindData(t *testing.T) {
	clause.Cite(t, "CLT-OP-44", "CL-TRN-1", "CL-ABT-15")
	inBubble(t, func(t *testing.T, w *world) {
		procs := w.startAll(2)
		comms := w.clique(procs, devices(2))
		works(t, comms, 100_000) // all lanes are there
		w.network.mu.Lock()
		w.network.perMiB = time.Second
		w.network.mu.Unlock()
		var futures []*collective.Future
		for _, c := range comms {
			futures = append(futures, c.Start(t.Context(), sum(make([]byte, 64<<20), make([]byte, 64<<20))))
		}
		const soon = 5 * time.Millisecond
		for range 10 {
			time.Sleep(time.Second)
			for i, p := range procs {
				l, err := p.net.Link(t.Context(), procs[1-i].life)
				if err != nil {
					t.Fatalf("Link() = %v", err)
				}
				if s := l.Stats(); s.RoundTrip > soon || s.Suspected {
					t.Fatalf("task %d: beside an all-reduce a ping takes %v, suspected %v", i, s.RoundTrip, s.Suspected)
				}
			}
		}
		if comms[1].Err() != nil || isDone(futures[0]) {
			t.Fatalf("the all-reduce is over too soon: %v", comms[1].Err())
		}
		go comms[0].Revoke(errors.New("enough"))
		time.Sleep(soon)
		if comms[1].Err() == nil {
			t.Errorf("the other member does not know %v after the clique was revoked", soon)
		}
		for r, f := range futures {
			if err := f.Wait(); !errors.Is(err, collective.ErrCancelled) {
				t.Errorf("rank %d: %v; want ErrCancelled", r, err)
			}
		}
	})
}

func isDone(f *collective.Future) bool {
	select {
	case <-f.Done():
		return true
	default:
		return false
	}
}
