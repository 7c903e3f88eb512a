// Package devicetest has a device without hardware, for tests of what moves memory of devices.
//
// Start with [Fake]: a device whose memory is that of the host, and whose copies take time. In a bubble of testing/synctest that
// is virtual time. It behaves as devices were seen to behave, also where that is unkind: the engine that copies in one direction
// stays with the queue that it serves until that is empty, so copies of another queue starve beside one that is kept full. Copies in
// the memory of the device have priorities: the most urgent queue goes first.
//
// All methods may be called from any goroutine. Read fake.go, which is all.
package devicetest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
	"unsafe"

	"github.com/serry-dev/serry/memory"
	"github.com/serry-dev/serry/transfer"
)

// Errors of a fake.
var (
	ErrLost    = errors.New("the device is lost")
	ErrRefused = errors.New("the device refuses the call")
)

// A Fake is a device without hardware. Its zero value is ready: copies take no time. Set the fields before the first call.
type Fake struct {
	Latency time.Duration // of each copy
	Rate    int64         // bytes a second, of each direction; 0 means that only the latency counts
	Inside  int64         // bytes a second, of copies in the memory of the device; 0 means Rate
	Memory  int64         // bytes that Alloc has; 0 means any number

	RefusePins bool // Pin fails

	mu      sync.Mutex
	engines [3]engine // by direction; guarded by mu, as all of these
	used    int64     // bytes of Memory
	pinned  [][]byte
	copies  int // calls of Copy so far
	failAt  int // the call of Copy that is refused, or 0
	loseAt  int // the call of Copy at which the device is lost, or 0
	hangs   bool
	lost    error
	log     []Copied
}

// A Copied is a copy that has ended.
type Copied struct {
	Direction  transfer.Direction
	Class      transfer.Class
	Bytes      int64
	Asked, End time.Time // when Copy was called, and when the bytes were there
}

// An engine copies in one direction, one copy at a time.
type engine struct {
	queues  []*queue
	serving *queue    // that the last copy was of, or nil
	free    time.Time // when the last copy has ended, or ends
}

// A queue is a list of work of a fake.
type queue struct {
	fake      *Fake
	direction transfer.Direction
	class     transfer.Class
	work      []work // that has not ended
	marks     uint64
	reached   uint64
	since     time.Time // when the last wait for a mark was over
}

// A work is a copy, a wait for a mark of another queue, or a mark.
type work struct {
	to, from []byte
	after    *transfer.Mark
	mark     uint64
	asked    time.Time
	end      time.Time // of a copy that has begun
}

// Chunk is memory of a fake.
type chunk struct{ bytes []byte }

// Len implements memory.DeviceMemory.
func (c *chunk) Len() int64 { return int64(len(c.bytes)) }

// Alloc implements transfer.Device.
func (f *Fake) Alloc(n int64) (memory.Region, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.Memory > 0 && f.used+n > f.Memory {
		return memory.Region{}, fmt.Errorf("%d bytes: %w", n, ErrRefused)
	}
	f.used += n
	return memory.OnDevice(&chunk{make([]byte, n)}), nil
}

// Pin implements transfer.Device.
func (f *Fake) Pin(r memory.Region) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.RefusePins || r.Space() == memory.Device || r.Len() == 0 {
		return ErrRefused
	}
	f.pinned = append(f.pinned, r.Bytes())
	return nil
}

// Unpin implements transfer.Unpinner.
func (f *Fake) Unpin(r memory.Region) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	at := slices.IndexFunc(f.pinned, func(p []byte) bool { return &p[0] == &r.Bytes()[0] && int64(len(p)) == r.Len() })
	if at < 0 {
		return ErrRefused
	}
	f.pinned = slices.Delete(f.pinned, at, at+1)
	return nil
}

// AllPinned is how many regions are pinned.
func (f *Fake) AllPinned() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.pinned)
}

// Pinned is how often memory that begins at a byte was pinned.
func (f *Fake) Pinned(at *byte) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.pinned {
		if &p[0] == at {
			n++
		}
	}
	return n
}

// isPinned says whether memory of the host was pinned. A device can copy other memory, too, but slowly, and waits for it; so a
// fake refuses it.
func (f *Fake) isPinned(b []byte) bool {
	at := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	for _, p := range f.pinned {
		begin := uintptr(unsafe.Pointer(unsafe.SliceData(p)))
		if at >= begin && at+uintptr(len(b)) <= begin+uintptr(len(p)) {
			return true
		}
	}
	return false
}

// Queue implements transfer.Device.
func (f *Fake) Queue(d transfer.Direction, c transfer.Class) (transfer.Queue, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	q := &queue{fake: f, direction: d, class: c}
	f.engines[d].queues = append(f.engines[d].queues, q)
	return q, nil
}

// Err implements transfer.Device.
func (f *Fake) Err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.advance()
	return f.lost
}

// FailCopy has the n-th call of Copy from now on be refused.
func (f *Fake) FailCopy(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failAt = f.copies + n
}

// LoseAt has the device be lost at the n-th call of Copy from now on. Copies that have not ended never do.
func (f *Fake) LoseAt(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.loseAt = f.copies + n
}

// Hang has the device do nothing from now on, or go on. It says nothing of that.
func (f *Fake) Hang(hangs bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.advance()
	f.hangs = hangs
}

// Copies are those that have ended.
func (f *Fake) Copies() []Copied {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.advance()
	return append([]Copied(nil), f.log...)
}

// Bytes is the content of memory of the device, for tests: a program cannot read it.
func (f *Fake) Bytes(r memory.Region) []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.advance()
	return bytesOf(r)
}

// bytesOf is the memory itself.
func bytesOf(r memory.Region) []byte {
	m, offset := r.Device()
	if m == nil {
		return r.Bytes()
	}
	return m.(*chunk).bytes[offset : offset+r.Len()]
}

// Copy implements transfer.Queue.
func (q *queue) Copy(dst, src memory.Region) error {
	f := q.fake
	f.mu.Lock()
	defer f.mu.Unlock()
	f.advance()
	f.copies++
	switch {
	case f.lost != nil:
		return f.lost
	case f.copies == f.loseAt:
		f.lost = ErrLost
		return f.lost
	case f.copies == f.failAt || dst.Len() != src.Len() || !q.fits(dst, src):
		return ErrRefused
	}
	q.work = append(q.work, work{to: bytesOf(dst), from: bytesOf(src), asked: time.Now()})
	f.advance()
	return nil
}

// fits says whether a copy goes in the direction of its queue.
func (q *queue) fits(dst, src memory.Region) bool {
	from, to := src.Space() == memory.Device, dst.Space() == memory.Device
	switch q.direction {
	case transfer.Down:
		return from && !to && q.fake.isPinned(dst.Bytes())
	case transfer.Up:
		return !from && to && q.fake.isPinned(src.Bytes())
	}
	return from && to
}

// After implements transfer.Queue.
func (q *queue) After(m transfer.Mark) error {
	q.fake.mu.Lock()
	defer q.fake.mu.Unlock()
	q.work = append(q.work, work{after: &m})
	q.fake.advance()
	return q.fake.lost
}

// Mark implements transfer.Queue.
func (q *queue) Mark() (transfer.Mark, error) {
	q.fake.mu.Lock()
	defer q.fake.mu.Unlock()
	if q.fake.lost != nil {
		return transfer.Mark{}, q.fake.lost
	}
	q.marks++
	q.work = append(q.work, work{mark: q.marks})
	q.fake.advance()
	return transfer.Mark{Queue: q, Number: q.marks}, nil
}

// Reached implements transfer.Queue.
func (q *queue) Reached() uint64 {
	q.fake.mu.Lock()
	defer q.fake.mu.Unlock()
	q.fake.advance()
	return q.reached
}

// advance lets the device work up to now; mu is held.
func (f *Fake) advance() {
	for f.lost == nil && !f.hangs && f.step() {
	}
}

// step lets one piece of work end or begin, if it is time, and says whether it did.
func (f *Fake) step() bool {
	for d := range f.engines {
		e := &f.engines[d]
		for _, q := range e.queues {
			if q.pass() {
				return true
			}
		}
		if e.copy(f) {
			return true
		}
	}
	return false
}

// pass ends what needs no engine at the head of a queue: marks, and waits that are over.
func (q *queue) pass() bool {
	if len(q.work) == 0 {
		return false
	}
	switch w := q.work[0]; {
	case w.mark > 0:
		q.reached = w.mark
	case w.after != nil && w.after.Queue.(*queue).reached >= w.after.Number:
		q.since = time.Now()
	default:
		return false
	}
	q.work = q.work[1:]
	return true
}

// copy ends the copy under way if it is time, or begins the next one. The engine stays with the queue that it serves as long as
// that has copies: others starve.
func (e *engine) copy(f *Fake) bool {
	q := e.next()
	if q == nil {
		return false
	}
	w := &q.work[0]
	now := time.Now()
	if w.end.IsZero() {
		begin := w.asked
		for _, least := range []time.Time{e.free, q.since} {
			if least.After(begin) {
				begin = least
			}
		}
		e.serving, e.free = q, begin.Add(f.takes(q.direction, len(w.to)))
		w.end = e.free
		return true
	}
	if now.Before(w.end) {
		return false
	}
	copy(w.to, w.from)
	f.log = append(f.log, Copied{q.direction, q.class, int64(len(w.to)), w.asked, w.end})
	q.work = q.work[1:]
	return true
}

// next is the queue whose copy is under way or is next, or nil.
func (e *engine) next() *queue {
	ready := func(q *queue) bool {
		return q != nil && len(q.work) > 0 && q.work[0].mark == 0 && q.work[0].after == nil
	}
	for _, q := range e.queues {
		if ready(q) && !q.work[0].end.IsZero() {
			return q
		}
	}
	if ready(e.serving) && e.serving.direction != transfer.Inside {
		return e.serving
	}
	var first *queue
	for _, q := range e.queues {
		if ready(q) && (first == nil || q.direction == transfer.Inside && rank[q.class] < rank[first.class]) {
			first = q
		}
	}
	return first
}

// rank is the order in which a device serves queues of copies in its own memory.
var rank = map[transfer.Class]int{transfer.Urgent: 0, transfer.Normal: 1, transfer.Bulk: 2}

// takes is how long a copy of so many bytes takes.
func (f *Fake) takes(direction transfer.Direction, n int) time.Duration {
	d, rate := f.Latency, f.Rate
	if direction == transfer.Inside && f.Inside > 0 {
		rate = f.Inside
	}
	if rate > 0 {
		d += time.Duration(int64(n) * int64(time.Second) / rate)
	}
	return d
}
