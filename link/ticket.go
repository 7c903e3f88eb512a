package link

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
)

// A Ticket stands for a message that was posted or is expected.
type Ticket struct {
	message cancellable // set when the ticket is made; or nil, for what was done at once
	err     error       // set before over
	over    atomic.Bool // the message is complete, has failed or was cancelled, and its memory is not used

	// Most tickets have no channel: a goroutine that reads its message itself (see turn) waits on none, and neither
	// does one that comes when the message has ended.
	mu struct {
		sync.Mutex
		done chan struct{} // or nil; closed once over
		then func()        // or nil; called once over
	}
}

// A cancellable is a message that can be given up.
type cancellable interface {
	// cancel ends the message if it has not ended, and returns once its memory is not used any more.
	cancel(cause error)
}

// A sent ticket is that of every message that was done when Post returned.
var sent = func() *Ticket {
	t := new(Ticket)
	t.channel() // here, since a channel that a bubble of testing/synctest makes is for that bubble alone
	t.end(nil)
	return t
}()

// Done is closed when the message is complete, has failed or was cancelled. A posted message is complete
// when its memory may be used again, which does not mean that the peer has it.
func (t *Ticket) Done() <-chan struct{} {
	if e, ok := t.message.(*expect); ok {
		e.watch()
	}
	return t.channel()
}

// channel is Done without the promise that a goroutine reads.
func (t *Ticket) channel() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.done == nil {
		t.mu.done = make(chan struct{})
		if t.over.Load() {
			close(t.mu.done)
		}
	}
	return t.mu.done
}

// Err is why the message failed, or nil. It is valid once Done is closed.
func (t *Ticket) Err() error { return t.err }

// Then has f called once the message has ended, for programs that wait for many messages without a goroutine for each. The
// goroutine that ends the message calls it, perhaps before Then returns, and may hold locks of the link: f must not block,
// nor call the link. There is one such function for a ticket.
func (t *Ticket) Then(f func()) {
	if e, ok := t.message.(*expect); ok {
		e.watch()
	}
	t.mu.Lock()
	over := t.over.Load()
	if !over {
		t.mu.then = f
	}
	t.mu.Unlock()
	if over {
		f()
	}
}

// Over says whether the message has ended: Wait would not wait.
func (t *Ticket) Over() bool { return t.over.Load() }

// Wait waits until the message has ended, and returns why it failed. If ctx ends first it cancels the
// message. Either way the link does not touch the memory of the message any more.
func (t *Ticket) Wait(ctx context.Context) error {
	if e, ok := t.message.(*expect); ok && !t.over.Load() {
		e.lead(ctx)
	}
	if t.over.Load() {
		return t.err
	}
	select {
	case <-t.channel():
	case <-ctx.Done():
		t.Cancel(context.Cause(ctx))
	}
	return t.err
}

// Cancel gives the message up, unless it has ended. When it returns, the link does not touch the memory
// of the message any more. The peer is not told: what a family cancels, it tells the peer itself.
func (t *Ticket) Cancel(cause error) {
	if t.message != nil {
		t.message.cancel(errors.Join(ErrCancelled, cause))
	}
	<-t.channel()
}

// end completes the ticket.
func (t *Ticket) end(err error) {
	t.mu.Lock()
	t.err = err
	t.over.Store(true)
	if t.mu.done != nil {
		close(t.mu.done)
	}
	then := t.mu.then
	t.mu.Unlock()
	if then != nil {
		then()
	}
}
