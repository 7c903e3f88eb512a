package diagnose

import (
	"fmt"
	"slices"
	"time"

	"github.com/serry-dev/serry/wire"
)

// A Watch follows the hangs of one attempt of a job: it says once when one has stalled, once when it is stuck, and once
// when its ranks have gone on (D-HG-13). The zero Watch is ready. It is a plain value without a clock.
type Watch struct {
	told    *Hang // the last one that was told and has not ended, or nil
	longest time.Duration
	open    map[string]time.Duration   // barriers of the last evidence and since when they are open, but for start and end of the job
	took    map[string][]time.Duration // how long those that passed took, the latest, by class
	passed  bool
}

const (
	tookKept   = 32  // of a class
	tookNeeded = 8   // of a class: fewer may all have been slow
	tookKinds  = 256 // classes
)

// A HangNote says that a hang has come to a stage, or has ended.
type HangNote struct {
	Hang  *Hang
	Ended bool
	After time.Duration // how long it lasted, if it has ended
}

// Step judges the evidence at a time, and returns the hang, or nil, and what is new about it. The watch itself knows
// what has passed, how long barriers take and how long stalls have lasted, and fills that in.
func (w *Watch) Step(now time.Duration, e HangEvidence) (*Hang, []HangNote) {
	w.notice(now, e.Barriers)
	e.Passed, e.Longest, e.Barriers = w.passed, w.longest, slices.Clone(e.Barriers)
	for i, b := range e.Barriers {
		e.Barriers[i].Usual = max(b.Usual, w.usual(b.ID))
	}
	h := JudgeHang(now, e)
	var notes []HangNote
	if w.told != nil && !w.same(h) && w.over(h, e) {
		lasted := now - w.told.Since
		w.longest = max(w.longest, lasted)
		notes = append(notes, HangNote{w.told, true, lasted})
		w.told = nil
	}
	rises := h != nil && (h.Stage == Stalled || h.Stage == Stuck)
	if rises && (w.told == nil || w.same(h) && w.told.Stage != h.Stage && h.Stage == Stuck) {
		w.told = h
		notes = append(notes, HangNote{Hang: h})
	}
	return h, notes
}

// notice finds barriers that have passed between two steps. Those that open and pass in between are not seen, so what is
// usual is what is usual for the longer ones: that makes for more patience.
func (w *Watch) notice(now time.Duration, barriers []BarrierEvidence) {
	open := make(map[string]time.Duration)
	for _, b := range barriers {
		if !isStart(b.ID) && !isEnd(b.ID) {
			open[b.ID] = b.Since
		}
	}
	for id, since := range w.open {
		if again, ok := open[id]; ok && again-since < sinceError {
			continue
		}
		w.passed = true
		class := wire.Class(id)
		if w.took == nil || w.took[class] == nil && len(w.took) >= tookKinds {
			w.took = make(map[string][]time.Duration)
		}
		all := append(w.took[class], now-since)
		w.took[class] = all[max(0, len(all)-tookKept):]
	}
	w.open = open
}

// usual is how long barriers of a class take: the median of those that were seen. 0: too few were.
func (w *Watch) usual(barrier string) time.Duration {
	all := slices.Sorted(slices.Values(w.took[wire.Class(barrier)]))
	if len(all) < tookNeeded {
		return 0
	}
	return all[len(all)/2]
}

// same says whether a hang is the one that was told.
func (w *Watch) same(h *Hang) bool {
	return h != nil && stands(h.Kind) == stands(w.told.Kind) && slices.Equal(h.numbers(), w.told.numbers()) && (h.Since-w.told.Since).Abs() < sinceError
}

// sinceError is by how much the time may differ from which on a rank is said to do the same: times of the service and of other hosts
// are known by messages, which take as long as a network does.
const sinceError = time.Second

// over says whether the ranks of the hang that was told have gone on. That the others are not seen to wait for a
// moment does not end it.
func (w *Watch) over(h *Hang, e HangEvidence) bool {
	if w.told.Kind == HangDeadlock {
		return h == nil || h.Kind != HangDeadlock
	}
	left := slices.ContainsFunc(e.Barriers, func(b BarrierEvidence) bool { return isEnd(b.ID) })
	ranks := make(map[int]*RankEvidence, len(e.Ranks))
	for i := range e.Ranks {
		ranks[e.Ranks[i].Rank] = &e.Ranks[i]
	}
	for i := range w.told.Ranks {
		was := &w.told.Ranks[i]
		is := ranks[was.Rank]
		if is == nil || was.Class == ClassLeaving && !left || was.Class != ClassLeaving && (is.Class != was.Class || (is.Since-was.Since).Abs() >= sinceError) {
			return true
		}
	}
	return false
}

// Text says in one line what is new.
func (n HangNote) Text(now time.Duration, begun time.Time) string {
	switch {
	case !n.Ended:
		return n.Hang.Text(now, begun)
	case n.Hang.Kind == HangDeadlock:
		return fmt.Sprintf("the deadlock since %s has ended after %s", begun.Add(n.Hang.Since).Format(time.TimeOnly), Ago(n.After.Seconds()))
	}
	return fmt.Sprintf("%s went on after %s", rankRanges(n.Hang.numbers()), Ago(n.After.Seconds()))
}
