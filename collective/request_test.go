package collective_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/collective"
	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/internal/lab/search"
	"github.com/serry-dev/serry/internal/lockrank"
)

type ids = []serry.DeviceID

// wants are the requests of a device for cliques.
func wants(t *testing.T, g *collective.Group, d serry.DeviceID, cliques ...ids) *collective.Requests {
	t.Helper()
	r := g.Requests(d)
	for i, c := range cliques {
		if n, err := r.Add(collective.Request{Devices: c}); err != nil || n != i {
			t.Fatalf("Add(%v) = %d, %v; want %d", c, n, err, i)
		}
	}
	return r
}

// in says which of the cliques a device is in.
func in(d serry.DeviceID, cliques ...ids) (list []ids) {
	for _, c := range cliques {
		if slices.Contains(c, d) {
			list = append(list, c)
		}
	}
	return list
}

func TestRequestsAreOrdered(t *testing.T) {
	clause.Cite(t, "CL-ORD-2", "CL-ORD-3", "CL-ORD-5", "CL-ORD-6", "CL-ORD-8", "CL-ACQ-10", "CLT-REQ-1", "CLT-REQ-3", "CLT-REQ-4")
	inBubble(t, func(t *testing.T, w *world) {
		g := w.start(life(2, 12)).Group
		r := wants(t, g, 2, ids{2, 3}, ids{2, 1}, ids{0, 1, 2, 3})
		var order []ids
		for _, q := range r.Order() {
			order = append(order, q.Devices)
		}
		if want := []ids{{0, 1, 2, 3}, {2, 3}, {2, 1}}; !slices.EqualFunc(order, want, slices.Equal[ids]) {
			t.Errorf("Order() = %v; want %v", order, want)
		}
		n, err := r.Add(collective.Request{Devices: ids{5, 2}, Groups: []ids{{9, 7}, {5, 2}, {3, 4}}})
		if err != nil || n != 3 {
			t.Fatalf("Add() = %d, %v; want 3", n, err)
		}
		if got, want := r.Order()[3].Groups, []ids{{2, 5}, {3, 4}, {7, 9}}; !slices.EqualFunc(got, want, slices.Equal[ids]) {
			t.Errorf("groups are %v; want %v", got, want)
		}
		if n, err := r.Add(collective.Request{Devices: ids{5, 2}, Groups: []ids{{4, 3}, {7, 9}, {2, 5}}}); err != nil || n != 3 {
			t.Errorf("Add() of the same groups = %d, %v; want 3", n, err)
		}
		if _, err := r.Add(collective.Request{Devices: ids{5, 2}, Groups: []ids{{2, 5}}}); !errors.Is(err, collective.ErrInvalid) || !strings.Contains(err.Error(), "different device groups") {
			t.Errorf("Add() of other groups = %v; want ErrInvalid", err)
		}
		for _, groups := range [][]ids{{{2}}, {{2}, {3}}} {
			if n, err := r.Add(collective.Request{Devices: ids{2}, Groups: groups}); err != nil || n != 4 {
				t.Errorf("Add() of one device = %d, %v; want 4", n, err)
			}
		}
		if _, err := r.Add(collective.Request{Devices: ids{0, 1}}); !errors.Is(err, collective.ErrFault) {
			t.Errorf("Add() of a clique without the device = %v; want ErrFault", err)
		}
		if _, err := r.Add(collective.Request{}); err == nil {
			t.Error("Add() of an empty clique = nil")
		}
	})
}

// Two processes acquire cliques, use them and find them again; the second time costs nothing.
func TestAcquire(t *testing.T) {
	clause.Cite(t, "CL-ORD-1", "CL-ACQ-3", "CL-ACQ-4", "CL-ACQ-13", "CL-LCK-1", "CLT-ACQ-1")
	onEach(t, func(t *testing.T, w *world) {
		procs := w.startAll(2)
		comms := make([][2]*collective.Comm, 2)
		requests := make([]*collective.Requests, 2)
		for run := range uint64(3) {
			errs := each(procs, func(i int, p *process) error {
				d := serry.DeviceID(i)
				if requests[i] == nil {
					requests[i] = wants(t, p.Group, d, ids{d}, ids{0, 1})
				}
				l, err := requests[i].Acquire(t.Context(), collective.Execution{ID: run + 1})
				if err != nil {
					return err
				}
				defer l.Release()
				x := []int64{int64(i + 1)}
				if err := errors.Join(collective.AllReduceSlice(t.Context(), l.Comm(0), x, x, collective.Sum), collective.AllReduceSlice(t.Context(), l.Comm(1), x, x, collective.Sum)); err != nil || x[0] != 3 {
					return fmt.Errorf("the sum is %v, %w", x, err)
				}
				if was := comms[i][1]; was != nil && was != l.Comm(1) {
					return errors.New("the clique was not found again")
				}
				comms[i] = [2]*collective.Comm{l.Comm(0), l.Comm(1)}
				return nil
			})
			if err := errors.Join(errs...); err != nil {
				t.Fatalf("run %d: %v", run, err)
			}
		}
		if l, ok := requests[0].TryAcquire(collective.Execution{ID: 9}); !ok {
			t.Error("TryAcquire() of free cliques = false")
		} else {
			if _, ok := wants(t, procs[0].Group, 0, ids{0}).TryAcquire(collective.Execution{ID: 10}); ok {
				t.Error("TryAcquire() of cliques that were never acquired = true")
			}
			if _, err := requests[0].Acquire(t.Context(), collective.Execution{ID: 11}); !errors.Is(err, collective.ErrInvalid) {
				t.Errorf("Acquire() of requests in use = %v; want ErrInvalid", err)
			}
			l.Release()
		}
		if _, err := requests[0].Acquire(t.Context(), collective.Execution{}); !errors.Is(err, collective.ErrInvalid) {
			t.Errorf("Acquire() of run 0 = %v; want ErrInvalid", err)
		}
		n := testing.AllocsPerRun(100, func() {
			l, err := requests[0].Acquire(context.Background(), collective.Execution{ID: 12})
			if err != nil {
				t.Fatal(err)
			}
			l.Release()
		})
		if n > 0 && !raceEnabled && !lockrank.Checked {
			t.Errorf("acquiring cliques again allocates %v times", n)
		}
	})
}

// one is a world whose devices are all in one process.
func one(w *world, n int) *process {
	w.group.Owners = make(map[serry.DeviceID]serry.TaskID)
	for d := range n {
		w.group.Owners[serry.DeviceID(d)] = life(0, 0).Task
	}
	return w.start(life(0, 10))
}

// Two programs that share cliques run at the same time, one goroutine for each device. Whatever the order in which their
// goroutines come, both end, and their operations do not mix.
func TestOverlappingPrograms(t *testing.T) {
	clause.Cite(t, "CL-ORD-9", "CL-ORD-14", "CL-ACQ-1", "CL-ACQ-2", "CLT-ACQ-5", "CLT-ACQ-8")
	programs := [][]ids{{{0, 1}, {0, 1, 2, 3}}, {{0, 1, 2, 3}, {1, 2}}}
	for interleaving := range 256 { // which of the two a device runs first, and who comes in which order
		inBubble(t, func(t *testing.T, w *world) {
			p := one(w, 4)
			var all sync.WaitGroup
			for device := range 4 {
				for program, cliques := range programs {
					late := interleaving >> (2*device + program) & 1
					all.Go(func() {
						time.Sleep(time.Duration(late) * time.Millisecond)
						d := serry.DeviceID(device)
						mine := in(d, cliques...)
						l, err := wants(t, p.Group, d, mine...).Acquire(t.Context(), collective.Execution{ID: uint64(program + 1), Participants: 4})
						if err != nil {
							t.Errorf("Acquire() = %v", err)
							return
						}
						defer l.Release()
						for i, c := range mine {
							x := []int32{int32(program + 1)}
							if err := collective.AllReduceSlice(t.Context(), l.Comm(i), x, x, collective.Sum); err != nil || x[0] != int32(len(c)*(program+1)) {
								t.Errorf("program %d, clique %v: %v, %v", program, c, x, err)
							}
						}
					})
				}
			}
			all.Wait()
		})
	}
}

// Runs that need one clique get it in the order in which they came, and one at a time.
func TestRunsAreServedInOrder(t *testing.T) {
	clause.Cite(t, "CL-LCK-1", "CL-LCK-4", "CLT-LCK-2", "CLT-LCK-3")
	inBubble(t, func(t *testing.T, w *world) {
		p := one(w, 3)
		var all sync.WaitGroup
		var order []int
		plain := 0
		for i := range 100 {
			all.Go(func() {
				time.Sleep(time.Duration(i) * time.Microsecond)
				list := []ids{{0, 1}}
				if i%3 == 1 {
					list = []ids{{0, 1}, {0, 2}}
				}
				l, err := wants(t, p.Group, 0, list...).Acquire(t.Context(), collective.Execution{ID: uint64(i + 1)})
				if err != nil {
					t.Errorf("Acquire() = %v", err)
					return
				}
				order = append(order, i)
				was := plain
				time.Sleep(time.Millisecond)
				plain = was + 1
				l.Release()
			})
		}
		all.Wait()
		if plain != 100 || !slices.IsSorted(order) {
			t.Errorf("%d runs had the clique for themselves, in the order %v", plain, order)
		}
	})
}

// A run that waits too long for a clique gets an error that names the holder, and holds nothing. Others of its run in
// this process get the same.
func TestAcquireGivesUp(t *testing.T) {
	clause.Cite(t, "CL-ACQ-12", "CLT-ACQ-7", "CL-RDV-10", "CL-RDV-11")
	inBubble(t, func(t *testing.T, w *world) {
		p := one(w, 4)
		held, err := wants(t, p.Group, 0, ids{0, 1}).Acquire(t.Context(), collective.Execution{ID: 1})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		errs := each([]serry.DeviceID{0, 1}, func(i int, d serry.DeviceID) error {
			mine := t.Context()
			if i == 0 {
				mine = ctx
			}
			_, err := wants(t, p.Group, d, in(d, ids{0, 1}, ids{0, 2}, ids{1, 3})...).Acquire(mine, collective.Execution{ID: 2, Participants: 2})
			return err
		})
		for i, err := range errs {
			if !errors.Is(err, collective.ErrTimeout) || !strings.Contains(err.Error(), "run 1 holds") {
				t.Errorf("device %d: Acquire() = %v; want a timeout that names run 1", i, err)
			}
		}
		if l, err := wants(t, p.Group, 0, ids{0, 2}).Acquire(t.Context(), collective.Execution{ID: 3}); err != nil {
			t.Errorf("Acquire() of a clique that no run got = %v", err)
		} else {
			l.Release()
		}
		held.Release()

		stop, giveUp := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { giveUp(errors.New("enough")) })
		errs = each([]serry.DeviceID{0, 1}, func(i int, d serry.DeviceID) error { // the third does not come
			mine := t.Context()
			if i == 0 {
				mine = stop
			}
			_, err := wants(t, p.Group, d, ids{0, 1}).Acquire(mine, collective.Execution{ID: 4, Participants: 3})
			return err
		})
		for i, err := range errs {
			if !errors.Is(err, collective.ErrCancelled) || !strings.Contains(err.Error(), "enough") {
				t.Errorf("device %d: Acquire() = %v; want that a participant gave up", i, err)
			}
		}
	})
}

// Health, revoke and abort do not need the lock, which a run may hold that is stuck.
func TestRevokeWithoutTheLock(t *testing.T) {
	clause.Cite(t, "CL-ABT-9", "CL-LCK-5", "CLT-LCK-4", "CL-ACQ-4")
	inBubble(t, func(t *testing.T, w *world) {
		procs := w.startAll(2)
		comms := w.clique(procs, devices(2))
		requests := wants(t, procs[0].Group, 0, ids{0, 1})
		l, err := requests.Acquire(t.Context(), collective.Execution{ID: 1})
		if err != nil {
			t.Fatal(err)
		}
		stuck := l.Comm(0).Start(t.Context(), collective.Barrier{}) // the other process does not come
		synctest.Wait()
		if err := comms[0].Err(); err != nil {
			t.Errorf("Err() = %v", err)
		}
		comms[0].Abort(errors.New("enough"))
		if err := stuck.Wait(); !errors.Is(err, collective.ErrCancelled) {
			t.Errorf("the stuck operation = %v; want ErrCancelled", err)
		}
		l.Release()
		synctest.Wait()                                     // the other process has heard of it
		errs := each(procs, func(i int, p *process) error { // a clique that has failed is formed anew
			r := requests
			if i == 1 {
				r = wants(t, p.Group, 1, ids{0, 1})
			}
			l, err := r.Acquire(t.Context(), collective.Execution{ID: 2})
			if err != nil {
				return err
			}
			defer l.Release()
			return l.Comm(0).Do(t.Context(), collective.Barrier{})
		})
		if err := errors.Join(errs...); err != nil {
			t.Errorf("the next run = %v", err)
		}
	})
}

// Processes that begin two runs in opposite orders are told, and do not compute with each other's data.
func TestRunsInOppositeOrder(t *testing.T) {
	clause.Cite(t, "CL-ORD-12", "CL-ORD-14")
	inBubble(t, func(t *testing.T, w *world) {
		procs := w.startAll(2)
		errs := each(procs, func(i int, p *process) error {
			l, err := wants(t, p.Group, serry.DeviceID(i), ids{0, 1}).Acquire(t.Context(), collective.Execution{ID: uint64(i + 1)})
			if err != nil {
				return err
			}
			defer l.Release()
			x := []byte{1}
			return l.Comm(0).Do(t.Context(), sum(x, []byte{1}))
		})
		for i, err := range errs {
			if e := failure(t, err); !errors.Is(e, collective.ErrMismatch) || !strings.Contains(e.Error(), "in run 1") || !strings.Contains(e.Error(), "in run 2") {
				t.Errorf("process %d: %v; want a mismatch of runs 1 and 2", i, err)
			}
		}
	})
}

// Two runs race for a clique that does not exist yet: it is formed once.
func TestRunsRaceForANewClique(t *testing.T) {
	clause.Cite(t, "CL-CRE-4", "CL-CRE-5", "CLT-ACQ-2", "CLT-ACQ-9", "CLT-OP-6")
	inBubble(t, func(t *testing.T, w *world) {
		var created atomic.Int32
		w.group.Backends = []collective.Backend{counting{collective.Host{}, &created}}
		p := one(w, 2)
		const goroutines, runs = 200, 10
		var all sync.WaitGroup
		for i := range goroutines / 2 {
			for d := range serry.DeviceID(2) {
				all.Go(func() {
					for run := range runs {
						l, err := wants(t, p.Group, d, ids{0, 1}).Acquire(t.Context(), collective.Execution{ID: uint64(i*runs + run + 1), Participants: 2})
						if err != nil {
							t.Errorf("Acquire() = %v", err)
							return
						}
						x := make([]float32, 1024)
						x[1023] = float32(d)
						if err := collective.AllReduceSlice(t.Context(), l.Comm(0), x, x, collective.Sum); err != nil || x[1023] != 1 {
							t.Errorf("the sum is %v, %v", x[1023], err)
						}
						l.Release()
					}
				})
			}
		}
		all.Wait()
		if created.Load() != 1 {
			t.Errorf("the clique was created %d times; want once", created.Load())
		}
	})
}

// Two runs race for a new clique, again and again: in the end there is one, and both runs have used it.
func TestRunsRaceAgainAndAgain(t *testing.T) {
	clause.Cite(t, "CL-CRE-4", "CL-ACQ-4", "CLT-ACQ-4")
	inBubble(t, func(t *testing.T, w *world) {
		var created atomic.Int32
		w.group.Backends = []collective.Backend{counting{collective.Host{}, &created}}
		p := one(w, 2)
		races := search.Pick(1000, 200)
		for race := range races {
			errs := each(make([]int, 4), func(i, _ int) error { // two runs, of two participants each
				d := serry.DeviceID(i % 2)
				r := p.Requests(d)
				if _, err := r.Add(collective.Request{Devices: ids{0, 1}, Traffic: uint64(race)}); err != nil {
					return err
				}
				l, err := r.Acquire(t.Context(), collective.Execution{ID: uint64(2*race + i/2 + 1), Participants: 2})
				if err != nil {
					return err
				}
				defer l.Release()
				x := []int32{int32(d) + 1}
				if err := collective.AllReduceSlice(t.Context(), l.Comm(0), x, x, collective.Sum); err != nil || x[0] != 3 {
					return fmt.Errorf("the sum is %v, %w", x, err)
				}
				return nil
			})
			if err := errors.Join(errs...); err != nil || created.Load() != int32(race+1) {
				t.Fatalf("race %d: %v; cliques created so far: %d; want one for each race", race, err, created.Load())
			}
		}
	})
}

// A counting backend counts the cliques that are created.
type counting struct {
	collective.Backend
	created *atomic.Int32
}

func (b counting) Create(ctx context.Context, k *collective.Key, local []int) ([]collective.Communicator, error) {
	b.created.Add(1)
	return b.Backend.Create(ctx, k, local)
}
