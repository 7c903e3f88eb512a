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
