package diagnose

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"
)

// This file is about ranks that wait for a transfer of a buffer (D-EV-3, E13). Only the processes at its ends know of it, and tell it
// when they are asked.

// TransferEvidence is a transfer that has not ended, by what its two processes say.
type TransferEvidence struct {
	Waiter int // the rank that waits
	Peer   int // the rank that it waits for
	Key    string
	Why    string // what that rank has to do: "it has not posted the receive"
	Since  time.Duration
	Done   int64 // bytes that have moved
	Bytes  int64 // that are to move

	// Open says that the peer has not posted its half. A process may post a receive long before there is something to receive, so
	// this alone is no sign of a hang.
	Open bool

	// Silent says that the peer has not answered when it was asked.
	Silent bool
}

// A TransferWait is the transfer that ranks wait for, the oldest where there are several. The zero TransferWait: they wait for none.
type TransferWait struct {
	Key    string        `json:"key"`
	From   int           `json:"waiter"` // the rank that waits
	Peer   int           `json:"peer"`   // the rank that it waits for
	Why    string        `json:"why"`
	Since  time.Duration `json:"since"`
	Done   int64         `json:"done"`
	Bytes  int64         `json:"bytes"`
	Others int           `json:"others,omitempty"` // transfers of these ranks that wait, too
	Open   bool          `json:"open,omitempty"`   // the peer has not posted its half
	Silent bool          `json:"silent,omitempty"` // the peer has not answered
}

// is says whether ranks wait for a transfer.
func (t *TransferWait) is() bool { return t.Key != "" }

const (
	openPatience   = 30 * time.Second // for a half of a transfer to be posted
	toldJudged     = 64               // waits in transfers and collectives that are judged; all are followed
	transfersShown = 3                // lines about transfers below a verdict
)

// inTransfers finds the ranks that wait in transfers. A transfer goes on beside its program, so a rank waits for one only where its
// process does nothing else. Ranks that wait for the same peers are one wait.
func (g *waitGraph) inTransfers() {
	byPeers := make(map[string]*wait)
	byRank := make(map[int][]TransferEvidence)
	for _, t := range g.Transfers {
		r := g.ranks[t.Waiter]
		if t.Waiter != t.Peer && r != nil && g.at[t.Waiter] == nil && r.awaitsProcess() {
			byRank[t.Waiter] = append(byRank[t.Waiter], t)
		}
	}
	for _, rank := range slices.Sorted(maps.Keys(byRank)) {
		all := byRank[rank]
		slices.SortFunc(all, func(a, b TransferEvidence) int {
			return cmp.Or(cmp.Compare(a.Since, b.Since), cmp.Compare(a.Peer, b.Peer), cmp.Compare(a.Key, b.Key))
		})
		one := transferWait(all, g.ranks[rank].Since)
		key := fmt.Sprint(one.for_)
		w := byPeers[key]
		if w == nil {
			w = one
			byPeers[key] = w
			g.waits = append(g.waits, w)
		} else {
			w.join(one)
		}
		g.at[rank] = w
	}
	for _, w := range g.waits {
		if w.Transfer.is() {
			w.At = g.commonPlace(w.Ranks)
		}
	}
}

// transferWait is the wait of one rank, by its transfers, the oldest first, and when its process came to stand where it stands.
func transferWait(all []TransferEvidence, stands time.Duration) *wait {
	first := all[0]
	w := &wait{HangWait: HangWait{Ranks: []int{first.Waiter}, Count: 1}, since: max(first.Since, stands), open: true}
	w.Transfer = TransferWait{
		Key: first.Key, From: first.Waiter, Peer: first.Peer, Why: first.Why, Since: first.Since, Done: first.Done, Bytes: first.Bytes, Others: len(all) - 1,
		Open: first.Open, Silent: first.Silent,
	}
	for _, t := range all {
		w.open, w.silent = w.open && t.Open, w.silent || t.Silent
		if !slices.Contains(w.for_, t.Peer) {
			w.for_ = append(w.for_, t.Peer)
		}
	}
	slices.Sort(w.for_)
	return w
}

// join adds a rank that waits for the same peers. Ranks are added in the order of their numbers.
func (w *wait) join(o *wait) {
	others := w.Transfer.Others + o.Transfer.Others + 1
	if o.Transfer.Since < w.Transfer.Since {
		w.Transfer = o.Transfer
	}
	w.Transfer.Others = others
	w.Ranks, w.Count = append(w.Ranks, o.Ranks...), w.Count+o.Count
	w.since, w.open, w.silent = min(w.since, o.since), w.open && o.open, w.silent || o.silent
}

// judged are the waits that can be the one to tell of: of those in transfers and in collectives the ones that began first. Thousands of
// ranks that each wait for the next one are as many waits, and one of the first tells what is the matter.
func (g *waitGraph) judged() []*wait {
	told := 0
	return slices.DeleteFunc(slices.Clone(g.waits), func(w *wait) bool {
		if w.toldByProcesses() {
			told++
		}
		return w.toldByProcesses() && told > toldJudged
	})
}

// toldByProcesses says whether only the processes of its ranks know of a wait.
func (w *HangWait) toldByProcesses() bool { return w.Transfer.is() || w.Collective.is() }

// mayCome says whether all that a wait is for are halves of transfers that have not been posted, and may be posted as late as their
// programs like. Where a user has said how long a stall may last, that holds for them, too.
func (g *waitGraph) mayCome(w *wait) bool { return w.open && g.After == 0 }

// place is where ranks wait: at barrier "a", in transfer 7, in operation 41.
func (w *HangWait) place() string {
	switch {
	case w.Barrier != "":
		return "at " + Place(w.Barrier)
	case w.Transfer.is():
		return "in transfer " + w.Transfer.Key
	case w.Collective.is():
		return w.Collective.place()
	}
	return "in " + w.In
}

// text says which transfer it is, and how far it has come: rank 0 waits for rank 3 in transfer 7, 0 of 64 MB, since 12:01:07: it has not
// posted the receive.
func (t *TransferWait) text(begun time.Time) string {
	text := fmt.Sprintf("rank %d waits for rank %d in transfer %s since %s, %s of %s moved: %s", t.From, t.Peer, t.Key,
		begun.Add(t.Since).Format(time.TimeOnly), Bytes(uint64(max(0, t.Done))), Bytes(uint64(max(0, t.Bytes))), t.Why)
	if t.Others > 0 {
		text += "; " + counted(t.Others, "other transfer waits, too", "other transfers wait, too")
	}
	return text
}

// reason says what the grade of a verdict about it rests on.
func (t *TransferWait) reason() string {
	switch {
	case t.Silent:
		return fmt.Sprintf("rank %d has not answered what it waits for", t.Peer)
	case t.Open:
		return fmt.Sprintf("the processes say so; rank %d may post its half yet", t.Peer)
	}
	return "the processes at both ends say so"
}
