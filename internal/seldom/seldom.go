// Package seldom limits what is told to people. It has one type, [Limit].
package seldom

import "time"

// A Limit picks which events to tell people of. What was refused comes again every second, for ever, so each
// key is picked once in a period, and no more keys than Most; the rest is not told. It has no lock: its owner
// calls it from one goroutine at a time.
type Limit[K comparable] struct {
	Period time.Duration
	Most   int

	picked map[K]bool
	from   time.Time // when picked was last emptied
}

// Pick says whether to tell of k, and remembers that it was told.
func (l *Limit[K]) Pick(k K) bool {
	if now := time.Now(); l.picked == nil || now.Sub(l.from) >= l.Period {
		l.picked, l.from = make(map[K]bool), now
	}
	if l.picked[k] || len(l.picked) >= l.Most {
		return false
	}
	l.picked[k] = true
	return true
}
