package kernel

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/serry-dev/serry/internal/lab"
	"github.com/serry-dev/serry/memory"
)

// portable reduces without the kernels of this processor.
func portable(op Op, t memory.DType, dst []byte, inputs [][]byte) { runners[t].run(op, dst, inputs, 0) }

// eachKernel runs a test for every kernel of this processor.
func eachKernel(t *testing.T, test func(t *testing.T, op Op, dt memory.DType)) {
	if len(accelerated) == 0 {
		t.Skip("VECTOR KERNELS ARE NOT TESTED: this processor has none")
	}
	for _, dt := range slices.Sorted(maps.Keys(accelerated)) {
		for op := Sum; op <= Max; op++ {
			if kernelFor(op, dt).two != nil {
				t.Run(fmt.Sprintf("%v/%v", dt, op), func(t *testing.T) { test(t, op, dt) })
			}
		}
	}
}

// The types and kinds of CL-KRN-1 have kernels where the processor can run them, and only there.
func TestKernelsOfAProcessor(t *testing.T) {
	lab.Clause(t, "CL-KRN-1")
	if len(accelerated) == 0 {
		t.Skip("VECTOR KERNELS ARE NOT TESTED: this processor has none")
	}
	for _, dt := range []memory.DType{memory.F32, memory.F64, memory.BF16, memory.F16, memory.S32, memory.S64} {
		for op := Sum; op <= Max; op++ {
			if v := kernelFor(op, dt); v.two == nil || v.many == nil {
				t.Errorf("no kernel for %v of %v", op, dt)
			}
		}
	}
	for op := Sum; op <= Xor; op++ {
		if kernelFor(op, memory.C64).two != nil || kernelFor(op, 0).two != nil {
			t.Errorf("a kernel for %v of a type that has none", op)
		}
	}
}

// Vector and portable kernels compute the same bits for every length, place and number of inputs, in place too, and
// leave the bytes around dst alone.
func TestVectorsAsPortable(t *testing.T) {
	lab.Clause(t, "CL-KRN-1", "CL-KRN-3", "CL-KRN-4")
	eachKernel(t, func(t *testing.T, op Op, dt memory.DType) {
		r := rand.New(rand.NewPCG(uint64(op), uint64(dt)))
		for count := range 71 {
			for place := range 8 {
				for _, inputs := range []int{2, 3, 4, 8} {
					compare(t, op, dt, fill(r, dt, inputs, count, place), place)
				}
			}
		}
	})
}

// Long vectors are reduced in strides.
func TestLongVectors(t *testing.T) {
	lab.Clause(t, "CL-KRN-1", "CL-KRN-3")
	eachKernel(t, func(t *testing.T, op Op, dt memory.DType) {
		r := rand.New(rand.NewPCG(uint64(op), uint64(dt)))
		for _, inputs := range []int{2, 3} {
			compare(t, op, dt, fill(r, dt, inputs, (2*strideBytes+100)/(dt.Bits()/8), 1), 2)
		}
	})
}

func TestVectorsAtRandom(t *testing.T) {
	lab.Clause(t, "CL-KRN-3")
	eachKernel(t, func(t *testing.T, op Op, dt memory.DType) {
		rapid.Check(t, func(t *rapid.T) {
			r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
			inputs := rapid.IntRange(2, 9).Draw(t, "inputs")
			count := rapid.IntRange(0, 700).Draw(t, "count")
			compare(t, op, dt, fill(r, dt, inputs, count, rapid.IntRange(0, 31).Draw(t, "place")), rapid.IntRange(0, 31).Draw(t, "place of dst"))
		})
	})
}

// fill makes inputs of random elements, of which many are special. The first begins at a place, each other one further on.
func fill(r *rand.Rand, dt memory.DType, inputs, count, place int) [][]byte {
	width := dt.Bits() / 8
	special := specials(dt)
	all := make([][]byte, inputs)
	for i := range all {
		all[i] = make([]byte, count*width+64)[place+i*3%32:][:count*width]
		for k := 0; k < len(all[i]); k += width {
			var bits [8]byte
			binary.LittleEndian.PutUint64(bits[:], r.Uint64())
			if r.IntN(3) == 0 {
				binary.LittleEndian.PutUint64(bits[:], special[r.IntN(len(special))])
			}
			copy(all[i][k:k+width], bits[:])
		}
	}
	return all
}

// specials has the bits of values that are easily reduced wrongly: zeros, infinities, NaNs that are quiet and that
// signal, the least and the greatest of every kind, and one.
func specials(dt memory.DType) []uint64 {
	bits := uint(dt.Bits())
	sign := uint64(1) << (bits - 1)
	list := []uint64{0, 1, 2, sign - 1, sign - 2}
	if mantissa, ok := map[memory.DType]uint{memory.F32: 23, memory.F64: 52, memory.BF16: 7, memory.F16: 10}[dt]; ok {
		infinity := sign - 1<<mantissa
		one := infinity >> 1 &^ (1<<mantissa - 1)
		list = append(list, infinity, infinity-1, infinity|1, infinity|1<<(mantissa-1), 1<<mantissa, 1<<mantissa-1, one, one+1)
	}
	for _, v := range list {
		list = append(list, v|sign)
	}
	return list
}

// failer is what *testing.T and *rapid.T have in common.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

// compare reduces by the kernels of this processor and without, into other memory and into each input.
func compare(t failer, op Op, dt memory.DType, inputs [][]byte, place int) {
	t.Helper()
	want := make([]byte, len(inputs[0]))
	portable(op, dt, want, inputs)
	for into := range len(inputs) + 1 {
		all := make([][]byte, len(inputs))
		for i := range all {
			all[i] = append(make([]byte, place), inputs[i]...)[place:]
		}
		whole := bytes.Repeat([]byte{0xA5}, len(want)+2*64)
		dst := whole[64+place%32:][:len(want)]
		if into < len(inputs) {
			dst = all[into]
		}
		if err := Reduce(op, dt, dst, all...); err != nil {
			t.Fatalf("Reduce() = %v", err)
		}
		if at, ok := differ(dt, dst, want); ok {
			t.Fatalf("%v of %d inputs of %d %v into %d differs at byte %d: %x; want %x", op, len(inputs), len(want)*8/dt.Bits(), dt, into, at,
				dst[at:at+dt.Bits()/8], want[at:at+dt.Bits()/8])
		}
		around := append(whole[:64+place%32:64+place%32], whole[64+place%32+len(want):]...)
		if bytes.Count(around, []byte{0xA5}) != len(around) {
			t.Fatalf("%v of %d inputs of %d %v wrote beyond dst: %x", op, len(inputs), len(want)*8/dt.Bits(), dt, around)
		}
	}
}

// Each two of the special values, in both orders and in every lane; and all values of 16 bits.
func TestVectorsOfSpecialValues(t *testing.T) {
	lab.Clause(t, "CL-KRN-3", "CL-RED-4", "CLT-OP-41")
	eachKernel(t, func(t *testing.T, op Op, dt memory.DType) {
		special := specials(dt)
		var a, b []byte
		for _, x := range special {
			for _, y := range special {
				for range 9 { // so that each pair comes to lie in each lane
					a, b = appendBits(a, dt, x), appendBits(b, dt, y)
				}
			}
		}
		compare(t, op, dt, [][]byte{a, b}, 0)
		if dt.Bits() != 16 {
			return
		}
		for _, y := range special {
			a, b = a[:0], b[:0]
			for x := range uint64(1 << 16) {
				a, b = appendBits(a, dt, x), appendBits(b, dt, y)
			}
			compare(t, op, dt, [][]byte{a, b}, 0)
		}
	})
}

func appendBits(b []byte, dt memory.DType, bits uint64) []byte {
	var all [8]byte
	binary.LittleEndian.PutUint64(all[:], bits)
	return append(b, all[:dt.Bits()/8]...)
}

// Steady work allocates nothing, with portable kernels neither.
func TestReduceAllocatesNothing(t *testing.T) {
	lab.Clause(t, "CL-KRN-1")
	if raceEnabled {
		t.Skip("the race detector empties pools at random")
	}
	for _, dt := range []memory.DType{memory.F32, memory.BF16, memory.F8E4M3FN, memory.C64} {
		for _, count := range []int{2, 3} {
			inputs := make([][]byte, count)
			for i := range inputs {
				inputs[i] = make([]byte, 4096+8)[4:][:4096] // not aligned for an element of 8 bytes
			}
			dst := inputs[0]
			if n := testing.AllocsPerRun(100, func() {
				if err := Reduce(Sum, dt, dst, inputs...); err != nil {
					t.Fatal(err)
				}
			}); n != 0 {
				t.Errorf("Reduce(%v of %d inputs) allocates %v times", dt, count, n)
			}
		}
	}
}

func FuzzVectors(f *testing.F) {
	f.Add(uint8(memory.F32), uint8(Min), uint8(2), []byte("0123456789abcdef0123456789abcdef0123456789abcdef"))
	f.Fuzz(func(t *testing.T, dtype, kind, inputs uint8, data []byte) {
		op, dt, count := Op(kind), memory.DType(dtype), int(inputs)
		if kernelFor(op, dt).two == nil || count < 2 {
			return
		}
		size := len(data) / count / (dt.Bits() / 8) * (dt.Bits() / 8)
		all := make([][]byte, count)
		for i := range all {
			all[i] = data[i*size : (i+1)*size]
		}
		compare(t, op, dt, all, size%32)
	})
}

// BenchmarkVectors measures kernels of this processor and portable ones in turn, and reports how many times as fast the
// former are, from the first cache, from the last one, and from memory.
func BenchmarkVectors(b *testing.B) {
	for _, dt := range slices.Sorted(maps.Keys(accelerated)) {
		for op := Sum; op <= Max; op++ {
			for _, bytes := range []int{8 << 10, 512 << 10, 32 << 20} {
				if kernelFor(op, dt).two == nil {
					continue
				}
				b.Run(fmt.Sprintf("%v/%v/%dKiB", dt, op, bytes>>10), func(b *testing.B) { measure(b, op, dt, bytes) })
			}
		}
	}
}

func measure(b *testing.B, op Op, dt memory.DType, size int) {
	r := rand.New(rand.NewPCG(1, 2))
	inputs := [][]byte{make([]byte, size), make([]byte, size)}
	for _, in := range inputs {
		for i := 0; i < size; i += 8 {
			binary.LittleEndian.PutUint64(in[i:], r.Uint64()&0x3fff3fff3fff3fff) // finite
		}
	}
	dst := make([]byte, size)
	var ratios []float64
	for b.Loop() {
		began := time.Now()
		portable(op, dt, dst, inputs)
		middle := time.Now()
		if err := Reduce(op, dt, dst, inputs...); err != nil {
			b.Fatal(err)
		}
		ratios = append(ratios, float64(middle.Sub(began))/float64(max(time.Since(middle), 1)))
	}
	slices.Sort(ratios)
	b.ReportMetric(ratios[len(ratios)/2], "x-portable")
}
