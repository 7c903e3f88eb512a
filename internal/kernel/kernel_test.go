package kernel

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/serry-dev/serry/internal/lab"
	"github.com/serry-dev/serry/memory"
)

// Every type and kind, with any number of inputs, at any address and in place, is what a naive loop computes.
func TestReduce(t *testing.T) {
	lab.Clause(t, "CL-RED-1", "CL-RED-2", "CL-RED-3", "CL-RED-4", "CL-RED-5", "CL-RED-6", "CLT-OP-41")
	r := rand.New(rand.NewPCG(1, 2))
	for _, dt := range slices.Sorted(maps.Keys(runners)) {
		for op := Sum; op <= Xor; op++ {
			if Check(op, dt) != nil {
				continue
			}
			t.Run(fmt.Sprintf("%v/%v", dt, op), func(t *testing.T) {
				for range 20 {
					checkReduce(t, r, op, dt)
				}
			})
		}
	}
}

func checkReduce(t *testing.T, r *rand.Rand, op Op, dt memory.DType) {
	t.Helper()
	size := max(1, dt.Bits()/8) * r.IntN(1500)
	inputs := make([][]byte, 1+r.IntN(5))
	for i := range inputs {
		inputs[i] = make([]byte, size+8)[r.IntN(8):][:size] // at any address
		for k := range inputs[i] {
			inputs[i][k] = byte(r.Uint32())
		}
		if dt == memory.PRED {
			for k := range inputs[i] {
				inputs[i][k] &= 1
			}
		}
	}
	want := naive(op, dt, inputs)
	dst := make([]byte, size)
	if r.IntN(2) == 0 {
		dst = inputs[r.IntN(len(inputs))]
	}
	if err := Reduce(op, dt, dst, inputs...); err != nil {
		t.Fatal(err)
	}
	if at, ok := differ(dt, dst, want); ok {
		t.Fatalf("Reduce(%v, %v) of %d inputs differs at byte %d of %d: %x; want %x", op, dt, len(inputs), at, size, dst[at:min(at+8, size)], want[at:min(at+8, size)])
	}
}

// differ finds the first element that differs; the payload of a NaN does not count.
func differ(dt memory.DType, got, want []byte) (int, bool) {
	if bytes.Equal(got, want) {
		return 0, false
	}
	width := max(1, dt.Bits()/8)
	for i := 0; i < len(want); i += width {
		g, w := got[i:i+width], want[i:i+width]
		if bytes.Equal(g, w) {
			continue
		}
		if dt == memory.C64 || dt == memory.C128 {
			part := width / 2
			if sameFloat(real32(part), g[:part], w[:part]) && sameFloat(real32(part), g[part:], w[part:]) {
				continue
			}
		} else if sameFloat(dt, g, w) {
			continue
		}
		return i, true
	}
	return 0, false
}

func real32(width int) memory.DType {
	if width == 4 {
		return memory.F32
	}
	return memory.F64
}

func sameFloat(dt memory.DType, a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	x, ok := decode(dt, a)
	y, _ := decode(dt, b)
	return ok && math.IsNaN(x) && math.IsNaN(y)
}

// decode is the value of a float; it says no for other types.
func decode(dt memory.DType, b []byte) (float64, bool) {
	switch run := runners[dt].(type) {
	case *narrow[uint8]:
		var f [1]float32
		run.widen(f[:], b)
		return float64(f[0]), true
	case *narrow[uint16]:
		var f [1]float32
		run.widen(f[:], []uint16{binary.LittleEndian.Uint16(b)})
		return float64(f[0]), true
	}
	switch dt {
	case memory.F32:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(b))), true
	case memory.F64:
		return math.Float64frombits(binary.LittleEndian.Uint64(b)), true
	}
	return 0, false
}

// naive computes a reduction one element at a time, in another way than the kernels.
func naive(op Op, dt memory.DType, inputs [][]byte) []byte {
	width := max(1, dt.Bits()/8)
	var out []byte
	for at := 0; at < len(inputs[0]); at += width {
		var elements [][]byte
		for _, in := range inputs {
			elements = append(elements, in[at:at+width])
		}
		if len(inputs) == 1 {
			out = append(out, elements[0]...)
			continue
		}
		out = append(out, naiveElement(op, dt, elements)...)
	}
	return out
}

func naiveElement(op Op, dt memory.DType, elements [][]byte) []byte {
	switch dt {
	case memory.S4, memory.U4:
		low, high := make([][]byte, len(elements)), make([][]byte, len(elements))
		for i, e := range elements {
			low[i], high[i] = []byte{e[0] & 15}, []byte{e[0] >> 4}
		}
		isSigned := dt == memory.S4
		return []byte{naiveInteger(op, low, 4, isSigned)[0] | naiveInteger(op, high, 4, isSigned)[0]<<4}
	case memory.PRED:
		return naiveInteger(map[Op]Op{Sum: Or, Max: Or, Or: Or, Product: And, Min: And, And: And, Xor: Xor}[op], elements, 8, false)
	case memory.S8, memory.S16, memory.S32, memory.S64:
		return naiveInteger(op, elements, dt.Bits(), true)
	case memory.U8, memory.U16, memory.U32, memory.U64:
		return naiveInteger(op, elements, dt.Bits(), false)
	case memory.C64, memory.C128:
		return naiveComplex(op, dt, elements)
	default:
		return naiveFloat(op, dt, elements)
	}
}

func naiveInteger(op Op, elements [][]byte, bits int, isSigned bool) []byte {
	modulus := new(big.Int).Lsh(big.NewInt(1), uint(bits))
	value := func(e []byte) *big.Int {
		b := slices.Clone(e)
		slices.Reverse(b)
		v := new(big.Int).SetBytes(b)
		if isSigned && v.Bit(bits-1) == 1 {
			v.Sub(v, modulus)
		}
		return v
	}
	total := value(elements[0])
	for _, e := range elements[1:] {
		v := value(e)
		switch op {
		case Sum:
			total.Add(total, v)
		case Product:
			total.Mul(total, v)
		case Min:
			if v.Cmp(total) < 0 {
				total = v
			}
		case Max:
			if v.Cmp(total) > 0 {
				total = v
			}
		case And:
			total.And(total, v)
		case Or:
			total.Or(total, v)
		case Xor:
			total.Xor(total, v)
		}
	}
	out := total.Mod(total, modulus).FillBytes(make([]byte, len(elements[0])))
	slices.Reverse(out)
	return out
}

func naiveComplex(op Op, dt memory.DType, elements [][]byte) []byte {
	if dt == memory.C64 {
		var total complex64
		for i, e := range elements {
			v := complex(math.Float32frombits(binary.LittleEndian.Uint32(e)), math.Float32frombits(binary.LittleEndian.Uint32(e[4:])))
			switch {
			case i == 0:
				total = v
			case op == Sum:
				total += v
			default:
				total *= v
			}
		}
		b := binary.LittleEndian.AppendUint32(nil, math.Float32bits(real(total)))
		return binary.LittleEndian.AppendUint32(b, math.Float32bits(imag(total)))
	}
	var total complex128
	for i, e := range elements {
		v := complex(math.Float64frombits(binary.LittleEndian.Uint64(e)), math.Float64frombits(binary.LittleEndian.Uint64(e[8:])))
		switch {
		case i == 0:
			total = v
		case op == Sum:
			total += v
		default:
			total *= v
		}
	}
	b := binary.LittleEndian.AppendUint64(nil, math.Float64bits(real(total)))
	return binary.LittleEndian.AppendUint64(b, math.Float64bits(imag(total)))
}

func naiveFloat(op Op, dt memory.DType, elements [][]byte) []byte {
	total, _ := decode(dt, elements[0])
	for _, e := range elements[1:] {
		v, _ := decode(dt, e)
		switch op {
		case Sum:
			total += v
		case Product:
			total *= v
		case Min:
			total = min(total, v)
		case Max:
			total = max(total, v)
		}
		if dt != memory.F64 {
			total = float64(float32(total)) // exact: a sum or product of two floats rounds once
		}
	}
	switch dt {
	case memory.F64:
		return binary.LittleEndian.AppendUint64(nil, math.Float64bits(total))
	case memory.F32:
		return binary.LittleEndian.AppendUint32(nil, math.Float32bits(float32(total)))
	case memory.F16, memory.BF16:
		var bits [1]uint16
		runners[dt].(*narrow[uint16]).round(bits[:], []float32{float32(total)})
		return binary.LittleEndian.AppendUint16(nil, bits[0])
	}
	var bits [1]uint8
	runners[dt].(*narrow[uint8]).round(bits[:], []float32{float32(total)})
	return bits[:]
}

// A float of 8 bits is the nearest of all 256, the even one of two.
func TestRoundingToTheNearest(t *testing.T) {
	lab.Clause(t, "CL-RED-5")
	r := rand.New(rand.NewPCG(3, 4))
	for _, dt := range slices.Sorted(maps.Keys(runners)) {
		run, ok := runners[dt].(*narrow[uint8])
		if !ok {
			continue
		}
		bits := make([]uint8, 256)
		for i := range bits {
			bits[i] = uint8(i)
		}
		values := make([]float32, 256)
		run.widen(values, bits)
		for range 20_000 {
			f := float32(math.Ldexp(r.Float64()*2-1, r.IntN(48)-30))
			if i := r.IntN(255); r.IntN(2) == 0 && values[i] == values[i] && values[i+1] == values[i+1] {
				f = (values[i] + values[i+1]) / 2
			}
			var got [1]uint8
			run.round(got[:], []float32{f})
			if want := nearest(values, f); values[got[0]] == values[got[0]] && values[got[0]] != values[want] {
				t.Fatalf("%v: %g becomes %g; want %g", dt, f, values[got[0]], values[want])
			}
		}
	}
}

// nearest scans all finite values for the one closest to f.
func nearest(values []float32, f float32) int {
	best := 0
	for i, v := range values {
		if v != v {
			continue
		}
		now, before := math.Abs(float64(v)-float64(f)), math.Abs(float64(values[best])-float64(f))
		if now < before || now == before && i&1 == 0 {
			best = i
		}
	}
	if top := slices.Max(finite(values)); math.IsInf(float64(values[best]), 0) || math.Abs(float64(f)) > float64(top) {
		return beyond(values, f)
	}
	return best
}

// finite are the values that are numbers.
func finite(values []float32) []float32 {
	return slices.DeleteFunc(slices.Clone(values), func(v float32) bool { return v != v || math.IsInf(float64(v), 0) })
}

// beyond is the value for f outside of the range: the last one if f is within half a step of it, else infinity.
func beyond(values []float32, f float32) int {
	numbers := finite(values)
	slices.Sort(numbers)
	top, step := numbers[len(numbers)-1], numbers[len(numbers)-1]-numbers[len(numbers)-2]
	want := float32(math.Inf(1))
	if math.Abs(float64(f)) < float64(top)+float64(step)/2 {
		want = top
	}
	if f < 0 {
		want = -want
	}
	return max(0, slices.Index(values, want))
}

func TestFloatsOf16Bits(t *testing.T) {
	lab.Clause(t, "CL-RED-5")
	half := minifloat{5, 10, 15, none}
	for i := range 1 << 16 {
		var f [1]float32
		widenF16(f[:], []uint16{uint16(i)})
		if want := half.widen(uint16(i)); f[0] != want && (f[0] == f[0] || want == want) {
			t.Fatalf("widenF16(%#x) = %g; want %g", i, f[0], want)
		}
	}
	for i := range uint32(1 << 18) {
		f := math.Float32frombits(i<<14 | i&1<<13 | i>>1&1)
		var got [1]uint16
		narrowF16(got[:], []float32{f})
		if want := half.round(f); got[0] != want && f == f {
			t.Fatalf("narrowF16(%g) = %#x; want %#x", f, got[0], want)
		}
	}
}

func TestWhatCannotBeReduced(t *testing.T) {
	lab.Clause(t, "CL-RED-1", "CL-RED-3", "CL-DT-1")
	for _, row := range []struct {
		op Op
		dt memory.DType
	}{{0, memory.F32}, {200, memory.F32}, {Min, memory.C64}, {Max, memory.C128}, {Or, memory.F32}, {Xor, memory.BF16}, {Sum, memory.S2}, {Sum, memory.F8E8M0FNU}, {Sum, 0}, {Sum, 99}} {
		if err := Reduce(row.op, row.dt, make([]byte, 16), make([]byte, 16)); !errors.Is(err, ErrUnsupported) {
			t.Errorf("Reduce(%v, %v) = %v; want ErrUnsupported", row.op, row.dt, err)
		}
	}
	if err := Reduce(Sum, memory.F32, make([]byte, 8), make([]byte, 4)); err == nil {
		t.Error("4 bytes were reduced into 8")
	}
	if err := Reduce(Sum, memory.F32, make([]byte, 6), make([]byte, 6)); err == nil {
		t.Error("6 bytes of f32 were reduced")
	}
}

func BenchmarkReduce(b *testing.B) {
	for _, dt := range []memory.DType{memory.F32, memory.F64, memory.BF16, memory.F16, memory.S32, memory.F8E4M3FN} {
		for _, inputs := range []int{2, 4} {
			b.Run(fmt.Sprintf("%v/inputs=%d", dt, inputs), func(b *testing.B) {
				dst := make([]byte, 64<<10)
				all := make([][]byte, inputs)
				for i := range all {
					all[i] = make([]byte, len(dst))
				}
				b.SetBytes(int64(len(dst)))
				for b.Loop() {
					if err := Reduce(Sum, dt, dst, all...); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
