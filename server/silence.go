package server

import (
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
)

const (
	// maxScanPeriod is how much later than the timeout silence may be found (C-HB-6).
	maxScanPeriod = time.Second

	// maxLateness is how late a detector may run before it takes the fault to be its own (C-LOST-6).
	maxLateness = time.Second
)

// late says whether something that was to happen at due happens so late that this process cannot
// have been running meanwhile.
func late(now, due coord.Time) bool { return time.Duration(now-due) > maxLateness }

// silence finds tasks that have stopped beating. It is one goroutine that looks at all of them a
// few times in a timeout; a beat costs it nothing.
type silence struct {
	clock   clock
	handler *handler
	queue   *queue
	limit   time.Duration // heartbeat timeout plus slack
	period  time.Duration

	stop chan struct{} // closed to end run
	done chan struct{} // closed when it has ended

	floor coord.Time // owned by run: nobody is called silent for time before this
}

func newSilence(c Config, clk clock, h *handler) *silence {
	return &silence{
		clock:   clk,
		handler: h,
		queue:   h.queue,
		limit:   c.Cluster.HeartbeatTimeout + c.HeartbeatSlack,
		period:  max(time.Millisecond, min(c.Cluster.HeartbeatTimeout/10, maxScanPeriod)),
		stop:    make(chan struct{}),
		done:    make(chan struct{}),
	}
}

func (s *silence) run() {
	defer close(s.done)
	ticker := time.NewTimer(s.period)
	defer ticker.Stop()
	due := s.clock.now() + coord.Time(s.period)
	for {
		select {
		case <-s.stop:
			return
		case <-ticker.C:
		}
		now := s.clock.now()
		s.scan(now, due, s.handler.epoch.Load())
		due = now + coord.Time(s.period)
		ticker.Reset(s.period)
	}
}

// scan looks at every seat at a time, which was to be due, and tells the owner who is silent.
func (s *silence) scan(now, due coord.Time, e *epoch) {
	if late(now, due) {
		s.floor = now // C-LOST-6: beats may lie unread, ours was the silence
	}
	var found []*seat
	for i := range e.seats {
		if t := &e.seats[i]; t.shown.Load().watched() && s.overdue(now, t) {
			found = append(found, t)
		}
	}
	if len(found) > 0 {
		// All of a pass in one event, so that survivors hear of them together. A closed queue
		// means that the server has ended.
		_ = s.queue.push(silences{epoch: e, seats: found})
	}
}

// watched says whether the silence of such a task means something.
func (st *standing) watched() bool {
	return st.state == serry.Connected || st.incarnation != 0 && !st.departed
}

// overdue says whether t has been silent for more than the limit, in whole milliseconds (C-HB-6).
func (s *silence) overdue(now coord.Time, t *seat) bool {
	last := max(coord.Time(t.seen.Load()), s.floor)
	return time.Duration(now-last).Milliseconds() > s.limit.Milliseconds()
}

// pardon takes d back from the silence of a task.
func (t *seat) pardon(d, now coord.Time) {
	for {
		last := t.seen.Load()
		if t.seen.CompareAndSwap(last, int64(max(coord.Time(last), min(coord.Time(last)+d, now)))) {
			return
		}
	}
}

// silent looks again at what the silence detector found: a beat may have come since.
func (o *owner) silent(w silences) []suspect {
	if w.epoch != o.epoch {
		return nil
	}
	var found []suspect
	for _, t := range w.seats {
		if t.greetings.Load() == 0 && t.known.watched() && time.Duration(o.now-coord.Time(t.seen.Load())).Milliseconds() > o.silence.limit.Milliseconds() {
			found = append(found, suspect{life: life{t.task, t.known.incarnation}, lost: true})
		}
	}
	return found
}
