package collective_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/serry-dev/serry/collective"
	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/internal/lab/trial"
	"github.com/serry-dev/serry/internal/lockrank"
	"github.com/serry-dev/serry/link"
)

// Operations between ranks of one process allocate nothing, once they have run a few times. The program keeps its Op values.
func TestOperationsInsideAProcessAllocateNothing(t *testing.T) {
	clause.Cite(t, "CL-DES-1", "CLT-OP-45")
	if raceEnabled || lockrank.Checked {
		t.Skip("what checks the program allocates")
	}
	for _, p := range []int{2, 3, 8} {
		t.Run(fmt.Sprintf("ranks=%d", p), func(t *testing.T) {
			w := overSockets(t)
			comms := ranksOf(w.clique([]*process{one(w, p)}, devices(p)))
			for _, size := range []int{1, 9000} {
				for _, x := range trial.All(p, size, 1, 0) {
					allocatesNothing(t, comms, x, size)
				}
			}
		})
	}
}

// Nor do those that processes of one host carry out in shared memory. The others go over links, which allocate.
func TestOperationsThroughSharedMemoryAllocateNothing(t *testing.T) {
	clause.Cite(t, "CLT-OP-45")
	if raceEnabled || lockrank.Checked {
		t.Skip("what checks the program allocates")
	}
	for _, p := range []int{2, 3} {
		t.Run(fmt.Sprintf("ranks=%d", p), func(t *testing.T) {
			w := overSockets(t)
			w.link.Segments, w.group.Host = new(link.Local), "one"
			comms := w.clique(w.startAll(p), devices(p))
			for _, size := range []int{1, 9000} {
				for _, x := range trial.All(p, size, 1, 0) {
					if slices.Contains([]string{"allreduce", "reducescatter", "allgather", "broadcast", "barrier"}, x.Name) {
						allocatesNothing(t, comms, x, size)
					}
				}
			}
			if !collective.Shares(comms[0]) {
				t.Error("the ranks share no memory")
			}
		})
	}
}

// allocatesNothing runs an operation again and again, and checks that it allocates nothing.
func allocatesNothing(t *testing.T, comms []*collective.Comm, x trial.Trial, size int) {
	t.Helper()
	const times, first = 100, 20
	var allocated float64
	errs := each(comms, func(rank int, c *collective.Comm) (err error) {
		op := x.Prepare(rank, false).Op
		run := func() { err = errors.Join(err, c.Do(t.Context(), op)) }
		for range first {
			run()
		}
		if rank == 0 {
			allocated = testing.AllocsPerRun(times, run)
			return err
		}
		for range times + 1 {
			run()
		}
		return err
	})
	if err := errors.Join(errs...); err != nil || allocated > 0 {
		t.Errorf("%s of %d bytes on %d ranks allocates %v times, error %v; want 0", x.Name, size, len(comms), allocated, err)
	}
}
