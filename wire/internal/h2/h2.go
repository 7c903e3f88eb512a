// Package h2 is what both sides of gRPC over HTTP/2 have in common: how frames are written, and messages
// compressed. Frames are appended to a buffer rather than written by a [http2.Framer], which would copy
// each of them once more.
package h2

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"

	"golang.org/x/net/http2"

	"github.com/serry-dev/serry/wire/conn"
)

// Sizes and numbers of the protocols.
const (
	HeadBytes     = 9         // of a frame
	PrefixBytes   = 5         // that gRPC puts before a message: a flag and a length
	InitialWindow = 1<<16 - 1 // every window before settings change it
	MaxWindow     = 1<<31 - 1 // also the highest stream number
	MinFrame      = 16 << 10  // the largest frame that every peer takes
	TableBytes    = 4 << 10   // of a header table where settings say nothing else
)

// A Head is the head of a frame.
type Head struct {
	Length int
	Kind   http2.FrameType
	Flags  http2.Flags
	Stream uint32
}

// ParseHead reads the head of a frame; p has at least HeadBytes bytes.
func ParseHead(p []byte) Head {
	return Head{
		Length: int(p[0])<<16 | int(p[1])<<8 | int(p[2]),
		Kind:   http2.FrameType(p[3]),
		Flags:  http2.Flags(p[4]),
		Stream: binary.BigEndian.Uint32(p[5:]) & MaxWindow,
	}
}

// Put writes the head over the first HeadBytes bytes of p.
func (h Head) Put(p []byte) {
	p[0], p[1], p[2] = byte(h.Length>>16), byte(h.Length>>8), byte(h.Length)
	p[3], p[4] = byte(h.Kind), byte(h.Flags)
	binary.BigEndian.PutUint32(p[5:], h.Stream)
}

// Append appends the head, and makes room for the payload in a buffer of package conn.
func (h Head) Append(out []byte) []byte {
	out = conn.Grow(out, HeadBytes+h.Length)
	n := len(out)
	out = out[:n+HeadBytes]
	h.Put(out[n:])
	return out
}

// AppendSettings appends a SETTINGS frame.
func AppendSettings(out []byte, settings ...http2.Setting) []byte {
	out = Head{Length: 6 * len(settings), Kind: http2.FrameSettings}.Append(out)
	for _, s := range settings {
		out = binary.BigEndian.AppendUint16(out, uint16(s.ID))
		out = binary.BigEndian.AppendUint32(out, s.Val)
	}
	return out
}

// AppendSettingsAck appends the acknowledgement of a SETTINGS frame.
func AppendSettingsAck(out []byte) []byte {
	return Head{Kind: http2.FrameSettings, Flags: http2.FlagSettingsAck}.Append(out)
}

// AppendWindowUpdate appends a WINDOW_UPDATE frame: of the connection, if the stream is 0.
func AppendWindowUpdate(out []byte, stream uint32, n int64) []byte {
	return appendUint32(out, http2.FrameWindowUpdate, stream, uint32(n))
}

// AppendReset appends a RST_STREAM frame.
func AppendReset(out []byte, stream uint32, code http2.ErrCode) []byte {
	return appendUint32(out, http2.FrameRSTStream, stream, uint32(code))
}

func appendUint32(out []byte, kind http2.FrameType, stream, n uint32) []byte {
	return binary.BigEndian.AppendUint32(Head{Length: 4, Kind: kind, Stream: stream}.Append(out), n)
}

// AppendPing appends a PING frame, or with FlagPingAck the answer to one.
func AppendPing(out []byte, flags http2.Flags, data [8]byte) []byte {
	return append(Head{Length: len(data), Kind: http2.FramePing, Flags: flags}.Append(out), data[:]...)
}

// AppendGoAway appends a GOAWAY frame.
func AppendGoAway(out []byte, last uint32, code http2.ErrCode, reason string) []byte {
	out = Head{Length: 8 + len(reason), Kind: http2.FrameGoAway}.Append(out)
	out = binary.BigEndian.AppendUint32(out, last)
	out = binary.BigEndian.AppendUint32(out, uint32(code))
	return append(out, reason...)
}

// AppendPrefix appends the prefix of a message of n bytes.
func AppendPrefix(out []byte, compressed bool, n int) []byte {
	var flag byte
	if compressed {
		flag = 1
	}
	return binary.BigEndian.AppendUint32(append(out, flag), uint32(n))
}

// ErrTooLarge says that a message has more bytes than it may.
var ErrTooLarge = errors.New("message is too large")

// ErrNoRoom says that there was no room for what a message expands to.
var ErrNoRoom = errors.New("no room to expand a message")

// Gunzip expands a message to limit bytes at most. It expands the message twice: first to count its bytes, without
// keeping them, then into a buffer of that size. So a message that is too large takes no memory, and one that is not
// leaves no garbage of smaller buffers behind. Before it takes memory it asks room for it, unless room is nil. The
// result is a buffer of package conn, which the caller recycles.
func Gunzip(p []byte, limit int64, room func(bytes int64) bool) ([]byte, error) {
	z := expanders.Get().(*expander)
	defer expanders.Put(z)
	defer z.src.Reset(nil)
	size, err := z.length(p, limit)
	if err != nil {
		return nil, err
	}
	if room != nil && !room(size) {
		return nil, ErrNoRoom
	}
	if err := z.begin(p); err != nil {
		return nil, err
	}
	out := conn.Grow(nil, int(size))[:size]
	if _, err := io.ReadFull(&z.gz, out); err != nil {
		conn.Recycle(out)
		return nil, err
	}
	return out, nil
}

// Small says whether a message expands to limit bytes at most, or not at all.
func Small(p []byte, limit int64) bool {
	z := expanders.Get().(*expander)
	defer expanders.Put(z)
	defer z.src.Reset(nil)
	_, err := z.length(p, limit)
	return !errors.Is(err, ErrTooLarge)
}

// An expander is a gzip reader with its source.
type expander struct {
	gz  gzip.Reader
	src bytes.Reader
}

func (z *expander) begin(p []byte) error {
	z.src.Reset(p)
	return z.gz.Reset(&z.src)
}

// yieldAfter is how many bytes a goroutine expands before it lets others run. The scheduler would leave it the
// processor for 10 ms, and many such goroutines would hold up every other one for as long as they are many.
const yieldAfter = 128 << 10

// length counts the bytes that a message expands to, up to limit.
func (z *expander) length(p []byte, limit int64) (size int64, err error) {
	if err := z.begin(p); err != nil {
		return 0, err
	}
	scratch := conn.Grow(nil, conn.Small)
	defer conn.Recycle(scratch)
	for next := int64(yieldAfter); ; {
		if size > next {
			next += yieldAfter
			runtime.Gosched()
		}
		n, err := z.gz.Read(scratch[:cap(scratch)])
		switch size += int64(n); {
		case size > limit:
			return 0, fmt.Errorf("%w: over %d bytes", ErrTooLarge, limit)
		case errors.Is(err, io.EOF):
			return size, nil
		case err != nil:
			return 0, err
		}
	}
}

var expanders = sync.Pool{New: func() any { return new(expander) }}
