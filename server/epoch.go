package server

import (
	"net"
	"sync/atomic"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/detect"
	"github.com/serry-dev/serry/wire"
)

// An epoch is what goroutines other than the owner know of the present run of the job: handlers answer
// heartbeats from it, and the scanner reads the times of heartbeats in it.
//
// The owner makes a new epoch when a run opens. The performer publishes it in handler.epoch once the
// opening is durable. After that its maps and slices never change, so that they need no lock; only the
// atomic fields of its tasks do. A goroutine that still holds the former epoch works on tasks that no
// longer count, which is harmless: the owner compares epochs before it believes a scan.
type epoch struct {
	service serry.Incarnation
	codec   *wire.Codec
	jobs    map[string][]sharedTask
	tasks   []sharedTask // of all jobs, in a row

	// Owned by the owner: by folder, the task that has written a key there last (D-EV-4). Like last calls it is not journaled.
	writers map[string]serry.TaskID
}

// A sharedTask is what the owner shares with other goroutines about one task.
//
// The truth about the task is in the machine, and in the owner's detector as of the last step. What is
// shown here lags behind: it changes only when the step is durable. A heartbeat must not be called good
// because of a registration that a crash could still undo.
type sharedTask struct {
	task   serry.TaskID // set once
	number int          // its place among all tasks; set once

	// Owned by the owner: with state Failed, why. It goes to hosts, not to handlers.
	err error

	// Owned by the owner: its newest call.
	last lastCall

	// What handlers may know (C-HB-8). The value is replaced as a whole and never changed in place.
	shown atomic.Pointer[detect.Task]

	// The coord.Time of the last heartbeat. The goroutine that reads a heartbeat stores it; that is all that a good
	// heartbeat costs.
	seen atomic.Int64

	// The address of the connection that the task registered on, or of its relay, for people. The owner stores it.
	from atomic.Pointer[net.Addr]

	// Accepted registrations whose reply has not been sent. Until the task has that reply it cannot send a
	// heartbeat, so it cannot be silent.
	registering atomic.Int32
}

// newEpoch makes the shared tasks of an epoch that has opened with every task disconnected. Tasks are numbered
// in the order of the jobs as configured. That is not their order in the machine, which sorts jobs by name.
func newEpoch(o coord.Opened, codec *wire.Codec) *epoch {
	total := 0
	for _, j := range o.Jobs {
		total += j.Tasks
	}
	e := &epoch{service: o.Service, codec: codec, jobs: make(map[string][]sharedTask, len(o.Jobs)), tasks: make([]sharedTask, total), writers: make(map[string]serry.TaskID)}
	for i := range e.tasks {
		e.tasks[i].number = i
	}
	rest := e.tasks
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

// task finds a task, or returns nil if the epoch has no such task.
func (e *epoch) task(t serry.TaskID) *sharedTask {
	job := e.jobs[t.Job]
	if t.Index < 0 || t.Index >= len(job) {
		return nil
	}
	return &job[t.Index]
}

// sight says how long ago a task was last heard, and from where; a negative time: never.
func (e *epoch) sight(task serry.TaskID, now coord.Time) (ago time.Duration, from string) {
	t := e.task(task)
	if t == nil || t.shown.Load().Incarnation == 0 {
		return -1, ""
	}
	if a := t.from.Load(); a != nil {
		from = (*a).String()
	}
	return time.Duration(max(0, now-coord.Time(t.seen.Load()))), from
}

// present says whether l is the life that the task is shown to have.
func (e *epoch) present(l serry.Life) bool {
	s := e.task(l.Task)
	return s != nil && s.shown.Load().Incarnation == l.Incarnation
}

// beat takes a heartbeat if it is a good one: of the present life of a connected task, to this
// service. Every other heartbeat is a question that only the machine can answer.
func (e *epoch) beat(c coord.Call, now coord.Time) bool {
	s := e.task(c.Task)
	if s == nil || c.Incarnation == 0 || c.Service != 0 && c.Service != e.service {
		return false
	}
	if t := s.shown.Load(); t.State != serry.Connected || t.Incarnation != c.Incarnation {
		return false
	}
	s.seen.Store(int64(now))
	return true
}

// nameOf translates the names of hosts: it is the name by which the service knows a task. In a cluster of one job the name of the job
// does not matter, and dialect XLA has none (C-VER-1).
func (e *epoch) nameOf(t serry.TaskID) serry.TaskID {
	if len(e.tasks) > 0 && (t.Job == "" || len(e.jobs) == 1) {
		t.Job = e.tasks[0].task.Job
	}
	return t
}
