package kernel

import (
	"errors"
	"fmt"
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
		runners[t].run(op, dst, inputs)
	}
	return nil
}

// A runner reduces the elements of one type.
type runner interface {
	has(op Op) bool
	run(op Op, dst []byte, inputs [][]byte)
}

// runners has the runner of each type that can be reduced.
var runners = map[memory.DType]runner{
	memory.PRED: &native[uint8]{truths},
	memory.S8:   integers[int8](), memory.S16: integers[int16](), memory.S32: integers[int32](), memory.S64: integers[int64](),
	memory.U8: integers[uint8](), memory.U16: integers[uint16](), memory.U32: integers[uint32](), memory.U64: integers[uint64](),
	memory.F32: floats[float32](), memory.F64: floats[float64](),
	memory.C64: complexes[complex64](), memory.C128: complexes[complex128](),
	memory.S4: &native[uint8]{halves(signed)}, memory.U4: &native[uint8]{halves(unsigned)},
	memory.F16:  &narrow[uint16]{widenF16, narrowF16},
	memory.BF16: &narrow[uint16]{widenBF16, narrowBF16},

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
type native[T any] struct{ table table[T] }

func (n *native[T]) has(op Op) bool { return int(op) < len(n.table) && n.table[op] != nil }

func (n *native[T]) run(op Op, dst []byte, inputs [][]byte) {
	f := n.table[op]
	if len(inputs) == 2 && aligned[T](dst, inputs[0], inputs[1]) {
		f(cast[T](dst), cast[T](inputs[0]), cast[T](inputs[1]))
		return
	}
	var sum, next [tile]T
	width := int(unsafe.Sizeof(sum[0]))
	for at := 0; at < len(dst); at += tile * width {
		end := min(at+tile*width, len(dst))
		k := (end - at) / width
		copy(bytesOf(sum[:k]), inputs[0][at:end])
		for _, in := range inputs[1:] {
			copy(bytesOf(next[:k]), in[at:end])
			f(sum[:k], sum[:k], next[:k])
		}
		copy(dst[at:end], bytesOf(sum[:k]))
	}
}

// A narrow runner reduces floats of few bits as floats of 32.
type narrow[T any] struct {
	widen func(dst []float32, src []T)
	round func(dst []T, src []float32)
}

func (n *narrow[T]) has(op Op) bool { return wide.has(op) }

// wide reduces floats of 32 bits.
var wide = floats[float32]()

func (n *narrow[T]) run(op Op, dst []byte, inputs [][]byte) {
	f := wide.table[op]
	var sum, next [tile]float32
	var raw [tile]T
	width := int(unsafe.Sizeof(raw[0]))
	for at := 0; at < len(dst); at += tile * width {
		end := min(at+tile*width, len(dst))
		k := (end - at) / width
		for i, in := range inputs {
			copy(bytesOf(raw[:k]), in[at:end])
			if i == 0 {
				n.widen(sum[:k], raw[:k])
				continue
			}
			n.widen(next[:k], raw[:k])
			f(sum[:k], sum[:k], next[:k])
		}
		n.round(raw[:k], sum[:k])
		copy(dst[at:end], bytesOf(raw[:k]))
	}
}

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
