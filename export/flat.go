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
type flat struct {
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

func (f *flat) spend(n int) error {
	if f.budget -= n; f.budget < 0 {
		return fmt.Errorf("%w: parts of it overlap", errDamaged)
	}
	return nil
}

// u32 reads four bytes; an offset of the form is never negative, and fits an int.
func (f *flat) u32(pos int) (int, error) {
	if pos < 0 || pos > len(f.data)-4 {
		return 0, fmt.Errorf("%w: offset %d is outside of its %d bytes", errDamaged, pos, len(f.data))
	}
	return int(binary.LittleEndian.Uint32(f.data[pos:])), nil
}

func (f *flat) u16(pos int) (int, error) {
	if pos < 0 || pos > len(f.data)-2 {
		return 0, fmt.Errorf("%w: offset %d is outside of its %d bytes", errDamaged, pos, len(f.data))
	}
	return int(binary.LittleEndian.Uint16(f.data[pos:])), nil
}

// root is the table that the file begins with.
func (f *flat) root() (table, error) {
	pos, err := f.u32(0)
	if err != nil {
		return table{}, err
	}
	return f.table(pos)
}

// table opens the table at pos.
func (f *flat) table(pos int) (table, error) {
	back, err := f.u32(pos)
	if err != nil {
		return table{}, err
	}
	t := table{f: f, pos: pos, vtable: pos - int(int32(uint32(back)))}
	size, err := f.u16(t.vtable)
	if err != nil {
		return table{}, err
	}
	if size < 4 || size%2 != 0 || t.vtable+size > len(f.data) {
		return table{}, fmt.Errorf("%w: a table with %d bytes of fields at %d", errDamaged, size, pos)
	}
	t.fields = (size - 4) / 2
	return t, f.spend(4)
}

// field is the offset of field i, or 0 if the file does not have it.
func (t table) field(i int) (int, error) {
	if i >= t.fields {
		return 0, nil
	}
	at, err := t.f.u16(t.vtable + 4 + 2*i)
	if err != nil || at == 0 {
		return 0, err
	}
	return t.pos + at, nil
}

// number reads field i of 1, 2 or 4 bytes, without a sign; absent ones are 0.
func (t table) number(i, width int) (int, error) {
	pos, err := t.field(i)
	if err != nil || pos == 0 {
		return 0, err
	}
	return t.f.number(pos, width)
}

func (f *flat) number(pos, width int) (int, error) {
	switch width {
	case 4:
		return f.u32(pos)
	case 2:
		return f.u16(pos)
	}
	if pos < 0 || pos >= len(f.data) {
		return 0, fmt.Errorf("%w: offset %d is outside of its %d bytes", errDamaged, pos, len(f.data))
	}
	return int(f.data[pos]), nil
}

// target is what field i points to, or 0.
func (t table) target(i int) (int, error) {
	pos, err := t.field(i)
	if err != nil || pos == 0 {
		return 0, err
	}
	return t.f.follow(pos)
}

func (f *flat) follow(pos int) (int, error) {
	offset, err := f.u32(pos)
	return pos + offset, err
}

// table opens the table of field i; false if there is none.
func (t table) table(i int) (table, bool, error) {
	pos, err := t.target(i)
	if err != nil || pos == 0 {
		return table{}, false, err
	}
	out, err := t.f.table(pos)
	return out, err == nil, err
}

// text reads the string of field i, "" if there is none.
func (t table) text(i int) (string, error) {
	pos, err := t.target(i)
	if err != nil || pos == 0 {
		return "", err
	}
	return t.f.text(pos)
}

func (f *flat) text(pos int) (string, error) {
	b, err := f.bytes(pos)
	if err != nil {
		return "", err
	}
	if !utf8.Valid(b) {
		return "", fmt.Errorf("%w: a text at %d is not UTF-8", errDamaged, pos)
	}
	return string(b), nil
}

// bytes reads a vector of bytes; the result is part of the file.
func (f *flat) bytes(pos int) ([]byte, error) {
	v, err := f.vector(pos, 1)
	if err != nil {
		return nil, err
	}
	return f.data[v.pos : v.pos+v.len : v.pos+v.len], nil
}

// vector opens the list of field i, whose elements have width bytes; an absent one is empty.
func (t table) vector(i, width int) (vector, error) {
	pos, err := t.target(i)
	if err != nil || pos == 0 {
		return vector{f: t.f}, err
	}
	return t.f.vector(pos, width)
}

func (f *flat) vector(pos, width int) (vector, error) {
	n, err := f.u32(pos)
	if err != nil {
		return vector{}, err
	}
	if n > (len(f.data)-pos-4)/width {
		return vector{}, fmt.Errorf("%w: a list of %d elements at %d is longer than the file", errDamaged, n, pos)
	}
	return vector{f, pos + 4, n}, f.spend(4 + n*width)
}

// table opens element i of a list of tables.
func (v vector) table(i int) (table, error) {
	pos, err := v.f.follow(v.pos + 4*i)
	if err != nil {
		return table{}, err
	}
	return v.f.table(pos)
}

// numbers reads a list of numbers.
func (t table) numbers(i, width int) ([]int, error) {
	v, err := t.vector(i, width)
	if err != nil {
		return nil, err
	}
	out := make([]int, v.len)
	for k := range out {
		if out[k], err = v.f.number(v.pos+width*k, width); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// texts reads a list of strings.
func (t table) texts(i int) ([]string, error) {
	v, err := t.vector(i, 4)
	if err != nil {
		return nil, err
	}
	out := make([]string, v.len)
	for k := range out {
		pos, err := v.f.follow(v.pos + 4*k)
		if err != nil {
			return nil, err
		}
		if out[k], err = v.f.text(pos); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// list reads a list of tables.
func list[T any](t table, field int, read func(table) (T, error)) ([]T, error) {
	v, err := t.vector(field, 4)
	if err != nil {
		return nil, err
	}
	if v.len > maxList {
		return nil, formErrorf("a list of %d tables, at most %d are read", v.len, maxList)
	}
	var out []T // nil if the list is empty
	for i := range v.len {
		element, err := v.table(i)
		if err != nil {
			return nil, err
		}
		value, err := read(element)
		if err != nil {
			return nil, err
		}
		out = append(out, value)
	}
	return out, nil
}
