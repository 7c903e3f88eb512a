package transfer

import (
	"errors"
	"fmt"
	"slices"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/link"
	"github.com/serry-dev/serry/memory"
	"github.com/serry-dev/serry/transfer/internal/match"
)

// A staged moves bytes of one half between the link and the memory of a device, by way of pinned memory: piece by piece, so that
// copies of the device and those of the link overlap.
//
// Pinned memory is scarce, and given out so that no two processes can wait for each other. The receiver takes a slot, and tells
// the sender that it has memory for a piece. Only then the sender takes a slot, so what it has in slots always leaves. The two
// directions of a device have slots of their own.
type staged struct {
	op     *operation
	link   *link.Link
	class  Class
	left   match.Ranges // that nothing was begun for
	pieces []*stagedPiece
	over   bool // what happens to pieces does not matter any more
	early  bool // of a receive: the sender does not have the data yet
}

// A stagedPiece is in one of three states: it waits for a slot, the device copies it, or the link has it. One of a send may have been
// copied before the data were known to be good: it then waits for that.
type stagedPiece struct {
	match.Range
	wait   *slotWait
	slot   memory.Region // or empty
	copy   *stageCopy    // or nil
	ticket *link.Ticket  // or nil
}

// stagerOf is the stager of a device.
func (e *Engine) stagerOf(d serry.DeviceID) (*stager, error) {
	device := e.opt.Devices[d]
	if device == nil {
		return nil, fmt.Errorf("memory of device %d: %w: the engine was given no driver for it", d, ErrUnsupported)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if s := e.mu.stagers[d]; s != nil {
		return s, nil
	}
	s, err := newStager(e.pool, device)
	if err == nil {
		e.mu.stagers[d] = s
	}
	return s, err
}

// track is that of the direction in which the half moves.
func (x *staged) track() *track {
	if x.op.send {
		return &x.op.stager.down
	}
	return &x.op.stager.up
}

// stage begins to move ranges of a half whose memory is that of a device.
func (o *operation) stage(l *link.Link, c Class, n match.Number, ranges match.Ranges, early bool) {
	o.number, o.path = n, ByStaging
	o.staged = &staged{op: o, link: l, class: c, left: slices.Clone(ranges), early: early}
	if !o.send {
		o.staged.more()
		return
	}
	o.staged.takeCredits()
	if o.defined {
		o.staged.postSmall()
	}
}

// expectStaged begins to take ranges into memory of a device. What the device could read of the memory of the sender, it takes
// from the link all the same.
func (o *operation) expectStaged(l *link.Link, a match.Expect) {
	if a.Place.Known() {
		o.peer.machine.Unreadable(o.peer.now(), o.ref)
	}
	o.peer.setKnown(a.Number, true)
	o.stage(l, classOf(link.Class(a.Class)), a.Number, a.Ranges, a.Early)
}

// more begins pieces of a receive within its window.
func (x *staged) more() {
	for len(x.left) > 0 && len(x.pieces) < windowOf(x.early) {
		x.begin(cutRange(&x.left))
	}
}

// credited hears that the receiver has memory for the piece at an offset. While the data are not there, one piece is begun.
func (x *staged) credited(offset int64) {
	if !x.op.defined && (len(x.pieces) > 0 || x.op.park == nil) {
		x.op.keepCredit(offset)
		return
	}
	if r, ok := takeAt(&x.left, offset); ok {
		x.begin(r)
	}
}

// postSmall begins the pieces of a send that are so small that the link does not wait for memory of the receiver.
func (x *staged) postSmall() {
	for _, r := range slices.Clone(x.left) {
		for from := r.From; from < r.To; from = min(r.To, (from/pieceBytes+1)*pieceBytes) {
			if min(r.To, (from/pieceBytes+1)*pieceBytes)-from <= link.SmallBytes {
				x.credited(from)
			}
		}
	}
}

// begin takes a slot for a piece.
func (x *staged) begin(r match.Range) {
	p := &stagedPiece{Range: r}
	x.pieces = append(x.pieces, p)
	peer := x.op.peer
	p.wait = x.track().acquire(x.class, func(slot memory.Region, err error) {
		peer.do(func() { x.slotted(p, slot, err) })
	})
}

// slotted hears that a piece has its slot.
func (x *staged) slotted(p *stagedPiece, slot memory.Region, err error) {
	switch {
	case err != nil:
		x.fail(p, fmt.Errorf("%w: %w", ErrLimit, err))
		return
	case x.over:
		x.track().release(slot)
		return
	}
	p.wait, p.slot = nil, slot
	if x.op.send {
		x.copy(p)
		return
	}
	x.hand(p, x.link.Expect, slot.Slice(0, p.To-p.From).Bytes())
	x.op.peer.machine.Started(x.op.peer.now(), x.op.ref)
}

// copy has the device copy a piece: from its memory into the slot for a send, and the other way for a receive.
func (x *staged) copy(p *stagedPiece) {
	o := x.op
	to, from := p.slot.Slice(0, p.To-p.From), o.memory.Slice(p.From, p.To)
	if !o.send {
		to, from = from, to
	}
	o.copies++
	done := func(err error) { o.peer.do(func() { x.copied(p, err) }) }
	if o.send && !o.defined {
		p.copy = x.track().copyBehind(o.takePark(), o.data, x.class, to, from, done)
		return
	}
	p.copy = x.track().copy(x.class, to, from, done)
}

// copied hears that the device does not use the memory of a piece any more.
func (x *staged) copied(p *stagedPiece, err error) {
	o := x.op
	p.copy = nil
	o.copies--
	switch {
	case x.over:
		x.release(p)
		o.peer.settle(o)
	case err != nil:
		x.fail(p, err)
	case o.send && !o.defined: // dataCame goes on with it
	case o.send:
		x.post(p)
	default:
		x.early = false
		x.remove(p)
		o.moved.Add(p.To - p.From)
		o.peer.machine.Arrived(o.peer.now(), o.ref, p.Range)
		x.more()
	}
}

// post gives a piece to the link. A small one may wait there for long: it leaves its slot.
func (x *staged) post(p *stagedPiece) {
	bytes := p.slot.Slice(0, p.To-p.From).Bytes()
	if len(bytes) <= link.SmallBytes {
		bytes = slices.Clone(bytes)
		x.release(p)
	}
	x.hand(p, x.link.Post, bytes)
}

// hand gives the bytes of a piece to the link.
func (x *staged) hand(p *stagedPiece, to func(link.Header, ...[]byte) (*link.Ticket, error), bytes []byte) {
	class := x.class.link()
	h := link.Header{Family: link.Transfer, Type: link.TransferData, Class: class, Stream: uint64(x.op.number), Offset: uint64(p.From)}
	ticket, err := to(h, bytes)
	if err != nil {
		x.release(p)
		x.op.refused(err) // a link that is down: that will be heard of
		return
	}
	p.ticket = ticket
	ticket.Then(func() { x.op.peer.do(func() { x.handed(p) }) })
}

// handed hears that the link is done with a piece.
func (x *staged) handed(p *stagedPiece) {
	if x.over {
		return
	}
	o, err := x.op, p.ticket.Err()
	p.ticket = nil
	switch {
	case errors.Is(err, link.ErrSize):
		o.refused(err)
	case err != nil: // the link is down, which will be heard of
		x.release(p)
		o.checkDamage(p.Range, err)
	case !o.send:
		x.copy(p)
	default:
		x.remove(p)
		o.moved.Add(p.To - p.From)
		if len(x.left)+len(x.pieces) == 0 {
			x.over, o.staged = true, nil
			o.peer.machine.Sent(o.peer.now(), o.ref)
		}
	}
}

// fail ends the transfer because a piece cannot be copied.
func (x *staged) fail(p *stagedPiece, err error) {
	x.remove(p)
	if !x.over {
		x.op.failure = err
		x.op.peer.machine.Fail(x.op.peer.now(), x.op.ref, x.op.refusal(err))
	}
}

// remove takes a piece out, and gives its slot back.
func (x *staged) remove(p *stagedPiece) {
	x.pieces = slices.DeleteFunc(x.pieces, func(q *stagedPiece) bool { return q == p })
	x.release(p)
}

// release gives the slot of a piece back.
func (x *staged) release(p *stagedPiece) {
	if p.slot.Len() > 0 {
		x.track().release(p.slot)
		p.slot = memory.Region{}
	}
}

// halt ends the movement of bytes. The link uses no memory when it returns. The device may: operation.copies counts what it still
// copies. It says whether all bytes of a send have left.
func (x *staged) halt() (all bool) {
	x.over = true
	all = len(x.left) == 0
	for _, p := range x.pieces {
		sent := false
		switch {
		case p.wait != nil:
			x.track().drop(p.wait)
		case p.copy != nil:
			p.copy.cancel(ErrCancelled)
			all = false
			continue // its slot is given back when the device has done with it
		case p.ticket != nil:
			p.ticket.Cancel(ErrCancelled)
			sent = p.ticket.Err() == nil
			x.op.checkDamage(p.Range, p.ticket.Err())
		}
		all = all && sent
		x.release(p)
	}
	x.pieces = nil
	x.op.staged = nil
	return all
}

// cutRange takes the first piece out of ranges.
func cutRange(left *match.Ranges) match.Range {
	r, _ := takeAt(left, (*left)[0].From)
	return r
}

// takeAt takes the piece at an offset out of ranges, and is false if none begins there. Ranges are cut at multiples of the size
// of pieces, so both sides cut the same ranges alike.
func takeAt(left *match.Ranges, offset int64) (match.Range, bool) {
	for i, r := range *left {
		if offset < r.From || offset >= r.To || offset != r.From && offset%pieceBytes != 0 {
			continue
		}
		piece := match.Range{From: offset, To: min(r.To, (offset/pieceBytes+1)*pieceBytes)}
		var rest match.Ranges
		for _, part := range []match.Range{{From: r.From, To: piece.From}, {From: piece.To, To: r.To}} {
			if part.From < part.To {
				rest = append(rest, part)
			}
		}
		*left = slices.Replace(*left, i, i+1, rest...)
		return piece, true
	}
	return match.Range{}, false
}
