package web

import (
	"context"
	"errors"
	"sync"
	"time"
)

// A keep reads values on request, one at a time. All requests within a pause get the same value, so many viewers cost the job no more
// than one.
type keep[T any] struct {
	pause, patience time.Duration // set at the start, then constant
	turn            chan struct{} // has room for the one that reads

	mu struct {
		sync.Mutex
		last map[string]kept[T] // by what was asked for; none is older than the pause when another is added
	}
}

// A kept value is what was read, and when that began.
type kept[T any] struct {
	value T
	began time.Time
}

func newKeep[T any](pause, patience time.Duration) *keep[T] {
	k := &keep[T]{pause: pause, patience: patience, turn: make(chan struct{}, 1)}
	k.mu.last = make(map[string]kept[T])
	return k
}

var errNoAnswer = errors.New("no answer in time")

// maxKept bounds the values of a keep.
const maxKept = 64

// get is what read returns for a name, or what it has returned a moment ago. An error is not kept. The time that it waits for its turn is
// part of its patience: where nothing answers, those who wait must not wait for the failures of all before them.
func (k *keep[T]) get(ctx context.Context, name string, read func(context.Context) (T, error)) (T, error) {
	var none T
	ctx, cancel := context.WithTimeoutCause(ctx, k.patience, errNoAnswer)
	defer cancel()
	select {
	case k.turn <- struct{}{}:
	case <-ctx.Done():
		return none, context.Cause(ctx)
	}
	defer func() { <-k.turn }()
	if v, ok := k.lately(name); ok {
		return v, nil
	}
	began := time.Now()
	v, err := read(ctx)
	if err != nil {
		return none, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for other, l := range k.mu.last {
		if time.Since(l.began) >= k.pause || len(k.mu.last) >= maxKept {
			delete(k.mu.last, other)
		}
	}
	k.mu.last[name] = kept[T]{v, began}
	return v, nil
}

// lately is what was read within the pause.
func (k *keep[T]) lately(name string) (T, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	l, ok := k.mu.last[name]
	return l.value, ok && time.Since(l.began) < k.pause
}

// forget makes the next reading a new one: something was changed.
func (k *keep[T]) forget() {
	k.mu.Lock()
	defer k.mu.Unlock()
	clear(k.mu.last)
}
