package stream

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
)

// A frame is a header, the fields, and for calls and replies a body. The header has five numbers of four
// bytes, little endian:
//
//	 0  checksum of the rest of the header, the fields, and a body that is not large
//	 4  length of the body
//	 8  checksum of a large body, else 0
//	12  length of the fields; the type is the last of the four bytes
//	16  parity: the complement of the exclusive or of the three numbers before
//
// One checksum is enough for a small frame; a second one would cost as much again. A large body has its
// own. So its fields are known to be right before the body comes; and it can be computed once, without
// a lock, and serve again when the call is repeated. The parity is for a reader that has only the header:
// it must not wait, perhaps for ever, for as many bytes as a damaged length announces.
const (
	headerBytes = 20
	summed      = 4 // where the bytes begin that the first checksum is of
	typeByte    = 15
	parityAt    = 16

	largeBody = 16 << 10 // a body from this size on is not copied into the output, and has its own checksum
)

// errDamaged says that bytes have changed between two ends, or within one of them. TCP finds nearly all
// that a network does; the checksums find the rest, and what the ends do themselves.
var errDamaged = errors.New("stream: damaged frame: a checksum does not match")

// castagnoli is the polynomial that processors know.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func checksum(b []byte) uint32 { return crc32.Update(0, castagnoli, b) }

// A bodyInfo is what a header says about a body.
type bodyInfo struct{ length, sum uint32 }

func bodyInfoOf(body []byte) bodyInfo {
	k := bodyInfo{length: uint32(len(body))}
	if k.large() {
		k.sum = checksum(body)
	}
	return k
}

// large says whether the body has its own checksum.
func (k bodyInfo) large() bool { return k.length >= largeBody }

// A header is what the first bytes of a frame say.
type header struct {
	frameType
	sum    uint32 // the first checksum
	fields uint32 // their length
	body   bodyInfo
	parity uint32
}

// begin starts a frame. Its fields follow, and then end.
func begin(b []byte, t frameType) []byte {
	return append(b, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, byte(t), 0, 0, 0, 0)
}

// end completes a frame that begins at start and whose fields are written. It appends the body,
// unless that is large.
func end(b []byte, start int, body []byte, k bodyInfo) []byte {
	fields := uint32(len(b) - start - headerBytes)
	if !k.large() {
		b = append(b, body...)
	}
	frame := b[start:]
	h := header{frameType: frameType(frame[typeByte]), fields: fields, body: k}
	binary.LittleEndian.PutUint32(frame[4:], k.length)
	binary.LittleEndian.PutUint32(frame[8:], k.sum)
	binary.LittleEndian.PutUint32(frame[12:], h.lengthAndType())
	binary.LittleEndian.PutUint32(frame[parityAt:], h.wantParity())
	binary.LittleEndian.PutUint32(frame, checksum(frame[summed:]))
	return b
}

// readHeader reads the header at the beginning of b, which has enough bytes.
func readHeader(b []byte) header {
	n := binary.LittleEndian.Uint32(b[12:])
	return header{
		frameType: frameType(n >> 24),
		sum:       binary.LittleEndian.Uint32(b),
		fields:    n & (1<<24 - 1),
		body:      bodyInfo{binary.LittleEndian.Uint32(b[4:]), binary.LittleEndian.Uint32(b[8:])},
		parity:    binary.LittleEndian.Uint32(b[parityAt:]),
	}
}

func (h header) lengthAndType() uint32 { return h.fields | uint32(h.frameType)<<24 }

// wantParity is the parity of an undamaged header.
func (h header) wantParity() uint32 { return ^(h.body.length ^ h.body.sum ^ h.lengthAndType()) }

// holds says whether the frame at the beginning of b is undamaged, as far as the first checksum says.
func (h header) holds(b []byte) bool {
	end := headerBytes + int(h.fields)
	if !h.body.large() {
		end += int(h.body.length)
	}
	return checksum(b[summed:end]) == h.sum
}

// length is how long the frame is after its header.
func (h header) length() int64 { return int64(h.fields) + int64(h.body.length) }

// A frameLimit is how long a frame may be. The zero value is for a frame that must not come.
type frameLimit struct{ fields, body uint32 }

// The limits of frames without a body, and of calls and replies.
var (
	plainLimit = frameLimit{fields: maxPlain}
	bodyLimit  = frameLimit{fields: maxHead, body: maxBody}
)

// takes says whether the frame is short enough.
func (l frameLimit) takes(h header) bool {
	return l.fields > 0 && h.fields <= l.fields && h.body.length <= l.body
}
