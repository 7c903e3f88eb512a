package transfer

import (
	"math"
	"slices"
	"sync"

	"github.com/serry-dev/serry"
)

// maxLoops is how many loops a view can have: one for each dimension.
const maxLoops = maxDims

// A View is a part of a buffer: runs of bytes, repeated in nested loops, the outermost first. The zero View is the whole
// buffer. What moves is the runs, one behind the other.
type View struct {
	Offset  int64   // of the first byte
	Run     int64   // bytes in a row
	Counts  []int64 // how often each loop goes round
	Strides []int64 // bytes between two rounds
}

// Whole says whether the view is the whole buffer.
func (v View) Whole() bool { return v.Offset == 0 && v.Run == 0 && len(v.Counts) == 0 }

// measure says how many bytes the view has, and refuses one that does not lie in a buffer of that size, or that has more
// bytes than the buffer. It may be what a peer has asked for.
func (v View) measure(size int64) (bytes int64, err error) {
	if v.Whole() {
		return size, nil
	}
	if v.Offset < 0 || v.Run < 1 || len(v.Counts) > maxLoops || len(v.Counts) != len(v.Strides) || v.Offset > size {
		return 0, invalid("view of runs of %d bytes at %d, with %d and %d loops", v.Run, v.Offset, len(v.Counts), len(v.Strides))
	}
	bytes, reach := v.Run, v.Run
	for i, n := range v.Counts {
		if n < 1 || v.Strides[i] < 1 || n > math.MaxInt64/bytes || n-1 > (math.MaxInt64-reach)/v.Strides[i] {
			return 0, invalid("view with a loop of %d times %d bytes", n, v.Strides[i])
		}
		bytes *= n
		reach += (n - 1) * v.Strides[i]
	}
	if reach > size-v.Offset || bytes > size {
		return 0, invalid("view of %d bytes, which reaches %d bytes beyond %d, of a buffer of %d bytes", bytes, reach, v.Offset, size)
	}
	return bytes, nil
}

// gather copies the bytes of the view out of a buffer, one run behind the other.
func (v View) gather(to, from []byte) {
	v.each(func(at int64) {
		copy(to[:v.Run], from[at:])
		to = to[v.Run:]
	})
}

// scatter copies bytes that lie one behind the other to where the view has them in a buffer.
func (v View) scatter(to, from []byte) {
	v.each(func(at int64) {
		copy(to[at:at+v.Run], from)
		from = from[v.Run:]
	})
}

// each calls f with the place of each run, in order.
func (v View) each(f func(at int64)) { v.loop(0, v.Offset, f) }

func (v View) loop(level int, at int64, f func(int64)) {
	if level == len(v.Counts) {
		f(at)
		return
	}
	for range v.Counts[level] {
		v.loop(level+1, at, f)
		at += v.Strides[level]
	}
}

// stagingBytes is how much memory the views of a process are gathered in at a time.
const stagingBytes = 256 << 20

// A staging bounds the memory that the bytes of views are gathered in. What finds no room waits in a queue, in order, and
// holds up nothing else. One part for each peer has room in any case: a peer that takes nothing keeps what was gathered for it, and
// would hold up all others with that (TR-BPR-3, TR-ORD-7).
type staging struct {
	limit int64 // 0 means stagingBytes

	// Guarded by mu, like all below.
	mu      sync.Mutex
	used    int64
	peak    int64
	having  map[serry.Life]int // parts that have room
	waits   map[serry.Life]int // parts that wait
	waiting []stage
}

type stage struct {
	peer    serry.Life
	bytes   int64
	granted func()
}

// take calls granted when there is room, perhaps before it returns. What is larger than all room gets it alone.
func (s *staging) take(peer serry.Life, bytes int64, granted func()) {
	s.mu.Lock()
	if s.having == nil {
		s.having, s.waits = make(map[serry.Life]int), make(map[serry.Life]int)
	}
	s.waiting = append(s.waiting, stage{peer, bytes, granted})
	s.waits[peer]++
	s.mu.Unlock()
	s.grant()
}

// give gives room back, and lets those have it that wait.
func (s *staging) give(peer serry.Life, bytes int64) {
	s.mu.Lock()
	s.used -= bytes
	countDown(s.having, peer)
	s.mu.Unlock()
	s.grant()
}

func countDown(m map[serry.Life]int, peer serry.Life) {
	if m[peer]--; m[peer] == 0 {
		delete(m, peer)
	}
}

// grant gives room to those that wait, as far as there is some.
func (s *staging) grant() {
	limit := s.limit
	if limit == 0 {
		limit = stagingBytes
	}
	var next []stage
	s.mu.Lock()
	admit := func(x stage) {
		next = append(next, x)
		s.used += x.bytes
		s.peak = max(s.peak, s.used)
		s.having[x.peer]++
		countDown(s.waits, x.peer)
	}
	for len(s.waiting) > 0 && (s.used == 0 || s.used+s.waiting[0].bytes <= limit) {
		admit(s.waiting[0])
		s.waiting[0] = stage{}
		s.waiting = s.waiting[1:]
	}
	if s.without() {
		s.waiting = slices.DeleteFunc(s.waiting, func(x stage) bool {
			first := s.having[x.peer] == 0
			if first {
				admit(x)
			}
			return first
		})
	}
	s.mu.Unlock()
	for _, x := range next {
		x.granted()
	}
}

// without says whether parts of a peer wait of which none has room. The lock is held.
func (s *staging) without() bool {
	for peer := range s.waits {
		if s.having[peer] == 0 {
			return true
		}
	}
	return false
}
