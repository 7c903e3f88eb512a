package transfer_test

import (
	"bytes"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/memory"
	"github.com/serry-dev/serry/transfer"
)

// What a storm transfers: buffers of all sizes, in all kinds of memory, whole or in part, whose data are there, or come later, or are
// still made by a device.

// A half is one half of a transfer, as its program sees it.
type half struct {
	key    uint64
	send   bool
	task   int // that posts it
	peer   int
	size   int
	kind   int // of memory
	class  transfer.Class
	within time.Duration // its deadline
	cancel time.Duration // after which it is cancelled, or 0
	late   time.Duration // of a send: when its data are there
	fails  bool          // they are an error
	mate   *half         // the other half, which may never be posted

	inOrder bool          // of a send
	part    part          // of its memory that moves
	view    transfer.View // where that lies in the memory

	// Guarded by the lock of the storm.
	owner  *stormLife // or nil: it was not posted
	began  time.Time
	item   transfer.Item
	ended  bool
	err    error
	at     time.Time
	memory []byte // that was written over when it had ended, or nil

	// Set by op, for the goroutine of the half.
	whole  *transfer.Buffer // that has the memory, or nil
	region memory.Region    // all of it
}

// A line is what sends that keep their order have in common.
type line struct {
	from *stormLife
	to   int
}

// The kinds of memory.
const (
	plain = iota
	inArena
	onFake
	fromEngine // of receives
)

// A part says which part of its memory a half moves.
type part int

const (
	wholly    part = iota // all of it
	middle                // bytes in the middle, as a buffer of their own
	gaps                  // runs with gaps
	backwards             // single bytes, the last one first; of a send
)

// plan draws a transfer, and has both halves posted.
func (s *storm) plan(key uint64) {
	d := s.draw
	from := d.IntN(s.tasks)
	to := (from + 1 + d.IntN(s.tasks-1)) % s.tasks
	size := []int{0, 1, 100, 8 << 10, 8<<10 + 1, 30 << 10, 200 << 10, 1 << 20}[d.IntN(8)]
	if d.IntN(30) == 0 {
		size = 5 << 20
	}
	inOrder := d.IntN(5) == 0
	halves := []*half{{send: true, task: from, peer: to, class: transfer.Class(d.IntN(3))}, {task: to, peer: from}}
	at := time.Duration(d.IntN(9000)) * time.Millisecond
	for i, h := range halves {
		h.key, h.size, h.within, h.mate = key, size, stormLong, halves[1-i]
		h.kind = d.IntN(4)
		s.planPart(h)
		if inOrder { // others wait for it: it has to end before the end is judged
			h.inOrder, h.within = h.send, stormOrdered
		}
		h.late = time.Duration(d.IntN(2)*d.IntN(1500)) * time.Millisecond
		delay := at + time.Duration(d.IntN(3)*d.IntN(500))*time.Millisecond
		switch d.IntN(14) {
		case 0:
			h.cancel = time.Duration(1+d.IntN(4000)) * time.Millisecond
		case 4: // while its bytes move, most likely
			h.cancel = time.Duration(1+d.IntN(300)) * time.Millisecond
		case 1:
			h.within = time.Duration(d.IntN(6000)) * time.Millisecond
		case 2:
			h.fails = h.send
		case 3:
			continue // it is never posted
		}
		s.mu.halves = append(s.mu.halves, h)
		s.work.Go(func() {
			<-time.After(delay)
			s.post(h)
		})
	}
}

// planPart draws which part of its memory a half moves.
func (s *storm) planPart(h *half) {
	const margin = 64
	size := int64(h.size)
	h.part = part(s.draw.IntN(10) - 6)
	switch {
	case h.part == middle && (h.send || h.kind != fromEngine):
		h.view = transfer.View{Offset: margin, Run: size}
		return
	case h.part == gaps && h.kind < onFake && size%1024 == 0 && size > 0:
		h.view = transfer.View{Offset: 7, Run: 1024, Counts: []int64{size / 1024}, Strides: []int64{1500}}
		return
	case h.part == backwards && h.kind < onFake && h.send && 0 < size && size <= 30<<10:
		h.view = transfer.View{Offset: size - 1, Run: 1, Counts: []int64{size}, Strides: []int64{-1}}
		return
	}
	h.part, h.view = wholly, transfer.View{Run: size}
}

// all is how much memory a half has.
func (h *half) all() int64 {
	switch h.part {
	case middle:
		return h.view.Offset*2 + h.view.Run
	case gaps:
		return h.view.Offset + h.view.Counts[0]*h.view.Strides[0]
	}
	return int64(h.size)
}

// op makes what a program hands to the engine.
func (s *storm) op(l *stormLife, h *half) transfer.Op {
	op := transfer.Op{Key: transfer.Key{Seq: h.key}, Src: serry.DeviceID(h.task), Dst: serry.DeviceID(h.peer), Spec: bytesSpec(h.size), Class: h.class}
	if !h.send {
		op.Src, op.Dst = op.Dst, op.Src
	}
	if !h.send && h.kind == fromEngine {
		return op
	}
	h.region = s.region(l, h)
	var err error
	if h.whole, err = l.Pool().Buffer(bytesSpec(int(h.all())), transfer.Memory{Region: h.region, Device: l.device}); err != nil {
		s.wrong("buffer: %v", err)
	}
	if h.send {
		op.InOrder = h.inOrder
		s.produce(l, h)
	}
	op.Buffer = h.whole
	switch h.part {
	case middle:
		if op.Buffer, err = h.whole.Slice(op.Spec, h.view.Offset); err != nil {
			s.wrong("Slice() = %v", err)
		}
	case gaps, backwards:
		op.View = h.view
	}
	return op
}

// produce has the data of a send be there after a while. Where they are on a device, the device makes them: they are recorded then,
// and complete later.
func (s *storm) produce(l *stormLife, h *half) {
	made, byDevice := h.region, h.region.Space() == memory.Device
	if byDevice {
		var err error
		if made, err = l.fake.Alloc(h.region.Len()); err != nil {
			s.wrong("Alloc() = %v", err)
		}
	}
	h.scatter(l.bytes(made), fill(h.size, h.key))
	promise, definition := l.Pool().Event()
	if err := h.whole.Define(definition); err != nil {
		s.wrong("Define() = %v", err)
	}
	s.work.Go(func() {
		<-time.After(h.late)
		var err error
		if h.fails {
			err = errProducer
		}
		if !byDevice {
			promise.Set(err)
			return
		}
		l.submit.Lock()
		defer l.submit.Unlock()
		if err == nil {
			err = l.maker.queue.Copy(h.region, made)
		}
		promise.Bind(l.maker.recorder.Record(l.maker.queue, err))
	})
}

// scatter writes content to where the half has it in its memory.
func (h *half) scatter(to, content []byte) {
	h.runs(func(at, n int64) { content = content[copy(to[at:at+n], content):] })
}

// gather is the content of the memory of a half, and whether all other bytes are untouched.
func (h *half) gather(from []byte) (content []byte, untouched bool) {
	rest := bytes.Clone(from)
	h.runs(func(at, n int64) {
		content = append(content, from[at:at+n]...)
		clear(rest[at : at+n])
	})
	return content, allEqual(rest, 0)
}

// runs calls f for the bytes of the half that lie in a row, in the order in which they move.
func (h *half) runs(f func(at, n int64)) {
	if len(h.view.Counts) == 0 {
		f(h.view.Offset, h.view.Run)
		return
	}
	for i := range h.view.Counts[0] {
		f(h.view.Offset+i*h.view.Strides[0], h.view.Run)
	}
}

// region takes memory for a half.
func (s *storm) region(l *stormLife, h *half) memory.Region {
	var r memory.Region
	var err error
	switch {
	case h.kind == inArena && h.size > 0:
		r, err = l.arena.Alloc(h.all())
	case h.kind == onFake && l.fake != nil:
		r, err = l.fake.Alloc(h.all())
	default:
		return memory.Of(make([]byte, h.all()))
	}
	if err != nil { // there is none of that kind left
		return memory.Of(make([]byte, h.all()))
	}
	return r
}

// bytes is the content of memory of a process.
func (l *stormLife) bytes(r memory.Region) []byte {
	if l.fake != nil {
		return l.fake.Bytes(r)
	}
	return r.Bytes()
}
