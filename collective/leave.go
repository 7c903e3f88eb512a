package collective

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/link"
)

// A process that has done with a clique must not just close its links: an operation may have ended for it while its last
// messages are still on their way, and a member that waits for them would take it for lost. So it sends LEAVE with the
// number of the last operation of each of its ranks, behind its last messages, and waits. Each member answers when it
// has ended these operations, and from then on the clique is closed for it, too.

// Steps of LEAVE.
const (
	leaves   = 0
	mayLeave = 1
)

// leave waits until the other members have ended the operations that this process has taken part in, or ctx ends, and
// closes the clique.
func (c *clique) leave(ctx context.Context) error {
	closed := &Error{Origin: c.first.rank, Detail: c.group.life.Task.String() + " has closed the clique", Err: ErrClosed}
	err := c.drain(ctx)
	if err == nil {
		err = c.part(ctx)
	}
	c.close(closed)
	return err
}

// part tells the other members that this process leaves, and waits until they can do without it. A clique that was
// revoked is over everywhere: nobody waits for its messages.
func (c *clique) part(ctx context.Context) error {
	if e := c.failed.Load(); e != nil && !errors.Is(e, ErrClosed) {
		return nil
	}
	c.sayLeave()
	return c.awaitLeave(ctx)
}

// sayLeave tells the members that it has links to. The others have nothing of it to wait for.
func (c *clique) sayLeave() {
	var b []byte
	for _, comm := range c.comms {
		if comm != nil {
			b = binary.LittleEndian.AppendUint64(b, comm.lastSeq())
		}
	}
	for _, peer := range c.others {
		if l := c.linked(peer); l != nil {
			c.tellLeave(l, leaves, b)
		}
	}
}

// tellLeave sends LEAVE on the lane of small messages, so that it comes behind them.
func (c *clique) tellLeave(l *link.Link, step uint32, payload []byte) {
	h := link.Header{Family: link.Collective, Type: link.Leave, Class: link.Urgent, Stream: c.stream, Generation: c.key.Generation, Step: step}
	if _, err := l.Post(h, payload); err != nil {
		c.group.log.Debug("member not told", "peer", l.Peer().Task, "err", err)
	}
}

// awaitLeave waits for the answers. A member whose link has ended waits for nothing more.
func (c *clique) awaitLeave(ctx context.Context) error {
	for {
		l, changed := c.unparted()
		if l == nil {
			return nil
		}
		select {
		case <-changed:
		case <-l.Done():
		case <-ctx.Done():
			return fmt.Errorf("%v has not ended the operations of the clique: %w", l.Peer().Task, context.Cause(ctx))
		}
	}
}

// unparted is a link to a member that may still wait for messages of this process, or nil. The channel is closed when
// that may have changed.
func (c *clique) unparted() (*link.Link, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, peer := range c.others {
		if l := c.mu.links[peer]; l != nil && !c.mu.parted[peer] && l.Err() == nil {
			return l, c.mu.changed
		}
	}
	return nil, nil
}

// lastSeq is the number of the operation that began last.
func (c *Comm) lastSeq() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.seq
}

// heardLeave takes LEAVE of another process.
func (c *clique) heardLeave(l *link.Link, step uint32, payload []byte) {
	from := l.Peer()
	if !c.holds(from) {
		return
	}
	last := uint64(0)
	for r := (reader{rest: payload}); len(r.rest) >= 8; {
		last = max(last, r.uint64())
	}
	c.mu.Lock()
	if step == leaves {
		if _, again := c.mu.left[from]; !again {
			c.mu.left[from] = departure{last, l}
		}
	} else {
		c.letGo(from)
	}
	c.mu.Unlock()
	c.farewell()
}

// A departure is a process that wants to leave.
type departure struct {
	seq  uint64 // of its last operation
	link *link.Link
}

// letGo notes that this process and another one have done with each other; mu is held.
func (c *clique) letGo(peer serry.Life) {
	c.mu.parted[peer] = true
	close(c.mu.changed)
	c.mu.changed = make(chan struct{})
}

// hasParted says whether another process has left, and this one has let it go.
func (c *clique) hasParted(peer serry.Life) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.parted[peer]
}

// farewell lets those processes go whose last operations have ended here. The clique is closed then: it cannot run the
// next operation without them. The other members are not told; each hears of it from the one that leaves.
func (c *clique) farewell() {
	var gone *Error
	c.mu.Lock()
	for peer, d := range c.mu.left {
		if c.mu.parted[peer] || !c.hasEnded(d.seq) {
			continue
		}
		c.letGo(peer)
		c.tellLeave(d.link, mayLeave, nil)
		gone = &Error{Origin: c.first.rank, Ranks: c.key.RanksOf(peer), Detail: peer.Task.String() + " has closed the clique", Err: ErrClosed}
	}
	c.mu.Unlock()
	if gone != nil {
		c.group.background(leaveTime, func(ctx context.Context) { c.follow(ctx, gone) })
	}
}

// follow leaves the clique because another process has left it. No operation begins any more, but others may still
// wait for messages of those that have ended here.
func (c *clique) follow(ctx context.Context, gone *Error) {
	if !c.failed.CompareAndSwap(nil, gone) {
		return
	}
	c.stop(gone)
	if err := c.part(ctx); err != nil {
		c.group.log.Debug("clique left", "clique", c.key.String(), "err", err)
	}
	c.group.retire(c)
}

// hasEnded says whether every rank of this process has ended the operations up to a number; mu is held.
func (c *clique) hasEnded(seq uint64) bool {
	for op := range c.mu.running {
		if op.call.peer < 0 && op.seq <= seq {
			return false
		}
	}
	for _, comm := range c.comms {
		if comm != nil && comm.lastSeq() < seq {
			return false
		}
	}
	return true
}

// close ends the clique in this process alone.
func (c *clique) close(e *Error) {
	if c.failed.CompareAndSwap(nil, e) {
		c.group.retire(c)
		c.stop(e)
	}
}

// leaveTime bounds the farewell of a clique that is closed because too many are idle.
const leaveTime = time.Minute
