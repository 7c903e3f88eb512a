package collective

import "time"

// How a rank waits for another one. While there is a processor for each rank it spins, for longer than it takes to put a thread to
// sleep and to wake it: that costs fifty times as much as a small operation, on a virtual machine 50 to 100 µs. With more ranks than
// processors it lets the others run at once.
const (
	mostSpins  = 1 << 17 // about 160 µs
	leastSpins = 1 << 6

	// A rank lets other threads run so often, and not longer than yieldTime. Then it sleeps.
	yields    = 64
	yieldTime = 50 * time.Microsecond

	// Where other programs keep the processors busy, a thread that yields gets its turn long after the rank that it waits for has
	// come, and one that is woken gets it at once. A yield that took longer than slowYield, and in which the rank came, has cost
	// time. After it the rank sleeps at once in the next wait, and in twice as many after each such yield that follows, up to
	// mostBusy. A rank that was late is no such sign: nothing was lost by waiting for it. One slow yield alone says little: a thread
	// of another program ran for a moment.
	slowYield = 50 * time.Microsecond
	mostBusy  = 4096

	// longWait is a wait in which the time to spin counts for nothing.
	longWait = time.Millisecond

	// sleepTime bounds how late a sleeping rank notices that its context has ended. All else wakes it.
	sleepTime = 10 * time.Millisecond
)

// A patience decides how a rank waits: it spins, then it lets other threads run, then it sleeps. What the last waits have shown
// decides for how long.
type patience struct {
	most   int  // spins in a wait, at most
	spins  int  // in the next wait, unless woke
	woke   bool // this rank has just woken another one, which comes as soon as it runs: to sleep now would have it wake this one in turn
	asleep int  // waits to come in which it sleeps at once
	busy   int  // what asleep was set to last, less since
}

// newPatience is that of a rank of some, on so many processors.
func newPatience(ranks, processors int) patience {
	if ranks > processors {
		return patience{most: leastSpins, spins: leastSpins}
	}
	return patience{most: mostSpins, spins: mostSpins}
}

// mostLooks is how often to look at the other rank in this wait before anything else.
func (p *patience) mostLooks() int {
	if p.woke {
		return p.most
	}
	return p.spins
}

// spun is told after how many looks the other rank came. Where that took long, it was nearly too late.
func (p *patience) spun(looks int) {
	if looks > p.spins/2 {
		p.spins = min(2*p.spins, p.most)
	}
}

// mayYield says whether to let other threads run in this wait.
func (p *patience) mayYield() bool {
	if p.asleep > 0 {
		p.asleep--
		return false
	}
	return true
}

// came is told that the other rank came while this one let other threads run, and how long the last time of that was. A rank
// that comes so soon is worth spinning for.
func (p *patience) came(lastYield time.Duration) {
	if lastYield > slowYield {
		p.busy = min(max(2*p.busy, 1), mostBusy)
		p.asleep = p.busy
		return
	}
	p.busy /= 2
	p.spins = min(2*p.spins, p.most)
}

// slept is told that this rank had to sleep, and how long it waited after it had spun. Where that was not long, it had better
// slept at once.
func (p *patience) slept(wait time.Duration) {
	if wait < longWait {
		p.spins = max(p.spins/2, leastSpins)
	}
}
