package collective_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/collective"
	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/internal/lab/search"
	"github.com/serry-dev/serry/internal/lab/trial"
	"github.com/serry-dev/serry/internal/schedule"
	"github.com/serry-dev/serry/link"
	"github.com/serry-dev/serry/memory"
)

// onOneHost runs a test in virtual time with processes that lend each other segments of ordinary memory, which the race
// detector sees.
func onOneHost(t *testing.T, f func(t *testing.T, w *world)) {
	inBubble(t, func(t *testing.T, w *world) {
		w.link.Segments, w.group.Host = new(link.Local), "one"
		f(t, w)
	})
}

// spread starts processes that have p devices among them, in turn, and forms the clique of all devices.
func (w *world) spread(processes, p int) []*collective.Comm {
	w.group.Owners = make(map[serry.DeviceID]serry.TaskID)
	for d := range p {
		w.group.Owners[serry.DeviceID(d)] = life(d%processes, 0).Task
	}
	return ranksOf(w.clique(w.startAll(processes), devices(p)))
}

// A stock is memory for operations: private, or of an arena.
type stock struct {
	t     *testing.T
	arena *memory.Arena // or nil
	taken []memory.Region
}

func newStock(t *testing.T, size int64) *stock {
	a, err := memory.NewArena(size, memory.ArenaOptions{})
	if errors.Is(err, memory.ErrUnsupported) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	return &stock{t: t, arena: a}
}

// provide takes memory.
func (s *stock) provide(size int) memory.Region {
	if s == nil || s.arena == nil {
		return memory.Of(make([]byte, size))
	}
	r, err := s.arena.Alloc(int64(size))
	if err != nil {
		s.t.Error(err)
		return memory.Of(make([]byte, size))
	}
	s.taken = append(s.taken, r)
	return r
}

// empty gives all memory back.
func (s *stock) empty() {
	if s == nil {
		return
	}
	for _, r := range s.taken {
		s.arena.Free(r)
	}
	s.taken = nil
}

// likeSchedules runs every operation that goes through shared memory beside one of its schedules, and compares both with what the
// operation says. The operations follow each other without a pause, small ones and large ones mixed, in private memory and in arenas: those of the
// last rank are always in private memory, so all kinds meet.
func likeSchedules(t *testing.T, comms []*collective.Comm, sizes ...int) {
	t.Helper()
	p := len(comms)
	errs := each(comms, func(_ int, c *collective.Comm) error {
		arena, n := newStock(t, 32<<20), 0
		for _, size := range sizes {
			for _, x := range trial.All(p, size, p/2, uint64(p+size)) {
				for _, using := range []schedule.Algorithm{"", schedule.Algorithms(schedule.Op(x.Name))[0], ""} {
					memory := (*stock)(nil)
					if n++; n%3 > 0 && (c.Rank() < p-1 || n%3 == 2) {
						memory = arena
					}
					a := x.PrepareIn(c.Rank(), x.InPlace() && using == "", memory.provide)
					op := a.Op
					if using != "" {
						op = collective.Using{Op: op, Algorithm: string(using)}
					}
					if err := errors.Join(c.Do(t.Context(), op), a.Check()); err != nil {
						return fmt.Errorf("%s of %d bytes by %q on %d ranks: %w", x.Name, size, using, p, err)
					}
					arena.empty()
				}
			}
		}
		return nil
	})
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	for _, c := range comms {
		if !collective.Shares(c) {
			t.Fatalf("rank %d of %d uses no shared memory", c.Rank(), p)
		}
	}
}

// Operations through shared memory give what their schedules give, for any number of ranks in any number of processes: in one,
// where ranks read the memory of each other's operations, and in several, where they read segments.
func TestSharedLikeSchedules(t *testing.T) {
	clause.Cite(t, "CLT-DES-14", "CL-TRN-14", "CL-TRN-15", "CL-TRN-17", "CL-TRN-18", "CL-TRN-21", "CL-ALG-1")
	for _, p := range search.Pick([]int{2, 3, 4, 5, 8, 9, 17, 33}, []int{2, 3, 5, 33}) {
		for _, processes := range []int{1, 2, p} {
			if processes == p && p > 8 {
				continue
			}
			t.Run(fmt.Sprintf("ranks=%d/processes=%d", p, processes), func(t *testing.T) {
				onOneHost(t, func(t *testing.T, w *world) {
					sizes := []int{1, 700}
					if p <= 9 {
						sizes = append(sizes, 9001)
					}
					if p <= 4 {
						sizes = append(sizes, 600_001)
					}
					likeSchedules(t, w.spread(processes, p), sizes...)
				})
			})
		}
	}
}

// slope makes bytes that grow slowly. No other goroutine has them yet, so the race detector would find nothing here, at the cost of
// a call for each byte.
//
//go:norace
func slope(b []byte, start byte) {
	for i := range b {
		b[i] = byte(i/7) + start
	}
}

// Large results that are not reduced are stored past the caches, and are right.
func TestSharedPastCaches(t *testing.T) {
	clause.Cite(t, "CL-KRN-5")
	const size = 33<<20 + 5
	onOneHost(t, func(t *testing.T, w *world) {
		comms := w.spread(2, 2)
		errs := each(comms, func(rank int, c *collective.Comm) error {
			mine, got, all := make([]byte, size), make([]byte, size), make([]byte, 2*size)
			slope(mine, byte(100*rank))
			err := c.Do(t.Context(), collective.Broadcast{Out: memory.Of(got), In: memory.Of(mine), Count: size, Type: memory.U8, Root: 1})
			if err == nil {
				err = c.Do(t.Context(), collective.AllGather{Out: memory.Of(all), In: memory.Of(mine), Count: size, Type: memory.U8})
			}
			first, second := make([]byte, size), make([]byte, size)
			slope(first, 0)
			slope(second, 100)
			if !bytes.Equal(got, second) || !bytes.Equal(all[:size], first) || !bytes.Equal(all[size:], second) {
				return fmt.Errorf("rank %d has other bytes (%v)", rank, err)
			}
			return err
		})
		if err := errors.Join(errs...); err != nil {
			t.Error(err)
		}
	})
}

// The same between link layers that lend each other real segments.
func TestSharedSegments(t *testing.T) {
	clause.Cite(t, "CLT-DES-14", "CL-TRN-16", "CL-TRN-19", "CL-TRN-31")
	for _, row := range [][2]int{{2, 2}, {2, 3}} {
		w := &world{job: newJob(), t: t}
		likeSchedules(t, w.spread(row[0], row[1]), 1, 8192, 300_001)
	}
}

// A shared scenario is one in which something goes wrong just before the victim ends a phase of an operation through shared
// memory: what it has written for the phase is there, and no rank has been told.
type sharedScenario struct {
	scenario
	processes int
	arenas    bool // the memory of operations lies in arenas
}

// play plays the scenario, and judges what all ranks saw and what became of their memory.
func (s sharedScenario) play(t *testing.T) (struck bool, err error) {
	onOneHost(t, func(t *testing.T, w *world) {
		comms := w.spread(s.processes, s.ranks)
		works(t, comms, 100)
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		mine, giveUp := context.WithCancelCause(ctx)
		defer giveUp(nil)
		began := time.Now()
		victim := comms[s.victim]
		collective.AtPhase(victim, s.step, func() {
			struck, began = true, time.Now()
			if s.fault == cancels {
				giveUp(errors.New("enough"))
				return
			}
			w.kill(w.procs[s.victim%s.processes])
			for victim.Err() == nil { // it does nothing any more that others could see
				time.Sleep(time.Millisecond)
			}
		})
		outcomes, attempts := make([]outcome, s.ranks), make([]*trial.Attempt, s.ranks)
		stocks := make([]*stock, s.ranks)
		for r := range stocks {
			if s.arenas {
				stocks[r] = newStock(t, 16<<20)
			}
		}
		x := trials(s.ranks, s.size, s.ranks-1)[s.op]
		errs := each(comms, func(r int, c *collective.Comm) error {
			o, ctx := &outcomes[r], ctx
			if r == s.victim && s.fault == cancels {
				ctx = mine
			}
			for o.err == nil && o.succeeded < 20 {
				attempts[r] = x.PrepareIn(c.Rank(), x.InPlace(), stocks[r].provide)
				if o.err = c.Do(ctx, attempts[r].Op); o.err == nil {
					o.succeeded++
					if err := attempts[r].Check(); err != nil {
						return err
					}
					stocks[r].empty()
				}
			}
			o.at = time.Since(began)
			if o.err == nil {
				return nil
			}
			if ctx.Err() != nil && c.Err() == nil { // it gave up between two operations
				c.Revoke(o.err)
				o.err = c.Err()
			}
			if err := attempts[r].Poison(); err != nil && !x.InPlace() {
				return err
			}
			o.next = x.Run(context.WithoutCancel(ctx), c, false)
			return nil
		})
		if err = errors.Join(errs...); !struck || err != nil {
			return
		}
		err = s.judge(outcomes, w.procs)
		synctest.Wait()
		for r, a := range attempts {
			if a.Touched() {
				err = errors.Join(err, fmt.Errorf("memory of rank %d was written after its operation had failed", r))
			}
		}
	})
	if err != nil {
		err = fmt.Errorf("%+v: %w", s, err)
	}
	return struck, err
}

// A process is lost, or a rank gives up, at every phase of every operation through shared memory. Each live member gets the right
// data or the same typed error, none hangs, and no memory is touched after its error.
func TestFaultAtEveryPhase(t *testing.T) {
	clause.Cite(t, "CL-TRN-20", "CL-TRN-31", "CL-ABT-17", "CLT-ABT-13", "CLT-ABT-21", "CL-ERR-9", "CLT-DES-15")
	n, played, struck := 0, 0, 0
	every := (*every/8 + 1) * search.Pick(1, 5)
	for _, layout := range [][2]int{{2, 2}, {3, 3}, {2, 4}, {1, 3}} { // processes, ranks
		for op, x := range trials(2, 1, 0) {
			if !slices.Contains([]string{"allreduce", "reducescatter", "allgather", "broadcast", "barrier"}, x.Name) {
				continue
			}
			for _, size := range []int{sizeSmall, sizeLarge, sizeTiles} {
				for _, what := range []fault{kills, cancels} {
					if what == kills && layout[0] != layout[1] {
						continue // several ranks are lost
					}
					for victim := range layout[1] {
						for step := range 12 {
							if n++; n%every != 0 {
								continue
							}
							played++
							did, err := sharedScenario{scenario{layout[1], op, size, what, victim, step}, layout[0], played%2 == 0}.play(t)
							if err != nil {
								t.Fatalf("scenario %d: %v", n, err)
							}
							if did {
								struck++
							}
						}
					}
				}
			}
		}
	}
	t.Logf("%d scenarios, of which %d were played; the fault struck in %d", n, played, struck)
	if struck < played/2 {
		t.Errorf("the fault struck in %d of %d scenarios only", struck, played)
	}
}

// Where one process cannot lend its memory, none uses any.
func TestAllShareOrNone(t *testing.T) {
	clause.Cite(t, "CL-ALG-1", "CL-TRN-16", "CL-TRN-35")
	for what, change := range map[string]func(w *world){
		"another host": func(w *world) { w.link.Segments = new(link.Local) }, // not that of the others
		"links only":   func(w *world) { w.group.LinksOnly = true },
	} {
		onOneHost(t, func(t *testing.T, w *world) {
			w.startAll(2)
			change(w)
			w.start(life(2, 12))
			comms := w.clique(w.procs, devices(3))
			works(t, comms, 100)
			works(t, comms, 100_000)
			for _, c := range comms {
				if collective.Shares(c) {
					t.Errorf("%s: rank %d uses shared memory", what, c.Rank())
				}
			}
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			for _, p := range w.procs {
				for _, peer := range w.procs {
					if peer == p {
						continue
					}
					l, err := p.net.Link(t.Context(), peer.life)
					if err != nil {
						t.Fatal(err)
					}
					if _, err := l.Borrow(ended, comms[0].Stream()); err == nil {
						t.Errorf("%s: %v still has a segment of %v", what, p.life.Task, peer.life.Task)
					}
				}
			}
		})
	}
}
