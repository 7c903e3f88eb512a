package transfer

import (
	"context"
	"fmt"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/memory"
)

// putNamespace has the keys of Put. Programs use others.
const putNamespace = 1 << 63

// A Placement is a value in shards, each of which moves from one device to another.
type Placement struct {
	Src, Dst         []serry.DeviceID // of each shard
	SrcKind, DstKind string           // kinds of memory; empty means the usual one
	Specs            []Spec           // of each shard: they may have different sizes
	Shards           []*Buffer        // of each shard: its data, if its source is a device of this process
	Class            Class            // of its transfers, and of its copies in the memory of a device

	// Reuse has shards that stay where they are not be copied: the buffer of their destination is that of their source.
	Reuse bool
}

// A Put is what became of a call of Engine.Put.
type Put struct {
	// Buffers has the shards of each value at their destinations, and nil for those of other processes.
	Buffers [][]*Buffer

	// Done ends when everything has that this process takes part in, with the first error.
	Done *Event
}

// Put moves values to other devices, of this process and of others. Every process that has a device among sources or
// destinations makes the same calls, in the same order; a process that has none may. Values with the same devices and kinds of
// memory move together, and nothing waits for values that come later in the list.
//
// The keys of transfers are counted for each pair of lives: a process that was restarted begins anew with all others, and a
// process that takes no part need not count.
func (e *Engine) Put(ctx context.Context, values []Placement) (*Put, error) {
	for i, v := range values {
		if err := e.checkPlacement(v); err != nil {
			return nil, fmt.Errorf("value %d of %d: %w", i, len(values), err)
		}
	}
	r := route{engine: e, put: &Put{}}
	for _, v := range values {
		r.put.Buffers = append(r.put.Buffers, make([]*Buffer, len(v.Dst)))
	}
	e.puts.Lock() // calls take their keys in the order in which they were made
	defer e.puts.Unlock()
	for _, batch := range batches(values) {
		for shard := range values[batch[0]].Src {
			for _, value := range batch {
				if err := r.shard(values[value], value, shard); err != nil {
					return nil, err
				}
			}
		}
	}
	return r.put, r.start(ctx)
}

// checkPlacement checks what Transfer would find too late.
func (e *Engine) checkPlacement(v Placement) error {
	n := len(v.Src)
	if len(v.Dst) != n || len(v.Specs) != n || len(v.Shards) != n {
		return invalid("%d sources, %d destinations, %d shapes, %d buffers", n, len(v.Dst), len(v.Specs), len(v.Shards))
	}
	for i := range n {
		src, ok := e.owner(v.Src[i])
		_, too := e.owner(v.Dst[i])
		switch {
		case !ok || !too:
			return invalid("shard %d: devices %d and %d: one is unknown", i, v.Src[i], v.Dst[i])
		case src == e.life.Task && v.Shards[i] == nil:
			return invalid("shard %d on device %d has no buffer", i, v.Src[i])
		}
	}
	return nil
}

// batches groups values by devices and kinds of memory, in the order in which they first appear. Every process comes to
// the same order, because it does not depend on anything but the list (TR-ORD-5).
func batches(values []Placement) (list [][]int) {
	places := make(map[string]int)
	for i, v := range values {
		key := fmt.Sprint(v.Src, v.SrcKind, v.Dst, v.DstKind)
		at, ok := places[key]
		if !ok {
			at = len(list)
			places[key] = at
			list = append(list, nil)
		}
		list[at] = append(list[at], i)
	}
	return list
}

// A route gathers what a Put does.
type route struct {
	engine *Engine
	put    *Put
	ops    []Op
	peers  []*peer    // of ops
	slots  []**Buffer // where the buffers of ops go, or nil
	copies []localCopy
	kept   []*Event // definitions of shards that stay where they are
}

// A localCopy is a shard whose source and destination are both of this process.
type localCopy struct {
	src   *Buffer
	dst   serry.DeviceID
	class Class
	slot  **Buffer
}

// shard finds the way of one shard.
func (r *route) shard(v Placement, value, shard int) error {
	e := r.engine
	src, _ := e.owner(v.Src[shard])
	dst, _ := e.owner(v.Dst[shard])
	op := Op{Src: v.Src[shard], Dst: v.Dst[shard], Spec: v.Specs[shard], Class: v.Class}
	slot := &r.put.Buffers[value][shard]
	other := src
	switch me := e.life.Task; {
	case src == me && op.Src == op.Dst && v.SrcKind == v.DstKind && v.Reuse:
		*slot = v.Shards[shard]
		r.kept = append(r.kept, v.Shards[shard].Definition())
		return nil
	case src == me && dst == me:
		r.copies = append(r.copies, localCopy{v.Shards[shard], op.Dst, v.Class, slot})
		return nil
	case src == me:
		other = dst
		op.Buffer, slot = v.Shards[shard], nil
	case dst != me:
		return nil
	}
	p, err := e.peerOf(other)
	if err != nil {
		return err
	}
	r.ops, r.peers, r.slots = append(r.ops, op), append(r.peers, p), append(r.slots, slot)
	return nil
}

// start begins all transfers and copies.
func (r *route) start(ctx context.Context) error {
	done := r.kept
	if len(r.ops) > 0 {
		g, err := r.transfer(ctx)
		if err != nil {
			return err
		}
		done = append(done, g.Done())
	}
	for _, c := range r.copies {
		b, err := r.engine.copyTo(ctx, c.src, c.dst, c.class)
		if err != nil {
			return err
		}
		*c.slot = b
		done = append(done, b.Definition())
	}
	r.put.Done = r.engine.pool.Join(done...)
	return nil
}

// transfer begins the transfers. If they are refused, no key was used.
func (r *route) transfer(ctx context.Context) (*Group, error) {
	for i, p := range r.peers {
		r.ops[i].Key = Key{Namespace: putNamespace, Seq: p.puts}
		p.puts++
	}
	g, err := r.engine.Transfer(ctx, r.ops)
	if err != nil {
		for _, p := range r.peers {
			p.puts--
		}
		return nil, err
	}
	for i, item := range g.Items() {
		if r.slots[i] != nil {
			*r.slots[i] = item.Buffer
		}
	}
	return g, nil
}

// Copy copies a buffer to another device of this process. The copy can be used at once; it is defined when src is, and has
// been copied.
func (e *Engine) Copy(ctx context.Context, src *Buffer, dst serry.DeviceID) (*Buffer, error) {
	return e.copyTo(ctx, src, dst, Normal)
}

func (e *Engine) copyTo(ctx context.Context, src *Buffer, dst serry.DeviceID, c Class) (*Buffer, error) {
	if task, ok := e.owner(dst); !ok || task != e.life.Task {
		return nil, invalid("device %d is not of this process", dst)
	}
	use, err := src.Use(ctx)
	if err != nil {
		return nil, err
	}
	defer use.Drop()
	from := use.Memory()
	m, err := e.alloc(dst, from.Len())
	if err != nil {
		return nil, fmt.Errorf("%w: memory for %v: %w", ErrLimit, src.Spec(), err)
	}
	onDevice := from.Space() == memory.Device
	if onDevice != (m.Region.Space() == memory.Device) || onDevice && src.Device() != dst {
		return nil, fmt.Errorf("a copy from %v memory of device %d to %v memory of device %d: %w", from.Space(), src.Device(), m.Region.Space(), dst, ErrUnsupported)
	}
	b, err := e.pool.Buffer(src.Spec(), m)
	if err != nil {
		return nil, err
	}
	promise, copied := e.pool.Event()
	use.Convert(copied)
	b.Define(copied)
	src.Definition().After(func(err error) {
		switch {
		case err == nil && onDevice:
			promise.Bind(e.copyInside(dst, c, m.Region, from))
			return
		case err == nil:
			copy(m.Region.Bytes(), from.Bytes())
		}
		promise.Set(err)
	})
	return b, nil
}

// copyInside copies memory of a device. Such copies have priorities: only those of the bulk class give way (TR-STR-5).
func (e *Engine) copyInside(d serry.DeviceID, c Class, to, from memory.Region) *Event {
	s, err := e.stagerOf(d)
	if err != nil {
		return e.pool.Error(err)
	}
	s.submit.Lock()
	defer s.submit.Unlock()
	q := s.inside
	if c == Bulk {
		q = s.insideBulk
	}
	return s.recorder.Record(q, q.Copy(to, from))
}
