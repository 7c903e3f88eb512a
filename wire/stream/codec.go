package stream

import (
	"encoding/binary"

	"github.com/serry-dev/serry"
)

// A codec writes the fields of a frame, or reads them, one after the other. After a field that is
// malformed bad is set, and the fields that follow are zero. Fields of a later version come after the last
// one that is known, and are skipped.
type codec struct {
	b       []byte // what is written, or left to read
	reading bool
	bad     bool
	job     string // that was read last: nearly all frames name the same one
}

// read begins to read fields.
func (c *codec) read(b []byte) { c.b, c.reading, c.bad = b, true, false }

func (c *codec) fail() { c.b, c.bad = nil, true }

// err says whether every field was well-formed.
func (c *codec) err() error {
	if c.bad {
		return errFrame
	}
	return nil
}

// octet is a field of one byte.
func octet[T ~uint8](c *codec, v *T) {
	switch {
	case !c.reading:
		c.b = append(c.b, byte(*v))
	case len(c.b) < 1:
		c.fail()
	default:
		*v = T(c.b[0])
		c.b = c.b[1:]
	}
}

// id is a field of eight bytes.
func id[T ~uint64](c *codec, v *T) {
	switch {
	case !c.reading:
		c.b = binary.LittleEndian.AppendUint64(c.b, uint64(*v))
	case len(c.b) < 8:
		c.fail()
	default:
		*v = T(binary.LittleEndian.Uint64(c.b))
		c.b = c.b[8:]
	}
}

// number is a varint.
func number[T ~uint64](c *codec, v *T) {
	if !c.reading {
		c.b = binary.AppendUvarint(c.b, uint64(*v))
		return
	}
	n, size := binary.Uvarint(c.b)
	if size <= 0 {
		c.fail()
		return
	}
	*v = T(n)
	c.b = c.b[size:]
}

// view reads bytes that stay in the frame, no more than most.
func (c *codec) view(most int) []byte {
	var n uint64
	number(c, &n)
	if n > uint64(most) || n > uint64(len(c.b)) {
		c.fail()
		return nil
	}
	v := c.b[:n:n]
	c.b = c.b[n:]
	return v
}

// text is a string of at most so many bytes.
func (c *codec) text(s *string, most int) {
	if !c.reading {
		c.b = append(binary.AppendUvarint(c.b, uint64(len(*s))), *s...)
		return
	}
	if v := c.view(most); string(v) != *s {
		*s = string(v)
	}
}

// bytes are nil if there are none.
func (c *codec) bytes(b *[]byte, most int) {
	if !c.reading {
		c.b = append(binary.AppendUvarint(c.b, uint64(len(*b))), *b...)
	} else if v := c.view(most); len(v) > 0 {
		*b = append([]byte(nil), v...)
	}
}

func (c *codec) life(l *serry.Life) {
	if c.reading {
		l.Task.Job = c.job
	}
	c.text(&l.Task.Job, maxName)
	if c.reading {
		c.job = l.Task.Job
	}
	c.index(&l.Task.Index)
	id(c, &l.Incarnation)
}

// index is a varint with a sign, of 32 bits at most.
func (c *codec) index(v *int) {
	if !c.reading {
		c.b = binary.AppendVarint(c.b, int64(*v))
		return
	}
	n, size := binary.Varint(c.b)
	if size <= 0 || n != int64(int32(n)) {
		c.fail()
		return
	}
	*v = int(n)
	c.b = c.b[size:]
}

// list is a number, and as many items.
func list[T any](c *codec, items *[]T, item func(*codec, *T)) {
	n := uint64(len(*items))
	if number(c, &n); n > maxListed {
		c.fail()
		return
	}
	if c.reading && n > 0 {
		*items = make([]T, n)
	}
	for i := range *items {
		item(c, &(*items)[i])
	}
}
