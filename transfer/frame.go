package transfer

import (
	"encoding/binary"
	"errors"
	"math"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/link"
	"github.com/serry-dev/serry/transfer/internal/match"
)

// frameTypes says by which frame each kind of message travels. A frame has one or more messages of its kind.
var frameTypes = map[match.Kind]link.Type{
	match.Offer: link.Offer, match.Accept: link.Accept, match.Cancel: link.Cancel, match.Done: link.Done,
}

// kindOf is the kind of the messages of a frame, or 0.
func kindOf(t link.Type) match.Kind {
	for kind, frame := range frameTypes {
		if frame == t {
			return kind
		}
	}
	return 0
}

var errMalformed = errors.New("malformed message about a transfer")

const (
	flagReady   = 1 << 0
	flagPlace   = 1 << 1 // the place of the data follows
	flagCarried = 1 << 2 // offers can carry the data; of an Accept: the next one shall
	flagData    = 1 << 3 // all data follow
	flagEarly   = 1 << 4 // the data will be there soon
)

// appendMessage adds the bytes of a message.
func appendMessage(b []byte, m match.Message) []byte {
	le := binary.LittleEndian
	b = le.AppendUint64(b, uint64(m.Number))
	b = le.AppendUint64(b, m.ID.Namespace)
	b = le.AppendUint64(b, m.ID.Key)
	b = le.AppendUint32(b, uint32(m.ID.Src))
	b = le.AppendUint32(b, uint32(m.ID.Dst))
	switch m.Kind {
	case match.Offer:
		b = append(b, offerFlags(m), m.Class)
		b = le.AppendUint64(b, uint64(m.Shape.Bytes))
		b = le.AppendUint64(b, m.Shape.Digest)
		b = appendText(b, m.Shape.Text)
		if m.Place.Known() {
			b = le.AppendUint64(b, m.Place.Arena)
			b = le.AppendUint64(b, uint64(m.Place.Offset))
		}
		b = append(b, m.Data...) // as many as the shape says
	case match.Accept:
		flags := byte(0)
		if m.Carried {
			flags = flagCarried
		}
		b = append(b, flags)
		b = le.AppendUint16(b, uint16(len(m.Missing)))
		for _, r := range m.Missing {
			b = le.AppendUint64(b, uint64(r.From))
			b = le.AppendUint64(b, uint64(r.To))
		}
	case match.Cancel, match.Done:
		b = append(b, byte(m.Verdict.Code))
		b = appendText(b, m.Verdict.Text)
	}
	return b
}

func offerFlags(m match.Message) (flags byte) {
	if m.Ready {
		flags |= flagReady
	}
	if m.Place.Known() {
		flags |= flagPlace
	}
	if m.Carried {
		flags |= flagCarried
	}
	if m.Data != nil {
		flags |= flagData
	}
	if m.Early {
		flags |= flagEarly
	}
	return flags
}

func appendText(b []byte, s string) []byte {
	s = s[:min(len(s), match.MaxText)]
	b = binary.LittleEndian.AppendUint16(b, uint16(len(s)))
	return append(b, s...)
}

// parseMessages reads the messages of a frame. A peer may have sent anything: what is returned is safe to hand to a machine,
// which checks what it means. Data that they carry are in the memory of the frame.
func parseMessages(kind match.Kind, b []byte) ([]match.Message, error) {
	const least = 50 // bytes of the shortest message
	var list []match.Message
	r := reader{rest: b}
	for len(r.rest) > 0 && !r.failed {
		m := r.message(kind)
		if list == nil { // the messages of a frame are much alike
			list = make([]match.Message, 0, len(b)/max(least, len(b)-len(r.rest))+1)
		}
		list = append(list, m)
	}
	if r.failed {
		return nil, errMalformed
	}
	return list, nil
}

// A reader takes fields from the payload of a frame. After the first that is missing or wrong all are zero.
type reader struct {
	rest   []byte
	last   string
	failed bool
}

func (r *reader) message(kind match.Kind) match.Message {
	m := match.Message{Kind: kind, Number: match.Number(r.uint64())}
	m.ID = match.ID{Namespace: r.uint64(), Key: r.uint64(), Src: r.device(), Dst: r.device()}
	switch kind {
	case match.Offer:
		flags := r.byte()
		m.Ready, m.Early, m.Carried = flags&flagReady != 0, flags&flagEarly != 0, flags&flagCarried != 0
		m.Class = r.byte()
		m.Shape = match.Shape{Bytes: r.int64(), Digest: r.uint64(), Text: r.text()}
		if flags&flagPlace != 0 {
			m.Place = match.Place{Arena: r.uint64(), Offset: r.int64()}
			r.failed = r.failed || !m.Place.Known()
		}
		if flags&flagData != 0 {
			m.Data = r.data(m.Shape.Bytes)
		}
		r.failed = r.failed || flags&^(flagReady|flagEarly|flagPlace|flagCarried|flagData) != 0 || m.Class > uint8(link.Bulk)
	case match.Accept:
		flags := r.byte()
		m.Carried = flags == flagCarried
		r.failed = r.failed || flags&^flagCarried != 0
		for range r.count() {
			m.Missing = append(m.Missing, match.Range{From: r.int64(), To: r.int64()})
		}
	case match.Cancel, match.Done:
		m.Verdict = match.Verdict{Code: match.Code(r.byte()), Text: r.text()}
		r.failed = r.failed || kind == match.Cancel && m.Verdict.Code == match.OK // a sender cannot say that all went well
	}
	return m
}

func (r *reader) take(n int) []byte {
	if r.failed || n > len(r.rest) {
		r.failed = true
		return make([]byte, min(n, 8))
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

func (r *reader) byte() byte     { return r.take(1)[0] }
func (r *reader) uint16() uint16 { return binary.LittleEndian.Uint16(r.take(2)) }
func (r *reader) uint64() uint64 { return binary.LittleEndian.Uint64(r.take(8)) }

// int64 is a number that is not negative.
func (r *reader) int64() int64 {
	n := r.uint64()
	r.failed = r.failed || n > math.MaxInt64
	return int64(n)
}

func (r *reader) device() serry.DeviceID {
	n := binary.LittleEndian.Uint32(r.take(4))
	r.failed = r.failed || n > math.MaxInt32
	return serry.DeviceID(n)
}

// count is how many ranges follow.
func (r *reader) count() int {
	n := int(r.uint16())
	if n > match.MaxRanges || n*16 > len(r.rest) {
		r.failed = true
		return 0
	}
	return n
}

// data are the bytes that an offer carries. They belong to the frame.
func (r *reader) data(n int64) []byte {
	if n <= 0 || n > carriedBytes {
		r.failed = true
		return nil
	}
	return r.take(int(n))
}

func (r *reader) text() string {
	n := int(r.uint16())
	if n > match.MaxText || n > len(r.rest) {
		r.failed = true
		return ""
	}
	if text := r.take(n); string(text) != r.last { // buffers that are sent together are mostly alike
		r.last = string(text)
	}
	return r.last
}
