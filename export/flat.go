package export

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unicode/utf8"
)

// errDamaged is the cause of every error about the layout of a file.
var errDamaged = errors.New("the file is damaged or cut short")

// A flat reads a FlatBuffers file without trusting it: every offset is checked, and the total of what
// is read is bounded by the size of the file. A well-formed file holds each table, vector and string
// once. A hostile one can point to the same bytes from many places, and grow without bound when it is
// read; budget ends that.
//
// After a fault every read gives a zero value, an empty list or a table without fields.
type flat struct {
	fault
	data   []byte
	budget int // bytes that may still be read
}

// A table is where a table of the file begins; fields count from 0.
type table struct {
	f      *flat
	pos    int // of the table
	vtable int // of its list of offsets
	fields int
}

// A vector is a list in the file.
type vector struct {
	f   *flat
	pos int // of the first element
	len int
}

func newFlat(data []byte) *flat { return &flat{data: data, budget: len(data)} }

func (f *flat) damaged(format string, args ...any) {
	f.fail(fmt.Errorf("%w: %s", errDamaged, fmt.Sprintf(format, args...)))
}

func (f *flat) spend(n int) {
	if f.budget -= n; f.budget < 0 {
		f.damaged("parts of it overlap")
	}
}

// number reads 1, 2 or 4 bytes without a sign. All that is read of the layout passes here.
func (f *flat) number(pos, width int) int {
	if f.err != nil || pos < 0 || pos > len(f.data)-width {
		f.damaged("offset %d is outside of its %d bytes", pos, len(f.data))
		return 0
	}
	switch width {
	case 1:
		return int(f.data[pos])
	case 2:
		return int(binary.LittleEndian.Uint16(f.data[pos:]))
	}
	return int(binary.LittleEndian.Uint32(f.data[pos:]))
}

// follow is where the offset at pos leads to; an offset of the form is never negative.
func (f *flat) follow(pos int) int { return pos + f.number(pos, 4) }

// root is the table that the file begins with.
func (f *flat) root() table { return f.table(f.follow(0)) }

// table opens the table at pos.
func (f *flat) table(pos int) table {
	t := table{f: f, pos: pos, vtable: pos - int(int32(uint32(f.number(pos, 4))))}
	size := f.number(t.vtable, 2)
	if size < 4 || size%2 != 0 || t.vtable+size > len(f.data) {
		f.damaged("a table with %d bytes of fields at %d", size, pos)
		return table{f: f}
	}
	t.fields = (size - 4) / 2
	f.spend(4)
	return t
}

// vector opens the list at pos, whose elements have width bytes.
func (f *flat) vector(pos, width int) vector {
	n := f.number(pos, 4)
	if n > (len(f.data)-pos-4)/width {
		f.damaged("a list of %d elements at %d is longer than the file", n, pos)
	}
	if f.spend(4 + n*width); f.err != nil {
		return vector{f: f}
	}
	return vector{f, pos + 4, n}
}

// bytes reads a vector of bytes; the result is part of the file.
func (f *flat) bytes(pos int) []byte {
	v := f.vector(pos, 1)
	return f.data[v.pos : v.pos+v.len : v.pos+v.len]
}

func (f *flat) text(pos int) string {
	b := f.bytes(pos)
	if !utf8.Valid(b) {
		f.damaged("a text at %d is not UTF-8", pos)
	}
	return string(b)
}

// field is the offset of field i, or 0 if the file does not have it.
func (t table) field(i int) int {
	if i < t.fields {
		if at := t.f.number(t.vtable+4+2*i, 2); at != 0 {
			return t.pos + at
		}
	}
	return 0
}

// number reads field i of 1, 2 or 4 bytes, without a sign; absent ones are 0.
func (t table) number(i, width int) int {
	if pos := t.field(i); pos != 0 {
		return t.f.number(pos, width)
	}
	return 0
}

// target is what field i points to, or 0.
func (t table) target(i int) int {
	if pos := t.field(i); pos != 0 {
		return t.f.follow(pos)
	}
	return 0
}

// table opens the table of field i; false if there is none.
func (t table) table(i int) (table, bool) {
	if pos := t.target(i); pos != 0 {
		return t.f.table(pos), true
	}
	return table{f: t.f}, false
}

// text reads the string of field i, "" if there is none.
func (t table) text(i int) string {
	if pos := t.target(i); pos != 0 {
		return t.f.text(pos)
	}
	return ""
}

// vector opens the list of field i, whose elements have width bytes; an absent one is empty.
func (t table) vector(i, width int) vector {
	if pos := t.target(i); pos != 0 {
		return t.f.vector(pos, width)
	}
	return vector{f: t.f}
}

// numbers reads a list of numbers.
func (t table) numbers(i, width int) []int {
	v := t.vector(i, width)
	out := make([]int, v.len)
	for k := range out {
		out[k] = v.f.number(v.pos+width*k, width)
	}
	return out
}

// texts reads a list of strings.
func (t table) texts(i int) []string {
	v := t.vector(i, 4)
	out := make([]string, v.len)
	for k := range out {
		out[k] = v.f.text(v.f.follow(v.pos + 4*k))
	}
	return out
}

// list reads a list of tables; it is nil if the list is empty.
func list[T any](t table, field int, read func(table) T) (out []T) {
	v := t.vector(field, 4)
	if v.len > maxList {
		t.f.fail(formErrorf("a list of %d tables, at most %d are read", v.len, maxList))
	}
	for i := 0; i < v.len && t.f.err == nil; i++ {
		out = append(out, read(t.f.table(t.f.follow(v.pos+4*i))))
	}
	return out
}
