package front

import (
	"slices"
	"sync"
)

// A budget bounds the bytes of unfinished messages, those that came and those that windows allow to
// come. Beyond the limit one message, the leader, may go on besides, so that each comes to its end
// in turn however large.
type budget struct {
	limit int64

	mu struct {
		sync.Mutex
		used    int64
		leader  *request   // or nil
		lead    int64      // bytes of the leader, part of used
		waiting []*request // windows withheld, oldest first
	}
}

// reserve counts n bytes that a wider window lets come for r, which has held bytes already. If it
// says no, release will name r when it is time to try again.
func (b *budget) reserve(r *request, n, held int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.mu.leader == r:
		b.mu.lead += n
	case b.mu.used-b.mu.lead+n <= b.limit:
	case b.mu.leader == nil:
		b.mu.leader, b.mu.lead = r, held+n
	default:
		b.mu.waiting = append(b.mu.waiting, r)
		return false
	}
	b.mu.used += n
	return true
}

// add counts n bytes that came for r without having been reserved, and says whether there is room:
// up to twice the limit.
func (b *budget) add(r *request, n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.leader == r {
		b.mu.lead += n
	} else if b.mu.used-b.mu.lead+n > 2*b.limit {
		return false
	}
	b.mu.used += n
	return true
}

// undo takes back n bytes of r.
func (b *budget) undo(r *request, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.used -= n
	if b.mu.leader == r {
		b.mu.lead -= n
	}
}

// release takes back all held bytes of r, which has ended, and returns the messages that may go on.
func (b *budget) release(r *request, held int64) []*request {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.used -= held
	if b.mu.leader == r {
		b.mu.leader, b.mu.lead = nil, 0
	}
	b.mu.waiting = slices.DeleteFunc(b.mu.waiting, func(w *request) bool { return w == r })
	var next []*request
	if b.mu.used-b.mu.lead < b.limit || b.mu.leader == nil {
		next, b.mu.waiting = b.mu.waiting, nil
	}
	return next
}

// hold counts the bytes of r as total, where they exceed what was reserved.
func (c *conn) hold(r *request, total int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := total - r.held
	if n <= 0 {
		return true
	}
	if !c.budget.add(r, n) {
		return false
	}
	if !c.srv.budget.add(r, n) {
		c.budget.undo(r, n)
		return false
	}
	r.held = total
	return true
}

// topUp widens the window of a stream for the rest of its message: once when its length becomes
// known, then whenever half is used (F-32).
func (c *conn) topUp(r *request) {
	if r.received < prefixLen {
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
	r.cost = max(0, have+min(left, target)-r.held)
	c.grant(r)
}

// grant gives r the window it wants if the budgets allow; mu is held.
func (c *conn) grant(r *request) {
	if r.want <= 0 || !c.budget.reserve(r, r.cost, r.held) {
		return
	}
	if !c.srv.budget.reserve(r, r.cost, r.held) {
		c.budget.undo(r, r.cost)
		return
	}
	c.mu.out = appendWindowUpdate(c.mu.out, r.stream, r.want)
	r.window += r.want
	r.held += r.cost
	r.want, r.cost = 0, 0
}

// release gives the bytes of r, which is gone, back to the budgets, and lets others go on.
func (c *conn) release(r *request) {
	c.mu.Lock()
	r.gone = true
	held := r.held
	c.mu.Unlock()
	next := c.budget.release(r, held)
	next = append(next, c.srv.budget.release(r, held)...)
	for _, n := range next {
		n.conn.regrant(n)
	}
}

// regrant tries again to widen the window of r. If r is gone its end comes, or came, to release.
func (c *conn) regrant(r *request) {
	c.mu.Lock()
	if !r.gone && !c.mu.ended {
		c.grant(r)
	}
	c.mu.Unlock()
	c.Flush()
}
