package front

// Flush implements rpc.Conn. While the reader handles a chunk it does nothing: the reader flushes at the end.
func (c *connection) Flush() {
	if !c.inChunk.Load() {
		c.flush()
	}
}

// flush writes the output without blocking. Where the socket does not take it all, the scanner looks
// after the connection.
func (c *connection) flush() {
	if waits := c.mu.Flush(); waits {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.mu.Backlog() > 0 {
			c.watch()
		}
	}
}

// Wrote implements conn.Owner: it encodes replies that had to wait for room in the output.
func (c *connection) Wrote(int) {
	if c.mu.Backlog() > len(c.mu.Out) {
		return // a part of the last output is still to be written
	}
	c.mu.acks = 0
	c.pump()
	switch {
	case c.mu.Backlog() > 0:
	case !c.mu.sender.empty():
		c.watch()
	case c.mu.draining == refusing && c.quiet() && !c.mu.ended:
		c.wake()
	}
}
