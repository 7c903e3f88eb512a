package memory

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
)

const (
	// ArenaAlign is what arenas are aligned to and sized in multiples of: a huge page.
	ArenaAlign = 2 << 20

	blockAlign = 64 // of regions in an arena: a cache line, so that two owners never share one
)

// Errors of arenas.
var (
	ErrFull        = errors.New("arena is full")
	ErrUnsupported = errors.New("the system has no memory that processes can share this way")
)

// ArenaOptions say how to make an arena. The zero value is right.
type ArenaOptions struct {
	Name string // for people who look at the memory map of the process; empty means "serry"

	// HugePages asks for pages that the administrator has reserved (hugetlb). Where there are none, or
	// too few, the arena has ordinary pages, and asks the kernel to join them where it can.
	HugePages bool
}

// An Arena is memory that other processes of the host can map: an anonymous file. Its size cannot
// change, and no process but the one that made it can write to it.
type Arena struct {
	// Set when the arena is made, then constant.
	file     *os.File
	size     int64
	huge     bool
	readOnly bool
	closed   chan struct{} // closed by Close

	mu struct {
		sync.Mutex
		bytes []byte          // the mapping; nil once closed
		free  []span          // ascending, never adjacent
		taken map[int64]int64 // what Alloc returned: offsets and lengths
	}
}

// A span is a range of bytes of an arena.
type span struct{ from, to int64 }

// NewArena makes an arena of at least size bytes. Its memory is zero, and the kernel provides a page
// when it is first touched.
func NewArena(size int64, o ArenaOptions) (*Arena, error) {
	if size <= 0 || size > 1<<46 {
		return nil, fmt.Errorf("arena of %d bytes", size)
	}
	if o.Name == "" {
		o.Name = "serry"
	}
	size = roundUp(size, ArenaAlign)
	file, huge, err := newShared(o.Name, size, o.HugePages)
	if err != nil {
		return nil, fmt.Errorf("arena of %d bytes: %w", size, err)
	}
	return mapArena(file, size, huge, false)
}

// OpenArena maps an arena of another process, whose file was passed to this one, so that it can be
// read. It takes the file over. A file whose size its owner could still change is refused, because
// reading behind its end would end this process.
func OpenArena(file *os.File) (*Arena, error) {
	size, err := sharedSize(file)
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("arena of another process: %w", err)
	}
	return mapArena(file, size, false, true)
}

func mapArena(file *os.File, size int64, huge, readOnly bool) (*Arena, error) {
	bytes, err := mapShared(file, size, readOnly)
	if err == nil && !readOnly {
		err = sealShared(file) // after the mapping, which the seals would forbid
	}
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("arena of %d bytes: %w", size, err)
	}
	a := &Arena{file: file, size: size, huge: huge, readOnly: readOnly, closed: make(chan struct{})}
	a.mu.bytes = bytes
	if !readOnly {
		a.mu.free = []span{{0, size}}
		a.mu.taken = make(map[int64]int64)
	}
	return a, nil
}

// Len is the size of the arena in bytes.
func (a *Arena) Len() int64 { return a.size }

// Huge says whether the arena has reserved huge pages.
func (a *Arena) Huge() bool { return a.huge }

// ReadOnly says whether the arena was made by another process.
func (a *Arena) ReadOnly() bool { return a.readOnly }

// File is what another process needs to open the arena. It stays open with the arena, and must not be
// closed.
func (a *Arena) File() *os.File { return a.file }

// Alloc takes size bytes of the arena. They are zero only the first time. It returns ErrFull where the
// arena has no such range free.
func (a *Arena) Alloc(size int64) (Region, error) {
	if size < 0 || a.readOnly {
		return Region{}, fmt.Errorf("%d bytes of an arena (read-only: %v)", size, a.readOnly)
	}
	need := roundUp(min(max(size, 1), a.size+1), blockAlign) // what is too large stays so, and can be added to
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.bytes == nil {
		return Region{}, os.ErrClosed
	}
	for i := range a.mu.free {
		s := &a.mu.free[i]
		if s.to-s.from < need {
			continue
		}
		at := s.from
		if s.from += need; s.from == s.to {
			a.mu.free = slices.Delete(a.mu.free, i, i+1)
		}
		a.mu.taken[at] = size
		return a.region(at, size), nil
	}
	return Region{}, fmt.Errorf("%w: no %d bytes free of %d", ErrFull, size, a.size)
}

// Free gives back what Alloc returned. It panics when r is no such region, as a slice of one is, or was given back
// before.
func (a *Arena) Free(r Region) {
	if r.arena != a || a.readOnly {
		panic("memory: Free of a region of another arena")
	}
	freed := span{r.offset, r.offset + roundUp(max(r.length, 1), blockAlign)}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.bytes == nil {
		return // with the arena
	}
	if size, ok := a.mu.taken[r.offset]; !ok || size != r.length {
		panic("memory: Free of a region that Alloc did not return, or that is free")
	}
	delete(a.mu.taken, r.offset)
	i, _ := slices.BinarySearchFunc(a.mu.free, freed, func(s, t span) int { return int(max(-1, min(1, s.from-t.from))) })
	a.mu.free = slices.Insert(a.mu.free, i, freed)
	if i+1 < len(a.mu.free) && a.mu.free[i+1].from == freed.to {
		a.mu.free[i].to = a.mu.free[i+1].to
		a.mu.free = slices.Delete(a.mu.free, i+1, i+2)
	}
	if i > 0 && a.mu.free[i-1].to == freed.from {
		a.mu.free[i-1].to = a.mu.free[i].to
		a.mu.free = slices.Delete(a.mu.free, i, i+1)
	}
}

// Region is the range of length bytes at an offset. Processes name memory to each other this way, so
// a range that does not lie in the arena is an error.
func (a *Arena) Region(offset, length int64) (Region, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.mu.bytes == nil:
		return Region{}, os.ErrClosed
	case offset < 0 || length < 0 || offset > a.size-length:
		return Region{}, fmt.Errorf("%d bytes at %d of an arena of %d bytes", length, offset, a.size)
	}
	return a.region(offset, length), nil
}

// region is Region without checks; mu is held.
func (a *Arena) region(offset, length int64) Region {
	end := offset + length
	return Region{bytes: a.mu.bytes[offset:end:end], arena: a, offset: offset, length: length}
}

// Closed is closed by Close: those that the arena was lent to can be told.
func (a *Arena) Closed() <-chan struct{} { return a.closed }

// Close ends the use of the arena in this process. Its regions must not be used any more: their memory
// is gone. Other processes keep what they have mapped.
func (a *Arena) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.bytes == nil {
		return nil
	}
	close(a.closed)
	err := unmapShared(a.mu.bytes)
	a.mu.bytes, a.mu.free, a.mu.taken = nil, nil, nil
	return errors.Join(err, a.file.Close())
}

func roundUp(n, unit int64) int64 { return (n + unit - 1) / unit * unit }
