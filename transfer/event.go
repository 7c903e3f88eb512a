package transfer

import (
	"context"
	"errors"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
)

// ErrAbandoned is the error of an event whose promise was dropped without being satisfied: a bug of the program that had it.
var ErrAbandoned = errors.New("abandoned: the work was dropped before it ended")

// A State is how far an event has come. It only goes forward.
type State int

// The states. An event can skip any but the last.
const (
	Unrecorded State = iota // the work is not enqueued
	Recorded                // the work is enqueued, and a mark behind it
	Complete                // the work is done
	Failed                  // there is an error in place of a result
)

// String is one lower-case word.
func (s State) String() string {
	names := [...]string{"unrecorded", "recorded", "complete", "failed"}
	if s < 0 || int(s) >= len(names) {
		return "state " + strconv.Itoa(int(s))
	}
	return names[s]
}

// ended says whether an event with this state does not change any more.
func (s State) ended() bool { return s >= Complete }

// An Event says how far some work has come. It ends once, complete or failed. Make it with [Pool.Event].
type Event struct {
	pool *Pool // set when the event is made, then constant

	mu struct {
		sync.Mutex
		state    State
		err      error         // of Failed
		marks    []deviceMark  // of Recorded: the work is done when all of them are reached
		waited   []Queue       // that wait for the marks already
		recorded chan struct{} // or nil; closed when the state is not Unrecorded
		done     chan struct{} // or nil; closed when the event has ended
		early    []func()      // to call when the state is not Unrecorded
		late     []func()      // to call when the event has ended
	}
}

// State is how far the work has come.
func (e *Event) State() State {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.mu.state
}

// Recorded is closed when the work is recorded, complete or failed.
func (e *Event) Recorded() <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	return channel(&e.mu.recorded, e.mu.state != Unrecorded)
}

// Done is closed when the event has ended.
func (e *Event) Done() <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	return channel(&e.mu.done, e.mu.state.ended())
}

// channel makes a channel of an event, unless it is there. Most events have none: nothing but functions waits for them.
func channel(c *chan struct{}, closed bool) <-chan struct{} {
	if *c == nil {
		*c = make(chan struct{})
		if closed {
			close(*c)
		}
	}
	return *c
}

// Err is why the event failed, or nil. It is valid once the event has ended.
func (e *Event) Err() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.mu.err
}

// Wait waits until the event has ended, and returns why it failed; or until ctx ends.
func (e *Event) Wait(ctx context.Context) error {
	select {
	case <-e.Done():
		return e.Err()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// After has f called once the event has ended, with why it failed. A goroutine of the pool calls it, perhaps before After
// returns. f must not wait for other events.
func (e *Event) After(f func(error)) {
	e.onEnd(func() { e.pool.run(func() { f(e.Err()) }) })
}

// AfterRecorded has f called, like After, once the work is recorded or the event has ended.
func (e *Event) AfterRecorded(f func()) {
	e.onRecorded(func() { e.pool.run(f) })
}

// recording is the state of the event, and the marks of one that is recorded.
func (e *Event) recording() (State, []deviceMark) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.mu.state, e.mu.marks
}

// onEnd has f called when the event has ended, by the goroutine that ends it, or at once. f is a function of this package:
// it must not block, nor call the program.
func (e *Event) onEnd(f func()) {
	e.mu.Lock()
	if !e.mu.state.ended() {
		e.mu.late = append(e.mu.late, f)
		e.mu.Unlock()
		return
	}
	e.mu.Unlock()
	f()
}

// onRecorded is onEnd for the first level of the event.
func (e *Event) onRecorded(f func()) {
	e.mu.Lock()
	if e.mu.state == Unrecorded {
		e.mu.early = append(e.mu.early, f)
		e.mu.Unlock()
		return
	}
	e.mu.Unlock()
	f()
}

// advance moves the event on, and says whether it did.
func (e *Event) advance(to State, marks []deviceMark, err error) bool {
	e.mu.Lock()
	was := e.mu.state
	if was >= to || was.ended() {
		e.mu.Unlock()
		return false
	}
	e.mu.state, e.mu.marks, e.mu.err = to, marks, err
	var calls []func()
	if was == Unrecorded {
		calls, e.mu.early = e.mu.early, nil
		if e.mu.recorded != nil {
			close(e.mu.recorded)
		}
	}
	if to.ended() {
		if len(calls) == 0 {
			calls = e.mu.late
		} else {
			calls = append(calls, e.mu.late...)
		}
		e.mu.late, e.mu.waited = nil, nil
		if e.mu.done != nil {
			close(e.mu.done)
		}
	}
	e.mu.Unlock()
	for _, f := range calls {
		f()
	}
	return true
}

// end completes the event, or fails it.
func (e *Event) end(err error) bool {
	if err != nil {
		return e.advance(Failed, nil, err)
	}
	return e.advance(Complete, nil, nil)
}

// A Promise is the right to say how an event ends. It is used once: by Set, by Bind or by Drop.
type Promise struct {
	event   *Event
	used    atomic.Bool
	cleanup runtime.Cleanup
}

// Event makes an event that nothing has happened to, and its promise. When the program drops the promise, the event fails
// with ErrAbandoned.
func (p *Pool) Event() (*Promise, *Event) {
	e := &Event{pool: p}
	p.opened(e)
	promise := &Promise{event: e}
	promise.cleanup = runtime.AddCleanup(promise, (*Event).abandon, e)
	return promise, e
}

// ownEvent is Event for a promise that this package keeps. It is not looked for by the garbage collector, which costs more than
// all else about an event.
func (p *Pool) ownEvent() (*Promise, *Event) {
	x := &struct {
		event   Event
		promise Promise
	}{event: Event{pool: p}}
	x.promise.event = &x.event
	p.opened(&x.event)
	return &x.promise, &x.event
}

// abandon fails the event of a promise that the garbage collector has found.
func (e *Event) abandon() {
	e.pool.satisfied(e, true)
	e.end(ErrAbandoned)
}

// claim says whether the promise was not used before.
func (p *Promise) claim() bool {
	if !p.used.CompareAndSwap(false, true) {
		return false
	}
	p.cleanup.Stop()
	return true
}

// Set ends the event: complete, or failed if there is an error. It returns false, and does nothing, if the promise was used
// before.
func (p *Promise) Set(err error) bool {
	if !p.claim() {
		return false
	}
	p.event.pool.satisfied(p.event, false)
	p.event.end(err)
	return true
}

// Bind has the event follow another one from now on: it is recorded where that is, and ends as that does. It returns false,
// and does nothing, if the promise was used before.
func (p *Promise) Bind(to *Event) bool {
	if !p.claim() {
		return false
	}
	e := p.event
	e.pool.satisfied(e, false)
	if to.State().ended() {
		e.end(to.Err())
		return true
	}
	to.onRecorded(func() {
		if state, marks := to.recording(); state == Recorded {
			e.advance(Recorded, marks, nil)
		}
	})
	to.onEnd(func() { e.end(to.Err()) })
	return true
}

// Drop fails the event with ErrAbandoned, unless the promise was used before. A function that may return without
// satisfying its promise defers it.
func (p *Promise) Drop() {
	if p.claim() {
		p.event.abandon()
	}
}

// retire gives the promise up, and leaves its event open for good: what waits for it must never go on.
func (p *Promise) retire() {
	if p.claim() {
		p.event.pool.satisfied(p.event, false)
	}
}

// Ready is an event that is complete.
func (p *Pool) Ready() *Event {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.ready == nil {
		p.mu.ready = &Event{pool: p}
		p.mu.ready.mu.state = Complete
	}
	return p.mu.ready
}

// Error is an event that has failed.
func (p *Pool) Error(err error) *Event {
	e := &Event{pool: p}
	e.end(err)
	return e
}

// ended is an event that completes when all of events have ended, however they ended. It keeps none of them.
func (p *Pool) ended(events ...*Event) *Event {
	x, open := &Event{pool: p}, new(atomic.Int64)
	open.Store(int64(len(events)))
	for _, e := range events {
		e.onEnd(func() {
			if open.Add(-1) == 0 {
				x.end(nil)
			}
		})
	}
	return x
}

// Join is an event that is recorded when all of events are, and ends when all of them have. It fails with the error of the
// first in the list that has failed. It never ends before the last, because what waits for it reuses the memory of all.
func (p *Pool) Join(events ...*Event) *Event {
	switch len(events) {
	case 0:
		return p.Ready()
	case 1:
		return events[0]
	}
	j := &join{Event: &Event{pool: p}, events: events}
	j.unrecorded.Store(int64(len(events)))
	j.open.Store(int64(len(events)))
	for _, e := range events {
		e.onRecorded(j.oneRecorded)
		e.onEnd(j.oneEnded)
	}
	return j.Event
}

// A join is an event that waits for others.
type join struct {
	*Event
	events     []*Event
	unrecorded atomic.Int64
	open       atomic.Int64
}

func (j *join) oneRecorded() {
	if j.unrecorded.Add(-1) > 0 {
		return
	}
	var marks []deviceMark
	for _, e := range j.events {
		_, m := e.recording()
		marks = append(marks, m...)
	}
	j.advance(Recorded, marks, nil)
}

func (j *join) oneEnded() {
	if j.open.Add(-1) > 0 {
		return
	}
	for _, e := range j.events {
		if err := e.Err(); err != nil {
			j.end(err)
			return
		}
	}
	j.end(nil)
}
