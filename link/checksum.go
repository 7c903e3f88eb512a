package link

import "hash/crc32"

const (
	aloneBytes = 256 << 10 // payloads from this size on have a goroutine for their checksum
	sumBacklog = 64        // pieces that it may be behind
)

// A checksum is the CRC-32C of a payload. That of a large one is computed by a goroutine of its own while the
// socket is read or written: on one processor core a checksum takes a third of the time of the transfer. A nil
// checksum does nothing.
type checksum struct {
	sum    uint32
	pieces chan []byte   // to the goroutine, or nil; a nil piece asks it to answer
	idle   chan struct{} // its answer, and its end
}

// newChecksum begins the checksum of a payload of that size.
func newChecksum(size int64) *checksum {
	c := new(checksum)
	if size >= aloneBytes {
		c.pieces = make(chan []byte, sumBacklog)
		c.idle = make(chan struct{})
		go c.run(c.pieces)
	}
	return c
}

// run adds the pieces that come.
func (c *checksum) run(pieces <-chan []byte) {
	for p := range pieces {
		if p == nil {
			c.idle <- struct{}{}
			continue
		}
		c.sum = crc32.Update(c.sum, castagnoli, p)
	}
	close(c.idle)
}

// add appends bytes of the payload. They may be read until settle or value returns.
func (c *checksum) add(p []byte) {
	switch {
	case c == nil || len(p) == 0:
	case c.pieces != nil:
		c.pieces <- p
	default:
		c.sum = crc32.Update(c.sum, castagnoli, p)
	}
}

// addNow appends bytes that change when it has returned.
func (c *checksum) addNow(p []byte) {
	c.add(p)
	c.settle()
}

// settle waits until all bytes so far were read.
func (c *checksum) settle() {
	if c != nil && c.pieces != nil {
		c.pieces <- nil
		<-c.idle
	}
}

// value is the checksum. No bytes can be added any more.
func (c *checksum) value() uint32 {
	if c == nil {
		return 0
	}
	if c.pieces != nil {
		close(c.pieces)
		<-c.idle
		c.pieces = nil
	}
	return c.sum
}
