package launch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/client"
	"github.com/serry-dev/serry/internal/lab/clause"
)

// play is a job on two hosts of two tasks each, in its first attempt, of which this test plays the hosts.
func play(t *testing.T, policy Restart, restarts int) *Job {
	t.Helper()
	cfg := Config{Command: itself, Tasks: 2, Nodes: 2, Restart: policy, MaxRestarts: restarts}.withDefaults()
	j := &Job{
		cfg: cfg, feed: newFeed(noDisplay{}), service: &skyService{}, inbox: make(chan any, 8), world: newSky().host("a"),
		plan: newPlan(4, restarts, policy, cfg.Recoverable), places: newPlaces(2, puppetHand{}),
	}
	t.Cleanup(func() { j.feed.close(nil) })
	j.places.add(1, puppetHand{1})
	j.perform(j.plan.begin())
	return j
}

// A puppetHand does nothing.
type puppetHand struct{ node int }

func (puppetHand) start(seat, contact)      {}
func (puppetHand) end(syscall.Signal, bool) {}
func (puppetHand) pass(syscall.Signal)      {}
func (puppetHand) fail(lifetime, string)    {}
func (puppetHand) kill()                    {}

// finish has a task end well, or fail.
func (j *Job) finishTask(task int, c Cause) {
	j.perform(j.died(died{lifetime: j.lifetime(task), Cause: c}))
	j.perform(j.left(left{lifetime: j.lifetime(task)}))
}

// A lost host is charged once, however many of its tasks ran, and has no part in the attempt that its
// loss begins.
func TestLostHostIsChargedOnce(t *testing.T) {
	for _, c := range []struct {
		name    string
		policy  Restart
		ended   []int // tasks that had ended well
		attempt int
		running int
	}{
		{"all, one task ran", RestartAll, []int{0, 1, 3}, 2, 4},
		{"all, the other task ran", RestartAll, []int{0, 1, 2}, 2, 4},
		{"all, both ran", RestartAll, []int{0, 1}, 2, 4},
		{"failed, both ran", RestartFailed, []int{0, 1}, 1, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			j := play(t, c.policy, 1)
			for _, task := range c.ended {
				j.finishTask(task, Cause{})
			}
			over := j.perform(j.lost(lost{node: 1, hand: puppetHand{1}, why: "test"}))
			n := j.count()
			if over || j.plan.left != 0 || j.plan.attempt != c.attempt || j.plan.ending != notEnding || n.Running != c.running {
				t.Errorf("over %v, %d restarts left, attempt %d, ending %v, %d running; want false, 0, %d, no, %d",
					over, j.plan.left, j.plan.attempt, j.plan.ending, n.Running, c.attempt, c.running)
			}
			j.serviceWork.Wait()
		})
	}
}

// A host that is told to end is one cause, however its tasks end and in whatever order it is heard.
func TestRetiringHostIsChargedOnce(t *testing.T) {
	j := play(t, RestartFailed, 1)
	h := puppetHand{1}
	j.retiring(retiring{node: 1, hand: h, signal: syscall.SIGTERM})
	j.perform(j.died(died{lifetime: j.lifetime(2), from: h, Ours: true, Cause: Cause{Signal: syscall.SIGTERM}}))
	j.perform(j.left(left{lifetime: j.lifetime(2), from: h}))
	j.perform(j.died(died{lifetime: j.lifetime(3), from: h, Cause: Cause{Code: 1}}))
	j.perform(j.lost(lost{node: 1, hand: h, why: "its launcher has left"}))
	if n := j.count(); j.plan.left != 0 || j.plan.ending != notEnding || n.Running != 4 || len(j.places.waiting) != 2 {
		t.Errorf("%d restarts left, ending %v, %d running, %d wait for a host; want 0, no, 4, 2", j.plan.left, j.plan.ending, n.Running, len(j.places.waiting))
	}
}

// A task that ends well because its host was told to end has not done its work; one that had ended before
// has, and so has any task of a job that starts nothing again.
func TestCutShort(t *testing.T) {
	for _, c := range []struct {
		name     string
		policy   Restart
		restarts int
		told     bool
		retires  bool
		attempt  int
		ended    int
	}{
		{"moved", RestartAll, 1, true, true, 2, 0},
		{"moved alone", RestartFailed, 1, true, true, 1, 3},
		{"had ended", RestartAll, 1, false, true, 1, 4},
		{"told by the first launcher", RestartAll, 1, true, false, 1, 4},
		{"nothing is started again", RestartNever, 0, true, true, 1, 4},
		{"no restart is left", RestartAll, 0, true, true, 1, 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			j := play(t, c.policy, c.restarts)
			h := puppetHand{1}
			for _, task := range []int{0, 1, 3} {
				j.finishTask(task, Cause{})
			}
			if c.retires {
				j.retiring(retiring{node: 1, hand: h, signal: syscall.SIGTERM})
			}
			j.perform(j.died(died{lifetime: j.lifetime(2), from: h, Told: c.told}))
			j.perform(j.left(left{lifetime: j.lifetime(2), from: h}))
			j.serviceWork.Wait()
			first, _ := j.failures.sorted()
			if n := j.count(); j.plan.attempt != c.attempt || n.Ended != c.ended || j.plan.left != 0 && c.ended < 4 || first != nil {
				t.Errorf("attempt %d, %d ended well, %d restarts left, first failure %v; want %d, %d, 0, none", j.plan.attempt, n.Ended, j.plan.left, first, c.attempt, c.ended)
			}
		})
	}
}

// Failures that follow from another one are started again on its budget, and it is the one that is named.
func TestIncident(t *testing.T) {
	long := time.Hour // that a process has run
	failure := func(j *Job, task int, c Cause, after time.Duration) {
		j.perform(j.died(died{lifetime: j.lifetime(task), Cause: c, After: after}))
		j.perform(j.left(left{lifetime: j.lifetime(task), Last: []string{fmt.Sprint("of ", task)}}))
	}
	killed, raised, aborted := Cause{Signal: syscall.SIGKILL}, Cause{Code: 1}, Cause{Signal: syscall.SIGABRT}

	j := play(t, RestartFailed, 2)
	failure(j, 2, killed, long)
	failure(j, 0, raised, long)
	failure(j, 1, aborted, long)
	failure(j, 3, raised, long)
	if n := j.count(); j.plan.left != 1 || n.Running != 4 {
		t.Errorf("one kill and what followed: %d restarts left, %d running; want 1, 4", j.plan.left, n.Running)
	}
	failure(j, 0, raised, 0) // a process that was started since is charged
	failure(j, 3, raised, 0)
	first, later := j.failures.sorted()
	if j.plan.ending != endingJob || first == nil || first.Task != 2 || first.Cause != killed || len(first.Last) != 1 || len(later) != 1 {
		t.Errorf("first %v with %q, then %v; want task 2, killed, with its last line, and one more", first, first.Last, later)
	}

	j = play(t, RestartFailed, 1)
	failure(j, 2, killed, long)
	failure(j, 0, killed, long) // no program chooses this end
	if first, _ := j.failures.sorted(); j.plan.ending != endingJob || first == nil || first.Task != 0 {
		t.Errorf("two kills and one restart: ending %v, first %v; want the end by task 0", j.plan.ending, first)
	}
}

// What comes from a host that was given up, from one that does not have the task, or about a task that
// does not exist, changes nothing.
func TestWordsOfOtherLives(t *testing.T) {
	j := play(t, RestartAll, 3)
	for _, ev := range []any{
		died{lifetime: lifetime{Task: 2, Attempt: 1, Life: 1}, from: puppetHand{7}, Cause: Cause{Code: 1}},
		died{lifetime: lifetime{Task: 0, Attempt: 1, Life: 1}, from: puppetHand{1}, Cause: Cause{Code: 1}},
		died{lifetime: lifetime{Task: 2, Attempt: 2, Life: 1}, from: puppetHand{1}, Cause: Cause{Code: 1}},
		died{lifetime: lifetime{Task: 4, Attempt: 1, Life: 1}, Cause: Cause{Code: 1}},
		died{lifetime: lifetime{Task: -1, Attempt: 1, Life: 1}, Cause: Cause{Code: 1}},
		left{lifetime: lifetime{Task: 99, Attempt: 1, Life: 1}},
		lost{node: 1, hand: puppetHand{7}, why: "another life"},
		lost{node: 5, hand: puppetHand{5}, why: "not here"},
		retiring{node: 1, hand: puppetHand{7}, signal: syscall.SIGTERM},
	} {
		if over := j.perform(j.event(ev)); over || j.count().Running != 4 || j.plan.left != 3 || len(j.places.leaving) != 0 {
			t.Errorf("%T %+v: %+v, %d restarts left; want nothing changed", ev, ev, j.count(), j.plan.left)
		}
	}
}

// A task that ends with a code of its own when the launcher has given up is not why the job ended.
func TestToldToEndIsNoCause(t *testing.T) {
	j := play(t, RestartAll, 1)
	j.perform(j.missing())
	j.perform(j.died(died{lifetime: j.lifetime(0), Cause: Cause{Code: 3}}))
	if first, _ := j.failures.sorted(); first != nil || j.report.Err == nil {
		t.Errorf("first failure %v, error %v; want none, and that no host came", first, j.report.Err)
	}
}

// The last order of a job that ended by an error can be read.
func TestLastOrderWithError(t *testing.T) {
	r := Report{Err: errors.New("no host came"), Tasks: 3}
	b, err := json.Marshal(order{Over: &r, Err: r.Err.Error()})
	if err != nil {
		t.Fatal(err)
	}
	var got order
	if err := json.Unmarshal(b, &got); err != nil || got.Over == nil || got.Err != "no host came" {
		t.Errorf("%s is read as %+v, %v; want the report and its error", b, got, err)
	}
}

// A follower that was told to end answers an order to start a task: it has ended.
func TestFollowerToldToEndStartsNothing(t *testing.T) {
	cfg := Config{Command: itself, Tasks: 1, Nodes: 2}.withDefaults()
	f := newFollower(&Job{cfg: cfg, world: reality{}}, nil, nil)
	f.told = syscall.SIGTERM
	s := seat{Task: 1, Tasks: 2, Locals: 1, Node: 1, Nodes: 2, Attempt: 1, Life: 2}
	f.carryOut(order{Start: &s})
	f.outbox.close()
	first, _ := f.outbox.next(nil)
	second, _ := f.outbox.next(nil)
	if d := first.Died; d == nil || d.lifetime != s.lifetime() || d.Cause != (Cause{Signal: syscall.SIGTERM}) || !d.Ours {
		t.Errorf("first answer %+v; want that the task has ended by SIGTERM", first)
	}
	if l := second.Left; l == nil || l.lifetime != s.lifetime() || len(f.seated) != 0 {
		t.Errorf("second answer %+v, %d alive; want that the task has left, none", second, len(f.seated))
	}
}

// Orders that make no sense are not carried out.
func TestSeatsThatMakeNoSense(t *testing.T) {
	cfg := Config{Command: itself, Tasks: 2, Nodes: 2}
	good := seat{Task: 2, Tasks: 4, Locals: 2, Node: 1, Nodes: 2, Attempt: 1, Life: 1}
	if !good.valid(cfg) {
		t.Errorf("%+v is not valid; want it valid", good)
	}
	for name, change := range map[string]func(*seat){
		"no locals":     func(s *seat) { s.Locals = 0 },
		"negative task": func(s *seat) { s.Task = -1 },
		"task beyond":   func(s *seat) { s.Task = 4 },
		"local beyond":  func(s *seat) { s.Local = 2 },
		"other size":    func(s *seat) { s.Tasks = 8 },
		"node beyond":   func(s *seat) { s.Node = 2 },
		"no attempt":    func(s *seat) { s.Attempt = 0 },
		"another local": func(s *seat) { s.Local = 1 },
	} {
		s := good
		if change(&s); s.valid(cfg) {
			t.Errorf("%s: %+v is valid", name, s)
		}
	}
}

// A launcher whose hello is read when it is gone gets no seat, and one that is lost has arrived before.
func TestDeadLauncherGetsNoSeat(t *testing.T) {
	clause.Cite(t, "C-LOST-1")
	f := newFeed(noDisplay{})
	defer f.close(nil)
	cfg := Config{Command: itself, Tasks: 1, Nodes: 3, Coordinator: freeAddress(t)}.withDefaults()
	inbox := make(chan any)
	m, err := openMeeting(cfg, reality{}, f, inbox)
	if err != nil {
		t.Fatal(err)
	}
	join := func(node int) *attendant {
		a, err := joinMeeting(t.Context(), reality{}.connect, cfg.Coordinator, client.Config{Task: cfg.launcher(node), Incarnation: serry.Incarnation(node), HeartbeatTimeout: launcherBeat})
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	hail := func(by *attendant, node, life int) {
		h := hello{Incarnation: serry.Incarnation(life), Tasks: 1, Nodes: 3}
		if err := put(t.Context(), by.KV(), fmt.Sprintf("hello/%d", node), h); err != nil {
			t.Fatal(err)
		}
	}
	second := join(2)
	hail(second, 1, 77) // of a launcher that is not there
	hail(second, 99, 1) // of a node that the job does not have
	hail(second, 2, 2)
	if err := put(t.Context(), second.KV(), "hello/x", "nonsense"); err != nil {
		t.Fatal(err)
	}
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	for deadline := time.Now().Add(patience); len(m.present()) == 0; <-again.C {
		if time.Now().After(deadline) {
			t.Fatal("node 2 is not let in")
		}
	}
	if err := second.Leave(t.Context()); err != nil { // before the job has heard of it
		t.Fatal(err)
	}
	second.Close()
	var got []string
	for len(got) < 2 {
		switch ev := (<-inbox).(type) {
		case arrived:
			got = append(got, fmt.Sprint("arrived ", ev.node))
		case lost:
			got = append(got, fmt.Sprint("lost ", ev.node, " ", ev.why))
		}
	}
	if diff := cmp.Diff([]string{"arrived 2", "lost 2 its launcher has left"}, got); diff != "" {
		t.Errorf("events (-want +got)\n%s", diff)
	}
	if err := m.close(Report{}, nil); err != nil {
		t.Error(err)
	}
}

// A follower whose first launcher was killed ends when its host refuses connections, and does not wait for
// the end of an outage.
func TestFollowerEndsWithTheFirstLauncher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSky()
		s.script = until
		hosts := []*skyHost{s.host("a"), s.host("b")}
		var jobs []*Job
		for node, h := range hosts {
			j, err := start(Config{Command: itself, Tasks: 1, Nodes: 2, Node: node, Coordinator: "first:1"}, h)
			if err != nil {
				t.Fatal(err)
			}
			jobs = append(jobs, j)
		}
		<-time.After(time.Minute) // both tasks run
		hosts[0].kill(false)
		killed := time.Now()
		r := jobs[1].Wait()
		if took := time.Since(killed); took > 2*doorPatience || r.Err == nil || !strings.Contains(r.Err.Error(), "has ended") {
			t.Errorf("%v after the first launcher, Wait() = %v; want its end within %v", took, r.Err, 2*doorPatience)
		}
		for range 3 {
			jobs[0].Signal(syscall.SIGTERM) // what is left of it in this process
		}
		jobs[0].Wait()
		s.done.Wait()
	})
}

func TestDoor(t *testing.T) {
	refused := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	for _, c := range []struct {
		name string
		seen []error // one a second
		shut bool
	}{
		{"not there yet", []error{refused, refused, refused, refused}, false},
		{"gone", []error{nil, refused, refused, refused}, true},
		{"refused once", []error{nil, refused, nil, refused, refused}, false},
		{"out of reach", []error{nil, syscall.EHOSTUNREACH, syscall.ETIMEDOUT, context.DeadlineExceeded}, false},
		{"refused between outages", []error{nil, refused, syscall.EHOSTUNREACH, refused, refused}, false},
		{"refused for long", []error{nil, refused, refused, refused, refused, refused}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newDoor(nil)
			for i, err := range c.seen {
				d.note(err, time.Unix(int64(i), 0))
			}
			select {
			case <-d.shut:
				if !c.shut {
					t.Error("the first launcher counts as ended; want it to be waited for")
				}
			default:
				if c.shut {
					t.Error("the first launcher is waited for; want it to count as ended")
				}
			}
		})
	}
}
