package coord_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/internal/lab"
)

// A crowd is a machine with tasks that are all connected.
type crowd struct {
	*coord.Machine
	req coord.Req
}

func newCrowd(tasks int) *crowd {
	c := &crowd{Machine: coord.New(coord.Config{Jobs: []coord.Job{{Name: "worker", Tasks: tasks}}, Service: 100})}
	for i := range tasks {
		call := c.call(i)
		call.Incarnation = serry.Incarnation(i + 1)
		c.Step(0, coord.RegisterTask{Call: call})
	}
	return c
}

// call makes what is common to the calls of a task.
func (c *crowd) call(task int) coord.Call {
	c.req++
	return coord.Call{Req: c.req, Task: serry.TaskID{Job: "worker", Index: task}}
}

// replies are those among effects.
func replies(effects []coord.Effect) []coord.Reply {
	var all []coord.Reply
	for _, e := range effects {
		if r, ok := e.(coord.Reply); ok {
			all = append(all, r)
		}
	}
	return all
}

// TestAbandonedGets shows that gets which pile up harm nobody, whether the client withdraws them or not.
func TestAbandonedGets(t *testing.T) {
	lab.Clause(t, "NEW-63", "C-LIM-4", "C-WIRE-4", "C-WIRE-6")
	const many = 100_000
	c := newCrowd(1)
	get := func(key string) coord.Req {
		call := c.call(0)
		call.Incarnation = 1
		if got := replies(c.Step(0, coord.GetKeyValue{Call: call, Key: key})); len(got) > 0 {
			t.Fatalf("GetKeyValue(%q) was answered at once: %+v", key, got)
		}
		return call.Req
	}
	for i := range many {
		get(fmt.Sprint("k", i%7))
	}
	last := get("wanted")
	beat := c.call(0)
	beat.Incarnation = 1
	if got := replies(c.Step(0, coord.Heartbeat{Call: beat})); len(got) != 1 || got[0].Err != nil {
		t.Fatalf("Heartbeat() = %+v; want OK", got)
	}
	put := coord.InsertKeyValue{Call: c.call(0), Key: "wanted", Value: []byte("v")}
	if got := replies(c.Step(0, put)); len(got) != 2 || got[0].Req != last {
		t.Fatalf("InsertKeyValue() answered %+v; want the get, then the insert", got)
	}
	put = coord.InsertKeyValue{Call: c.call(0), Key: "k0", Value: []byte("v")}
	if got := len(replies(c.Step(0, put))); got != many/7+2 {
		t.Errorf("InsertKeyValue(k0) answered %d calls; want %d", got, many/7+2)
	}
	for req := range c.req {
		c.Step(0, coord.Cancel{Req: req})
	}
	if got := c.Kept(); got != (coord.Kept{}) {
		t.Errorf("after all gets were withdrawn the machine keeps %+v; want nothing", got)
	}
}

// TestWithdrawnCallsAreFreed does the same for everything else that waits.
func TestWithdrawnCallsAreFreed(t *testing.T) {
	lab.Clause(t, "C-WIRE-6")
	c := newCrowd(2)
	version := c.View().Version
	both := []serry.TaskID{{Job: "worker", Index: 0}, {Job: "worker", Index: 1}}
	for range 1000 {
		c.Step(0, coord.WatchTasks{Call: c.call(0), Version: version})
		c.Step(0, coord.PollForError{Call: c.call(0)})
		c.Step(0, coord.GetAliveTasks{Call: c.call(0), Tasks: both})
		c.Step(0, coord.Barrier{Call: c.call(0), ID: "b", Timeout: time.Hour})
	}
	for req := range c.req + 1 {
		c.Step(0, coord.Cancel{Req: req})
	}
	want := coord.Kept{Groups: 1, Barriers: 1, Slots: 2} // the arrivals stay
	if diff := gocmp.Diff(want, c.Kept()); diff != "" {
		t.Errorf("what is kept (-want +got):\n%s", diff)
	}
}

// TestEndedBarriersAreSmall shows what stays of a barrier: nothing a member where all arrived, else who
// did, and no more than a few instances.
func TestEndedBarriersAreSmall(t *testing.T) {
	lab.Clause(t, "C-BAR-24", "C-REQ-4")
	const ids, tasks = 100, 50
	c := newCrowd(tasks)
	for i := range ids {
		for task := range tasks {
			c.Step(0, coord.Barrier{Call: c.call(task), ID: fmt.Sprint(i), Timeout: time.Hour})
		}
	}
	if diff := gocmp.Diff(coord.Kept{Barriers: ids}, c.Kept()); diff != "" {
		t.Errorf("what is kept of barriers that passed (-want +got):\n%s", diff)
	}
	now := coord.Time(0)
	for n := range int64(20) { // task 0 alone, again and again
		c.Step(now, coord.Barrier{Call: c.call(0), ID: "alone", Counter: n, Timeout: time.Second})
		now += coord.Time(time.Second)
		c.Step(now, coord.Tick{})
	}
	if diff := gocmp.Diff(coord.Kept{Barriers: ids + 1, Arrivals: 1, Past: 4}, c.Kept()); diff != "" {
		t.Errorf("what is kept of barriers that timed out (-want +got):\n%s", diff)
	}
	for task := range tasks {
		c.Step(now, coord.Barrier{Call: c.call(task), ID: "alone", Counter: 20, Timeout: time.Second})
	}
	if diff := gocmp.Diff(coord.Kept{Barriers: ids + 1}, c.Kept()); diff != "" {
		t.Errorf("what is kept once all have met again (-want +got):\n%s", diff)
	}
}

// TestResultsAreFreed shows the three ways in which kept results go.
func TestResultsAreFreed(t *testing.T) {
	lab.Clause(t, "C-REQ-3")
	c := newCrowd(2)
	add := func(requester, n uint64) {
		call := c.call(1)
		call.Incarnation = 2
		call.ID = coord.RequestID{Requester: requester, Number: n}
		c.Step(0, coord.IncrementKeyValue{Call: call, Key: "n", By: 1})
	}
	for n := range uint64(100) {
		add(7, n+1)
		add(8, n+1)
	}
	c.Step(0, coord.Acknowledge{Requester: 7, Watermark: 60})
	if diff := gocmp.Diff(coord.Kept{Requesters: 2, Results: 140}, c.Kept()); diff != "" {
		t.Errorf("what is kept above the watermark (-want +got):\n%s", diff)
	}
	c.Step(0, coord.Acknowledge{Requester: 7, Farewell: true})
	if diff := gocmp.Diff(coord.Kept{Requesters: 1, Results: 100}, c.Kept()); diff != "" {
		t.Errorf("what is kept after a farewell (-want +got):\n%s", diff)
	}
	gone := []serry.Life{{Task: serry.TaskID{Job: "worker", Index: 1}, Incarnation: 2}}
	c.Step(0, coord.Exited{Tasks: gone})
	if diff := gocmp.Diff(coord.Kept{}, c.Kept()); diff != "" {
		t.Errorf("what is kept after the process has ended (-want +got):\n%s", diff)
	}
}

// TestResultsOfTheLost: they stay after a verdict and a departure, which may be wrong. However often a task
// restarts, that is one life of it: what a replaced one asks is kept until it has departed.
func TestResultsOfTheLost(t *testing.T) {
	lab.Clause(t, "C-REQ-3")
	m := coord.New(coord.Config{Jobs: []coord.Job{{Name: "worker", Tasks: 1}}, Service: 100, Recoverable: true})
	c := &crowd{Machine: m}
	for life := range serry.Incarnation(100) {
		call := c.call(0)
		call.Incarnation = life + 1
		c.Step(0, coord.RegisterTask{Call: call})
		call.ID = coord.RequestID{Requester: uint64(life + 1), Number: 1}
		c.Step(0, coord.IncrementKeyValue{Call: call, Key: "n", By: 1})
		c.Step(0, coord.Lost{Tasks: []coord.Loss{{Life: serry.Life{Task: call.Task, Incarnation: life + 1}, Evidence: "host silent"}}})
		c.Step(0, coord.Departed{Tasks: []serry.Life{{Task: call.Task, Incarnation: life + 1}}})
		call.Incarnation, call.ID.Requester = life, uint64(life)
		c.Step(0, coord.IncrementKeyValue{Call: call, Key: "n", By: 1})
		c.Step(0, coord.Departed{Tasks: []serry.Life{{Task: call.Task, Incarnation: life}}})
	}
	if diff := gocmp.Diff(coord.Kept{Requesters: 1, Results: 1}, c.Kept()); diff != "" {
		t.Errorf("what is kept of the lost (-want +got):\n%s", diff)
	}
	c.Step(0, coord.OpenEpoch{Service: 200})
	if diff := gocmp.Diff(coord.Kept{}, c.Kept()); diff != "" {
		t.Errorf("what is kept in the next epoch (-want +got):\n%s", diff)
	}
}

// TestManyLives: a task that restarts for days is no leak. Its last lives are known as such.
func TestManyLives(t *testing.T) {
	lab.Clause(t, "C-LIM-1", "C-INC-3")
	c := &crowd{Machine: coord.New(coord.Config{Jobs: []coord.Job{{Name: "worker", Tasks: 1}}, Service: 100, Recoverable: true})}
	register := func(life serry.Incarnation) []coord.Reply {
		call := c.call(0)
		call.Incarnation = life
		return replies(c.Step(0, coord.RegisterTask{Call: call}))
	}
	const many = 200_000
	for life := range serry.Incarnation(many) {
		register(life + 1)
	}
	if got := c.Lives(); got > many/2 {
		t.Errorf("after %d lives %d are known; want a bound", many, got)
	}
	if got := register(many - 1); len(got) != 1 || !errors.Is(got[0].Err, serry.ErrStale) {
		t.Errorf("RegisterTask of the life before = %+v; want %v", got, serry.ErrStale)
	}
}

// TestManyTasks lets ten thousand register together and one of them fail. All watchers share one picture.
func TestManyTasks(t *testing.T) {
	lab.Clause(t, "NEW-16", "C-REG-9", "C-WATCH-9")
	const many = 10_000
	jobs := []coord.Job{{Name: "worker", Tasks: many}}
	c := &crowd{Machine: coord.New(coord.Config{Jobs: jobs, Service: 100, RegisterBarrier: true, RegisterTimeout: time.Hour})}
	answered := 0
	for i := range many {
		call := c.call(i)
		call.Incarnation = serry.Incarnation(i + 1)
		if answered > 0 {
			t.Fatalf("%d registrations were answered before task %d came", answered, i)
		}
		answered = len(replies(c.Step(0, coord.RegisterTask{Call: call})))
	}
	if answered != many {
		t.Fatalf("the last registration answered %d calls; want %d", answered, many)
	}
	version := c.View().Version
	for i := range many {
		c.Step(0, coord.WatchTasks{Call: c.call(i), Version: version})
		c.Step(0, coord.PollForError{Call: c.call(i)})
	}
	failed := serry.TaskID{Job: "worker", Index: many / 2}
	got := replies(c.Step(0, coord.Lost{Tasks: []coord.Loss{{Life: serry.Life{Task: failed, Incarnation: many/2 + 1}, Evidence: "host silent"}}}))
	if len(got) != 2*many {
		t.Fatalf("one loss was told to %d calls; want %d", len(got), 2*many)
	}
	shared := got[0].Result.(*coord.Picture)
	for i, r := range got[:many] {
		if r.Result != shared {
			t.Fatalf("watcher %d got a picture of its own", i)
		}
	}
	if len(shared.Tasks) != many || shared.Tasks[many/2].State != serry.Failed {
		t.Errorf("the picture shows %d tasks and %v; want %d and a failed one", len(shared.Tasks), shared.Tasks[many/2], many)
	}
}
