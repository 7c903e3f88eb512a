package launch

import "sync"

// A queue hands values on in the order in which they came. A sender never waits: a queue
// that is full says so, and its owner decides what that means. One goroutine takes values out.
type queue[T any] struct {
	limit int           // values that it holds at most
	some  chan struct{} // has a token where there may be a value, or the queue was closed

	mu struct {
		sync.Mutex
		all    []T
		closed bool
	}
}

func newQueue[T any](limit int) *queue[T] {
	return &queue[T]{limit: limit, some: make(chan struct{}, 1)}
}

// put adds a value, unless the queue is full or closed.
func (q *queue[T]) put(v T) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.mu.closed || len(q.mu.all) >= q.limit {
		return false
	}
	q.mu.all = append(q.mu.all, v)
	q.token()
	return true
}

// close lets next return false once all values have been taken.
func (q *queue[T]) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mu.closed = true
	q.token()
}

// token needs mu.
func (q *queue[T]) token() {
	select {
	case q.some <- struct{}{}:
	default:
	}
}

// next waits for a value. It returns false when the queue is closed and empty, or stop is.
func (q *queue[T]) next(stop <-chan struct{}) (v T, ok bool) {
	for {
		q.mu.Lock()
		if len(q.mu.all) > 0 {
			v, q.mu.all = q.mu.all[0], q.mu.all[1:]
			q.mu.Unlock()
			return v, true
		}
		closed := q.mu.closed
		q.mu.Unlock()
		if closed {
			return v, false
		}
		select {
		case <-q.some:
		case <-stop:
			return v, false
		}
	}
}
