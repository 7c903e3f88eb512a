package stream

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"sync/atomic"

	"github.com/serry-dev/serry/wire/conn"
)

// A frameHandler takes the frames of a pipe, all on the goroutine that reads it.
type frameHandler interface {
	// admit is asked about a frame that does not fit into one read, once its fields have come and are
	// checked. They are nil if the frame is that long without a body. A frame that is not admitted is skipped.
	admit(t frameType, fields []byte, body int) (bool, error)

	// frame takes a whole frame that is known to be undamaged. The bytes are valid until it returns,
	// unless own says that the handler may keep the body.
	frame(t frameType, fields, body []byte, own bool) error

	// served follows the frames that came with one read.
	served()
}

// A frameReader cuts what arrives into frames. It belongs to the goroutine that reads.
type frameReader struct {
	handler frameHandler
	limit   func(frameType) frameLimit
	budget  *conn.Budget // of large frames, or nil

	// A patient reader stops while the peer does not read its output. Only one end of a connection may be
	// patient: two ends that wait for each other would wait for ever.
	patient bool

	greeted bool   // the preface has come
	big     []byte // fields and body of a large frame, as far as they have come
	header  header // of that
	sum     uint32 // of its last part so far: of its body, or without one of its fields
	want    uint32 // what the sum must become
	left    int    // bytes that are still to come of a large frame, or of one that is skipped
	skip    bool
	waiting atomic.Bool   // the reader waits for the budget, and the peer is not read
	share   *conn.Share   // of the budget, or nil before the first large frame
	resumed chan struct{} // holds one: the budget may have room
}

// stepBytes is how much memory the length that a frame claims is good for, before its bytes come.
const stepBytes = 1 << 20

// errTruncated says that the peer ended the connection within a frame.
var errTruncated = fmt.Errorf("stream: ended within a frame: %w", io.ErrUnexpectedEOF)

// read handles the frames that come until the connection ends.
func (p *pipe) read(c *frameReader) error {
	defer c.release()
	for {
		chunk, err := p.nc.Next()
		if err != nil {
			return c.ended(err, len(p.nc.Kept()))
		}
		p.heard.Store(p.now())
		rest, err := c.cut(chunk)
		if err != nil {
			return err
		}
		p.nc.Keep(rest)
		c.handler.served()
		p.Flush()
		if c.patient {
			p.HoldBack()
		}
	}
}

func (c *frameReader) ended(err error, rest int) error {
	if errors.Is(err, io.EOF) && (rest > 0 || c.left > 0) {
		return errTruncated
	}
	return err
}

// cut handles all whole frames of p and returns what is left, the start of a frame.
func (c *frameReader) cut(p []byte) ([]byte, error) {
	if !c.greeted {
		n := min(len(p), len(Preface))
		if string(p[:n]) != Preface[:n] {
			return nil, ErrNotSpoken
		}
		if n < len(Preface) {
			return p, nil
		}
		c.greeted = true
		p = p[n:]
	}
	for {
		if c.left > 0 {
			n, err := c.more(p)
			if p = p[n:]; err != nil || c.left > 0 {
				return p, err
			}
		}
		if len(p) < headerBytes {
			return p, nil
		}
		h := readHeader(p)
		if h.parity != h.wantParity() {
			return nil, errDamaged
		}
		n := headerBytes + h.length()
		if int64(len(p)) < n {
			return c.part(h, p)
		}
		if err := c.whole(h, p[:n:n]); err != nil {
			return nil, err
		}
		p = p[n:]
	}
}

// whole takes a frame of which p is all.
func (c *frameReader) whole(h header, p []byte) error {
	if !h.holds(p) {
		return errDamaged
	}
	if skip, err := c.judge(h); skip || err != nil {
		return err
	}
	b := p[headerBytes:]
	fields, body := b[:h.fields:h.fields], b[h.fields:]
	if h.body.large() && checksum(body) != h.body.sum {
		return errDamaged
	}
	return c.handler.frame(h.frameType, fields, body, false)
}

// judge says whether a frame is one to skip. The error is that of a frame that must not come, or is too
// long.
func (c *frameReader) judge(h header) (skip bool, err error) {
	known := c.limit(h.frameType)
	if known == (frameLimit{}) && h.frameType >= frameOptional {
		known, skip = bodyLimit, true
	}
	if !known.takes(h) {
		return false, fmt.Errorf("%w: type %d with %d and %d bytes", errFrame, h.frameType, h.fields, h.body.length)
	}
	return skip, nil
}

// part takes the beginning of a frame, and returns what must be there again with the next bytes.
func (c *frameReader) part(h header, p []byte) ([]byte, error) {
	skip, err := c.judge(h)
	if err != nil {
		return nil, err
	}
	length, here := int(h.length()), len(p)-headerBytes
	switch {
	case skip:
		c.skip, c.left = true, length-here
		return nil, nil
	case h.fields <= maxHead && !h.body.large(): // it fits into the next read
		return p, nil
	case here < min(int(h.fields), maxHead): // its fields do
		return p, nil
	}
	return nil, c.start(h, p)
}

// start begins a frame that comes in many reads, of which p is here: one with a large body, or one without
// a body whose fields do not fit into one read.
func (c *frameReader) start(h header, p []byte) error {
	b := p[headerBytes:]
	var fields []byte
	if h.body.large() {
		if !h.holds(p) {
			return errDamaged
		}
		fields = b[:h.fields:h.fields]
		c.sum, c.want = checksum(b[h.fields:]), h.body.sum
	} else {
		c.sum, c.want = checksum(p[summed:]), h.sum
	}
	ok, err := c.handler.admit(h.frameType, fields, int(h.body.length))
	if err != nil {
		return err
	}
	length := int(h.length())
	c.left = length - len(b)
	if c.skip = !ok; ok {
		c.header, c.big = h, nil
		c.grow(len(b), length)
		c.big = append(c.big, b...)
	}
	return nil
}

// more takes bytes of the frame that began before, and returns how many.
func (c *frameReader) more(p []byte) (int, error) {
	n := min(len(p), c.left)
	c.left -= n
	if c.skip {
		return n, nil
	}
	if cap(c.big)-len(c.big) < n {
		c.grow(n, len(c.big)+n+c.left)
	}
	c.big = append(c.big, p[:n]...)
	c.sum = crc32.Update(c.sum, castagnoli, p[:n])
	if c.left > 0 {
		return n, nil
	}
	b := c.big
	c.big = nil
	defer c.release()
	if c.sum != c.want {
		return n, errDamaged
	}
	k := c.header.fields
	return n, c.handler.frame(c.header.frameType, b[:k:k], b[k:], true)
}

// grow makes room for n more bytes of a frame of that length: twice what has come, not more.
func (c *frameReader) grow(n, length int) {
	room := min(length, max(2*(len(c.big)+n), stepBytes))
	c.reserve(int64(room - cap(c.big)))
	b := make([]byte, len(c.big), room)
	copy(b, c.big)
	c.big = b
}

// reserve waits until the budget has room for n more bytes. The peer is not read meanwhile.
func (c *frameReader) reserve(n int64) {
	if c.budget == nil {
		return
	}
	if c.share == nil {
		share := c.budget.Share(c)
		c.share, c.resumed = &share, make(chan struct{}, 1)
	}
	for !c.share.Reserve(n) {
		c.waiting.Store(true)
		<-c.resumed
	}
	c.waiting.Store(false)
}

// Resume implements conn.Waiter.
func (c *frameReader) Resume() {
	select {
	case c.resumed <- struct{}{}:
	default: // it is told already
	}
}

func (c *frameReader) release() {
	if c.share != nil {
		c.share.Release()
	}
}
