package transfer_test

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/memory"
	"github.com/serry-dev/serry/transfer"
)

// What a storm must not show:
//
//   - a send that ended well, and whose receive has not, or has other content;
//   - memory that is written after the end of its receive, or read after it was given back by its send;
//   - a transfer between two lives that does not end well although nothing spoke against it, or does not end at all;
//   - a half that ends later than one detection interval after its deadline;
//   - a send that ended unconfirmed, and is not corrected although there is contact again;
//   - a half that waits for a life that is over;
//   - an engine that does not close, or that leaves promises.

const (
	stormLong  = 30 * time.Minute // a deadline that nothing needs
	stormGrace = 70 * time.Second // until all has ended, when nothing goes wrong any more: the longest pause between two questions is 30 s
	stormSlack = time.Second      // for a device, and for what is under way
)

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
	mate   *half         // or nil: it is never posted

	// Guarded by the lock of the storm.
	owner  *stormLife // or nil: it was not posted
	began  time.Time
	item   transfer.Item
	ended  bool
	err    error
	at     time.Time
	memory []byte // that was written over when it had ended, or nil
}

// The kinds of memory.
const (
	plain = iota
	inArena
	onFake
	fromEngine // of receives
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
	halves := []*half{{send: true, task: from, peer: to, class: transfer.Class(d.IntN(3))}, {task: to, peer: from}}
	at := time.Duration(d.IntN(9000)) * time.Millisecond
	for i, h := range halves {
		h.key, h.size, h.within, h.mate = key, size, stormLong, halves[1-i]
		h.kind = d.IntN(4)
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

// wished says whether the program of a half wanted it to end otherwise than well.
func (h *half) wished() bool { return h.cancel > 0 || h.fails || h.within < stormLong }

// post posts a half, if its task has a process, and waits for its end.
func (s *storm) post(h *half) {
	l := s.present(h.task)
	if l == nil {
		return
	}
	ctx, cancel := context.WithCancelCause(s.ctx)
	if h.within < stormLong {
		var end context.CancelFunc
		ctx, end = context.WithTimeout(ctx, h.within)
		defer end()
	}
	defer cancel(nil)
	op := s.op(l, h)
	s.mu.Lock()
	g, err := l.Transfer(ctx, []transfer.Op{op})
	if err == nil {
		h.owner, h.began, h.item = l, time.Now(), g.Items()[0]
	}
	s.mu.Unlock()
	if err != nil {
		if op.Buffer != nil {
			op.Buffer.Delete()
		}
		return
	}
	if h.cancel > 0 {
		timer := time.AfterFunc(h.cancel, func() { cancel(errStorm) })
		defer timer.Stop()
	}
	<-h.item.Event.Done()
	s.judgeEnd(h)
}

var errStorm = errors.New("not needed any more")

// op makes what a program hands to the engine.
func (s *storm) op(l *stormLife, h *half) transfer.Op {
	op := transfer.Op{Key: transfer.Key{Seq: h.key}, Src: serry.DeviceID(h.task), Dst: serry.DeviceID(h.peer), Spec: bytesSpec(h.size), Class: h.class}
	if !h.send {
		op.Src, op.Dst = op.Dst, op.Src
	}
	if !h.send && h.kind == fromEngine {
		return op
	}
	r := s.region(l, h)
	b, err := l.Pool().Buffer(bytesSpec(h.size), transfer.Memory{Region: r, Device: l.device})
	if err != nil {
		s.wrong("buffer: %v", err)
	}
	op.Buffer = b
	if !h.send {
		return op
	}
	copy(l.bytes(r), fill(h.size, h.key))
	promise, definition := l.Pool().Event()
	if err := b.Define(definition); err != nil {
		s.wrong("Define() = %v", err)
	}
	s.work.Go(func() {
		<-time.After(h.late)
		if h.fails {
			promise.Set(errProducer)
		} else {
			promise.Set(nil)
		}
	})
	return op
}

// region takes memory for a half.
func (s *storm) region(l *stormLife, h *half) memory.Region {
	var r memory.Region
	var err error
	switch {
	case h.kind == inArena && h.size > 0:
		r, err = l.arena.Alloc(int64(h.size))
	case h.kind == onFake && l.fake != nil:
		r, err = l.fake.Alloc(int64(h.size))
	default:
		return memory.Of(make([]byte, h.size))
	}
	if err != nil { // there is none of that kind left
		return memory.Of(make([]byte, h.size))
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

// judgeEnd looks at a half that has just ended, and writes over its memory as soon as the program may.
func (s *storm) judgeEnd(h *half) {
	err := h.item.Event.Err()
	s.mu.Lock()
	h.ended, h.err, h.at = true, err, time.Now()
	late := h.at.Sub(h.began) > h.within+3*time.Second+stormSlack
	mate := h.mate
	received := mate != nil && mate.owner != nil && mate.item.Event.State() == transfer.Complete
	s.mu.Unlock()
	l := h.owner
	if late && !l.over.Load() {
		s.wrong("%v: transfer %d (send: %v) ended %v after it began; its deadline was after %v", l.life, h.key, h.send, h.at.Sub(h.began), h.within)
	}
	if h.send {
		if err == nil && !received {
			s.wrong("%v: the send of transfer %d ended well, its receive did not", l.life, h.key)
		}
		s.reuse(h)
		return
	}
	use, useErr := h.item.Buffer.Use(context.Background())
	if useErr != nil {
		s.wrong("%v: the buffer of transfer %d: %v", l.life, h.key, useErr)
		return
	}
	memory := l.bytes(use.Memory())
	use.Drop()
	if err == nil && !bytes.Equal(memory, fill(h.size, h.key)) {
		s.wrong("%v: transfer %d of %d bytes has other content", l.life, h.key, h.size)
	}
	scribble(memory)
	s.mu.Lock()
	h.memory = memory
	s.mu.Unlock()
}

// scribbled is what a program writes into memory that is its own again.
const scribbled = 0xee

func scribble(memory []byte) {
	for n := copy(memory, []byte{scribbled}); 0 < n && n < len(memory); n *= 2 {
		copy(memory[n:], memory[:n])
	}
}

// reuse writes over the memory of a send, once its new owner may. A receiver that still read it would have other content.
func (s *storm) reuse(h *half) {
	d, err := h.item.Buffer.Donate(context.Background())
	if err != nil {
		s.wrong("%v: the buffer of transfer %d: %v", h.owner.life, h.key, err)
		return
	}
	m, ready := d.Confirm()
	select {
	case <-ready.Done():
		scribble(h.owner.bytes(m.Region))
	case <-s.ctx.Done(): // a peer that was never heard again may read it
	}
}

// settle lets nothing go wrong any more, waits, and looks at what has not ended and what has ended badly.
func (s *storm) settle() {
	s.network.mu.Lock()
	s.network.lag = nil
	s.network.mu.Unlock()
	<-time.After(stormGrace)
	for _, l := range s.lives() {
		s.judgeOpen(l)
	}
	s.mu.Lock()
	halves := s.mu.halves
	s.mu.Unlock()
	for _, h := range halves {
		s.judgeHalf(h)
	}
	s.judgeContact()
}

// judgeOpen looks at the halves of a process that have not ended.
func (s *storm) judgeOpen(l *stormLife) {
	for _, w := range l.Why().Waiting {
		other := s.present(w.Peer.Task.Index)
		if other == nil || other.life != w.Peer {
			s.wrong("%v waits for a life that is over: %v", l.life, w)
			continue
		}
		for _, v := range other.Why().Waiting {
			if v.Key == w.Key && v.Peer == l.life && v.Src == w.Src {
				s.wrong("%v and %v wait for each other: %v; %v", l.life, other.life, w, v)
			}
		}
		for _, r := range other.Records() {
			if r.Key == w.Key && r.Peer == l.life && r.Src == w.Src {
				s.wrong("%v waits, and %v has ended: %v; %+v", l.life, other.life, w, r)
			}
		}
	}
}

// judgeHalf looks at a half some time after nothing went wrong any more.
func (s *storm) judgeHalf(h *half) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := h.mate
	if h.owner == nil || h.owner.over.Load() || !h.ended || h.err == nil || m.owner == nil || m.owner.over.Load() {
		return
	}
	e, ok := errors.AsType[*transfer.Error](h.err)
	if !ok || e.Peer != m.owner.life {
		return // it met no half: the data failed, or its peer was another life
	}
	if !h.wished() && !m.wished() && m.ended && m.err != nil {
		if f, ok := errors.AsType[*transfer.Error](m.err); ok && f.Peer == h.owner.life {
			s.mu.bad = append(s.mu.bad, "transfer "+e.Error()+" failed; nothing spoke against it")
		}
	}
	if !h.send || !e.Unconfirmed || !m.ended {
		return
	}
	for _, r := range h.owner.Records() {
		if r.Send && r.Key.Seq == h.key && (!r.Corrected || (r.Err == nil) != (m.err == nil)) {
			s.mu.bad = append(s.mu.bad, "transfer "+e.Error()+" was not corrected to the verdict of the receiver")
		}
	}
}

// judgeContact has all processes transfer something to each other.
func (s *storm) judgeContact() {
	lives := s.lives()
	for i, from := range lives {
		for j, to := range lives {
			if i == j {
				continue
			}
			for k, size := range []int{100, 30 << 10} {
				key := uint64(1)<<40 + uint64(i*100+j*10+k)
				ctx, cancel := context.WithTimeout(s.ctx, time.Minute)
				sent, err := from.Transfer(ctx, []transfer.Op{from.sendOp(to.process, key, fill(size, key))})
				got, err2 := to.Transfer(ctx, []transfer.Op{to.receiveOp(from.process, key, size)})
				if err := errors.Join(err, err2); err != nil {
					s.wrong("from %v to %v: %v", from.life, to.life, err)
				} else if err := errors.Join(sent.Done().Wait(ctx), got.Done().Wait(ctx)); err != nil {
					s.wrong("from %v to %v in the end: %v", from.life, to.life, err)
				}
				cancel()
			}
		}
	}
}

// judgeRest looks at what is left when all processes are gone.
func (s *storm) judgeRest() {
	for _, h := range s.mu.halves {
		if !allEqual(h.memory, scribbled) {
			s.wrong("%v: memory of transfer %d was written after its end", h.owner.life, h.key)
		}
		if h.owner != nil && !h.ended {
			s.wrong("%v: transfer %d never ended", h.owner.life, h.key)
		}
	}
	for _, l := range s.mu.all {
		if open, abandoned, _ := l.Pool().Promises(); open > 0 || abandoned > 0 {
			s.wrong("%v leaves %d promises open, and dropped %d", l.life, open, abandoned)
		}
		if err := l.arena.Close(); err != nil {
			s.wrong("%v: its arena: %v", l.life, err)
		}
	}
}

// count adds how transfers ended.
func (s *storm) count(all *tally) {
	for _, h := range s.mu.halves {
		e, ok := errors.AsType[*transfer.Error](h.err)
		switch {
		case !h.ended:
		case h.err == nil:
			all.well.Add(1)
		case ok && e.Unconfirmed:
			all.unconfirmed.Add(1)
			fallthrough
		default:
			all.badly.Add(1)
		}
	}
}
