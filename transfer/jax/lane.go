package jax

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"
)

// pieceBytes is how much a lane reads or writes at once. Between two pieces it notices that it should stop.
const pieceBytes = 256 << 10

// A lane is a connection that carries bytes of buffers, without frames: the control connection says whose they are.
type lane struct {
	index uint64

	// Guarded by Conn.mu.
	conn     net.Conn // nil until the lane is connected
	expected []part   // of buffers that are announced, in the order in which they come
	writes   *pull    // whose memory the lane writes to at present, or nil
}

// A part is a piece of a buffer that comes on a lane.
type part struct {
	pull         *pull
	offset, size uint64
}

// attach gives a lane its connection, and starts to use it.
func (c *Conn) attach(index int, conn net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.err != nil || c.mu.lanes[index].conn != nil {
		conn.Close()
		return
	}
	l := c.mu.lanes[index]
	l.conn = conn
	c.work.Go(func() { c.fail(c.receive(l)) })
	c.work.Go(func() { c.fail(c.send(l)) })
}

// receive reads the parts that are announced on a lane, until the connection ends.
func (c *Conn) receive(l *lane) error {
	scratch := make([]byte, 0)
	for {
		p, ok := c.nextPart(l)
		if !ok {
			return nil
		}
		for p.size > 0 {
			into := c.beginWrite(l, p)
			if into == nil { // the request is over, and its bytes are of no use
				if len(scratch) == 0 {
					scratch = make([]byte, pieceBytes)
				}
				into = scratch[:min(p.size, pieceBytes)]
			}
			n, err := l.conn.Read(into)
			err = c.endWrite(l, p, n, err)
			p.offset, p.size = p.offset+uint64(n), p.size-uint64(n)
			if err != nil && (p.size > 0 || !errors.Is(err, io.EOF)) {
				return fmt.Errorf("lane %d: %w", l.index, noEOF(err))
			}
		}
	}
}

// nextPart waits for the next part that is announced on a lane. It is false when the connection has ended.
func (c *Conn) nextPart(l *lane) (p part, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.mu.err == nil && len(l.expected) == 0 {
		c.mu.changed.Wait()
	}
	if c.mu.err != nil {
		return part{}, false
	}
	p = l.expected[0]
	l.expected = l.expected[1:]
	return p, true
}

// beginWrite is the memory that the next bytes of a part go to, or nil if its request is over.
func (c *Conn) beginWrite(l *lane, p part) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p.pull.over {
		return nil
	}
	l.writes = p.pull
	p.pull.readers++
	return p.pull.into[p.offset : p.offset+min(p.size, pieceBytes)]
}

// endWrite notes that n bytes of a part have come. A request that has ended meanwhile has interrupted the lane, which goes on:
// only its memory is not to be written to.
func (c *Conn) endWrite(l *lane, p part, n int, err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l.writes == nil {
		return err
	}
	l.writes = nil
	c.mu.received += int64(n)
	p.pull.readers--
	if p.pull.over {
		l.conn.SetReadDeadline(time.Time{})
		if p.pull.readers == 0 {
			close(p.pull.done)
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		}
		return err
	}
	if p.pull.arrived += n; p.pull.arrived == len(p.pull.into) {
		c.finish(p.pull, nil)
	}
	return err
}

// send writes chunks of buffers to a lane, whichever is next when the lane is free: so a fast lane carries more of
// them (TR-W-19).
func (c *Conn) send(l *lane) error {
	scratch := make([]byte, 0)
	for {
		d, s, ok := c.nextChunk()
		if !ok {
			return nil
		}
		data, err := c.chunk(d, s, &scratch)
		header := c.announce(l, d, s, err)
		if header {
			err = c.writeChunk(l, data)
		}
		if over := c.chunkDone(d, err); over {
			c.server.delivered(c, d)
		}
		if header && err != nil {
			return fmt.Errorf("lane %d: %w", l.index, err)
		}
	}
}

// writeChunk writes a chunk. A peer that does not read for a while is given up: it would keep the buffer from being
// free.
func (c *Conn) writeChunk(l *lane, data []byte) error {
	for len(data) > 0 {
		piece := data[:min(len(data), pieceBytes)]
		l.conn.SetWriteDeadline(time.Now().Add(c.config.Stall))
		if _, err := l.conn.Write(piece); err != nil {
			return err
		}
		data = data[len(piece):]
	}
	return nil
}
