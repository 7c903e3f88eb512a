package kernel_test

import (
	"errors"
	"math"
	"testing"

	"github.com/serry-dev/serry/internal/kernel"
	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/memory"
)

// scaled multiplies a vector, or divides it, at an odd address, and compares it with what it must be.
func scaled[T memory.Number](t *testing.T, kind memory.DType, in []T, factor float64, divisor int64, want []T) {
	t.Helper()
	size := len(memory.OfSlice(in).Bytes())
	src, dst := make([]byte, size+1)[1:], make([]byte, size+1)[1:]
	copy(src, memory.OfSlice(in).Bytes())
	err := kernel.Multiply(kind, dst, src, factor)
	if divisor != 0 {
		copy(dst, src)
		err = kernel.Divide(kind, dst, divisor)
	}
	if err != nil || string(dst) != string(memory.OfSlice(want).Bytes()) {
		t.Errorf("%v of %v by %v or %d = %x (%v); want %v", kind, in, factor, divisor, dst, err, want)
	}
}

func TestScale(t *testing.T) {
	clause.Cite(t, "CL-RED-6")
	scaled(t, memory.S8, []int8{-128, 127, -7}, 0, 2, []int8{-64, 63, -3})
	scaled(t, memory.S8, []int8{-128, 127, 5}, 0, 1000, []int8{0, 0, 0})
	scaled(t, memory.U8, []uint8{255, 7}, 0, 255, []uint8{1, 0})
	scaled(t, memory.U8, []uint8{100, 7}, 3, 0, []uint8{44, 21})
	scaled(t, memory.S16, []int16{-300, 7}, -2, 0, []int16{600, -14})
	scaled(t, memory.U64, []uint64{1, 3}, math.Ldexp(1, 63), 0, []uint64{1 << 63, 1 << 63})
	scaled(t, memory.S64, []int64{math.MaxInt64, -9}, 0, 4, []int64{math.MaxInt64 / 4, -2})
	scaled(t, memory.F64, []float64{1, -0.5}, 0, 3, []float64{1. / 3, -0.5 / 3})
	scaled(t, memory.F32, []float32{1, float32(math.Inf(1))}, 0.1, 0, []float32{0.1, float32(math.Inf(1))})
	scaled(t, memory.C64, []complex64{1 + 2i}, 0.5, 0, []complex64{0.5 + 1i})
	scaled(t, memory.BF16, []uint16{0x3F80, 0xC000}, 1.5, 0, []uint16{0x3FC0, 0xC040})
	scaled(t, memory.F16, []uint16{0x3C00, 0x4200}, 0, 2, []uint16{0x3800, 0x3E00})
	for kind, factor := range map[memory.DType]float64{memory.PRED: 1, memory.S4: 1, memory.S8: 128, memory.U16: -1, memory.S32: 0.5, memory.U64: math.Ldexp(1, 64), memory.S64: math.NaN(), memory.F4E2M1FN: 1} {
		if err := kernel.Multiply(kind, nil, nil, factor); !errors.Is(err, kernel.ErrUnsupported) {
			t.Errorf("%v by %v: %v; want ErrUnsupported", kind, factor, err)
		}
	}
}

// Every float of 16 or 8 bits is the same after it was widened and narrowed.
func TestWidenAndNarrow(t *testing.T) {
	clause.Cite(t, "CL-RED-5")
	for kind := memory.DType(1); kind < 40; kind++ {
		if !kernel.IsNarrow(kind) {
			continue
		}
		width := kind.Bits() / 8
		all := make([]byte, width<<kind.Bits())
		for i := range 1 << kind.Bits() {
			for b := range width {
				all[width*i+b] = byte(i >> (8 * b))
			}
		}
		wide, back := make([]byte, 4*len(all)/width), make([]byte, len(all))
		kernel.Widen(kind, wide, all)
		kernel.Narrow(kind, back, wide)
		for i := 0; i < len(all); i += width {
			if f := floatAt(wide, i/width); f == f && string(back[i:i+width]) != string(all[i:i+width]) {
				t.Fatalf("%v %x becomes %v, and %x again", kind, all[i:i+width], f, back[i:i+width])
			}
		}
	}
	if kernel.IsNarrow(memory.F32) || kernel.IsNarrow(memory.S8) || !kernel.IsNarrow(memory.F8E4M3FN) {
		t.Error("other types are narrow")
	}
}

func floatAt(b []byte, i int) float32 {
	return math.Float32frombits(uint32(b[4*i]) | uint32(b[4*i+1])<<8 | uint32(b[4*i+2])<<16 | uint32(b[4*i+3])<<24)
}
