package server

import "time"

// A pace is what a journal knows of its last write, and what that says of the next. Callers that are
// answered tend to call again at once. Where they are many, they would fall into two groups, each of
// which calls while the other is written, and every write would carry half of what it could. So the
// journal waits for most of those it has just answered, for less than a write takes. Who calls alone
// never waits: with that call, all that were answered are back.
type pace struct {
	took     time.Duration
	answered int // calls
	before   int // waves that waited already when the answers left
}

// longestPatience is the most that a write waits for more to come.
const longestPatience = time.Millisecond

// note remembers a write that is done, before its answers leave. waiting waves are there already.
func (p *pace) note(took time.Duration, group []*wave, waiting int) {
	*p = pace{took: took, answered: calls(group), before: waiting}
}

// worth says whether some of those who were answered are still expected to call.
func (p *pace) worth(group []*wave) bool {
	since := group[min(p.before, len(group)):]
	return 4*calls(since) < 3*p.answered
}

func (p *pace) patience() time.Duration { return min(p.took/2, longestPatience) }

// calls is how many calls waves answer.
func calls(group []*wave) (n int) {
	for _, w := range group {
		n += len(w.replies)
	}
	return n
}
