package back

import (
	"context"
	"slices"

	"github.com/serry-dev/serry/wire/rpc"
)

// A waiter is a stream that a caller waits for, and where it finds the end.
type waiter struct {
	stream
	tell  Done          // made once
	woken chan struct{} // holds one

	reply  []byte
	status rpc.Status
	err    error
}

// maxIdle bounds the waiters that a connection keeps for the next calls.
const maxIdle = 256

// waiter takes one that is not in use, or makes one. Those of calls that were withdrawn are not used
// again: the reader may still have them.
func (c *Conn) waiter() *waiter {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := len(c.mu.idle); n > 0 {
		w := c.mu.idle[n-1]
		c.mu.idle = c.mu.idle[:n-1]
		return w
	}
	w := &waiter{woken: make(chan struct{}, 1)}
	w.tell = func(reply []byte, st rpc.Status, err error) {
		w.reply, w.status, w.err = reply, st, err
		w.woken <- struct{}{}
	}
	return w
}

// rest keeps a waiter for the next call.
func (c *Conn) rest(w *waiter) {
	w.reply, w.status, w.err, w.stream = nil, rpc.Status{}, nil, stream{}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.mu.idle) < maxIdle {
		c.mu.idle = append(c.mu.idle, w)
	}
}

// Call makes a call of a method, given as its path, and waits for its end: a reply if the status is
// OK, or what the server said instead. An error says that the call or its answer was lost; if it is
// ErrUnsent, that the server has seen nothing of it. When ctx ends first the call is withdrawn, and
// the error is its cause.
func (c *Conn) Call(ctx context.Context, path string, request []byte) ([]byte, rpc.Status, error) {
	w := c.waiter()
	w.done = w.tell
	if err := c.begin(path, request, &w.stream); err != nil {
		c.rest(w)
		return nil, rpc.Status{}, err
	}
	c.Flush()
	select {
	case <-w.woken:
	case <-ctx.Done():
		if c.withdraw(&w.stream) {
			return nil, rpc.Status{}, context.Cause(ctx)
		}
		<-w.woken // the end has come at the same time
	}
	reply, st, err := w.reply, w.status, w.err
	c.rest(w)
	return reply, st, err
}

// withdraw gives a call up. False: it has just ended.
func (c *Conn) withdraw(s *stream) bool {
	m := &c.mu
	m.Lock()
	found := c.takeLocked(s.id, givenUp) == s
	if i := slices.IndexFunc(m.queue, func(q queued) bool { return q.stream == s }); i >= 0 {
		m.queue = slices.Delete(m.queue, i, i+1)
		found = true
	}
	m.Unlock()
	if found {
		c.Flush()
	}
	return found
}
