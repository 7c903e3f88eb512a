package link

import (
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/serry-dev/serry/memory"
)

// A Segment is memory that one process writes and the processes of its host read. [Net.NewSegment] makes one, [Link.Lend]
// gives a peer the right to read it, and the peer gets it from [Link.Borrow]. No process can write memory that it has
// borrowed (CL-TRN-31).
//
// A segment is an arena, or ordinary memory among the Nets of one process, see [Options]. Code that works with segments does
// not see which; the race detector sees ordinary memory only.
type Segment struct {
	// Set when the segment is made, then constant.
	arena *memory.Arena // or nil: ordinary memory
	bell  *bell         // of ordinary memory, shared by its owner and all that have borrowed it
	bytes []byte
}

// segmentAlign is what the memory of a segment is aligned to: a cache line.
const segmentAlign = 64

// NewSegment makes a segment of at least that many bytes, all zero.
func (n *Net) NewSegment(size int64) (*Segment, error) {
	if n.opt.Segments != nil {
		return OrdinarySegment(size), nil
	}
	a, err := memory.NewArena(size, memory.ArenaOptions{Name: "serry segment"})
	if err != nil {
		return nil, err
	}
	return segmentOf(a)
}

// OrdinarySegment is memory that cannot be lent to another process, with all other properties of a segment: for
// goroutines of this one.
func OrdinarySegment(size int64) *Segment {
	b := make([]byte, size+segmentAlign)
	skip := -uintptr(unsafe.Pointer(unsafe.SliceData(b))) % segmentAlign
	return &Segment{bytes: b[skip : skip+uintptr(size)], bell: new(bell)}
}

// segmentOf is the segment of an arena, which it takes over.
func segmentOf(a *memory.Arena) (*Segment, error) {
	r, err := a.Region(0, a.Len())
	if err != nil {
		return nil, errors.Join(err, a.Close())
	}
	return &Segment{arena: a, bytes: r.Bytes()}, nil
}

// Bytes is the memory. A process that has borrowed the segment must not write to it: the system would end that process.
func (s *Segment) Bytes() []byte { return s.bytes }

// Word is the word at an offset, a multiple of 4. Writers and readers use it to tell each other what of the other memory is
// complete.
func (s *Segment) Word(at int) *atomic.Uint32 { return (*atomic.Uint32)(unsafe.Pointer(&s.bytes[at])) }

// LongWord is the word of 8 bytes at an offset, a multiple of 8.
func (s *Segment) LongWord(at int) *atomic.Uint64 {
	return (*atomic.Uint64)(unsafe.Pointer(&s.bytes[at]))
}

// Sleep waits until Wake is called for a word. It returns at once if the word is not old any more, and may return early. It
// ends when one of the two channels is closed, or when most has passed.
//
// The kernel compares the word and falls asleep in one step, so no change is missed by a sleeper whose writer changes the
// word first and calls Wake then. Inside a process, the channels end the sleep at once; across processes they are looked at
// before it, so most bounds how late their end is noticed.
func (s *Segment) Sleep(at int, old uint32, one, other <-chan struct{}, most time.Duration) {
	if s.bell != nil {
		s.bell.sleep(s.Word(at), old, one, other)
		return
	}
	select {
	case <-one:
	case <-other:
	default:
		futexWait(s.Word(at), old, most)
	}
}

// Wake wakes all that sleep for a word, in this and in other processes.
func (s *Segment) Wake(at int) {
	if s.bell != nil {
		s.bell.wake()
		return
	}
	futexWake(s.Word(at))
}

// Yield lets other goroutines and threads run, of those that may be about to change a word.
func (s *Segment) Yield() {
	runtime.Gosched()
	if s.bell == nil {
		yieldThread()
	}
}

// Close ends the use of the segment in this process. No goroutine may use its memory any more. Processes that have borrowed it
// keep what they have.
func (s *Segment) Close() error {
	if s.arena == nil {
		return nil
	}
	return s.arena.Close()
}

// A bell wakes goroutines of one process. The zero value is ready. To sleep allocates nothing, once as many have slept at
// a time before.
type bell struct {
	mu     sync.Mutex
	asleep []chan struct{} // of the goroutines that sleep, each with room for one; guarded by mu
	free   []chan struct{} // of those that slept before; guarded by mu
}

func (b *bell) sleep(word *atomic.Uint32, old uint32, one, other <-chan struct{}) {
	b.mu.Lock()
	if word.Load() != old {
		b.mu.Unlock()
		return
	}
	rung := b.take()
	b.asleep = append(b.asleep, rung)
	b.mu.Unlock()
	select {
	case <-rung:
	case <-one:
	case <-other:
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := slices.Index(b.asleep, rung); i >= 0 {
		b.asleep = slices.Delete(b.asleep, i, i+1)
	}
	select {
	case <-rung: // it rang after the goroutine had woken for another reason
	default:
	}
	b.free = append(b.free, rung)
}

// take is an empty channel; mu is held.
func (b *bell) take() chan struct{} {
	n := len(b.free)
	if n == 0 {
		return make(chan struct{}, 1)
	}
	rung := b.free[n-1]
	b.free = b.free[:n-1]
	return rung
}

func (b *bell) wake() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, rung := range b.asleep {
		rung <- struct{}{}
	}
	b.asleep = b.asleep[:0]
}
