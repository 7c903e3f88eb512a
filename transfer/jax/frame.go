package jax

import (
	"errors"
	"fmt"
	"io"

	"encoding/binary"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/serry-dev/serry/transfer/offer"
)

const (
	// maxFrame is how long a message on a control connection may be (TR-W-4).
	maxFrame = 4092

	// maxIndexes is how many buffers one message requests (TR-SZE-6).
	maxIndexes = 256

	// maxText is how long the text of an error may be, so that its message is a frame (TR-W-17).
	maxText = 2048
)

// A message is what a frame of the control connection holds: a pullRequest, packet, failure, establish or halfClose.
type message interface {
	// appendTo appends the number of the message among all kinds, and its bytes.
	appendTo(out []byte) []byte
}

// A pullRequest asks for buffers of an offer. The first of them is delivered to request, the next to request+1.
type pullRequest struct {
	offer   offer.ID
	indexes []uint64
	request uint64
	until   int64 // microseconds since 1970, 0 if there is no end
}

// A packet says that the next size bytes of a lane are part of a buffer.
type packet struct {
	request, lane uint64
	offset, size  uint64
	largest       bool // no other part of the buffer has a greater offset (TR-W-16)
}

// A failure says why a part of a buffer does not come. It counts as a packet (TR-W-17).
type failure struct {
	request      uint64
	offset, size uint64
	largest      bool
	text         string
}

// An establish is the first message of each side. That of the side that was dialled says where the lanes are.
type establish struct {
	addresses []string
	uuids     []uint64 // the first is that of lane 0, the others count up from it (TR-W-10)
}

// A halfClose says that its sender requests no more.
type halfClose struct{}

// The numbers of the messages in the one-of, see the table of section 3.3.
const (
	kindPull protowire.Number = iota + 1
	kindPacket
	kindEstablish
	kindHalfClose
	kindFailure
)

func (m pullRequest) appendTo(out []byte) []byte {
	body := number(nil, 1, uint64(m.offer))
	body = packed(body, 2, m.indexes)
	body = number(body, 3, m.request)
	if m.until != 0 {
		body = number(body, 4, uint64(m.until))
	}
	return bytesField(out, kindPull, body)
}

func (m packet) appendTo(out []byte) []byte {
	body := number(nil, 1, m.request)
	body = number(body, 2, m.lane)
	body = number(body, 3, m.offset)
	body = number(body, 4, m.size)
	return bytesField(out, kindPacket, flag(body, 5, m.largest))
}

func (m failure) appendTo(out []byte) []byte {
	body := number(nil, 1, m.request)
	body = number(body, 2, m.offset)
	body = number(body, 3, m.size)
	body = flag(body, 4, m.largest)
	if m.text != "" {
		body = bytesField(body, 5, []byte(m.text[:min(len(m.text), maxText)]))
	}
	return bytesField(out, kindFailure, body)
}

func (m establish) appendTo(out []byte) []byte {
	var body []byte
	for _, a := range m.addresses {
		body = bytesField(body, 2, []byte(a))
	}
	return bytesField(out, kindEstablish, packed(body, 3, m.uuids))
}

func (halfClose) appendTo(out []byte) []byte { return bytesField(out, kindHalfClose, nil) }

// number appends a field that is absent when it is 0 (TR-W-7).
func number(out []byte, field protowire.Number, v uint64) []byte {
	if v == 0 {
		return out
	}
	return protowire.AppendVarint(protowire.AppendTag(out, field, protowire.VarintType), v)
}

func flag(out []byte, field protowire.Number, v bool) []byte {
	return number(out, field, protowire.EncodeBool(v))
}

func bytesField(out []byte, field protowire.Number, v []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(out, field, protowire.BytesType), v)
}

func packed(out []byte, field protowire.Number, all []uint64) []byte {
	if len(all) == 0 {
		return out
	}
	var body []byte
	for _, v := range all {
		body = protowire.AppendVarint(body, v)
	}
	return bytesField(out, field, body)
}

// frame is a message with its length in front, as it stands on the wire (TR-W-4).
func frame(m message) []byte {
	out := m.appendTo(make([]byte, 4, 64))
	binary.LittleEndian.PutUint32(out, uint32(len(out)-4))
	return out
}

var (
	errMalformed = errors.New("malformed message")
	errNoMessage = errors.New("message without content")
)

// readFrame reads a message into buf, which has room for maxFrame bytes.
func readFrame(r io.Reader, buf []byte) (message, error) {
	if _, err := io.ReadFull(r, buf[:4]); err != nil {
		return nil, err
	}
	size := binary.LittleEndian.Uint32(buf)
	if size > maxFrame {
		return nil, fmt.Errorf("%w: %d bytes, over %d", errMalformed, size, maxFrame)
	}
	if _, err := io.ReadFull(r, buf[:size]); err != nil {
		return nil, noEOF(err)
	}
	return decode(buf[:size])
}

// noEOF is an error inside a message, where an end is not expected.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// decode reads a message. One that has none of the known kinds ends the connection (TR-W-26); the reference ends its process
// (TR-H-8).
func decode(data []byte) (message, error) {
	var m message
	err := fields(data, func(field protowire.Number, v value) error {
		var err error
		switch field {
		case kindPull:
			m, err = decodePull(v.bytes)
		case kindPacket:
			m, err = decodePacket(v.bytes)
		case kindEstablish:
			m, err = decodeEstablish(v.bytes)
		case kindHalfClose:
			m = halfClose{}
		case kindFailure:
			m, err = decodeFailure(v.bytes)
		}
		return err
	})
	if err == nil && m == nil {
		err = errNoMessage
	}
	return m, err
}

func decodePull(data []byte) (m pullRequest, err error) {
	err = fields(data, func(field protowire.Number, v value) (err error) {
		switch field {
		case 1:
			m.offer = offer.ID(v.number)
		case 2:
			m.indexes, err = v.list(m.indexes)
		case 3:
			m.request = v.number
		case 4:
			m.until = int64(v.number)
		}
		return err
	})
	return m, err
}

func decodePacket(data []byte) (m packet, err error) {
	err = fields(data, func(field protowire.Number, v value) error {
		switch field {
		case 1:
			m.request = v.number
		case 2:
			m.lane = v.number
		case 3:
			m.offset = v.number
		case 4:
			m.size = v.number
		case 5:
			m.largest = v.number != 0
		}
		return nil
	})
	return m, err
}

func decodeFailure(data []byte) (m failure, err error) {
	err = fields(data, func(field protowire.Number, v value) error {
		switch field {
		case 1:
			m.request = v.number
		case 2:
			m.offset = v.number
		case 3:
			m.size = v.number
		case 4:
			m.largest = v.number != 0
		case 5:
			m.text = string(v.bytes)
		}
		return nil
	})
	return m, err
}

func decodeEstablish(data []byte) (m establish, err error) {
	err = fields(data, func(field protowire.Number, v value) (err error) {
		switch field {
		case 2:
			m.addresses = append(m.addresses, string(v.bytes))
		case 3:
			m.uuids, err = v.list(m.uuids)
		}
		return err
	})
	return m, err
}

// A value is that of one field: a number, or bytes.
type value struct {
	kind   protowire.Type
	number uint64
	bytes  []byte
}

// list appends the numbers of a repeated field, which stand in one field or in several.
func (v value) list(all []uint64) ([]uint64, error) {
	if v.kind == protowire.VarintType {
		return append(all, v.number), nil
	}
	for rest := v.bytes; len(rest) > 0; {
		n, size := protowire.ConsumeVarint(rest)
		if size < 0 {
			return nil, errMalformed
		}
		all, rest = append(all, n), rest[size:]
	}
	return all, nil
}

// fields calls take with each field of a message. Fields that take does not know are left out, as in every message of
// protocol buffers.
func fields(data []byte, take func(protowire.Number, value) error) error {
	for len(data) > 0 {
		field, kind, size := protowire.ConsumeTag(data)
		if size < 0 {
			return errMalformed
		}
		data = data[size:]
		v := value{kind: kind}
		switch kind {
		case protowire.VarintType:
			v.number, size = protowire.ConsumeVarint(data)
		case protowire.BytesType:
			v.bytes, size = protowire.ConsumeBytes(data)
		default:
			size = protowire.ConsumeFieldValue(field, kind, data)
		}
		if size < 0 {
			return errMalformed
		}
		if err := take(field, v); err != nil {
			return err
		}
		data = data[size:]
	}
	return nil
}
