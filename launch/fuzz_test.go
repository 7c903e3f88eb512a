package launch

import (
	"encoding/json"
	"math"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/serry-dev/serry/diagnose"
	"github.com/serry-dev/serry/topo"
)

// Whatever a launcher of another host says, the job goes on with the tasks that it has.
func FuzzMessage(f *testing.F) {
	for _, m := range []message{
		{Died: &died{lifetime: lifetime{2, 1, 1}, Cause: Cause{Code: 1}, Also: []int{3}}},
		{Died: &died{lifetime: lifetime{2, 1, 1}, Told: true}, Retiring: 15},
		{Left: &left{lifetime: lifetime{2, 1, 1}, Last: []string{"a line"}, Err: "stuck"}},
		{Retiring: syscall.SIGTERM},
		{Raised: &raised{lifetime: lifetime{2, 1, 1}, Text: "ValueError: bad sample 17", After: time.Second}},
		{Classed: &classed{lifetime: lifetime{2, 1, 1}, PID: 7, Host: "b", Condition: diagnose.Condition{Class: diagnose.ClassStatic, At: "f (a.py:1)"}, Age: time.Minute}},
		{Classed: &classed{lifetime: lifetime{3, 1, 1}, Program: diagnose.Program{Name: "a.py", Ranks: "5", By: "N"}, Left: math.MaxInt64}},
		{Strayed: &strayed{stray: stray{2, 1, 9}, Now: 1}},
		{Died: &died{lifetime: lifetime{-1, 1 << 62, 0}, Also: []int{-5, 1 << 40}}},
	} {
		b, err := json.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, byte(1))
	}
	f.Fuzz(func(t *testing.T, b []byte, policy byte) {
		j := play(t, []Restart{RestartNever, RestartFailed, RestartAll}[policy%3], 2)
		h := puppetHand{1}
		for range 3 {
			var m message
			if read("from", b, &m) != nil || m.check(j.cfg) != nil {
				return
			}
			var evs []any
			if m.Died != nil {
				m.Died.from = h
				evs = append(evs, *m.Died)
			}
			if m.Raised != nil {
				m.Raised.from = h
				evs = append(evs, *m.Raised)
			}
			if m.Classed != nil {
				m.Classed.from = h
				evs = append(evs, *m.Classed)
			}
			if m.Strayed != nil {
				m.Strayed.from = h
				evs = append(evs, *m.Strayed)
			}
			if m.Left != nil {
				m.Left.from = h
				evs = append(evs, *m.Left)
			}
			if m.Retiring != 0 {
				evs = append(evs, retiring{node: 1, hand: h, signal: m.Retiring})
			}
			for _, ev := range evs {
				j.perform(j.event(ev))
			}
		}
		j.failures.sorted()
		j.aftermath()
		now := time.Since(j.begun)
		if h := diagnose.JudgeHang(now, j.hangEvidence(j.service.view(), now)); h != nil {
			h.Text(now, j.begun)
			h.Lines(j.begun)
		}
		j.serviceWork.Wait()
		if n := j.count(); n.Running+n.Ended+n.Failed != 4 || j.plan.left < 0 {
			t.Errorf("%+v, %d restarts left; want 4 tasks, and no debt", n, j.plan.left)
		}
	})
}

// Whatever the first launcher orders, a follower starts no task that makes no sense.
func FuzzOrder(f *testing.F) {
	for _, o := range []order{
		{Start: &seat{Task: 1, Tasks: 2, Locals: 1, Node: 1, Nodes: 2, Attempt: 1, Life: 1}, Address: "first:1", Secret: make([]byte, 32)},
		{Signal: syscall.SIGTERM, End: true},
		{Fail: &failed{lifetime{1, 1, 1}, "raised ValueError"}},
		{Over: &Report{Tasks: 2, First: &Failure{Task: 1, Attempt: 1, Life: 1, Cause: Cause{Code: 3}}}, Err: "no host came"},
		{Over: &Report{Tasks: 2, Later: []*Failure{nil}, Interrupted: 1 << 20}},
	} {
		b, err := json.Marshal(o)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	cfg := Config{Command: itself, Tasks: 1, Nodes: 2, Coordinator: "first:2"}.withDefaults()
	f.Fuzz(func(t *testing.T, b []byte) {
		var o order
		fl := newFollower(&Job{cfg: cfg, world: reality{}, feed: newFeed(noDisplay{})}, &crew{hurry: make(chan struct{})}, nil)
		fl.told = syscall.SIGTERM
		defer fl.job.feed.close(nil)
		if read("to", b, &o) != nil || fl.check(&o) != nil {
			return
		}
		if o.Over != nil {
			if code := o.Over.ExitCode(); code < 0 || code == 0 && !o.Over.Well() {
				t.Errorf("a job that ended as %+v has exit code %d", o.Over, code)
			}
			for _, failure := range o.Over.Later {
				_ = failure.String()
			}
			return
		}
		fl.carryOut(o)
		fl.outbox.close()
		if m, ok := fl.outbox.next(nil); ok && (m.Died == nil || !o.Start.valid(cfg)) {
			t.Errorf("order %+v was answered with %+v", o, m)
		}
	})
}

// Whatever a launcher says of its host, no node has two hosts, and no host two nodes.
func FuzzHello(f *testing.F) {
	is := machine("e", "1")
	is.Devices = []topo.DeviceRecord{{Platform: "gpu", UUID: "u", Coords: []int{0, 1}}}
	for _, h := range []hello{{Incarnation: 1, Host: "a", Tasks: 2, Nodes: 4, Identity: is}, {Identity: machine("a", "1")}} {
		b, err := json.Marshal(h)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var h hello
		if read("hello/1", b, &h) != nil || h.check() != nil {
			return
		}
		r := newRanks(Config{Nodes: 4, Tasks: 2}, lastRun())
		p := places{hands: make(map[int]hand), hostOf: slices.Repeat([]int{notYet}, 4)}
		for host, is := range []topo.TaskRecord{machine("d", "1"), h.Identity, machine("a", "2"), machine("c", "1")} {
			r.arrive(host, is, time.Unix(0, 0))
			p.hands[host] = (*crew)(nil)
			seated, err := r.assign(p.free(), p.idle(), time.Unix(0, 0))
			if err != nil {
				return // then hosts have the nodes of their numbers
			}
			for _, s := range seated {
				if s.node >= 0 && p.hostOf[s.node] >= 0 || s.node >= 0 && slices.Contains(p.hostOf, s.host) {
					t.Errorf("host %d gets node %d; hosts of nodes are %v", s.host, s.node, p.hostOf)
				}
				if s.node >= 0 {
					p.hostOf[s.node] = s.host
				}
			}
		}
		r.settle(p.hostOf)
		r.records()
	})
}
