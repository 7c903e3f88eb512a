package transfer

import (
	"slices"
	"testing"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/lab/clause"
)

// Memory to gather in is given out in order, and never more than there is, but for one that is larger than all of it.
func TestStaging(t *testing.T) {
	clause.Cite(t, "TR-BPR-3", "TR-PUL-17")
	s := staging{limit: 100}
	var got []int64
	take := func(n int64) { s.take(serry.Life{}, n, func() { got = append(got, n) }) }
	want := func(list ...int64) {
		t.Helper()
		if len(got) != len(list) {
			t.Fatalf("granted %v; want %v", got, list)
		}
		for i := range list {
			if got[i] != list[i] {
				t.Fatalf("granted %v; want %v", got, list)
			}
		}
	}
	for _, n := range []int64{60, 40, 50, 500, 10} {
		take(n)
	}
	want(60, 40)
	s.give(serry.Life{}, 40)
	want(60, 40) // 50 are next, and 40 are free
	s.give(serry.Life{}, 60)
	want(60, 40, 50)
	s.give(serry.Life{}, 50)
	want(60, 40, 50, 500)
	s.give(serry.Life{}, 500)
	want(60, 40, 50, 500, 10)
	if s.give(serry.Life{}, 10); s.used != 0 {
		t.Errorf("%d bytes are in use; want none", s.used)
	}
}

// A peer that keeps all room does not keep others out: one part of each has room in any case.
func TestStagingForEachPeer(t *testing.T) {
	clause.Cite(t, "TR-BPR-3", "TR-ORD-7")
	s := staging{limit: 100}
	var got []int64
	take := func(peer serry.Incarnation, n int64) {
		s.take(serry.Life{Incarnation: peer}, n, func() { got = append(got, n) })
	}
	for _, n := range []int64{90, 80, 70} {
		take(1, n)
	}
	take(2, 60)
	take(2, 50)
	take(3, 40)
	if want := []int64{90, 60, 40}; !slices.Equal(got, want) {
		t.Errorf("granted %v; want %v", got, want)
	}
	s.give(serry.Life{Incarnation: 2}, 60)
	if want := []int64{90, 60, 40, 50}; !slices.Equal(got, want) {
		t.Errorf("granted %v; want %v", got, want)
	}
	s.give(serry.Life{Incarnation: 1}, 90)
	s.give(serry.Life{Incarnation: 3}, 40)
	s.give(serry.Life{Incarnation: 2}, 50)
	if want := []int64{90, 60, 40, 50, 80}; !slices.Equal(got, want) || s.used != 80 {
		t.Errorf("granted %v, %d bytes are in use; want %v", got, s.used, want)
	}
}
