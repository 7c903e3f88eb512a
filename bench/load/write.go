package load

import "golang.org/x/sys/unix"

// Flush sends the calls made so far. It returns when they are written, or at once if another
// goroutine is writing, which then takes them along.
func (c *Conn) Flush() {
	if buf := c.claim(); buf != nil {
		c.write(buf)
	}
}

// offer is Flush for the reader, which must never wait for a server that waits for it to read:
// what cannot be written at once is left to a goroutine.
func (c *Conn) offer() {
	for buf := c.claim(); len(buf) > 0; buf = c.next(buf) {
		if rest := c.try(buf); len(rest) > 0 {
			c.work.Go(func() { c.write(rest) })
			return
		}
	}
}

// try writes what the kernel takes without waiting, and returns the rest. An error shows itself to
// whoever writes the rest.
func (c *Conn) try(buf []byte) []byte {
	if c.raw == nil {
		return buf
	}
	c.read.trying = buf
	c.raw.Write(c.read.attempt) // fails only if closed
	rest := c.read.trying
	c.read.trying = nil
	return rest
}

// attemptWrite is one write of the reader that does not wait.
func (r *reader) attemptWrite(fd uintptr) bool {
	if n, err := unix.Write(int(fd), r.trying); err == nil {
		r.trying = r.trying[n:]
	}
	return true
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

// write writes buf and all that has come meanwhile. A failure ends the connection, by its reader.
func (c *Conn) write(buf []byte) {
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
	if len(m.out) == 0 {
		m.writing = false
		return nil
	}
	return c.swap()
}
