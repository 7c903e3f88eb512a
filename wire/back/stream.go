package back

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/net/http2"

	"github.com/serry-dev/serry/wire/internal/h2"
	"github.com/serry-dev/serry/wire/rpc"
)

// A stream is a call without an answer yet.
type stream struct {
	done Done

	// Guarded by the connection's mu.
	id     uint32
	window int64
	rest   []byte // of the request, not sent yet

	// Owned by the reader.
	body     []byte // of the response, prefix included
	response response
}

// A message is what is sent of a request.
type message struct {
	compressed bool
	body       []byte
}

// pack compresses a request if the connection does that and it gets smaller by it.
func (c *Conn) pack(request []byte) message {
	if !c.gzip || len(request) == 0 {
		return message{body: request}
	}
	var b bytes.Buffer
	z := zippers.Get().(*gzip.Writer)
	defer zippers.Put(z)
	z.Reset(&b)
	z.Write(request) // to memory
	z.Close()
	if b.Len() >= len(request) {
		return message{body: request}
	}
	return message{compressed: true, body: b.Bytes()}
}

// zippers are large, and used again.
var zippers = sync.Pool{New: func() any { return gzip.NewWriter(nil) }}

// append appends the message as gRPC sends it.
func (m message) append(b []byte) []byte {
	return append(h2.AppendPrefix(b, m.compressed, len(m.body)), m.body...)
}

// open sends the headers of a call and as much of its request as the windows allow. It runs under
// the lock, in the order of stream numbers.
func (c *Conn) open(s *stream, path string, request message) {
	m := &c.mu
	s.id, s.window = m.nextID, m.peer.window
	m.nextID += 2
	m.streams[s.id] = s
	block := m.headers.block(path)
	m.Out = h2.Head{Length: len(block), Kind: http2.FrameHeaders, Flags: http2.FlagHeadersEndHeaders, Stream: s.id}.Append(m.Out)
	m.Out = append(m.Out, block...)
	size := h2.PrefixBytes + len(request.body)
	if size <= m.peer.frame && int64(size) <= min(m.window, s.window) && len(m.blocked) == 0 {
		m.window -= int64(size)
		s.window -= int64(size)
		m.Out = h2.Head{Length: size, Kind: http2.FrameData, Flags: http2.FlagDataEndStream, Stream: s.id}.Append(m.Out)
		m.Out = request.append(m.Out)
		return
	}
	s.rest = request.append(make([]byte, 0, size))
	m.blocked = append(m.blocked, s)
	c.pump()
}

// pumpBytes bounds what pump makes ready at a time, so that a large request is not copied whole.
const pumpBytes = 1 << 20

// pump sends what the windows allow of the requests that wait, the oldest first. It runs under the lock.
func (c *Conn) pump() {
	m := &c.mu
	m.blocked = slices.DeleteFunc(m.blocked, func(s *stream) bool {
		for len(s.rest) > 0 {
			n := min(int64(len(s.rest)), int64(m.peer.frame), m.window, s.window)
			if n <= 0 || len(m.Out) > pumpBytes {
				return false
			}
			m.window -= n
			s.window -= n
			h := h2.Head{Length: int(n), Kind: http2.FrameData, Stream: s.id}
			if n == int64(len(s.rest)) {
				h.Flags = http2.FlagDataEndStream
			}
			m.Out = append(h.Append(m.Out), s.rest[:n]...)
			s.rest = s.rest[n:]
		}
		s.rest = nil
		return true
	})
}

// An outcome is how a stream ended.
type outcome int

const (
	answered      outcome = iota // the server has sent all of its answer
	resetByServer                // the server has reset the stream
	givenUp                      // by this side
)

// take removes a stream that has ended, and opens a call that waited for its place. It returns nil if
// there is no stream of that number any more.
func (c *Conn) take(id uint32, how outcome) *stream {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.takeLocked(id, how)
}

func (c *Conn) takeLocked(id uint32, how outcome) *stream {
	m := &c.mu
	s := m.streams[id]
	if s == nil {
		return nil
	}
	delete(m.streams, id)
	unsent := len(s.rest) > 0
	if unsent {
		m.blocked = slices.DeleteFunc(m.blocked, func(b *stream) bool { return b == s })
		s.rest = nil
	}
	switch {
	case how == givenUp:
		m.Out = h2.AppendReset(m.Out, id, http2.ErrCodeCancel)
	case how == answered && unsent:
		m.Out = h2.AppendReset(m.Out, id, http2.ErrCodeNo)
	}
	c.admit()
	return s
}

// admit opens calls that waited for the server's limit on streams. It runs under the lock.
func (c *Conn) admit() {
	m := &c.mu
	for len(m.queue) > 0 && len(m.streams) < int(m.peer.streams) {
		q := m.queue[0]
		m.queue[0] = queued{}
		m.queue = m.queue[1:]
		c.open(q.stream, q.path, q.request)
	}
}

// finish gives the answer to the caller. The stream must be out of the connection's tables, and belongs to
// the caller from then on.
func (s *stream) finish(c *Conn) {
	body, st := s.response.end(s.body, c.gzip)
	s.done(body, st, nil)
}

// fail tells the caller that its answer was lost.
func (s *stream) fail(err error) { s.done(nil, rpc.Status{}, err) }

// reset tells the caller what it means that the server ended the stream alone.
func (s *stream) reset(code http2.ErrCode) {
	switch code {
	case http2.ErrCodeRefusedStream:
		s.fail(fmt.Errorf("%w: the server refused the stream", ErrUnsent))
	case http2.ErrCodeNo, http2.ErrCodeCancel:
		s.fail(errors.New("the server ended the stream without an answer"))
	default:
		s.done(nil, resetStatus(code), nil)
	}
}
