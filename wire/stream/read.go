package stream

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"sync/atomic"

	"github.com/serry-dev/serry/wire/internal/socket"
)

// A taker takes the frames of a pipe, all on the goroutine that reads it.
type taker interface {
	// admit is asked about a frame that does not fit into one read, once its fields are here and
	// checked; they are nil where a frame without a body is that long. If it says no, the rest is skipped.
	admit(t frameType, fields []byte, body int) (bool, error)

	// frame takes a whole frame that is known to be undamaged. The bytes are valid until it returns,
	// unless own says that the taker may keep the body.
	frame(t frameType, fields, body []byte, own bool) error

	// wave follows the frames that came with one read.
	wave()
}

// A cutter cuts what arrives into frames. It belongs to the goroutine that reads.
type cutter struct {
	taker  taker
	room   func(frameType) room // how long such a frame may be
	budget *budget              // of large frames, or nil

	// patient ones do not read on while their own output is not read. Only one end may be: two that
	// wait for each other would wait for ever.
	patient bool

	greeted bool   // the preface has come
	big     []byte // fields and body of a large frame, as far as they have come
	header  header // of that
	sum     uint32 // of its body so far; of its fields if it has no body
	left    int    // bytes to come of a large frame, or of one that is skipped
	skip    bool
	held    int64       // bytes of the budget
	waiting atomic.Bool // for the budget, with its peer unread
}

// stepBytes is how much memory the length that a frame claims is good for, before its bytes come.
const stepBytes = 1 << 20

// errTruncated is the end of a peer within a frame.
var errTruncated = fmt.Errorf("stream: ended within a frame: %w", io.ErrUnexpectedEOF)

// read cuts what first holds and what comes after it until the connection ends.
func (p *pipe) read(first []byte, c *cutter) error {
	defer c.release()
	source := socket.NewSource(p.nc, p.raw)
	rest, err := c.cut(first)
	if err != nil {
		return err
	}
	source.Keep(rest)
	if len(first) > 0 {
		c.taker.wave()
		p.flush()
	}
	for {
		wave, err := source.Next()
		if err != nil {
			return c.ended(err, len(source.Rest()))
		}
		p.heard.Store(p.now())
		rest, err := c.cut(wave)
		if err != nil {
			return err
		}
		source.Keep(rest)
		source.Done()
		c.taker.wave()
		p.flush()
		if c.patient {
			p.holdBack()
		}
	}
}

func (c *cutter) ended(err error, rest int) error {
	if errors.Is(err, io.EOF) && (rest > 0 || c.left > 0) {
		return errTruncated
	}
	return err
}

// cut handles all whole frames of p and returns what is left, the start of a frame.
func (c *cutter) cut(p []byte) ([]byte, error) {
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
		h, err := readHeader(p)
		if err != nil {
			return nil, err
		}
		b := p[headerBytes:]
		known := c.room(h.frameType)
		unknown := known == (room{}) && h.frameType >= frameOptional
		if unknown {
			known = ample
		}
		if !known.takes(h) {
			return nil, fmt.Errorf("%w: type %d with %d and %d bytes", errFrame, h.frameType, h.fields.length, h.body.length)
		}
		if unknown {
			p = c.pass(h, b)
			continue
		}
		if len(b) < h.length() {
			if h.length() <= maxHead || len(b) < min(int(h.fields.length), maxHead) {
				return p, nil // it fits into the next wave, or its fields do
			}
			return nil, c.start(h, b)
		}
		if err := c.whole(h, b); err != nil {
			return nil, err
		}
		p = b[h.length():]
	}
}

// whole hands on a frame of which all is here.
func (c *cutter) whole(h header, b []byte) error {
	n, all := int(h.fields.length), h.length()
	fields, body := b[:n:n], b[n:all:all]
	if !h.fields.holds(fields) || !h.body.holds(body) {
		return errDamaged
	}
	return c.taker.frame(h.frameType, fields, body, false)
}

// pass skips a frame, as far as it is in b, and returns what follows it there.
func (c *cutter) pass(h header, b []byte) []byte {
	n := min(len(b), h.length())
	c.skip, c.left = true, h.length()-n
	return b[n:]
}

// start begins a frame that comes in many reads, of which b is here. Only frames without a body have
// fields that do not fit into one read.
func (c *cutter) start(h header, b []byte) error {
	checked := b
	var fields []byte
	if n := int(h.fields.length); h.body.length > 0 {
		fields, checked = b[:n:n], b[n:]
		if !h.fields.holds(fields) {
			return errDamaged
		}
	}
	ok, err := c.taker.admit(h.frameType, fields, int(h.body.length))
	if err != nil {
		return err
	}
	c.left = h.length() - len(b)
	if c.skip = !ok; ok {
		c.header = h
		c.sum = checksum(checked)
		c.big = nil
		c.grow(len(b), h.length())
		c.big = append(c.big, b...)
	}
	return nil
}

// more takes bytes of the frame that began before, and returns how many.
func (c *cutter) more(p []byte) (int, error) {
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
	if c.sum != c.header.last().sum {
		return n, errDamaged
	}
	k := c.header.fields.length
	return n, c.taker.frame(c.header.frameType, b[:k:k], b[k:], true)
}

// grow makes room for n more bytes of a frame of that length: twice what has come, not more.
func (c *cutter) grow(n, length int) {
	room := min(length, max(2*(len(c.big)+n), stepBytes))
	if c.budget != nil {
		c.budget.take(c, int64(room)-c.held)
		c.held = int64(room)
	}
	b := make([]byte, len(c.big), room)
	copy(b, c.big)
	c.big = b
}

func (c *cutter) release() {
	if c.held > 0 {
		c.budget.give(c, c.held)
		c.held = 0
	}
}
