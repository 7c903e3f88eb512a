package offer_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/transfer/offer"
)

var start = time.Unix(1_000_000, 0)

// at is a time after the start.
func at(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }

// text prints actions in short.
func text(actions []offer.Action) string {
	var all []string
	for _, a := range actions {
		switch a := a.(type) {
		case offer.Deliver:
			all = append(all, fmt.Sprintf("deliver %d of offer %d to %d", a.Index, a.Offer, a.Ticket))
		case offer.Refuse:
			all = append(all, fmt.Sprintf("refuse %d: %v", a.Ticket, a.Err))
		case offer.End:
			all = append(all, fmt.Sprintf("offer %d is over: %v", a.Offer, a.Err))
		}
	}
	return strings.Join(all, "; ")
}

// is compares actions with their text.
func is(t *testing.T, got []offer.Action, want string) {
	t.Helper()
	if text(got) != want {
		t.Fatalf("actions = %s\nwant      %s", text(got), want)
	}
}

// mustOffer makes an offer that the table takes.
func mustOffer(t *testing.T, table *offer.Table, now time.Time, o offer.Offer, want string) {
	t.Helper()
	_, actions, err := table.Offer(now, o)
	if err != nil {
		t.Fatalf("Offer(%+v) = %v", o, err)
	}
	is(t, actions, want)
}

func request(t *testing.T, table *offer.Table, now time.Time, q offer.Request, want string) offer.Ticket {
	t.Helper()
	ticket, actions := table.Request(now, q)
	is(t, actions, want)
	return ticket
}

func TestOfferThenPull(t *testing.T) {
	clause.Cite(t, "TRT-110")
	table := offer.NewTable(offer.Limits{})
	mustOffer(t, table, start, offer.Offer{ID: 7, Buffers: 2}, "")
	a := request(t, table, start, offer.Request{Offer: 7, Index: 1}, "deliver 1 of offer 1 to 1")
	b := request(t, table, start, offer.Request{Offer: 7, Index: 0}, "deliver 0 of offer 1 to 2")
	is(t, table.Done(a, true), "")
	is(t, table.Done(b, true), "offer 1 is over: <nil>")
	request(t, table, start, offer.Request{Offer: 7, Index: 0}, "") // waits for the next offer of this id
}

func TestPullThenOffer(t *testing.T) {
	clause.Cite(t, "TRT-111")
	table := offer.NewTable(offer.Limits{})
	request(t, table, start, offer.Request{Offer: 7, Index: 0}, "")
	gone := request(t, table, start, offer.Request{Offer: 7, Index: 1}, "")
	request(t, table, start, offer.Request{Offer: 7, Index: 1}, "")
	is(t, table.Cancel(gone), "")
	mustOffer(t, table, start, offer.Offer{ID: 7, Buffers: 2}, "deliver 0 of offer 1 to 1; deliver 1 of offer 1 to 3")
}

func TestExpiry(t *testing.T) {
	t.Run("of an offer", func(t *testing.T) {
		clause.Cite(t, "TRT-113")
		table := offer.NewTable(offer.Limits{})
		mustOffer(t, table, start, offer.Offer{ID: 7, Buffers: 1, Until: at(5)}, "")
		request(t, table, at(5), offer.Request{Offer: 7}, "offer 1 is over: expired")
		mustOffer(t, table, at(6), offer.Offer{ID: 7, Buffers: 1}, "deliver 0 of offer 2 to 1")
	})
	t.Run("of a request", func(t *testing.T) {
		clause.Cite(t, "TRT-114", "TRT-115")
		table := offer.NewTable(offer.Limits{})
		request(t, table, start, offer.Request{Offer: 7, Index: 0, Until: at(9)}, "")
		request(t, table, start, offer.Request{Offer: 7, Index: 1, Until: at(5)}, "")
		if got, ok := table.Deadline(); !ok || !got.Equal(at(5)) {
			t.Fatalf("Deadline() = %v, %v; want %v", got, ok, at(5))
		}
		is(t, table.Advance(at(4)), "")
		is(t, table.Advance(at(5)), "refuse 2: expired")
		is(t, table.Advance(at(20)), "refuse 1: expired")
		if _, ok := table.Deadline(); ok {
			t.Fatal("Deadline() = true; want false")
		}
		mustOffer(t, table, at(20), offer.Offer{ID: 7, Buffers: 2}, "")
	})
	t.Run("in the past", func(t *testing.T) {
		clause.Cite(t, "TRT-123")
		table := offer.NewTable(offer.Limits{})
		request(t, table, at(2), offer.Request{Offer: 7, Until: at(1)}, "refuse 1: expired")
		mustOffer(t, table, at(2), offer.Offer{ID: 7, Buffers: 1, Until: at(1)}, "offer 1 is over: expired")
	})
}

func TestSameIDTwice(t *testing.T) {
	clause.Cite(t, "TRT-116")
	table := offer.NewTable(offer.Limits{})
	mustOffer(t, table, start, offer.Offer{ID: 7, Buffers: 1}, "")
	if _, _, err := table.Offer(start, offer.Offer{ID: 7, Buffers: 1}); !errors.Is(err, offer.ErrOffered) {
		t.Fatalf("Offer(the same id) = %v; want %v", err, offer.ErrOffered)
	}
	mustOffer(t, table, start, offer.Offer{ID: 7, Buffers: 3, Replace: true}, "offer 1 is over: replaced by another offer with the same id")
	request(t, table, start, offer.Request{Offer: 7, Index: 2}, "deliver 2 of offer 2 to 1")
}

func TestBadIndex(t *testing.T) {
	clause.Cite(t, "TRT-117", "TRT-119")
	table := offer.NewTable(offer.Limits{})
	mustOffer(t, table, start, offer.Offer{ID: 7, Buffers: 2}, "")
	request(t, table, start, offer.Request{Offer: 7, Index: 2}, "refuse 1: buffer 2: the offer has 2")
	request(t, table, start, offer.Request{Offer: 7, Index: -1}, "refuse 2: buffer -1: the offer has 2")
	a := request(t, table, start, offer.Request{Offer: 7, Index: 0}, "deliver 0 of offer 1 to 3")
	b := request(t, table, start, offer.Request{Offer: 7, Index: 1}, "deliver 1 of offer 1 to 4")
	is(t, table.Done(b, true), "")
	is(t, table.Done(a, true), "offer 1 is over: <nil>")
	is(t, table.Done(a, true), "")
}

func TestSameIndexTwice(t *testing.T) {
	clause.Cite(t, "TRT-118")
	table := offer.NewTable(offer.Limits{})
	mustOffer(t, table, start, offer.Offer{ID: 7, Buffers: 2}, "")
	a := request(t, table, start, offer.Request{Offer: 7, Index: 0}, "deliver 0 of offer 1 to 1")
	request(t, table, start, offer.Request{Offer: 7, Index: 0}, "refuse 2: buffer 0: the buffer has been fetched already")
	is(t, table.Done(a, false), "") // the connection broke
	a = request(t, table, start, offer.Request{Offer: 7, Index: 0}, "deliver 0 of offer 1 to 3")
	is(t, table.Done(a, true), "")
	b := request(t, table, start, offer.Request{Offer: 7, Index: 1}, "deliver 1 of offer 1 to 4")
	is(t, table.Cancel(b), "")
	b = request(t, table, start, offer.Request{Offer: 7, Index: 1}, "deliver 1 of offer 1 to 5")
	is(t, table.Done(b, true), "offer 1 is over: <nil>")
}

func TestTimes(t *testing.T) {
	clause.Cite(t, "TR-PUL-5")
	table := offer.NewTable(offer.Limits{})
	mustOffer(t, table, start, offer.Offer{ID: 1, Buffers: 1, Times: 2}, "")
	a := request(t, table, start, offer.Request{Offer: 1}, "deliver 0 of offer 1 to 1")
	b := request(t, table, start, offer.Request{Offer: 1}, "deliver 0 of offer 1 to 2")
	request(t, table, start, offer.Request{Offer: 1}, "refuse 3: buffer 0: the buffer has been fetched already")
	is(t, table.Done(a, true), "")
	is(t, table.Done(b, true), "offer 1 is over: <nil>")
	mustOffer(t, table, start, offer.Offer{ID: 2, Buffers: 1, Times: offer.Unlimited}, "")
	for ticket := offer.Ticket(4); ticket < 10; ticket++ {
		request(t, table, start, offer.Request{Offer: 2}, fmt.Sprintf("deliver 0 of offer 2 to %d", ticket))
		is(t, table.Done(ticket, true), "")
	}
}

func TestWithdrawAndReset(t *testing.T) {
	clause.Cite(t, "TR-PUL-14", "TR-PUL-9", "TRT-112")
	table := offer.NewTable(offer.Limits{})
	mustOffer(t, table, start, offer.Offer{ID: 1, Buffers: 1, Until: at(1)}, "")
	running := request(t, table, start, offer.Request{Offer: 1}, "deliver 0 of offer 1 to 1")
	ok, actions := table.Withdraw(1)
	if is(t, actions, "offer 1 is over: withdrawn"); !ok {
		t.Fatal("Withdraw(1) = false; want true")
	}
	is(t, table.Done(running, true), "") // it has finished, and its offer ended once
	request(t, table, start, offer.Request{Offer: 1}, "")
	if ok, actions = table.Withdraw(1); ok {
		t.Fatal("Withdraw(1) = true; want false: it is not offered")
	}
	is(t, actions, "refuse 2: withdrawn")

	request(t, table, start, offer.Request{Offer: 9}, "")
	request(t, table, start, offer.Request{Offer: 8, Until: at(3)}, "")
	mustOffer(t, table, start, offer.Offer{ID: 6, Buffers: 1}, "")
	mustOffer(t, table, start, offer.Offer{ID: 5, Buffers: 1}, "")
	is(t, table.Reset(), "offer 3 is over: the server was reset; offer 2 is over: the server was reset; "+
		"refuse 4: the server was reset; refuse 3: the server was reset")
	is(t, table.Advance(at(9)), "")
}

func TestLimits(t *testing.T) {
	clause.Cite(t, "TR-SEC-4")
	table := offer.NewTable(offer.Limits{Offers: 1, Waiting: 2})
	mustOffer(t, table, start, offer.Offer{ID: 1, Buffers: 1}, "")
	if _, _, err := table.Offer(start, offer.Offer{ID: 2, Buffers: 1}); !errors.Is(err, offer.ErrFull) {
		t.Fatalf("Offer() = %v; want %v", err, offer.ErrFull)
	}
	for _, bad := range []offer.Offer{{ID: 3}, {ID: 3, Buffers: -1}, {ID: 3, Buffers: 1, Times: -2}} {
		if _, _, err := table.Offer(start, bad); err == nil {
			t.Fatalf("Offer(%+v) = nil; want an error", bad)
		}
	}
	request(t, table, start, offer.Request{Offer: 9}, "")
	request(t, table, start, offer.Request{Offer: 9}, "")
	request(t, table, start, offer.Request{Offer: 8}, "refuse 3: too many offers or waiting requests")
	is(t, table.Cancel(1), "")
	request(t, table, start, offer.Request{Offer: 8}, "")
}

// TestManyRequestsOfOneOffer takes back as many requests as a table holds, all for one offer: the first ones first, so
// that each would be looked for among all others if the table searched.
func TestManyRequestsOfOneOffer(t *testing.T) {
	clause.Cite(t, "TR-W-26")
	table := offer.NewTable(offer.Limits{})
	const many = 1 << 16
	for range many {
		request(t, table, start, offer.Request{Offer: 1, Until: at(1)}, "")
	}
	for ticket := offer.Ticket(many); ticket > 1; ticket-- {
		is(t, table.Cancel(ticket), "")
	}
	mustOffer(t, table, start, offer.Offer{ID: 1, Buffers: 1}, "deliver 0 of offer 1 to 1")
}

// TestAgainstModel compares the table with one that searches lists.
func TestAgainstModel(t *testing.T) {
	clause.Cite(t, "TRT-122", "TR-PUL-8")
	rapid.Check(t, func(t *rapid.T) {
		table, now := offer.NewTable(offer.Limits{}), start
		var waiting []offer.Request // by ticket - 1; those that do not wait any more have index -2
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			id := offer.ID(rapid.IntRange(0, 2).Draw(t, "id"))
			switch rapid.IntRange(0, 3).Draw(t, "kind") {
			case 0:
				q := offer.Request{Offer: id, Index: -1, Until: now.Add(time.Duration(rapid.IntRange(1, 20).Draw(t, "for")))}
				_, actions := table.Request(now, q)
				waiting = append(waiting, q)
				if len(actions) > 0 {
					t.Fatalf("Request() = %s; want none", text(actions))
				}
			case 1:
				if len(waiting) > 0 {
					i := rapid.IntRange(0, len(waiting)-1).Draw(t, "ticket")
					table.Cancel(offer.Ticket(i + 1))
					waiting[i].Index = -2
				}
			case 2:
				now = now.Add(time.Duration(rapid.IntRange(0, 8).Draw(t, "later")))
				got := table.Advance(now)
				if want := expired(waiting, now); text(got) != want {
					t.Fatalf("Advance() = %s\nwant %s", text(got), want)
				}
			case 3: // every request has a bad index, so an offer refuses all that wait for it
				_, got, _ := table.Offer(now, offer.Offer{ID: id, Buffers: 1})
				if want := refused(waiting, id); len(got) != want {
					t.Fatalf("Offer() refuses %d; want %d", len(got), want)
				}
				table.Withdraw(id)
			}
		}
	})
}

// expired says what a table does at a time, and marks it as done.
func expired(waiting []offer.Request, now time.Time) string {
	var due []int
	for i, q := range waiting {
		if q.Index == -1 && !q.Until.After(now) {
			due = append(due, i)
		}
	}
	slices.SortStableFunc(due, func(a, b int) int { return waiting[a].Until.Compare(waiting[b].Until) })
	var all []string
	for _, i := range due {
		waiting[i].Index = -2
		all = append(all, fmt.Sprintf("refuse %d: expired", i+1))
	}
	return strings.Join(all, "; ")
}

// refused counts the requests that wait for an offer, and marks them as done.
func refused(waiting []offer.Request, id offer.ID) (n int) {
	for i, q := range waiting {
		if q.Index == -1 && q.Offer == id {
			waiting[i].Index, n = -2, n+1
		}
	}
	return n
}
