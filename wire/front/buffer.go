package front

import (
	"slices"
	"sync"
)

// Buffers come in two sizes from pools, and are held only while there are bytes in them: an idle
// connection has none. Larger ones are left to the garbage collector.
//
// Reads and replies begin with a small one. A pool is empty after a garbage collection, and while one
// runs, readers that make a buffer wait their turn to pay for it: with large ones alone, 512 busy
// connections held 30 MiB of them at such a time.
const (
	smallBuffer = 2 << 10
	largeBuffer = 64 << 10
)

var (
	smallBuffers = sync.Pool{New: func() any { return new([smallBuffer]byte) }}
	largeBuffers = sync.Pool{New: func() any { return new([largeBuffer]byte) }}
)

// grow returns b with room for n more bytes. The old b must not be used again.
func grow(b []byte, n int) []byte {
	need := len(b) + n
	if need <= cap(b) {
		return b
	}
	var bigger []byte
	switch {
	case need <= smallBuffer:
		bigger = smallBuffers.Get().(*[smallBuffer]byte)[:0]
	case need <= largeBuffer:
		bigger = largeBuffers.Get().(*[largeBuffer]byte)[:0]
	default:
		bigger = slices.Grow([]byte(nil), max(need, 2*cap(b)))
	}
	bigger = append(bigger, b...)
	recycle(b)
	return bigger
}

// recycle gives b back to where it came from, if it has one of the two sizes.
func recycle(b []byte) {
	switch cap(b) {
	case smallBuffer:
		smallBuffers.Put((*[smallBuffer]byte)(b[:smallBuffer]))
	case largeBuffer:
		largeBuffers.Put((*[largeBuffer]byte)(b[:largeBuffer]))
	}
}
