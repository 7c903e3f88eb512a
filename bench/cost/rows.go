package main

import (
	"fmt"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
)

// A row is an event, or a few that belong together, and what they touch. A round leaves the world as it
// was.
type row struct {
	name    string
	touches string
	count   func(n int) int // how many things that is
	before  func(w *world)  // or nil
	round   func(w *world)
}

func some(n int) func(int) int { return func(int) int { return n } }

func all(n int) int { return n }

func rows() []row {
	return append(append(keyRows(), barrierRows()...), taskRows()...)
}

func keyRows() []row {
	return []row{
		{"put", "1 key", some(1), nil, func(w *world) { w.put("elsewhere") }},
		{"put with a watcher, who watches again", "1 key, 1 watcher", some(2), nil, func(w *world) {
			i := w.rounds % w.n
			w.put(keyOf(i))
			w.watch(dirOf(i))
		}},
		{"put with a watcher after many elsewhere", "1 key, 1 watcher", some(2), func(w *world) {
			for range 20_000 { // more than the history holds
				w.put("elsewhere")
			}
		}, func(w *world) {
			i := w.rounds % w.n
			w.put(keyOf(i))
			w.watch(dirOf(i))
		}},
		{"put that all watch, who watch again", "1 key, n watchers", all, nil, func(w *world) {
			for range w.n {
				w.watch("all")
			}
			w.put("all/key")
		}},
		{"watch from long ago", "1 directory of 1 key", some(1), func(w *world) {
			for range 20_000 {
				w.put("elsewhere")
			}
		}, func(w *world) {
			w.step(coord.WatchKeys{Call: w.call(0), Dir: dirOf(w.rounds % w.n), After: 0})
		}},
		{"directory goes, and comes", "n keys", all, nil, func(w *world) {
			for i := range w.n {
				w.put(fmt.Sprint("old/", i))
			}
			w.step(coord.DeleteKeyValue{Call: w.call(0), Key: "old"})
			w.revision += int64(w.n)
		}},
		{"get waits, and is given up", "1 call", some(1), nil, func(w *world) {
			call := w.call(0)
			w.step(coord.GetKeyValue{Call: call, Key: "absent/0"})
			w.step(coord.Cancel{Req: call.Req})
		}},
		{"increment with an id, acknowledged", "1 key, 1 result", some(2), nil, func(w *world) {
			call := w.call(0)
			call.ID = coord.RequestID{Requester: uint64(w.lives[0]), Number: uint64(w.rounds + 1), Watermark: uint64(w.rounds)}
			w.step(coord.IncrementKeyValue{Call: call, Key: "n", By: 1})
			w.revision++
		}},
		{"acknowledge one of many results", "1 result", some(1), func(w *world) {
			for number := range uint64(w.n + 1000) {
				call := w.call(0)
				call.ID = coord.RequestID{Requester: 1 << 40, Number: number + 1}
				w.step(coord.DeleteKeyValue{Call: call, Key: "none"})
			}
		}, func(w *world) {
			w.step(coord.Acknowledge{Requester: 1 << 40, Watermark: uint64(w.rounds)})
		}},
	}
}

func barrierRows() []row {
	barrier := func(w *world, id string, counter int64, timeout time.Duration, tasks ...int) {
		for _, i := range tasks {
			w.step(coord.Barrier{Call: w.call(i), ID: id, Counter: counter, Tasks: w.tasks(tasks...), Timeout: timeout})
		}
	}
	return []row{
		{"barrier of two", "2 members", some(2), nil, func(w *world) { barrier(w, "two", int64(w.rounds-1), time.Hour, 0, 1) }},
		{"barrier of two with a fresh id, table full", "2 members, 2 ids", some(4), func(w *world) {
			for i := range coord.DefaultLimits().Barriers {
				barrier(w, fmt.Sprint("full/", i), 0, time.Hour, 0)
			}
		}, func(w *world) { barrier(w, fmt.Sprint("fresh/", w.rounds), 0, time.Hour, 0, 1) }},
		{"barrier of all", "n members", all, nil, func(w *world) {
			for i := range w.n {
				w.step(coord.Barrier{Call: w.call(i), ID: "all", Counter: int64(w.rounds - 1), Timeout: time.Hour})
			}
		}},
		{"barrier times out", "1 barrier", some(1), nil, func(w *world) {
			w.step(coord.Barrier{Call: w.call(0), ID: "late", Counter: int64(w.rounds - 1), Tasks: w.tasks(0, 1), Timeout: 1})
			w.now++
			w.step(coord.Tick{})
		}},
		{"alive set of two", "2 members", some(2), nil, func(w *world) {
			for _, i := range []int{0, 2} {
				w.step(coord.GetAliveTasks{Call: w.call(i), Tasks: w.tasks(0, 2)})
			}
		}},
		{"alive set given up, table full", "1 set", some(1), func(w *world) {
			for i := range coord.DefaultLimits().AliveGroups {
				giveUp(w, -1-i)
			}
		}, func(w *world) { giveUp(w, w.rounds) }},
		{"alive set of all", "n members", all, nil, func(w *world) {
			list := w.everybody()
			for i := range w.n {
				w.step(coord.GetAliveTasks{Call: w.call(i), Tasks: list})
			}
		}},
	}
}

// giveUp asks for an alive set that no other call names, and gives it up.
func giveUp(w *world, unknown int) {
	call := w.call(0)
	w.step(coord.GetAliveTasks{Call: call, Tasks: append(w.tasks(0, 1), serry.TaskID{Job: "none", Index: unknown})})
	w.step(coord.Cancel{Req: call.Req})
}

func taskRows() []row {
	return []row{
		{"task is lost, comes back and meets", "1 task, 2 barriers, 2 sets", some(5), nil, func(w *world) {
			i := w.rounds % w.n
			w.step(coord.Lost{Tasks: []coord.Loss{w.loss(i)}})
			w.join(i)
			w.meet(i)
			w.meet((i + w.n - 1) % w.n)
		}},
		{"all tasks are lost, come back and meet", "n tasks, 2n barriers, 2n sets", all, nil, func(w *world) {
			var losses []coord.Loss
			for i := range w.n {
				losses = append(losses, w.loss(i))
			}
			w.step(coord.Lost{Tasks: losses})
			for i := range w.n {
				w.join(i)
			}
			for i := range w.n {
				w.meet(i)
			}
		}},
		{"task is replaced while it runs", "1 task, 2 barriers, 2 sets", some(5), nil, func(w *world) {
			i := w.rounds % w.n
			w.join(i)
			w.meet(i)
			w.meet((i + w.n - 1) % w.n)
		}},
		{"unknown life departs", "nothing", some(1), nil, func(w *world) {
			w.step(coord.Departed{Tasks: []serry.Life{{Task: w.task(0), Incarnation: 1 << 50}}})
		}},
		{"error poll of a connected task, again", "1 poll", some(1), nil, func(w *world) {
			w.step(coord.PollForError{Call: w.call(w.rounds % w.n)})
		}},
		{"task changes, one watcher", "n tasks shown", all, nil, func(w *world) {
			w.step(coord.WatchTasks{Call: w.call(0), Version: w.View().Version})
			w.join(w.rounds % w.n)
			w.meet(w.rounds % w.n)
		}},
		{"snapshot", "everything", all, nil, func(w *world) { w.Snapshot(nil) }},
	}
}
