// Package gauge measures collective operations: how long one takes on the slowest rank of a clique.
//
// All ranks call [Measure] with the same [Work]. The result is the same on all of them, and no time is returned for an
// operation whose result is wrong.
package gauge

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"
	"unsafe"

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

// Ops are the names of the operations that can be measured. A sendrecv is a vector from rank 0 to the last rank and back. Of a
// barrier the bytes do not matter.
func Ops() []string {
	return append(Main(), "reduce", "gather", "scatter", "permute", "sendrecv", "raggedalltoall", "barrier")
}

// Main are those of them that most programs spend their time in.
func Main() []string {
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

// Measure runs the work between two barriers on private memory, and returns how long one operation took on the slowest rank.
func Measure(ctx context.Context, c *collective.Comm, w Work) (time.Duration, error) {
	return MeasureIn(ctx, c, w, func(bytes int64) (memory.Region, error) { return memory.Of(make([]byte, bytes)), nil })
}

// MeasureIn is Measure on memory that the caller provides. It is not used any more when the call returns.
func MeasureIn(ctx context.Context, c *collective.Comm, w Work, provide func(bytes int64) (memory.Region, error)) (time.Duration, error) {
	if err := w.Check(c.Size()); err != nil {
		return 0, err
	}
	stock := &stock{provide: provide}
	ops, check := prepare(c, w, stock)
	if stock.err != nil {
		return 0, stock.err
	}
	if err := c.Do(ctx, collective.Barrier{}); err != nil {
		return 0, err
	}
	begun := time.Now()
	for range w.Count {
		for _, op := range ops {
			if err := c.Do(ctx, op); err != nil {
				return 0, err
			}
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

// A stock provides vectors.
type stock struct {
	provide func(bytes int64) (memory.Region, error)
	err     error // the first that it met
}

// filled is a vector of equal elements, in memory that was touched.
func (m *stock) filled(n int64, v float32) (memory.Region, []float32) {
	r, err := m.provide(4 * n)
	if err != nil {
		m.err = cmp.Or(m.err, err)
		return memory.Region{}, nil
	}
	s := unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(r.Bytes()))), n)
	for i := range s {
		s[i] = v
	}
	return r, s
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
