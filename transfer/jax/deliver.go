package jax

import (
	"fmt"
	"io"

	"github.com/serry-dev/serry/transfer/offer"
)

// A Buffer is what an offer has: bytes in memory, or, if File is there, the first Size bytes of a file.
type Buffer struct {
	Bytes []byte

	File io.ReaderAt // or nil
	Size int64       // of File
}

// size is how many bytes a buffer has.
func (b *Buffer) size() uint64 {
	if b.File != nil {
		return uint64(b.Size)
	}
	return uint64(len(b.Bytes))
}

// chunk is a part of a buffer. That of a file is read into scratch, before it is announced: a file that has become
// shorter is an error for its consumer, and not for the connection.
func (b *Buffer) chunk(s span, scratch *[]byte) ([]byte, error) {
	if b.File == nil {
		return b.Bytes[s.from:s.to], nil
	}
	if n := int(s.to - s.from); cap(*scratch) < n {
		*scratch = make([]byte, n)
	}
	data := (*scratch)[:s.to-s.from]
	if n, err := b.File.ReadAt(data, int64(s.from)); n < len(data) {
		return nil, fmt.Errorf("read from byte %d: %w", s.from, noEOF(err))
	}
	return data, nil
}

// A delivery is a buffer that is on its way to a peer.
type delivery struct {
	ticket  offer.Ticket
	request uint64
	index   int
	buffer  *Buffer
	offered *Offered

	// Guarded by Conn.mu.
	next  uint64 // the first byte that no lane has taken
	under int    // chunks that lanes have taken and not written yet
	err   error  // why the peer does not get the buffer, or nil
}

// deliver has the lanes of a connection send a buffer.
func (c *Conn) deliver(d *delivery) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.deliveries = append(c.mu.deliveries, d)
	c.mu.changed.Broadcast()
}

// nextChunk waits for a chunk to send. It is false when the connection has ended.
func (c *Conn) nextChunk() (d *delivery, s span, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.mu.err == nil && len(c.mu.deliveries) == 0 {
		c.mu.changed.Wait()
	}
	if c.mu.err != nil {
		return nil, span{}, false
	}
	d = c.mu.deliveries[0]
	s = span{d.next, min(d.next+uint64(c.config.ChunkBytes), d.buffer.size())}
	if d.err != nil {
		s.to = d.buffer.size() // all that is left is one failure
	}
	d.next = s.to
	d.under++
	if d.next == d.buffer.size() {
		c.mu.deliveries = c.mu.deliveries[1:]
	}
	return d, s, true
}

// chunk is the next chunk of a delivery, or why that has failed.
func (c *Conn) chunk(d *delivery, s span, scratch *[]byte) ([]byte, error) {
	c.mu.Lock()
	err := d.err
	c.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return d.buffer.chunk(s, scratch)
}

// announce posts the header of a chunk, or that the chunk will not come. It says whether the chunk follows on the lane.
// Headers and chunks travel on two connections, and need not be in step: only the order on one lane counts (TR-W-15).
func (c *Conn) announce(l *lane, d *delivery, s span, err error) (follows bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if d.err == nil && err != nil {
		d.err = err
	}
	size, largest := s.to-s.from, s.to == d.buffer.size()
	if d.err != nil {
		c.post(failure{request: d.request, offset: s.from, size: size, largest: largest, text: d.err.Error()})
		return false
	}
	c.post(packet{request: d.request, lane: l.index, offset: s.from, size: size, largest: largest})
	return true
}

// chunkDone notes that a chunk has been written, or was not. It is true for the last one of its buffer.
func (c *Conn) chunkDone(d *delivery, err error) (over bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if d.err == nil {
		d.err = err
	}
	d.under--
	return d.under == 0 && d.next == d.buffer.size()
}
