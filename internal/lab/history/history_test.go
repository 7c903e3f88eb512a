package history_test

import (
	"testing"

	"github.com/serry-dev/serry/internal/lab"
	"github.com/serry-dev/serry/internal/lab/history"
)

// span is short for the time of a call.
func span(call, end history.Moment) history.Span { return history.Span{Call: call, Return: end} }

func TestCheckKeys(t *testing.T) {
	lab.Clause(t, "C-REQ-2")
	type calls = []history.KeyCall
	add := func(s history.Span, found string) history.KeyCall {
		return history.KeyCall{Span: s, Action: history.Increment, Key: "n", Value: "1", Found: found}
	}
	get := func(s history.Span, found string) history.KeyCall {
		return history.KeyCall{Span: s, Action: history.Get, Key: "n", Found: found, Absent: found == ""}
	}
	has := func(s history.Span, is bool) history.KeyCall {
		return history.KeyCall{Span: s, Action: history.Has, Key: "n", Absent: !is}
	}
	put := func(s history.Span, value string) history.KeyCall {
		return history.KeyCall{Span: s, Action: history.Overwrite, Key: "n", Value: value}
	}
	insert := func(s history.Span, value string, exists bool) history.KeyCall {
		return history.KeyCall{Span: s, Action: history.Insert, Key: "n", Value: value, Exists: exists}
	}
	remove := func(s history.Span) history.KeyCall {
		return history.KeyCall{Span: s, Action: history.Delete, Key: "n"}
	}
	swap := func(s history.Span, old, value string, other bool) history.KeyCall {
		return history.KeyCall{Span: s, Action: history.Swap, Key: "n", Old: old, Value: value, Other: other}
	}
	for _, test := range []struct {
		name  string
		calls calls
		valid bool
	}{
		{"two at once", calls{add(span(1, 4), "2"), add(span(2, 3), "1")}, true},
		{"an increment is lost", calls{add(span(1, 2), "1"), add(span(3, 4), "1")}, false},
		{"an increment is doubled", calls{add(span(1, 2), "2")}, false},
		{"one without an answer happened", calls{add(span(1, 0), ""), add(span(3, 4), "2")}, true},
		{"one without an answer did not", calls{add(span(1, 0), ""), add(span(3, 4), "1")}, true},
		{"it happened and then it did not", calls{add(span(1, 0), ""), get(span(2, 3), "1"), get(span(4, 5), "")}, false},
		{"an old value is read", calls{put(span(1, 2), "a"), put(span(3, 4), "b"), get(span(5, 6), "a")}, false},
		{"an acknowledged value is gone", calls{put(span(1, 2), "a"), get(span(3, 4), "")}, false},
		{"a value is listed", calls{has(span(1, 2), false), put(span(3, 4), "a"), has(span(5, 6), true)}, true},
		{"a value is left out of a list", calls{put(span(1, 2), "a"), has(span(3, 4), false)}, false},
		{"a value is deleted", calls{put(span(1, 2), "a"), remove(span(3, 6)), get(span(4, 5), "")}, true},
		{"the first insert wins", calls{insert(span(1, 4), "a", true), insert(span(2, 3), "b", false), get(span(5, 6), "b")}, true},
		{"both inserts win", calls{insert(span(1, 4), "a", false), insert(span(2, 3), "b", false)}, false},
		{"one of two swaps wins", calls{swap(span(1, 4), "", "a", true), swap(span(2, 3), "", "b", false), get(span(5, 6), "b")}, true},
		{"both swaps win", calls{swap(span(1, 4), "", "a", false), swap(span(2, 3), "", "b", false)}, false},
		{"a swap without an answer", calls{put(span(1, 2), "a"), swap(span(3, 0), "a", "b", false), get(span(4, 5), "b")}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			if err := history.CheckKeys(test.calls); (err == nil) != test.valid {
				t.Errorf("CheckKeys() = %v; want valid: %v", err, test.valid)
			}
		})
	}
}

func TestCheckBarriers(t *testing.T) {
	lab.Clause(t, "C-BAR-13", "C-BAR-14", "NEW-21")
	pass := func(member int, s history.Span) history.BarrierCall {
		return history.BarrierCall{Span: s, ID: "b", Members: []int{0, 1}, Member: member, Passed: s.Return != 0}
	}
	fail := func(member int, s history.Span) history.BarrierCall {
		return history.BarrierCall{Span: s, ID: "b", Members: []int{0, 1}, Member: member, Failed: "timed out"}
	}
	other := pass(1, span(2, 4))
	other.Counter = 1
	for _, test := range []struct {
		name  string
		calls []history.BarrierCall
		valid bool
	}{
		{"both pass", []history.BarrierCall{pass(0, span(1, 3)), pass(1, span(2, 4))}, true},
		{"both fail", []history.BarrierCall{fail(0, span(1, 3)), fail(1, span(2, 4))}, true},
		{"one hears nothing", []history.BarrierCall{pass(0, span(1, 3)), pass(1, span(2, 0))}, true},
		{"they disagree", []history.BarrierCall{pass(0, span(1, 3)), fail(1, span(2, 4))}, false},
		{"one passes alone", []history.BarrierCall{pass(0, span(1, 3))}, false},
		{"one passes too early", []history.BarrierCall{pass(0, span(1, 3)), pass(1, span(4, 5))}, false},
		{"one passes twice", []history.BarrierCall{pass(0, span(1, 3)), pass(1, span(2, 4)), pass(1, span(5, 6))}, false},
		{"one passes another instance", []history.BarrierCall{pass(0, span(1, 3)), other}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			if err := history.CheckBarriers(test.calls); (err == nil) != test.valid {
				t.Errorf("CheckBarriers() = %v; want valid: %v", err, test.valid)
			}
		})
	}
}

func TestCheckRounds(t *testing.T) {
	lab.Clause(t, "C-ALIVE-2")
	ask := func(member int, s history.Span, alive ...history.LiveMember) history.RoundCall {
		return history.RoundCall{Span: s, Member: member, Life: uint64(member) + 7, Of: "all", Alive: alive}
	}
	a, b := history.LiveMember{Member: 0, Life: 7}, history.LiveMember{Member: 1, Life: 8}
	lived := func(from, until history.Moment) []history.Lifetime {
		return []history.Lifetime{{LiveMember: b, From: from, Until: until}}
	}
	for _, test := range []struct {
		name  string
		calls []history.RoundCall
		valid bool
		lives []history.Lifetime
	}{
		{"both hear the same", []history.RoundCall{ask(0, span(1, 3), a, b), ask(1, span(2, 4), a, b)}, true, nil},
		{"one dies before it hears", []history.RoundCall{ask(0, span(1, 3), a, b), ask(1, span(2, 0))}, true, nil},
		{"each is alone", []history.RoundCall{ask(0, span(1, 3), a), ask(1, span(2, 4), b)}, true, nil},
		{"they disagree", []history.RoundCall{ask(0, span(1, 3), a, b), ask(1, span(2, 4), b)}, false, nil},
		{"one did not ask", []history.RoundCall{ask(0, span(1, 3), a, b)}, false, nil},
		{"one asked later", []history.RoundCall{ask(0, span(1, 3), a, b), ask(1, span(4, 5), a, b)}, false, nil},
		{"one that lives is left out", []history.RoundCall{ask(0, span(3, 4), a)}, false, lived(1, 0)},
		{"one dies meanwhile", []history.RoundCall{ask(0, span(2, 4), a)}, true, lived(1, 3)},
		{"one asked in another life", []history.RoundCall{ask(0, span(1, 3), a, history.LiveMember{Member: 1, Life: 9}), ask(1, span(2, 4), a, b)}, false, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			if err := history.CheckRounds(test.calls, test.lives); (err == nil) != test.valid {
				t.Errorf("CheckRounds() = %v; want valid: %v", err, test.valid)
			}
		})
	}
}

func TestCheckWatches(t *testing.T) {
	lab.Clause(t, "C-WATCH-2")
	see := func(client int, version int64, s history.Span) history.Sight {
		return history.Sight{Span: s, Client: client, Version: version}
	}
	for _, test := range []struct {
		name   string
		sights []history.Sight
		valid  bool
	}{
		{"it ascends", []history.Sight{see(0, 1, span(1, 2)), see(0, 1, span(3, 4)), see(0, 5, span(5, 6))}, true},
		{"it goes back", []history.Sight{see(0, 4, span(1, 2)), see(0, 3, span(3, 4))}, false},
		{"two at once", []history.Sight{see(0, 4, span(1, 3)), see(0, 3, span(2, 4))}, true},
		{"two clients", []history.Sight{see(0, 4, span(1, 2)), see(1, 3, span(3, 4))}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			if err := history.CheckWatches(test.sights); (err == nil) != test.valid {
				t.Errorf("CheckWatches() = %v; want valid: %v", err, test.valid)
			}
		})
	}
}
