package jax

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/serry-dev/serry/transfer/offer"
)

// A Want is a buffer of an offer that a consumer wants, and the memory that it fills. The memory is as large as the
// buffer, because sizes do not travel.
type Want struct {
	Index int
	Into  []byte
}

// A BufferError says which buffer could not be pulled.
type BufferError struct {
	Offer offer.ID
	Index int
	Err   error
}

func (e *BufferError) Error() string {
	return fmt.Sprintf("buffer %d of offer %d: %v", e.Index, e.Offer, e.Err)
}

func (e *BufferError) Unwrap() error { return e.Err }

// A RemoteError is what a peer answered instead of a buffer. The protocol carries the text alone, without a code (TR-H-21).
type RemoteError struct{ Text string }

func (e *RemoteError) Error() string { return fmt.Sprintf("the peer answers %q", e.Text) }

// Unwrap says that a pull has expired at the peer, which may happen a little earlier than here.
func (e *RemoteError) Unwrap() error {
	if e.Text == expired {
		return offer.ErrExpired
	}
	return nil
}

// ErrSize says that a buffer has another size than the memory that was meant for it.
var ErrSize = errors.New("the buffer has another size than the memory for it")

// Received is how many bytes of buffers have arrived so far.
func (c *Conn) Received() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.received
}

// A pull is a request for one buffer.
type pull struct {
	into []byte
	done chan struct{} // closed when there is a verdict and no lane writes to into any more

	// Guarded by Conn.mu.
	announced spans  // parts of the buffer that packets have announced
	account   uint64 // 0 after a packet says that no other will come (TR-W-16)
	arrived   int    // bytes in place
	readers   int    // lanes that write to into
	over      bool   // there is a verdict: no lane begins to write to into
	err       error  // the verdict
}

// Pull fetches buffers of an offer. The offer may come later: Pull waits for it until ctx ends, and at most for
// [Config.Patience]. When Pull returns, no memory of wants is written to any more. The error is nil if all buffers
// have arrived; otherwise it joins a [BufferError] for each that has not.
func (c *Conn) Pull(ctx context.Context, id offer.ID, wants []Want) error {
	if c.config.Patience > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, c.config.Patience, fmt.Errorf("%w after %v", offer.ErrExpired, c.config.Patience))
		defer cancel()
	}
	pulls, err := c.request(ctx, id, wants)
	if err != nil {
		return err
	}
	for _, p := range pulls {
		select {
		case <-p.done:
		case <-ctx.Done():
			c.abandon(pulls, context.Cause(ctx))
			<-p.done
		}
	}
	var all []error
	for i, p := range pulls {
		if p.err != nil {
			all = append(all, &BufferError{Offer: id, Index: wants[i].Index, Err: p.err})
		}
	}
	return errors.Join(all...)
}

// request sends the requests for buffers. A buffer without bytes is not requested: it is there at once (TR-W-30).
func (c *Conn) request(ctx context.Context, id offer.ID, wants []Want) ([]*pull, error) {
	until := int64(0)
	if at, ok := ctx.Deadline(); ok {
		until = at.UnixMicro()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.mu.err; err != nil {
		return nil, err
	}
	if c.mu.closing {
		return nil, fmt.Errorf("connection with %s: %w", c.Peer(), ErrClosed)
	}
	if len(c.mu.pulls)+len(wants) > c.config.Requests {
		return nil, fmt.Errorf("%d buffers and %d before: more than %d requests on a connection", len(wants), len(c.mu.pulls), c.config.Requests)
	}
	all := make([]*pull, len(wants))
	m := pullRequest{offer: id, request: c.mu.next, until: until}
	for i, w := range wants {
		all[i] = &pull{into: w.Into, done: make(chan struct{})}
		if len(w.Into) == 0 {
			all[i].over = true
			close(all[i].done)
			continue
		}
		c.mu.pulls[c.mu.next] = all[i]
		c.mu.next++
		if m.indexes = append(m.indexes, uint64(w.Index)); len(m.indexes) == maxIndexes {
			c.post(m)
			m.indexes, m.request = nil, c.mu.next
		}
	}
	if len(m.indexes) > 0 {
		c.post(m)
	}
	return all, nil
}

// abandon gives requests up that have no verdict yet.
func (c *Conn) abandon(pulls []*pull, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range pulls {
		c.finish(p, err)
	}
}

// packet takes the announcement of a part of a buffer.
func (c *Conn) packet(m packet) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.mu.pulls[m.request]
	if p == nil {
		return fmt.Errorf("a packet for request %d, which was not made", m.request)
	}
	if m.lane >= uint64(len(c.mu.lanes)) {
		return fmt.Errorf("a packet on lane %d of %d", m.lane, len(c.mu.lanes))
	}
	if err := p.announce(span{m.offset, m.offset + m.size}); err != nil {
		c.finish(p, err)
	}
	c.count(m.request, p, m.offset, m.size, m.largest)
	if m.size == 0 {
		return nil
	}
	l := c.mu.lanes[m.lane]
	if len(l.expected) >= c.config.Requests {
		return fmt.Errorf("more than %d packets announced on a lane", len(l.expected))
	}
	l.expected = append(l.expected, part{p, m.offset, m.size})
	c.mu.changed.Broadcast()
	return nil
}

// announce adds a part to those that are known of a buffer.
func (p *pull) announce(s span) (err error) {
	if size := uint64(len(p.into)); s.to < s.from || s.to > size {
		return fmt.Errorf("%w: a part from byte %d to %d, and %d bytes of memory", ErrSize, s.from, s.to, size)
	}
	if s.from == s.to {
		return nil
	}
	p.announced, err = p.announced.add(s)
	return err
}

// failure takes the announcement of a part that will not come.
func (c *Conn) failure(m failure) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.mu.pulls[m.request]
	if p == nil {
		return fmt.Errorf("an error for request %d, which was not made", m.request)
	}
	c.finish(p, &RemoteError{m.text})
	c.count(m.request, p, m.offset, m.size, m.largest)
	return nil
}

// count adds a packet to the account of its request (TR-W-16). When no other packet will come, all of the buffer must have
// been announced, and the request can be forgotten as soon as it has its verdict.
func (c *Conn) count(request uint64, p *pull, offset, size uint64, largest bool) {
	if largest {
		p.account += offset
	} else {
		p.account -= size
	}
	if p.account != 0 {
		return
	}
	if !p.announced.all(uint64(len(p.into))) {
		c.finish(p, fmt.Errorf("%w: %d bytes of memory, and the peer has sent %v", ErrSize, len(p.into), p.announced))
	}
	delete(c.mu.pulls, request)
	if !p.over {
		c.mu.arriving[p] = struct{}{}
	}
}

// finish gives a request its verdict. A lane that is writing to its memory is interrupted, and the caller of Pull waits
// until it has stopped.
func (c *Conn) finish(p *pull, err error) {
	if p.over {
		return
	}
	p.over, p.err = true, err
	delete(c.mu.arriving, p)
	for _, l := range c.mu.lanes {
		if l.writes == p {
			l.conn.SetReadDeadline(time.Unix(1, 0))
		}
	}
	if p.readers == 0 {
		close(p.done)
	}
	c.mu.changed.Broadcast() // a peer that has left is waited for no longer
}
