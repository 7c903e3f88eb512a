package transfer

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"

	"github.com/serry-dev/serry/link"
	"github.com/serry-dev/serry/transfer/internal/match"
)

const (
	maxCopiers = 4       // goroutines that copy, of a process
	copyBytes  = 1 << 20 // that one of them copies at a time
)

// A copier copies data that lie in memory of other processes. It has few goroutines for all transfers, and only while there is
// something to copy. Each takes one piece after the other, of the most urgent transfer; one piece in 20 is of the least
// urgent.
type copier struct {
	mu struct {
		sync.Mutex
		queue   [link.Bulk + 1][]*copying // by class; the next one first
		turns   int
		workers int
	}
}

// A copying is a receive whose data are copied.
type copying struct {
	// Set in begin, then constant.
	op      *operation
	copier  *copier
	class   link.Class
	segment *link.Segment // that from lies in
	from    []byte        // the data of the sender

	// Guarded by the lock of the copier.
	left  match.Ranges // that no goroutine has begun to copy
	busy  int          // goroutines that copy
	over  bool         // halt was called
	quiet sync.Cond    // busy has become 0
}

// begin has ranges of a transfer copied, and tells the operation of each piece.
func (c *copier) begin(o *operation, class link.Class, s *link.Segment, from []byte, ranges match.Ranges) *copying {
	x := &copying{op: o, copier: c, class: class, segment: s, from: from, left: append(match.Ranges(nil), ranges...)}
	x.quiet.L = &c.mu
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.queue[class] = append(c.mu.queue[class], x)
	for range len(ranges) + int(ranges.Bytes()/copyBytes) {
		if c.mu.workers >= min(maxCopiers, runtime.GOMAXPROCS(0)) {
			break
		}
		c.mu.workers++
		o.peer.engine.work.Go(c.work)
	}
	return x
}

// halt ends the copying of a transfer. When it returns, neither its memory nor that of the sender is used.
func (x *copying) halt() {
	c := x.copier
	c.mu.Lock()
	defer c.mu.Unlock()
	x.over, x.left = true, nil
	for x.busy > 0 {
		x.quiet.Wait()
	}
}

// work copies until there is nothing to copy.
func (c *copier) work() {
	for x, r := c.take(); x != nil; x, r = c.take() {
		err := copyShared(x.op.memory.Slice(r.From, r.To).Bytes(), x.from[r.From:r.To])
		if c.copied(x) {
			x.op.peer.do(func() { x.op.copied(x, r, err) })
		}
	}
}

// take takes the next piece out, or ends a worker.
func (c *copier) take() (*copying, match.Range) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		x := c.next()
		if x == nil {
			c.mu.workers--
			return nil, match.Range{}
		}
		if len(x.left) == 0 {
			c.mu.queue[x.class] = c.mu.queue[x.class][1:]
			continue
		}
		r := &x.left[0]
		piece := match.Range{From: r.From, To: min(r.To, r.From+copyBytes)}
		if r.From = piece.To; r.From == r.To {
			x.left = x.left[1:]
		}
		x.busy++
		return x, piece
	}
}

// next is the copying that goes next, or nil; mu is held.
func (c *copier) next() (x *copying) {
	c.mu.turns++
	for class := range c.mu.queue {
		if q := c.mu.queue[class]; len(q) > 0 && (x == nil || c.mu.turns%agingTurns == 0) {
			x = q[0]
		}
	}
	return x
}

// copied notes that a goroutine is done with a piece, and says whether it counts.
func (c *copier) copied(x *copying) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if x.busy--; x.busy == 0 {
		x.quiet.Broadcast()
	}
	return !x.over
}

// copyShared copies memory of another process. Seals keep the file from shrinking, but the system can still fail to provide
// a page of it, which would end this process; here it is an error (TR-G-14).
func copyShared(to, from []byte) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		r := recover()
		if r == nil {
			return
		}
		fault, ok := r.(interface{ Addr() uintptr })
		if !ok {
			panic(r)
		}
		err = fmt.Errorf("%w: the system cannot provide memory of the sender at %#x", ErrFailed, fault.Addr())
	}()
	copy(to, from)
	return nil
}
