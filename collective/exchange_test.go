package collective_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/collective"
	"github.com/serry-dev/serry/internal/lab/clause"
)

// inOneProcess is the communicators of a clique of n ranks that are all in one process.
func inOneProcess(w *world, n int) []*collective.Comm {
	w.t.Helper()
	w.group.Owners = make(map[serry.DeviceID]serry.TaskID)
	for _, d := range devices(n) {
		w.group.Owners[d] = life(0, 0).Task
	}
	return w.clique(w.startAll(1), devices(n))[0].Local()
}

// unique must not be copied.
type unique struct {
	sync.Mutex
	rank int
}

// Ranks of one process read what the others gave, as often as they like, and each gets the very value.
func TestExchange(t *testing.T) {
	clause.Cite(t, "CL-RDV-14", "CLT-RDV-10")
	for _, p := range []int{1, 2, 3} {
		inBubble(t, func(t *testing.T, w *world) {
			comms := inOneProcess(w, p)
			mine := make([]unique, p)
			errs := each(comms, func(r int, c *collective.Comm) error {
				mine[r].rank = r
				for round := range 20 {
					values, err := c.Exchange(t.Context(), &mine[r])
					if err != nil {
						return err
					}
					for from := range p {
						if v, err := collective.ValueOf[*unique](values, from); err != nil || v != &mine[from] {
							return fmt.Errorf("round %d: ValueOf(%d) = %p, %v; want %p", round, from, v, err, &mine[from])
						}
					}
				}
				return nil
			})
			if err := errors.Join(errs...); err != nil {
				t.Errorf("%d ranks: Exchange() = %v", p, err)
			}
			works(t, comms, 1000) // exchanges take no number of an operation
		})
	}
}

// A rank that gave nothing, a rank that does not exist, and a value of another type.
func TestExchangedValues(t *testing.T) {
	clause.Cite(t, "CL-RDV-14", "CLT-RDV-10")
	inBubble(t, func(t *testing.T, w *world) {
		comms := inOneProcess(w, 3)
		gifts := []any{7, "seven", nil}
		var values *collective.Values
		errs := each(comms, func(r int, c *collective.Comm) error {
			v, err := c.Exchange(t.Context(), gifts[r])
			if r == 0 {
				values = v
			}
			return err
		})
		if err := errors.Join(errs...); err != nil {
			t.Fatalf("Exchange() = %v", err)
		}
		if v, err := collective.ValueOf[string](values, 1); err != nil || v != "seven" {
			t.Errorf("ValueOf(1) = %q, %v", v, err)
		}
		if v, err := collective.ValueOf[fmt.Stringer](values, 0); !errors.Is(err, collective.ErrInvalid) || !strings.Contains(err.Error(), "rank 0 gave a int, not a fmt.Stringer") {
			t.Errorf("ValueOf of another type = %v, %v; want ErrInvalid", v, err)
		}
		for _, rank := range []int{2, 3, -1} {
			if v, err := collective.ValueOf[int](values, rank); !errors.Is(err, serry.ErrNotFound) || v != 0 {
				t.Errorf("ValueOf(%d) = %v, %v; want ErrNotFound", rank, v, err)
			}
		}
	})
}

// The ranks of a clique that spans processes cannot exchange values.
func TestExchangeAcrossProcesses(t *testing.T) {
	clause.Cite(t, "CL-KEY-7", "CL-RDV-14", "CLT-RDV-10")
	inBubble(t, func(t *testing.T, w *world) {
		comms := w.clique(w.startAll(2), devices(2))
		if _, err := comms[0].Exchange(t.Context(), 1); !errors.Is(err, collective.ErrInvalid) || !strings.Contains(err.Error(), "non-local") {
			t.Errorf("Exchange() = %v; want ErrInvalid with the word non-local", err)
		}
		works(t, comms, 1000)
	})
}

// One rank gives up: the other, which comes late, hears of it, and the next exchange succeeds. Then the clique ends, and the rank that
// waits hears of that.
func TestExchangeEnds(t *testing.T) {
	clause.Cite(t, "CL-RDV-14", "CL-RDV-11")
	inBubble(t, func(t *testing.T, w *world) {
		comms := inOneProcess(w, 2)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for rank, ctx := range []context.Context{ctx, t.Context()} {
			if _, err := comms[rank].Exchange(ctx, 1); !errors.Is(err, collective.ErrTimeout) {
				t.Errorf("Exchange() of rank %d = %v; want ErrTimeout", rank, err)
			}
		}
		if _, err := comms[0].Exchange(ctx, 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Exchange() after its deadline = %v; want that it is withdrawn", err)
		}
		exchange := func(_ int, c *collective.Comm) error { _, err := c.Exchange(t.Context(), 1); return err }
		if err := errors.Join(each(comms, exchange)...); err != nil {
			t.Errorf("the next Exchange() = %v", err)
		}
		waits := make(chan error)
		go func() { waits <- exchange(0, comms[0]) }()
		synctest.Wait()
		comms[1].Revoke(errors.New("enough"))
		for _, err := range []error{<-waits, exchange(1, comms[1])} {
			if e := failure(t, err); !errors.Is(e, collective.ErrCancelled) || e.Origin != 1 {
				t.Errorf("Exchange() of a clique that has ended = %v; want that of rank 1", err)
			}
		}
	})
}
