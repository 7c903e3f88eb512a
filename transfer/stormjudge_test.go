package transfer_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

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
//   - a send that ended well before one that it had to wait for;
//   - bytes beside the part of its memory that a receive is for, which have changed;
//   - a pull that brought other content, or that failed although the offer was there and nothing spoke against it;
//   - an engine that does not close, or that leaves promises.

const (
	stormLong  = 30 * time.Minute // a deadline that nothing needs
	stormBegun = 12 * time.Second // after which programs begin nothing
	stormGrace = 70 * time.Second // until all has ended, when nothing goes wrong any more: the longest pause between two questions is 30 s
	stormSlack = time.Second      // for a device, and for what is under way

	stormOrdered = 20 * time.Second // the deadline of transfers that others wait for
)

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
		if h.inOrder {
			s.mu.lines[line{l, h.peer}] = append(s.mu.lines[line{l, h.peer}], h)
		}
	}
	s.mu.Unlock()
	if err != nil {
		if op.Buffer != nil {
			op.Buffer.Delete()
			h.whole.Delete()
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

// judgeEnd looks at a half that has just ended, and writes over its memory as soon as the program may.
func (s *storm) judgeEnd(h *half) {
	err := h.item.Event.Err()
	s.mu.Lock()
	h.ended, h.err, h.at = true, err, time.Now()
	late := h.at.Sub(h.began) > h.within+3*time.Second+stormSlack
	mate := h.mate
	received := mate.owner != nil && mate.item.Event.State() == transfer.Complete
	if mate.owner != nil && mate.part == gaps && mate.item.Event.State() != transfer.Failed {
		received = true // its verdict is there, and its bytes are scattered (TR-LAY-5): judgeHalf looks at how it ends
	}
	early := h.inOrder && err == nil && s.overtakes(h)
	s.mu.Unlock()
	l := h.owner
	if early {
		s.wrong("%v: transfer %d ended before one that was posted before it, and both keep their order", l.life, h.key)
	}
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
	if h.whole == nil {
		use, useErr := h.item.Buffer.Use(context.Background())
		if useErr != nil {
			s.wrong("%v: the buffer of transfer %d: %v", l.life, h.key, useErr)
			return
		}
		s.mu.Lock() // the other half looks at the part
		h.region, h.part, h.view = use.Memory(), wholly, transfer.View{Run: int64(h.size)}
		s.mu.Unlock()
		use.Drop()
	}
	memory := l.bytes(h.region)
	got, untouched := h.gather(memory)
	if err == nil && !bytes.Equal(got, fill(h.size, h.key)) {
		s.wrong("%v: transfer %d of %d bytes has other content", l.life, h.key, h.size)
	}
	if !untouched {
		s.wrong("%v: transfer %d has written beside its part of the memory", l.life, h.key)
	}
	scribble(memory)
	if h.part == middle {
		h.whole.Delete() // it is never defined
	}
	s.mu.Lock()
	h.memory = memory
	s.mu.Unlock()
}

// overtakes says whether a send ended while one has not that was posted before it and keeps the order, too. The lock is held.
func (s *storm) overtakes(h *half) bool {
	for _, before := range s.mu.lines[line{h.owner, h.peer}] {
		if before == h {
			return false
		}
		if state := before.item.Event.State(); state != transfer.Complete && state != transfer.Failed {
			return true
		}
	}
	return false
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
	d, err := h.whole.Donate(context.Background())
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
	<-time.After(max(0, stormBegun-time.Since(s.began)) + stormGrace)
	for _, l := range s.lives() {
		s.judgeOpen(l)
	}
	s.mu.Lock()
	halves := s.mu.halves
	s.mu.Unlock()
	for _, h := range halves {
		s.judgeHalf(h)
	}
	s.judgePulls()
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
	if h.send && h.ended && h.err == nil && m.owner != nil && !m.owner.over.Load() && (!m.ended || m.err != nil) {
		s.mu.bad = append(s.mu.bad, fmt.Sprintf("%v: the send of transfer %d ended well, its receive did not: %v", h.owner.life, h.key, m.err))
	}
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
		if r.Send && r.Key == (transfer.Key{Seq: h.key}) && (!r.Corrected || (r.Err == nil) != (m.err == nil)) {
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
	for _, p := range s.mu.pulls {
		if !allEqual(p.memory, scribbled) {
			s.wrong("%v: memory of pull %d was written after its end", p.owner.life, p.id)
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
	for _, p := range s.mu.pulls {
		if p.err == nil {
			all.pulled.Add(1)
		} else {
			all.unpulled.Add(1)
		}
	}
}
