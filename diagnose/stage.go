package diagnose

import (
	"strings"
	"time"

	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/wire"
)

// A Stage says how far a wait has come (D-HG-4).
type Stage string

// The stages. Only Stuck is an alarm.
const (
	OnTime  Stage = ""        // no rank waits for longer than usual
	Late    Stage = "late"    // a wait takes longer than usual
	Stalled Stage = "stalled" // and the ranks that it waits for do nothing that the service sees
	Stuck   Stage = "stuck"   // for so long that it is not likely to end
)

const (
	lateAfter  = 2 * time.Second  // the least time until a wait is late
	lateTimes  = 2                // or that many times the usual one
	stillFor   = 5 * time.Second  // without a call of the ranks that are waited for: stalled
	stuckAfter = 2 * time.Minute  // stalled for that long; or
	stuckTimes = 10               // that many times the usual wait
	firstAfter = 10 * time.Minute // where none of its kind has passed: loading and compiling take long
	crossAfter = 10 * time.Second // ranks that wait for each other
)

// overdue is for how many seconds the wait at a barrier has been late; less than 0: it is on time.
func overdue(b wire.BarrierStatus) float64 {
	return b.ForSeconds - max(lateAfter.Seconds(), lateTimes*b.UsualSeconds)
}

// stage says how far the wait at a barrier has come. The first arrival counts, for the wait as for the usual
// one. Ranks that save or compile make no call for long, so the stage is no verdict on what they do.
func (j *judge) stage(b wire.BarrierStatus) Stage {
	over := overdue(b)
	patience := max(stuckAfter.Seconds(), stuckTimes*b.UsualSeconds)
	if b.UsualSeconds == 0 {
		patience = firstAfter.Seconds()
	}
	switch {
	case over < 0:
		return OnTime
	case over < stillFor.Seconds() || j.allCall(b.Missing):
		return Late
	case over < stillFor.Seconds()+patience || isEnd(b.ID):
		return Stalled // healthy jobs save at the end, for as long as the shutdown may take
	}
	return Stuck
}

// allCall says whether all of these tasks have called the service lately: then each of them does something.
func (j *judge) allCall(tasks []string) bool {
	for _, name := range tasks {
		if t := j.tasks[name]; t == nil || t.State != wire.StateConnected || t.LastCall == "" || t.CallSeconds >= stillFor.Seconds() {
			return false
		}
	}
	return len(tasks) > 0
}

// crossStage is the stage of ranks that wait for each other.
func crossStage(seconds float64) Stage {
	if seconds < crossAfter.Seconds() {
		return Stalled
	}
	return Stuck
}

// isEnd says whether a barrier is the one at which ranks wait to leave.
func isEnd(barrier string) bool { return strings.HasPrefix(barrier, "Shutdown::") }

// isStart says whether a barrier is the one at which ranks wait for all to register.
func isStart(barrier string) bool { return barrier == coord.RegisterBarrierID }
