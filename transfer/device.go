package transfer

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/serry-dev/serry/memory"
)

// A Queue is an ordered list of work of a device. The package of the device implements it. Its methods enqueue, and never
// wait for the device. One goroutine at a time submits to a queue.
type Queue interface {
	// Copy copies src to dst, which are equally long.
	Copy(dst, src memory.Region) error

	// After has everything that follows wait, on the device, for a mark of another queue of the same device.
	After(Mark) error

	// Mark adds a mark, which is reached when everything before it is done.
	Mark() (Mark, error)

	// Reached is the number of the last mark that was reached. It may be called at any time, and costs one load.
	Reached() uint64
}

// A Mark is a place in a queue. The numbers of the marks of a queue ascend from 1.
type Mark struct {
	Queue  Queue
	Number uint64
}

// A deviceMark is a mark, and the device that its queue is of.
type deviceMark struct {
	Mark
	device Device
}

// reached says whether everything before the mark is done.
func (m Mark) reached() bool { return m.Queue.Reached() >= m.Number }

// A Direction says between which memories a queue copies.
type Direction int

// The directions.
const (
	Down   Direction = iota // from the device to the host
	Up                      // from the host to the device
	Inside                  // in the memory of the device
)

// String is one lower-case word.
func (d Direction) String() string {
	names := [...]string{"down", "up", "inside"}
	if d < 0 || int(d) >= len(names) {
		return "direction " + strconv.Itoa(int(d))
	}
	return names[d]
}

// A Device has memory, and queues that copy it. The package of the device implements it; package devicetest has one without
// hardware.
type Device interface {
	// Alloc takes memory of the device.
	Alloc(n int64) (memory.Region, error)

	// Pin lets the device copy from and to memory of the host. It is called once for a region, and keeps a reference to it: a
	// device that hangs may write memory which no program uses any more.
	Pin(memory.Region) error

	// Queue makes a queue. Only copies inside a device know classes; those between host and device are ordered by the engine.
	Queue(Direction, Class) (Queue, error)

	// Err is why the device is lost for good, or nil.
	Err() error
}

// An Unpinner is a device that can end what its Pin began. A device that is none keeps memory pinned for as long as there is the
// device.
type Unpinner interface {
	// Unpin is called once for a region that was pinned, when the device copies nothing from or to it any more.
	Unpin(memory.Region) error
}

// unpin ends a Pin, if the device can.
func unpin(d Device, r memory.Region, log *slog.Logger) {
	if u, ok := d.(Unpinner); ok {
		if err := u.Unpin(r); err != nil {
			log.Warn("memory is not unpinned", "bytes", r.Len(), "err", err)
		}
	}
}

const (
	// How often a recorder looks at marks: after a sixteenth of the time in which no event was recorded or ended, but between these.
	leastPoll = 50 * time.Microsecond
	mostPoll  = time.Millisecond

	lastPoll = time.Second // how often, once nothing waits for it any more
)

// A Recorder turns the marks of a device into events. One goroutine looks at the marks while there are any; a callback of
// the driver would have to run on a thread of the driver, and would hold up the queue.
type Recorder struct {
	// Set in NewRecorder, then constant.
	pool   *Pool
	device Device

	mu struct {
		sync.Mutex
		open  []recorded    // in the order in which they were recorded
		idle  chan struct{} // or nil: closed when none is open
		left  bool          // nothing waits for them any more
		next  *time.Timer   // of the next look; or nil as idle
		moved time.Time     // an event was recorded, or ended, last
	}
}

// recorded is an event that waits for a mark.
type recorded struct {
	event  *Event
	mark   Mark
	launch error // of the work before the mark
}

// NewRecorder makes the recorder of a device.
func NewRecorder(p *Pool, d Device) *Recorder { return &Recorder{pool: p, device: d} }

// Record marks the end of the work that was just submitted to q, and returns its event: recorded now, complete when the mark
// is reached. launch is why that work could not be submitted as a whole, or nil.
//
// The event never stays open, and never ends better than the worst of three: the submission, the mark, and the device
// (TR-ASY-2). Work of which a part was submitted fails only when its mark is reached: the device may use its memory until
// then.
func (r *Recorder) Record(q Queue, launch error) *Event {
	e := &Event{pool: r.pool}
	mark, err := q.Mark()
	if err != nil {
		e.end(errors.Join(launch, err))
		return e
	}
	e.advance(Recorded, []deviceMark{{mark, r.device}}, nil)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.open, r.mu.moved = append(r.mu.open, recorded{e, mark, launch}), time.Now()
	if r.mu.idle == nil {
		r.mu.idle, r.mu.next = make(chan struct{}), time.NewTimer(0)
		go r.poll(r.mu.next.C)
	} else {
		r.mu.next.Reset(leastPoll)
	}
	return e
}

// poll looks at the marks whenever it is time, and ends events, until none is open.
func (r *Recorder) poll(due <-chan time.Time) {
	for range due {
		ended := r.look()
		for _, o := range ended {
			o.event.end(errors.Join(o.launch, r.fault(o)))
		}
		if r.rests(len(ended) > 0) {
			return
		}
	}
}

// rests sets when to look next. It says whether no event is open, and lets those that wait for that go on.
func (r *Recorder) rests(moved bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.mu.open) == 0 {
		close(r.mu.idle)
		r.mu.idle, r.mu.next = nil, nil
		return true
	}
	if moved {
		r.mu.moved = time.Now()
	}
	wait := min(max(time.Since(r.mu.moved)/16, leastPoll), mostPoll)
	if r.mu.left {
		wait = lastPoll
	}
	r.mu.next.Reset(wait)
	return false
}

// look takes out the events that end.
func (r *Recorder) look() (ended []recorded) {
	lost := r.device.Err() != nil
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.open = slices.DeleteFunc(r.mu.open, func(o recorded) bool {
		over := lost || o.mark.reached()
		if over {
			ended = append(ended, o)
		}
		return over
	})
	return ended
}

// fault is why work has failed on the device, or nil. A mark says nothing about that: a device that is lost may have
// reached it.
func (r *Recorder) fault(o recorded) error {
	if err := r.device.Err(); err != nil {
		return err
	}
	if !o.mark.reached() {
		return ErrAbandoned
	}
	return nil
}

// Flush waits until no event of the recorder is open, or until ctx ends: then it returns false. The recorder goes on looking at
// marks, now and then, until the device has reached them: what it has open keeps memory reachable that the device may write.
func (r *Recorder) Flush(ctx context.Context) bool {
	r.mu.Lock()
	idle := r.mu.idle
	r.mu.Unlock()
	if idle == nil {
		return true
	}
	select {
	case <-idle:
		return true
	case <-ctx.Done():
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.left = true
	return r.mu.idle == nil
}

// Behind has everything that is submitted to q from now on wait, on the device, until e is done. It says whether it could:
// an event that is not recorded, or that is recorded on another device, must be waited for by the processor. It costs
// nothing if the event is complete, if q itself recorded it, or if q waits for it already (TR-OBJ-4).
func (r *Recorder) Behind(q Queue, e *Event) (bool, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.mu.state == Failed:
		return false, e.mu.err
	case e.mu.state == Complete || slices.Contains(e.mu.waited, q):
		return true, nil
	case e.mu.state == Unrecorded:
		return false, nil
	}
	if !r.marked(e.mu.marks) {
		return false, nil
	}
	for _, m := range e.mu.marks {
		if m.Queue == q || m.reached() {
			continue
		}
		if err := q.After(m.Mark); err != nil {
			return false, err
		}
	}
	e.mu.waited = append(e.mu.waited, q)
	return true, nil
}

// marked says whether marks are all of this device: a queue can wait for no others.
func (r *Recorder) marked(marks []deviceMark) bool {
	return !slices.ContainsFunc(marks, func(m deviceMark) bool { return m.device != r.device })
}
