package transfer

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/serry-dev/serry/memory"
	"github.com/serry-dev/serry/transfer/internal/match"
)

// A half may move a part of its buffer that does not lie in a row ([Op.View]). What travels is dense. A send gathers it, once its data
// are there, and a receive scatters it, once it has come; both do so in memory of which there is a bound for the process.

// A packing is such a half.
type packing struct {
	view   View
	bytes  int64
	buffer memory.Region // of the program
	used   *Promise      // satisfied when the buffer is not used any more

	mu struct {
		sync.Mutex
		reading bool // the bytes of a send are being gathered
		over    bool // the half has ended
	}
}

// begin says whether the bytes of a send are still to be gathered. Then done must follow.
func (x *packing) begin() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.mu.reading = !x.mu.over
	return x.mu.reading
}

// done says that they are gathered.
func (x *packing) done() { x.used.Set(nil) }

// end lets go of the buffer, because the half has ended: unless it is being read, which done ends.
func (x *packing) end() {
	x.mu.Lock()
	x.mu.over = true
	reading := x.mu.reading
	x.mu.Unlock()
	if !reading {
		x.used.Set(nil)
	}
}

// checkView finds out whether the view of a half lies in its buffer.
func (o *operation) checkView() error {
	v, region := o.op.View, o.memory
	if region.Space() == memory.Device {
		return fmt.Errorf("parts of memory of a device that do not lie in a row: %w", ErrUnsupported)
	}
	size, err := o.op.Spec.Bytes()
	if err != nil {
		return err
	}
	bytes, err := v.bounds(region.Len())
	switch {
	case err != nil:
		return err
	case bytes != size:
		return invalid("a view of %d bytes for %v, which takes %d", bytes, o.op.Spec, size)
	case !o.send && !v.distinct():
		return invalid("a view of a receive that has some bytes twice")
	}
	return nil
}

// bounds says how many bytes the view has, and refuses one that reaches beyond a buffer of that size. Strides may be 0 or less.
func (v View) bounds(size int64) (bytes int64, err error) {
	if v.Offset < 0 || v.Run < 1 || len(v.Counts) > maxLoops || len(v.Counts) != len(v.Strides) || v.Offset > size || v.Run > size-v.Offset {
		return 0, invalid("view of runs of %d bytes at %d, with %d and %d loops, of a buffer of %d bytes", v.Run, v.Offset, len(v.Counts), len(v.Strides), size)
	}
	bytes, low, high := v.Run, v.Offset, v.Offset+v.Run
	for i, n := range v.Counts {
		s := v.Strides[i]
		if n < 1 || n > math.MaxInt64/bytes || s == math.MinInt64 || s != 0 && n-1 > size/max(s, -s) {
			return 0, invalid("view with a loop of %d times %d bytes, of a buffer of %d bytes", n, s, size)
		}
		bytes *= n
		if reach := (n - 1) * s; reach < 0 {
			low += reach
		} else {
			high += reach
		}
		if low < 0 || high > size {
			return 0, invalid("view that reaches from byte %d to %d of a buffer of %d bytes", low, high, size)
		}
	}
	return bytes, nil
}

// distinct says whether no byte of the buffer is twice in the view.
func (v View) distinct() bool {
	type loop struct{ count, stride int64 }
	var loops []loop
	for i, n := range v.Counts {
		if n > 1 {
			loops = append(loops, loop{n, v.Strides[i]})
		}
	}
	slices.SortFunc(loops, func(a, b loop) int { return cmp.Compare(a.stride, b.stride) })
	reach := v.Run
	for _, l := range loops {
		if l.stride < reach {
			return false
		}
		reach += (l.count - 1) * l.stride
	}
	return true
}

// startPacking has a half wait until its dense bytes have room, and, of a send, are there.
func (p *peer) startPacking(o *operation) {
	x, e := o.packing, p.engine
	x.buffer, x.bytes = o.memory, o.Shape.Bytes
	o.memory = memory.Region{}
	promise, packed := e.pool.ownEvent()
	waits := o.ready()
	o.op.After = append(slices.Clone(o.op.After), packed)
	room := &e.unpacking
	if o.send {
		room = &e.staging
	}
	waits.After(func(err error) {
		if err != nil {
			promise.Set(err)
			return
		}
		room.take(p.life, x.bytes, func() { e.pool.run(func() { p.pack(o, room, promise) }) })
	})
}

// pack gathers the bytes of a send, or takes memory for those of a receive. A goroutine of the pool calls it.
func (p *peer) pack(o *operation, room *staging, packed *Promise) {
	x := o.packing
	if o.event.State().ended() || o.send && !x.begin() {
		room.give(p.life, x.bytes)
		packed.Set(nil)
		return
	}
	dense := make([]byte, x.bytes)
	if o.send {
		x.view.gather(dense, x.buffer.Bytes())
		x.done()
	}
	o.event.onEnd(func() { room.give(p.life, x.bytes) })
	p.do(func() { o.memory = memory.Of(dense) })
	packed.Set(nil)
}

// unpack puts what has come into the buffer of a receive, and then tells the program.
func (p *peer) unpack(o *operation, end match.End) {
	x, dense := o.packing, o.memory.Bytes()
	o.copies++
	o.ending = &end
	p.draining[o.ref] = o
	p.engine.pool.run(func() {
		x.view.scatter(x.buffer.Bytes(), dense)
		p.do(func() {
			o.copies--
			p.settle(o)
		})
	})
}
