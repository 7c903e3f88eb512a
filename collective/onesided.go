package collective

import (
	"context"

	"github.com/serry-dev/serry/internal/schedule"
	"github.com/serry-dev/serry/memory"
)

// One-sided operations: a rank acts on the memory and the signals of another one, whose program takes no part. The
// process of the other rank does the writing, so no rank can touch the memory of a process after that process
// has seen an error.
//
// Put and Signal of one rank to another are numbered, apart from all other operations. The number and the facts
// travel in a ONESIDED frame, and the bytes of a Put as a message of their own, which the process of the target takes
// into the window when it has read the frame. It counts a signal when everything with a lower number is done, and
// tells the origin how far it is. That is all that Quiet waits for. See remote.go.

// Put writes bytes into the memory that another rank has offered in a [Window]. It ends when In may be used again. The target
// finds the bytes when it has waited for a [Signal] that this rank sent later, or when this rank has run a [Quiet].
// Puts of one rank to another may be written in any order, unless a [Fence] is between them (CL-OP-22).
type Put struct {
	Window *Window
	To     int
	Offset int64 // in the memory of the target, in bytes
	In     memory.Region
	Count  int64 // bytes
}

func (o Put) prepare(c *Comm) (*call, error) {
	k := newOneSided(c, put, o.Count)
	k.to(o.To)
	k.takes(o.In, k.total)
	switch {
	case k.err != nil:
	case o.Window == nil || o.Window.comm != c:
		k.fail("the window is not one of this rank")
	case !within(o.Offset, o.Count, o.Window.sizes[o.To]):
		k.fail("%d bytes at offset %d, rank %d offers %d", o.Count, o.Offset, o.To, o.Window.sizes[o.To])
	default:
		k.single = &putting{errand: errand{kind: putKind, window: o.Window.number, offset: o.Offset, count: o.Count}}
	}
	return k.done()
}

// Signal adds one to a counter of another rank, after all that this rank has put there before (CL-OP-23). There is a counter for
// each rank that signals and each ID. It ends at once.
type Signal struct {
	To int
	ID uint32
}

func (o Signal) prepare(c *Comm) (*call, error) {
	k := newOneSided(c, signal, 0)
	k.to(o.To)
	k.single = &putting{errand: errand{kind: signalKind, id: o.ID}}
	return k.done()
}

// WaitSignal waits until each of its counters has come to the count that it asks for, and then takes these counts off, all
// at once. An empty list ends at once.
type WaitSignal struct {
	Signals []Signals
}

// Signals are a number of signals of one rank.
type Signals struct {
	From  int
	ID    uint32
	Count uint64
}

func (o WaitSignal) prepare(c *Comm) (*call, error) {
	k := newOneSided(c, waitSignal, 0)
	wait := signalWait{make(map[counter]uint64)}
	for _, s := range o.Signals {
		if s.From < 0 || s.From >= k.job.Ranks {
			k.fail("rank %d of %d ranks", s.From, k.job.Ranks)
		}
		wait.need[counter{s.From, s.ID}] += s.Count
	}
	k.single = wait
	return k.done()
}

// Quiet waits until all that this rank has put and signalled before is done at the targets (CL-OP-24).
type Quiet struct{}

func (o Quiet) prepare(c *Comm) (*call, error) {
	k := newOneSided(c, quiet, 0)
	k.single = &quieting{}
	return k.done()
}

// Fence orders the one-sided operations of this rank: what it puts later is written after all that it has put before, at
// each target. It ends at once (CL-OP-24).
type Fence struct{}

func (o Fence) prepare(c *Comm) (*call, error) {
	k := newOneSided(c, fence, 0)
	k.single = fencing{}
	return k.done()
}

// A oneSided operation is one that only this rank runs.
type oneSided interface {
	// begin gives the operation its place among those of the rank. It runs in the order of calls.
	begin(r *remote, op *operation)

	// carryOut does it.
	carryOut(ctx context.Context, op *operation) error
}

func newOneSided(c *Comm, op schedule.Op, bytes int64) *call { return newCall(c, op, memory.U8, bytes) }

// to sets the rank that a one-sided operation acts on.
func (k *call) to(rank int) {
	if rank < 0 || rank >= k.job.Ranks {
		k.fail("rank %d of %d ranks", rank, k.job.Ranks)
		return
	}
	k.root = uint16(rank)
}
