package collective_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/collective"
	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/link"
	"github.com/serry-dev/serry/memory"
)

// offer offers memory of these bytes on every rank.
func offer(t *testing.T, comms []*collective.Comm, n int) ([]*collective.Window, [][]byte) {
	t.Helper()
	windows, mem := make([]*collective.Window, len(comms)), make([][]byte, len(comms))
	errs := each(comms, func(i int, c *collective.Comm) (err error) {
		mem[i] = make([]byte, n)
		windows[i], err = c.Offer(t.Context(), memory.Of(mem[i]))
		return err
	})
	if err := errors.Join(errs...); err != nil {
		t.Fatalf("Offer() = %v", err)
	}
	return windows, mem
}

// waitFor is a WaitSignal for one rank.
func waitFor(from int, id uint32, n uint64) collective.Op {
	return collective.WaitSignal{Signals: []collective.Signals{{From: from, ID: id, Count: n}}}
}

// ranksOf are all ranks of processes, in their order.
func ranksOf(comms []*collective.Comm) (all []*collective.Comm) {
	for _, c := range comms {
		all = append(all, c.Local()...)
	}
	slices.SortFunc(all, func(a, b *collective.Comm) int { return a.Rank() - b.Rank() })
	return all
}

// Every rank puts into every other one and itself, and finds what it was given when it has waited for the signals.
func TestPutAndSignal(t *testing.T) {
	clause.Cite(t, "CL-OP-22", "CL-OP-23", "CLT-OP-34", "CL-DES-2")
	onEach(t, func(t *testing.T, w *world) {
		w.group.Owners = make(map[serry.DeviceID]serry.TaskID)
		for d := range 4 {
			w.group.Owners[serry.DeviceID(d)] = life(d%3, 0).Task // two ranks share a process
		}
		ranks := ranksOf(w.clique(w.startAll(3), devices(4)))
		const p = 4
		for _, n := range []int{0, 1, 5000, 30_000} {
			windows, mem := offer(t, ranks, p*n)
			errs := each(ranks, func(r int, c *collective.Comm) error {
				var wait collective.WaitSignal
				for q := range p {
					in := fill(n, uint64(r*p+q))
					err := errors.Join(
						c.Do(t.Context(), collective.Put{Window: windows[r], To: q, Offset: int64(r * n), In: memory.Of(in), Count: int64(n)}),
						c.Do(t.Context(), collective.Signal{To: q, ID: 7}))
					if err != nil {
						return err
					}
					clear(in) // a Put that has ended does not need it any more
					wait.Signals = append(wait.Signals, collective.Signals{From: q, ID: 7, Count: 1})
				}
				if err := c.Do(t.Context(), wait); err != nil {
					return err
				}
				for q := range p {
					if !bytes.Equal(mem[r][q*n:(q+1)*n], fill(n, uint64(q*p+r))) {
						return fmt.Errorf("rank %d has something else of rank %d", r, q)
					}
				}
				return errors.Join(c.Do(t.Context(), collective.WaitSignal{}), windows[r].Close(t.Context()))
			})
			if err := errors.Join(errs...); err != nil {
				t.Fatalf("%d bytes: %v", n, err)
			}
		}
	})
}

// Signals are counted by rank and by ID, and one wait takes them all or none.
func TestSignalsAreCounted(t *testing.T) {
	clause.Cite(t, "CL-OP-23", "CLT-OP-34")
	inBubble(t, func(t *testing.T, w *world) {
		comms := w.clique(w.startAll(3), devices(3))
		for range 5 {
			comms[1].Start(t.Context(), collective.Signal{To: 0, ID: 1})
			comms[2].Start(t.Context(), collective.Signal{To: 0, ID: 1})
		}
		all := comms[0].Start(t.Context(), collective.WaitSignal{Signals: []collective.Signals{{1, 1, 4}, {1, 1, 1}, {2, 1, 5}, {2, 9, 1}}})
		if err := comms[0].Do(t.Context(), waitFor(2, 1, 5)); err != nil {
			t.Errorf("WaitSignal() = %v", err)
		}
		synctest.Wait()
		select {
		case <-all.Done():
			t.Error("WaitSignal() ended without a signal that it waits for")
		default:
		}
		for range 5 {
			comms[2].Start(t.Context(), collective.Signal{To: 0, ID: 1})
		}
		comms[2].Start(t.Context(), collective.Signal{To: 0, ID: 9})
		if err := all.Wait(); err != nil {
			t.Errorf("WaitSignal() for all = %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		comms[2].Start(t.Context(), collective.Signal{To: 0, ID: 1})
		err := comms[0].Do(ctx, collective.WaitSignal{Signals: []collective.Signals{{1, 1, 1}, {2, 1, 1}}})
		if e := failure(t, err); !errors.Is(e, collective.ErrTimeout) || !slices.Equal(e.Ranks, []int{1}) {
			t.Errorf("WaitSignal() for a signal that was taken = %v; want a timeout that names rank 1", err)
		}
	})
}

// Puts that a fence parts are written in order, and quiet waits for all of them.
func TestFenceAndQuiet(t *testing.T) {
	clause.Cite(t, "CL-OP-24", "CLT-OP-34")
	onEach(t, func(t *testing.T, w *world) {
		comms := w.clique(w.startAll(2), devices(2))
		const n = 20_000
		windows, mem := offer(t, comms, n)
		put := func(size int, value byte) collective.Op {
			return collective.Put{Window: windows[0], To: 1, In: memory.Of(bytes.Repeat([]byte{value}, size)), Count: int64(size)}
		}
		var futures []*collective.Future
		for i := range 300 { // large ones, which take longer, before small ones; more than may be under way
			size := n
			if i%2 == 1 {
				size = 10
			}
			if i >= 50 {
				size = 10
			}
			futures = append(futures, comms[0].Start(t.Context(), put(size, byte(i))), comms[0].Start(t.Context(), collective.Fence{}))
		}
		for _, f := range futures {
			if err := f.Wait(); err != nil {
				t.Fatalf("Put() = %v", err)
			}
		}
		if err := comms[0].Do(t.Context(), collective.Quiet{}); err != nil {
			t.Fatalf("Quiet() = %v", err)
		}
		if errs := each(comms, func(_ int, c *collective.Comm) error { return c.Do(t.Context(), collective.Barrier{}) }); errors.Join(errs...) != nil {
			t.Fatal(errs)
		}
		want := append(bytes.Repeat([]byte{299 % 256}, 10), bytes.Repeat([]byte{48}, n-10)...)
		if !bytes.Equal(mem[1], want) {
			t.Errorf("the memory begins with %v, and goes on with %v; want %v and %v", mem[1][0], mem[1][10], want[0], want[10])
		}
	})
}

// A put that cannot be right is refused before anything is sent; one into a window that was closed ends the clique.
func TestPutIsRefused(t *testing.T) {
	clause.Cite(t, "CL-OP-22", "CL-ERR-10", "CL-OP-4")
	onEach(t, func(t *testing.T, w *world) {
		comms := w.clique(w.startAll(3), devices(3))
		windows, _ := offer(t, comms, 100)
		b := memory.Of(make([]byte, 101))
		for _, op := range []collective.Op{
			collective.Put{Window: windows[0], To: 3, In: b, Count: 1},
			collective.Put{Window: windows[0], To: 1, In: b, Count: 101},
			collective.Put{Window: windows[0], To: 1, In: b, Count: 1, Offset: 100},
			collective.Put{Window: windows[0], To: 1, In: b, Count: 1, Offset: -1},
			collective.Put{Window: windows[0], To: 1, In: b, Count: -1},
			collective.Put{Window: windows[0], To: 1, In: b, Count: 102},
			collective.Put{Window: windows[1], To: 1, In: b, Count: 1},
			collective.Put{To: 1, In: b, Count: 1},
			collective.Signal{To: -1},
			waitFor(3, 0, 1),
		} {
			if err := comms[0].Do(t.Context(), op); !errors.Is(err, collective.ErrInvalid) {
				t.Errorf("Do(%+v) = %v; want ErrInvalid", op, err)
			}
		}
		if err := windows[1].Close(t.Context()); err != nil {
			t.Fatalf("Close() = %v", err)
		}
		comms[0].Start(t.Context(), collective.Put{Window: windows[0], To: 1, In: b, Count: 1})
		errs := each(comms, func(_ int, c *collective.Comm) error { return c.Do(t.Context(), waitFor(0, 5, 1)) })
		for r, err := range errs {
			if e := failure(t, err); !errors.Is(e, collective.ErrInvalid) || !slices.Equal(e.Ranks, []int{0}) || !strings.Contains(err.Error(), "closed") {
				t.Errorf("rank %d: %v; want that rank 0 put into a closed window", r, err)
			}
		}
	})
}

// One-sided operations fail with the clique, whatever they wait for, and a window is quiet when Close has returned.
func TestOneSidedFailure(t *testing.T) {
	clause.Cite(t, "CL-OP-22", "CL-OP-23", "CL-OP-24", "CL-ABT-17", "CL-ABT-20")
	for at := range 12 {
		inBubble(t, func(t *testing.T, w *world) {
			dead := at % 3
			procs := w.startAll(3)
			comms := w.clique(procs, devices(3))
			const n = 50_000
			windows, mem := offer(t, comms, n)
			w.delay(200 * time.Microsecond)
			time.AfterFunc(time.Duration(at)*300*time.Microsecond, func() { w.kill(procs[dead]) })
			each(comms, func(r int, c *collective.Comm) error {
				next := (r + 1) % 3
				var err error
				for i := byte(0); err == nil; i++ {
					err = errors.Join(
						c.Do(t.Context(), collective.Put{Window: windows[r], To: next, In: memory.Of(bytes.Repeat([]byte{i}, n)), Count: n}),
						c.Do(t.Context(), collective.Signal{To: next}),
						c.Do(t.Context(), waitFor((r+2)%3, 0, 1)), c.Do(t.Context(), collective.Quiet{}))
				}
				closing := windows[r].Close(t.Context())
				was := bytes.Clone(mem[r])
				if e := failure(t, err); r != dead && (!errors.Is(e, collective.ErrPeerFailed) || !slices.Equal(e.Ranks, []int{dead}) || closing != nil) {
					t.Errorf("rank %d dies: rank %d gets %v, and Close() = %v", dead, r, err, closing)
				}
				time.Sleep(time.Second)
				if !bytes.Equal(was, mem[r]) {
					t.Errorf("rank %d dies: the memory of rank %d changed after Close", dead, r)
				}
				return nil
			})
		})
	}
}

// A rank signals a clique that the other process does not know yet.
func TestEarlySignal(t *testing.T) {
	clause.Cite(t, "CL-OP-23")
	onEach(t, func(t *testing.T, w *world) {
		procs := w.startAll(3)
		for traffic := range uint64(8) {
			errs := each(procs, func(i int, p *process) error {
				c, err := p.Clique(t.Context(), devices(3), collective.CliqueOptions{Traffic: traffic})
				if err != nil {
					return err
				}
				for r := range 3 {
					if err := c.Do(t.Context(), collective.Signal{To: r, ID: 1}); err != nil {
						return err
					}
				}
				for r := range 3 {
					if err := c.Do(t.Context(), waitFor(r, 1, 1)); err != nil {
						return err
					}
				}
				return nil
			})
			if err := errors.Join(errs...); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// Frames that make no sense end the clique at most, and those for cliques that are not known are bounded.
func TestBadOneSidedFrames(t *testing.T) {
	clause.Cite(t, "CL-OP-22", "CL-OP-23", "CL-ERR-10")
	for seed := range uint64(10) {
		inBubble(t, func(t *testing.T, w *world) {
			procs := w.startAll(2)
			comms := w.clique(procs, devices(2))
			offer(t, comms, 100)
			l, err := procs[1].net.Link(t.Context(), procs[0].life)
			if err != nil {
				t.Fatal(err)
			}
			r := rand.New(rand.NewPCG(seed, 5))
			for i := range 1200 {
				payload := make([]byte, 4+r.IntN(40))
				for k := range payload {
					payload[k] = byte(r.Uint32() >> 24 & 3)
				}
				copy(payload, []byte{1, 0, 0, 0}) // from rank 1 to rank 0
				h := link.Header{Family: link.Collective, Type: link.OneSided, Class: link.Control, Stream: comms[0].Stream(), Step: r.Uint32N(4), Seq: r.Uint64N(4)}
				if i > 20 {
					h.Stream++
				}
				if _, err := l.Post(h, payload); err != nil {
					t.Fatal(err)
				}
			}
			synctest.Wait()
			if err := comms[0].Err(); err != nil {
				failure(t, err)
			}
			next := make([]*collective.Comm, 2)
			errs := each(procs, func(i int, p *process) (err error) {
				next[i], err = p.Clique(t.Context(), devices(2), collective.CliqueOptions{Traffic: 1})
				return err
			})
			if err := errors.Join(errs...); err != nil {
				t.Fatal(err)
			}
			works(t, next, 100)
		})
	}
}

// A process that leaves has done what it put before.
func TestLeaveAfterPut(t *testing.T) {
	clause.Cite(t, "CL-DES-7", "CL-OP-24")
	inBubble(t, func(t *testing.T, w *world) {
		procs := w.startAll(2)
		comms := w.clique(procs, devices(2))
		const n = 200_000
		windows, mem := offer(t, comms, n)
		w.delay(time.Millisecond)
		comms[0].Start(t.Context(), collective.Put{Window: windows[0], To: 1, In: memory.Of(bytes.Repeat([]byte{9}, n)), Count: n})
		if err := procs[0].Group.Close(t.Context()); err != nil {
			t.Errorf("Close() = %v", err)
		}
		if !bytes.Equal(mem[1], bytes.Repeat([]byte{9}, n)) {
			t.Error("a process left before its put was done")
		}
	})
}
