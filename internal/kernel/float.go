package kernel

import "math"

func widenBF16(dst []float32, src []uint16) {
	for i, v := range src {
		dst[i] = math.Float32frombits(uint32(v) << 16)
	}
}

func narrowBF16(dst []uint16, src []float32) {
	for i, f := range src {
		v := math.Float32bits(f)
		if f != f {
			dst[i] = uint16(v>>16) | 0x40 // a NaN whose payload is in the lower half stays one
			continue
		}
		dst[i] = uint16((v + 0x7fff + v>>16&1) >> 16)
	}
}

func widenF16(dst []float32, src []uint16) {
	for i, v := range src {
		sign, magnitude := uint32(v&0x8000)<<16, uint32(v&0x7fff)
		switch {
		case magnitude >= 0x7c00: // infinite, or NaN
			dst[i] = math.Float32frombits(sign | 0x7f800000 | magnitude<<13)
		case magnitude < 0x400: // subnormal: so many times 2^-24
			dst[i] = math.Float32frombits(sign | math.Float32bits(float32(magnitude)*0x1p-24))
		default:
			dst[i] = math.Float32frombits(sign | (magnitude<<13 + (127-15)<<23))
		}
	}
}

func narrowF16(dst []uint16, src []float32) {
	for i, f := range src {
		v := math.Float32bits(f)
		sign, magnitude := uint16(v>>16&0x8000), v&0x7fffffff
		switch {
		case magnitude > 0x7f800000:
			dst[i] = sign | 0x7e00
		case magnitude >= 0x47800000: // 65536 and more
			dst[i] = sign | 0x7c00
		case magnitude < 0x38800000: // subnormal: beside 0.5 a float of 32 bits has steps of 2^-24, and rounds to them
			dst[i] = sign | uint16(math.Float32bits(math.Float32frombits(magnitude)+0.5)-0x3f000000)
		default:
			dst[i] = sign | uint16((magnitude-(127-15)<<23+0xfff+magnitude>>13&1)>>13)
		}
	}
}

// A nan says how a format writes what is not a number.
type nan uint8

const (
	none      nan = iota // as IEEE 754 does: it has infinities, and NaNs beyond them
	allOnes              // there is no infinity; exponent and mantissa all ones is NaN
	minusZero            // there is neither infinity nor -0; the bits of -0 are NaN
)

// A minifloat is a format of floats with a sign and few bits of exponent and mantissa.
type minifloat struct {
	exponent, mantissa uint // bits
	bias               int
	only               nan
}

// ieee8 is the format of 8 bits with so many for the exponent.
func ieee8(exponent uint) minifloat {
	return minifloat{exponent: exponent, mantissa: 7 - exponent, bias: 1<<(exponent-1) - 1}
}

// tiny is the runner of a format of 8 bits. It widens by a table.
func tiny(m minifloat) *narrow[uint8] {
	var values [256]float32
	for i := range values {
		values[i] = m.widen(uint16(i))
	}
	return &narrow[uint8]{
		widen: func(dst []float32, src []uint8) {
			for i, v := range src {
				dst[i] = values[v]
			}
		},
		round: func(dst []uint8, src []float32) {
			for i, f := range src {
				dst[i] = uint8(m.round(f))
			}
		},
	}
}

func (m minifloat) sign() uint16 { return 1 << (m.exponent + m.mantissa) }

// special is the bits of exponent and mantissa from which on there are no finite values, and the NaN.
func (m minifloat) special() (first, nan uint16) {
	ones := m.sign() - 1
	switch m.only {
	case allOnes:
		return ones, ones
	case minusZero:
		return m.sign(), m.sign()
	default:
		inf := ones &^ (1<<m.mantissa - 1)
		return inf, inf | 1<<(m.mantissa-1)
	}
}

// widen is the value of some bits; every one has an exact float of 32 bits.
func (m minifloat) widen(v uint16) float32 {
	negative, magnitude := v&m.sign() != 0, v&(m.sign()-1)
	first, _ := m.special()
	var f float64
	switch {
	case m.only == minusZero && v == m.sign():
		f = math.NaN()
	case magnitude >= first && m.only == none && magnitude == first:
		f = math.Inf(1)
	case magnitude >= first:
		f = math.NaN()
	default:
		e, frac := int(magnitude>>m.mantissa), int(magnitude&(1<<m.mantissa-1))
		if e > 0 {
			frac |= 1 << m.mantissa
		}
		f = math.Ldexp(float64(frac), max(e, 1)-m.bias-int(m.mantissa))
	}
	if negative {
		f = -f
	}
	return float32(f)
}

// round is the bits of the value that is nearest to f, the even one of two. Too great ones are infinite, or NaN
// where there is no infinity.
func (m minifloat) round(f float32) uint16 {
	first, nan := m.special()
	var sign uint16
	if math.Signbit(float64(f)) {
		sign = m.sign()
	}
	if f != f {
		if m.only == minusZero {
			return nan
		}
		return sign | nan
	}
	magnitude := m.nearest(math.Float32bits(f) &^ (1 << 31))
	switch {
	case magnitude >= uint32(first) && m.only == minusZero:
		return nan
	case magnitude >= uint32(first) && m.only == allOnes:
		return sign | nan
	case magnitude >= uint32(first):
		return sign | first
	case magnitude == 0 && m.only == minusZero:
		return 0
	}
	return sign | uint16(magnitude)
}

// nearest is exponent and mantissa of the value nearest to that of some bits, as if the exponent had no end.
func (m minifloat) nearest(bits uint32) uint32 {
	if least := uint32(127+1-m.bias) << 23; bits < least {
		// Subnormal. Beside this power of two a float of 32 bits has the steps of the format, and rounds to them.
		power := uint32(127+23+1-m.bias-int(m.mantissa)) << 23
		return math.Float32bits(math.Float32frombits(bits)+math.Float32frombits(power)) - power
	}
	drop := 23 - m.mantissa
	rounded := (bits + 1<<(drop-1) - 1 + bits>>drop&1) >> drop
	return rounded - uint32(127-m.bias)<<m.mantissa
}
