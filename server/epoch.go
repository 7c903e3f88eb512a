package server

import (
	"sync/atomic"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/detect"
	"github.com/serry-dev/serry/wire"
)

// An epoch is what the handler and the silence detector know of the present run of the job. It is
// published as a whole when the run opens; after that only its seats change.
type epoch struct {
	service serry.Incarnation
	codec   *wire.Codec
	jobs    map[string][]seat
	seats   []seat // of all jobs, in a row
}

// A seat is what goroutines other than the owner know of one task, and what they note of it.
type seat struct {
	task serry.TaskID // set once
	err  error        // owned by the owner: with state Failed, why

	shown atomic.Pointer[detect.Task] // as of the last commit (C-HB-8); a task that is shown never changes
	seen  atomic.Int64                // coord.Time of the last heartbeat

	greetings atomic.Int32 // accepted registrations whose reply has not been sent
}

// newEpoch draws the seats for an epoch that has opened with every task disconnected.
func newEpoch(o coord.Opened, codec *wire.Codec) *epoch {
	total := 0
	for _, j := range o.Jobs {
		total += j.Tasks
	}
	e := &epoch{service: o.Service, codec: codec, jobs: make(map[string][]seat, len(o.Jobs)), seats: make([]seat, total)}
	rest := e.seats
	for _, j := range o.Jobs {
		e.jobs[j.Name], rest = rest[:j.Tasks:j.Tasks], rest[j.Tasks:]
		for i := range e.jobs[j.Name] {
			s := &e.jobs[j.Name][i]
			s.task = serry.TaskID{Job: j.Name, Index: i}
			s.shown.Store(&detect.Task{Life: serry.Life{Task: s.task}})
		}
	}
	return e
}

// seat finds the place of a task, or nil for a task the epoch does not know.
func (e *epoch) seat(t serry.TaskID) *seat {
	job := e.jobs[t.Job]
	if t.Index < 0 || t.Index >= len(job) {
		return nil
	}
	return &job[t.Index]
}

// beat takes a heartbeat if it is a good one: of the present life of a connected task, to this
// service. All others are for the machine.
func (e *epoch) beat(c coord.Call, now coord.Time) bool {
	s := e.seat(c.Task)
	if s == nil || c.Incarnation == 0 || c.Service != 0 && c.Service != e.service {
		return false
	}
	if t := s.shown.Load(); t.State != serry.Connected || t.Incarnation != c.Incarnation {
		return false
	}
	s.seen.Store(int64(now))
	return true
}
