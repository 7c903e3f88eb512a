package diagnose

import (
	"cmp"
	"slices"
	"time"
)

// HangEvidence is what is known of ranks that may wait for each other: what each does, and the barriers that are open.
// All times are on one clock, that of the launcher which judges.
type HangEvidence struct {
	Ranks    []RankEvidence // that run, or have ended well
	Barriers []BarrierEvidence

	Transfers   []TransferEvidence // that have not ended
	Collectives []CollectiveEvidence

	Size    int           // how many ranks the job has
	Steady  time.Duration // since when the service has answered without a break
	Passed  bool          // a barrier has passed since the attempt began
	After   time.Duration // that the user lets a stall last before it is a hang; 0: not given
	Longest time.Duration // the longest stall of the job that ended well
	Step    time.Duration // that a step takes as a rule; 0: too few were reported in this attempt
}

// RankEvidence is what is known of a rank. One that has ended well has the class gone.
type RankEvidence struct {
	Rank int    `json:"rank"`
	PID  int    `json:"pid,omitempty"`
	Host string `json:"host,omitempty"`
	Condition
	Raised bool `json:"raised,omitempty"` // it has printed an exception
}

// BarrierEvidence is an open barrier.
type BarrierEvidence struct {
	ID      string
	Since   time.Duration // the first arrival
	Usual   time.Duration // how long such barriers take; 0: not known
	Members int
	Arrived int
	Missing []int
}

// A HangKind is what keeps ranks waiting.
type HangKind string

// The kinds.
const (
	HangStill     HangKind = "still"     // a rank stands at one place
	HangStopped   HangKind = "stopped"   // a rank was stopped by a signal
	HangLeaving   HangKind = "leaving"   // a rank leaves while the others work
	HangStorage   HangKind = "storage"   // a rank waits for a device
	HangDeadlock  HangKind = "deadlock"  // ranks wait for each other
	HangCompiling HangKind = "compiling" // a rank compiles: slow, not a hang
	HangIO        HangKind = "io"        // a rank reads or writes: slow, not a hang
	HangBusy      HangKind = "busy"      // a rank computes inside one function
	HangSlow      HangKind = "slow"      // a rank goes on, later than the others
	HangDiffer    HangKind = "differ"    // ranks have begun different operations under one number
	HangIdle      HangKind = "idle"      // ranks stand still, and none is known to wait: Waits has them, and Ranks is empty
)

// A Grade says how well a verdict is founded (D-HG-14).
type Grade string

// The grades.
const (
	Sure     Grade = "sure"     // the service or the kernel says so
	Likely   Grade = "likely"   // stacks of several ranks agree
	Possible Grade = "possible" // anything less
)

// A Hang says which ranks the others wait for, since when, and how far it has come.
type Hang struct {
	Kind    HangKind       `json:"kind"`
	Stage   Stage          `json:"stage"`
	Grade   Grade          `json:"grade"`
	Ranks   []RankEvidence `json:"ranks"`             // that are waited for
	Since   time.Duration  `json:"since"`             // from when on they have done the same (D-HG-7)
	Stalled time.Duration  `json:"stalled,omitempty"` // when the stage stalled began, for stages from it on
	Waits   []HangWait     `json:"waits"`
}

// A HangWait is ranks that wait at one place.
type HangWait struct {
	Barrier string  `json:"barrier,omitempty"` // or empty: they are in
	In      string  `json:"in,omitempty"`      // this computation, or
	Ranks   RankSet `json:"ranks"`             // as far as they are known
	Count   int     `json:"count"`
	At      string  `json:"at,omitempty"` // where in their code, if it is the same for all

	Transfer   TransferWait   `json:"transfer,omitzero"` // the oldest of the transfers that they wait for
	Collective CollectiveWait `json:"collective,omitzero"`
}

const (
	haltPatience   = 30 * time.Second // a rank that a signal has stopped
	raisedPatience = 10 * time.Second // a rank that leaves after an exception
	stallTimes     = 3                // times the longest stall that ended well
	savePatience   = 5                // times the patience, for a rank that writes a checkpoint
	idleAfter      = 4 * time.Second  // half of all ranks stand still
	steppedAfter   = 30 * time.Second // the least that a stall lasts before it is a hang where steps are reported
	busyTimes      = 2                // times the patience, for a rank that computes where the others wait for it
)

// JudgeHang says what keeps ranks waiting, or returns nil if no rank waits for longer than usual. It is pure: the same
// evidence at the same time gives the same hang, and the order of the evidence does not matter.
//
// There are three steps. First it finds the waiting ranks: the service knows those at barriers, processes tell of their
// transfers and of their collective operations, and stacks show those in computations. Then it follows each chain of waits to its end, to the ranks that wait for no other rank. Last it asks how long
// these ranks have done what they do. Only if all of them stand still does a wait become more than late.
func JudgeHang(now time.Duration, e HangEvidence) *Hang {
	g := newWaitGraph(e)
	var worst *Hang
	for _, h := range g.differences(now) {
		if h.worse(worst) {
			worst = h
		}
	}
	for _, w := range g.judged() {
		if h := g.judge(now, w); h != nil && h.worse(worst) {
			worst = h
		}
	}
	if worst == nil && len(g.waits) == 0 {
		return g.idle(now)
	}
	return worst
}

var stageOrder = []Stage{OnTime, Late, Stalled, Stuck}

// worse says which of two is to be told. Of equal stages it is the one that began first.
func (h *Hang) worse(than *Hang) bool {
	if than == nil {
		return true
	}
	a, b := slices.Index(stageOrder, h.Stage), slices.Index(stageOrder, than.Stage)
	return a > b || a == b && h.Since < than.Since
}

// A waitGraph has the ranks that wait, and the ranks that each of them waits for (D-HG-1).
type waitGraph struct {
	HangEvidence
	ranks map[int]*RankEvidence
	waits []*wait
	at    map[int]*wait // by rank that waits
	soft  *wait         // of ranks that wait in a computation, or nil
}

// A wait is what some ranks wait for.
type wait struct {
	HangWait
	since  time.Duration // the median of those that wait; at a barrier the first
	usual  time.Duration
	for_   []int // ranks that it needs and that are not there
	atEnd  bool  // of the job: ranks that want to leave
	atHead bool  // of the job: ranks that want to join
	open   bool  // only for halves of transfers that have not been posted: see TransferEvidence.Open
	silent bool  // only for ranks that have not said what their transfers wait for
}

func newWaitGraph(e HangEvidence) *waitGraph {
	g := &waitGraph{HangEvidence: e, ranks: make(map[int]*RankEvidence), at: make(map[int]*wait)}
	for _, r := range e.Ranks {
		g.ranks[r.Rank] = &r
	}
	for _, b := range e.Barriers {
		if !isEnd(b.ID) && b.Arrived < b.Members {
			g.waits = append(g.waits, g.atBarrier(b))
		}
	}
	for _, b := range e.Barriers {
		if isEnd(b.ID) && b.Arrived < b.Members {
			g.leaving(b)
		}
	}
	g.inTransfers()
	g.inCollectives()
	g.inComputations()
	slices.SortFunc(g.waits, func(a, b *wait) int {
		return cmp.Or(cmp.Compare(a.since, b.since), cmp.Compare(a.Barrier, b.Barrier), slices.Compare(a.Ranks, b.Ranks))
	})
	return g
}

// atBarrier is the wait at a barrier. Which ranks have come is known where all must.
func (g *waitGraph) atBarrier(b BarrierEvidence) *wait {
	w := &wait{HangWait: HangWait{Barrier: b.ID, Count: b.Arrived}, since: b.Since, usual: b.Usual, for_: slices.Sorted(slices.Values(b.Missing)), atEnd: isEnd(b.ID), atHead: isStart(b.ID)}
	if b.Members == g.Size && len(b.Missing) == b.Members-b.Arrived {
		for rank := range g.Size {
			if _, missing := slices.BinarySearch(w.for_, rank); !missing {
				w.Ranks = append(w.Ranks, rank)
				if !w.atEnd {
					g.at[rank] = w
				}
			}
		}
		w.At = g.commonPlace(w.Ranks)
	}
	return w
}

// leaving takes note of ranks that want to leave. They wait for the others, but a rank that leaves while others wait
// in a computation for it is what keeps these waiting, so it counts as one that waits for no other rank.
func (g *waitGraph) leaving(b BarrierEvidence) {
	w := g.atBarrier(b)
	for _, rank := range w.Ranks {
		if r := g.ranks[rank]; r != nil {
			r.Class, r.Since, r.Wait = ClassLeaving, b.Since, ""
		}
	}
	g.waits = append(g.waits, w)
}

// inComputations is the wait of ranks that stand in a computation. Whatever they call it, it is one wait: which
// collectives belong together cannot be told from outside. It is for all ranks that do not wait.
func (g *waitGraph) inComputations() {
	w := &wait{}
	var since []time.Duration
	words := make(map[string]int)
	for _, r := range g.sorted() {
		if r.Class == ClassWaiting && g.at[r.Rank] == nil {
			w.Ranks, since = append(w.Ranks, r.Rank), append(since, r.Since)
			words[r.Wait]++
		} else if g.at[r.Rank] == nil {
			w.for_ = append(w.for_, r.Rank)
		}
	}
	if len(w.Ranks) == 0 {
		return
	}
	slices.Sort(since)
	w.since, w.Count, w.In = since[len(since)/2], len(w.Ranks), mostOf(words)
	w.At = g.commonPlace(w.Ranks)
	for _, rank := range w.Ranks {
		g.at[rank] = w
	}
	g.soft = w
	g.waits = append(g.waits, w)
}

func (g *waitGraph) sorted() []*RankEvidence {
	var all []*RankEvidence
	for _, r := range g.ranks {
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b *RankEvidence) int { return cmp.Compare(a.Rank, b.Rank) })
	return all
}

// mostOf is the word that most ranks have. A named collective says more than a computation.
func mostOf(words map[string]int) string {
	best := ""
	for word, n := range words {
		switch {
		case best == "" || best == ResultWait:
			best = word
		case word == ResultWait:
		case n > words[best] || n == words[best] && word < best:
			best = word
		}
	}
	return best
}

// commonPlace is where ranks are, if all are known to be at the same place.
func (g *waitGraph) commonPlace(ranks []int) string {
	at := ""
	for i, rank := range ranks {
		r := g.ranks[rank]
		if r == nil || i > 0 && r.At != at {
			return ""
		}
		at = r.At
	}
	return at
}

// suspects are the ranks at the end of a chain of waits: others wait for them, and they wait for none. A cycle of
// barriers has none. A rank in a computation that needs no other rank is one, too.
func (g *waitGraph) suspects(w *wait) []int {
	var found []int
	for led := range g.leadsTo(w) {
		for _, rank := range led.for_ {
			if g.atEndOfChain(rank) {
				found = append(found, rank)
			}
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// atEndOfChain says whether a rank that is waited for waits for none.
func (g *waitGraph) atEndOfChain(rank int) bool {
	next := g.at[rank]
	return next == nil || next == g.soft && len(next.for_) == 0
}

// leadsTo are a wait and all waits of the ranks that it is for, of those that these are for, and so on.
func (g *waitGraph) leadsTo(w *wait) map[*wait]bool {
	seen := map[*wait]bool{w: true}
	for next := []*wait{w}; len(next) > 0; {
		w, next = next[len(next)-1], next[:len(next)-1]
		for _, rank := range w.for_ {
			if at := g.at[rank]; !g.atEndOfChain(rank) && !seen[at] {
				seen[at] = true
				next = append(next, at)
			}
		}
	}
	return seen
}

// judge says how far a wait has come, or returns nil if it takes no longer than usual.
func (g *waitGraph) judge(now time.Duration, w *wait) *Hang {
	late := w.since + max(lateAfter, lateTimes*w.usual)
	if g.mayCome(w) {
		late = w.since + openPatience
	}
	if now < late {
		return nil
	}
	h := &Hang{Stage: Late, Since: w.since, Waits: g.waitsFor(w)}
	suspects := g.suspects(w)
	switch {
	case len(suspects) == 0 && w == g.soft:
		return nil // all ranks compute together
	case len(suspects) == 0 && len(w.for_) > 0:
		return g.deadlock(now, w, h)
	}
	for _, rank := range suspects {
		if r := g.ranks[rank]; r != nil {
			h.Ranks = append(h.Ranks, *r)
		} else {
			h.Ranks = append(h.Ranks, RankEvidence{Rank: rank}) // it does not run yet
		}
	}
	h.Kind, h.Grade = kindOf(h.Ranks), g.grade(w, h.Ranks)
	if w.atEnd && h.Kind == HangLeaving {
		return nil
	}
	h.Since = sinceWhen(h.Ranks)
	if h.Kind == HangBusy {
		h.Grade = Possible // a rank that computes may as well work (D-HG-11)
		if g.Step > 0 && now >= max(h.Since, g.Steady)+busyTimes*g.patience(w, h) {
			h.Grade = Likely
		}
	}
	if stands(h.Kind) {
		g.stall(now, late, w, h)
	}
	return h
}

// waitsFor are the wait and those that lead to it.
func (g *waitGraph) waitsFor(w *wait) []HangWait {
	all := []HangWait{w.HangWait}
	for _, o := range g.waits {
		if o != w && !o.atEnd && slices.ContainsFunc(o.for_, func(rank int) bool { return g.at[rank] == w || slices.Contains(w.for_, rank) }) {
			all = append(all, o.HangWait)
		}
	}
	return all
}

// deadlock judges ranks that wait for each other, at barriers, in transfers or in collectives: it cannot end by itself, unless a half of a transfer
// is posted after all.
func (g *waitGraph) deadlock(now time.Duration, first *wait, h *Hang) *Hang {
	h.Kind, h.Grade, h.Waits = HangDeadlock, Sure, nil
	led := g.leadsTo(first)
	for _, w := range g.waits {
		if len(w.Ranks) == 0 || w.atEnd || w == g.soft || w.toldByProcesses() && !led[w] {
			continue
		}
		h.Waits = append(h.Waits, w.HangWait)
		h.Since = max(h.Since, w.since)
		if g.mayCome(w) {
			h.Grade = Possible
		}
	}
	slices.SortFunc(h.Waits, func(a, b HangWait) int { return cmp.Compare(a.Ranks[0], b.Ranks[0]) })
	h.Stage, h.Stalled = Stalled, max(h.Since+lateAfter, g.Steady)
	if h.Grade == Sure && now >= max(h.Since, g.Steady)+crossAfter {
		h.Stage = Stuck
	}
	return h
}

// stall finds the stage of a wait for ranks that stand still.
func (g *waitGraph) stall(now, late time.Duration, w *wait, h *Hang) {
	h.Stalled = max(late, h.Since+stillFor)
	if now < h.Stalled {
		return
	}
	h.Stage = Stalled
	// Ranks that need no other rank may compute for long when one of them has ended.
	never := w.atEnd || g.mayCome(w) || slices.ContainsFunc(h.Ranks, func(r RankEvidence) bool {
		return r.Traced || r.Class == ClassGone && w.In == ResultWait || r.Phase != "" && now < r.Until
	})
	if !never && now >= max(h.Stalled, g.Steady)+g.patience(w, h) {
		h.Stage = Stuck
	}
}

// patience is how long a stall may last before it is a hang (D-HG-5).
func (g *waitGraph) patience(w *wait, h *Hang) time.Duration {
	least := stuckAfter
	if g.Step > 0 {
		least = max(steppedAfter, stuckTimes*g.Step)
	}
	usual := max(least, stuckTimes*w.usual, stallTimes*g.Longest)
	switch {
	case w.atHead:
		return max(firstAfter, g.After)
	case g.After > 0:
		usual = g.After
	case !g.Passed && g.Step == 0:
		usual = max(firstAfter, stallTimes*g.Longest)
	}
	switch {
	case h.Kind == HangStopped:
		return min(usual, haltPatience)
	case h.Kind == HangLeaving && slices.ContainsFunc(h.Ranks, func(r RankEvidence) bool { return r.Raised }):
		return raisedPatience
	case slices.ContainsFunc(h.Ranks, func(r RankEvidence) bool { return r.Checkpoint }):
		return savePatience * usual
	}
	return usual
}

// kinds says what each class means for those that wait. The first kind of any rank is that of the hang: a rank that
// goes on may be the only one that the others wait for.
var kinds = []struct {
	class Class
	kind  HangKind
}{
	{ClassUnknown, HangSlow}, {ClassMoving, HangSlow}, {ClassCompiling, HangCompiling}, {ClassIO, HangIO}, {ClassLooping, HangBusy},
	{ClassGone, HangLeaving}, {ClassStopped, HangStopped}, {ClassLeaving, HangLeaving}, {ClassBlocked, HangStorage},
	{ClassZombie, HangStill}, {ClassWaiting, HangStill}, {ClassStatic, HangStill},
}

func kindOf(ranks []RankEvidence) HangKind {
	for _, k := range kinds {
		if slices.ContainsFunc(ranks, func(r RankEvidence) bool { return r.Class == k.class }) {
			return k.kind
		}
	}
	return HangSlow
}

// stands says whether ranks of a kind do nothing that could end the wait.
func stands(k HangKind) bool {
	return k == HangStill || k == HangStopped || k == HangLeaving || k == HangStorage
}

// sinceWhen is when the last of the ranks came to do what it does.
func sinceWhen(ranks []RankEvidence) time.Duration {
	var since time.Duration
	for _, r := range ranks {
		since = max(since, r.Since)
	}
	return since
}

// grade says how sure it is that the others wait for these ranks.
func (g *waitGraph) grade(w *wait, ranks []RankEvidence) Grade {
	stopped := len(ranks) == 1 && ranks[0].Class == ClassStopped
	switch {
	case w.silent && !stopped:
		return Likely
	case w != g.soft || w.Count > 1 && (stopped || len(ranks) == 1 && w.In != ResultWait && g.doesForSure(&ranks[0])):
		return Sure
	case w.Count >= 2 && len(ranks) < w.Count, g.Size == 2 && len(ranks) == 1:
		return Likely
	}
	return Possible
}

// doesForSure says whether something surer than a look at stacks says what keeps a rank from its computation: the kernel, which has seen
// its process end or counts what it reads and writes, or the service, which it has asked to leave. A rank that compiles is seen in
// the compiler itself, not in a wait for something (D-HG-14).
func (g *waitGraph) doesForSure(r *RankEvidence) bool {
	switch r.Class {
	case ClassGone, ClassCompiling:
		return true
	case ClassIO:
		return r.Rate > 0
	case ClassLeaving:
		return slices.ContainsFunc(g.waits, func(w *wait) bool { return w.atEnd && slices.Contains(w.Ranks, r.Rank) })
	}
	return false
}
