package coord_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/internal/lab"
)

// reads is one event of each kind that changes nothing, so that it has no record.
func reads() []coord.Event {
	return []coord.Event{
		coord.WatchTasks{}, coord.GetTaskState{}, coord.GetStatus{}, coord.GetKeyValue{}, coord.TryGetKeyValue{},
		coord.GetKeyValueDir{}, coord.ListKeys{}, coord.WatchKeys{},
	}
}

// TestRows holds the table of calls to the events: each call has a row that is named after it, and a record
// if the row says that it changes state.
func TestRows(t *testing.T) {
	lab.Clause(t, "C-REQ-1", "C-LIM-1")
	seen := make(map[coord.Kind]coord.Event)
	check := func(ev coord.Event, recorded bool) {
		row := coord.KindOf(ev).Row()
		name := strings.TrimPrefix(fmt.Sprintf("%T", ev), "coord.")
		if _, isCall := coord.CallOf(ev); !isCall {
			name = ""
		}
		if row.Name != name {
			t.Errorf("%T has the row of %q; want %q", ev, row.Name, name)
		}
		if name != "" && row.Changes != recorded {
			t.Errorf("%s says that it changes state: %v; it has a record: %v", row.Name, row.Changes, recorded)
		}
		if row.Once && !row.Changes || row.Meets && !row.Waits || row.Keeps != coord.KeepsLittle && !row.Changes {
			t.Errorf("row %+v contradicts itself", row)
		}
		if other := seen[coord.KindOf(ev)]; other != nil {
			t.Errorf("%T and %T are of one kind", ev, other)
		}
		seen[coord.KindOf(ev)] = ev
	}
	for _, ev := range recorded() {
		check(ev, true)
	}
	for _, ev := range reads() {
		check(ev, false)
	}
	for k := range coord.Kind(coord.Kinds + 1) {
		if name := k.Row().Name; name != "" && seen[k] == nil {
			t.Errorf("%s is in the table, but in no test of records", name)
		}
	}
}
