package collective

import (
	"context"
	"errors"
	"sync"

	"github.com/serry-dev/serry/link"
)

// A mailbox moves messages between ranks of one process (CL-TRN-11). As on a link, both sides post a message under
// one name, and the side that comes second copies it.
type mailbox struct {
	mu      sync.Mutex
	waiting map[letterName]*letter // guarded by mu
}

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
	done chan struct{}
	err  error // set before done is closed
}

// post posts one side of a message. If the other side waits, the message is copied before post returns.
func (b *mailbox) post(name letterName, segs [][]byte, receive bool) ticket {
	b.mu.Lock()
	defer b.mu.Unlock()
	if other := b.waiting[name]; other != nil {
		delete(b.waiting, name)
		err := deliver(other.segs, segs, receive)
		other.end(err)
		return sentLetter{err}
	}
	l := &letter{box: b, name: name, segs: append([][]byte(nil), segs...), done: make(chan struct{})}
	if b.waiting == nil {
		b.waiting = make(map[letterName]*letter)
	}
	b.waiting[name] = l
	return l
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
		l.end(cause)
	}
}

func (l *letter) end(err error) {
	l.err = err
	close(l.done)
}

// Wait implements ticket.
func (l *letter) Wait(ctx context.Context) error {
	select {
	case <-l.done:
	case <-ctx.Done():
		l.Cancel(context.Cause(ctx))
	}
	return l.err
}

// Cancel implements ticket. Copies are made under the lock of the box, so the memory is quiet when it returns.
func (l *letter) Cancel(cause error) {
	l.box.mu.Lock()
	defer l.box.mu.Unlock()
	if l.box.waiting[l.name] == l {
		delete(l.box.waiting, l.name)
		l.end(errors.Join(link.ErrCancelled, cause))
	}
}

// A sentLetter is a message that was copied when it was posted.
type sentLetter struct{ err error }

func (s sentLetter) Wait(context.Context) error { return s.err }
func (s sentLetter) Cancel(error)               {}

// A scratchpad keeps scratch memory for the next operation.
type scratchpad struct {
	mu   sync.Mutex
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
