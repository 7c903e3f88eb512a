package conn

import (
	"slices"
	"sync"
)

// Buffers come in two sizes from pools, and are held only while there are bytes in them: an idle
// connection has none. Larger ones are left to the garbage collector.
//
// Reads and replies begin with a small one. A pool is empty after a garbage collection, and while one
// runs, a reader that allocates a buffer waits until it has done its share of the collection. When all
// buffers were large, 512 busy connections held 30 MiB of them at such a time.
const (
	Small = 2 << 10  // of most reads and replies
	Large = 64 << 10 // of bulk
)

var (
	smallBuffers = sync.Pool{New: func() any { return new([Small]byte) }}
	largeBuffers = sync.Pool{New: func() any { return new([Large]byte) }}
)

// Grow returns b with room for n more bytes. The old b must not be used again.
func Grow(b []byte, n int) []byte {
	need := len(b) + n
	if need <= cap(b) {
		return b
	}
	var bigger []byte
	switch {
	case need <= Small:
		bigger = smallBuffers.Get().(*[Small]byte)[:0]
	case need <= Large:
		bigger = largeBuffers.Get().(*[Large]byte)[:0]
	default:
		bigger = slices.Grow([]byte(nil), max(need, 2*cap(b)))
	}
	bigger = append(bigger, b...)
	Recycle(b)
	return bigger
}

// Recycle gives b back to its pool, if it has one of the two sizes.
func Recycle(b []byte) {
	switch cap(b) {
	case Small:
		smallBuffers.Put((*[Small]byte)(b[:Small]))
	case Large:
		largeBuffers.Put((*[Large]byte)(b[:Large]))
	}
}
