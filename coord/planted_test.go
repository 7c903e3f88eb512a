package coord_test

import (
	"testing"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/internal/lab"
	"github.com/serry-dev/serry/internal/plant"
)

// TestPlantedFaults: a fault does what it is there for, so that whoever looks for it can find it.
func TestPlantedFaults(t *testing.T) {
	lab.Clause(t, "C-REQ-2", "C-INC-3", "C-LOST-1")
	cfg := coord.Config{Jobs: []coord.Job{{Name: "worker", Tasks: 1}}, Service: 100, Recoverable: true}
	task := serry.TaskID{Job: "worker"}
	for _, fault := range []plant.Faults{0, plant.NoRequestTable, plant.IgnoreIncarnation} {
		cfg.Planted = fault
		m := coord.New(cfg)
		for _, life := range []serry.Incarnation{10, 20} {
			m.Step(0, coord.RegisterTask{Call: coord.Call{Task: task, Incarnation: life}})
		}
		add := coord.IncrementKeyValue{Call: coord.Call{Req: 1, ID: coord.RequestID{Requester: 7, Number: 1}}, Key: "n", By: 1}
		m.Step(0, add)
		for _, e := range m.Step(0, add) {
			want := "1"
			if fault == plant.NoRequestTable {
				want = "2"
			}
			if got := string(e.(coord.Reply).Result.(coord.Value).Value); got != want {
				t.Errorf("fault %d: an increment sent twice made %s; want %s", fault, got, want)
			}
		}
		m.Step(0, coord.Lost{Tasks: []coord.Loss{{Life: serry.Life{Task: task, Incarnation: 10}}}})
		if lost := m.View().Tasks[0].State == serry.Failed; lost != (fault == plant.IgnoreIncarnation) {
			t.Errorf("fault %d: the loss of an earlier life killed the present one: %v", fault, lost)
		}
	}
}

// TestListsAreBounded: a list that no record could hold is refused, and leaves none. So is one that asks
// for the state of the same task over and over.
func TestListsAreBounded(t *testing.T) {
	lab.Clause(t, "C-LIM-1", "C-LOG-1")
	m := coord.New(coord.Config{Jobs: []coord.Job{{Name: "worker", Tasks: 1}}, Service: 100})
	call := coord.Call{Req: 1, Task: serry.TaskID{Job: "worker"}, ID: coord.RequestID{Requester: 7, Number: 1}}
	long := make([]serry.TaskID, coord.MaxTasks+1)
	for _, ev := range []coord.Event{
		coord.Barrier{Call: call, ID: "b", Tasks: long},
		coord.GetAliveTasks{Call: call, Tasks: long},
		coord.GetTaskState{Call: call, Tasks: []serry.TaskID{call.Task, call.Task}},
	} {
		effects := m.Step(0, ev)
		if record, ok := m.Journaled(); ok {
			t.Errorf("%T left the record %T; want none", ev, record)
		}
		if r, ok := effects[0].(coord.Reply); !ok || r.Err == nil {
			t.Errorf("%T with a long list: %+v; want a refusal", ev, effects[0])
		}
	}
}
