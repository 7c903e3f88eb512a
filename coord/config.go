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

// Config is what a machine is told once. Only Jobs and Service must be given; what is zero is off,
// except Limits, where a zero means the default.
type Config struct {
	Jobs    []Job
	Service serry.Incarnation // of the first epoch

	RegisterBarrier  bool          // hold registrations until all tasks have come
	RegisterTimeout  time.Duration // how long the first waits for the last
	HeartbeatTimeout time.Duration // here only: how long a task that left may still call
	ShutdownTimeout  time.Duration // 0: no shutdown barrier
	Recoverable      bool          // all tasks may fail and come back
	RecoverableJobs  []string      // jobs whose failures are not told to others
	AllowReconnect   bool          // a lost task may come back with a new incarnation
	ExcludeUnsynced  bool          // barriers pass without tasks that restarted (C-SYNC)
	ErrorsByBeat     bool          // errors are delivered by heartbeat, not by poll (C-POLL-11)

	// Republished says whether a value offered for a key that exists means the same as the stored
	// one, so that the insert may succeed without effect (C-KV-15). It must be pure. Nil: never.
	Republished func(key string, stored, offered []byte) bool

	Limits  Limits
	Planted plant.Faults // none, but in tests of tests
}

func (c Config) has(fault plant.Faults) bool { return c.Planted.Has(fault) }

// Limits bound what clients can make the machine keep. Zero means the default.
//
// Programs use a fresh id for every meeting, so Barriers does not limit how many ids a job uses: of those
// that have ended the oldest are forgotten (C-BAR-24). A member that comes later than so many other ids
// misses the following, as if the id had never been used. A repeated call (C-REQ-4) with counter 0, or a
// first one that comes after the others timed out, opens the barrier anew and waits for its own timeout.
// With a higher counter the call opens the instance of that number, so an id that is used again after all
// this time goes on. If a member that has restarted is the first to use it again, with counter 0, that use
// fails for all with ErrCounter, and the next one goes on. Results kept for request ids are not touched.
type Limits struct {
	Keys           int   // number of keys
	KeyBytes       int   // of one key
	ValueBytes     int64 // of one value
	StoreBytes     int64 // of all keys and values together
	Changes        int   // history kept for those who watch keys
	Barriers       int   // ids of barriers that are open or remembered, see below
	TaskWaiters    int   // waiting calls that name one incarnation
	Waiters        int   // waiting calls in all; registrations, polls and shutdowns not counted
	Requesters     int   // who sends calls with request ids
	RequestResults int   // results kept for one requester that has not acknowledged them
	AliveGroups    int   // sets of tasks that are waited for at one time
}

// DefaultLimits are limits that real jobs never meet.
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

	// DeviceTimeout is how long WaitForAllTasks waits (C-WAT-2).
	DeviceTimeout = time.Hour
)

// Validate says what is wrong with c, if anything.
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

// ValidateJobs says what is wrong with a list of jobs, if anything.
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
