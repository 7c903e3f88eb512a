// Package aside tells which values that lie beside a journal are garbage.
//
// A value is put aside before the batch that names it is appended, so one that no snapshot names may
// be needed yet. A [Book] of a reign remembers what was put since the last snapshots.
package aside

import (
	"sync"

	"github.com/serry-dev/serry/coord"
)

// A Book remembers the values that a reign has put aside lately. Its methods may be called at the same
// time. The zero Book is ready.
type Book struct {
	mu struct {
		sync.Mutex
		snapshots uint64 // begun so far
		puts      map[coord.Ref]put
	}
}

// A put is a value that was put aside.
type put struct {
	snapshots uint64 // that had begun when it was put last
	writers   int    // that write it now
}

// Enter notes that a value is about to be put. It is no garbage before Leave.
func (b *Book) Enter(ref coord.Ref) { b.note(ref, +1) }

// Leave notes that the value was put, or given up.
func (b *Book) Leave(ref coord.Ref) { b.note(ref, -1) }

func (b *Book) note(ref coord.Ref, writers int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.puts == nil {
		b.mu.puts = make(map[coord.Ref]put)
	}
	b.mu.puts[ref] = put{snapshots: b.mu.snapshots, writers: b.mu.puts[ref].writers + writers}
}

// Begin begins a snapshot that names the values in keep. The function it returns says which others
// are garbage: those that were not put since the snapshot before began.
func (b *Book) Begin(keep []coord.Ref) (garbage func(coord.Ref) bool) {
	kept := make(map[coord.Ref]bool, len(keep))
	for _, ref := range keep {
		kept[ref] = true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.snapshots++
	for ref, p := range b.mu.puts {
		if p.writers == 0 && p.snapshots+1 < b.mu.snapshots {
			delete(b.mu.puts, ref)
		}
	}
	return func(ref coord.Ref) bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		_, young := b.mu.puts[ref]
		return !kept[ref] && !young
	}
}
