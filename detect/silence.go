package detect

import (
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
)

// maxScanPeriod is how much later than the timeout silence may be found (C-HB-6).
const maxScanPeriod = time.Second

// A Silence decides which tasks have stopped beating. It is apart from the [Detector] because good
// heartbeats never reach the owner of that: each leaves a time behind, and one goroutine compares all
// those times with the limit, a few times in a timeout. That goroutine owns the Silence.
type Silence struct {
	limit  time.Duration // set once: heartbeat timeout plus slack
	period time.Duration // set once: from one scan to the next

	floor coord.Time // no task is called silent for time before this
}

// NewSilence makes a Silence for a heartbeat timeout, and the slack that is added to it (C-HB-9).
func NewSilence(timeout, slack time.Duration) *Silence {
	return &Silence{limit: timeout + slack, period: max(time.Millisecond, min(timeout/10, maxScanPeriod))}
}

// Period is how long to wait from one scan to the next.
func (s *Silence) Period() time.Duration { return s.period }

// Begin begins a scan at now that was due earlier. If it comes much too late, the process did not run,
// and heartbeats may lie unread in its sockets: every task gets a fresh budget (C-LOST-6).
func (s *Silence) Begin(now, due coord.Time) {
	if Late(now, due) {
		s.floor = now
	}
}

// Overdue says whether a task that sent its last heartbeat at last has been silent for too long.
func (s *Silence) Overdue(now, last coord.Time) bool {
	return overdue(now, max(last, s.floor), s.limit)
}

// overdue counts whole milliseconds (C-HB-6).
func overdue(now, last coord.Time, limit time.Duration) bool {
	return time.Duration(now-last).Milliseconds() > limit.Milliseconds()
}

// Pardon takes d back from a silence that began at last: for that long the host of the task could not be
// heard, so the task gets as much more time. The result is not later than now.
func Pardon(last, d, now coord.Time) coord.Time { return max(last, min(last+d, now)) }

// A LastBeat is when a task was last heard.
type LastBeat struct {
	Task serry.TaskID
	At   coord.Time
}

// Silent takes the tasks that a scan found overdue, with their last heartbeats as of now: one may have
// come since the scan. All of one scan are one event, so that survivors hear of them together.
func (d *Detector[H]) Silent(tasks []LastBeat, now coord.Time) {
	var found []suspect
	for _, b := range tasks {
		if t := d.Task(b.Task); t != nil && t.Watched() && overdue(now, b.At, d.silence) {
			found = append(found, suspect{Life: t.Life, lost: true})
		}
	}
	d.suspect(found)
}
