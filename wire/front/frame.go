package front

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/net/http2"

	"github.com/serry-dev/serry/wire/conn"
)

const (
	preface        = http2.ClientPreface
	frameHeaderLen = 9
	prefixLen      = 5 // of a gRPC message
)

// A ConnError is a breach of HTTP/2, or of a limit, that ended a connection.
type ConnError struct {
	Code   http2.ErrCode
	Reason string
}

func (e *ConnError) Error() string { return fmt.Sprintf("%s: %v", e.Reason, e.Code) }

func protocolError(reason string) error { return &ConnError{http2.ErrCodeProtocol, reason} }

// A frameHead is the head of a frame.
type frameHead struct {
	length int
	kind   http2.FrameType
	flags  http2.Flags
	stream uint32
}

// parseFrame reads the head of a frame; p has at least frameHeaderLen bytes.
func parseFrame(p []byte) frameHead {
	return frameHead{
		length: int(p[0])<<16 | int(p[1])<<8 | int(p[2]),
		kind:   http2.FrameType(p[3]),
		flags:  http2.Flags(p[4]),
		stream: binary.BigEndian.Uint32(p[5:]) & maxWindow,
	}
}

// put writes the head over the first frameHeaderLen bytes of p.
func (h frameHead) put(p []byte) {
	p[0], p[1], p[2] = byte(h.length>>16), byte(h.length>>8), byte(h.length)
	p[3], p[4] = byte(h.kind), byte(h.flags)
	binary.BigEndian.PutUint32(p[5:], h.stream)
}

func (h frameHead) append(out []byte) []byte {
	out = conn.Grow(out, frameHeaderLen+h.length)
	n := len(out)
	out = out[:n+frameHeaderLen]
	h.put(out[n:])
	return out
}

func appendSettings(out []byte, settings ...http2.Setting) []byte {
	out = frameHead{length: 6 * len(settings), kind: http2.FrameSettings}.append(out)
	for _, s := range settings {
		out = binary.BigEndian.AppendUint16(out, uint16(s.ID))
		out = binary.BigEndian.AppendUint32(out, s.Val)
	}
	return out
}

func appendWindowUpdate(out []byte, stream uint32, n int64) []byte {
	out = frameHead{length: 4, kind: http2.FrameWindowUpdate, stream: stream}.append(out)
	return binary.BigEndian.AppendUint32(out, uint32(n))
}

func appendReset(out []byte, stream uint32, code http2.ErrCode) []byte {
	out = frameHead{length: 4, kind: http2.FrameRSTStream, stream: stream}.append(out)
	return binary.BigEndian.AppendUint32(out, uint32(code))
}

func appendPing(out []byte, flags http2.Flags, data []byte) []byte {
	out = frameHead{length: 8, kind: http2.FramePing, flags: flags}.append(out)
	return append(out, data[:8]...)
}

func appendGoAway(out []byte, last uint32, code http2.ErrCode, reason string) []byte {
	out = frameHead{length: 8 + len(reason), kind: http2.FrameGoAway}.append(out)
	out = binary.BigEndian.AppendUint32(out, last)
	out = binary.BigEndian.AppendUint32(out, uint32(code))
	return append(out, reason...)
}
