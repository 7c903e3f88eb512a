package kernel

// An integer is a type of whole numbers that Go has.
type integer interface {
	~int8 | ~int16 | ~int32 | ~int64 | ~uint8 | ~uint16 | ~uint32 | ~uint64
}

// each is the loop of all kernels: dst[i] = f(a[i], b[i]). The compiler copies it for each type; f is called once
// an element, which costs little beside memory, but is what the common kernels below avoid.
func each[T any](f func(a, b T) T) func(dst, a, b []T) {
	return func(dst, a, b []T) {
		a, b = a[:len(dst)], b[:len(dst)]
		for i := range dst {
			dst[i] = f(a[i], b[i])
		}
	}
}

func add[T integer | ~float32 | ~float64 | ~complex64 | ~complex128](dst, a, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = a[i] + b[i]
	}
}

func least[T integer | ~float32 | ~float64](dst, a, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = min(a[i], b[i])
	}
}

func greatest[T integer | ~float32 | ~float64](dst, a, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = max(a[i], b[i])
	}
}

func multiply[T integer | ~float32 | ~float64 | ~complex64 | ~complex128](dst, a, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = a[i] * b[i]
	}
}

func integers[T integer]() *native[T] {
	return &native[T]{scaler: scaleInteger[T], fit: isWhole[T], table: table[T]{
		Sum: add[T], Product: multiply[T], Min: least[T], Max: greatest[T],
		And: each(func(a, b T) T { return a & b }),
		Or:  each(func(a, b T) T { return a | b }),
		Xor: each(func(a, b T) T { return a ^ b }),
	}}
}

// floats relies on Go's min and max: either is NaN if one operand is, and -0 is less than 0.
func floats[T float32 | float64]() *native[T] {
	return &native[T]{scaler: scaleFloat[T], table: table[T]{Sum: add[T], Product: multiply[T], Min: least[T], Max: greatest[T]}}
}

func complexes[T complex64 | complex128]() *native[T] {
	return &native[T]{scaler: scaleComplex[T], table: table[T]{Sum: add[T], Product: multiply[T]}}
}

// truth is a byte as 0 or 1.
func truth(b bool) uint8 {
	if b {
		return 1
	}
	return 0
}

var (
	both   = each(func(a, b uint8) uint8 { return truth(a != 0 && b != 0) })
	either = each(func(a, b uint8) uint8 { return truth(a != 0 || b != 0) })

	truths = table[uint8]{
		Sum: either, Max: either, Or: either, Product: both, Min: both, And: both,
		Xor: each(func(a, b uint8) uint8 { return truth((a != 0) != (b != 0)) }),
	}
)

// signed and unsigned are the value of four bits.
func signed(four uint8) int   { return int(int8(four<<4) >> 4) }
func unsigned(four uint8) int { return int(four & 15) }

// halves reduces both halves of each byte as integers of four bits.
func halves(value func(four uint8) int) table[uint8] {
	of := func(f func(a, b int) int) func(dst, a, b []uint8) {
		return each(func(a, b uint8) uint8 {
			low := f(value(a&15), value(b&15))
			high := f(value(a>>4), value(b>>4))
			return uint8(low&15 | high&15<<4)
		})
	}
	return table[uint8]{
		Sum:     of(func(a, b int) int { return a + b }),
		Product: of(func(a, b int) int { return a * b }),
		Min:     of(func(a, b int) int { return min(a, b) }),
		Max:     of(func(a, b int) int { return max(a, b) }),
		And:     each(func(a, b uint8) uint8 { return a & b }),
		Or:      each(func(a, b uint8) uint8 { return a | b }),
		Xor:     each(func(a, b uint8) uint8 { return a ^ b }),
	}
}
