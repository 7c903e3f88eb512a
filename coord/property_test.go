package coord_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/internal/lab"
)

// TestMachineIsItsModel holds the machine to a naive model of keys, barriers, alive sets, polls,
// watches and states, over any order of events (C-ORD-1).
func TestMachineIsItsModel(t *testing.T) {
	lab.Clause(t, "C-ORD-1", "C-BAR-3", "C-REQ-4", "C-KV-10")
	rapid.Check(t, func(t *rapid.T) {
		p := newPair(rapid.Bool().Draw(t, "recoverable"))
		for i := range modelTasks {
			p.step(t, coord.RegisterTask{Call: p.call(i, serry.Incarnation(10+i))})
		}
		t.Repeat(p.actions())
	})
}

// A pair is a machine and its model, which get the same events.
type pair struct {
	machine *coord.Machine
	model   *model
	now     coord.Time
	req     coord.Req
	lives   serry.Incarnation // given out so far
	done    map[coord.Req]bool
}

func newPair(recoverable bool) *pair {
	cfg := coord.Config{
		Jobs: []coord.Job{{Name: "worker", Tasks: modelTasks}}, Service: 100,
		HeartbeatTimeout: time.Duration(modelGrace), Recoverable: recoverable,
	}
	return &pair{machine: coord.New(cfg), model: newModel(recoverable), lives: 20, done: make(map[coord.Req]bool)}
}

// call makes what is common to calls; inc 0 is the present life.
func (p *pair) call(task int, inc serry.Incarnation) coord.Call {
	p.req++
	return coord.Call{Req: p.req, Task: serry.TaskID{Job: "worker", Index: task}, Incarnation: inc}
}

// step gives both the event and compares what they do.
func (p *pair) step(t *rapid.T, ev coord.Event) {
	t.Helper()
	want := p.model.step(p.now, ev)
	got := make(map[coord.Req]string)
	for _, e := range p.machine.Step(p.now, ev) {
		r, ok := e.(coord.Reply)
		if !ok {
			continue
		}
		if p.done[r.Req] {
			t.Fatalf("%+v answered #%d again, or after it was cancelled: %+v", ev, r.Req, r)
		}
		p.done[r.Req] = true
		got[r.Req] = describe(r)
	}
	if c, ok := ev.(coord.Cancel); ok {
		p.done[c.Req] = true
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Fatalf("%T%+v: answers (-model +machine):\n%s", ev, ev, diff)
	}
	p.compare(t)
}

// compare holds the view of the machine against the model.
func (p *pair) compare(t *rapid.T) {
	t.Helper()
	v := p.machine.View()
	if v.Waiters != len(p.model.pending) {
		t.Fatalf("View().Waiters = %d; want %d", v.Waiters, len(p.model.pending))
	}
	if v.Keys != len(p.model.keys) {
		t.Fatalf("View().Keys = %d; want %d", v.Keys, len(p.model.keys))
	}
	var got, want []string
	for _, b := range v.Barriers {
		got = append(got, fmt.Sprintf("%s::%d %d/%d until %d", b.ID, b.Counter, b.Arrived, b.Members, b.Deadline))
	}
	for _, b := range p.model.opened {
		i := b.now()
		want = append(want, fmt.Sprintf("%s::%d %d/%d until %d", b.id, b.counter(), len(i.arrivals), len(b.members), i.deadline))
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Fatalf("View().Barriers (-model +machine):\n%s", diff)
	}
	if at, ok := p.machine.Deadline(); ok && at < p.now {
		t.Fatalf("Deadline() = %v; want it not before %v", at, p.now)
	}
}

// describe puts a reply in the words of the model.
func describe(r coord.Reply) string {
	switch err := r.Err.(type) {
	case nil:
	case *serry.BarrierError:
		return barrierText(err.ID, err.Counter, err.Err)
	case *serry.TaskError:
		return taskText(err.Err)
	case *serry.LostError:
		return "dead"
	case *serry.KeyError:
		return err.Err.Error()
	default:
		return err.Error()
	}
	switch result := r.Result.(type) {
	case coord.Passed:
		return fmt.Sprint("passed ", result.Counter)
	case coord.Value:
		return string(result.Value)
	case coord.Entries:
		var all []string
		for _, e := range result.Entries {
			all = append(all, e.Key+"="+string(e.Value))
		}
		return strings.Join(all, " ")
	case *coord.Picture:
		var all []string
		for _, i := range result.Tasks {
			all = append(all, fmt.Sprintf("%d:%v/%d", i.Task.Index, i.State, i.Incarnation))
		}
		return strings.Join(all, " ")
	case *coord.Alive:
		var all []string
		for i, id := range result.Tasks {
			all = append(all, fmt.Sprintf("%d/%d", id.Index, result.Incarnations[i]))
		}
		return fmt.Sprint(all)
	}
	return "ok"
}

// actions are what can happen. Task 0 neither leaves nor is lost, so that the epoch goes on.
func (p *pair) actions() map[string]func(*rapid.T) {
	anybody := func(t *rapid.T) int { return rapid.IntRange(0, modelTasks-1).Draw(t, "task") }
	mortal := func(t *rapid.T) int { return rapid.IntRange(1, modelTasks-1).Draw(t, "task") }
	id := func(t *rapid.T) string { return rapid.SampledFrom([]string{"a", "b"}).Draw(t, "id") }
	key := func(t *rapid.T) string {
		return rapid.SampledFrom([]string{"k", "d", "d/x", "d/x/y", "dx"}).Draw(t, "key")
	}
	sets := func(t *rapid.T) []serry.TaskID {
		set := rapid.SampledFrom([][]int{nil, {0, 1}, {2, 1}, {0, 1, 2}, {2}}).Draw(t, "tasks")
		var ids []serry.TaskID
		for _, i := range set {
			ids = append(ids, serry.TaskID{Job: "worker", Index: i})
		}
		return ids
	}
	return map[string]func(*rapid.T){
		"register": func(t *rapid.T) {
			task := anybody(t)
			inc := p.model.tasks[task].inc
			if rapid.IntRange(0, 2).Draw(t, "life") == 0 {
				p.lives++
				inc = p.lives
			}
			p.step(t, coord.RegisterTask{Call: p.call(task, inc)})
		},
		"old life registers": func(t *rapid.T) {
			p.step(t, coord.RegisterTask{Call: p.call(anybody(t), serry.Incarnation(rapid.IntRange(10, 13).Draw(t, "inc")))})
		},
		"report": func(t *rapid.T) { p.step(t, coord.ReportError{Call: p.call(anybody(t), 0), Code: 13}) },
		"reset":  func(t *rapid.T) { p.step(t, coord.ResetTask{Call: p.call(mortal(t), 0)}) },
		"poll":   func(t *rapid.T) { p.step(t, coord.PollForError{Call: p.call(anybody(t), 0)}) },
		"lost": func(t *rapid.T) {
			task := mortal(t)
			loss := coord.Loss{Life: serry.Life{Task: serry.TaskID{Job: "worker", Index: task}, Incarnation: p.model.tasks[task].inc}}
			p.step(t, coord.Lost{Tasks: []coord.Loss{loss}})
		},
		"watch": func(t *rapid.T) {
			version := rapid.SampledFrom([]int64{-1, p.machine.View().Version}).Draw(t, "version")
			p.step(t, coord.WatchTasks{Call: p.call(0, 0), Version: version})
		},
		"barrier": func(t *rapid.T) {
			name := id(t)
			counter := rapid.Int64Range(-1, 1).Draw(t, "off")
			if b := p.model.barriers[name]; b != nil && rapid.IntRange(0, 3).Draw(t, "zero") > 0 {
				counter += b.counter()
			}
			timeout := rapid.SampledFrom([]time.Duration{0, time.Second, time.Hour}).Draw(t, "timeout")
			p.step(t, coord.Barrier{Call: p.call(anybody(t), 0), ID: name, Counter: counter, Timeout: timeout, Tasks: sets(t)})
		},
		"barrier of all": func(t *rapid.T) { // the right way, so that some pass
			counter, name := int64(0), id(t)+"-all"
			if b := p.model.barriers[name]; b != nil {
				if counter = b.counter(); !b.open() {
					counter++
				}
			}
			p.step(t, coord.Barrier{Call: p.call(anybody(t), 0), ID: name, Counter: counter, Timeout: time.Minute})
		},
		"cancel barrier": func(t *rapid.T) {
			p.step(t, coord.CancelBarrier{Call: p.call(anybody(t), 0), ID: id(t), Counter: rapid.Int64Range(0, 3).Draw(t, "counter")})
		},
		"alive": func(t *rapid.T) { p.step(t, coord.GetAliveTasks{Call: p.call(anybody(t), 0), Tasks: sets(t)}) },
		"put": func(t *rapid.T) {
			value := rapid.SampledFrom([]string{"1", "x", ""}).Draw(t, "value")
			p.step(t, coord.InsertKeyValue{Call: p.call(0, 0), Key: key(t), Value: []byte(value), Overwrite: rapid.Bool().Draw(t, "overwrite")})
		},
		"get":    func(t *rapid.T) { p.step(t, coord.GetKeyValue{Call: p.call(0, 0), Key: key(t)}) },
		"try":    func(t *rapid.T) { p.step(t, coord.TryGetKeyValue{Call: p.call(0, 0), Key: key(t)}) },
		"add":    func(t *rapid.T) { p.step(t, coord.IncrementKeyValue{Call: p.call(0, 0), Key: key(t), By: 2}) },
		"delete": func(t *rapid.T) { p.step(t, coord.DeleteKeyValue{Call: p.call(0, 0), Key: key(t)}) },
		"dir":    func(t *rapid.T) { p.step(t, coord.GetKeyValueDir{Call: p.call(0, 0), Dir: key(t)}) },
		"give up": func(t *rapid.T) {
			waiting := slices.DeleteFunc(slices.Collect(reqs(p.req)), func(r coord.Req) bool { return !p.model.pending[r] })
			if len(waiting) > 0 {
				p.step(t, coord.Cancel{Req: rapid.SampledFrom(waiting).Draw(t, "call")})
			}
		},
		"time": func(t *rapid.T) {
			p.now += coord.Time(rapid.SampledFrom([]time.Duration{time.Second, 10 * time.Second}).Draw(t, "passes"))
			p.step(t, coord.Tick{})
		},
	}
}

// reqs are all handles up to the last.
func reqs(last coord.Req) func(yield func(coord.Req) bool) {
	return func(yield func(coord.Req) bool) {
		for r := coord.Req(1); r <= last; r++ {
			if !yield(r) {
				return
			}
		}
	}
}
