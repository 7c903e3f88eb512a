package transfer

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"unsafe"

	"github.com/serry-dev/serry/memory"
)

// A Registered is memory of the host that all devices of this process can copy from and to, without a way over other memory. It is
// registered once, and serves any number of buffers and copies (TR-PAB-8). Make it with [Engine.Register].
type Registered struct {
	engine *Engine
	whole  *Buffer // has the memory, and the holds of all buffers in it
	uses   int     // calls of Register without a Release; guarded by the lock of the registry
}

// A registry has the registered memory of a process, by its address.
type registry struct {
	sync.Mutex // also held while devices pin and unpin, which takes time
	all        map[uintptr]*Registered
	pinned     map[uintptr]*pinned // also memory that was released, as long as it is in use
}

// pinned is memory that all devices of the process have pinned.
type pinned struct {
	bytes int64
	users int    // times that it is registered, or was and is still in use
	give  func() // of the last time, or nil: gives it back when there is no user any more
}

// Register has every device of this process be able to copy from and to memory of the host. To register the same memory again costs
// nothing: it returns the same Registered. The memory is unpinned and given back when Release was called as often as Register, and
// none of its buffers is used any more; it may have a Free for that.
func (e *Engine) Register(m Memory) (*Registered, error) {
	if m.Region.Space() == memory.Device || m.Region.Len() == 0 {
		return nil, invalid("registered memory is memory of the host, and some")
	}
	e.registry.Lock()
	defer e.registry.Unlock()
	at := addressOf(m.Region)
	if r := e.registry.all[at]; r != nil {
		if r.whole.memory.Region.Len() != m.Region.Len() {
			return nil, invalid("%d bytes of memory of which %d are registered", m.Region.Len(), r.whole.memory.Region.Len())
		}
		r.uses++
		return r, nil
	}
	if err := e.pin(m); err != nil {
		return nil, err
	}
	m.Free = func() { e.unpin(m.Region) }
	whole, err := e.pool.Buffer(Spec{Type: memory.U8, Dims: []int64{m.Region.Len()}}, m)
	if err == nil {
		err = whole.Define(e.pool.Ready())
	}
	if err != nil {
		panic(fmt.Sprintf("%d bytes of memory: %v", m.Region.Len(), err)) // they are as large as they are, and defined once
	}
	if e.registry.all == nil {
		e.registry.all = make(map[uintptr]*Registered)
	}
	r := &Registered{engine: e, whole: whole, uses: 1}
	e.registry.all[at] = r
	return r, nil
}

// pin has all devices pin memory. If one refuses, none keeps it. The lock of the registry is held.
func (e *Engine) pin(m Memory) error {
	at, size := addressOf(m.Region), m.Region.Len()
	if p := e.registry.pinned[at]; p != nil {
		if p.bytes != size {
			return invalid("%d bytes of memory of which %d are in use", size, p.bytes)
		}
		p.users++
		p.give = m.Free
		return nil
	}
	devices := slices.Sorted(maps.Keys(e.opt.Devices))
	for i, d := range devices {
		if err := e.opt.Devices[d].Pin(m.Region); err != nil {
			for _, d := range devices[:i] {
				unpin(e.opt.Devices[d], m.Region, e.log)
			}
			return fmt.Errorf("%w: memory of %d bytes for device %d: %w", ErrLimit, size, d, err)
		}
	}
	if e.registry.pinned == nil {
		e.registry.pinned = make(map[uintptr]*pinned)
	}
	e.registry.pinned[at] = &pinned{bytes: size, users: 1, give: m.Free}
	return nil
}

// unpin has all devices unpin memory that nothing copies any more, and gives it back, unless it was registered again.
func (e *Engine) unpin(m memory.Region) {
	e.registry.Lock()
	at := addressOf(m)
	p := e.registry.pinned[at]
	p.users--
	last := p.users == 0
	if last {
		delete(e.registry.pinned, at)
		for _, d := range slices.Sorted(maps.Keys(e.opt.Devices)) {
			unpin(e.opt.Devices[d], m, e.log)
		}
	}
	e.registry.Unlock()
	if last && p.give != nil {
		p.give()
	}
}

// addressOf is where memory of the host begins.
func addressOf(r memory.Region) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(r.Bytes()))) }

// Buffer makes a buffer in the memory, from a byte on. Its content is to be defined, like that of every new buffer. Which buffers
// share bytes, and when, is up to the program.
func (r *Registered) Buffer(s Spec, offset int64) (*Buffer, error) {
	b, err := r.whole.Slice(s, offset)
	if err != nil {
		return nil, err
	}
	b.pinned = true
	b.mu.promise, b.definition = r.engine.pool.Event()
	return b, nil
}

// Release ends one call of Register.
func (r *Registered) Release() {
	e := r.engine
	e.registry.Lock()
	if r.uses--; r.uses == 0 {
		delete(e.registry.all, addressOf(r.whole.memory.Region))
	}
	last := r.uses == 0
	e.registry.Unlock()
	if last {
		r.whole.Delete()
	}
}

// CopyInto copies a buffer of this process into another one, whose content it defines: src may be undefined yet, and neither needs
// to be of the same device. Memory of the host that a device copies has to be registered.
func (e *Engine) CopyInto(ctx context.Context, dst, src *Buffer, c Class) error {
	if !dst.Spec().Equal(src.Spec()) {
		return invalid("a copy of %v into %v", src.Spec(), dst.Spec())
	}
	run, err := e.copyRoute(dst, src, c)
	if err != nil {
		return err
	}
	read, err := src.Use(ctx)
	if err != nil {
		return err
	}
	defer read.Drop()
	written, err := dst.Use(ctx)
	if err != nil {
		return err
	}
	defer written.Drop()
	promise, copied := e.pool.Event()
	if err := dst.Define(copied); err != nil {
		promise.Set(err)
		return err
	}
	read.Convert(copied)
	written.Convert(copied)
	src.Definition().After(func(err error) {
		if err != nil {
			promise.Set(err)
			return
		}
		run(func(err error) { promise.Set(err) })
	})
	return nil
}

// copyRoute finds out how a buffer is copied into another one. The function that it returns calls done when the copy has ended.
func (e *Engine) copyRoute(dst, src *Buffer, c Class) (func(done func(error)), error) {
	to, from := dst.memory.Region, src.memory.Region
	down, up := from.Space() == memory.Device, to.Space() == memory.Device
	switch {
	case !down && !up:
		return func(done func(error)) { copy(to.Bytes(), from.Bytes()); done(nil) }, nil
	case down && up && dst.Device() != src.Device():
		return nil, fmt.Errorf("a copy from device %d to device %d: %w", src.Device(), dst.Device(), ErrUnsupported)
	case down && up:
		return func(done func(error)) {
			copied := e.copyInside(dst.Device(), c, to, from)
			copied.onEnd(func() { done(copied.Err()) })
		}, nil
	case down && !dst.pinned, up && !src.pinned:
		return nil, fmt.Errorf("a copy between a device and memory of the host that is not registered: %w", ErrUnsupported)
	}
	d := dst.Device()
	if down {
		d = src.Device()
	}
	s, err := e.stagerOf(d)
	if err != nil {
		return nil, err
	}
	return func(done func(error)) {
		t := &s.up
		if down {
			t = &s.down
		}
		t.copy(c, to, from, done)
	}, nil
}
