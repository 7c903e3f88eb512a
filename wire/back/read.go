package back

import (
	"errors"
	"fmt"
	"io"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/serry-dev/serry/wire/internal/h2"
)

// A reader is what only the goroutine that reads a connection knows.
type reader struct {
	framer   *http2.Framer
	hpack    *hpack.Decoder
	block    block
	received uint32 // bytes of DATA since the window of the connection was last widened
}

// A block is a header block being read.
type block struct {
	id     uint32
	stream *stream // or nil: the call has ended
	end    bool    // of the stream
	bytes  int
}

func (r *reader) init(from io.Reader) {
	r.framer = http2.NewFramer(nil, from)
	r.framer.SetReuseFrames()
	r.framer.SetMaxReadFrameSize(h2.MinFrame)
	r.hpack = hpack.NewDecoder(h2.TableBytes, func(f hpack.HeaderField) {
		if s := r.block.stream; s != nil {
			s.response.field(f)
		}
	})
	r.hpack.SetMaxStringLength(maxHeaderBytes)
}

// flushFirst reads from a connection, and sends what has gathered before each read that may wait.
type flushFirst struct{ *Conn }

func (f flushFirst) Read(p []byte) (int, error) {
	f.Flush()
	return f.nc.Read(p)
}

// readAll runs until the connection ends, then ends its calls.
func (c *Conn) readAll() {
	defer close(c.ended)
	err := c.readFrames()
	c.nc.Close()
	err = fmt.Errorf("connection ended: %w", err)
	c.refuse(err)
	sent, unsent := c.above(0)
	for _, s := range sent {
		s.fail(err)
	}
	for _, s := range unsent {
		s.fail(fmt.Errorf("%w: %w", ErrUnsent, err))
	}
	c.mu.Fail(err)
}

func (c *Conn) readFrames() error {
	for {
		f, err := c.read.framer.ReadFrame()
		if se, ok := errors.AsType[http2.StreamError](err); ok {
			c.giveUp(se.StreamID)
			continue
		}
		if err == nil {
			err = c.frame(f)
		}
		if err != nil {
			return err
		}
	}
}

func (c *Conn) frame(f http2.Frame) error {
	switch f := f.(type) {
	case *http2.DataFrame:
		c.data(f)
	case *http2.HeadersFrame:
		c.read.block = block{id: f.StreamID, stream: c.find(f.StreamID), end: f.StreamEnded()}
		return c.headers(f.HeaderBlockFragment(), f.HeadersEnded())
	case *http2.ContinuationFrame:
		return c.headers(f.HeaderBlockFragment(), f.HeadersEnded())
	case *http2.SettingsFrame:
		return c.settings(f)
	case *http2.WindowUpdateFrame:
		return c.widen(f.StreamID, int64(f.Increment))
	case *http2.PingFrame:
		if !f.IsAck() {
			return c.control(func(b []byte) []byte { return h2.AppendPing(b, http2.FlagPingAck, f.Data) })
		}
	case *http2.RSTStreamFrame:
		if s := c.take(f.StreamID, resetByServer); s != nil {
			s.reset(f.ErrCode)
		}
	case *http2.GoAwayFrame:
		c.goAway(f)
	case *http2.PushPromiseFrame:
		return errors.New("server pushes although told not to")
	}
	return nil
}

func (c *Conn) find(id uint32) *stream {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.streams[id]
}

// data adds to a reply. Padding and data for calls that are gone count against the window too.
func (c *Conn) data(f *http2.DataFrame) {
	c.read.received += f.Length
	if c.read.received >= connWindow/2 {
		c.mu.Lock()
		c.mu.Out = h2.AppendWindowUpdate(c.mu.Out, 0, int64(c.read.received))
		c.mu.Unlock()
		c.read.received = 0
	}
	s := c.find(f.StreamID)
	if s == nil {
		return
	}
	if len(s.body)+len(f.Data()) > MaxMessageBytes+h2.PrefixBytes {
		c.giveUp(f.StreamID)
		return
	}
	s.body = append(s.body, f.Data()...)
	if f.StreamEnded() && c.take(f.StreamID, answered) == s {
		s.finish(c)
	}
}

// headers adds to the block being read and, at its end, to the stream.
func (c *Conn) headers(fragment []byte, ended bool) error {
	b := &c.read.block
	if b.bytes += len(fragment); b.bytes > maxHeaderBytes {
		return fmt.Errorf("header block over %d bytes", maxHeaderBytes)
	}
	if _, err := c.read.hpack.Write(fragment); err != nil {
		return err
	}
	if !ended {
		return nil
	}
	if err := c.read.hpack.Close(); err != nil {
		return err
	}
	s, id, end := b.stream, b.id, b.end
	*b = block{}
	if s != nil && end && c.take(id, answered) == s {
		s.finish(c)
	}
	return nil
}

// giveUp ends a call whose reply cannot be read.
func (c *Conn) giveUp(id uint32) {
	if s := c.take(id, givenUp); s != nil {
		s.done(nil, internal("reply is malformed or over %d bytes", MaxMessageBytes), nil)
	}
}

// goAway ends the calls that the server will not answer; the others go on, new ones are refused.
func (c *Conn) goAway(f *http2.GoAwayFrame) {
	err := fmt.Errorf("server goes away: %v", f.ErrCode)
	c.refuse(err)
	sent, unsent := c.above(f.LastStreamID)
	for _, s := range append(sent, unsent...) { // it says that it has not looked at them
		s.fail(fmt.Errorf("%w: %w", ErrUnsent, err))
	}
}
