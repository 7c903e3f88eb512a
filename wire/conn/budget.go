package conn

import (
	"math"
	"runtime/debug"
	"slices"
	"sync"
)

// defaultBudget is the limit of a budget where the process has no memory limit.
const defaultBudget = 4 << 30

// A Budget bounds the bytes of unfinished messages: those that have come, and those that peers were
// allowed to send. Beyond the limit one message, the leader, may go on, so that each message comes to
// its end in turn however large it is.
type Budget struct {
	// Set when the budget is made, then constant.
	limit int64
	whole *Budget     // that this one is a part of, or nil
	mu    *sync.Mutex // of the outermost budget; guards what follows, and the shares

	used    int64
	leader  *Share   // or nil
	waiting []*Share // withheld, oldest first
}

// NewBudget makes a budget. A limit of 0 means half of the memory limit of the process, or 4 GiB
// without one.
func NewBudget(limit int64) *Budget {
	if limit <= 0 {
		limit = defaultBudget
		if memory := debug.SetMemoryLimit(-1); memory < math.MaxInt64 {
			limit = memory / 2
		}
	}
	return &Budget{limit: limit, mu: new(sync.Mutex)}
}

// Part makes a budget with a lower limit. What is taken from it is taken from b, too.
func (b *Budget) Part(limit int64) *Budget { return &Budget{limit: limit, whole: b, mu: b.mu} }

// Used is how many bytes are taken.
func (b *Budget) Used() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// takenByOthers is how many bytes are taken by others than the leader; mu is held.
func (b *Budget) takenByOthers() int64 {
	if b.leader == nil {
		return b.used
	}
	return b.used - b.leader.held
}

// A Share is what one message takes of a budget.
type Share struct {
	budget *Budget
	waiter Waiter
	held   int64 // guarded by budget.mu
}

// A Waiter waits for room in a budget.
type Waiter interface {
	// Resume says that it is time to try again.
	Resume()
}

// Share makes the share of a message that has nothing yet.
func (b *Budget) Share(w Waiter) Share { return Share{budget: b, waiter: w} }

// Held is how many bytes the share has.
func (s *Share) Held() int64 {
	s.budget.mu.Lock()
	defer s.budget.mu.Unlock()
	return s.held
}

// Reserve makes the share larger by n bytes. Where there is no room it says no, and the waiter is told
// when to try again.
func (s *Share) Reserve(n int64) bool {
	s.budget.mu.Lock()
	defer s.budget.mu.Unlock()
	for b := s.budget; b != nil; b = b.whole {
		if b.leader != s && b.leader != nil && b.takenByOthers()+n > b.limit {
			b.waiting = append(b.waiting, s)
			return false
		}
	}
	for b := s.budget; b != nil; b = b.whole {
		if b.leader == nil && b.used+n > b.limit {
			b.leader = s
		}
		b.used += n
	}
	s.held += n
	return true
}

// Raise makes the share at least total bytes large, for bytes that came without having been reserved. It
// says whether there is room: up to twice the limit.
func (s *Share) Raise(total int64) bool {
	s.budget.mu.Lock()
	defer s.budget.mu.Unlock()
	n := total - s.held
	if n <= 0 {
		return true
	}
	for b := s.budget; b != nil; b = b.whole {
		if b.leader != s && b.takenByOthers()+n > 2*b.limit {
			return false
		}
	}
	for b := s.budget; b != nil; b = b.whole {
		b.used += n
	}
	s.held = total
	return true
}

// Release gives all bytes of the share back, and lets the messages that wait try again.
func (s *Share) Release() {
	for _, next := range s.release() {
		next.waiter.Resume()
	}
}

// release returns the shares that may try again.
func (s *Share) release() (next []*Share) {
	s.budget.mu.Lock()
	defer s.budget.mu.Unlock()
	for b := s.budget; b != nil; b = b.whole {
		b.used -= s.held
		if b.leader == s {
			b.leader = nil
		}
		b.waiting = slices.DeleteFunc(b.waiting, func(w *Share) bool { return w == s })
		if b.leader == nil || b.takenByOthers() < b.limit {
			next = append(next, b.waiting...)
			b.waiting = nil
		}
	}
	s.held = 0
	return next
}
