package collective

import (
	"fmt"

	"github.com/serry-dev/serry/internal/kernel"
	"github.com/serry-dev/serry/internal/schedule"
	"github.com/serry-dev/serry/memory"
)

// Scaled is an operation that sums, in which this rank gives a multiple of its vector. Each rank has its own factor. The factor
// of integers must be a whole number that their type has.
type Scaled struct {
	Op     Op // an AllReduce, ReduceScatter or Reduce by Sum or Average
	Factor float64
}

func (o Scaled) prepare(c *Comm) (*call, error) {
	k, err := adjustable(c, o.Op, "multiples")
	if err != nil {
		return nil, err
	}
	if r := Reduction(k.reduction); r != Sum && r != Average {
		k.fail("multiples are summed, not reduced by %v", r)
	}
	if err := kernel.FitsFactor(memory.DType(k.dtype), o.Factor); err != nil {
		k.fail("%v", err)
	}
	if k.err != nil {
		return nil, k.err
	}
	if k.adjusted.narrow == 0 && !k.aliased { // else the vector lies in memory that may be written
		k.adjusted.in = k.in
		k.in, k.arenas.in = make([]byte, len(k.in)), inArena{}
	}
	k.adjusted.scaled, k.adjusted.factor = true, o.Factor
	return k, nil
}

// AccumulateF32 is an operation that reduces floats of 16 or 8 bits, and rounds them once: between the ranks they are floats of 32
// bits. It takes two or four times the memory and bandwidth. All ranks must ask for it (CL-RED-5).
type AccumulateF32 struct{ Op Op } // an AllReduce, ReduceScatter or Reduce

func (o AccumulateF32) prepare(c *Comm) (*call, error) {
	k, err := adjustable(c, o.Op, "floats of 32 bits")
	if err != nil {
		return nil, err
	}
	t := memory.DType(k.dtype)
	if !kernel.IsNarrow(t) {
		k.fail("elements of %v are not rounded to fewer than 32 bits", t)
		return nil, k.err
	}
	wider := int64(32 / t.Bits())
	k.dtype, k.atom = uint8(memory.F32), 4
	k.total *= wider
	k.inOrigin *= wider
	k.outOrigin *= wider
	for i := range k.sizes {
		k.sizes[i] *= wider
	}
	source := k.in
	if k.adjusted.in != nil { // it is scaled
		source = k.adjusted.in
	}
	k.adjusted.narrow, k.adjusted.in, k.adjusted.out = t, source, k.out
	k.in = make([]byte, wider*int64(len(source)))
	switch {
	case k.job.Op == schedule.AllReduce:
		k.out, k.aliased = k.in, true
	case k.out != nil:
		k.out, k.aliased = make([]byte, wider*int64(len(k.out))), false
	}
	k.arenas.in, k.arenas.out = inArena{}, inArena{}
	return k, nil
}

// Ordered is an operation that reduces each element in the order of ranks. Its result does not depend on where the ranks are,
// or on how the vector is cut (CL-OP-7). All ranks must ask for it.
type Ordered struct{ Op Op } // an AllReduce or ReduceScatter

func (o Ordered) prepare(c *Comm) (*call, error) {
	k, err := adjustable(c, o.Op, "the order of ranks")
	if err != nil {
		return nil, err
	}
	if k.job.Op == schedule.Reduce || k.forced != 0 {
		k.fail("its algorithm reduces in another order")
		return nil, k.err
	}
	k.forced = ordered
	return k, nil
}

// adjustable is the call of an operation that reduces.
func adjustable(c *Comm, o Op, what string) (*call, error) {
	k, err := o.prepare(c)
	if err != nil {
		return nil, err
	}
	if k.reduction == 0 {
		k.fail("it has no %s: it reduces nothing", what)
		return nil, k.err
	}
	if c.native != nil {
		return nil, fmt.Errorf("%s with %s: the backend %s has none: %w", k.job.Op, what, c.clique.backend.Name(), ErrUnsupported)
	}
	return k, nil
}

// An adjustment is what a rank does to its vectors before and after an operation.
type adjustment struct {
	in, out []byte       // of the program, where the operation works on other memory; else nil
	narrow  memory.DType // of the program's elements, where those of the operation are floats of 32 bits; else 0
	scaled  bool
	factor  float64
}

// adjustInput makes the vector of the operation.
func (k *call) adjustInput() error {
	a := &k.adjusted
	source := k.in
	switch {
	case a.narrow != 0:
		kernel.Widen(a.narrow, k.in, a.in)
	case a.in != nil:
		source = a.in
	}
	if !a.scaled {
		return nil
	}
	return kernel.Multiply(memory.DType(k.dtype), k.in, source, a.factor)
}

// adjustOutput makes the result of the program.
func (k *call) adjustOutput() error {
	if Reduction(k.reduction) == Average {
		if err := kernel.Divide(memory.DType(k.dtype), k.out, int64(k.job.Ranks)); err != nil {
			return err
		}
	}
	if k.adjusted.narrow != 0 {
		kernel.Narrow(k.adjusted.narrow, k.adjusted.out, k.out)
	}
	return nil
}

// kernel is the kind of reduction that the ranks carry out.
func (k *call) kernel() kernel.Op {
	if Reduction(k.reduction) == Average {
		return kernel.Sum
	}
	return kernel.Op(k.reduction)
}
