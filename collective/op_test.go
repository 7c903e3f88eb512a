package collective_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/collective"
	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/internal/lab/trial"
	"github.com/serry-dev/serry/memory"
)

// trials are all operations on p ranks and count bytes.
func trials(p, count, root int) []trial.Trial {
	return append(trial.All(p, count, root, 0), trial.OneSided(p, count, 0))
}

// counts are sizes around those where something changes: nothing, fewer than ranks, uneven, small and large messages,
// several tiles.
func counts(p int) []int { return []int{0, 1, p - 1, p + 1, 1021, 9000, 100_003} }

// Every operation gives the right result, in place and out of place, for counts that are not divisible by the number
// of ranks.
func TestOperations(t *testing.T) {
	clause.Cite(t, "CL-OP-1", "CL-OP-2", "CL-OP-3", "CL-OP-10", "CL-OP-11", "CL-OP-12", "CL-OP-13", "CL-OP-15", "CL-OP-16", "CL-OP-19",
		"CL-OP-20", "CL-ALG-4", "CL-ERR-6", "CLT-OP-40", "CL-TRN-11")
	onEach(t, func(t *testing.T, w *world) {
		for p := 1; p <= 5; p++ {
			procs := w.procs
			if len(procs) < p {
				w.start(life(p-1, uint64(9+p)))
				procs = w.procs
			}
			comms := w.clique(procs[:p], devices(p))
			for _, count := range counts(p) {
				for _, x := range trials(p, count, p-1) {
					for _, inPlace := range []bool{false, true} {
						if inPlace && !x.InPlace() {
							continue
						}
						errs := each(comms, func(_ int, c *collective.Comm) error { return x.Run(t.Context(), c, inPlace) })
						if err := errors.Join(errs...); err != nil {
							t.Fatalf("%d ranks, %d bytes, in place %v: %v", p, count, inPlace, err)
						}
					}
				}
			}
		}
	})
}

// Large vectors are cut into tiles that are in different rounds at the same time.
func TestTiles(t *testing.T) {
	clause.Cite(t, "CL-OP-10", "CL-ALG-4")
	onEach(t, func(t *testing.T, w *world) {
		const p = 3
		comms := w.clique(w.startAll(p), devices(p))
		for _, count := range []int{2<<20 + 13} {
			for _, x := range trials(p, count, 1) {
				errs := each(comms, func(_ int, c *collective.Comm) error { return x.Run(t.Context(), c, x.InPlace()) })
				if err := errors.Join(errs...); err != nil {
					t.Fatalf("%d bytes: %v", count, err)
				}
			}
		}
	})
}

// Several devices of one process are ranks of their own, which need no link among themselves.
func TestSeveralDevicesOfAProcess(t *testing.T) {
	clause.Cite(t, "CL-TRN-11", "CL-KEY-1")
	onEach(t, func(t *testing.T, w *world) {
		w.group.Owners = make(map[serry.DeviceID]serry.TaskID)
		for d := range 5 {
			w.group.Owners[serry.DeviceID(d)] = life(d%2, 0).Task
		}
		order := []serry.DeviceID{4, 1, 0, 3, 2}
		var ranks []*collective.Comm
		for _, c := range w.clique(w.startAll(2), order) {
			ranks = append(ranks, c.Local()...)
		}
		slices.SortFunc(ranks, func(a, b *collective.Comm) int { return a.Rank() - b.Rank() })
		if len(ranks) != 5 {
			t.Fatalf("%d ranks in both processes; want 5", len(ranks))
		}
		for _, count := range []int{7, 9000, 100_003, 700_001} {
			for _, x := range trials(5, count, 2) {
				errs := each(ranks, func(_ int, c *collective.Comm) error { return x.Run(t.Context(), c, false) })
				if err := errors.Join(errs...); err != nil {
					t.Fatalf("%d bytes: %v", count, err)
				}
			}
		}
	})
}

// Blocks may have counts of their own.
func TestUnevenBlocks(t *testing.T) {
	clause.Cite(t, "CL-OP-21")
	inBubble(t, func(t *testing.T, w *world) {
		const p = 4
		comms := w.clique(w.startAll(p), devices(p))
		blocks := []int64{5, 0, 70_001, 3}
		start := []int64{0, 5, 5, 70_006, 70_009}
		vector := func(rank int) []byte { return fill(70_009, uint64(rank)) }
		sum := vector(0)
		for r := 1; r < p; r++ {
			for i, b := range vector(r) {
				sum[i] += b
			}
		}
		errs := each(comms, func(r int, c *collective.Comm) error {
			mine := sum[start[r]:start[r+1]]
			got := make([]byte, len(mine))
			if err := c.Do(t.Context(), collective.ReduceScatter{Out: memory.Of(got), In: memory.Of(vector(r)), Counts: blocks,
				Type: memory.U8, Reduction: collective.Sum}); err != nil || !bytes.Equal(got, mine) {
				return fmt.Errorf("reduce-scatter on rank %d: %v", r, err)
			}
			all := make([]byte, len(sum))
			if err := c.Do(t.Context(), collective.AllGather{Out: memory.Of(all), In: memory.Of(got), Counts: blocks, Type: memory.U8}); err != nil || !bytes.Equal(all, sum) {
				return fmt.Errorf("all-gather on rank %d: %v", r, err)
			}
			return nil
		})
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	})
}

// Many operations of one communicator are under way at once, and each gets its own result.
func TestStart(t *testing.T) {
	clause.Cite(t, "CL-ERR-1", "CL-DES-2", "CLT-OP-37")
	onEach(t, func(t *testing.T, w *world) {
		const p, n = 3, 60
		comms := w.clique(w.startAll(p), devices(p))
		errs := each(comms, func(r int, c *collective.Comm) error {
			var futures []*collective.Future
			var outs [][]byte
			for i := range n {
				in, out := bytes.Repeat([]byte{byte(i)}, 1+i*i*10), make([]byte, 1+i*i*10)
				futures = append(futures, c.Start(t.Context(), sum(out, in)))
				outs = append(outs, out)
			}
			for i := n - 1; i >= 0; i-- {
				<-futures[i].Done()
				if err := futures[i].Wait(); err != nil || !bytes.Equal(outs[i], bytes.Repeat([]byte{byte(p * i)}, len(outs[i]))) {
					return fmt.Errorf("operation %d on rank %d: %v", i, r, err)
				}
			}
			return nil
		})
		if err := errors.Join(errs...); err != nil {
			t.Error(err)
		}
	})
}
