package coord_test

import (
	"fmt"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
)

// Two tasks register and meet at a barrier. The first call is answered by the Step of the second.
func ExampleMachine() {
	m := coord.New(coord.Config{Jobs: []coord.Job{{Name: "worker", Tasks: 2}}, Service: 1})
	now := coord.Time(0)
	do := func(ev coord.Event) {
		for _, e := range m.Step(now, ev) {
			if r, ok := e.(coord.Reply); ok {
				fmt.Printf("#%d: %+v %v\n", r.Req, r.Result, r.Err)
			}
		}
	}
	first, second := serry.TaskID{Job: "worker", Index: 0}, serry.TaskID{Job: "worker", Index: 1}
	do(coord.RegisterTask{Call: coord.Call{Req: 1, Task: first, Incarnation: 10}})
	do(coord.RegisterTask{Call: coord.Call{Req: 2, Task: second, Incarnation: 11}})
	do(coord.Barrier{Call: coord.Call{Req: 3, Task: first}, ID: "step", Timeout: time.Minute})
	do(coord.Barrier{Call: coord.Call{Req: 4, Task: second}, ID: "step", Timeout: time.Minute})
	do(coord.Barrier{Call: coord.Call{Req: 5, Task: first}, ID: "step", Counter: 1, Timeout: time.Minute})
	at, _ := m.Deadline()
	now = at
	do(coord.Tick{})
	// Output:
	// #1: {Service:1} <nil>
	// #2: {Service:1} <nil>
	// #3: {Counter:0} <nil>
	// #4: {Counter:0} <nil>
	// #5: <nil> barrier "step": timed out, missing [worker/1]
}

// A machine is lost after a task has arrived at a barrier. Another one takes over from its journal, and
// the call, sent again, waits where it was.
func ExampleRestore() {
	cfg := coord.Config{Jobs: []coord.Job{{Name: "worker", Tasks: 2}}, Service: 1}
	first, second := serry.TaskID{Job: "worker", Index: 0}, serry.TaskID{Job: "worker", Index: 1}
	arrival := coord.Barrier{Call: coord.Call{Task: first, ID: coord.RequestID{Requester: 7, Number: 1}}, ID: "step", Timeout: time.Minute}

	m := coord.New(cfg)
	snapshot, journal := m.Snapshot(nil), []byte(nil)
	for _, ev := range []coord.Event{
		coord.RegisterTask{Call: coord.Call{Task: first, Incarnation: 10}},
		coord.RegisterTask{Call: coord.Call{Task: second, Incarnation: 11}},
		coord.TryGetKeyValue{Key: "a read leaves no record"},
		arrival,
	} {
		m.Step(0, ev)
		if record, ok := m.Journaled(); ok {
			journal = coord.AppendRecord(journal, m.Now(), record, nil)
		}
	}

	heir, err := coord.Restore(cfg, snapshot, nil)
	for len(journal) > 0 && err == nil {
		var at coord.Time
		var ev coord.Event
		if at, ev, journal, err = coord.ReadRecord(journal, nil); err == nil {
			fmt.Printf("%T\n", ev)
			heir.Step(at, ev)
		}
	}
	heir.Step(heir.Now(), coord.Resume{})
	arrival.Req = 1
	heir.Step(heir.Now(), arrival)
	for _, e := range heir.Step(heir.Now(), coord.Barrier{Call: coord.Call{Req: 2, Task: second}, ID: "step", Timeout: time.Minute}) {
		if r, ok := e.(coord.Reply); ok {
			fmt.Printf("#%d: %+v %v\n", r.Req, r.Result, r.Err)
		}
	}
	fmt.Println(err)
	// Output:
	// coord.RegisterTask
	// coord.RegisterTask
	// coord.Barrier
	// #1: {Counter:0} <nil>
	// #2: {Counter:0} <nil>
	// <nil>
}
