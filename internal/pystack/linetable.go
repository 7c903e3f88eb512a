package pystack

import "errors"

// errLines says that a line table is not one.
var errLines = errors.New("malformed line table")

// Kinds of entries of a line table (PEP 626 as of Python 3.11, Objects/locations.md). Kinds below oneLine have a
// column in one byte and stay on the line; oneLine+n, for n up to 2, go n lines on and have two bytes of columns.
const (
	oneLine   = 10
	noColumns = 13 // a line, without columns
	longForm  = 14 // lines and columns as numbers of any size
	noPlace   = 15 // instructions that belong to no line
)

// lineOf finds the line of an instruction: the table has for each run of instructions how far its line is from that of
// the run before. 0 means that the instruction belongs to no line. An instruction of -1 is before the first one: the
// function is about to begin.
func lineOf(table []byte, firstLine, instruction int) (int, error) {
	if instruction < 0 {
		return firstLine, nil
	}
	r := lineReader{rest: table}
	line := firstLine
	for at := 0; len(r.rest) > 0; {
		head := r.byte()
		if head&0x80 == 0 {
			return 0, errLines
		}
		kind := head >> 3 & 15
		line += r.entry(kind)
		at += int(head&7) + 1
		switch {
		case r.bad:
			return 0, errLines
		case instruction >= at:
		case kind == noPlace || line < 0:
			return 0, nil
		default:
			return line, nil
		}
	}
	return 0, errLines
}

// A lineReader takes a line table apart.
type lineReader struct {
	rest []byte
	bad  bool // the table ended too early, or a number is too large
}

// entry reads the rest of an entry and returns how far the line moves.
func (r *lineReader) entry(kind byte) (delta int) {
	switch kind {
	case noPlace:
		return 0
	case longForm:
		delta = r.signed()
		for range 3 {
			r.number()
		}
		return delta
	case noColumns:
		return r.signed()
	case oneLine, oneLine + 1, oneLine + 2:
		r.byte()
		r.byte()
		return int(kind) - oneLine
	}
	r.byte()
	return 0
}

func (r *lineReader) byte() byte {
	if len(r.rest) == 0 {
		r.bad = true
		return 0
	}
	b := r.rest[0]
	r.rest = r.rest[1:]
	return b
}

// number reads one of 6 bits a byte, the lowest first. No line or column needs more than 30 bits.
func (r *lineReader) number() (n int) {
	for shift := 0; shift < 30; shift += 6 {
		b := r.byte()
		n |= int(b&0x3f) << shift
		if b&0x40 == 0 {
			return n
		}
	}
	r.bad = true
	return 0
}

// signed reads a number whose lowest bit is its sign.
func (r *lineReader) signed() int {
	n := r.number()
	if n&1 != 0 {
		return -(n >> 1)
	}
	return n >> 1
}
