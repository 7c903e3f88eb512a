package back

// Flush sends the calls started so far. It does not wait for the server: what the kernel does not take
// at once is left to a goroutine.
func (c *Conn) Flush() { c.mu.Flush() }

// Wrote implements conn.Owner: it sends more of the requests that had to wait for room in the output.
func (c *Conn) Wrote(int) {
	m := &c.mu
	if m.Backlog() > len(m.Out) {
		return // a part of the last output is still to be written
	}
	m.control = 0
	if len(m.Out) == 0 && len(m.blocked) > 0 {
		c.pump()
	}
}
