package stream

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
)

// A frame is a header, the fields, and for calls and replies a body. The header has five numbers of four
// bytes, little endian:
//
//	 0  length of the body
//	 4  checksum of the body
//	 8  length of the fields; the type is the last of the four bytes
//	12  checksum of the fields
//	16  checksum of the four numbers before
//
// So a reader knows that a length is right before it waits for as many bytes, and that fields are right
// before it acts on them, while the body is still to come. The checksum of a body does not depend on
// what goes before it: it is computed once, without a lock, and serves again when the call is repeated.
const (
	headerBytes  = 20
	fieldsLength = 8
	fieldsSum    = 12
	headerSum    = 16
)

// errDamaged says that bytes have changed between two ends, or within one of them. TCP finds nearly all
// that a network does; the checksums find the rest, and what the ends do themselves.
var errDamaged = errors.New("stream: damaged frame: a checksum does not match")

// castagnoli is the polynomial that processors know.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func checksum(b []byte) uint32 { return crc32.Update(0, castagnoli, b) }

// A bulk is what a header says of a body.
type bulk struct{ length, sum uint32 }

func bulkOf(body []byte) bulk { return bulk{uint32(len(body)), checksum(body)} }

// A header is what the first bytes of a frame say.
type header struct {
	frameType
	fields bulk
	body   bulk
}

// begin starts a frame. Its fields follow, and then end.
func begin(b []byte, t frameType) []byte {
	return append(b, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, byte(t), 0, 0, 0, 0, 0, 0, 0, 0)
}

// end completes the frame that begins at start: its fields are written, its body is still to come.
func end(b []byte, start int, body bulk) []byte {
	h, fields := b[start:start+headerBytes], b[start+headerBytes:]
	binary.LittleEndian.PutUint32(h, body.length)
	binary.LittleEndian.PutUint32(h[4:], body.sum)
	t := h[fieldsLength+3]
	binary.LittleEndian.PutUint32(h[fieldsLength:], uint32(len(fields))|uint32(t)<<24)
	binary.LittleEndian.PutUint32(h[fieldsSum:], checksum(fields))
	binary.LittleEndian.PutUint32(h[headerSum:], checksum(h[:headerSum]))
	return b
}

// readHeader reads the header at the beginning of b, which has enough bytes.
func readHeader(b []byte) (h header, err error) {
	if binary.LittleEndian.Uint32(b[headerSum:]) != checksum(b[:headerSum]) {
		return header{}, errDamaged
	}
	n := binary.LittleEndian.Uint32(b[fieldsLength:])
	return header{
		frameType: frameType(n >> 24),
		fields:    bulk{n & (1<<24 - 1), binary.LittleEndian.Uint32(b[fieldsSum:])},
		body:      bulk{binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:])},
	}, nil
}

// length is how long the frame is after its header.
func (h header) length() int { return int(h.fields.length) + int(h.body.length) }

// last is the last part of the frame.
func (h header) last() bulk {
	if h.body.length > 0 {
		return h.body
	}
	return h.fields
}

// holds says whether b is what the header announced.
func (k bulk) holds(b []byte) bool { return checksum(b) == k.sum }

// A room is how long a frame may be. The zero room is that of a frame that must not come.
type room struct{ fields, body uint32 }

// The rooms of frames without a body, and of calls and replies.
var (
	plain = room{fields: maxPlain}
	ample = room{fields: maxHead, body: maxBody}
)

// takes says whether the frame is short enough.
func (r room) takes(h header) bool {
	return r.fields > 0 && h.fields.length <= r.fields && h.body.length <= r.body
}
