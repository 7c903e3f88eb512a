package main

import (
	"strings"
	"testing"

	"github.com/serry-dev/serry/internal/lab"
)

// TestAllocations holds every row to its bar for allocations, which are the same in every run. Time is for
// the benchmark.
func TestAllocations(t *testing.T) {
	lab.Clause(t, "C-LIM-1")
	for _, r := range rows() {
		l := take(r, []int{30, 300}, 0)
		if allocs, _ := l.growth(); allocs > maxAllocs {
			t.Errorf("%s: what one touched thing costs grew from 30 to 300 by %.2f; want at most %.2f", r.name, allocs, maxAllocs)
		}
	}
}

func TestTable(t *testing.T) {
	var out strings.Builder
	if err := show(&out, []line{{row: rows()[0], costs: []cost{{1, 10, 1}, {1, 10, 1}, {1, 10, 1}}}}); err != nil {
		t.Errorf("show() = %v; want a table", err)
	}
	if err := show(&out, []line{{row: rows()[0], costs: []cost{{1, 10, 1}, {1, 10, 1}, {1, 1000, 1}}}}); err == nil {
		t.Error("show() of a row that takes 100 times as long returned nil; want an error")
	}
	if !strings.Contains(out.String(), "growth") {
		t.Errorf("show() wrote %q; want a column of growth", out.String())
	}
}
