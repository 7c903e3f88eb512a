package collective

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"unsafe"

	"github.com/serry-dev/serry/internal/kernel"
	"github.com/serry-dev/serry/internal/schedule"
	"github.com/serry-dev/serry/memory"
)

// A description is what all members must agree on in an operation (CL-OP-6).
type description struct {
	op        uint8 // place in operations
	dtype     uint8
	reduction uint8
	forced    uint8 // place in algorithms, from 1 on, of the one that the program has named; ordered; or 0
	root      uint16
	count     int64
	counts    uint64 // digest of the counts of blocks, where they differ, or 0
	run       uint64 // that has acquired the clique, or 0
}

// ordered says that the program wants elements reduced in the order of ranks, by any algorithm that does.
const ordered = 255

func (d description) append(b []byte) []byte {
	le := binary.LittleEndian
	b = append(b, d.op, d.dtype, d.reduction)
	b = le.AppendUint16(b, d.root)
	b = le.AppendUint64(b, uint64(d.count))
	b = le.AppendUint64(b, d.counts)
	b = le.AppendUint64(b, d.run)
	return append(b, d.forced)
}

func (r *reader) description() description {
	return description{
		op: r.byte(), dtype: r.byte(), reduction: r.byte(), root: r.uint16(), count: int64(r.uint64()), counts: r.uint64(), run: r.uint64(),
		forced: r.byte(),
	}
}

// digestBits is how much of a description is in the name of each message of an operation, beside its sequence number:
// a member that runs another operation does not expect the message, and finds out at once.
const digestBits = 24

// digest is a number for the description.
func (d description) digest() uint64 {
	h := uint64(14695981039346656037)
	for _, v := range [...]uint64{uint64(d.op), uint64(d.dtype), uint64(d.reduction), uint64(d.root), uint64(d.count), d.counts, d.run, uint64(d.forced)} {
		h = (h ^ v) * 1099511628211
		h ^= h >> 29
	}
	return (h ^ h>>digestBits) & (1<<digestBits - 1)
}

// String is the operation in words: "allreduce of 1024 f32 by sum".
func (d description) String() string {
	if d.run != 0 {
		return fmt.Sprintf("%s in run %d", d.words(), d.run)
	}
	return d.words()
}

func (d description) words() string {
	if int(d.op) >= len(operations) {
		return fmt.Sprintf("operation %d", d.op)
	}
	op := operations[d.op]
	switch op {
	case schedule.Barrier, waitSignal, quiet, fence:
		return string(op)
	case signal:
		return fmt.Sprintf("%s to rank %d", op, d.root)
	case put:
		return fmt.Sprintf("%s of %d bytes to rank %d", op, d.count, d.root)
	}
	text := fmt.Sprintf("%s of %d %v", op, d.count, memory.DType(d.dtype))
	if d.reduction != 0 {
		text += fmt.Sprintf(" by %v", Reduction(d.reduction))
	}
	if d.root != 0 {
		text += fmt.Sprintf(" with root %d", d.root)
	}
	if d.counts != 0 {
		text += fmt.Sprintf(" with counts %#x", d.counts)
	}
	switch d.forced {
	case 0:
	case ordered:
		text += " in the order of ranks"
	default:
		text += " using " + string(d.algorithm())
	}
	return text
}

// algorithm is the one that the program has named, or none.
func (d description) algorithm() schedule.Algorithm {
	if d.forced == 0 || int(d.forced) > len(algorithms) {
		return "an unknown algorithm"
	}
	return algorithms[d.forced-1]
}

// Operations without a schedule of their own.
const (
	permute  schedule.Op = "permute"
	ragged   schedule.Op = "ragged alltoall"
	transfer schedule.Op = "transfer"
	split    schedule.Op = "split"

	put        schedule.Op = "put"
	signal     schedule.Op = "signal"
	waitSignal schedule.Op = "wait-signal"
	quiet      schedule.Op = "quiet"
	fence      schedule.Op = "fence"
	offer      schedule.Op = "offer"
)

// operations has all operations. The places are known to the wire: new ones come last.
var operations = append(schedule.Operations(), permute, ragged, transfer, split, put, signal, waitSignal, quiet, fence, offer)

// algorithms has all algorithms. The places are known to the wire: new ones come last.
var algorithms = []schedule.Algorithm{
	schedule.OneShot, schedule.Direct, schedule.Ring, schedule.Doubling, schedule.Halving, schedule.Pairwise, schedule.Bruck,
	schedule.Tree, schedule.Chain, schedule.Spread, schedule.DoubleTree, schedule.TwoLevel, schedule.Dissemination,
}

// A call is an operation of one rank, checked, with its memory.
type call struct {
	description
	job   schedule.Job
	atom  int64   // bytes that are never divided: an element, or a byte of packed elements
	total int64   // bytes of the vector
	sizes []int64 // bytes of each block, or nil: the vector is cut evenly
	room  []int64 // memory for sizes

	peer   int              // of a transfer: the rank at the other end; else -1
	sends  bool             // of a transfer: to the peer
	rounds []schedule.Round // of an operation without a schedule: what this rank does with one block
	rows   *raggedRows      // of a ragged exchange, or nil
	single oneSided         // of an operation of this rank alone, or nil
	offers *Window          // of an Offer, or nil

	in, out             []byte
	arenas              struct{ in, out inArena } // that they lie in
	inOrigin, outOrigin int64                     // where in the vector the memory begins
	aliased             bool                      // the two overlap as the operation allows
	adjusted            adjustment

	err error // the first thing found wrong
}

// ofAll says whether all ranks run the operation, under one number.
func (k *call) ofAll() bool { return k.peer < 0 && k.single == nil }

// opNumber is the place of an operation in the list that all versions know.
func opNumber(op schedule.Op) uint8 {
	return uint8(slices.Index(operations, op))
}

// newCall begins a call with a vector of count elements.
func newCall(c *Comm, op schedule.Op, t memory.DType, count int64) *call {
	k, _ := c.clique.spares.calls.Get().(*call)
	if k == nil {
		k = new(call)
	}
	*k = call{
		description: description{op: opNumber(op), dtype: uint8(t), count: count, run: c.clique.run.Load()},
		job:         schedule.Job{Op: op, Ranks: len(c.clique.key.Ranks), Hosts: c.clique.even},
		atom:        int64(max(t.Bits()/8, 1)),
		peer:        -1,
		room:        k.room,
	}
	k.total = k.bytesOf(count)
	return k
}

// bytesOf is the size of elements.
func (k *call) bytesOf(count int64) int64 {
	n, err := memory.DType(k.dtype).Bytes(count)
	if err == nil && n > math.MaxInt64/int64(2*k.job.Ranks) {
		err = errors.New("more than memory can hold")
	}
	if err != nil {
		k.fail("%v", err)
		return 0
	}
	return n
}

func (k *call) fail(format string, args ...any) {
	if k.err == nil {
		k.err = invalid(string(k.job.Op)+": "+format, args...)
	}
}

// done is the call, or what is wrong with it. It refuses memory that overlaps, unless inPlace has allowed it.
func (k *call) done() (*call, error) {
	if !k.aliased && k.err == nil && overlap(k.in, k.out) {
		k.fail("input and output overlap")
	}
	if k.err != nil {
		return nil, k.err
	}
	return k, nil
}

// reduces sets the reduction.
func (k *call) reduces(r Reduction) {
	k.reduction = uint8(r)
	t := memory.DType(k.dtype)
	err := kernel.Check(k.kernel(), t)
	if err == nil && r == Average {
		err = kernel.CanScale(t)
	}
	if err != nil {
		k.fail("%v", err)
	}
}

// from sets the root.
func (k *call) from(root int) {
	if root < 0 || root >= k.job.Ranks {
		k.fail("root %d of %d ranks", root, k.job.Ranks)
		return
	}
	k.root, k.job.Root = uint16(root), root
}

// blocks makes the vector one of a block for each rank: of the count of the call, or of counts.
func (k *call) blocks(counts []int64) {
	k.room = resized(k.room, k.job.Ranks)
	k.sizes = k.room
	if counts != nil && len(counts) != k.job.Ranks {
		k.fail("counts of %d blocks for %d ranks", len(counts), k.job.Ranks)
		return
	}
	one := k.total
	k.total = 0
	for i := range k.sizes {
		k.sizes[i] = one
		if counts != nil {
			k.sizes[i] = k.bytesOf(counts[i])
		}
		k.total += k.sizes[i]
	}
	if counts != nil {
		k.count, k.counts = 0, digestOf(counts)|1
	}
}

// digestOf is a number for counts (FNV1a over their bytes).
func digestOf(counts []int64) uint64 {
	h := fnv.New64a()
	for _, n := range counts {
		h.Write(binary.LittleEndian.AppendUint64(nil, uint64(n)))
	}
	return h.Sum64()
}

// start is where the block of a rank begins.
func (k *call) start(rank int) (at int64) {
	for _, n := range k.sizes[:rank] {
		at += n
	}
	return at
}

// block is the size of the block of a rank.
func (k *call) block(rank int) int64 { return k.sizes[rank] }

// takes sets the memory that is read.
func (k *call) takes(r memory.Region, n int64) {
	k.in = k.region("input", r, n)
	k.arenas.in.Arena, k.arenas.in.offset = r.Arena()
}

// gives sets the memory that is written.
func (k *call) gives(r memory.Region, n int64) {
	k.out = k.region("output", r, n)
	k.arenas.out.Arena, k.arenas.out.offset = r.Arena()
}

// inArena is where memory lies in an arena; the zero value is memory that lies in none.
type inArena struct {
	*memory.Arena
	offset int64
}

func (k *call) region(what string, r memory.Region, n int64) []byte {
	switch {
	case k.err != nil:
		return nil
	case r.Space() == memory.Device:
		k.err = fmt.Errorf("%s: %s on a device: %w", k.job.Op, what, ErrUnsupported)
		return nil
	case r.Len() < n:
		k.fail("%s of %d bytes, need %d", what, r.Len(), n)
		return nil
	}
	return r.Bytes()[:n:n]
}

// inPlace allows that the input, from an offset on, is the output from another offset on.
func (k *call) inPlace(in, out int64) {
	k.aliased = k.err == nil && address(k.in)+uintptr(in) == address(k.out)+uintptr(out)
}

func address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// overlap says whether two slices share memory.
func overlap(a, b []byte) bool {
	return len(a) > 0 && len(b) > 0 && address(a) < address(b)+uintptr(len(b)) && address(b) < address(a)+uintptr(len(a))
}
