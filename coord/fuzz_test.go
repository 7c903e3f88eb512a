package coord_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/internal/lab"
)

// FuzzStep reads any bytes as a configuration and events of every kind, and holds the machine to what
// must be true whatever happens. See story.check.
func FuzzStep(f *testing.F) {
	for seed := range uint64(8) {
		f.Add(randomBytes(seed, 600))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := tell(data); err != nil {
			t.Fatal(err)
		}
	})
}

// TestRandomStories is the fuzz test with long stories, always the same ones.
func TestRandomStories(t *testing.T) {
	lab.Clause(t, "C-ORD-1", "C-HB-8")
	for seed := range uint64(200) {
		if err := tell(randomBytes(seed, 1500)); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
}

func randomBytes(seed uint64, n int) []byte {
	random := rand.New(rand.NewPCG(seed, 0))
	data := make([]byte, n)
	for i := range data {
		data[i] = byte(random.Uint32())
	}
	return data
}

// tell plays the story that data spells, twice, on two machines that must do the same.
func tell(data []byte) error {
	s := newStory(data)
	twin := coord.New(s.cfg)
	for len(s.bytes) > 0 {
		ev := s.event()
		effects := slices.Clone(s.machine.Step(s.now, ev))
		if diff := gocmp.Diff(effects, slices.Clone(twin.Step(s.now, ev)), sentinels()); diff != "" {
			return fmt.Errorf("%T%+v did something else the second time:\n%s", ev, ev, diff)
		}
		if err := s.check(ev, effects); err != nil {
			return fmt.Errorf("after %T%+v: %w", ev, ev, err)
		}
	}
	if diff := gocmp.Diff(s.machine.View(), twin.View(), sentinels()); diff != "" {
		return fmt.Errorf("the twins look different:\n%s", diff)
	}
	return nil
}

// A story is a machine and what has become of the calls it was given.
type story struct {
	bytes   []byte
	cfg     coord.Config
	machine *coord.Machine
	now     coord.Time
	service serry.Incarnation
	req     coord.Req
	open    map[coord.Req]bool       // calls that are neither answered nor cancelled; true: perhaps dropped
	lives   map[coord.Req]serry.Life // that wait to register
	table   map[serry.TaskID]coord.Changed
}

func newStory(data []byte) *story {
	s := &story{
		bytes: data, service: 100, open: make(map[coord.Req]bool), lives: make(map[coord.Req]serry.Life),
		table: make(map[serry.TaskID]coord.Changed),
	}
	flags := s.byte()
	s.cfg = coord.Config{
		Jobs:             []coord.Job{{Name: "ps", Tasks: 1}, {Name: "worker", Tasks: 3}},
		Service:          s.service,
		RegisterBarrier:  flags&1 != 0,
		RegisterTimeout:  10 * time.Second,
		HeartbeatTimeout: 2 * time.Second,
		Recoverable:      flags&2 != 0,
		AllowReconnect:   flags&4 != 0,
		ExcludeUnsynced:  flags&8 != 0,
		ErrorsByBeat:     flags&16 != 0,
	}
	if flags&32 != 0 {
		s.cfg.ShutdownTimeout = 5 * time.Second
	}
	if flags&64 != 0 {
		s.cfg.RecoverableJobs = []string{"worker"}
	}
	if flags&128 != 0 { // everything is soon full
		s.cfg.Limits = coord.Limits{
			Keys: 2, KeyBytes: 4, ValueBytes: 3, StoreBytes: 6, Changes: 2, Barriers: 2, TaskWaiters: 2, Waiters: 4,
			Requesters: 1, RequestResults: 2, AliveGroups: 1,
		}
	}
	s.machine = coord.New(s.cfg)
	return s
}

func (s *story) byte() byte {
	if len(s.bytes) == 0 {
		return 0
	}
	b := s.bytes[0]
	s.bytes = s.bytes[1:]
	return b
}

// pick takes one of n.
func (s *story) pick(n int) int { return int(s.byte()) % n }

func (s *story) task() serry.TaskID {
	ids := []serry.TaskID{{Job: "worker", Index: 0}, {Job: "worker", Index: 1}, {Job: "worker", Index: 2}, {Job: "ps", Index: 0}, {Job: "worker", Index: 7}, {}}
	return ids[s.pick(len(ids))]
}

func (s *story) tasks() []serry.TaskID {
	var ids []serry.TaskID
	for range s.pick(5) {
		ids = append(ids, s.task())
	}
	return ids
}

func (s *story) inc() serry.Incarnation { return serry.Incarnation(1 + s.pick(7)) }

func (s *story) name() string { return []string{"a", "b", "a/b", "Shutdown::100", ""}[s.pick(5)] }

// call makes what is common to calls: who, which life of it, with a request id now and then.
func (s *story) call() coord.Call {
	s.req++
	c := coord.Call{Req: s.req, Task: s.task()}
	if s.pick(4) == 0 { // else the present life
		c.Incarnation = s.inc()
	}
	switch kind := s.byte(); {
	case kind < 64:
		c.ID = coord.RequestID{Requester: 1 + uint64(kind%2), Number: 1 + uint64(s.pick(16)), Watermark: uint64(s.pick(4))}
	case kind < 72:
		c.Service = 99
	case kind < 160:
		c.Service = s.service
	}
	s.open[c.Req] = c.ID.Requester != 0
	return c
}

// event reads the next event. Calls are the more frequent ones.
func (s *story) event() coord.Event {
	s.now += coord.Time(s.pick(4)) * coord.Time(400*time.Millisecond)
	switch s.pick(32) {
	case 0, 1, 2, 3, 4:
		call := s.call()
		call.Incarnation = s.inc()
		return coord.RegisterTask{Call: call, Recoverable: s.pick(4) == 0, Next: s.service + 100}
	case 5:
		return coord.Heartbeat{Call: s.call()}
	case 6:
		return coord.ShutdownTask{Call: s.call(), Recoverable: s.pick(4) == 0}
	case 7:
		return coord.ResetTask{Call: s.call()}
	case 8:
		return coord.ReportError{Call: s.call(), Code: s.pick(20) - 1, Text: "x"}
	case 9:
		return coord.PollForError{Call: s.call()}
	case 10:
		return coord.WatchTasks{Call: s.call(), Version: int64(s.pick(40)) - 1, Job: []string{"", "worker", "none"}[s.pick(3)]}
	case 11:
		return coord.GetTaskState{Call: s.call(), Tasks: s.tasks()}
	case 12:
		return coord.InsertKeyValue{Call: s.call(), Key: s.name(), Value: []byte("1"), Overwrite: s.pick(2) == 0}
	case 13:
		return coord.GetKeyValue{Call: s.call(), Key: s.name()}
	case 14:
		return coord.IncrementKeyValue{Call: s.call(), Key: s.name(), By: int64(s.byte()) - 99}
	case 15:
		return coord.DeleteKeyValue{Call: s.call(), Key: s.name()}
	case 16:
		return coord.SwapKeyValue{Call: s.call(), Key: s.name(), New: []byte("2")}
	case 17:
		return coord.WatchKeys{Call: s.call(), Dir: s.name(), After: int64(s.pick(6)) - 1}
	case 18:
		return coord.GetAliveTasks{Call: s.call(), Tasks: s.tasks(), Word: []byte{1}}
	case 19:
		return coord.WaitForAllTasks{Call: s.call(), Devices: []byte{2}}
	case 20:
		return coord.CancelBarrier{Call: s.call(), ID: s.name(), Counter: int64(s.pick(3))}
	case 21:
		return coord.Suspect{Call: s.call(), Peer: serry.Life{Task: s.task(), Incarnation: s.inc()}, Hard: s.pick(2) == 0}
	case 22, 23, 24, 25, 26:
		return coord.Barrier{
			Call: s.call(), ID: s.name(), Counter: int64(s.pick(4)) - 1, Timeout: time.Duration(s.pick(8)) * time.Second,
			Tasks: s.tasks(), Recoverable: s.pick(4) == 0,
		}
	case 27:
		return coord.Cancel{Req: s.req - coord.Req(s.pick(8))}
	case 28:
		life := func() serry.Life { return serry.Life{Task: s.task(), Incarnation: s.inc()} }
		return coord.Lost{Tasks: []coord.Loss{{Life: life()}, {Life: life()}}}
	case 29:
		gone := []serry.Life{{Task: s.task(), Incarnation: s.inc()}, {Task: s.task(), Incarnation: s.inc()}}
		if s.pick(2) == 0 {
			return coord.Exited{Tasks: gone}
		}
		return coord.Departed{Tasks: gone}
	case 30:
		return coord.Acknowledge{Requester: uint64(s.pick(3)), Watermark: uint64(s.pick(8)), Farewell: s.pick(4) == 0}
	}
	switch s.pick(9) {
	case 0:
		return coord.TryGetKeyValue{Call: s.call(), Key: s.name()}
	case 1:
		return coord.GetKeyValueDir{Call: s.call(), Dir: s.name()}
	case 2:
		return coord.ListKeys{Call: s.call(), Dir: s.name()}
	case 3:
		return coord.GetStatus{Call: s.call()}
	}
	return []coord.Event{coord.Tick{}, coord.Tick{}, coord.Resume{}, coord.OpenEpoch{Service: s.service + 100}, coord.Stop{}}[s.pick(5)]
}

// check says what is wrong after an event: a call answered twice, or after it was given up, or never
// although nobody holds it; a deadline in the past; a task that was published as something else; calls
// that still wait after a stop.
func (s *story) check(ev coord.Event, effects []coord.Effect) error {
	switch ev := ev.(type) {
	case coord.RegisterTask:
		s.lives[ev.Req] = serry.Life{Task: ev.Task, Incarnation: ev.Incarnation}
	case coord.Suspect:
		s.mayDrop(ev.Peer)
	case coord.Lost:
		for _, l := range ev.Tasks {
			s.mayDrop(l.Life)
		}
	case coord.Exited:
		for _, d := range ev.Tasks {
			s.mayDrop(d)
		}
	}
	for _, e := range effects {
		switch e := e.(type) {
		case coord.Reply:
			if _, ok := s.open[e.Req]; !ok {
				return fmt.Errorf("a reply to #%d, for which nobody waits: %+v", e.Req, e)
			}
			if e.Err == nil && e.Result == nil {
				return fmt.Errorf("a reply to #%d that says nothing", e.Req)
			}
			delete(s.open, e.Req)
		case coord.Opened:
			s.service = e.Service
			clear(s.table)
		case coord.Changed:
			s.table[e.Task] = e
		}
	}
	switch ev := ev.(type) {
	case coord.Cancel: // until then a deadline may have ended the call
		delete(s.open, ev.Req)
	case coord.Resume:
		clear(s.open)
	}
	return s.checkView(s.machine.View())
}

// mayDrop notes that a registration of a life that is lost may end without a reply (C-LOST-2).
func (s *story) mayDrop(life serry.Life) {
	for req := range s.open {
		registers, ok := s.lives[req]
		s.open[req] = s.open[req] || ok && registers == life
	}
}

func (s *story) checkView(v coord.View) error {
	waiting := 0
	for _, dropped := range s.open {
		if !dropped {
			waiting++
		}
	}
	if v.Waiters < waiting || v.Waiters > len(s.open) {
		return fmt.Errorf("%d calls wait; want %d, and some of %d others", v.Waiters, waiting, len(s.open)-waiting)
	}
	if v.Watchers+v.Polls > v.Waiters {
		return fmt.Errorf("%d watch and %d poll, of %d calls that wait", v.Watchers, v.Polls, v.Waiters)
	}
	if v.Stopped && v.Waiters > 0 {
		return fmt.Errorf("%d calls wait though the service has stopped", v.Waiters)
	}
	if at, ok := s.machine.Deadline(); ok && at < v.Now {
		return fmt.Errorf("the deadline %v lies before the present %v", at, v.Now)
	}
	for _, t := range v.Tasks {
		if row := s.table[t.Task]; row.State != t.State || row.Incarnation != t.Incarnation {
			return fmt.Errorf("%v was published as %v/%d; want %v/%d", t.Task, row.State, row.Incarnation, t.State, t.Incarnation)
		}
		if (t.State == serry.Failed) != (t.Err != nil) {
			return fmt.Errorf("%v is %v with error %v", t.Task, t.State, t.Err)
		}
	}
	for _, b := range v.Barriers {
		if b.Arrived+len(b.Missing) != b.Members || b.Members == 0 || b.Arrived == b.Members {
			return fmt.Errorf("%d of %d arrived at %s, and %d are missing", b.Arrived, b.Members, b.ID, len(b.Missing))
		}
	}
	return nil
}
