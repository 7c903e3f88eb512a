package schedule

import (
	"errors"
	"fmt"
	"slices"
)

// An Op is a collective operation.
type Op string

// The operations. Send, receive and one-sided operations have no schedule: each is one message.
const (
	AllReduce     Op = "allreduce"
	ReduceScatter Op = "reducescatter" // block r of the vector ends on rank r
	AllGather     Op = "allgather"     // block r of the result comes from rank r
	AllToAll      Op = "alltoall"      // block i of my input becomes block r of rank i's result
	Broadcast     Op = "broadcast"
	Reduce        Op = "reduce"
	Gather        Op = "gather"
	Scatter       Op = "scatter"
	Barrier       Op = "barrier"
)

// An Algorithm is a way to carry out an operation.
type Algorithm string

// The algorithms. Not every operation has each of them; see [Algorithms].
const (
	OneShot       Algorithm = "one-shot"           // every rank sends its whole vector to every rank
	Direct        Algorithm = "direct"             // every block goes straight to the rank that needs it
	Ring          Algorithm = "ring"               // each rank speaks to its two neighbours only
	Doubling      Algorithm = "recursive doubling" // whole vectors, with a partner twice as far each round
	Halving       Algorithm = "halving-doubling"   // half as many blocks each round; any number of ranks
	Pairwise      Algorithm = "pairwise"           // one partner a round, every rank another one
	Bruck         Algorithm = "bruck"              // log p rounds, blocks travel over intermediate ranks
	Tree          Algorithm = "binomial tree"
	Chain         Algorithm = "chain"              // a pipeline through all ranks
	Spread        Algorithm = "scatter-allgather"  // the root scatters, or gathers, what the others combine
	DoubleTree    Algorithm = "double binary tree" // two pipelined trees; a leaf of one is inside the other
	TwoLevel      Algorithm = "two-level"          // inside hosts, between hosts, inside hosts
	Dissemination Algorithm = "dissemination"
)

// A Job is what is to be scheduled. All ranks must use equal ones (CL-ALG-1).
type Job struct {
	Op     Op
	Ranks  int
	Root   int // of broadcast, reduce, gather and scatter
	Hosts  int // ranks lie on so many hosts, as many on each, in order; 0 if that is not known
	Pieces int // into which pipelines cut the vector; 0 is 1
}

// MaxRanks bounds a job: a schedule grows with its square in the worst case.
const MaxRanks = 4096

// ErrInvalid is the cause of every error of this package.
var ErrInvalid = errors.New("invalid schedule")

// Check says what is wrong with the job.
func (j Job) Check() error {
	switch {
	case j.Ranks < 1 || j.Ranks > MaxRanks:
		return fmt.Errorf("%w: %d ranks, want 1 to %d", ErrInvalid, j.Ranks, MaxRanks)
	case j.Root < 0 || j.Root >= j.Ranks:
		return fmt.Errorf("%w: root %d of %d ranks", ErrInvalid, j.Root, j.Ranks)
	case j.Hosts < 0 || j.Hosts > 0 && j.Ranks%j.Hosts != 0:
		return fmt.Errorf("%w: %d ranks do not lie evenly on %d hosts", ErrInvalid, j.Ranks, j.Hosts)
	case j.Pieces < 0 || j.Pieces > maxPieces:
		return fmt.Errorf("%w: %d pieces, want at most %d", ErrInvalid, j.Pieces, maxPieces)
	}
	return nil
}

// A Buffer is one of the three memories of a rank.
type Buffer uint8

// The buffers.
const (
	In  Buffer = iota // what the caller gives; never written
	Out               // what the caller gets
	Tmp               // slots of scratch memory
)

// A Part is the consecutive blocks [Lo, Hi) of a buffer. In and Out hold the whole vector, block after block
// (of operations whose small side is one block, that block alone). A slot of Tmp holds blocks from Base on.
type Part struct {
	Buf    Buffer
	Slot   int // of Tmp
	Base   int // of Tmp: the block that lies at the beginning of the slot
	Lo, Hi int
}

// A Move is one message: the parts, one after the other, to or from a rank.
type Move struct {
	Peer  int
	Parts []Part
}

// A Work fills Into: with the reduction of From, in this order; with a copy where there is one; with zeros
// where there is none.
type Work struct {
	Into Part
	From []Part
}

// A Round is what a rank does at once: first the moves, then the work.
type Round struct {
	Sends, Recvs []Move
	Work         []Work
}

// A Schedule is what one rank does.
type Schedule struct {
	Job
	Algorithm Algorithm
	Rank      int
	Blocks    int
	Rounds    []Round
}

// plans has the function that plans each algorithm of each operation.
var plans = map[Op]map[Algorithm]func(Job, int) plan{
	AllReduce: {
		OneShot: oneShot, Direct: directAllReduce, Ring: ringAllReduce, Doubling: doubling,
		Halving: halvingAllReduce, DoubleTree: doubleTree, TwoLevel: twoLevel,
	},
	ReduceScatter: {Direct: directScatter, Ring: ringScatter, Halving: halvingScatter, Pairwise: pairwiseScatter},
	AllGather:     {Direct: directGather, Ring: ringGather, Bruck: bruckGather},
	AllToAll:      {Direct: directExchange, Pairwise: pairwiseExchange, Bruck: bruckExchange},
	Broadcast:     {Tree: treeBroadcast, Chain: chain, Spread: spreadBroadcast},
	Reduce:        {Tree: treeReduce, Spread: spreadReduce},
	Gather:        {Direct: gatherAtRoot, Tree: treeGather},
	Scatter:       {Direct: scatterFromRoot, Tree: treeScatter},
	Barrier:       {Dissemination: dissemination},
}

// A plan is the part of a schedule that an algorithm decides.
type plan struct {
	blocks int
	rounds []Round
}

// Operations lists the operations that have schedules.
func Operations() []Op {
	return []Op{AllReduce, ReduceScatter, AllGather, AllToAll, Broadcast, Reduce, Gather, Scatter, Barrier}
}

// Algorithms lists the algorithms of an operation, sorted; none if there is no such operation.
func Algorithms(op Op) []Algorithm {
	var list []Algorithm
	for a := range plans[op] {
		list = append(list, a)
	}
	slices.Sort(list)
	return list
}

// New is the schedule of one rank.
func New(a Algorithm, j Job, rank int) (Schedule, error) {
	if err := j.Check(); err != nil {
		return Schedule{}, err
	}
	make, ok := plans[j.Op][a]
	switch {
	case !ok:
		return Schedule{}, fmt.Errorf("%w: no %s by %s", ErrInvalid, j.Op, a)
	case rank < 0 || rank >= j.Ranks:
		return Schedule{}, fmt.Errorf("%w: rank %d of %d", ErrInvalid, rank, j.Ranks)
	case a == TwoLevel && j.Hosts == 0:
		return Schedule{}, fmt.Errorf("%w: %s needs the number of hosts", ErrInvalid, a)
	}
	p := make(j, rank)
	return Schedule{Job: j, Algorithm: a, Rank: rank, Blocks: p.blocks, Rounds: p.rounds}, nil
}

// reduces says whether an operation combines values.
func (op Op) reduces() bool { return op == AllReduce || op == ReduceScatter || op == Reduce }

// span is the blocks [lo, hi) of a buffer that holds the whole vector.
func span(b Buffer, lo, hi int) Part { return Part{Buf: b, Lo: lo, Hi: hi} }

// scratch is the blocks [lo, hi) alone in a slot.
func scratch(slot, lo, hi int) Part { return Part{Buf: Tmp, Slot: slot, Base: lo, Lo: lo, Hi: hi} }

// shadow is the blocks [lo, hi) in a slot that has room for the whole vector.
func shadow(slot, lo, hi int) Part { return Part{Buf: Tmp, Slot: slot, Lo: lo, Hi: hi} }

// copies is the work of copying one part.
func copies(into, from Part) []Work { return []Work{{Into: into, From: []Part{from}}} }

// one is a message of one part.
func one(peer int, p Part) []Move { return []Move{{Peer: peer, Parts: []Part{p}}} }

// wrap cuts n blocks of p, from block first on and beyond the end at 0 again, into runs of consecutive blocks.
func wrap(first, n, p int) [][2]int {
	first %= p
	switch {
	case n == 0:
		return nil
	case first+n <= p:
		return [][2]int{{first, first + n}}
	default:
		return [][2]int{{first, p}, {0, first + n - p}}
	}
}

// logRounds is the least k with 2^k >= p.
func logRounds(p int) int {
	k := 0
	for 1<<k < p {
		k++
	}
	return k
}
