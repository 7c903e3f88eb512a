package coord

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/plant"
)

// A Job is a group of tasks, numbered from 0.
type Job struct {
	Name  string
	Tasks int
}

// Config is what a machine is told once. Only Jobs and Service must be given; what is zero is
// off, except Limits, where a zero means the default.
//
// A successor must be made with the same settings: they decide what a record does when it is
// replayed. The owner keeps them with the journal and checks them, so that a changed flag cannot
// change history.
type Config struct {
	Jobs    []Job
	Service serry.Incarnation // of the first epoch

	// RegisterBarrier holds registrations until all tasks have come, RegisterTimeout is how long
	// the first waits for the last. Without it a job begins when its first task does.
	RegisterBarrier bool
	RegisterTimeout time.Duration

	// HeartbeatTimeout says here only how long a task that left may still call. Silence is the
	// business of the detectors.
	HeartbeatTimeout time.Duration

	// ShutdownTimeout is how long the first task that ends waits for the others; 0: tasks end
	// alone.
	ShutdownTimeout time.Duration

	// Recoverable: all tasks may fail and come back, and no failure is told to the others
	// (C-REC-1). RecoverableJobs are jobs whose failures are not told to others. AllowReconnect:
	// a task that was lost may come back with a new incarnation, also in a job whose failures are
	// told.
	Recoverable     bool
	RecoverableJobs []string
	AllowReconnect  bool

	// ExcludeUnsynced: barriers pass without tasks that restarted and have not met the others
	// since (C-SYNC).
	ExcludeUnsynced bool

	// ErrorsByBeat: errors are delivered by heartbeat, not by poll, for clients whose poll would
	// end their process (C-POLL-11).
	ErrorsByBeat bool

	// Republished says whether a value offered for a key that exists means the same as the stored
	// one, so that the insert may succeed without effect (C-KV-15). It must be pure. Nil: never.
	Republished func(key string, stored, offered []byte) bool

	Limits Limits

	// NextVersion stands for a later build in tests of upgrades: snapshots and records are written
	// as those of the next version, and that is read. It is no setting of a journal.
	NextVersion bool
	Planted     plant.Faults // none, but in tests of tests
}

func (c Config) has(fault plant.Faults) bool { return c.Planted.Has(fault) }

// Limits bound what clients can make the machine keep. Zero means the default.
//
// Programs use a fresh id for every meeting, so Barriers does not limit how many ids a job uses:
// of those that have ended the oldest are forgotten (C-BAR-24). A member that comes later than so
// many other ids misses the following, as if the id had never been used. A repeated call
// (C-REQ-4) with counter 0, or a first one that comes after the others timed out, opens the
// barrier anew and waits for its own timeout. With a higher counter the call opens the instance
// of that number, so an id that is used again after all this time goes on. If a member that has
// restarted is the first to use it again, with counter 0, that use fails for all with ErrCounter,
// and the next one goes on. Results kept for request ids are not touched.
type Limits struct {
	// Of keys: their number, the bytes of one key and of one value, and of all of them together,
	// in which the devices of WaitForAllTasks count, too.
	Keys       int
	KeyBytes   int
	ValueBytes int64
	StoreBytes int64

	// Changes is how many changes of keys are kept for clients that watch keys. A watcher that is
	// further behind starts anew.
	Changes int

	// Barriers is how many ids of barriers are open or remembered, see above.
	Barriers int

	// Waiting calls: of one incarnation, and in all. Registrations, polls and shutdowns do not
	// count.
	TaskWaiters int
	Waiters     int

	// Requesters is how many senders of calls with request ids there may be, RequestResults how
	// many results are kept for one of them that has not acknowledged them.
	Requesters     int
	RequestResults int

	// AliveGroups is how many sets of tasks are waited for at one time.
	AliveGroups int
}

// DefaultLimits are limits that real jobs never meet. They are there for programs with a mistake,
// such as one that stores a new key in every step, and for callers that mean harm: the call that
// meets a limit is refused with its name, and the service goes on.
func DefaultLimits() Limits {
	return Limits{
		Keys:           4 << 20,
		KeyBytes:       1 << 20,
		ValueBytes:     1<<31 - 1,
		StoreBytes:     64 << 30,
		Changes:        1 << 14,
		Barriers:       1 << 16,
		TaskWaiters:    1 << 18,
		Waiters:        1 << 23,
		Requesters:     1 << 18,
		RequestResults: 1 << 16,
		AliveGroups:    1 << 14,
	}
}

// withDefaults fills in the limits that were not given.
func (l Limits) withDefaults() Limits {
	d := DefaultLimits()
	return Limits{
		Keys:           cmp.Or(l.Keys, d.Keys),
		KeyBytes:       cmp.Or(l.KeyBytes, d.KeyBytes),
		ValueBytes:     cmp.Or(l.ValueBytes, d.ValueBytes),
		StoreBytes:     cmp.Or(l.StoreBytes, d.StoreBytes),
		Changes:        cmp.Or(l.Changes, d.Changes),
		Barriers:       cmp.Or(l.Barriers, d.Barriers),
		TaskWaiters:    cmp.Or(l.TaskWaiters, d.TaskWaiters),
		Waiters:        cmp.Or(l.Waiters, d.Waiters),
		Requesters:     cmp.Or(l.Requesters, d.Requesters),
		RequestResults: cmp.Or(l.RequestResults, d.RequestResults),
		AliveGroups:    cmp.Or(l.AliveGroups, d.AliveGroups),
	}
}

const (
	// MaxNameBytes bounds barrier ids and job names, so that an error that names one always fits
	// into a trailer (C-WIRE-16).
	MaxNameBytes = 1 << 10

	// MaxWordBytes bounds what a member can hand to the others of an alive set (C-ALIVE-8).
	MaxWordBytes = 1 << 10

	// MaxTasks bounds the size of a cluster.
	MaxTasks = 1 << 20

	// deviceTimeout is how long WaitForAllTasks waits (C-WAT-2).
	deviceTimeout = time.Hour
)

// Validate says what is wrong with c, if anything. [New] panics over such a Config; [Restore]
// returns the error.
func (c Config) Validate() error {
	if c.Service == 0 {
		return errors.New("service incarnation is zero")
	}
	if err := ValidateJobs(c.Jobs); err != nil {
		return err
	}
	for _, name := range c.RecoverableJobs {
		if !slices.ContainsFunc(c.Jobs, func(j Job) bool { return j.Name == name }) {
			return fmt.Errorf("recoverable job %q is none of the jobs", name)
		}
	}
	return nil
}

// ValidateJobs says what is wrong with a list of jobs, if anything: names must be given,
// different and short enough for a trailer of a reply, and there must be between one and MaxTasks
// tasks in all.
func ValidateJobs(jobs []Job) error {
	total, seen := 0, make(map[string]bool)
	for _, j := range jobs {
		switch {
		case j.Name == "" || len(j.Name) > MaxNameBytes:
			return fmt.Errorf("job name %.20q: want 1 to %d bytes", j.Name, MaxNameBytes)
		case seen[j.Name]:
			return fmt.Errorf("job %q is named twice", j.Name)
		case j.Tasks < 1 || j.Tasks > MaxTasks:
			return fmt.Errorf("job %q: %d tasks, want 1 to %d", j.Name, j.Tasks, MaxTasks)
		}
		seen[j.Name] = true
		total += j.Tasks
	}
	if total < 1 || total > MaxTasks {
		return fmt.Errorf("%d tasks in all, want 1 to %d", total, MaxTasks)
	}
	return nil
}
