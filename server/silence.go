package server

import (
	"time"

	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/detect"
)

// A scanner looks for tasks that have stopped beating. It is one goroutine that looks at all of them a
// few times in a timeout, so that a beat costs nothing but an atomic store. What counts as silence,
// [detect.Silence] decides.
//
// It is a goroutine of its own, and not a deadline of the owner, because the owner stops while the journal stands
// still. That must not look like a server that did not run: heartbeats are read meanwhile, and a task that
// sends none is silent.
type scanner struct {
	// Set once.
	clock   clock
	handler *handler
	queue   *queue

	silence *detect.Silence // owned by run

	stop chan struct{} // closed to end run
	done chan struct{} // closed when it has ended
}

// newScanner makes the scanner of a server, which New starts and Shutdown ends.
func newScanner(c Config, clk clock, h *handler) *scanner {
	return &scanner{
		clock:   clk,
		handler: h,
		queue:   h.queue,
		silence: detect.NewSilence(c.Cluster.HeartbeatTimeout, c.HeartbeatSlack),
		stop:    make(chan struct{}),
		done:    make(chan struct{}),
	}
}

// run scans until stop is closed. due is when the timer should have fired: if it fires much later, this process
// did not run in between, and the scan must not hold that against tasks.
func (s *scanner) run() {
	defer close(s.done)
	period := s.silence.Period()
	ticker := time.NewTimer(period)
	defer ticker.Stop()
	due := s.clock.now() + coord.Time(period)
	for {
		select {
		case <-s.stop:
			return
		case <-ticker.C:
		}
		now := s.clock.now()
		s.scan(now, due, s.handler.epoch.Load())
		due = now + coord.Time(period)
		ticker.Reset(period)
	}
}

// scan checks every task at now; due is when the scan was scheduled. It reads what is published, while
// the owner may be ahead of that, so the owner looks again at those it finds.
func (s *scanner) scan(now, due coord.Time, e *epoch) {
	s.silence.Begin(now, due)
	var found []*sharedTask
	for i := range e.tasks {
		if t := &e.tasks[i]; t.shown.Load().Watched() && s.silence.Overdue(now, coord.Time(t.seen.Load())) {
			found = append(found, t)
		}
	}
	// All that one scan finds are one command, so that survivors hear of them together.
	if len(found) > 0 {
		// A closed queue means that the server has ended.
		_ = s.queue.push(tasksSilent{epoch: e, tasks: found})
	}
}

// pardon takes d back from the silence of a task: the stream that brings its heartbeats was quiet for that long. A
// heartbeat that comes meanwhile wins.
func (t *sharedTask) pardon(d, now coord.Time) {
	for {
		last := t.seen.Load()
		if t.seen.CompareAndSwap(last, int64(detect.Pardon(coord.Time(last), d, now))) {
			return
		}
	}
}

// lastBeat is when the task was last heard. A task that has not been told yet that it is registered
// cannot beat, so it counts as heard now.
func (t *sharedTask) lastBeat(now coord.Time) detect.LastBeat {
	if t.registering.Load() > 0 {
		return detect.LastBeat{Task: t.task, At: now}
	}
	return detect.LastBeat{Task: t.task, At: coord.Time(t.seen.Load())}
}

// do hands what a scan has found to the detector, with the heartbeats of now: some may have come since. A scan
// of a former epoch is about tasks that no longer count.
func (c tasksSilent) do(o *owner) {
	if c.epoch != o.epoch {
		return
	}
	beats := make([]detect.LastBeat, len(c.tasks))
	for i, t := range c.tasks {
		beats[i] = t.lastBeat(o.now)
	}
	o.detector.Silent(beats, o.now)
}
