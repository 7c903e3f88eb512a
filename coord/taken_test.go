package coord_test

import (
	"testing"

	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/internal/lab"
)

func TestTaken(t *testing.T) {
	lab.Clause(t, "C-REQ-2")
	m := coord.New(coord.Config{Service: 1, Jobs: []coord.Job{{Name: "worker", Tasks: 1}}})
	call := func(number, watermark uint64) coord.Call {
		return coord.Call{Req: coord.Req(number), ID: coord.RequestID{Requester: 5, Number: number, Watermark: watermark}}
	}
	if m.Taken(call(1, 0)) {
		t.Error("Taken() of the first call = true; want false")
	}
	m.Step(0, coord.InsertKeyValue{Call: call(1, 0), Key: "a"})
	m.Step(0, coord.InsertKeyValue{Call: call(2, 1), Key: "b"})
	for number, want := range map[uint64]bool{1: true, 2: true, 3: false} {
		if got := m.Taken(call(number, 0)); got != want {
			t.Errorf("Taken(%d) = %v; want %v", number, got, want)
		}
	}
	if m.Taken(coord.Call{}) {
		t.Error("Taken() of a call without an id = true; want false")
	}
}
