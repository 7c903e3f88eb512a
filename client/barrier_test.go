package client

import (
	"strconv"
	"testing"
)

// TestUsesEnd: a program that uses a fresh id for every meeting, for days, costs a member no memory. Ids
// that are used now and then, and those of open calls, go on.
func TestUsesEnd(t *testing.T) {
	var kept uses
	meet := func(id string, counter int64) {
		t.Helper()
		u := kept.of(id)
		if u.open || u.last+1 != counter {
			t.Fatalf("use of %q = %+v; want use %d to be next", id, u, counter)
		}
		u.last = counter
	}
	kept.of("waits").open = true
	meet("once", 0)
	for i := range 5 * keptUses {
		meet(strconv.Itoa(i), 0)
		if i%(keptUses/2) == 0 {
			meet("checkpoint", int64(i/(keptUses/2)))
		}
		if n := len(kept.recent) + len(kept.former); n > 2*keptUses+1 {
			t.Fatalf("%d ids are kept after %d, want at most %d", n, i, 2*keptUses+1)
		}
	}
	if !kept.of("waits").open {
		t.Error("an id that a call is open for was forgotten")
	}
	meet("once", 0) // forgotten, as by the service
}
