package transfer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/plant"
	"github.com/serry-dev/serry/link"
	"github.com/serry-dev/serry/memory"
	"github.com/serry-dev/serry/transfer/internal/match"
)

const (
	// pieceBytes is how transfers are cut. A piece is what is sent again if a link breaks while it moves. Both sides cut at
	// its multiples, so it is the same for all processes.
	pieceBytes = 4 << 20

	// windowPieces is how many pieces of one transfer move at a time.
	windowPieces = 8

	// carriedBytes is how large data can be that travel in the offer of their transfer.
	carriedBytes = 8 << 10
)

// An operation is a half of a transfer, from the call of the program to its end. After the call it belongs to the goroutine
// of its peer.
type operation struct {
	match.Op
	op       Op
	peer     *peer
	group    *Group // or nil: an answer to a pull
	send     bool
	ref      match.Ref
	number   match.Number // once it is known
	posted   match.Time
	entered  bool       // the machine was given it
	admitted match.Time // when
	starts   int        // how often bytes began to move
	began    match.Time // when they did first
	waiting  bool       // in the backlog of its peer
	buffer   *Buffer
	memory   memory.Region
	promise  *Promise
	event    *Event
	failure  error          // why it can never be ready, or nil
	before   *Event         // that the sends before it have ended, if they keep their order, or nil
	request  *request       // of a receive: what the producer is asked for, or nil
	defined  bool           // of a send: its data are there
	mover    *mover         // or nil: bytes that the link moves
	copying  *copying       // or nil: bytes that are copied from the memory of the sender
	staged   *staged        // or nil: bytes that move between the link and a device
	stager   *stager        // of the device that the memory is of, or nil
	credits  []int64        // of a send from a device: offsets of pieces that the receiver has memory for, before the send moves
	damaged  map[int64]bool // of a receive: offsets of pieces that came damaged, or nil
	copies   int            // of the device that use the memory
	park     Queue          // of a send: where its first chunk waits on the device for its data, or nil
	data     *Event         // of a send with a park: what that is
	ending   *match.End     // or nil: how it has ended, which is told when the device does not use its memory any more
	path     Path           // by which bytes moved last
	moved    atomic.Int64   // bytes; the goroutine of the peer writes it
	reported bool           // that it waits was logged
	told     bool           // the program was told how it ended

	offered *Offered // that the memory of a send is of, or nil
	packing *packing // of a half whose bytes do not lie in a row, or nil

	// reading ends when nothing outside of this package uses the memory any more, which may be after the event of the half: a peer
	// that reads the memory of a send (TR-CAN-7), or a device that copies. It is nil where there is neither.
	reading *Promise
}

// take takes what the half needs in this process: its event, and a hold on its memory.
func (o *operation) take(ctx context.Context, e *Engine) error {
	o.promise, o.event = e.pool.ownEvent()
	err := o.takeBuffer(ctx, e)
	if err != nil {
		o.drop(err)
	}
	return err
}

func (o *operation) takeBuffer(ctx context.Context, e *Engine) error {
	b := o.op.Buffer
	switch {
	case b == nil && !o.op.View.Whole():
		return invalid("a view without a buffer")
	case b == nil && o.send:
		return invalid("a send without a buffer")
	case b == nil:
		return o.allocate(e)
	}
	o.buffer = b
	use, err := b.Use(ctx)
	if err != nil {
		return err
	}
	o.memory = use.Memory()
	if o.memory.Space() == memory.Device {
		if b.Device() != o.local() { // another device cannot reach it (TR-PRE-7)
			use.Drop()
			return invalid("memory of device %d in a transfer of device %d", b.Device(), o.local())
		}
		if o.stager, err = e.stagerOf(b.Device()); err != nil {
			use.Drop()
			return err
		}
	}
	if !o.op.View.Whole() {
		var read *Event
		o.packing = &packing{view: o.op.View}
		o.packing.used, read = e.pool.ownEvent()
		use.Convert(e.pool.Join(read, o.event))
		if err := o.checkView(); err != nil {
			return err
		}
	} else if o.stager != nil || o.send && o.memory.Space() == memory.Shared {
		var read *Event
		o.reading, read = e.pool.ownEvent()
		use.Convert(read)
	} else {
		use.Convert(o.event)
	}
	if o.send {
		return nil
	}
	return b.Define(o.event)
}

// allocate makes the buffer of a receive. If there is no memory the transfer fails, and no other does (TR-RCV-9).
func (o *operation) allocate(e *Engine) error {
	size, err := o.op.Spec.Bytes()
	if err != nil {
		return err
	}
	m, err := e.alloc(o.op.Dst, size)
	if err == nil && m.Region.Space() == memory.Device {
		o.stager, err = e.stagerOf(o.op.Dst)
	}
	if err != nil {
		o.failure = fmt.Errorf("%w: memory for %v: %w", ErrLimit, o.op.Spec, err)
	}
	o.memory = m.Region
	o.buffer = &Buffer{pool: e.pool, spec: o.op.Spec, memory: m, definition: o.event}
	if o.stager != nil {
		var read *Event
		o.reading, read = e.pool.ownEvent()
		o.buffer.mu.usages = []*Event{read}
	}
	return nil
}

// drop ends an operation whose group does not begin. Memory that the engine took for it is given back: the program never had it.
func (o *operation) drop(err error) {
	o.promise.Set(err)
	o.release()
	if o.op.Buffer == nil && o.buffer != nil {
		o.buffer.Delete()
	}
}

// release lets the memory be used again: neither a peer nor a device uses it.
func (o *operation) release() {
	if o.reading != nil {
		o.reading.Set(nil)
	}
	if o.packing != nil {
		o.packing.end()
	}
}

// keep has the memory never be given back: a peer or a device may use it at any time, and this process will not hear when it
// has done with it.
func (o *operation) keep() {
	if o.reading != nil {
		o.reading.retire()
	}
	if o.offered != nil {
		o.offered.promise.retire()
	}
}

// ready is what the half waits for before anything moves.
func (o *operation) ready() *Event {
	if o.failure != nil {
		return o.peer.engine.pool.Error(o.failure)
	}
	waits := o.op.After
	switch {
	case !o.send:
	case len(waits) == 0 && o.before == nil:
		return o.buffer.Definition()
	default:
		waits = append([]*Event{o.buffer.Definition()}, waits...)
	}
	if o.before != nil {
		waits = append(slices.Clone(waits), o.before)
	}
	return o.peer.engine.pool.Join(waits...)
}

// prepared hears that what the half waited for has ended.
func (o *operation) prepared(err error) {
	if err == nil {
		o.defined = true
		o.unpark()
		o.peer.announce(o)
		if o.staged != nil {
			o.staged.dataCame()
		}
		return
	}
	o.failure = err
	o.peer.machine.Fail(o.peer.now(), o.ref, o.refusal(err))
}

// refusal is what the other side is told of an error here. One that came from another process is told on as it came, so that
// it survives any number of hops (TR-ERR-1).
func (o *operation) refusal(err error) match.Verdict {
	if e, ok := errors.AsType[*Error](err); ok {
		return match.Verdict{Code: e.code, Text: e.Text}
	}
	text := fmt.Sprintf("device %d: %v", o.local(), err)
	return match.Verdict{Code: codeOf(err), Text: text[:min(len(text), match.MaxText)]}
}

// local is the device of this process.
func (o *operation) local() serry.DeviceID {
	if o.send {
		return o.op.Src
	}
	return o.op.Dst
}

// error is what the program is told about a verdict.
func (o *operation) error(v match.Verdict) error {
	if v.Code == match.OK {
		return nil
	}
	if o.failure != nil && v.Code == o.refusal(o.failure).Code {
		return o.failure // unchanged (TR-OBJ-3)
	}
	return &Error{
		Send: o.send, Key: o.op.Key, Src: o.op.Src, Dst: o.op.Dst, Peer: o.peer.life, Done: o.moved.Load(), Bytes: o.Shape.Bytes, Path: o.path,
		Elapsed: o.peer.now() - o.posted, Text: v.Text, Unconfirmed: v.Unconfirmed, Err: sentinelOf(v.Code), code: v.Code,
	}
}

// finish tells the program that the transfer has ended on this side, once.
func (o *operation) finish(err error) {
	if o.told {
		return
	}
	o.told = true
	if o.send && o.path == "" && o.Place.Known() {
		o.path = ByMemory
	}
	if err == nil {
		o.moved.Store(o.Shape.Bytes)
	}
	r := Record{
		Send: o.send, Key: o.op.Key, Src: o.op.Src, Dst: o.op.Dst, Peer: o.peer.life, Bytes: o.Shape.Bytes,
		Path: o.path, Err: err, ref: o.ref,
	}
	o.times(&r)
	o.peer.engine.record(r)
	o.trace(traceEnd)
	o.promise.Set(err)
	if o.group != nil {
		o.group.ended(err)
	}
}

// A mover has bytes of one half that the link moves, or will.
type mover struct {
	op     *operation
	link   *link.Link
	class  link.Class
	left   match.Ranges // that the link was not given
	pieces []*piece     // that it was
	over   bool         // what happens to pieces does not matter any more
	queued bool         // of a receive: it waits in the intake for its turn
	early  bool         // of a receive: the sender does not have the data yet
	broken bool         // the link has failed a piece
}

// A piece is bytes that are one message of the link.
type piece struct {
	match.Range
	ticket *link.Ticket
}

// header names a piece.
func (m *mover) header(r match.Range) link.Header {
	return link.Header{Family: link.Transfer, Type: link.TransferData, Class: m.class, Stream: uint64(m.op.number), Offset: uint64(r.From)}
}

// cut takes the next piece. Ranges are cut at multiples of the size of pieces, so both sides cut the same ranges alike.
func (m *mover) cut() match.Range {
	r := &m.left[0]
	p := match.Range{From: r.From, To: min(r.To, (r.From/pieceBytes+1)*pieceBytes)}
	if r.From = p.To; r.From == r.To {
		m.left = m.left[1:]
	}
	return p
}

// give gives the next piece to the link, by Post or by Expect. A link that is down takes none: that it is will be heard of.
func (m *mover) give(to func(link.Header, ...[]byte) (*link.Ticket, error)) int64 {
	p := &piece{Range: m.cut()}
	var err error
	p.ticket, err = to(m.header(p.Range), m.op.memory.Slice(p.From, p.To).Bytes())
	if err != nil {
		m.op.refused(err)
		return 0
	}
	m.pieces = append(m.pieces, p)
	p.ticket.Then(func() { m.op.peer.do(func() { m.ended(p) }) })
	return p.To - p.From
}

// carries says whether messages can carry the data of the half: those of a send are few, and those of a receive can be written
// at once.
func (o *operation) carries() bool {
	return o.stager == nil && o.failure == nil && (!o.send || o.Shape.Bytes > 0 && o.Shape.Bytes <= carriedBytes)
}

// carried writes the data of a receive that came with an offer.
func (o *operation) carried(data []byte) {
	o.begin()
	o.path = ByLink
	o.moved.Store(int64(copy(o.memory.Bytes(), data)))
}

// refused hears that the link does not take a piece, although it is up.
func (o *operation) refused(err error) {
	if o.peer.link != nil && o.peer.link.Err() == nil {
		o.peer.machine.Cancel(o.peer.now(), o.ref, match.Verdict{Code: match.Internal, Text: err.Error()})
	}
}

// move begins to send ranges.
func (o *operation) move(l *link.Link, n match.Number, ranges match.Ranges) {
	o.begin()
	if o.stager != nil {
		o.stage(l, o.op.Class, n, ranges, false)
		return
	}
	o.number, o.path = n, ByLink
	o.mover = &mover{op: o, link: l, class: o.op.Class.link(), left: slices.Clone(ranges)}
	o.mover.post()
}

// post posts pieces within the window. Every send has at least one posted, and posts in order: whatever the receiver has
// memory for first, is posted or has left. Else two windows could wait for each other.
func (m *mover) post() {
	for len(m.left) > 0 && len(m.pieces) < windowPieces {
		m.give(m.link.Post)
	}
}

// expect begins to take ranges.
func (o *operation) expect(l *link.Link, a match.Expect) {
	o.begin()
	o.number = a.Number
	if o.stager != nil {
		o.expectStaged(l, a)
		return
	}
	if a.Place.Known() {
		if s, data, ok := o.peer.borrowedAt(a.Place, o.Shape.Bytes); ok {
			o.path = ByMemory
			o.copying = o.peer.engine.copier.begin(o, link.Class(a.Class), s, data, a.Ranges)
			return
		}
		o.peer.machine.Unreadable(o.peer.now(), o.ref)
	}
	o.path = ByLink
	o.peer.setKnown(a.Number, true)
	o.mover = &mover{op: o, link: l, class: link.Class(a.Class), left: slices.Clone(a.Ranges), early: a.Early}
	o.peer.intake.add(o.mover)
	o.peer.intake.grant()
}

// copied hears that a piece was copied from the memory of the sender.
func (o *operation) copied(x *copying, r match.Range, err error) {
	if o.copying != x {
		return
	}
	if err != nil {
		o.peer.machine.Fail(o.peer.now(), o.ref, o.refusal(err))
		return
	}
	if o.moved.Add(r.To-r.From) == o.Shape.Bytes {
		o.copying = nil
	}
	o.peer.machine.Arrived(o.peer.now(), o.ref, r)
}

// uncopy ends the copying from the memory of the sender.
func (o *operation) uncopy() {
	if o.copying != nil {
		o.copying.halt()
		o.copying = nil
	}
}

// ended hears that the link is done with a piece.
func (m *mover) ended(p *piece) {
	if m.over {
		return
	}
	o := m.op
	m.remove(p)
	err := p.ticket.Err()
	if !o.send {
		o.peer.intake.freed(p)
	}
	switch {
	case errors.Is(err, link.ErrSize):
		o.refused(err)
	case err != nil: // the link is down, which will be heard of
		m.broken = true
		o.checkDamage(p.Range, err)
	case o.send:
		o.sentPiece(p)
	default:
		m.early = false
		o.moved.Add(p.To - p.From)
		o.peer.machine.Arrived(o.peer.now(), o.ref, p.Range)
	}
	if !o.send {
		o.peer.intake.add(m)
		o.peer.intake.grant()
	}
}

func (o *operation) sentPiece(p *piece) {
	m := o.mover
	o.moved.Add(p.To - p.From)
	if m.post(); len(m.left)+len(m.pieces) == 0 {
		m.over = true
		o.mover = nil
		o.peer.machine.Sent(o.peer.now(), o.ref)
	}
}

func (m *mover) remove(p *piece) {
	for i, q := range m.pieces {
		if q == p {
			m.pieces = append(m.pieces[:i], m.pieces[i+1:]...)
			return
		}
	}
}

// halt takes all pieces back from the link, and calls f for those that were complete. It says whether all are. When it returns, no
// memory of the half is used.
func (m *mover) halt(f func(*piece)) (all bool) {
	m.over = true
	all = len(m.left) == 0 && !m.broken
	if m.op.peer.engine.opt.Planted.Has(plant.LooseMemory) {
		m.pieces = nil
	}
	for _, p := range m.pieces {
		p.ticket.Cancel(ErrCancelled)
		if !m.op.send {
			m.op.peer.intake.freed(p)
		}
		if err := p.ticket.Err(); err != nil {
			all = false
			m.op.checkDamage(p.Range, err)
		} else {
			f(p)
		}
	}
	m.pieces = nil
	m.op.mover = nil
	return all
}

// checkDamage looks at why a piece of a receive has failed. Bytes that came damaged are sent again by the next link; if they come
// damaged once more, the transfer ends (TR-ERR-8).
func (o *operation) checkDamage(r match.Range, err error) {
	switch {
	case o.send || !errors.Is(err, link.ErrDamaged):
	case o.damaged[r.From]:
		text := fmt.Sprintf("bytes %d to %d came with a wrong checksum twice", r.From, r.To)
		o.peer.machine.Fail(o.peer.now(), o.ref, match.Verdict{Code: match.DataLoss, Text: text})
	default:
		if o.damaged == nil {
			o.damaged = make(map[int64]bool)
		}
		o.damaged[r.From] = true
	}
}

// stop ends the movement of bytes because the transfer ends.
func (o *operation) stop() {
	sent := true
	o.uncopy()
	if o.staged != nil {
		sent = o.staged.halt()
	}
	if o.mover != nil {
		sent = o.mover.halt(func(p *piece) { o.moved.Add(p.To - p.From) })
	}
	o.peer.machine.Stopped(o.peer.now(), o.ref, o.send && sent)
	o.peer.intake.grant()
}

// suspend ends the movement of bytes because contact is lost. What is complete counts.
func (o *operation) suspend() {
	o.uncopy()
	o.credits = nil
	if o.staged != nil && o.staged.halt() && o.send {
		o.peer.machine.Sent(o.peer.now(), o.ref)
	}
	m := o.mover
	if m == nil {
		return
	}
	all := m.halt(func(p *piece) {
		o.moved.Add(p.To - p.From)
		if !o.send {
			o.peer.machine.Arrived(o.peer.now(), o.ref, p.Range)
		}
	})
	if o.send && all {
		o.peer.machine.Sent(o.peer.now(), o.ref)
	}
}
