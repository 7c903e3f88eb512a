package link

// A cursor is a place in the memory of a message, which has any number of segments. It moves forward only, so that a
// chunk costs the same however many segments lie before its end.
type cursor struct {
	segs [][]byte // those that are left
	at   int      // bytes of the first one that lie behind
}

// cursorAt is the place of a byte in segs.
func cursorAt(segs [][]byte, at int64) cursor {
	for len(segs) > 0 && at >= int64(len(segs[0])) {
		at -= int64(len(segs[0]))
		segs = segs[1:]
	}
	return cursor{segs, int(at)}
}

// piece is the memory from here on, up to the end of its segment, and not more than most bytes.
func (c *cursor) piece(most int64) []byte {
	for c.at == len(c.segs[0]) {
		c.segs, c.at = c.segs[1:], 0
	}
	p := c.segs[0][c.at:]
	return p[:min(int64(len(p)), most)]
}

// append adds the memory of the next n bytes to pieces, and moves behind it.
func (c *cursor) append(pieces [][]byte, n int64) [][]byte {
	for n > 0 {
		p := c.piece(n)
		pieces = append(pieces, p)
		c.at += len(p)
		n -= int64(len(p))
	}
	return pieces
}

// put copies b to the memory, and moves behind it.
func (c *cursor) put(b []byte) {
	for len(b) > 0 {
		n := copy(c.piece(int64(len(b))), b)
		c.at += n
		b = b[n:]
	}
}
