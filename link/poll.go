package link

import (
	"sync/atomic"
	"time"
)

// pollTime is how long a goroutine in Wait looks for its message before it sleeps. To wake a thread on another
// processor takes the system 5 to 10 microseconds: a message there and back takes half of the time, and less of the
// processors, if neither end sleeps. A virtual processor that has nothing to do stops, and takes up to 40 microseconds to go
// on. A look must outlast that, or two ends of which one sleeps never find out that both had better look.
const pollTime = 50 * time.Microsecond

// maxSkip is how many waits in a row sleep at once where no message ever comes in time, so that to look takes less than a
// hundredth of the time.
const maxSkip = 255

// A patience says whether a goroutine in Wait looks for its message before it sleeps. It learns from whether that helped:
// it does not where the peer takes longer to answer, or needs the processor that looks. The goroutine that has the turn of
// the small lane owns it.
type patience struct {
	skip int // how many waits sleep at once before one looks again
	left int // of those, how many are to come
}

// looks says whether to look this time.
func (p *patience) looks() bool {
	if p.left > 0 {
		p.left--
		return false
	}
	return true
}

// learn notes whether the message came in time. Looks that help and looks that do not balance each other, so that at most
// about every second one is for nothing.
func (p *patience) learn(came bool) {
	if came {
		p.skip /= 2
	} else {
		p.skip = min(2*p.skip+1, maxSkip)
	}
	p.left = p.skip
}

// A pollster lets one goroutine of a Net look for its message at a time, so that they take one processor at most.
type pollster struct {
	allowed bool // set in Open: this process has a second processor
	busy    atomic.Bool
}

func (p *pollster) begin() bool { return p.allowed && p.busy.CompareAndSwap(false, true) }
func (p *pollster) end()        { p.busy.Store(false) }

// soon looks for bytes that are about to come, if that is worth it. It returns nil if there are none.
func (a *lane) soon() ([]byte, error) {
	p, all := &a.link.patience, &a.link.net.pollster
	if !p.looks() || !all.begin() {
		return nil, nil
	}
	defer all.end()
	chunk, err := a.heard(a.in.Poll(pollTime))
	p.learn(chunk != nil)
	return chunk, err
}
