package server

import "time"

// A pace is what a journal knows of its last writes, and what that says of the next. Callers that are
// answered tend to call again at once. Where they are many, they would fall into two groups, each of
// which calls while the other is written, and every write would carry half of what it could. So the
// journal waits for those it has just answered: for most of them as long as a write takes, and for the
// rest as long as they keep coming. Who calls alone never waits: with that call, all that were answered
// are back. Where nobody comes while it waits, it waits less and less.
type pace struct {
	took     time.Duration
	answered int // calls
	before   int // waves that waited already when the answers left
	doubt    int // how much less it waits, as a power of two
}

const (
	// longestPatience is the most that a write waits for more to come.
	longestPatience = time.Millisecond

	// straggling is which part of that it waits for the last ones, from one to the next.
	straggling = 8

	maxDoubt = 3
)

// note remembers a write that is done, before its answers leave. waiting waves are there already.
func (p *pace) note(took time.Duration, group []*wave, waiting int) {
	p.took, p.answered, p.before = took, calls(group), waiting
}

// patience says how long it is worth to wait for another wave, when it has waited for some time already.
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

// learn takes how a wait has ended: whether somebody came.
func (p *pace) learn(came bool) {
	if came {
		p.doubt = max(p.doubt-1, 0)
	} else {
		p.doubt = min(p.doubt+1, maxDoubt)
	}
}

// calls is how many calls waves answer.
func calls(group []*wave) (n int) {
	for _, w := range group {
		n += len(w.replies)
	}
	return n
}
