package history

import (
	"fmt"
	"math"
	"slices"
)

// A LiveKind is what happens to a process in a [LiveHistory].
type LiveKind int

// The kinds of events. A process that begins with anything but a start was there before.
const (
	LiveStart LiveKind = iota + 1
	LiveCall
	LiveReply // to the last call, with a set
	LiveFail
)

// A LiveEvent is one event of one process.
type LiveEvent struct {
	At   int
	Kind LiveKind
	Set  []int // of a reply: who is alive
}

// A LiveHistory is what happened to each process, sorted by time, when they asked who of all of them
// is alive.
type LiveHistory [][]LiveEvent

// Check says whether every reply of the history can be true (C-LIVE-7): there is an instant within
// the call at which each process of its set was inside a call, too, and every other was dead. Nobody
// knows exactly when a process failed: each failure may lie anywhere between the events of its
// process before and after it, but at one place for all replies.
func (h LiveHistory) Check() error {
	c := &liveCheck{history: h, failures: make(map[place]int)}
	for p, events := range h {
		for i, e := range events {
			if e.Kind == LiveFail {
				c.failures[place{p, i}] = c.variable(h.timeOf(place{p, i - 1}), h.timeOf(place{p, i + 1}))
			}
		}
	}
	for p, events := range h {
		for i, e := range events {
			if e.Kind != LiveReply {
				continue
			}
			if !slices.Contains(e.Set, p) || i == 0 || events[i-1].Kind != LiveCall {
				return fmt.Errorf("process %d at %d: a reply %v without a call, or without itself", p, e.At, e.Set)
			}
			instant := c.variable(events[i-1].At, e.At)
			for q := range h {
				if q != p {
					c.wishes = append(c.wishes, wish{instant: instant, process: q, alive: slices.Contains(e.Set, q)})
				}
			}
		}
	}
	if !c.grant(0) {
		return fmt.Errorf("no instants make all replies true: %v", h)
	}
	return nil
}

// timeOf is when an event was; before the first and after the last lies for ever.
func (h LiveHistory) timeOf(at place) int {
	switch events := h[at.process]; {
	case at.event < 0:
		return math.MinInt
	case at.event >= len(events):
		return math.MaxInt
	default:
		return events[at.event].At
	}
}

// A place names an event of a history.
type place struct{ process, event int }

// A wish is what must hold of a process at an instant.
type wish struct {
	instant int // a variable
	process int
	alive   bool // inside a call; else dead
}

// A liveCheck looks for instants and times of failures. Both are variables, each between two times,
// and some must come before others.
type liveCheck struct {
	history  LiveHistory
	failures map[place]int // the variable of each
	wishes   []wish

	low, high []int    // by variable, both exclusive
	before    [][2]int // pairs of variables in their order
}

func (c *liveCheck) variable(low, high int) int {
	c.low, c.high = append(c.low, low), append(c.high, high)
	return len(c.low) - 1
}

// grant fulfils the wishes from number n on, trying every stretch of the process that would do.
func (c *liveCheck) grant(n int) bool {
	if !c.possible() {
		return false
	}
	if n == len(c.wishes) {
		return true
	}
	w := c.wishes[n]
	for i := -1; i < len(c.history[w.process]); i++ {
		if c.fits(w, i) && c.within(w, i, func() bool { return c.grant(n + 1) }) {
			return true
		}
	}
	return false
}

// fits says whether the stretch after event i of a process is one of the kind wished for.
func (c *liveCheck) fits(w wish, i int) bool {
	events := c.history[w.process]
	if i < 0 { // before the first event
		return !w.alive && (len(events) == 0 || events[0].Kind == LiveStart)
	}
	if w.alive {
		return events[i].Kind == LiveCall
	}
	return events[i].Kind == LiveFail
}

// within puts the instant of a wish into the stretch after event i of its process while it calls try.
func (c *liveCheck) within(w wish, i int, try func() bool) bool {
	low, high, pairs := c.low[w.instant], c.high[w.instant], len(c.before)
	defer func() { c.low[w.instant], c.high[w.instant], c.before = low, high, c.before[:pairs] }()
	if f, ok := c.failures[place{w.process, i}]; ok {
		c.before = append(c.before, [2]int{f, w.instant})
	} else {
		c.low[w.instant] = max(low, c.history.timeOf(place{w.process, i}))
	}
	if f, ok := c.failures[place{w.process, i + 1}]; ok {
		c.before = append(c.before, [2]int{w.instant, f})
	} else {
		c.high[w.instant] = min(high, c.history.timeOf(place{w.process, i + 1}))
	}
	return try()
}

// possible says whether times can be given to all variables: between their bounds, in their order.
// Time has no smallest step, so it is enough that bounds handed on along the order leave each some
// room, and that the order has no circle: along one the bounds would be handed on for ever.
func (c *liveCheck) possible() bool {
	low, high := slices.Clone(c.low), slices.Clone(c.high)
	after := make([]int, len(low)) // the longest way to each variable
	for changed := true; changed; {
		changed = false
		for _, pair := range c.before {
			a, b := pair[0], pair[1]
			if low[b] < low[a] || high[a] > high[b] || after[b] <= after[a] {
				low[b], high[a], after[b] = max(low[b], low[a]), min(high[a], high[b]), max(after[b], after[a]+1)
				changed = true
			}
			if after[b] > len(low) {
				return false // a circle
			}
		}
	}
	for i := range low {
		if low[i] >= high[i] {
			return false
		}
	}
	return true
}
