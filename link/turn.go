package link

import (
	"context"
	"errors"
	"os"
	"time"
)

// A turn says which goroutine reads the small lane. The lock of the link guards it.
//
// A program that sends a message and waits for the answer, again and again, reads the lane itself: to be woken by
// another goroutine costs as much as the system calls of the message, because the scheduler wakes a thread for
// it. The lane is always in one of three states:
//
//   - own: the goroutine of the lane reads.
//   - lent: a goroutine in [Ticket.Wait] reads, until its message has ended.
//   - free: no goroutine reads.
//
// These are the only steps, each under the lock:
//
//	own  -> free  the goroutine of the lane has served a goroutine in Wait, and no other message is watched
//	free -> lent  a goroutine calls Wait
//	lent -> free  the wait has ended, and no other message is watched
//	lent -> own   the wait has ended, and another message is watched, or a frame has come that is not for Wait
//	free -> own   a message is watched, or a scan of the detector finds that turnGap has passed since the last wait
//
// A message is watched if a goroutine waits for it and does not read: it called Wait while another goroutine was
// reading, or had to leave a frame to the goroutine of the lane, or it has the channel of [Ticket.Done]. Since the lane is
// not free while a message is watched, no such goroutine is forgotten. Messages that no goroutine waits for yet may be
// read late: by turnGap, and by the time between two scans.
//
// No timer runs for that. A thread that sleeps until the network wakes it has the next timer of the program as its
// deadline. If that is nearer than the next tick of the system, the system sets the clock of the processor when the thread
// falls asleep, and again when it wakes: a timer of 5 ms took a quarter more of the processor time of a message there and
// back, and one of 1 ms three quarters more.
type turn struct {
	held bool          // own or lent
	lent *expect       // lent: the message that the reader waits for, or nil
	last time.Duration // free: when the peer was last heard
}

// turnGap is how long the small lane is left to a program that may wait for its next message.
const turnGap = 5 * time.Millisecond

// A guard wakes the goroutine in Wait that reads the small lane when its context ends. The goroutine that has the
// turn owns it.
//
// It stays for the next wait with the same context, because to register with a context at each wait would take a
// tenth of the time of a small message there and back. It may wake a goroutine that has another context, which then
// goes on to read.
type guard struct {
	done <-chan struct{} // of the context, or nil
	stop func() bool     // or nil
}

// set guards the goroutine that reads a.
func (g *guard) set(ctx context.Context, a *lane) {
	done := ctx.Done()
	if done == g.done {
		return
	}
	g.clear()
	if done != nil {
		g.done, g.stop = done, context.AfterFunc(ctx, a.kickReader)
	}
}

// clear lets go of the context.
func (g *guard) clear() {
	if g.stop != nil {
		g.stop()
	}
	*g = guard{}
}

// startReading starts the goroutine of the small lane, unless a goroutine reads. The lock is held.
func (l *Link) startReading() {
	t := &l.mu.turn
	if t.held || l.mu.state != up {
		return
	}
	t.held = true
	l.mu.receiver.served = false
	l.active.Add(1)
	go l.lanes[smallLane].readFrames()
}

// freeTurn leaves the small lane to the next goroutine that waits. The lock is held.
func (l *Link) freeTurn() {
	t := &l.mu.turn
	t.held, t.lent = false, nil
	t.last = time.Duration(l.heard.Load()) // about now; the clock was read then
}

// takeBack starts the goroutine of the small lane if the lane was free for long enough. The lock is held.
func (l *Link) takeBack(now time.Duration) {
	if now-l.mu.turn.last >= turnGap {
		l.startReading()
	}
}

// rests says whether the goroutine of the lane ends, because the program reads the lane itself when it waits.
func (a *lane) rests() bool {
	l := a.link
	if a != l.lanes[smallLane] {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	r := &l.mu.receiver
	served := r.served
	r.served = false
	if !served || r.watched > 0 {
		return false
	}
	l.freeTurn()
	return true
}

// watch notes that a goroutine waits for the message and does not read.
func (e *expect) watch() {
	e.link.mu.Lock()
	defer e.link.mu.Unlock()
	e.setWatched()
}

// setWatched is watch with the lock held.
func (e *expect) setWatched() {
	if e.ended || e.large() || e.watched {
		return
	}
	e.watched = true
	e.link.mu.receiver.watched++
	e.link.startReading()
}

// lead reads the small lane until a message that comes on it has ended, or ctx has. If another goroutine reads
// the lane it returns at once.
func (e *expect) lead(ctx context.Context) {
	if !e.takeTurn() {
		e.watch()
		return
	}
	l, a := e.link, e.link.lanes[smallLane]
	l.guard.set(ctx, a)
	more, err := a.framesFor(ctx, e)
	if err == nil {
		e.endTurn(more)
	} // else the turn is kept: what comes behind a bad frame must not be read
	l.active.Done()
	if err != nil {
		l.broken(err)
	}
}

// takeTurn lends the small lane to the goroutine that waits for the message, if it is free.
func (e *expect) takeTurn() bool {
	l := e.link
	l.mu.Lock()
	defer l.mu.Unlock()
	t := &l.mu.turn
	e.asks = t.held
	if t.held || e.ended || e.large() || l.mu.state != up {
		return false
	}
	t.held, t.lent = true, e
	l.active.Add(1)
	return true
}

// endTurn takes the small lane back from the goroutine that waits for the message. It may have left frames; then
// it goes on to wait, and reads no more.
func (e *expect) endTurn(more bool) {
	l := e.link
	l.mu.Lock()
	defer l.mu.Unlock()
	l.freeTurn()
	e.asks = true
	e.setWatched()
	if more || l.mu.receiver.watched > 0 {
		l.startReading()
	}
}

// framesFor takes frames until a message has ended, or ctx has. It says whether it has left a whole frame: one
// that is for a handler, which may need a lock that the goroutine in Wait holds.
func (a *lane) framesFor(ctx context.Context, e *expect) (more bool, err error) {
	for !e.over.Load() && ctx.Err() == nil {
		chunk, err := a.soon()
		if chunk == nil && err == nil {
			if e.givenUp(ctx) {
				return false, nil
			}
			chunk, err = a.next()
		}
		if err != nil {
			return false, err
		}
		rest, more, err := a.frames(chunk, true)
		if err != nil {
			return false, err
		}
		if chunk != nil {
			a.in.Keep(rest)
		}
		if more {
			return true, nil
		}
	}
	return false, nil
}

// givenUp says whether a goroutine that reads for the message must not sleep. A look or a sleep that kickReader ended has
// cleared the deadline, so no later read notices the kick. cancel kicks before the ticket is over, but under the lock and
// after it has set ended; so the reader asks for that, under the lock, each time before it sleeps.
func (e *expect) givenUp(ctx context.Context) bool {
	e.link.mu.Lock()
	defer e.link.mu.Unlock()
	return e.ended || ctx.Err() != nil
}

// next waits for bytes. It returns nil when it was woken by kickReader. The caller of kickReader has changed what the
// reader waits for, and the reader looks after the deadline is gone, so that it misses no change.
func (a *lane) next() ([]byte, error) { return a.heard(a.in.Next()) }

// heard takes what a read of the lane has returned.
func (a *lane) heard(chunk []byte, err error) ([]byte, error) {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, a.in.SetReadDeadline(time.Time{})
	}
	if chunk != nil {
		a.link.hear()
	}
	return chunk, err
}
