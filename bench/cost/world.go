package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
)

// A world is a machine with n of everything in it.
type world struct {
	*coord.Machine
	n        int
	req      coord.Req
	now      coord.Time
	revision int64               // of the store
	lives    []serry.Incarnation // of the tasks
	last     serry.Incarnation
	rounds   int // so far
}

// newWorld fills a machine. Tasks may come back, so that the loss of one is not the end of the job.
func newWorld(n int) *world {
	w := &world{n: n, lives: make([]serry.Incarnation, n), Machine: coord.New(coord.Config{
		Jobs: []coord.Job{{Name: "worker", Tasks: n}}, Service: 1, Recoverable: true, HeartbeatTimeout: time.Second,
	})}
	for i := range n {
		w.join(i)
		w.put(keyOf(i))
	}
	for i := range n {
		w.watch(dirOf(i))
		w.step(coord.GetKeyValue{Call: w.call(i), Key: fmt.Sprint("absent/", i)})
		w.step(coord.Barrier{Call: w.call(i), ID: fmt.Sprint("ended/", i), Tasks: w.tasks(i), Timeout: time.Hour})
		w.meet(i)
	}
	return w
}

func keyOf(i int) string { return dirOf(i) + "/key" }

func dirOf(i int) string { return fmt.Sprint("dir/", i) }

func (w *world) task(i int) serry.TaskID { return serry.TaskID{Job: "worker", Index: i % w.n} }

func (w *world) tasks(all ...int) []serry.TaskID {
	var list []serry.TaskID
	for _, i := range all {
		list = append(list, w.task(i))
	}
	return list
}

func (w *world) everybody() []serry.TaskID {
	list := make([]serry.TaskID, w.n)
	for i := range list {
		list[i] = w.task(i)
	}
	return list
}

func (w *world) call(i int) coord.Call {
	w.req++
	return coord.Call{Req: w.req, Task: w.task(i), Incarnation: w.lives[i%w.n]}
}

// step is Step, and counts the effects.
func (w *world) step(ev coord.Event) int { return len(w.Step(w.now, ev)) }

// join lets a task register with a new life, by a requester of its own, and poll for errors.
func (w *world) join(i int) {
	w.last++
	w.lives[i] = w.last
	call := w.call(i)
	call.ID = coord.RequestID{Requester: uint64(w.last), Number: 1}
	w.step(coord.RegisterTask{Call: call})
	w.step(coord.PollForError{Call: w.call(i)})
}

// meet lets a task arrive at a barrier and in an alive set of two, where the other one never comes.
func (w *world) meet(i int) {
	two := w.tasks(i, i+1)
	w.step(coord.Barrier{Call: w.call(i), ID: fmt.Sprint("open/", i), Tasks: two, Timeout: 1 << 40 * time.Nanosecond})
	w.step(coord.GetAliveTasks{Call: w.call(i), Tasks: two})
}

func (w *world) put(key string) {
	w.revision++
	w.step(coord.InsertKeyValue{Call: coord.Call{Req: 1 << 60}, Key: key, Value: []byte("value"), Overwrite: true})
}

func (w *world) watch(dir string) coord.Req {
	call := w.call(0)
	w.step(coord.WatchKeys{Call: call, Dir: dir, After: w.revision})
	return call.Req
}

func (w *world) loss(i int) coord.Loss {
	return coord.Loss{Life: serry.Life{Task: w.task(i), Incarnation: w.lives[i]}, Evidence: "host silent"}
}

// measure repeats a row for some time.
func measure(w *world, r row, least time.Duration) cost {
	if r.before != nil {
		r.before(w)
	}
	again := func() time.Duration {
		w.rounds++
		began := time.Now()
		r.round(w)
		return time.Since(began)
	}
	again()
	runtime.GC()
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // which would take its time from a round
	c := cost{touched: r.count(w.n), time: 1<<63 - 1}
	var was, is runtime.MemStats
	runtime.ReadMemStats(&was)
	rounds := 0
	for spent := time.Duration(0); rounds < 5 || spent < least && rounds < 1000; rounds++ {
		took := again()
		spent += took
		c.time = min(c.time, took)
	}
	runtime.ReadMemStats(&is)
	c.allocs = float64(is.Mallocs-was.Mallocs) / float64(rounds)
	return c
}
