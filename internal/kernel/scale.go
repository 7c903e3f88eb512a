package kernel

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/serry-dev/serry/memory"
)

// A scaling multiplies elements by a factor, or divides them by a whole number.
type scaling struct {
	factor  float64
	divisor int64 // or 0: it multiplies
}

// CanScale says whether elements of a type can be multiplied and divided.
func CanScale(t memory.DType) error {
	if run, ok := runners[t]; ok && run.scales() {
		return nil
	}
	return fmt.Errorf("%w: multiples of %v", ErrUnsupported, t)
}

// Multiply sets each element of dst to a multiple of that of src, which may be the same memory. Floats of few bits are rounded
// once. The factor of integers is a whole number that the type has; the product wraps.
func Multiply(t memory.DType, dst, src []byte, factor float64) error {
	return scale(t, dst, src, scaling{factor: factor})
}

// Divide divides each element by n, which is not 0. Integers lose their fraction (CL-RED-6).
func Divide(t memory.DType, dst []byte, n int64) error {
	return scale(t, dst, dst, scaling{divisor: n})
}

func scale(t memory.DType, dst, src []byte, s scaling) error {
	if err := FitsFactor(t, s.factor); err != nil {
		return err
	}
	if width := t.Bits() / 8; len(dst) != len(src) || len(dst)%width != 0 {
		return fmt.Errorf("%d bytes to scale into %d of %v", len(src), len(dst), t)
	}
	runners[t].scale(dst, src, s)
	return nil
}

// FitsFactor says whether elements of a type can be multiplied by a factor.
func FitsFactor(t memory.DType, factor float64) error {
	if err := CanScale(t); err != nil {
		return err
	}
	if !runners[t].fits(factor) {
		return fmt.Errorf("%w: %v as a factor of %v", ErrUnsupported, factor, t)
	}
	return nil
}

func (n *native[T]) scales() bool { return n.scaler != nil }

func (n *native[T]) fits(factor float64) bool { return n.fit == nil || n.fit(factor) }

func (n *native[T]) scale(dst, src []byte, s scaling) {
	m := n.tiles.take()
	defer n.tiles.put(m)
	width := int(unsafe.Sizeof(m.sum[0]))
	for at := 0; at < len(dst); at += tile * width {
		end := min(at+tile*width, len(dst))
		v := m.sum[:(end-at)/width]
		copy(bytesOf(v), src[at:end])
		n.scaler(v, s)
		copy(dst[at:end], bytesOf(v))
	}
}

func (n *narrow[T]) scales() bool { return true }

func (n *narrow[T]) fits(float64) bool { return true }

func (n *narrow[T]) scale(dst, src []byte, s scaling) {
	n.tiled(len(dst), func(at, end, _ int, v []float32, raw []T) {
		copy(bytesOf(raw), src[at:end])
		n.widen(v, raw)
		wide.scaler(v, s)
		n.round(raw, v)
		copy(dst[at:end], bytesOf(raw))
	})
}

// tiled calls f for each tile of a vector of so many bytes, with memory for the tile. The tile lies between two bytes of the vector;
// wide is where it begins among floats of 32 bits.
func (n *narrow[T]) tiled(bytes int, f func(at, end, wide int, v []float32, raw []T)) {
	m := n.tiles.take()
	defer n.tiles.put(m)
	width := int(unsafe.Sizeof(m.raw[0]))
	for at := 0; at < bytes; at += tile * width {
		end := min(at+tile*width, bytes)
		k := (end - at) / width
		f(at, end, 4*at/width, m.sum[:k], m.raw[:k])
	}
}

func scaleInteger[T integer](v []T, s scaling) {
	if s.divisor != 0 {
		for i := range v {
			v[i] = quotient(v[i], s.divisor)
		}
		return
	}
	f := T(int64(s.factor))
	if s.factor > math.MaxInt64 {
		f = T(uint64(s.factor))
	}
	for i := range v {
		v[i] *= f
	}
}

// quotient is a/n without its fraction. A divisor that the type does not have is greater than all of its values.
func quotient[T integer](a T, n int64) T {
	if d := T(n); d > 0 && int64(d) == n {
		return a / d
	}
	return 0
}

// isWhole says whether a type of integers has a number.
func isWhole[T integer](f float64) bool {
	var zero T
	bits := 8 * int(unsafe.Sizeof(zero))
	least, most := 0.0, math.Ldexp(1, bits)
	if zero-1 < 0 {
		least, most = -math.Ldexp(1, bits-1), math.Ldexp(1, bits-1)
	}
	return f == math.Trunc(f) && f >= least && f < most
}

func scaleFloat[T float32 | float64](v []T, s scaling) {
	for i := range v {
		if s.divisor != 0 {
			v[i] /= T(s.divisor)
		} else {
			v[i] *= T(s.factor)
		}
	}
}

func scaleComplex[T complex64 | complex128](v []T, s scaling) {
	for i := range v {
		if s.divisor != 0 {
			v[i] = T(complex(real(complex128(v[i]))/float64(s.divisor), imag(complex128(v[i]))/float64(s.divisor)))
		} else {
			v[i] = T(complex(real(complex128(v[i]))*s.factor, imag(complex128(v[i]))*s.factor))
		}
	}
}

// IsNarrow says whether a type is one of floats that are reduced as floats of 32 bits.
func IsNarrow(t memory.DType) bool {
	_, ok := runners[t].(widener)
	return ok
}

// A widener turns floats of few bits into floats of 32, and back.
type widener interface {
	widenAll(dst, src []byte)
	narrowAll(dst, src []byte)
}

// Widen sets dst to the elements of src as floats of 32 bits. Type is narrow.
func Widen(t memory.DType, dst, src []byte) { runners[t].(widener).widenAll(dst, src) }

// Narrow sets dst to the floats of 32 bits of src, rounded to the nearest and to even. Type is narrow.
func Narrow(t memory.DType, dst, src []byte) { runners[t].(widener).narrowAll(dst, src) }

func (n *narrow[T]) widenAll(dst, src []byte) {
	n.tiled(len(src), func(at, end, wide int, v []float32, raw []T) {
		copy(bytesOf(raw), src[at:end])
		n.widen(v, raw)
		copy(dst[wide:], bytesOf(v))
	})
}

func (n *narrow[T]) narrowAll(dst, src []byte) {
	n.tiled(len(dst), func(at, end, wide int, v []float32, raw []T) {
		copy(bytesOf(v), src[wide:])
		n.round(raw, v)
		copy(dst[at:end], bytesOf(raw))
	})
}
