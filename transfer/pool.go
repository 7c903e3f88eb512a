package transfer

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// maxWorkers is how many functions of a pool run at the same time. They are short: what waits has its own goroutine.
const maxWorkers = 4

// A Pool makes events, and runs the functions that wait for them. The zero Pool is ready to use. It has goroutines only
// while functions are to be run.
type Pool struct {
	// Trace keeps, for each open promise, where it was made. It is for tests: it is slow. Set it before the first event.
	Trace bool

	open      atomic.Int64 // promises that are neither satisfied nor abandoned
	abandoned atomic.Int64 // promises that were dropped

	mu struct {
		sync.Mutex
		queue   []func() // the oldest first
		workers int
		idle    chan struct{}     // or nil; closed when there is no worker
		ready   *Event            // complete; or nil
		origins map[*Event]string // of the open promises, with Trace
	}
}

// run has f called by a goroutine of the pool. The queue has no limit of its own, because each of its functions was
// registered by a caller and holds nothing but that registration. A queue that blocked when full, or ran f on the goroutine
// of the caller, could wait for a lock that the caller has: TR-OBJ-10.
func (p *Pool) run(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.queue = append(p.mu.queue, f)
	if p.mu.workers < maxWorkers {
		p.mu.workers++
		go p.work()
	}
}

// work calls functions until there are none.
func (p *Pool) work() {
	for {
		p.mu.Lock()
		if len(p.mu.queue) == 0 {
			p.mu.workers--
			if p.mu.workers == 0 && p.mu.idle != nil {
				close(p.mu.idle)
				p.mu.idle = nil
			}
			p.mu.Unlock()
			return
		}
		f := p.mu.queue[0]
		p.mu.queue[0] = nil
		if p.mu.queue = p.mu.queue[1:]; len(p.mu.queue) == 0 {
			p.mu.queue = nil // so that the memory of a long queue is not kept
		}
		p.mu.Unlock()
		f()
	}
}

// Flush waits until every function whose event has ended has run.
func (p *Pool) Flush() {
	for {
		p.mu.Lock()
		if p.mu.workers == 0 {
			p.mu.Unlock()
			return
		}
		if p.mu.idle == nil {
			p.mu.idle = make(chan struct{})
		}
		idle := p.mu.idle
		p.mu.Unlock()
		<-idle
	}
}

// Promises says how many promises are open, and how many were dropped without being satisfied since the pool was made.
// With Trace, origins has the stacks of those that are open.
func (p *Pool) Promises() (open, abandoned int, origins []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, o := range p.mu.origins {
		origins = append(origins, o)
	}
	return int(p.open.Load()), int(p.abandoned.Load()), origins
}

// opened counts a promise.
func (p *Pool) opened(e *Event) {
	p.open.Add(1)
	if !p.Trace {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.origins == nil {
		p.mu.origins = make(map[*Event]string)
	}
	stack := make([]byte, 4<<10)
	p.mu.origins[e] = string(stack[:runtime.Stack(stack, false)])
}

// satisfied counts a promise that is open no more.
func (p *Pool) satisfied(e *Event, dropped bool) {
	p.open.Add(-1)
	if dropped {
		p.abandoned.Add(1)
	}
	if p.Trace {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.mu.origins, e)
	}
}
