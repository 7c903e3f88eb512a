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
// An event is stepped at the time at which its item was put into the queue, even if the owner comes to it
// later. So an arrival that was read before the deadline of its barrier counts, however long it lay there.
//
// While the server itself stands still, time does: because its journal does not take a write, or because
// the process did not run. Arrivals may lie unread in a socket, and a caller that waits for the answer to
// its last call cannot arrive. As after an outage, deadlines are extended by the time that was lost.
//
// Heartbeats, connections and all other things that detectors judge go by the clock. The records in a
// journal carry the machine's time, so a replay sees the same.
type timeline struct {
	now    coord.Time // of the machine; it never goes back
	behind coord.Time // how much it is behind the clock
	until  coord.Time // on the clock: it stands still until then
}

// pass lets time pass up to a moment on the clock.
func (t *timeline) pass(clock coord.Time) { t.now = max(t.now, clock-t.behind) }

// clock is when a time of the machine comes, on the clock, if there is no further stall.
func (t *timeline) clock(at coord.Time) coord.Time { return at + t.behind }

// stall says that the server stood still from one moment on the clock to another. What was before the first
// has passed.
func (t *timeline) stall(s stall) {
	t.pass(s.from)
	t.until = max(t.until, s.to+catchUp)
}

// A stall is a time in which the server stood still, on the clock.
type stall struct{ from, to coord.Time }

// hold keeps the time from passing before a moment on the clock, where a stall asks for it.
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
		o.time.stall(stall{o.due - 1, o.now}) // no goroutine has had a turn since: what was due has not happened
	}
	return o.time.hold(o.now)
}
