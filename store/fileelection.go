package store

import (
	"context"
	"errors"
	"sync"
)

// An election decides which reign of a File store leads. All its candidates are in one process, the one that has the
// folder, so there are no leases: a reign lasts until it resigns or the store is closed.
type election struct {
	watches sync.WaitGroup // goroutines of watch

	mu struct {
		sync.Mutex
		term     uint64        // of the last leadership
		leader   *fileReign    // or nil
		waits    bool          // a candidate waits for the end of the leader
		closed   bool          // the store is closed
		outdated chan struct{} // closed and replaced whenever leader or closed change
	}
}

// begin makes an election ready. The next leader gets the term after term.
func (e *election) begin(term uint64) {
	e.mu.term, e.mu.outdated = term, make(chan struct{})
}

// change tells those that wait to look again. mu is held.
func (e *election) change() {
	close(e.mu.outdated)
	e.mu.outdated = make(chan struct{})
}

// usable says why an operation cannot be performed, or nil. mu is held.
func (e *election) usable(ctx context.Context) error {
	if e.mu.closed {
		return ErrClosed
	}
	return context.Cause(ctx)
}

// errBusy says that one store is used for two candidacies.
var errBusy = errors.New("store: this store campaigns already")

// campaign makes r the leader, once there is no other.
func (e *election) campaign(ctx context.Context, who Candidate, r *fileReign) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.mu.waits {
		return errBusy
	}
	e.mu.waits = true
	defer func() { e.mu.waits = false }()
	for {
		if err := e.usable(ctx); err != nil {
			return err
		}
		if e.mu.leader == nil {
			e.mu.term++
			r.leader = Leader{Address: who.Address, Term: e.mu.term}
			e.mu.leader = r
			e.change()
			return nil
		}
		outdated := e.mu.outdated
		e.mu.Unlock()
		await(ctx, outdated)
		e.mu.Lock()
	}
}

// await waits until the channel is closed or ctx ends.
func await(ctx context.Context, outdated <-chan struct{}) {
	select {
	case <-outdated:
	case <-ctx.Done():
	}
}

// confirm returns nil if r leads.
func (e *election) confirm(ctx context.Context, r *fileReign) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.usable(ctx); err != nil {
		return err
	}
	if e.mu.leader != r {
		return ErrDeposed
	}
	return nil
}

// resign ends the leadership of r, if it leads.
func (e *election) resign(r *fileReign) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.mu.closed {
		return ErrClosed
	}
	if e.mu.leader == r {
		e.end()
	}
	return nil
}

// end ends the leadership. mu is held, and there is a leader.
func (e *election) end() {
	close(e.mu.leader.over)
	e.mu.leader = nil
	e.change()
}

// close ends the leadership and everything that waits.
func (e *election) close() {
	e.mu.Lock()
	if e.mu.leader != nil {
		e.end()
	}
	e.mu.closed = true
	e.change()
	e.mu.Unlock()
	e.watches.Wait()
}

// present returns the leader or the zero Leader. mu is held.
func (e *election) present() Leader {
	if e.mu.leader == nil {
		return Leader{}
	}
	return e.mu.leader.leader
}

// leads returns the leader.
func (e *election) leads(ctx context.Context) (Leader, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	l, err := e.present(), e.usable(ctx)
	if err == nil && l == (Leader{}) {
		err = ErrNoLeader
	}
	return l, err
}

// waiting counts the candidates that wait for the end of a reign.
func (e *election) waiting(ctx context.Context) (n int, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.mu.waits {
		n = 1
	}
	return n, e.usable(ctx)
}

// watch sends the leader, and again after every change. A reader that is slow misses changes, but never the last.
func (e *election) watch(ctx context.Context) <-chan Leader {
	news := make(chan Leader)
	e.watches.Go(func() {
		defer close(news)
		e.mu.Lock()
		defer e.mu.Unlock()
		for e.usable(ctx) == nil {
			e.send(ctx, news, e.present(), e.mu.outdated)
		}
	})
	return news
}

// send sends a leader that is outdated when the channel closes, and returns then. mu is held, but not meanwhile.
func (e *election) send(ctx context.Context, news chan<- Leader, l Leader, outdated <-chan struct{}) {
	e.mu.Unlock()
	defer e.mu.Lock()
	select {
	case news <- l:
		await(ctx, outdated)
	case <-outdated:
	case <-ctx.Done():
	}
}
