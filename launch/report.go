package launch

import (
	"fmt"
	"syscall"
	"time"

	"github.com/serry-dev/serry/detect"
	"github.com/serry-dev/serry/diagnose"
	"github.com/serry-dev/serry/wire"
)

// A Failure is how a task failed.
type Failure struct {
	Task     int
	Attempt  int
	Life     int           // which of its processes in this attempt, from 1
	After    time.Duration // since that process was started
	Cause    Cause         // how the process ended
	Verdict  string        // instead of that: what the service saw before any process ended, or empty
	At       time.Time     // when the launcher saw it
	Last     []string      // the last lines it wrote
	Together []int         `json:"-"` // other tasks that a fault ended at the same time, as far as can be told: any of them may have been first
	twice    bool          // another process has joined as this task
}

// String says who failed and how.
func (f *Failure) String() string {
	how := f.Cause.name()
	if f.Verdict != "" {
		how = f.Verdict
	}
	text := fmt.Sprintf("rank %d: %s", f.Task, how)
	if len(f.Together) > 0 {
		text += ", together with " + diagnose.Ranks(f.Together)
	}
	return text
}

// Evidence is how the task failed, in the words in which services tell of lost tasks (C-LOST-3); empty: Verdict says it.
func (f *Failure) Evidence() string {
	switch {
	case f.Verdict != "":
		return ""
	case f.Cause.Text != "":
		return f.Cause.Text
	}
	return detect.ProcessExited + f.Cause.evidence(false)
}

// A Report says what became of a job.
type Report struct {
	Attempts int // how many there were
	Restarts int // how many were made, new attempts included
	Took     time.Duration

	// First is the failure that ended the job, or, where nothing ended it but its tasks, the first
	// that was not made good by a restart. Nil: there was none.
	First *Failure
	// Later are the other failures of the same attempt that were not made good, in the order in which
	// they were seen.
	Later []*Failure

	// Aftermath is what was seen of First, and of ranks beside it; nil: this is not the first host, or nothing failed.
	Aftermath *diagnose.Aftermath `json:"-"`

	// Goodput is how the time of the job was used; nil: no steps were reported, or this is not the first host.
	Goodput *wire.GoodputStatus `json:"-"`

	Interrupted syscall.Signal // that the job was told to end by, or 0
	Ended       int            // tasks whose last process ended well
	Tasks       int            // of all
	Err         error          `json:"-"` // what went wrong with the launcher itself, or nil
	Code        int            // exit code of that, if it has one of its own: CodeStart or CodeLost
}

// Exit codes of jobs for reasons that are not those of a rank (D-RC-9).
const (
	CodeStart = 73 // it cannot start as it is: an address is taken, hosts do not come, the service is for another number of ranks
	CodeLost  = 74 // the coordination service is lost for good
	CodeStuck = 75 // ranks were stuck, and Config.OnHang says that this ends the job
)

// Well says whether every task did what it was meant to do.
func (r *Report) Well() bool { return r.Err == nil && r.First == nil && r.Ended == r.Tasks }

// ExitCode is 0 if all went well, else the exit code of the first task that failed, where a signal
// counts as 128 and its number; 128 and the number of the signal that interrupted the job; Code; or 1.
func (r *Report) ExitCode() int {
	switch {
	case r.Well():
		return 0
	case r.First != nil && r.First.Verdict == "":
		return r.First.Cause.ExitCode()
	case r.Err != nil && r.Code != 0:
		return r.Code
	case r.Interrupted != 0 && r.First == nil && r.Err == nil:
		return signalBase + int(r.Interrupted)
	}
	return 1
}
