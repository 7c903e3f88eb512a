package kernel

import "github.com/serry-dev/serry/memory"

const (
	// vectorBytes is what the shortest loop of a vector kernel takes: it is given multiples of it. The elements behind the
	// last multiple are left to portable Go. A kernel that read whole vectors there would read beyond the slices, and one
	// that took the last vector twice would add an input twice where it is dst, too.
	vectorBytes = 32

	// strideBytes is what a kernel reduces before it returns to Go. The runtime cannot interrupt assembly, and a
	// collection of garbage waits until every goroutine can be interrupted: this bounds the wait to some 50 µs.
	strideBytes = 256 << 10
)

// A vector has the kernels of one kind for one type. They reduce the bytes from from up to to, which are multiples of
// vectorBytes and not beyond the length of any slice. No slice need be aligned.
type vector struct {
	two  func(dst, a, b []byte, from, to int)
	many func(dst []byte, inputs [][]byte, from, to int)
}

// vectors has the kernels of one type.
type vectors [Max + 1]vector

// vectorize reduces the first bytes of the inputs, of which there are at least two, by a kernel for this processor. It
// says how many: none where there is no such kernel.
func vectorize(op Op, t memory.DType, dst []byte, inputs [][]byte) (done int) {
	v := kernelFor(op, t)
	if v.two == nil {
		return 0
	}
	end := len(dst) &^ (vectorBytes - 1)
	for done < end {
		next := min(done+strideBytes, end)
		if len(inputs) == 2 {
			v.two(dst, inputs[0], inputs[1], done, next)
		} else {
			v.many(dst, inputs, done, next)
		}
		done = next
	}
	return end
}

// kernelFor is the kernel of a kind for a type; without functions where there is none.
func kernelFor(op Op, t memory.DType) vector {
	if op > Max {
		return vector{}
	}
	return accelerated[t][op]
}
