package transfer

// Slice is a part of a buffer, from a byte on, as a buffer of its own: to send a part, or to receive into one (TR-PAB-6). It
// has no memory of its own. Holds on it are holds on the whole, which keeps its memory while a part is used.
//
// A part of a buffer that has its definition is defined with it. A part of one that has none gets a definition of its own, by a
// receive into it for example, and the program defines the whole by the [Pool.Join] of its parts. Parts that are written must
// not overlap: each is written when its data come.
func (b *Buffer) Slice(s Spec, offset int64) (*Buffer, error) {
	size, err := s.Bytes()
	if err != nil {
		return nil, err
	}
	if all := b.memory.Region.Len(); offset < 0 || offset > all || size > all-offset {
		return nil, invalid("%v, %d bytes from byte %d on, of a buffer of %d bytes", s, size, offset, all)
	}
	part := &Buffer{pool: b.pool, spec: s.clone(), whole: b, definition: b.definition}
	if b.whole != nil {
		part.whole = b.whole
	}
	part.memory = Memory{Region: b.memory.Region.Slice(offset, offset+size), Device: b.memory.Device}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.gone != "" {
		return nil, invalid("buffer %v was %s", b.spec, b.mu.gone)
	}
	if b.mu.promise != nil {
		part.mu.promise, part.definition = b.pool.Event()
	}
	return part, nil
}

// holder is the buffer that has the holds on the memory: the buffer itself, or the whole of a part that is not deleted.
func (b *Buffer) holder() (*Buffer, error) {
	if b.whole == nil {
		return b, nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.gone != "" {
		return nil, invalid("buffer %v was %s", b.spec, b.mu.gone)
	}
	return b.whole, nil
}
