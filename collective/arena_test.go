package collective_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/serry-dev/serry/collective"
	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/memory"
)

// sumIn is an all-reduce in place of ones, in memory of a stock.
func sumIn(ctx context.Context, c *collective.Comm, s *stock, size int) error {
	r := s.provide(size)
	copy(r.Bytes(), bytes.Repeat([]byte{1}, size))
	err := c.Do(ctx, collective.AllReduce{Out: r, In: r, Count: int64(size), Type: memory.U8, Reduction: collective.Sum})
	if err == nil && !bytes.Equal(r.Bytes(), bytes.Repeat([]byte{byte(c.Size())}, size)) {
		err = fmt.Errorf("rank %d has a wrong sum", c.Rank())
	}
	return err
}

// A program makes arenas and closes them again: the other processes let go of those that were closed. It keeps more of them open than
// are lent: memory of the others is staged. Between link layers in one process, and with real segments.
func TestArenasComeAndGo(t *testing.T) {
	clause.Cite(t, "CL-TRN-18", "CL-DES-8")
	play := func(t *testing.T, w *world) {
		comms := w.spread(2, 2)
		errs := each(comms, func(_ int, c *collective.Comm) error {
			for i := range 40 {
				s := newStock(t, 1<<20)
				if err := sumIn(t.Context(), c, s, 100_001); err != nil {
					return fmt.Errorf("arena %d: %w", i, err)
				}
				if n := collective.BorrowedArenas(c); n < 1 || n > 2 {
					return fmt.Errorf("with arena %d, %d are mapped; want the present one, and perhaps the one before", i, n)
				}
				s.arena.Close()
			}
			for i := range 20 {
				if err := sumIn(t.Context(), c, newStock(t, 1<<20), 100_001); err != nil {
					return fmt.Errorf("open arena %d: %w", i, err)
				}
			}
			if n := collective.BorrowedArenas(c); n > 16 {
				return fmt.Errorf("%d arenas are mapped; want at most 16", n)
			}
			return nil
		})
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	}
	onOneHost(t, play)
	play(t, &world{job: newJob(), t: t})
}

// A rank names memory that it has not lent, or that no arena has: the clique ends, and no process is harmed.
func TestLiesAboutMemory(t *testing.T) {
	clause.Cite(t, "CL-TRN-18", "CL-TRN-31")
	for _, lie := range []struct {
		slot   int
		offset int64
	}{{3, 0}, {40, 0}, {0, 1 << 40}, {0, 2<<20 - 100_000}, {1<<16 - 2, 1<<48 - 1}} {
		onOneHost(t, func(t *testing.T, w *world) {
			comms := w.spread(3, 3)
			stocks := []*stock{newStock(t, 2<<20), newStock(t, 2<<20), newStock(t, 2<<20)}
			errs := each(comms, func(i int, c *collective.Comm) error { return sumIn(t.Context(), c, stocks[i], 100_001) })
			if err := errors.Join(errs...); err != nil {
				t.Fatal(err)
			}
			collective.AtPhase(comms[1], 0, func() { collective.LieAboutMemory(comms[1], lie.slot, lie.offset) })
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			errs = each(comms, func(i int, c *collective.Comm) error { return sumIn(ctx, c, stocks[i], 100_001) })
			for rank, err := range errs {
				if !errors.Is(err, collective.ErrFault) {
					t.Errorf("%+v: rank %d: %v; want ErrFault", lie, rank, err)
				}
			}
		})
	}
}
