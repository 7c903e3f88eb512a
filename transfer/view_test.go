package transfer

import (
	"testing"

	"github.com/serry-dev/serry/internal/lab/clause"
)

// Memory to gather in is given out in order, and never more than there is, but for one that is larger than all of it.
func TestStaging(t *testing.T) {
	clause.Cite(t, "TR-BPR-3", "TR-PUL-17")
	s := staging{limit: 100}
	var got []int64
	take := func(n int64) { s.take(n, func() { got = append(got, n) }) }
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
	s.give(40)
	want(60, 40) // 50 are next, and 40 are free
	s.give(60)
	want(60, 40, 50)
	s.give(50)
	want(60, 40, 50, 500)
	s.give(500)
	want(60, 40, 50, 500, 10)
	if s.give(10); s.used != 0 {
		t.Errorf("%d bytes are in use; want none", s.used)
	}
}
