// Package gauge measures collective operations: how long one takes on the slowest rank of a clique.
//
// All ranks call [Measure] with the same [Work]. The result is the same on all of them, and no time is returned for an
// operation whose result is wrong.
package gauge

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/serry-dev/serry/collective"
	"github.com/serry-dev/serry/memory"
)

// Work is what to measure: an operation on vectors of float32, some times back to back.
type Work struct {
	Op    string // one of Ops
	Bytes int64  // of the longer vector of a rank
	Count int
}

// MaxBytes is the longest vector. It bounds what a command line makes every rank allocate.
const MaxBytes = 4 << 30

// Ops are the names of the operations that can be measured.
func Ops() []string {
	return []string{"allreduce", "reducescatter", "allgather", "alltoall", "broadcast"}
}

// Check says what is wrong with work, in a clique of a number of ranks.
func (w Work) Check(ranks int) error {
	switch most := maxCount(ranks); {
	case !slices.Contains(Ops(), w.Op):
		return fmt.Errorf("operation %q: want one of %v", w.Op, Ops())
	case w.Bytes < 0 || w.Bytes > MaxBytes:
		return fmt.Errorf("%d bytes: want 0 to %d", w.Bytes, int64(MaxBytes))
	case w.Count < 1 || w.Op == "allreduce" && w.Count > most:
		return fmt.Errorf("%d times: want 1 to %d with %d ranks", w.Count, most, ranks)
	}
	return nil
}

// maxCount is how often an all-reduce in place can be repeated before its sums leave the range of float32.
func maxCount(ranks int) int {
	if ranks < 2 {
		return math.MaxInt32
	}
	return 1 + int(127/math.Log2(float64(ranks)))
}

// Measure runs the work between two barriers, and returns how long one operation took on the slowest rank.
func Measure(ctx context.Context, c *collective.Comm, w Work) (time.Duration, error) {
	if err := w.Check(c.Size()); err != nil {
		return 0, err
	}
	op, check := prepare(c, w)
	if err := c.Do(ctx, collective.Barrier{}); err != nil {
		return 0, err
	}
	begun := time.Now()
	for range w.Count {
		if err := c.Do(ctx, op); err != nil {
			return 0, err
		}
	}
	took := []int64{int64(time.Since(begun))}
	slowest := make([]int64, 1)
	err := c.Do(ctx, collective.AllReduce{
		Out: memory.OfSlice(slowest), In: memory.OfSlice(took), Count: 1, Type: memory.S64, Reduction: collective.Max,
	})
	if err != nil {
		return 0, err
	}
	if err := check(); err != nil {
		return 0, fmt.Errorf("%s of %d bytes: rank %d: %w", w.Op, w.Bytes, c.Rank(), err)
	}
	return time.Duration(slowest[0]) / time.Duration(w.Count), nil
}

// prepare makes the vectors and the operation on them. check says whether the vectors have what they must after the
// last one.
//
// The vector of an all-reduce is summed in place. It is 1 on rank 0 and 0 on all others, so that after n sums every
// element is the number of ranks to the power of n-1. In all other operations the elements of rank r are r+1.
func prepare(c *collective.Comm, w Work) (op collective.Op, check func() error) {
	n, p := w.Bytes/4, int64(c.Size())
	own := float32(c.Rank() + 1)
	part := n / p
	switch w.Op {
	case "allreduce":
		data := filled(n, 0)
		if c.Rank() == 0 {
			data = filled(n, 1)
		}
		r := memory.OfSlice(data)
		want := float32(math.Pow(float64(p), float64(w.Count-1)))
		return collective.AllReduce{Out: r, In: r, Count: n, Type: memory.F32, Reduction: collective.Sum}, func() error { return all(data, want) }
	case "broadcast":
		data := filled(n, own)
		r := memory.OfSlice(data)
		return collective.Broadcast{Out: r, In: r, Count: n, Type: memory.F32}, func() error { return all(data, 1) }
	case "reducescatter":
		in, out := filled(part*p, own), filled(part, 0)
		return collective.ReduceScatter{Out: memory.OfSlice(out), In: memory.OfSlice(in), Count: part, Type: memory.F32, Reduction: collective.Sum},
			func() error { return all(out, float32(p*(p+1)/2)) }
	case "allgather":
		in, out := filled(part, own), filled(part*p, 0)
		return collective.AllGather{Out: memory.OfSlice(out), In: memory.OfSlice(in), Count: part, Type: memory.F32},
			func() error { return blocks(out, part) }
	default:
		in, out := filled(part*p, own), filled(part*p, 0)
		return collective.AllToAll{Out: memory.OfSlice(out), In: memory.OfSlice(in), Count: part, Type: memory.F32},
			func() error { return blocks(out, part) }
	}
}

// filled is a vector of equal elements, in memory that was touched.
func filled(n int64, v float32) []float32 {
	s := make([]float32, n)
	for i := range s {
		s[i] = v
	}
	return s
}

// all says which element differs from what all must be.
func all(s []float32, want float32) error {
	for i, v := range s {
		if v != want {
			return fmt.Errorf("element %d is %v; want %v", i, v, want)
		}
	}
	return nil
}

// blocks says which block does not have the elements of its rank.
func blocks(s []float32, part int64) error {
	for r := int64(0); part > 0 && r < int64(len(s))/part; r++ {
		if err := all(s[r*part:(r+1)*part], float32(r+1)); err != nil {
			return fmt.Errorf("block %d: %w", r, err)
		}
	}
	return nil
}
