package server

import "time"

// A pace decides how long the journal waits for more waves before it writes. It knows only the last write and
// how earlier waits have ended.
//
// Why wait at all? Callers that are answered tend to call again at once. Where they are many, they fall into
// two groups, each of which calls while the records of the other are written, and every write carries half of
// what it could. So the journal waits for the callers that it has just answered: for most of them up to as
// long as a write takes, and for the last few only as long as they keep coming.
//
// Why is that harmless? A caller that is alone never waits: with its call, all that were answered are back.
// And where no wave comes while the journal waits, it waits half as long the next time.
type pace struct {
	took     time.Duration // the last write
	answered int           // calls that it answered
	before   int           // waves that waited already when the answers left: not from those callers
	doubt    int           // how often a wait is halved, because no wave came
}

const (
	// longestPatience is the most that a write waits for more to come.
	longestPatience = time.Millisecond

	// straggling is which part of that it waits for the last callers, from one wave to the next.
	straggling = 8

	// maxDoubt keeps a trace of every wait, so that callers that come back later are noticed.
	maxDoubt = 3
)

// note remembers a write that is durable, before its answers leave. waiting is how many waves wait already.
func (p *pace) note(took time.Duration, group []*wave, waiting int) {
	p.took, p.answered, p.before = took, calls(group), waiting
}

// patience says how long to wait for another wave, if the group has waited for some time already. Zero or
// less means not to wait.
//
// out is the number of callers that the last write has answered and that have not called again. The first
// p.before waves of the group do not count: they were queued while that write ran, so they hold calls of
// others.
//
// If all callers are back there is nothing to wait for. If a quarter or less are missing, each wave that comes
// is worth a short wait for the next. If more are missing, the wait is as long as a write, less the time for
// which it has lasted.
func (p *pace) patience(group []*wave, waited time.Duration) time.Duration {
	out := p.answered - calls(group[min(p.before, len(group)):])
	longest := min(p.took, longestPatience) >> p.doubt
	switch {
	case out <= 0:
		return 0
	case 4*out <= p.answered:
		return longest / straggling
	default:
		return longest - waited
	}
}

// learn takes how a wait has ended: whether a wave came.
func (p *pace) learn(came bool) {
	if came {
		p.doubt = max(p.doubt-1, 0)
	} else {
		p.doubt = min(p.doubt+1, maxDoubt)
	}
}

// calls is how many calls waves answer. A reply stands for its caller.
func calls(group []*wave) (n int) {
	for _, w := range group {
		n += len(w.replies)
	}
	return n
}
