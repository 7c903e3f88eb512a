package server

import (
	"time"

	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/detect"
)

const (
	// catchUp is how long after a stall of the server the time of the machine stands still: callers that
	// waited for the server have that long to make their next call.
	catchUp = coord.Time(time.Second)

	// lookAgain is how often the owner looks whether a stall is over.
	lookAgain = coord.Time(100 * time.Millisecond)
)

// A timeline tells the machine's time (C-TIME-1). It follows the clock, with two exceptions, both for
// callers that came in time while the server was not able to listen:
//
//  1. An event is stepped at the time at which its item was put into the queue, even if the owner comes to
//     it later. So an arrival that was read before the deadline of its barrier counts, however long it lay
//     there.
//  2. While the server itself stands still, so does the machine's time: because the journal does not take a
//     write, or because the process did not run. Arrivals may lie unread in a socket, and a caller that waits
//     for the answer to its last call cannot arrive. As after an outage, deadlines are extended by the time
//     that was lost.
//
// What the detector judges, heartbeats and connections, goes by the clock: it has its own rule for a server
// that stood still (C-LOST-6). The records in a journal carry the machine's time, so a replay sees the same.
type timeline struct {
	now    coord.Time // the machine's time; it never goes back
	behind coord.Time // how much it is behind the clock
	until  coord.Time // on the clock: the machine's time stands still until then
}

// pass lets time pass up to a moment on the clock.
func (t *timeline) pass(clock coord.Time) { t.now = max(t.now, clock-t.behind) }

// at is the machine's time at a moment on the clock, which is not passed.
func (t *timeline) at(clock coord.Time) coord.Time {
	if t.held(clock) {
		return t.now
	}
	return max(t.now, clock-t.behind)
}

// clock is when a time of the machine comes, on the clock, if there is no further stall.
func (t *timeline) clock(at coord.Time) coord.Time { return at + t.behind }

// stall says that the server stood still from one moment on the clock to another. Time up to the first
// moment has passed; from there it is held until catchUp after the second.
func (t *timeline) stall(s stall) {
	t.pass(s.from)
	t.until = max(t.until, s.to+catchUp)
}

// A stall is a time in which the server stood still, on the clock.
type stall struct{ from, to coord.Time }

// hold says whether time is held at a moment on the clock, and if so lets the machine's time fall behind, so
// that it does not jump when the stall is over.
func (t *timeline) hold(clock coord.Time) (held bool) {
	if held = t.held(clock); held {
		t.behind = max(t.behind, clock-t.now)
	}
	return held
}

// held says whether time stands still at a moment on the clock.
func (t *timeline) held(clock coord.Time) bool { return clock < t.until }

// holdTime looks for a stall of this server before a batch is stepped, and says whether time stands still.
func (o *owner) holdTime() (held bool) {
	if s := o.journal.stall(o.now); s.to > 0 {
		o.time.stall(s)
	}
	if detect.Late(o.now, o.due) {
		// No goroutine has had a turn since something was due, so that has not happened: time stops just
		// before it.
		o.time.stall(stall{o.due - 1, o.now})
	}
	return o.time.hold(o.now)
}
