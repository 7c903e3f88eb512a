package pystack

import "errors"

// Limits of one reading of one process (D-ST-4).
const (
	maxReads        = 20_000   // reads of memory; one takes less than 1 µs
	maxBytes        = 32 << 20 // of memory that are read, most of it in whole pages
	maxInterpreters = 16
	maxThreads      = 64
	maxFrames       = 256
	maxString       = 4 << 10  // bytes of a name
	maxLineTable    = 64 << 10 // bytes
)

// errBudget says that a process has used up what may be read of it.
var errBudget = errors.New("more memory to read than the limit")

// A Memory is the memory of a process.
type Memory interface {
	// Read fills p with what is at an address, or fails.
	Read(address uint64, p []byte) error
}

// A budget is memory of which only so much is read.
type budget struct {
	memory      Memory
	reads, size int // that are left
}

func newBudget(m Memory) *budget { return &budget{memory: m, reads: maxReads, size: maxBytes} }

// Read implements [Memory].
func (b *budget) Read(address uint64, p []byte) error {
	if b.reads--; b.reads < 0 || len(p) > b.size {
		b.reads = 0 // everything after it fails, too
		return errBudget
	}
	b.size -= len(p)
	return b.memory.Read(address, p)
}

// readParts implements [bulkReader], as one read.
func (b *budget) readParts(parts []part, into []*page) int {
	size := 0
	for _, p := range parts {
		size += p.to - p.from
	}
	bulk, ok := b.memory.(bulkReader)
	if !ok || b.reads < 1 || size > b.size {
		return 0
	}
	b.reads--
	n := bulk.readParts(parts, into)
	for _, p := range parts[:n] {
		b.size -= p.to - p.from
	}
	return n
}
