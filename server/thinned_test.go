package server

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/internal/lab/clause"
)

// Of a long history some moments are left out: never the first or the last, and the others stay in order.
func TestThinned(t *testing.T) {
	clause.Cite(t, "D-WEB-4")
	rapid.Check(t, func(t *rapid.T) {
		all := rapid.SliceOfNDistinct(rapid.Int64Range(0, 1<<40), 1, 200, rapid.ID).Draw(t, "times")
		slices.Sort(all)
		var times []coord.Time
		for _, n := range all {
			times = append(times, coord.Time(n))
		}
		most := rapid.IntRange(2, 50).Draw(t, "most")
		got := thinned(times, most)
		if len(got) > most || got[0] != times[0] || got[len(got)-1] != times[len(times)-1] || !slices.IsSorted(got) || len(times) <= most && len(got) != len(times) {
			t.Errorf("thinned(%v, %d) = %v; want some of them with the first and the last", times, most, got)
		}
	})
}
