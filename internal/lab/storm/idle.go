package storm

import (
	"time"

	"github.com/serry-dev/serry/wire"
)

// LongestStall is how long a host may stand still without being taken for silent (C-LOST-5).
const LongestStall = 2 * time.Second

// Idle plays a job that does nothing for so long, on machines that are in trouble but not dead: now and
// then a process is stopped for up to the heartbeat timeout, a whole host stalls for up to stall, and of
// all packets one in twenty is lost. Nobody may be taken for dead, unless stall is above [LongestStall].
// It must be called in a testing/synctest bubble.
func Idle(seed uint64, lasts, stall time.Duration) *Report {
	return play(seed, &plan{
		mode: idle, dialect: wire.XLA, tasks: 4, members: 1, hosts: 2, sites: 1, lasts: lasts, stall: stall,
		net: weather{base: 100 * time.Microsecond, jitter: time.Millisecond, loss: 0.05},
	}, Options{})
}

// disturb lets hosts stall, one after the other.
func (w *world) disturb() {
	r := dice(w.seed, forPlan, 1)
	for {
		select {
		case <-time.After(between(r, 5*time.Second, time.Minute)):
		case <-w.ended:
			return
		}
		at := w.caller(r.IntN(w.plan.hosts + w.plan.members))
		at.shut(deaf, mute)
		select {
		case <-time.After(between(r, 0, w.plan.stall)):
		case <-w.ended:
		}
		at.open(deaf, mute)
	}
}
