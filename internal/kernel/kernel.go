package kernel

import (
	"errors"
	"fmt"
	"sync"
	"unsafe"

	"github.com/serry-dev/serry/memory"
)

// An Op is a kind of reduction. The numbers of the first four are those of XLA.
type Op uint8

// The kinds. The bitwise ones are for integers.
const (
	Sum     Op = 1
	Product Op = 2
	Min     Op = 3
	Max     Op = 4
	And     Op = 5
	Or      Op = 6
	Xor     Op = 7
)

var names = [...]string{Sum: "sum", Product: "prod", Min: "min", Max: "max", And: "and", Or: "or", Xor: "xor"}

// String is the name of the kind.
func (op Op) String() string {
	if op < Sum || op > Xor {
		return fmt.Sprintf("reduction %d", uint8(op))
	}
	return names[op]
}

// ErrUnsupported is the cause of an error about a type that has no reduction of a kind.
var ErrUnsupported = errors.New("no such reduction")

// A table has the function for each kind of reduction of a type; nil if there is none. A function sets each
// element of dst to the reduction of those of a and b, whose memory may be that of dst.
type table[T any] [Xor + 1]func(dst, a, b []T)

// Check says whether elements of a type can be reduced.
func Check(op Op, t memory.DType) error {
	if run, ok := runners[t]; ok && run.has(op) {
		return nil
	}
	return fmt.Errorf("%w: %v of %v", ErrUnsupported, op, t)
}

// Reduce sets dst to the reduction of the inputs, in their order. All have the same number of bytes, a multiple
// of the size of an element. dst may be one of the inputs, but may not overlap one in part.
func Reduce(op Op, t memory.DType, dst []byte, inputs ...[]byte) error {
	if err := Check(op, t); err != nil {
		return err
	}
	if width := t.Bits() / 8; width > 1 && len(dst)%width != 0 {
		return fmt.Errorf("%d bytes are no number of %v", len(dst), t)
	}
	for _, in := range inputs {
		if len(in) != len(dst) {
			return fmt.Errorf("%d bytes to reduce into %d", len(in), len(dst))
		}
	}
	switch len(inputs) {
	case 0:
		clear(dst)
	case 1:
		copy(dst, inputs[0])
	default:
		if done := vectorize(op, t, dst, inputs); done < len(dst) {
			runners[t].run(op, dst, inputs, done)
		}
	}
	return nil
}

// A runner reduces the elements of one type, from some byte on: what lies before it has been reduced by a faster kernel.
type runner interface {
	has(op Op) bool
	run(op Op, dst []byte, inputs [][]byte, from int)

	scales() bool
	fits(factor float64) bool
	scale(dst, src []byte, s scaling)
}

// runners has the runner of each type that can be reduced.
var runners = map[memory.DType]runner{
	memory.PRED: &native[uint8]{table: truths},
	memory.S8:   integers[int8](), memory.S16: integers[int16](), memory.S32: integers[int32](), memory.S64: integers[int64](),
	memory.U8: integers[uint8](), memory.U16: integers[uint16](), memory.U32: integers[uint32](), memory.U64: integers[uint64](),
	memory.F32: floats[float32](), memory.F64: floats[float64](),
	memory.C64: complexes[complex64](), memory.C128: complexes[complex128](),
	memory.S4: &native[uint8]{table: halves(signed)}, memory.U4: &native[uint8]{table: halves(unsigned)},
	memory.F16:  &narrow[uint16]{widen: widenF16, round: narrowF16},
	memory.BF16: &narrow[uint16]{widen: widenBF16, round: narrowBF16},

	memory.F8E5M2: tiny(ieee8(5)), memory.F8E4M3: tiny(ieee8(4)), memory.F8E3M4: tiny(ieee8(3)),
	memory.F8E4M3FN:      tiny(minifloat{4, 3, 7, allOnes}),
	memory.F8E4M3B11FNUZ: tiny(minifloat{4, 3, 11, minusZero}),
	memory.F8E4M3FNUZ:    tiny(minifloat{4, 3, 8, minusZero}),
	memory.F8E5M2FNUZ:    tiny(minifloat{5, 2, 16, minusZero}),
}

// tile is how many elements are reduced at a time where there are more than two inputs: the partial results
// stay in the first cache.
const tile = 512

// A native runner reduces elements that Go can compute with.
type native[T any] struct {
	table  table[T]
	scaler func(v []T, s scaling)    // or nil
	fit    func(factor float64) bool // or nil: any factor does
	tiles  pool[nativeTile[T]]
}

// A nativeTile is the memory for one tile.
type nativeTile[T any] struct{ sum, next [tile]T }

func (n *native[T]) has(op Op) bool { return int(op) < len(n.table) && n.table[op] != nil }

func (n *native[T]) run(op Op, dst []byte, inputs [][]byte, from int) {
	f := n.table[op]
	if len(inputs) == 2 && aligned[T](dst, inputs[0], inputs[1]) {
		f(cast[T](dst[from:]), cast[T](inputs[0][from:]), cast[T](inputs[1][from:]))
		return
	}
	m := n.tiles.take()
	defer n.tiles.put(m)
	width := int(unsafe.Sizeof(m.sum[0]))
	for at := from; at < len(dst); at += tile * width {
		end := min(at+tile*width, len(dst))
		sum, next := m.sum[:(end-at)/width], m.next[:(end-at)/width]
		copy(bytesOf(sum), inputs[0][at:end])
		for _, in := range inputs[1:] {
			copy(bytesOf(next), in[at:end])
			f(sum, sum, next)
		}
		copy(dst[at:end], bytesOf(sum))
	}
}

// A narrow runner reduces floats of few bits as floats of 32.
type narrow[T any] struct {
	widen func(dst []float32, src []T)
	round func(dst []T, src []float32)
	tiles pool[narrowTile[T]]
}

// A narrowTile is the memory for one tile.
type narrowTile[T any] struct {
	sum, next [tile]float32
	raw       [tile]T
}

func (n *narrow[T]) has(op Op) bool { return wide.has(op) }

// wide reduces floats of 32 bits.
var wide = floats[float32]()

func (n *narrow[T]) run(op Op, dst []byte, inputs [][]byte, from int) {
	f := wide.table[op]
	m := n.tiles.take()
	defer n.tiles.put(m)
	width := int(unsafe.Sizeof(m.raw[0]))
	for at := from; at < len(dst); at += tile * width {
		end := min(at+tile*width, len(dst))
		k := (end - at) / width
		sum, next, raw := m.sum[:k], m.next[:k], m.raw[:k]
		for i, in := range inputs {
			copy(bytesOf(raw), in[at:end])
			if i == 0 {
				n.widen(sum, raw)
				continue
			}
			n.widen(next, raw)
			f(sum, sum, next)
		}
		n.round(raw, sum)
		copy(dst[at:end], bytesOf(raw))
	}
}

// A pool keeps the memory of tiles for the next call. The functions of a runner are values, and what is handed to them
// cannot stay on the stack.
type pool[T any] struct{ free sync.Pool }

func (p *pool[T]) take() *T {
	if m, ok := p.free.Get().(*T); ok {
		return m
	}
	return new(T)
}

func (p *pool[T]) put(m *T) { p.free.Put(m) }

// aligned says whether all begin where an element may.
func aligned[T any](all ...[]byte) bool {
	var zero T
	for _, b := range all {
		if uintptr(unsafe.Pointer(unsafe.SliceData(b)))%unsafe.Alignof(zero) != 0 {
			return false
		}
	}
	return true
}

// cast is aligned bytes as elements.
func cast[T any](b []byte) []T {
	var zero T
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/int(unsafe.Sizeof(zero)))
}

// bytesOf is elements as bytes.
func bytesOf[T any](s []T) []byte {
	var zero T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(zero)))
}
