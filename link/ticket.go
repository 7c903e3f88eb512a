package link

import (
	"context"
	"errors"
)

// A Ticket stands for a message that was posted or is expected.
type Ticket struct {
	done    chan struct{}
	err     error       // set before done is closed
	message cancellable // or nil, for what was done at once
}

// A cancellable is a message that can be given up.
type cancellable interface {
	// cancel ends the message if it has not ended, and returns once its memory is not used any more.
	cancel(cause error)
}

// A sent ticket is that of every message that was done when Post returned.
var sent = func() *Ticket {
	t := &Ticket{done: make(chan struct{})}
	close(t.done)
	return t
}()

func newTicket(m cancellable) Ticket { return Ticket{done: make(chan struct{}), message: m} }

// Done is closed when the message is complete, has failed or was cancelled. A posted message is complete
// when its memory may be used again, which does not mean that the peer has it.
func (t *Ticket) Done() <-chan struct{} {
	if e, ok := t.message.(*expect); ok {
		e.watch()
	}
	return t.done
}

// Err is why the message failed, or nil. It is valid once Done is closed.
func (t *Ticket) Err() error { return t.err }

// Wait waits until the message has ended, and returns why it failed. If ctx ends first it cancels the
// message. Either way the link does not touch the memory of the message any more.
func (t *Ticket) Wait(ctx context.Context) error {
	if t.isDone() {
		return t.err
	}
	if e, ok := t.message.(*expect); ok {
		e.lead(ctx)
	}
	select {
	case <-t.done:
	case <-ctx.Done():
		t.Cancel(context.Cause(ctx))
	}
	return t.err
}

// isDone says whether Done is closed.
func (t *Ticket) isDone() bool {
	select {
	case <-t.done:
		return true
	default:
		return false
	}
}

// Cancel gives the message up, unless it has ended. When it returns, the link does not touch the memory
// of the message any more. The peer is not told: what a family cancels, it tells the peer itself.
func (t *Ticket) Cancel(cause error) {
	if t.message != nil {
		t.message.cancel(errors.Join(ErrCancelled, cause))
	}
	<-t.done
}

// end completes the ticket.
func (t *Ticket) end(err error) {
	t.err = err
	close(t.done)
}
