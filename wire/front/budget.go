package front

import "github.com/serry-dev/serry/wire/internal/h2"

// topUp widens the window of a stream for the rest of its message: once when its length becomes
// known, then whenever half is used (F-32).
func (c *connection) topUp(r *request) {
	if r.received < h2.PrefixBytes {
		return
	}
	have := int64(len(r.body))
	left := r.length - have
	target := min(max(left, streamWindow), messageGrant)
	first := !r.raised
	r.raised = true
	c.mu.Lock()
	defer c.mu.Unlock()
	if left <= r.window || r.want > 0 || r.window > target/2 && !first {
		return
	}
	r.want = target - r.window
	r.cost = max(0, have+min(left, target)-r.share.Held())
	c.grant(r)
}

// grant gives r the window it wants if the budget allows; mu is held.
func (c *connection) grant(r *request) {
	if r.want <= 0 || !r.share.Reserve(r.cost) {
		return
	}
	c.mu.Out = h2.AppendWindowUpdate(c.mu.Out, r.stream, r.want)
	r.window += r.want
	r.want, r.cost = 0, 0
}

// release gives the bytes of r, which is over, back to the budget.
func (c *connection) release(r *request) {
	c.mu.Lock()
	r.want = 0
	c.mu.Unlock()
	r.share.Release()
}

// Resume implements conn.Waiter: it tries again to widen the window.
func (r *request) Resume() {
	r.conn.mu.Lock()
	if !r.conn.mu.ended {
		r.conn.grant(r)
	}
	r.conn.mu.Unlock()
	r.conn.Flush()
}
