package collective

import (
	"fmt"
	"slices"

	"github.com/serry-dev/serry/internal/kernel"
	"github.com/serry-dev/serry/internal/schedule"
	"github.com/serry-dev/serry/memory"
)

// A Reduction combines elements of several ranks into one.
type Reduction uint8

// The reductions. The first four have the numbers of XLA; the bitwise ones are for integers and truth values.
const (
	Sum     = Reduction(kernel.Sum)
	Product = Reduction(kernel.Product)
	Min     = Reduction(kernel.Min)
	Max     = Reduction(kernel.Max)
	And     = Reduction(kernel.And)
	Or      = Reduction(kernel.Or)
	Xor     = Reduction(kernel.Xor)

	// Average is the sum, divided by the number of ranks. That of integers loses its fraction.
	Average = Reduction(kernel.Xor + 1)
)

// String is the name of the reduction.
func (r Reduction) String() string {
	if r == Average {
		return "average"
	}
	return kernel.Op(r).String()
}

// An Op is an operation of a clique: one of the types below. All members must run equal operations in the same
// order; only their memory differs. Counts are in elements, and a count of 0 is right for every operation
// (CL-OP-1). Elements smaller than a byte are packed, and each block begins with a byte of its own (CL-OP-5).
//
// In is what the rank gives, Out what it gets. Where the type of the operation says so they may be the same memory;
// otherwise they must not overlap (CL-OP-2).
type Op interface {
	// prepare checks the operation for one rank of a clique.
	prepare(c *Comm) (*call, error)
}

// AllReduce gives every rank the reduction of the vectors of all ranks. In and Out may be the same memory.
type AllReduce struct {
	Out, In   memory.Region
	Count     int64
	Type      memory.DType
	Reduction Reduction
}

func (o AllReduce) prepare(c *Comm) (*call, error) {
	k := newCall(c, schedule.AllReduce, o.Type, o.Count)
	k.reduces(o.Reduction)
	k.takes(o.In, k.total)
	k.gives(o.Out, k.total)
	k.inPlace(0, 0)
	return k.done()
}

// ReduceScatter reduces the vectors of all ranks, and gives each rank one block of the result: rank r the block r.
// Out may be that block of In.
type ReduceScatter struct {
	Out, In   memory.Region
	Count     int64   // elements of a block
	Counts    []int64 // or the elements of each block, where they differ; then Count is not used
	Type      memory.DType
	Reduction Reduction
}

func (o ReduceScatter) prepare(c *Comm) (*call, error) {
	k := newCall(c, schedule.ReduceScatter, o.Type, o.Count)
	k.reduces(o.Reduction)
	k.blocks(o.Counts)
	k.takes(o.In, k.total)
	k.gives(o.Out, k.block(c.rank))
	k.outOrigin = k.start(c.rank)
	k.inPlace(k.start(c.rank), 0)
	return k.done()
}

// AllGather gives every rank the blocks of all ranks, in the order of ranks. In may be the block of this rank in Out.
type AllGather struct {
	Out, In memory.Region
	Count   int64   // elements of a block
	Counts  []int64 // or the elements of each block, where they differ; then Count is not used
	Type    memory.DType
}

func (o AllGather) prepare(c *Comm) (*call, error) {
	k := newCall(c, schedule.AllGather, o.Type, o.Count)
	k.blocks(o.Counts)
	k.takes(o.In, k.block(c.rank))
	k.gives(o.Out, k.total)
	k.inOrigin = k.start(c.rank)
	k.inPlace(0, k.start(c.rank))
	return k.done()
}

// AllToAll gives block i of In to rank i, where it becomes the block of this rank in Out.
type AllToAll struct {
	Out, In memory.Region
	Count   int64 // elements of a block
	Type    memory.DType
}

func (o AllToAll) prepare(c *Comm) (*call, error) {
	k := newCall(c, schedule.AllToAll, o.Type, o.Count)
	k.blocks(nil)
	k.takes(o.In, k.total)
	k.gives(o.Out, k.total)
	return k.done()
}

// Broadcast gives every rank the vector of the root. In is not used on other ranks; on the root it may be Out.
type Broadcast struct {
	Out, In memory.Region
	Count   int64
	Type    memory.DType
	Root    int
}

func (o Broadcast) prepare(c *Comm) (*call, error) {
	k := newCall(c, schedule.Broadcast, o.Type, o.Count)
	k.from(o.Root)
	if c.rank == o.Root {
		k.takes(o.In, k.total)
	}
	k.gives(o.Out, k.total)
	k.inPlace(0, 0)
	return k.done()
}

// Reduce gives the root the reduction of the vectors of all ranks. Out is not used on other ranks; on the root it may
// be In.
type Reduce struct {
	Out, In   memory.Region
	Count     int64
	Type      memory.DType
	Reduction Reduction
	Root      int
}

func (o Reduce) prepare(c *Comm) (*call, error) {
	k := newCall(c, schedule.Reduce, o.Type, o.Count)
	k.reduces(o.Reduction)
	k.from(o.Root)
	k.takes(o.In, k.total)
	if c.rank == o.Root {
		k.gives(o.Out, k.total)
	}
	k.inPlace(0, 0)
	return k.done()
}

// Gather gives the root the blocks of all ranks, in the order of ranks. Out is not used on other ranks.
type Gather struct {
	Out, In memory.Region
	Count   int64 // elements of a block
	Type    memory.DType
	Root    int
}

func (o Gather) prepare(c *Comm) (*call, error) {
	k := newCall(c, schedule.Gather, o.Type, o.Count)
	k.from(o.Root)
	k.blocks(nil)
	k.takes(o.In, k.block(c.rank))
	k.inOrigin = k.start(c.rank)
	if c.rank == o.Root {
		k.gives(o.Out, k.total)
	}
	return k.done()
}

// Scatter gives each rank one block of the root's vector: rank r the block r. In is not used on other ranks.
type Scatter struct {
	Out, In memory.Region
	Count   int64 // elements of a block
	Type    memory.DType
	Root    int
}

func (o Scatter) prepare(c *Comm) (*call, error) {
	k := newCall(c, schedule.Scatter, o.Type, o.Count)
	k.from(o.Root)
	k.blocks(nil)
	if c.rank == o.Root {
		k.takes(o.In, k.total)
	}
	k.gives(o.Out, k.block(c.rank))
	k.outOrigin = k.start(c.rank)
	return k.done()
}

// Barrier ends on no rank before it has begun on all (CL-OP-19).
type Barrier struct{}

func (o Barrier) prepare(c *Comm) (*call, error) {
	return newCall(c, schedule.Barrier, memory.U8, 0).done()
}

// Using is an operation that is carried out by an algorithm of the program's choice, for measurements and where the program
// knows better (CL-ALG-2). All ranks must name the same one.
type Using struct {
	Op        Op
	Algorithm string // one of those that serry collective explain lists for the operation
}

func (o Using) prepare(c *Comm) (*call, error) {
	k, err := o.Op.prepare(c)
	if err != nil {
		return nil, err
	}
	a := schedule.Algorithm(o.Algorithm)
	switch {
	case c.native != nil:
		return nil, fmt.Errorf("%s by %s: the backend %s has its own algorithms: %w", k.job.Op, a, c.clique.backend.Name(), ErrUnsupported)
	case !k.ofAll() || k.rounds != nil || k.rows != nil || !slices.Contains(schedule.Algorithms(k.job.Op), a):
		k.fail("there is no algorithm %q for it", o.Algorithm)
	case a == schedule.TwoLevel && k.job.Hosts == 0:
		k.fail("%s needs ranks that lie evenly on several hosts", a)
	}
	k.forced = uint8(1 + slices.Index(algorithms, a))
	return k.done()
}
