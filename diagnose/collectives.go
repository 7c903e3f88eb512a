package diagnose

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// This file is about ranks that wait for each other in serry's own collectives (D-EV-3, E12). The processes themselves record which
// operations they have begun, and tell it when they are asked.

// CollectiveEvidence is the first operation of a clique that not all of its ranks have begun, or of which they have begun different
// ones, by what its processes say. All numbers are those of ranks of the job, sorted.
type CollectiveEvidence struct {
	Clique  string
	Seq     uint64
	Op      string // what those run that wait: "allreduce of 1024 f32 by sum"
	Since   time.Duration
	Waiters []int // ranks that have begun it, or a later one, which has not ended
	Missing []int // ranks that have not begun it, as far as is known
	Silent  []int // those of Missing that have not answered when they were asked

	// Calls are what ranks have begun under the number, by the most ranks first. More than one: they do not run the same operations.
	Calls []CollectiveCall

	Rows []string // the last operations of all ranks up to this one, a line each
}

// A CollectiveCall is an operation, and the ranks that have begun it.
type CollectiveCall struct {
	Op    string
	Ranks []int
}

// A CollectiveWait is the operation that ranks wait in. The zero CollectiveWait: they wait in none.
type CollectiveWait struct {
	Clique string   `json:"clique"`
	Seq    uint64   `json:"seq"`
	Op     string   `json:"op"`
	Silent []int    `json:"silent,omitempty"` // ranks that have not answered
	Rows   []string `json:"rows,omitempty"`
	Other  string   `json:"other,omitempty"` // what the ranks to name run in its place
}

// is says whether ranks wait in an operation.
func (c *CollectiveWait) is() bool { return c.Clique != "" }

// inCollectives finds the ranks that wait in operations. A program may begin an operation and go on, so a rank waits for one only where
// its process does nothing else.
func (g *waitGraph) inCollectives() {
	for _, c := range g.sortedCollectives() {
		if len(c.Calls) > 1 || len(c.Missing) == 0 {
			continue
		}
		w := &wait{since: c.Since, for_: c.Missing, silent: len(c.Silent) > 0}
		for _, rank := range c.Waiters {
			if r := g.ranks[rank]; r != nil && g.at[rank] == nil && r.awaitsProcess() && !slices.Contains(c.Missing, rank) {
				w.Ranks = append(w.Ranks, rank)
			}
		}
		if w.Count = len(w.Ranks); w.Count == 0 {
			continue
		}
		w.Collective = CollectiveWait{Clique: c.Clique, Seq: c.Seq, Op: c.Op, Silent: c.Silent, Rows: c.Rows}
		w.At = g.commonPlace(w.Ranks)
		for _, rank := range w.Ranks {
			g.at[rank] = w
		}
		g.waits = append(g.waits, w)
	}
}

// sortedCollectives has the oldest first.
func (g *waitGraph) sortedCollectives() []CollectiveEvidence {
	return slices.SortedFunc(slices.Values(g.Collectives), func(a, b CollectiveEvidence) int {
		return cmp.Or(cmp.Compare(a.Since, b.Since), cmp.Compare(a.Clique, b.Clique), cmp.Compare(a.Seq, b.Seq))
	})
}

// awaitsProcess says whether the process of a rank does nothing that is seen from outside.
func (r *RankEvidence) awaitsProcess() bool {
	return r.Class == ClassStatic || r.Class == ClassWaiting && r.Wait == ResultWait
}

// differences are the cliques whose ranks have begun different operations under one number, and stand still. Such ranks do not wait for
// each other in turn: what they wait for never comes.
func (g *waitGraph) differences(now time.Duration) (all []*Hang) {
	for _, c := range g.sortedCollectives() {
		if len(c.Calls) > 1 && now >= c.Since+lateAfter && g.allStand(c.Calls) {
			all = append(all, g.difference(now, c))
		}
	}
	return all
}

// allStand says whether none of the ranks goes on, in their code or to a barrier: else they have done with the operation.
func (g *waitGraph) allStand(calls []CollectiveCall) bool {
	for _, call := range calls {
		for _, rank := range call.Ranks {
			r, at := g.ranks[rank], g.at[rank]
			if r == nil || !stands(kindOf([]RankEvidence{*r})) || at != nil && at.Barrier != "" {
				return false
			}
		}
	}
	return true
}

// difference names the ranks that are fewest: they are the ones to look at.
func (g *waitGraph) difference(now time.Duration, c CollectiveEvidence) *Hang {
	first, last := c.Calls[0], c.Calls[len(c.Calls)-1]
	w := HangWait{Ranks: first.Ranks, Count: len(first.Ranks), At: g.commonPlace(first.Ranks)}
	w.Collective = CollectiveWait{Clique: c.Clique, Seq: c.Seq, Op: first.Op, Rows: c.Rows, Other: last.Op}
	h := &Hang{Kind: HangDiffer, Stage: Stalled, Grade: Sure, Since: c.Since, Stalled: max(c.Since+lateAfter, g.Steady), Waits: []HangWait{w}}
	for _, rank := range last.Ranks {
		h.Ranks = append(h.Ranks, *g.ranks[rank])
	}
	if now >= max(c.Since, g.Steady)+crossAfter {
		h.Stage = Stuck
	}
	return h
}

// place is where ranks wait.
func (c *CollectiveWait) place() string { return fmt.Sprintf("in operation %d, %s", c.Seq, c.Op) }

// differs says what ranks did otherwise than the others: rank 3 called A as operation 41 where ranks 0-2 called B.
func (h *Hang) differs() string {
	w := h.Waits[0]
	return fmt.Sprintf("%s called %s as operation %d where %s called %s", rankRanges(h.numbers()), w.Collective.Other, w.Collective.Seq, h.waiters(), w.Collective.Op)
}

// lines are what the processes have said, for people.
func (c *CollectiveWait) lines() []string {
	if !c.is() {
		return nil
	}
	name, _, _ := strings.Cut(c.Clique, "; ") // behind it there is what tells it from its successors
	return append([]string{name}, c.Rows...)
}

// reason says what the grade of a verdict about it rests on.
func (c *CollectiveWait) reason() string {
	if len(c.Silent) > 0 {
		return fmt.Sprintf("the processes record what they have begun; %s %s not answered", rankRanges(c.Silent), verb(len(c.Silent), "has", "have"))
	}
	return "the processes record what they have begun"
}

// idle is what there is to say where no rank is known to wait, and half of all ranks stand still all the same (D-HG-4). They may wait for
// something that serry does not see, or have nothing to do: so it is never more than late.
func (g *waitGraph) idle(now time.Duration) *Hang {
	h := &Hang{Kind: HangIdle, Stage: Late, Grade: Possible}
	w := HangWait{}
	for _, r := range g.sorted() {
		if r.Class == ClassStatic && now-r.Since >= idleAfter {
			w.Ranks, h.Since = append(w.Ranks, r.Rank), max(h.Since, r.Since)
		}
	}
	if w.Count = len(w.Ranks); w.Count == 0 || 2*w.Count < g.Size {
		return nil
	}
	w.At = g.commonPlace(w.Ranks)
	h.Waits = []HangWait{w}
	return h
}
