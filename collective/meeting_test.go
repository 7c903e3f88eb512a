package collective_test

import (
	"context"
	"errors"
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

// failure is the facts of an error, which must be those of a clique.
func failure(t *testing.T, err error) *collective.Error {
	t.Helper()
	e, ok := errors.AsType[*collective.Error](err)
	if !ok {
		t.Fatalf("error is %v (%T); want a *collective.Error", err, err)
	}
	return e
}

// A meeting whose time is over names those that did not come, on every process that did; a process that comes late
// learns that it is over, and the next call of all meets.
func TestMeetingNamesTheMissing(t *testing.T) {
	clause.Cite(t, "CL-RDV-10", "CL-RDV-1", "CLT-RDV-11", "CL-CCH-5", "CLT-CCH-2")
	inBubble(t, func(t *testing.T, w *world) {
		procs := w.startAll(4)
		errs := each(procs[:3], func(i int, p *process) error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i+1)*100*time.Millisecond)
			defer cancel()
			_, err := p.Clique(ctx, devices(4), collective.CliqueOptions{})
			return err
		})
		for i, err := range errs {
			if e := failure(t, err); !errors.Is(e, collective.ErrTimeout) || !slices.Equal(e.Ranks, []int{3}) || !strings.Contains(e.Error(), "worker/3") {
				t.Errorf("Clique() on process %d = %v; want a timeout that names rank 3", i, err)
			}
		}
		_, err := procs[3].Clique(t.Context(), devices(4), collective.CliqueOptions{})
		if e := failure(t, err); !errors.Is(e, collective.ErrTimeout) || !slices.Equal(e.Ranks, []int{3}) {
			t.Errorf("Clique() that comes late = %v; want the error that the others got", err)
		}
		w.clique(procs, devices(4))
	})
}

// The process that hosts the meeting does not come.
func TestHostIsMissing(t *testing.T) {
	clause.Cite(t, "CL-RDV-10")
	inBubble(t, func(t *testing.T, w *world) {
		procs := w.startAll(3)
		errs := each(procs[1:], func(_ int, p *process) error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := p.Clique(ctx, devices(3), collective.CliqueOptions{})
			return err
		})
		for _, err := range errs {
			if e := failure(t, err); !errors.Is(e, collective.ErrTimeout) || !slices.Equal(e.Ranks, []int{0}) {
				t.Errorf("Clique() = %v; want a timeout that names rank 0", err)
			}
		}
	})
}

// A task that has not joined the job is waited for, and named.
func TestTaskIsNotConnected(t *testing.T) {
	clause.Cite(t, "CL-KEY-9", "CL-RDV-10")
	inBubble(t, func(t *testing.T, w *world) {
		p := w.start(life(0, 10))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := p.Clique(ctx, devices(2), collective.CliqueOptions{})
		if e := failure(t, err); !errors.Is(e, collective.ErrTimeout) || !slices.Equal(e.Ranks, []int{1}) || !strings.Contains(e.Error(), "worker/1 is not connected") {
			t.Errorf("Clique() = %v; want a timeout that names worker/1", err)
		}
	})
}

// A new clique of more than 16 processes has links from all to the host of its meeting, and from each to those at a distance of a power
// of two. Others are made when an operation first uses them.
func TestLinksOfANewClique(t *testing.T) {
	clause.Cite(t, "CL-CRE-11")
	inBubble(t, func(t *testing.T, w *world) {
		procs := w.startAll(20)
		comms := w.clique(procs, devices(20))
		count := func(i int) int { synctest.Wait(); return len(procs[i].net.Links()) }
		for i, want := range map[int]int{0: 19, 1: 8, 3: 9, 7: 9} { // rank 0 is the host, and a neighbour of rank 1
			if n := count(i); n != want {
				t.Errorf("process %d of 20 has %d links; want %d", i, n, want)
			}
		}
		errs := each(comms, func(int, *collective.Comm) error { return nil })
		errs[3] = comms[3].Do(t.Context(), collective.Send{In: memory.Of(fill(8, 1)), Count: 8, Type: memory.U8, To: 6})
		if n := count(3); errors.Join(errs...) != nil || n != 10 {
			t.Errorf("after a message to a rank that is no neighbour: %d links, %v; want one more", n, errs[3])
		}
	})
}

// A process that gives up ends the meeting for all, with its cause, and so does one that is lost.
func TestMeetingEndsForAll(t *testing.T) {
	clause.Cite(t, "CL-CRE-3", "CL-RDV-11", "CLT-RDV-12", "CL-CRE-9", "CL-CRE-10", "CLT-ABT-9")
	for _, lost := range []bool{false, true} {
		inBubble(t, func(t *testing.T, w *world) {
			procs := w.startAll(4)
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			go func() {
				synctest.Wait()
				if lost {
					w.kill(procs[1])
				} else {
					cancel(errors.New("enough"))
				}
			}()
			errs := each(procs[:3], func(i int, p *process) error {
				mine := t.Context()
				if i == 1 {
					mine = ctx
				}
				_, err := p.Clique(mine, devices(4), collective.CliqueOptions{})
				return err
			})
			for i, err := range errs {
				e := failure(t, err)
				switch {
				case lost && i == 1: // it is dead, and may believe anything
				case lost && (!errors.Is(e, collective.ErrPeerFailed) || !slices.Equal(e.Ranks, []int{1}) || e.Life != procs[1].life):
					t.Errorf("Clique() on process %d = %v; want that rank 1 has failed", i, err)
				case !lost && (!errors.Is(e, collective.ErrCancelled) || !strings.Contains(e.Error(), "enough")):
					t.Errorf("Clique() on process %d = %v; want that it was cancelled, and why", i, err)
				}
			}
		})
	}
}

// A clique is formed once, and found again. The order of devices makes another clique, and so does the traffic.
func TestCliqueIsFoundAgain(t *testing.T) {
	clause.Cite(t, "CL-CCH-2", "CL-KEY-3", "CLT-ACQ-1", "CLT-CCH-1")
	inBubble(t, func(t *testing.T, w *world) {
		procs := w.startAll(2)
		first, again := w.clique(procs, devices(2)), w.clique(procs, devices(2))
		if first[0] != again[0] || first[1] != again[1] {
			t.Error("the second call of Clique made another clique")
		}
		reversed := w.clique(procs, []serry.DeviceID{1, 0})
		if reversed[0].Rank() != 1 || reversed[1].Rank() != 0 || reversed[0] == first[0] {
			t.Errorf("ranks of the reversed clique are %d and %d", reversed[0].Rank(), reversed[1].Rank())
		}
	})
}

// A call that makes no sense is refused, and changes nothing.
func TestRefusedCalls(t *testing.T) {
	clause.Cite(t, "CL-OP-4", "CL-OP-2", "CL-ERR-10", "CL-RED-1", "CL-RED-3", "CL-DT-1")
	inBubble(t, func(t *testing.T, w *world) {
		procs := w.startAll(2)
		for name, list := range map[string][]serry.DeviceID{"none": nil, "twice": {0, 1, 1}, "not mine": {1}, "negative": {0, -1}} {
			if _, err := procs[0].Clique(t.Context(), list, collective.CliqueOptions{}); !errors.Is(err, collective.ErrInvalid) {
				t.Errorf("Clique of devices (%s) = %v; want ErrInvalid", name, err)
			}
		}
		comms := w.clique(procs, devices(2))
		b := make([]byte, 64)
		r := memory.Of
		for name, op := range map[string]collective.Op{
			"small output":   collective.AllReduce{In: r(b[:8]), Out: r(b[8:15]), Count: 1, Type: memory.F64, Reduction: collective.Sum},
			"small input":    collective.AllGather{In: r(b[:3]), Out: r(b[8:24]), Count: 1, Type: memory.F32},
			"overlap":        collective.AllReduce{In: r(b[:16]), Out: r(b[8:24]), Count: 4, Type: memory.F32, Reduction: collective.Sum},
			"exchange":       collective.AllToAll{In: r(b[:16]), Out: r(b[:16]), Count: 2, Type: memory.F32},
			"no type":        collective.AllGather{In: r(b), Out: r(b), Count: 0},
			"no reduction":   collective.AllReduce{In: r(b), Out: r(b), Count: 1, Type: memory.F32},
			"complex min":    collective.AllReduce{In: r(b), Out: r(b), Count: 1, Type: memory.C64, Reduction: collective.Min},
			"negative count": collective.AllReduce{In: r(b), Out: r(b), Count: -1, Type: memory.F32, Reduction: collective.Sum},
			"great count":    collective.AllReduce{In: r(b), Out: r(b), Count: 1 << 62, Type: memory.F32, Reduction: collective.Sum},
			"root":           collective.Broadcast{In: r(b), Out: r(b), Count: 1, Type: memory.F32, Root: 2},
			"counts":         collective.AllGather{In: r(b), Out: r(b[32:]), Counts: []int64{1}, Type: memory.U8},
		} {
			if err := comms[0].Do(t.Context(), op); !errors.Is(err, collective.ErrInvalid) {
				t.Errorf("Do(%s) = %v; want ErrInvalid", name, err)
			}
		}
		errs := each(comms, func(_ int, c *collective.Comm) error { return c.Do(t.Context(), collective.Barrier{}) })
		if err := errors.Join(errs...); err != nil {
			t.Errorf("a barrier after refused calls = %v", err)
		}
	})
}

// Members that run different operations all get an error that quotes both.
func TestMismatch(t *testing.T) {
	clause.Cite(t, "CL-ORD-12", "CL-OP-6", "CLT-TMO-8", "CLT-OP-42")
	in, out := memory.Of(make([]byte, 1<<20)), memory.Of(make([]byte, 1<<20))
	sum := func(count int64) collective.Op {
		return collective.AllReduce{In: in, Out: out, Count: count, Type: memory.F32, Reduction: collective.Sum}
	}
	for _, row := range []struct {
		name            string
		most, different collective.Op
		quotes          []string
	}{
		{"count", sum(10), sum(11), []string{"10 f32", "11 f32"}},
		{"nothing", sum(10), sum(0), []string{"10 f32", "0 f32"}},
		{"large count", sum(100_000), sum(100_001), []string{"100000 f32", "100001 f32"}},
		{"type", sum(10), collective.AllReduce{In: in, Out: out, Count: 10, Type: memory.S32, Reduction: collective.Sum}, []string{"f32", "s32"}},
		{"reduction", sum(10), collective.AllReduce{In: in, Out: out, Count: 10, Type: memory.F32, Reduction: collective.Max}, []string{"sum", "max"}},
		{"operation", sum(10), collective.Barrier{}, []string{"allreduce", "barrier"}},
		{"small root", collective.Gather{In: in, Out: out, Count: 4, Type: memory.U8}, collective.Gather{In: in, Out: out, Count: 4, Type: memory.U8, Root: 2}, []string{"root 2"}},
		{"large root", collective.Broadcast{In: in, Out: out, Count: 100_000, Type: memory.U8},
			collective.Broadcast{In: in, Out: out, Count: 100_000, Type: memory.U8, Root: 1}, []string{"root 1"}},
	} {
		for odd := range 3 {
			t.Run(row.name, func(t *testing.T) {
				onEach(t, func(t *testing.T, w *world) {
					comms := w.clique(w.startAll(3), devices(3))
					errs := each(comms, func(i int, c *collective.Comm) error {
						op := row.most
						if i == odd {
							op = row.different
						}
						err := c.Do(t.Context(), op)
						for i := 0; err == nil && i < 1000; i++ { // all may have done what they thought, until one hears of the others
							err = c.Do(t.Context(), collective.Barrier{})
						}
						return err
					})
					for i, err := range errs {
						e := failure(t, err)
						if !errors.Is(e, collective.ErrMismatch) || !slices.Contains(e.Ranks, odd) {
							t.Errorf("rank %d: %v; want a mismatch that blames rank %d", i, err, odd)
						}
						for _, quote := range row.quotes {
							if !strings.Contains(e.Error(), quote) {
								t.Errorf("rank %d: %v; want it to quote %q", i, err, quote)
							}
						}
					}
				})
			})
		}
	}
}

// A service that does not tell how tasks are is asked for an agreement.
func TestBlindService(t *testing.T) {
	clause.Cite(t, "CL-KEY-10")
	inBubble(t, func(t *testing.T, w *world) {
		w.blind = true
		procs := w.startAll(3)
		works(t, w.clique(procs, devices(3)), 1000)
		w.lose(procs[2].life, "process exited: signal 9")
		errs := each(procs[:2], func(_ int, p *process) error {
			_, err := p.Clique(t.Context(), []serry.DeviceID{2, 1, 0}, collective.CliqueOptions{})
			return err
		})
		for _, err := range errs {
			if e := failure(t, err); !errors.Is(e, collective.ErrPeerFailed) || !slices.Equal(e.Ranks, []int{0}) {
				t.Errorf("Clique() with a dead task = %v; want that rank 0 has failed", err)
			}
		}
	})
}

// Cliques that no caller holds are kept for the next one, but not too many. One that was closed is formed anew.
func TestIdleCliques(t *testing.T) {
	clause.Cite(t, "CL-CCH-4", "CLT-CCH-3")
	inBubble(t, func(t *testing.T, w *world) {
		w.group.Idle = 2
		procs := w.startAll(2)
		var first [5][]*collective.Comm
		for turn := range 3 {
			for traffic := range 5 {
				comms := make([]*collective.Comm, 2)
				errs := each(procs, func(i int, p *process) (err error) {
					comms[i], err = p.Clique(t.Context(), devices(2), collective.CliqueOptions{Traffic: uint64(traffic)})
					return err
				})
				if err := errors.Join(errs...); err != nil {
					t.Fatalf("turn %d, clique %d: %v", turn, traffic, err)
				}
				works(t, comms, 1000)
				if turn == 0 {
					first[traffic] = comms
				}
				each(comms, func(_ int, c *collective.Comm) error { return c.Close(t.Context()) })
				time.Sleep(time.Second)
			}
		}
		closed := 0
		for _, comms := range first {
			if errors.Is(comms[0].Err(), collective.ErrClosed) {
				closed++
			}
		}
		if closed != 5 {
			t.Errorf("%d of the first 5 cliques were closed; want all, since each was followed by 4 others", closed)
		}
	})
}
