package collective_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/serry-dev/serry/collective"
	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/internal/lab/search"
	"github.com/serry-dev/serry/internal/lab/trial"
	"github.com/serry-dev/serry/internal/schedule"
	"github.com/serry-dev/serry/memory"
)

// everyAlgorithm runs all operations by all of their algorithms on the ranks of a clique.
func everyAlgorithm(t *testing.T, comms []*collective.Comm, skip schedule.Algorithm, sizes ...int) {
	t.Helper()
	p := len(comms)
	for _, size := range sizes {
		for _, x := range trial.All(p, size, p/2, uint64(p+size)) {
			for _, a := range schedule.Algorithms(schedule.Op(x.Name)) {
				if a == skip {
					continue
				}
				errs := each(comms, func(_ int, c *collective.Comm) error {
					attempt := x.Prepare(c.Rank(), false)
					if err := c.Do(t.Context(), collective.Using{Op: attempt.Op, Algorithm: string(a)}); err != nil {
						return err
					}
					return attempt.Check()
				})
				if err := errors.Join(errs...); err != nil {
					t.Fatalf("%s of %d bytes by %s on %d ranks: %v", x.Name, size, a, p, err)
				}
			}
		}
	}
}

// Inside one process every algorithm of every operation gives what the operation says, for any number of ranks.
func TestEveryAlgorithmInOneProcess(t *testing.T) {
	clause.Cite(t, "CLT-DES-14", "CLT-OP-38", "CL-ALG-2")
	for p := 1; p <= 33; p += search.Pick(1, 4) {
		inBubble(t, func(t *testing.T, w *world) {
			everyAlgorithm(t, ranksOf(w.clique([]*process{one(w, p)}, devices(p))), schedule.TwoLevel, 1, p+5)
		})
	}
}

// Between processes, too, on even hosts as well as over sockets.
func TestEveryAlgorithmBetweenProcesses(t *testing.T) {
	clause.Cite(t, "CLT-OP-38", "CL-ALG-2")
	onEach(t, func(t *testing.T, w *world) {
		for i, host := range []string{"a", "a", "b", "b"} {
			w.group.Host = host
			w.start(life(i, uint64(10+i)))
		}
		everyAlgorithm(t, w.clique(w.procs, devices(4)), "", 0, 3, 30_001)
	})
}

// An algorithm that the operation does not have is refused, and members that name different ones are told so.
func TestAlgorithmsAreChecked(t *testing.T) {
	clause.Cite(t, "CL-ALG-2", "CL-ERR-10", "CL-ORD-12", "CL-OP-6")
	onEach(t, func(t *testing.T, w *world) {
		comms := w.clique(w.startAll(3), devices(3))
		b := func() memory.Region { return memory.Of(make([]byte, 30)) }
		sum := collective.AllReduce{In: b(), Out: b(), Count: 30, Type: memory.U8, Reduction: collective.Sum}
		for _, op := range []collective.Op{
			collective.Using{Op: sum, Algorithm: "bruck"},
			collective.Using{Op: sum},
			collective.Using{Op: sum, Algorithm: "two-level"}, // each rank is on a host of its own, or all on one
			collective.Using{Op: collective.Permute{In: b(), Out: b(), Count: 3, Type: memory.U8}, Algorithm: "ring"},
			collective.Using{Op: collective.Send{In: b(), Count: 3, Type: memory.U8, To: 1}, Algorithm: "direct"},
			collective.Using{Op: collective.Quiet{}, Algorithm: "direct"},
			collective.Using{Op: collective.AllReduce{Count: -1}, Algorithm: "ring"},
		} {
			if err := comms[0].Do(t.Context(), op); !errors.Is(err, collective.ErrInvalid) {
				t.Errorf("Do(%+v) = %v; want ErrInvalid", op, err)
			}
		}
		names := []string{"ring", "direct", "ring"}
		errs := each(comms, func(r int, c *collective.Comm) error {
			err := c.Do(t.Context(), collective.Using{Op: collective.AllReduce{In: b(), Out: b(), Count: 30, Type: memory.U8, Reduction: collective.Sum}, Algorithm: names[r]})
			if err == nil {
				err = c.Do(t.Context(), collective.Barrier{})
			}
			return err
		})
		for r, err := range errs {
			if !errors.Is(err, collective.ErrMismatch) || !strings.Contains(err.Error(), "using direct") || !strings.Contains(err.Error(), "using ring") {
				t.Errorf("rank %d: %v; want a mismatch that names both algorithms", r, err)
			}
		}
	})
}
