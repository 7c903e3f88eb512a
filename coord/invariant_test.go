package coord_test

import (
	"bytes"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/internal/lab"
)

var plots = flag.Uint64("plots", 40, "how many random stories TestInvariants tells")

// TestInvariants tells random stories of jobs, with everything odd that clients can say, and looks into the
// machine after each event. The snapshot of each moment is restored: that machine is consistent, too, and
// writes the same. So is a replica that knows the journal alone, and begins anew from a snapshot now and
// then.
//
//	go test ./coord -run TestInvariants -plots 10000
func TestInvariants(t *testing.T) {
	lab.Clause(t, "C-LOG-1", "C-LOG-3", "C-LIM-1", "C-ORD-1")
	for seed := range *plots {
		p := newPlot(seed)
		for i := range 250 {
			ev := p.next()
			if err := p.step(ev); err != nil {
				t.Errorf("seed %d, event %d, %T%+v: %v", seed, i, ev, ev, err)
				break
			}
		}
	}
}

// A plot is a random story in the making.
type plot struct {
	random  *rand.Rand
	cfg     coord.Config
	machine *coord.Machine
	replica *coord.Machine
	now     coord.Time
	req     coord.Req
	lives   map[serry.TaskID]serry.Incarnation // that registered last
	last    serry.Incarnation                  // that was given out, of lives and services
}

func newPlot(seed uint64) *plot {
	p := &plot{random: rand.New(rand.NewPCG(seed, 7)), lives: make(map[serry.TaskID]serry.Incarnation), last: 1000}
	on := func() bool { return p.n(2) == 0 }
	p.cfg = coord.Config{
		Jobs: []coord.Job{{Name: "worker", Tasks: 2}, {Name: "ps", Tasks: 2}}, Service: p.last,
		RegisterBarrier: on(), RegisterTimeout: 5 * time.Second, HeartbeatTimeout: time.Second,
		Recoverable: on(), AllowReconnect: on(), ExcludeUnsynced: on(), ErrorsByBeat: on(),
	}
	if on() {
		p.cfg.ShutdownTimeout = 3 * time.Second
	}
	if on() {
		p.cfg.RecoverableJobs = []string{"ps"}
	}
	if on() { // everything is soon full
		p.cfg.Limits = coord.Limits{
			Keys: 3, KeyBytes: 5, StoreBytes: 20, Changes: 2, Barriers: 2, TaskWaiters: 2, Waiters: 5, Requesters: 2,
			RequestResults: 3, AliveGroups: 2,
		}
	}
	if on() {
		p.now = 1 << 50
	}
	p.machine, p.replica = coord.New(p.cfg), coord.New(p.cfg)
	return p
}

func (p *plot) n(n int) int { return p.random.IntN(n) }

func (p *plot) fresh() serry.Incarnation {
	p.last++
	return p.last
}

// step moves the machine and its replica, and says what is wrong with them.
func (p *plot) step(ev coord.Event) error {
	p.machine.Step(p.now, ev)
	if err := p.machine.Consistent(); err != nil {
		return err
	}
	if ev, ok := p.machine.Journaled(); ok {
		at, again, _, err := coord.ReadRecord(coord.AppendRecord(nil, p.machine.Now(), ev, nil), nil)
		if err != nil {
			return err
		}
		p.replica.Step(at, again)
	}
	snapshot := p.machine.Snapshot(nil)
	restored, err := coord.Restore(p.cfg, snapshot, nil)
	switch {
	case err != nil:
		return err
	case !bytes.Equal(restored.Snapshot(nil), snapshot):
		return fmt.Errorf("a machine that was restored writes something else")
	case !bytes.Equal(p.replica.Snapshot(nil), snapshot):
		return fmt.Errorf("a machine that stepped the journal writes something else")
	}
	if p.n(20) == 0 {
		p.replica = restored
	}
	return restored.Consistent()
}

// next draws an event, after some time.
func (p *plot) next() coord.Event {
	if p.n(4) == 0 {
		p.now += coord.Time(p.n(1500)) * coord.Time(time.Millisecond)
	}
	switch p.n(12) {
	case 0, 1:
		return p.register()
	case 2:
		return p.ofTask()
	case 3, 4:
		return p.ofKeys()
	case 5, 6, 7:
		return p.barrier()
	case 8:
		return coord.GetAliveTasks{Call: p.call(), Tasks: p.tasks(), Word: []byte{1}}
	case 9:
		return coord.Cancel{Req: p.req - coord.Req(p.n(20))}
	case 10:
		return p.verdict()
	}
	return p.ofOwner()
}

func (p *plot) task() serry.TaskID {
	odd := []serry.TaskID{{}, {Job: "worker", Index: 9}, {Job: "worker", Index: math.MinInt}}
	if i := p.n(40); i < len(odd) {
		return odd[i]
	}
	return serry.TaskID{Job: []string{"worker", "ps"}[p.n(2)], Index: p.n(2)}
}

func (p *plot) tasks() (list []serry.TaskID) {
	for range p.n(6) {
		list = append(list, p.task())
	}
	return list
}

// call makes what is common to calls: mostly of the present life, with a request id now and then, of
// numbers that repeat and skip.
func (p *plot) call() coord.Call {
	p.req++
	c := coord.Call{Req: p.req, Task: p.task()}
	c.Incarnation = p.lives[c.Task]
	switch p.n(10) {
	case 0:
		c.Incarnation = serry.Incarnation(1 + p.n(30))
	case 1:
		c.Incarnation = 0
	case 2:
		c.Service = 99
	case 3:
		c.Service = p.machine.View().Service
	}
	if p.n(3) == 0 {
		c.ID = coord.RequestID{Requester: uint64(1 + p.n(3)), Number: uint64(p.n(24)), Watermark: uint64(p.n(12))}
		if p.n(20) == 0 {
			c.ID.Watermark = math.MaxUint64
		}
	}
	return c
}

func (p *plot) register() coord.Event {
	c := p.call()
	if c.Incarnation = p.lives[c.Task]; c.Incarnation == 0 || p.n(3) == 0 {
		c.Incarnation = p.fresh()
	}
	p.lives[c.Task] = c.Incarnation
	return coord.RegisterTask{Call: c, Recoverable: p.n(3) == 0, Next: p.fresh()}
}

func (p *plot) ofTask() coord.Event {
	switch p.n(7) {
	case 0:
		return coord.Heartbeat{Call: p.call()}
	case 1:
		return coord.ShutdownTask{Call: p.call(), Recoverable: p.n(4) == 0}
	case 2:
		return coord.ResetTask{Call: p.call()}
	case 3:
		return coord.ReportError{Call: p.call(), Code: p.n(20) - 2, Text: "t"}
	case 4:
		return coord.PollForError{Call: p.call()}
	case 5:
		return coord.GetTaskState{Call: p.call(), Tasks: p.tasks()}
	}
	version := []int64{p.machine.View().Version, p.machine.View().Version, -1, math.MaxInt64, math.MinInt64}[p.n(5)]
	return coord.WatchTasks{Call: p.call(), Version: version, Job: []string{"", "worker", "none"}[p.n(3)]}
}

func (p *plot) ofKeys() coord.Event {
	key := []string{"a", "/a/", "a/b", "a//b", "a/b/c", "a/bb", "", "/", "//", "b"}[p.n(10)]
	switch p.n(7) {
	case 0, 1:
		return coord.InsertKeyValue{Call: p.call(), Key: key, Value: make([]byte, p.n(5)), Overwrite: p.n(2) == 0}
	case 2:
		return coord.GetKeyValue{Call: p.call(), Key: key}
	case 3:
		by := []int64{1, -1, 0, math.MaxInt64, math.MinInt64}[p.n(5)]
		return coord.IncrementKeyValue{Call: p.call(), Key: key, By: by}
	case 4:
		return coord.DeleteKeyValue{Call: p.call(), Key: key}
	case 5:
		return coord.SwapKeyValue{Call: p.call(), Key: key, New: []byte("zz")}
	}
	at := p.machine.Revision()
	return coord.WatchKeys{Call: p.call(), Dir: key, After: []int64{at, at, at - 1, -1, math.MaxInt64, math.MinInt64}[p.n(6)]}
}

// barrier draws a call that mostly fits, so that barriers pass.
func (p *plot) barrier() coord.Event {
	id := []string{"x", "y", "z"}[p.n(3)]
	counter, open := p.machine.Counter(id)
	if !open {
		counter++
	}
	if p.n(4) == 0 {
		counter = []int64{0, counter + 1, counter - 1, math.MaxInt64, math.MinInt64}[p.n(5)]
	}
	switch p.n(10) {
	case 0:
		return coord.CancelBarrier{Call: p.call(), ID: id, Counter: counter}
	case 1:
		return coord.WaitForAllTasks{Call: p.call(), Devices: make([]byte, p.n(3))}
	}
	var tasks []serry.TaskID
	if p.n(3) == 0 {
		tasks = p.tasks()
	}
	timeout := []time.Duration{0, -1, math.MaxInt64, math.MinInt64, time.Second, 3 * time.Second}[p.n(6)]
	return coord.Barrier{Call: p.call(), ID: id, Counter: counter, Tasks: tasks, Recoverable: p.n(3) == 0, Timeout: timeout}
}

// verdict draws the word of a detector, or of a member.
func (p *plot) verdict() coord.Event {
	t := p.task()
	gone := []serry.Life{{Task: t, Incarnation: p.lives[t]}}
	switch p.n(4) {
	case 0:
		return coord.Exited{Tasks: gone}
	case 1:
		return coord.Departed{Tasks: gone}
	case 2:
		return coord.Suspect{Call: p.call(), Peer: serry.Life{Task: t, Incarnation: p.lives[t]}, Hard: p.n(2) == 0}
	}
	return coord.Lost{Tasks: []coord.Loss{{Life: serry.Life{Task: t, Incarnation: p.lives[t]}}}}
}

func (p *plot) ofOwner() coord.Event {
	switch p.n(40) {
	case 0:
		return coord.OpenEpoch{Service: p.fresh()}
	case 1:
		return coord.Stop{}
	case 2:
		return coord.Resume{}
	case 3, 4, 5, 6, 7, 8, 9, 10, 11, 12:
		return coord.Acknowledge{Requester: uint64(1 + p.n(3)), Watermark: uint64(p.n(20)), Farewell: p.n(6) == 0}
	}
	return coord.Tick{}
}
