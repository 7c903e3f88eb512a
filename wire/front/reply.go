package front

import (
	"encoding/base64"
	"strconv"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/codes"

	"github.com/serry-dev/serry/wire/conn"
	"github.com/serry-dev/serry/wire/internal/h2"
	"github.com/serry-dev/serry/wire/rpc"
)

// Reply implements rpc.Conn.
func (c *connection) Reply(id rpc.CallID, body []byte, st rpc.Status) {
	if id > h2.MaxWindow {
		return
	}
	stream := uint32(id)
	c.mu.Lock()
	defer c.mu.Unlock()
	k, ok := c.mu.open[stream]
	if !ok || k&callReceiving != 0 {
		return
	}
	c.closeCall(stream, k)
	if st.OK() {
		c.sendMessage(stream, k, body)
	} else {
		c.sendStatus(stream, k, st, nil)
	}
}

// closeCall takes a call off the open ones; mu is held.
func (c *connection) closeCall(stream uint32, k call) {
	delete(c.mu.open, stream)
	if k&callTimed != 0 {
		c.mu.timed--
		c.srv.scan.forget(1)
	}
}

// sendStatus ends a call without a message: one block is headers and trailers (C-WIRE-7). extra is
// appended to it. mu is held.
func (c *connection) sendStatus(stream uint32, k call, st rpc.Status, extra []byte) {
	c.count(k, st.Code)
	delete(c.mu.credit, stream)
	start := c.startBlock()
	c.mu.Out = append(c.mu.Out, staticStatus200)
	c.mu.Out = c.mu.coder.contentType(c.mu.Out)
	c.mu.Out = appendLiteral(c.mu.Out, "grpc-status", strconv.Itoa(int(st.Code)))
	details := base64.RawStdEncoding.EncodedLen(len(st.Details))
	if st.Message != "" {
		c.mu.Out = appendLiteral(c.mu.Out, "grpc-message", percentEncode(st.Message, maxTrailerBytes-details))
	}
	if st.Details != nil {
		c.mu.Out = appendLiteral(c.mu.Out, "grpc-status-details-bin", base64.RawStdEncoding.EncodeToString(st.Details))
	}
	c.mu.Out = append(c.mu.Out, extra...)
	c.endBlock(start, stream, true)
}

// acceptEncoding goes with the refusal of a compression.
var acceptEncoding = appendLiteral(nil, "grpc-accept-encoding", "identity, gzip")

// sendHTTP answers what is not gRPC; mu is held.
func (c *connection) sendHTTP(stream uint32, code int, ended bool) {
	s := &send{stream: stream, http: code, unended: !ended}
	switch code {
	case 405:
		s.body = []byte("gRPC needs the method POST\n")
	default:
		s.body = []byte("gRPC needs the content type application/grpc\n")
	}
	c.enqueue(s)
}

// appendHead begins a reply that has a body; mu is held.
func (c *connection) appendHead(s *send) {
	start := c.startBlock()
	if s.http == 0 {
		c.mu.Out = append(c.mu.Out, staticStatus200)
		c.mu.Out = c.mu.coder.contentType(c.mu.Out)
	} else {
		c.mu.Out = appendLiteral(c.mu.Out, ":status", strconv.Itoa(s.http))
		c.mu.Out = appendLiteral(c.mu.Out, "content-type", "text/plain; charset=utf-8")
	}
	c.endBlock(start, s.stream, false)
}

// appendTrailers ends a reply that went well; mu is held.
func (c *connection) appendTrailers(stream uint32) {
	start := c.startBlock()
	c.mu.Out = c.mu.coder.statusOK(c.mu.Out)
	c.endBlock(start, stream, true)
}

// startBlock leaves room for a frame head and returns where.
func (c *connection) startBlock() (start int) {
	const enough = 256
	out := conn.Grow(c.mu.Out, enough)
	start = len(out)
	c.mu.Out = c.mu.coder.start(out[:start+h2.HeadBytes])
	return start
}

// endBlock makes the block begun at start a HEADERS frame, with CONTINUATION frames if it is long.
func (c *connection) endBlock(start int, stream uint32, ends bool) {
	h := h2.Head{Length: len(c.mu.Out) - start - h2.HeadBytes, Kind: http2.FrameHeaders, Flags: http2.FlagHeadersEndHeaders, Stream: stream}
	if ends {
		h.Flags |= http2.FlagHeadersEndStream
	}
	if h.Length <= h2.MinFrame {
		h.Put(c.mu.Out[start:])
		return
	}
	full := start + h2.HeadBytes + h2.MinFrame
	rest := append([]byte(nil), c.mu.Out[full:]...)
	c.mu.Out = c.mu.Out[:full]
	h.Length, h.Flags = h2.MinFrame, h.Flags&^http2.FlagHeadersEndHeaders
	h.Put(c.mu.Out[start:])
	for len(rest) > 0 {
		n := min(len(rest), h2.MinFrame)
		more := h2.Head{Length: n, Kind: http2.FrameContinuation, Stream: stream}
		if n == len(rest) {
			more.Flags = http2.FlagContinuationEndHeaders
		}
		c.mu.Out = append(more.Append(c.mu.Out), rest[:n]...)
		rest = rest[n:]
	}
}

func (c *connection) count(k call, code codes.Code) {
	m := c.srv.byIndex[k&callMethod]
	if int(code) >= len(m.calls) {
		code = codes.Unknown
	}
	m.calls[code].Add(1)
}

// A blockCoder encodes header blocks. The two fixed fields go into the peer's dynamic table with
// their first use; all else is literal. Blocks must be written in the order they were encoded.
type blockCoder struct {
	literal bool // the peer wants a smaller table: none is used
	shrink  bool // tell it so with the next block
	entries int  // in the table: content-type first, then grpc-status
}

// HPACK codes used here (RFC 7541).
const (
	staticStatus200   = 0x80 | 8
	staticContentType = 31
	firstDynamic      = 62
	indexed           = 0x80
	literalIndexed    = 0x40
	literalNever      = 0x10
	tableSizeZero     = 0x20
)

// limit takes over the table size that the peer allows. Anything less than the default turns the
// table off for good, which is allowed whatever it says later.
func (b *blockCoder) limit(size uint32) {
	if size < h2.TableBytes && !b.literal {
		b.literal, b.shrink = true, true
	}
}

// start begins a block.
func (b *blockCoder) start(out []byte) []byte {
	if b.shrink {
		b.shrink = false
		out = append(out, tableSizeZero)
	}
	return out
}

func (b *blockCoder) contentType(out []byte) []byte {
	const value = "application/grpc"
	switch {
	case b.literal:
		return appendLiteral(out, "content-type", value)
	case b.entries > 0:
		return append(out, indexed|byte(firstDynamic+b.entries-1))
	}
	b.entries = 1
	out = append(out, literalIndexed|staticContentType, byte(len(value)))
	return append(out, value...)
}

func (b *blockCoder) statusOK(out []byte) []byte {
	const name = "grpc-status"
	switch {
	case b.literal:
		return appendLiteral(out, name, "0")
	case b.entries > 1:
		return append(out, indexed|firstDynamic)
	}
	b.entries = 2
	out = append(out, literalIndexed, byte(len(name)))
	out = append(out, name...)
	return append(out, 1, '0')
}

// appendLiteral appends a field that no table shall keep.
func appendLiteral(out []byte, name, value string) []byte {
	out = append(out, literalNever)
	out = appendString(out, name)
	return appendString(out, value)
}

func appendString(out []byte, s string) []byte {
	const most = 1<<7 - 1
	n := len(s)
	if n < most {
		out = append(out, byte(n))
	} else {
		out = append(out, most)
		for n -= most; n >= 0x80; n >>= 7 {
			out = append(out, byte(n)|0x80)
		}
		out = append(out, byte(n))
	}
	return append(out, s...)
}

// percentEncode encodes a grpc-message, cut at a whole character where it would exceed limit bytes.
func percentEncode(s string, limit int) string {
	const hex = "0123456789ABCDEF"
	out := make([]byte, 0, min(len(s)+16, max(limit, 0)))
	for _, r := range s {
		start := len(out)
		for _, b := range []byte(string(r)) {
			if b < ' ' || b > '~' || b == '%' {
				out = append(out, '%', hex[b>>4], hex[b&15])
			} else {
				out = append(out, b)
			}
		}
		if len(out) > limit {
			return string(out[:start])
		}
	}
	return string(out)
}
