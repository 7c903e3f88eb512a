package collective

import (
	"context"
	"errors"

	"github.com/serry-dev/serry/internal/lockrank"
	"github.com/serry-dev/serry/link"
)

// A mailbox moves messages between ranks of one process (CL-TRN-11). As on a link, both sides post a message under
// one name, and the side that comes second copies it.
type mailbox struct {
	mu      lockrank.Mutex[mailboxLock]
	waiting map[letterName]*letter // guarded by mu
	spare   []*letter              // that have ended; guarded by mu
}

const maxSpare = 256 // letters

// A letterName names a message between two ranks of one clique.
type letterName struct {
	word     uint64
	from, to int // ranks
	number   uint16
	tile     uint32
}

// A letter is one side of a message that waits for the other.
type letter struct {
	box  *mailbox
	name letterName
	segs [][]byte
	done chan error // gets the outcome, once
}

// post posts one side of a message. If the other side waits, the message is copied before post returns, and there is no letter.
func (b *mailbox) post(name letterName, segs [][]byte, receive bool) (*letter, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if other := b.waiting[name]; other != nil {
		delete(b.waiting, name)
		err := deliver(other.segs, segs, receive)
		other.done <- err
		return nil, err
	}
	l := b.blank()
	l.name, l.segs = name, append(l.segs, segs...)
	if b.waiting == nil {
		b.waiting = make(map[letterName]*letter)
	}
	b.waiting[name] = l
	return l, nil
}

// blank is a letter to be written; mu is held.
func (b *mailbox) blank() *letter {
	last := len(b.spare) - 1
	if last < 0 {
		return &letter{box: b, done: make(chan error, 1)}
	}
	l := b.spare[last]
	b.spare = b.spare[:last]
	return l
}

// reuse keeps a letter that has ended, and that no rank looks at any more.
func (b *mailbox) reuse(l *letter) {
	clear(l.segs)
	l.segs = l.segs[:0]
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.spare) < maxSpare {
		b.spare = append(b.spare, l)
	}
}

// deliver copies a message between the memory that waited and the memory that has come.
func deliver(waited, came [][]byte, cameReceives bool) error {
	into, from := waited, came
	if cameReceives {
		into, from = came, waited
	}
	if size(into) != size(from) {
		return link.ErrSize
	}
	in, at := 0, 0 // the piece of into that is being filled, and how far
	for _, s := range from {
		for len(s) > 0 {
			if at == len(into[in]) {
				in, at = in+1, 0
				continue
			}
			n := copy(into[in][at:], s)
			s, at = s[n:], at+n
		}
	}
	return nil
}

func size(segs [][]byte) (n int) {
	for _, s := range segs {
		n += len(s)
	}
	return n
}

// fail ends everything that waits.
func (b *mailbox) fail(cause error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for name, l := range b.waiting {
		delete(b.waiting, name)
		l.done <- cause
	}
}

// Wait implements ticket. It is called once.
func (l *letter) Wait(ctx context.Context) error {
	select {
	case err := <-l.done:
		if err == nil {
			l.box.reuse(l)
		}
		return err
	case <-ctx.Done():
		l.Cancel(context.Cause(ctx))
		return <-l.done
	}
}

// Over implements ticket.
func (l *letter) Over() bool { return len(l.done) > 0 }

// Cancel implements ticket. Copies are made under the lock of the box, so the memory is quiet when it returns.
func (l *letter) Cancel(cause error) {
	l.box.mu.Lock()
	defer l.box.mu.Unlock()
	if l.box.waiting[l.name] == l {
		delete(l.box.waiting, l.name)
		l.done <- errors.Join(link.ErrCancelled, cause)
	}
}

// A scratchpad keeps scratch memory for the next operation.
type scratchpad struct {
	mu   lockrank.Mutex[scratchLock]
	free [][]byte // guarded by mu
}

const (
	keptScratch  = 8        // buffers
	largeScratch = 64 << 20 // a buffer that is not kept: it is worth less than its memory
)

// take returns memory of that many bytes, with any contents.
func (p *scratchpad) take(size int64) []byte {
	if size == 0 {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	best := -1
	for i, b := range p.free {
		if int64(cap(b)) >= size && (best < 0 || cap(b) < cap(p.free[best])) {
			best = i
		}
	}
	if best < 0 {
		return make([]byte, size)
	}
	b := p.free[best]
	last := len(p.free) - 1
	p.free[best], p.free[last] = p.free[last], nil
	p.free = p.free[:last]
	return b[:size]
}

// put gives memory back.
func (p *scratchpad) put(b []byte) {
	if cap(b) == 0 || cap(b) > largeScratch {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.free) < keptScratch {
		p.free = append(p.free, b)
		return
	}
	for i := range p.free {
		if cap(p.free[i]) < cap(b) {
			p.free[i] = b
			return
		}
	}
}
