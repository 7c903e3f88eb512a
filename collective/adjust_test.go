package collective_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/serry-dev/serry/collective"
	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/memory"
)

// everyWay runs a test in virtual time on p ranks: over links, through segments, and in one process.
func everyWay(t *testing.T, p int, f func(t *testing.T, comms []*collective.Comm)) {
	t.Helper()
	inBubble(t, func(t *testing.T, w *world) { f(t, w.spread(p, p)) })
	onOneHost(t, func(t *testing.T, w *world) { f(t, w.spread(p, p)) })
	onOneHost(t, func(t *testing.T, w *world) { f(t, w.spread(1, p)) })
}

// A sumCase is what each rank gives, and what all must have then. Vectors have as many elements as there are ranks, times per.
type sumCase[T memory.Number] struct {
	kind      memory.DType
	reduction collective.Reduction
	wrap      func(rank int, op collective.Op) collective.Op
	in        func(rank int) []T
	want      []T
}

// check runs an all-reduce in place and out of place, a reduce-scatter and a reduce.
func (s sumCase[T]) check(t *testing.T, c *collective.Comm) error {
	p, rank := c.Size(), c.Rank()
	n, per := int64(len(s.want)), int64(len(s.want)/p)
	in, out, same := s.in(rank), make([]T, n), s.in(rank)
	part := make([]T, per)
	root := make([]T, n)
	region := memory.OfSlice[T]
	for _, op := range []collective.Op{
		collective.AllReduce{Out: region(out), In: region(in), Count: n, Type: s.kind, Reduction: s.reduction},
		collective.AllReduce{Out: region(same), In: region(same), Count: n, Type: s.kind, Reduction: s.reduction},
		collective.ReduceScatter{Out: region(part), In: region(in), Count: per, Type: s.kind, Reduction: s.reduction},
		collective.Reduce{Out: region(root), In: region(in), Count: n, Type: s.kind, Reduction: s.reduction, Root: 1},
	} {
		if err := c.Do(t.Context(), s.wrap(rank, op)); err != nil {
			return fmt.Errorf("%T: %w", op, err)
		}
	}
	for what, ok := range map[string]bool{
		"input": slices.Equal(in, s.in(rank)), "all-reduce": slices.Equal(out, s.want), "all-reduce in place": slices.Equal(same, s.want),
		"reduce-scatter": slices.Equal(part, s.want[rank*int(per):][:per]), "reduce": rank != 1 || slices.Equal(root, s.want),
	} {
		if !ok {
			return fmt.Errorf("%s of %v on rank %d of %d is wrong: %v, %v, %v, %v; want %v", what, s.kind, rank, p, out, same, part, root, s.want)
		}
	}
	return nil
}

func (s sumCase[T]) run(t *testing.T, comms []*collective.Comm) {
	t.Helper()
	if err := errors.Join(each(comms, func(_ int, c *collective.Comm) error { return s.check(t, c) })...); err != nil {
		t.Error(err)
	}
}

func plain(_ int, op collective.Op) collective.Op { return op }

// An average is the sum divided by the number of ranks; that of integers loses its fraction, towards zero.
func TestAverage(t *testing.T) {
	clause.Cite(t, "CL-RED-6")
	everyWay(t, 3, func(t *testing.T, comms []*collective.Comm) {
		sumCase[int8]{memory.S8, collective.Average, plain, func(r int) []int8 { return []int8{int8(r), -4, -int8(r)} }, []int8{1, -4, -1}}.run(t, comms)
		sumCase[uint64]{memory.U64, collective.Average, plain, func(r int) []uint64 { return []uint64{5, uint64(r), 1 << 60} }, []uint64{5, 1, 1 << 60}}.run(t, comms)
		sumCase[int32]{memory.S32, collective.Average, plain, func(r int) []int32 { return []int32{-5, 0, int32(-r * r)} }, []int32{-5, 0, -1}}.run(t, comms)
		sumCase[float32]{memory.F32, collective.Average, plain, func(r int) []float32 { return []float32{float32(r), 1, -2} }, []float32{1, 1, -2}}.run(t, comms)
		sumCase[float64]{memory.F64, collective.Average, plain, func(r int) []float64 { return []float64{float64(r) / 3, 1, 0} }, []float64{1. / 3, 1, 0}}.run(t, comms)
		sumCase[complex64]{memory.C64, collective.Average, plain, func(r int) []complex64 { return []complex64{complex(float32(r), 3), 0, 1} }, []complex64{1 + 3i, 0, 1}}.run(t, comms)
		// 1.5 as bf16, and 2 to 4
		sumCase[uint16]{memory.BF16, collective.Average, plain, func(r int) []uint16 { return []uint16{0x3FC0, bf16(float32(2 + r)), 0} }, []uint16{0x3FC0, bf16(3), 0}}.run(t, comms)
	})
}

// bf16 is a number that the type has.
func bf16(f float32) uint16 { return uint16(math.Float32bits(f) >> 16) }

// Each rank gives a multiple of its vector, and keeps the vector unless it is reduced in place.
func TestScaled(t *testing.T) {
	clause.Cite(t, "CL-RED-6")
	by := func(r int, op collective.Op) collective.Op { return collective.Scaled{Op: op, Factor: float64(r + 1)} }
	everyWay(t, 3, func(t *testing.T, comms []*collective.Comm) {
		sumCase[float32]{memory.F32, collective.Sum, by, func(r int) []float32 { return []float32{1, float32(r), 0.5} }, []float32{6, 8, 3}}.run(t, comms)
		sumCase[int16]{memory.S16, collective.Sum, by, func(r int) []int16 { return []int16{1, int16(r), -7} }, []int16{6, 8, -42}}.run(t, comms)
		sumCase[uint16]{memory.BF16, collective.Average, by, func(int) []uint16 { return []uint16{bf16(1), bf16(0.5), 0} }, []uint16{bf16(2), bf16(1), 0}}.run(t, comms)
		sumCase[complex128]{memory.C128, collective.Sum, by, func(int) []complex128 { return []complex128{1i, 2, 0} }, []complex128{6i, 12, 0}}.run(t, comms)
	})
}

// Floats of 16 bits that are kept as 32 bits between the ranks are rounded once, also where a ring would round them at every rank.
func TestAccumulateF32(t *testing.T) {
	clause.Cite(t, "CL-RED-5")
	const p = 5
	keep := func(_ int, op collective.Op) collective.Op { return collective.AccumulateF32{Op: op} }
	twice := func(_ int, op collective.Op) collective.Op {
		return collective.AccumulateF32{Op: collective.Scaled{Op: op, Factor: 2}}
	}
	// 256 + 4 times 0.75 is 259, which bf16 has as 260. Rounded after every sum, it stays 256.
	in := func(r int) []uint16 {
		if r == 0 {
			return slices.Repeat([]uint16{bf16(256)}, 2*p)
		}
		return slices.Repeat([]uint16{bf16(0.75)}, 2*p)
	}
	everyWay(t, p, func(t *testing.T, comms []*collective.Comm) {
		sumCase[uint16]{memory.BF16, collective.Sum, keep, in, slices.Repeat([]uint16{bf16(260)}, 2*p)}.run(t, comms)
		sumCase[uint16]{memory.BF16, collective.Sum, twice, in, slices.Repeat([]uint16{bf16(520)}, 2*p)}.run(t, comms)
		ring := func(_ int, op collective.Op) collective.Op {
			if _, ok := op.(collective.Reduce); ok {
				return collective.AccumulateF32{Op: op}
			}
			return collective.Using{Op: collective.AccumulateF32{Op: op}, Algorithm: "ring"}
		}
		sumCase[uint16]{memory.BF16, collective.Sum, ring, in, slices.Repeat([]uint16{bf16(260)}, 2*p)}.run(t, comms)
	})
}

// Sums in the order of ranks have the same bits wherever the ranks are, and however long the vector is.
func TestOrdered(t *testing.T) {
	clause.Cite(t, "CL-OP-7")
	for _, p := range []int{2, 3, 5} {
		for _, per := range []int{7, 9000} {
			in := func(rank int) []float32 {
				random := rand.New(rand.NewPCG(uint64(rank), 1))
				v := make([]float32, per*p)
				for i := range v {
					v[i] = float32(random.NormFloat64() * math.Exp(10*random.Float64()))
				}
				return v
			}
			want := in(0)
			for r := 1; r < p; r++ {
				for i, v := range in(r) {
					want[i] += v
				}
			}
			order := func(_ int, op collective.Op) collective.Op {
				if _, ok := op.(collective.Reduce); ok {
					return collective.Broadcast{Out: memory.OfSlice(make([]float32, 1)), In: memory.OfSlice(make([]float32, 1)), Count: 1, Type: memory.F32}
				}
				return collective.Ordered{Op: op}
			}
			everyWay(t, p, func(t *testing.T, comms []*collective.Comm) {
				errs := each(comms, func(_ int, c *collective.Comm) error {
					s := sumCase[float32]{memory.F32, collective.Sum, order, in, want}
					if c.Rank() == 1 { // the root of the reduce that is left out
						s.wrap = func(rank int, op collective.Op) collective.Op {
							if r, ok := op.(collective.Reduce); ok {
								copy(r.Out.Bytes(), memory.OfSlice(want).Bytes())
							}
							return order(rank, op)
						}
					}
					return s.check(t, c)
				})
				if err := errors.Join(errs...); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// What cannot be adjusted is refused, and the clique stays whole. Ranks that do not ask for the same get an error that says so.
func TestBadAdjustments(t *testing.T) {
	clause.Cite(t, "CL-RED-5", "CL-RED-6", "CL-OP-7")
	b := memory.Of(make([]byte, 64))
	sums := func(k memory.DType, r collective.Reduction) collective.Op {
		return collective.AllReduce{Out: b, In: b, Count: 4, Type: k, Reduction: r}
	}
	inBubble(t, func(t *testing.T, w *world) {
		comms := w.spread(2, 2)
		for _, op := range []collective.Op{
			sums(memory.PRED, collective.Average), sums(memory.S4, collective.Average),
			collective.Scaled{Op: sums(memory.F32, collective.Max), Factor: 2},
			collective.Scaled{Op: sums(memory.S32, collective.Sum), Factor: 0.5},
			collective.Scaled{Op: sums(memory.U8, collective.Sum), Factor: -1},
			collective.Scaled{Op: sums(memory.S8, collective.Sum), Factor: 128},
			collective.Scaled{Op: collective.Barrier{}, Factor: 2},
			collective.AccumulateF32{Op: sums(memory.F32, collective.Sum)},
			collective.AccumulateF32{Op: collective.AllGather{Out: b, In: b.Slice(0, 8), Count: 4, Type: memory.BF16}},
			collective.Ordered{Op: collective.Reduce{Out: b, In: b, Count: 4, Type: memory.F32, Reduction: collective.Sum}},
			collective.Ordered{Op: collective.Using{Op: sums(memory.F32, collective.Sum), Algorithm: "ring"}},
		} {
			if err := comms[0].Do(t.Context(), op); !errors.Is(err, collective.ErrInvalid) {
				t.Errorf("%+v: %v; want ErrInvalid", op, err)
			}
		}
		works(t, comms, 100)
		errs := each(comms, func(i int, c *collective.Comm) error {
			v := memory.Of(binary.LittleEndian.AppendUint32(nil, 7))
			var op collective.Op = collective.AllReduce{Out: v, In: v, Count: 1, Type: memory.F32, Reduction: collective.Sum}
			if i == 1 {
				op = collective.Ordered{Op: op}
			}
			return c.Do(t.Context(), op)
		})
		for i, err := range errs {
			if !errors.Is(err, collective.ErrMismatch) {
				t.Errorf("rank %d: %v; want ErrMismatch", i, err)
			}
		}
	})
}
