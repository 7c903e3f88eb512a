package transfer

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/memory"
)

// Memory is what a buffer lies in. It has one owner, which is the buffer until the memory is donated or given back.
type Memory struct {
	Region memory.Region
	Device serry.DeviceID // that can read it
	Free   func()         // gives it back, or nil where the program keeps it anyway
}

// A Buffer is a typed value in memory. Its content is defined once, by an event. Make it with [Pool.Buffer].
type Buffer struct {
	// Set when the buffer is made, then constant.
	pool       *Pool
	spec       Spec
	memory     Memory
	definition *Event
	whole      *Buffer // that this is a part of, or nil: it has the holds
	pinned     bool    // devices of this process can copy the memory

	mu struct {
		sync.Mutex
		promise  *Promise      // of the definition; nil once the buffer is defined
		gone     string        // "deleted" or "donated", or empty
		using    int           // usage holds
		shared   int           // external holds
		donating bool          // there is a donation hold
		usages   []*Event      // that may be open
		live     int           // of them, those that were open when they were last looked at
		freeing  bool          // the memory is given back once all events have ended
		changed  chan struct{} // or nil; closed when a hold ends
	}
}

// Buffer makes a buffer whose content is not defined yet. Its memory has to be as large as its value.
func (p *Pool) Buffer(s Spec, m Memory) (*Buffer, error) {
	switch size, err := s.Bytes(); {
	case err != nil:
		return nil, err
	case size != m.Region.Len():
		return nil, invalid("%v takes %d bytes, memory has %d", s, size, m.Region.Len())
	}
	b := &Buffer{pool: p, spec: s.clone(), memory: m}
	b.mu.promise, b.definition = p.Event()
	return b, nil
}

// Spec says what the buffer holds.
func (b *Buffer) Spec() Spec { return b.spec }

// Device is the one that the buffer lies on.
func (b *Buffer) Device() serry.DeviceID { return b.memory.Device }

// Definition is complete when the content of the buffer is valid. Where it fails, the buffer has that error for content.
func (b *Buffer) Definition() *Event { return b.definition }

// Define says what defines the content of the buffer: [Pool.Ready], if it is there. A second call is an error, and changes
// nothing: work that reads the buffer may have been enqueued behind the first definition.
func (b *Buffer) Define(e *Event) error {
	b.mu.Lock()
	p := b.mu.promise
	b.mu.promise = nil
	b.mu.Unlock()
	if p == nil || !p.Bind(e) {
		return invalid("buffer %v is defined or deleted already", b.spec)
	}
	return nil
}

// A Use is a hold on a buffer for work that is about to be enqueued, and that reads it. It is short: end it by Convert or
// Drop.
type Use struct {
	buffer *Buffer // that has the hold
	region memory.Region
	once   sync.Once
}

// Use takes a usage hold. It waits while another goroutine has the donation hold.
func (b *Buffer) Use(ctx context.Context) (*Use, error) {
	h, err := b.holder()
	if err != nil {
		return nil, err
	}
	if !h.useNow() {
		err = h.hold(ctx, func() bool { return !h.mu.donating }, func() error {
			h.mu.using++
			return nil
		})
	}
	if err != nil {
		return nil, err
	}
	return &Use{buffer: h, region: b.memory.Region}, nil
}

// useNow takes a usage hold if nothing is in its way.
func (b *Buffer) useNow() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.gone != "" || b.mu.donating {
		return false
	}
	b.mu.using++
	return true
}

// Memory is what the work may read. It stays until the work is done.
func (u *Use) Memory() memory.Region { return u.region }

// Convert ends the hold. From now on done is a usage event of the buffer: the memory stays as it is until it has ended.
func (u *Use) Convert(done *Event) {
	u.once.Do(func() { u.buffer.release(func() { u.buffer.addUsage(done) }, &u.buffer.mu.using) })
}

// Drop ends the hold of work that was not enqueued. After Convert it does nothing.
func (u *Use) Drop() {
	u.once.Do(func() { u.buffer.release(func() {}, &u.buffer.mu.using) })
}

// addUsage adds a usage event. Those that have ended are dropped when the list has doubled. The lock is held.
func (b *Buffer) addUsage(e *Event) {
	if len(b.mu.usages) >= 2*b.mu.live+8 {
		b.mu.usages = slices.DeleteFunc(b.mu.usages, func(e *Event) bool { return e.State().ended() })
		b.mu.live = len(b.mu.usages)
	}
	b.mu.usages = append(b.mu.usages, e)
}

// A Share is a hold for foreign code that keeps a pointer to the memory. It may be long. While there is one the buffer
// cannot be donated.
type Share struct {
	buffer *Buffer // that has the hold
	region memory.Region
	once   sync.Once
}

// Share takes an external hold. It waits while another goroutine has the donation hold.
func (b *Buffer) Share(ctx context.Context) (*Share, error) {
	h, err := b.holder()
	if err != nil {
		return nil, err
	}
	err = h.hold(ctx, func() bool { return !h.mu.donating }, func() error {
		h.mu.shared++
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &Share{buffer: h, region: b.memory.Region}, nil
}

// Memory is what the foreign code may use, once the buffer is defined.
func (s *Share) Memory() memory.Region { return s.region }

// Release ends the hold.
func (s *Share) Release() {
	s.once.Do(func() { s.buffer.release(func() {}, &s.buffer.mu.shared) })
}

// A Donation is the exclusive hold of code that is about to take over the memory. End it by Confirm or Drop.
type Donation struct {
	buffer *Buffer
	once   sync.Once
}

// Donate takes the donation hold. It waits for usage holds to end, and refuses where there is an external one, and of a part
// of a buffer: its memory is that of the whole.
func (b *Buffer) Donate(ctx context.Context) (*Donation, error) {
	if b.whole != nil {
		return nil, invalid("buffer %v is a part of %v, and cannot be donated", b.spec, b.whole.spec)
	}
	err := b.hold(ctx, func() bool { return !b.mu.donating && (b.mu.using == 0 || b.mu.shared > 0) }, func() error {
		if b.mu.shared > 0 {
			return invalid("buffer %v is shared with other code, and cannot be donated", b.spec)
		}
		b.mu.donating = true
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &Donation{buffer: b}, nil
}

// Confirm takes the memory over: the buffer has none any more. The memory may be written, or given back, when ready has
// ended, however it ends: then nothing defines the old content, and nothing reads it.
func (d *Donation) Confirm() (m Memory, ready *Event) {
	b := d.buffer
	ready = b.pool.Ready()
	d.once.Do(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		m, ready = b.memory, b.pool.Join(append([]*Event{b.definition}, b.mu.usages...)...)
		b.mu.gone, b.mu.usages, b.mu.donating = "donated", nil, false
		b.wake()
	})
	return m, ready
}

// Drop ends the hold; the buffer stays as it was. After Confirm it does nothing.
func (d *Donation) Drop() {
	b := d.buffer
	d.once.Do(func() { b.release(func() { b.mu.donating = false }, nil) })
}

// hold waits until free says that a hold can be taken, and takes it.
func (b *Buffer) hold(ctx context.Context, free func() bool, take func() error) error {
	for {
		b.mu.Lock()
		if b.mu.gone != "" {
			defer b.mu.Unlock()
			return invalid("buffer %v was %s", b.spec, b.mu.gone)
		}
		if free() {
			defer b.mu.Unlock()
			return take()
		}
		if b.mu.changed == nil {
			b.mu.changed = make(chan struct{})
		}
		changed := b.mu.changed
		b.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("buffer %v: %w", b.spec, context.Cause(ctx))
		}
	}
}

// release ends a hold: it lowers count, if there is one, and wakes what waits.
func (b *Buffer) release(end func(), count *int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	end()
	if count != nil {
		*count--
	}
	b.wake()
	b.settle()
}

// wake has all that wait for a hold look again. The lock is held.
func (b *Buffer) wake() {
	if b.mu.changed != nil {
		close(b.mu.changed)
		b.mu.changed = nil
	}
}

// Delete ends the use of the buffer. It never waits. Work that was enqueued before reads it as it is; later holds are
// refused. The memory is given back when all holds and events have ended.
func (b *Buffer) Delete() {
	b.mu.Lock()
	if b.mu.gone != "" {
		b.mu.Unlock()
		return
	}
	b.mu.gone = "deleted"
	promise := b.mu.promise
	b.mu.promise = nil
	b.wake()
	b.mu.Unlock()
	if promise != nil { // the definition will never come
		promise.Set(invalid("buffer %v was deleted before it was defined", b.spec))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.settle()
}

// Deleted says whether the buffer was deleted or donated.
func (b *Buffer) Deleted() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.gone != ""
}

// settle gives the memory of a deleted buffer back once nothing holds it and all of its events have ended. The lock is
// held.
func (b *Buffer) settle() {
	if b.mu.gone != "deleted" || b.mu.using > 0 || b.mu.shared > 0 || b.mu.donating || b.mu.freeing {
		return
	}
	b.mu.freeing = true
	if free := b.memory.Free; free != nil {
		b.pool.Join(append([]*Event{b.definition}, b.mu.usages...)...).After(func(error) { free() })
	}
	b.mu.usages = nil
}
