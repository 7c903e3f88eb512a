package transfer

import (
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"github.com/serry-dev/serry/memory"
)

const (
	stageSlots = 8       // of pinned memory, each for one piece, for each direction of a device
	stageChunk = 1 << 20 // that is copied at a time
	stageDepth = 2       // chunks of the lower classes that the device has at a time, for each direction
	stageParks = 4       // sends of a device whose first chunks wait on the device for their data
)

// A stager moves pieces of transfers between the memory of a device and pinned memory of the host, which the link reads and
// writes. It has one track for each direction.
type stager struct {
	device   Device
	recorder *Recorder
	down, up track

	submit             sync.Mutex // held by the submitter to one of these
	inside, insideBulk Queue      // for copies in the memory of the device
}

func newStager(p *Pool, d Device) (*stager, error) {
	s := &stager{device: d, recorder: NewRecorder(p, d)}
	for direction, t := range map[Direction]*track{Down: &s.down, Up: &s.up} {
		t.stager = s
		var err error
		if t.urgent, err = d.Queue(direction, Urgent); err == nil {
			t.lower, err = d.Queue(direction, Bulk)
		}
		if err != nil {
			return nil, fmt.Errorf("queue %v of a device: %w", direction, err)
		}
	}
	var err error
	if s.inside, err = d.Queue(Inside, Urgent); err == nil {
		s.insideBulk, err = d.Queue(Inside, Bulk)
	}
	return s, err
}

// A track has the copies of one direction. Copies between host and device have no priority: the device serves the queue that it
// is at, and others starve. So the order is made here. The device has at most two chunks of the lower classes at a time, and
// gets no further one while a chunk of an urgent transfer is under way (TR-STR-5). After 19 urgent chunks in a row, one of a
// lower class has its turn.
type track struct {
	stager        *stager
	urgent, lower Queue

	mu struct {
		sync.Mutex
		free    []memory.Region        // slots
		made    []memory.Region        // slots that there are
		waiting [Bulk + 1][]*slotWait  // for a slot, by class
		queue   [Bulk + 1][]*stageCopy // with chunks that the device was not given, by class
		hot     int                    // urgent chunks that the device has
		cold    int                    // others that it has
		passed  int                    // urgent chunks that the device was given since the last other one
		parks   []Queue                // that are free, for chunks that wait on the device
		parked  int                    // that there are
	}
}

// A slotWait is a piece that waits for a slot.
type slotWait struct {
	given func(slot memory.Region, err error)
}

// order is that in which classes are served.
var order = [...]Class{Urgent, Normal, Bulk}

// acquire calls given with a slot once there is one. No lock is held then.
func (t *track) acquire(c Class, given func(memory.Region, error)) *slotWait {
	w := &slotWait{given: given}
	t.mu.Lock()
	t.mu.waiting[c] = append(t.mu.waiting[c], w)
	t.mu.Unlock()
	t.serve()
	return w
}

// drop lets a piece wait no longer. It is false if it has its slot.
func (t *track) drop(w *slotWait) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for c := range t.mu.waiting {
		if i := slices.Index(t.mu.waiting[c], w); i >= 0 {
			t.mu.waiting[c] = slices.Delete(t.mu.waiting[c], i, i+1)
			return true
		}
	}
	return false
}

// release gives a slot back.
func (t *track) release(slot memory.Region) {
	t.mu.Lock()
	t.mu.free = append(t.mu.free, slot)
	t.mu.Unlock()
	t.serve()
}

// serve gives slots to those that wait.
func (t *track) serve() {
	for {
		t.mu.Lock()
		c := slices.IndexFunc(order[:], func(c Class) bool { return len(t.mu.waiting[c]) > 0 })
		if c < 0 || len(t.mu.free) == 0 && len(t.mu.made) >= stageSlots {
			t.mu.Unlock()
			return
		}
		class := order[c]
		w := t.mu.waiting[class][0]
		t.mu.waiting[class] = t.mu.waiting[class][1:]
		slot, err := t.slot()
		t.mu.Unlock()
		w.given(slot, err)
	}
}

// slot takes a slot, and makes it if need be; mu is held.
func (t *track) slot() (memory.Region, error) {
	if n := len(t.mu.free); n > 0 {
		slot := t.mu.free[n-1]
		t.mu.free = t.mu.free[:n-1]
		return slot, nil
	}
	slot := memory.Of(make([]byte, pieceBytes))
	if err := t.stager.device.Pin(slot); err != nil {
		return memory.Region{}, fmt.Errorf("pinned memory: %w", err)
	}
	t.mu.made = append(t.mu.made, slot)
	return slot, nil
}

// unpin gives the pinned memory back, when nothing is copied any more.
func (s *stager) unpin(log *slog.Logger) {
	for _, t := range []*track{&s.down, &s.up} {
		t.mu.Lock()
		for _, slot := range t.mu.made {
			unpin(s.device, slot, log)
		}
		t.mu.made, t.mu.free = nil, nil
		t.mu.Unlock()
	}
}

// A stageCopy is one piece that is copied, chunk by chunk.
type stageCopy struct {
	track    *track
	class    Class
	to, from memory.Region
	done     func(error) // called once, with no lock held

	// Guarded by the lock of the track.
	at    int64 // what the device was given
	under int   // chunks that it has
	over  bool  // nothing more is given to it: cancelled, failed, or all was
	err   error
}

// copy copies a piece, and calls done when the device does not use its memory any more.
func (t *track) copy(c Class, to, from memory.Region, done func(error)) *stageCopy {
	x := &stageCopy{track: t, class: c, to: to, from: from, done: done}
	t.mu.Lock()
	t.mu.queue[c] = append(t.mu.queue[c], x)
	t.mu.Unlock()
	t.feed()
	return x
}

// cancel has no more chunks be given to the device. What it has cannot be taken back: done is called when that has ended.
func (x *stageCopy) cancel(cause error) {
	t := x.track
	t.mu.Lock()
	was := x.over
	x.stop(cause)
	idle := !was && x.under == 0
	t.mu.Unlock()
	if idle {
		x.done(cause)
	}
}

// stop takes a copy out of the queue; the lock is held.
func (x *stageCopy) stop(err error) {
	if x.over {
		return
	}
	x.over, x.err = true, err
	q := &x.track.mu.queue[x.class]
	*q = slices.DeleteFunc(*q, func(y *stageCopy) bool { return y == x })
}

// feed gives chunks to the device, as far as the rules of the track allow.
func (t *track) feed() {
	for {
		t.mu.Lock()
		x := t.next()
		if x == nil {
			t.mu.Unlock()
			return
		}
		copied := t.submit(x)
		t.mu.Unlock()
		copied.onEnd(func() { t.reached(x, copied.Err()) })
	}
}

// next is the copy that gets the next chunk, or nil; the lock is held.
func (t *track) next() *stageCopy {
	lower := slices.IndexFunc(order[1:], func(c Class) bool { return len(t.mu.queue[c]) > 0 })
	urgent := t.mu.queue[Urgent]
	switch {
	case lower >= 0 && t.mu.cold < stageDepth && (t.mu.passed >= agingTurns-1 || t.mu.hot == 0 && len(urgent) == 0):
		t.mu.passed = 0
		return t.mu.queue[order[1+lower]][0]
	case len(urgent) > 0:
		t.mu.passed++
		return urgent[0]
	}
	return nil
}

// submit gives a chunk to the device, and returns the event of its end. The lock is held: a queue has one submitter at a time.
func (t *track) submit(x *stageCopy) *Event {
	q := t.lower
	if x.class == Urgent {
		q = t.urgent
	}
	*t.depth(x.class)++
	x.under++
	if err := t.stager.device.Err(); err != nil {
		x.stop(err)
		return t.stager.recorder.pool.Error(err)
	}
	end := min(x.at+stageChunk, x.from.Len())
	launch := q.Copy(x.to.Slice(x.at, end), x.from.Slice(x.at, end))
	if x.at = end; launch != nil || end == x.from.Len() {
		x.stop(launch)
	}
	return t.stager.recorder.Record(q, launch)
}

// depth counts the chunks of a class that the device has.
func (t *track) depth(c Class) *int {
	if c == Urgent {
		return &t.mu.hot
	}
	return &t.mu.cold
}

// reached hears that a chunk was copied, or has failed.
func (t *track) reached(x *stageCopy, err error) {
	t.mu.Lock()
	*t.depth(x.class)--
	x.under--
	if err != nil {
		x.stop(err)
		if x.err == nil {
			x.err = err
		}
	}
	ended, err := x.over && x.under == 0, x.err
	t.mu.Unlock()
	if ended {
		x.done(err)
	}
	t.feed()
}
