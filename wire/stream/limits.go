package stream

import (
	"sync"
	"time"
)

// Limits of a connection. Peers in order stay far below all of them.
const (
	pauseOutput = 1 << 20  // unsent output that stops reading
	maxPile     = 64 << 20 // unread output of a peer that reads nothing

	stallTime = 20 * time.Second // output waits and none of it moves
	pileTime  = 5 * time.Second  // the same with more than maxPile

	maxConns      = 1 << 17 // virtual connections of a session
	maxSessions   = 1 << 17
	helloPatience = 20 * time.Second // from the preface to the hello
	maxExits      = 4096             // that a host keeps until they are understood
	maxHeard      = 1 << 17          // lives that a host keeps

	defaultMaxCalls = 1 << 20
	defaultMaxBytes = 1 << 30
	defaultBudget   = 4 << 30 // of large calls on their way to a server
)

// A budget bounds the bytes of large frames on their way. Beyond the limit one of them, the leader,
// may go on, so that each comes to its end in turn however large; the others wait unread.
type budget struct {
	limit int64

	mu struct {
		sync.Mutex
		free   sync.Cond
		used   int64
		leader *cutter // or nil
	}
}

func newBudget(limit int64) *budget {
	b := &budget{limit: limit}
	b.mu.free.L = &b.mu
	return b
}

// take waits for n more bytes for the frame that c reads.
func (b *budget) take(c *cutter, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.mu.used+n > b.limit && b.mu.leader != c {
		if b.mu.leader == nil {
			b.mu.leader = c
			break
		}
		c.waiting.Store(true)
		b.mu.free.Wait()
	}
	c.waiting.Store(false)
	b.mu.used += n
}

// give returns n bytes, all that c had.
func (b *budget) give(c *cutter, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.used -= n
	if b.mu.leader == c {
		b.mu.leader = nil
	}
	b.mu.free.Broadcast()
}
