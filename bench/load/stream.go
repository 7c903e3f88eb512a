package load

import (
	"encoding/binary"
	"net/url"
	"slices"
	"strconv"
	"sync"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A stream is a call under way.
type stream struct {
	done Done

	// Guarded by the connection's mu.
	id     uint32
	window int64
	rest   []byte // of the request, not sent yet

	// Owned by the reader.
	reply   []byte // prefix included
	http    string // status of the response
	status  string // grpc-status, empty until it has come
	message string // grpc-message, as sent
}

// streams are used again, with their buffers: a load makes thousands a second.
var streams = sync.Pool{New: func() any { return new(stream) }}

func newStream(done Done) *stream {
	s := streams.Get().(*stream)
	s.done = done
	return s
}

// finish tells the caller the end. The stream must be out of the connection's tables.
func (s *stream) finish(err error) {
	var body []byte
	if err == nil {
		body, err = s.result()
	}
	s.done(body, err)
	reply := s.reply[:0]
	if cap(reply) > keepBytes {
		reply = nil
	}
	*s = stream{reply: reply}
	streams.Put(s)
}

// result reads what the server answered.
func (s *stream) result() ([]byte, error) {
	switch {
	case s.status == "0":
		return s.body()
	case s.status != "":
		return nil, s.failure()
	case s.http != "200":
		return nil, status.Errorf(codes.Unknown, "response has HTTP status %q", s.http)
	}
	return nil, status.Error(codes.Internal, "response has no grpc-status")
}

func (s *stream) body() ([]byte, error) {
	if len(s.reply) < prefixBytes {
		return nil, status.Errorf(codes.Internal, "reply of %d bytes has no message", len(s.reply))
	}
	length := binary.BigEndian.Uint32(s.reply[1:])
	if s.reply[0] != 0 || uint64(length) != uint64(len(s.reply)-prefixBytes) {
		return nil, status.Errorf(codes.Internal, "reply of %d bytes: flag %d and length %d do not fit one message", len(s.reply), s.reply[0], length)
	}
	return s.reply[prefixBytes:], nil
}

func (s *stream) failure() error {
	code, err := strconv.ParseUint(s.status, 10, 32)
	if err != nil || code > uint64(codes.Unauthenticated) {
		code = uint64(codes.Unknown)
	}
	message, err := url.PathUnescape(s.message)
	if err != nil {
		message = s.message
	}
	return status.Error(codes.Code(code), message)
}

// open sends the headers of a call and as much of its request as the windows allow. It runs under
// the lock, in the order of stream numbers.
func (c *Conn) open(s *stream, method string, request []byte) {
	m := &c.mu
	s.id, s.window = m.nextID, m.peer.window
	m.nextID += 2
	m.streams[s.id] = s
	m.out = appendHeaders(m.out, s.id, m.headers.block(method))
	size := prefixBytes + len(request)
	if size <= m.peer.frame && int64(size) <= min(m.window, s.window) && len(m.blocked) == 0 {
		m.window -= int64(size)
		s.window -= int64(size)
		m.out = appendMessage(m.out, s.id, request)
		return
	}
	s.rest = append(appendPrefix(make([]byte, 0, size), len(request)), request...)
	m.blocked = append(m.blocked, s)
	c.pump()
}

// pump sends what the windows allow of the requests that wait, the oldest first.
func (c *Conn) pump() {
	m := &c.mu
	m.blocked = slices.DeleteFunc(m.blocked, func(s *stream) bool {
		for len(s.rest) > 0 {
			n := min(int64(len(s.rest)), int64(m.peer.frame), m.window, s.window)
			if n <= 0 {
				return false
			}
			m.window -= n
			s.window -= n
			m.out = appendData(m.out, s.id, n == int64(len(s.rest)), s.rest[:n])
			s.rest = s.rest[n:]
		}
		s.rest = nil
		return true
	})
}

// How a stream came to its end.
type ending int

const (
	answered      ending = iota // the server is done with it
	resetByServer               // the server has no more to say or hear
	givenUp                     // by us
)

// take removes a stream that has come to its end, and opens one that waited for it. Nil: there is
// none of that number any more.
func (c *Conn) take(id uint32, how ending) *stream {
	m := &c.mu
	m.Lock()
	defer m.Unlock()
	s := m.streams[id]
	if s == nil {
		return nil
	}
	delete(m.streams, id)
	unsent := len(s.rest) > 0
	if unsent {
		m.blocked = slices.DeleteFunc(m.blocked, func(b *stream) bool { return b == s })
	}
	switch {
	case how == givenUp:
		m.out = appendReset(m.out, id, http2.ErrCodeCancel)
	case how == answered && unsent:
		m.out = appendReset(m.out, id, http2.ErrCodeNo)
	}
	c.admit()
	return s
}

// admit opens calls that waited for the server's limit on streams.
func (c *Conn) admit() {
	m := &c.mu
	for len(m.queue) > 0 && len(m.streams) < int(m.peer.streams) {
		q := m.queue[0]
		m.queue[0] = queued{}
		m.queue = m.queue[1:]
		c.open(q.stream, q.method, q.request)
	}
}
