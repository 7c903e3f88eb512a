package collective

import (
	"context"

	"github.com/serry-dev/serry/internal/kernel"
	"github.com/serry-dev/serry/internal/schedule"
	"github.com/serry-dev/serry/memory"
)

const (
	tileBytes = 512 << 10 // blocks are worked on in tiles of about this size
	maxTiles  = 256
)

// An engine plays the schedule of one rank in one operation.
//
// A schedule combines elements of the same place only. So the engine cuts every block into as many tiles, and plays
// the schedule once for each tile: the first tile of all blocks, the second tile of all blocks, and so on. These
// games share no memory, and a tile that has ended a round begins the next one while the tiles behind it are still
// on their way. That is the pipeline: the link moves one tile while the processor reduces another.
//
// Within one tile the engine keeps to the rounds: it posts the sends and receives of a round when the round before
// is over.
type engine struct {
	op     *operation
	plan   *plan
	call   *call
	bounds []int64 // where each block begins in the vector, and where the last one ends
	tiles  int64

	scratch []byte
	slots   []int64 // where each slot begins in scratch
	strides []int64 // how much of a slot each tile has

	flights [][]flight // of each tile: the messages of its present round
	segs    [][]byte   // reused
}

// A flight is a message that has been posted.
type flight struct {
	ticket  ticket
	rank    int // at the other end
	receive bool
}

// A ticket is a message under way; *link.Ticket is one.
type ticket interface {
	Wait(ctx context.Context) error
	Over() bool // Wait would not wait
	Cancel(cause error)
}

// prepare prepares an operation. The memory of the engine is used again.
func (e *engine) prepare(op *operation, p *plan, k *call) {
	e.op, e.plan, e.call = op, p, k
	e.bounds = resized(e.bounds, p.Blocks+1)
	e.bounds[0] = 0
	longest := int64(0)
	for b := range p.Blocks {
		n := k.atom * (k.total/k.atom*int64(b+1)/int64(p.Blocks) - k.total/k.atom*int64(b)/int64(p.Blocks))
		if k.sizes != nil {
			n = k.sizes[b]
		}
		e.bounds[b+1] = e.bounds[b] + n
		longest = max(longest, n)
	}
	e.tiles = min(max((longest+tileBytes-1)/tileBytes, 1), maxTiles)
	e.flights = resized(e.flights, int(e.tiles))
	e.layScratch()
}

// resized is a slice of n elements, with any contents, in the same memory if there is enough.
func resized[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}

// layScratch lays out the scratch memory. Each tile has its own part of a slot, since tiles are in different rounds
// at the same time, and blocks differ in size.
func (e *engine) layScratch() {
	size := int64(0)
	e.slots, e.strides = resized(e.slots, len(e.plan.slots)), resized(e.strides, len(e.plan.slots))
	clear(e.strides)
	for i, spans := range e.plan.slots {
		for _, s := range spans {
			n := e.bounds[s[1]] - e.bounds[s[0]]
			if e.tiles > 1 {
				n = n/e.tiles + int64(s[1]-s[0]+1)*e.call.atom
			}
			e.strides[i] = max(e.strides[i], n)
		}
		const align = 64
		e.strides[i] = (e.strides[i] + align - 1) / align * align
		e.slots[i] = size
		size += e.strides[i] * e.tiles
	}
	e.scratch = e.op.comm.group.scratch.take(size)
}

// run plays all rounds. When it returns, no memory of the operation is used any more.
func (e *engine) run(ctx context.Context) error {
	defer func() { e.op.comm.group.scratch.put(e.scratch) }()
	err := e.play(ctx)
	if err != nil {
		e.cancel(err)
	}
	return err
}

func (e *engine) play(ctx context.Context) error {
	rounds := e.plan.Rounds
	for t := range e.tiles {
		if err := e.post(ctx, 0, t); err != nil {
			return err
		}
	}
	for k := range rounds {
		for t := range e.tiles {
			if err := e.await(ctx, t); err != nil {
				return err
			}
			if err := e.work(&rounds[k], t); err != nil {
				return err
			}
			if err := e.post(ctx, k+1, t); err != nil {
				return err
			}
		}
	}
	return nil
}

// post posts the messages of a round for one tile, memory for those to come first.
func (e *engine) post(ctx context.Context, k int, t int64) error {
	if k >= len(e.plan.Rounds) {
		return nil
	}
	r := &e.plan.Rounds[k]
	for i := range r.Recvs {
		if err := e.move(ctx, &r.Recvs[i], e.plan.recvs[k][i], t, true); err != nil {
			return err
		}
	}
	for i := range r.Sends {
		if err := e.move(ctx, &r.Sends[i], e.plan.sends[k][i], t, false); err != nil {
			return err
		}
	}
	return nil
}

// move posts one message. Messages without bytes are not sent (CL-ALG-4), but those of a barrier, which has no others.
func (e *engine) move(ctx context.Context, m *schedule.Move, number uint16, t int64, receive bool) error {
	e.segs = e.segs[:0]
	for _, p := range m.Parts {
		e.segs = e.appendSegs(e.segs, p, t)
	}
	return e.moveSegs(ctx, m.Peer, number, t, e.segs, receive)
}

// moveSegs posts a message of these bytes.
func (e *engine) moveSegs(ctx context.Context, peer int, number uint16, t int64, segs [][]byte, receive bool) error {
	bytes := size(segs)
	if len(segs) > 0 && bytes == 0 {
		return nil
	}
	msg := message{op: e.op, peer: peer, number: number, tile: uint32(t)}
	ticket, err := e.op.comm.clique.post(ctx, msg, segs, receive)
	if err != nil || ticket == nil {
		return err
	}
	e.op.waitFor(peer)
	e.op.moved(peer, bytes, receive)
	e.flights[t] = append(e.flights[t], flight{ticket, peer, receive})
	return nil
}

// await waits until the messages of a tile have ended.
//
// The clique sets its cause before it cancels the messages of its stream. So a message that was posted too late to
// be cancelled is found here, before it is waited for.
func (e *engine) await(ctx context.Context, t int64) error {
	if cause := e.op.comm.clique.failed.Load(); cause != nil {
		return cause
	}
	for i := range e.flights[t] {
		f := &e.flights[t][i]
		if err := e.op.wait(ctx, f); err != nil {
			return &moveError{rank: f.rank, err: err}
		}
		e.op.waited(f.rank)
		f.ticket = nil
	}
	e.flights[t] = e.flights[t][:0]
	return nil
}

// cancel gives all messages up. When it returns, no link touches the memory of the operation.
func (e *engine) cancel(cause error) {
	for _, list := range e.flights {
		for _, f := range list {
			if f.ticket != nil {
				f.ticket.Cancel(cause)
			}
		}
	}
}

// work does the work of a round for one tile.
func (e *engine) work(r *schedule.Round, t int64) error {
	for i := range r.Work {
		w := &r.Work[i]
		if e.tiles == 1 {
			if err := e.combine(w, w.Into.Lo, w.Into.Hi, t); err != nil {
				return err
			}
			continue
		}
		for b := w.Into.Lo; b < w.Into.Hi; b++ {
			if err := e.combine(w, b, b+1, t); err != nil {
				return err
			}
		}
	}
	return nil
}

// combine reduces or copies one tile of the blocks [lo, hi) of a work.
func (e *engine) combine(w *schedule.Work, lo, hi int, t int64) error {
	into := e.bytes(w.Into, lo, hi, t)
	e.segs = e.segs[:0]
	for _, from := range w.From {
		shift := from.Lo - w.Into.Lo
		e.segs = append(e.segs, e.bytes(from, lo+shift, hi+shift, t))
	}
	switch len(e.segs) {
	case 0:
		clear(into)
		return nil
	case 1:
		copy(into, e.segs[0])
		return nil
	}
	return kernel.Reduce(e.call.kernel(), memory.DType(e.call.dtype), into, e.segs...)
}

// appendSegs adds the memory of a tile of a part.
func (e *engine) appendSegs(segs [][]byte, p schedule.Part, t int64) [][]byte {
	if e.tiles == 1 {
		return append(segs, e.bytes(p, p.Lo, p.Hi, t))
	}
	for b := p.Lo; b < p.Hi; b++ {
		segs = append(segs, e.bytes(p, b, b+1, t))
	}
	return segs
}

// bytes is a tile of the blocks [lo, hi) of a part: of one block, unless there is only one tile.
func (e *engine) bytes(p schedule.Part, lo, hi int, t int64) []byte {
	from, to := e.bounds[lo], e.bounds[hi]
	if e.tiles > 1 {
		from, to = e.tile(lo, t)
	}
	switch p.Buf {
	case schedule.In:
		return e.call.in[from-e.call.inOrigin : to-e.call.inOrigin]
	case schedule.Out:
		return e.call.out[from-e.call.outOrigin : to-e.call.outOrigin]
	}
	at := e.slots[p.Slot] + t*e.strides[p.Slot]
	if e.tiles == 1 {
		at += from - e.bounds[p.Base]
	}
	for b := p.Base; b < lo && e.tiles > 1; b++ {
		lo, hi := e.tile(b, t)
		at += hi - lo
	}
	return e.scratch[at : at+to-from]
}

// tile is the range of a tile of a block in the vector.
func (e *engine) tile(b int, t int64) (from, to int64) {
	start, atoms := e.bounds[b], (e.bounds[b+1]-e.bounds[b])/e.call.atom
	return start + atoms*t/e.tiles*e.call.atom, start + atoms*(t+1)/e.tiles*e.call.atom
}
