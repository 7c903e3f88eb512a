package collective

import (
	"context"
	"fmt"

	"github.com/serry-dev/serry/memory"
)

// A Backend carries out the operations of cliques. What is around them is the same for all backends: keys, meetings, the
// order of operations, deadlines, and the end of a clique on all members.
type Backend interface {
	// Name is one word. All processes of a clique must use the backend of the same name.
	Name() string

	// Serves says whether the backend can serve a clique. It must say the same in all processes.
	Serves(key *Key) bool

	// Alone says whether cliques are formed without the other processes: only a double does that.
	Alone() bool

	// Create makes the communicators of the ranks of this process, in the order of local. Ranks that it makes none for are
	// served by the engine of this package.
	Create(ctx context.Context, key *Key, local []int) ([]Communicator, error)
}

// A Communicator carries out the operations of one rank.
type Communicator interface {
	// Run carries out an operation that was checked. When it returns, nothing uses the memory of the operation any more,
	// also if it fails. It ends when ctx does, which it does when the clique ends.
	//
	// An operation that the backend does not have it refuses with ErrUnsupported, on all ranks and before it has moved
	// any byte. Then the call fails, and the clique goes on. Every other error ends the clique.
	Run(ctx context.Context, seq uint64, o Op) error

	// Close frees what the communicator holds. It is called once, when no operation runs.
	Close()
}

// Host is the backend that moves host memory over links, or inside the process: the engine of this package.
type Host struct{}

// Name implements Backend.
func (Host) Name() string { return "host" }

// Serves implements Backend.
func (Host) Serves(*Key) bool { return true }

// Alone implements Backend.
func (Host) Alone() bool { return false }

// Create implements Backend.
func (Host) Create(context.Context, *Key, []int) ([]Communicator, error) { return nil, nil }

// Loopback is a double: every operation ends at once, as if all ranks had the data of this one. It never talks to other
// processes. A program that uses it shows what it costs without communication (CL-LPB-1).
type Loopback struct{}

// Name implements Backend.
func (Loopback) Name() string { return "loopback" }

// Serves implements Backend.
func (Loopback) Serves(*Key) bool { return true }

// Alone implements Backend.
func (Loopback) Alone() bool { return true }

// Create implements Backend.
func (Loopback) Create(_ context.Context, key *Key, local []int) ([]Communicator, error) {
	var list []Communicator
	for _, rank := range local {
		list = append(list, loop{rank, len(key.Ranks)})
	}
	return list, nil
}

// A loop is one rank of a Loopback.
type loop struct{ rank, ranks int }

// Close implements Communicator.
func (loop) Close() {}

// Run implements Communicator.
func (l loop) Run(_ context.Context, _ uint64, o Op) error {
	switch o := o.(type) {
	case AllReduce:
		copyRegion(o.Out, o.In, o.Type, o.Count)
	case Broadcast:
		copyRegion(o.Out, o.In, o.Type, o.Count)
	case Reduce:
		if l.rank == o.Root {
			copyRegion(o.Out, o.In, o.Type, o.Count)
		}
	case AllToAll:
		copy(o.Out.Bytes()[:int64(l.ranks)*blockBytes(o.Type, o.Count, nil, 0)], o.In.Bytes())
	case ReduceScatter:
		n := blockBytes(o.Type, o.Count, o.Counts, l.rank)
		copy(o.Out.Bytes(), o.In.Bytes()[l.start(o.Type, o.Count, o.Counts):][:n])
	case AllGather:
		l.replicate(o.Out.Bytes(), o.In.Bytes(), o.Type, o.Count, o.Counts)
	case Gather:
		if l.rank == o.Root {
			l.replicate(o.Out.Bytes(), o.In.Bytes(), o.Type, o.Count, nil)
		}
	case Scatter:
		n := blockBytes(o.Type, o.Count, nil, 0)
		clear(o.Out.Bytes()[:n])
		if l.rank == o.Root {
			copy(o.Out.Bytes()[:n], o.In.Bytes()[l.start(o.Type, o.Count, nil):])
		}
	case Permute:
		l.permute(o)
	case Recv:
		clear(o.Out.Bytes()[:blockBytes(o.Type, o.Count, nil, 0)])
	case splitting:
		return l.Run(context.Background(), 0, o.AllGather)
	case offering:
		return l.Run(context.Background(), 0, o.AllGather)
	case Send, Barrier, Put, Signal, WaitSignal, Quiet, Fence:
	default:
		return fmt.Errorf("%T on a loopback: %w", o, ErrUnsupported)
	}
	return nil
}

func (l loop) permute(o Permute) {
	for _, pair := range o.Pairs {
		if pair[1] == l.rank {
			copyRegion(o.Out, o.In, o.Type, o.Count)
			return
		}
	}
	clear(o.Out.Bytes()[:blockBytes(o.Type, o.Count, nil, 0)])
}

// replicate fills every block with as much of the input as it has room for.
func (l loop) replicate(out, in []byte, t memory.DType, count int64, counts []int64) {
	for rank := range l.ranks {
		n := blockBytes(t, count, counts, rank)
		copy(out[:n], in)
		out = out[n:]
	}
}

// start is where the block of the rank begins.
func (l loop) start(t memory.DType, count int64, counts []int64) (at int64) {
	for rank := range l.rank {
		at += blockBytes(t, count, counts, rank)
	}
	return at
}

// blockBytes is the size of the block of a rank. The call was checked.
func blockBytes(t memory.DType, count int64, counts []int64, rank int) int64 {
	if counts != nil {
		count = counts[rank]
	}
	n, err := t.Bytes(count)
	if err != nil {
		panic(err)
	}
	return n
}

func copyRegion(out, in memory.Region, t memory.DType, count int64) {
	copy(out.Bytes()[:blockBytes(t, count, nil, 0)], in.Bytes())
}
