package back

import "golang.org/x/sys/unix"

// A writer is what only the goroutine that writes at the moment uses.
type writer struct {
	attempt func(fd uintptr) bool // once, made once
	trying  []byte
}

// once writes what the kernel takes.
func (w *writer) once(fd uintptr) bool {
	if n, err := unix.Write(int(fd), w.trying); err == nil {
		w.trying = w.trying[n:]
	}
	return true
}

// Flush sends the calls started so far. It does not wait for the server: what the kernel does not take
// at once is left to a goroutine.
func (c *Conn) Flush() { c.offer() }

// offer writes what there is, unless another goroutine is writing, which then takes it along.
func (c *Conn) offer() {
	for buf := c.claim(); len(buf) > 0; buf = c.next(buf) {
		if rest := c.try(buf); len(rest) > 0 {
			c.leave(rest)
			return
		}
	}
}

// leave hands the role of the writer to a goroutine, with what is left to write. After the end of the
// reader it starts none: Close may have found that nothing runs any more.
func (c *Conn) leave(rest []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.mu.over {
		c.work.Go(func() { c.writeAll(rest) })
	}
}

// try writes what the kernel takes without waiting, and returns the rest. An error shows itself to
// whoever writes the rest.
func (c *Conn) try(buf []byte) []byte {
	if c.raw == nil {
		return buf
	}
	c.write.trying = buf
	c.raw.Write(c.write.attempt) // fails only if closed
	rest := c.write.trying
	c.write.trying = nil
	return rest
}

// claim makes the caller the one who writes, and hands it the bytes. Nil: there is nothing to do.
func (c *Conn) claim() []byte {
	m := &c.mu
	m.Lock()
	defer m.Unlock()
	if m.writing || len(m.out) == 0 {
		return nil
	}
	m.writing = true
	return c.swap()
}

// swap takes what is to be written and leaves the other buffer in its place.
func (c *Conn) swap() []byte {
	m := &c.mu
	buf := m.out
	m.out, m.spare, m.control = m.spare, nil, 0
	return buf
}

// writeAll writes buf and all that has come meanwhile. A failure ends the connection, by its reader.
func (c *Conn) writeAll(buf []byte) {
	for len(buf) > 0 {
		if _, err := c.nc.Write(buf); err != nil {
			c.nc.Close()
			return // still the one who writes: nobody else need try
		}
		buf = c.next(buf)
	}
}

// next gives a written buffer back and returns what has come meanwhile; if that is nothing, the
// caller is no longer the one who writes.
func (c *Conn) next(written []byte) []byte {
	m := &c.mu
	m.Lock()
	defer m.Unlock()
	if cap(written) <= keepBytes {
		m.spare = written[:0]
	}
	if len(m.out) == 0 && len(m.blocked) > 0 {
		c.pump()
	}
	if len(m.out) == 0 {
		m.writing = false
		return nil
	}
	return c.swap()
}
