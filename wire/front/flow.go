package front

import (
	"encoding/binary"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/codes"

	"github.com/serry-dev/serry/wire/conn"
	"github.com/serry-dev/serry/wire/internal/h2"
)

// A sender holds the replies that do not fit into the windows of the peer, or into the output while
// the peer is slow. Guarded by conn.mu.
type sender struct {
	window  int64 // of the connection
	initial int64 // of a new stream
	sends   map[uint32]*send
	ready   []*send // those with room in their own window, served in turn
	bytes   int64   // of all sends, not yet encoded
	moved   uint64  // bytes of DATA encoded, for progress
}

// A send is a reply that waits for room.
type send struct {
	stream  uint32
	method  call
	http    int  // HTTP status of a reply that is not gRPC, or 0
	unended bool // the peer has not ended its request
	body    []byte
	sent    int   // bytes, the prefix of a gRPC message included
	window  int64 // of the stream
	begun   bool  // headers are out
	queued  bool  // on the ready list
	gone    bool  // cancelled
}

// size is how many bytes of DATA the reply takes.
func (s *send) size() int {
	if s.http != 0 {
		return len(s.body)
	}
	return h2.PrefixBytes + len(s.body)
}

func (s *sender) init() {
	s.window, s.initial = h2.InitialWindow, h2.InitialWindow
	s.sends = make(map[uint32]*send)
}

func (s *sender) empty() bool { return len(s.sends) == 0 }

func (s *sender) len() int { return len(s.sends) }

func (s *sender) has(stream uint32) bool { return s.sends[stream] != nil }

// cancel forgets the reply of a stream and says whether there was one.
func (s *sender) cancel(stream uint32) bool {
	snd := s.sends[stream]
	if snd == nil {
		return false
	}
	snd.gone = true
	s.bytes -= int64(snd.size() - snd.sent)
	delete(s.sends, stream)
	return true
}

func (s *sender) drop() {
	clear(s.sends)
	s.ready, s.bytes = nil, 0
}

// push puts a reply at the end of the ready list if its stream has room.
func (s *sender) push(snd *send) {
	if !snd.queued && snd.window > 0 {
		snd.queued = true
		s.ready = append(s.ready, snd)
	}
}

// sendMessage replies with a message: at once if it fits everywhere, else in turn; mu is held.
func (c *connection) sendMessage(stream uint32, k call, body []byte) {
	s := &c.mu.sender
	need := h2.PrefixBytes + len(body)
	room := min(s.initial+c.mu.credit[stream], s.window, h2.MinFrame)
	if int64(need) > room || len(s.ready) > 0 || c.mu.Backlog() > conn.PauseOutput {
		c.enqueue(&send{stream: stream, method: k & callMethod, body: body})
		return
	}
	delete(c.mu.credit, stream)
	snd := send{stream: stream, method: k & callMethod, body: body}
	c.appendHead(&snd)
	c.appendData(&snd, need)
	c.appendTrailers(stream)
	c.count(k, codes.OK)
}

// enqueue puts a reply among those that wait and sends what is possible; mu is held.
func (c *connection) enqueue(snd *send) {
	s := &c.mu.sender
	snd.window = s.initial + c.mu.credit[snd.stream]
	delete(c.mu.credit, snd.stream)
	s.sends[snd.stream] = snd
	s.bytes += int64(snd.size())
	s.push(snd)
	c.pump()
	if !s.empty() {
		c.watch()
	}
}

// pump encodes waiting replies as far as windows allow, a little of each in turn, and not more than
// the socket will want soon; mu is held.
func (c *connection) pump() {
	s := &c.mu.sender
	for len(s.ready) > 0 && s.window > 0 && c.mu.Backlog() < pumpOutput {
		snd := s.ready[0]
		s.ready = s.ready[1:]
		if snd.queued = false; snd.gone || snd.window <= 0 { // settings may have shut it since
			continue
		}
		if !snd.begun {
			snd.begun = true
			c.appendHead(snd)
		}
		n := int(min(int64(snd.size()-snd.sent), h2.MinFrame, snd.window, s.window))
		c.appendData(snd, n)
		s.bytes -= int64(n)
		if snd.sent < snd.size() {
			s.push(snd)
			continue
		}
		delete(s.sends, snd.stream)
		if snd.http == 0 {
			c.appendTrailers(snd.stream)
			c.count(snd.method, codes.OK)
		} else if snd.unended {
			c.mu.Out = h2.AppendReset(c.mu.Out, snd.stream, http2.ErrCodeNo)
		}
	}
}

// appendData appends a DATA frame with the next n bytes of a reply; mu is held.
func (c *connection) appendData(snd *send, n int) {
	h := h2.Head{Length: n, Kind: http2.FrameData, Stream: snd.stream}
	if snd.http != 0 && snd.sent+n == snd.size() {
		h.Flags = http2.FlagDataEndStream
	}
	out := h.Append(c.mu.Out)
	end := snd.sent + n
	at := snd.sent
	if snd.http == 0 {
		if at < h2.PrefixBytes {
			var prefix [h2.PrefixBytes]byte
			binary.BigEndian.PutUint32(prefix[1:], uint32(len(snd.body)))
			out = append(out, prefix[at:min(end, h2.PrefixBytes)]...)
		}
		at, end = max(at-h2.PrefixBytes, 0), max(end-h2.PrefixBytes, 0)
	}
	c.mu.Out = append(out, snd.body[at:end]...)
	snd.sent += n
	snd.window -= int64(n)
	c.mu.sender.window -= int64(n)
	c.mu.sender.moved += uint64(n)
}

// windowFrame takes a WINDOW_UPDATE (F-34).
func (c *connection) windowFrame(h h2.Head, p []byte) error {
	if len(p) != 4 {
		return &ConnError{http2.ErrCodeFrameSize, "WINDOW_UPDATE length"}
	}
	n := int64(binary.BigEndian.Uint32(p) & h2.MaxWindow)
	if h.Stream != 0 && c.idleStream(h.Stream) {
		return protocolError("WINDOW_UPDATE on an idle stream")
	}
	c.mu.Lock()
	if moved := c.mu.sender.moved; moved != c.in.dataSeen {
		c.in.dataSeen, c.in.idle.level = moved, 0
	}
	code := c.widen(h.Stream, n)
	c.pump()
	c.mu.Unlock()
	switch {
	case code == http2.ErrCodeNo:
		return c.idleFrame()
	case h.Stream == 0:
		return &ConnError{code, "WINDOW_UPDATE"}
	}
	return c.resetStream(h.Stream, code)
}

// widen adds to a window of the peer; mu is held.
func (c *connection) widen(stream uint32, n int64) http2.ErrCode {
	s := &c.mu.sender
	if stream == 0 {
		s.window += n
		return judgeWindow(s.window, n)
	}
	if snd := s.sends[stream]; snd != nil {
		snd.window += n
		s.push(snd)
		return judgeWindow(snd.window, n)
	}
	if _, ok := c.mu.open[stream]; !ok && c.request(stream) == nil {
		return http2.ErrCodeNo // finished
	}
	c.mu.credit[stream] += n
	return judgeWindow(s.initial+c.mu.credit[stream], n)
}

func judgeWindow(window, n int64) http2.ErrCode {
	switch {
	case n == 0:
		return http2.ErrCodeProtocol
	case window > h2.MaxWindow:
		return http2.ErrCodeFlowControl
	}
	return http2.ErrCodeNo
}

// setInitialWindow changes the windows of all streams, open ones too, and says whether that is
// possible; mu is held.
func (c *connection) setInitialWindow(n int64) bool {
	s := &c.mu.sender
	change := n - s.initial
	s.initial = n
	for _, credit := range c.mu.credit {
		if n+credit > h2.MaxWindow {
			return false
		}
	}
	for _, snd := range s.sends {
		if snd.window += change; snd.window > h2.MaxWindow {
			return false
		}
		s.push(snd)
	}
	return true
}
