package stream

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"github.com/serry-dev/serry/wire/internal/socket"
)

// A taker takes the frames of a pipe, all on the goroutine that reads it.
type taker interface {
	// admit is asked about a frame that does not fit into one read, once its head is here. If it
	// says no, the rest is skipped.
	admit(t frameType, head []byte, length int) (bool, error)

	// frame takes a whole frame. The bytes are valid until it returns, unless own says that the
	// taker may keep them.
	frame(t frameType, b []byte, own bool) error

	// wave follows the frames that came with one read.
	wave()
}

// A cutter cuts what arrives into frames. It belongs to the goroutine that reads.
type cutter struct {
	taker  taker
	limit  func(frameType) int // how long such a frame may be; 0: it must not come
	budget *budget             // of large frames, or nil

	// patient ones do not read on while their own output is not read. Only one end may be: two that
	// wait for each other would wait for ever.
	patient bool

	greeted bool // the preface has come
	big     []byte
	bigType frameType
	left    int // of a big frame, or of one that is skipped
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
		if len(p) < headBytes {
			return p, nil
		}
		length, t := int(binary.LittleEndian.Uint32(p)), frameType(p[lengthBytes])
		if length < 1 || length-1 > c.limit(t) {
			return nil, fmt.Errorf("%w: type %d with %d bytes", errFrame, t, length)
		}
		length--
		b := p[headBytes:]
		if len(b) >= length {
			if err := c.taker.frame(t, b[:length:length], false); err != nil {
				return nil, err
			}
			p = b[length:]
			continue
		}
		if length <= maxHead || len(b) < maxHead {
			return p, nil // it fits into the next wave, or its head does
		}
		if err := c.start(t, b, length); err != nil {
			return nil, err
		}
		return nil, nil
	}
}

// start begins a frame that comes in many reads, of which b is here.
func (c *cutter) start(t frameType, b []byte, length int) error {
	ok, err := c.taker.admit(t, b[:maxHead:maxHead], length)
	if err != nil {
		return err
	}
	c.left = length - len(b)
	if c.skip = !ok; ok {
		c.bigType = t
		c.big = nil
		c.grow(len(b), length)
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
	if c.left > 0 {
		return n, nil
	}
	b := c.big
	c.big = nil
	err := c.taker.frame(c.bigType, b, true)
	c.release()
	return n, err
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
