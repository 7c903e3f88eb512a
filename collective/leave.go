package collective

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
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
	if err == nil && !c.hasFailed() && !c.backend.Alone() {
		err = errors.Join(c.settleErrands(ctx), c.awaitLeave(ctx))
	}
	if c.failed.CompareAndSwap(nil, closed) {
		c.stop(closed)
	}
	c.group.retire(c)
	return err
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

// awaitLeave says that this process leaves, and waits for the answers. It says so again and again, since a member that
// does not know the clique yet does not hear.
func (c *clique) awaitLeave(ctx context.Context) error {
	c.mu.Lock()
	c.mu.leaving = true
	c.mu.Unlock()
	c.reach(ctx)
	again := time.NewTicker(leaveAgain)
	defer again.Stop()
	c.sayLeave()
	for {
		l, changed := c.unparted()
		if l == nil || c.hasFailed() {
			return nil
		}
		select {
		case <-changed:
		case <-l.Done():
		case <-again.C:
			c.sayLeave()
		case <-ctx.Done():
			return fmt.Errorf("%v has not ended the operations of the clique: %w", l.Peer().Task, context.Cause(ctx))
		}
	}
}

// unparted is a link to a member that may still wait for messages of this process, or nil. A member whose link has ended
// waits for nothing more. The channel is closed when that may have changed.
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

// reach links this process with all neighbours, if it is not yet: they see the end of a link, and must know before that
// it is no loss.
func (c *clique) reach(ctx context.Context) {
	var all sync.WaitGroup
	for _, peer := range c.neighbours() {
		if c.linked(peer) != nil {
			continue
		}
		all.Go(func() {
			if l, err := c.group.net.Link(ctx, peer); err == nil {
				c.use(peer, l)
			}
		})
	}
	all.Wait()
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
	again := step == leaves && c.mu.parted[from]
	switch {
	case again: // the answer may have been lost
	case step == leaves:
		c.mu.left[from] = departure{from, last, l}
	case c.mu.leaving:
		c.letGo(from)
	default: // it answers what this process has not asked
	}
	c.mu.Unlock()
	if again {
		c.tellLeave(l, mayLeave, nil) // not while mu is held: the write may take long
	}
	c.farewell()
}

// A departure is a process that wants to leave.
type departure struct {
	peer serry.Life
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
	for _, d := range c.departed() {
		c.tellLeave(d.link, mayLeave, nil)
		c.mu.Lock()
		c.letGo(d.peer) // after the answer, because this process may close its links from then on
		c.mu.Unlock()
		gone = &Error{Origin: c.first.rank, Ranks: c.key.RanksOf(d.peer), Detail: d.peer.Task.String() + " has closed the clique", Err: ErrClosed}
	}
	if gone != nil && c.failed.CompareAndSwap(nil, gone) {
		c.group.background(leaveTime, func(ctx context.Context) { c.follow(ctx, gone) })
	}
}

// departed takes the processes out of those that want to leave whose last operations have ended here.
func (c *clique) departed() (all []departure) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for peer, d := range c.mu.left {
		if c.hasEnded(d.seq) {
			delete(c.mu.left, peer)
			all = append(all, d)
		}
	}
	return all
}

// follow leaves the clique because another process has left it. No operation begins any more, but others may still
// wait for messages of those that have ended here.
func (c *clique) follow(ctx context.Context, gone *Error) {
	c.stop(gone)
	if err := c.awaitLeave(ctx); err != nil {
		c.group.log.Debug("clique left", "clique", c.key.String(), "err", err)
	}
	c.group.retire(c)
}

// hasFailed says whether the clique has ended for another cause than that a member has left. After such an end there is no
// farewell: members know that nothing can be relied on.
func (c *clique) hasFailed() bool {
	e := c.failed.Load()
	return e != nil && !errors.Is(e, ErrClosed)
}

// hasEnded says whether every rank of this process has ended the operations up to a number; mu is held.
func (c *clique) hasEnded(seq uint64) bool {
	for op := range c.mu.running {
		if op.call.ofAll() && op.seq <= seq {
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

const (
	leaveTime  = time.Minute            // bounds the farewell of a clique that is closed because too many are idle
	leaveAgain = 200 * time.Millisecond // how often it is said
)
