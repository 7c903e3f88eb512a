package collective

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"

	"github.com/serry-dev/serry"
)

var errMalformed = errors.New("malformed frame of a clique")

// A reader takes fields from the payload of a frame. After the first that is missing all are zero.
type reader struct {
	rest   []byte
	failed bool
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
func (r *reader) uint32() uint32 { return binary.LittleEndian.Uint32(r.take(4)) }
func (r *reader) uint64() uint64 { return binary.LittleEndian.Uint64(r.take(8)) }

// count is the length of a list whose entries have at least that many bytes; 0 if the list cannot be there.
func (r *reader) count(entryBytes int) int {
	n := int(r.uint16())
	if n*entryBytes > len(r.rest) {
		r.failed = true
		return 0
	}
	return n
}

func (r *reader) text() string {
	n := int(r.uint16())
	if n > len(r.rest) {
		r.failed = true
		return ""
	}
	return string(r.take(n))
}

func appendText(b []byte, s string) []byte {
	s = s[:min(len(s), math.MaxUint16)]
	b = binary.LittleEndian.AppendUint16(b, uint16(len(s)))
	return append(b, s...)
}

// maxDetail is how much of the detail of an error is told to other members.
const maxDetail = 1 << 10

// append adds the bytes of the error, as other members are told of it.
func (e *Error) append(b []byte) []byte {
	le := binary.LittleEndian
	b = append(b, byte(slices.Index(causes, e.Err)))
	b = le.AppendUint16(b, uint16(e.Origin))
	b = le.AppendUint64(b, e.Seq)
	b = appendText(b, e.Life.Task.Job)
	b = le.AppendUint32(b, uint32(e.Life.Task.Index))
	b = le.AppendUint64(b, uint64(e.Life.Incarnation))
	b = le.AppendUint16(b, uint16(len(e.Ranks)))
	for _, rank := range e.Ranks {
		b = le.AppendUint16(b, uint16(rank))
	}
	return appendText(b, e.Detail[:min(len(e.Detail), maxDetail)])
}

// parseError reads what append wrote.
func parseError(b []byte) (*Error, error) {
	r := reader{rest: b}
	e := new(Error)
	cause := int(r.byte())
	e.Origin, e.Seq = int(r.uint16()), r.uint64()
	e.Life.Task = serry.TaskID{Job: r.text(), Index: int(r.uint32())}
	e.Life.Incarnation = serry.Incarnation(r.uint64())
	for range r.count(2) {
		e.Ranks = append(e.Ranks, int(r.uint16()))
	}
	e.Detail = r.text()
	if r.failed || cause >= len(causes) || !slices.IsSorted(e.Ranks) {
		return nil, errMalformed
	}
	e.Err = causes[cause]
	return e, nil
}
