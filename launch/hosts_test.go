package launch

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/server"
	"github.com/serry-dev/serry/topo"
)

// A host of these tests is a launcher, all of them on this machine.

// several is the configuration of a job of one task on each of two hosts, with a spare.
func (s *stage) several(restart Restart) Config {
	s.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	defer l.Close()
	cfg := s.config(1)
	cfg.Nodes, cfg.Spares, cfg.Coordinator = 2, 1, l.Addr().String()
	cfg.Restart, cfg.MaxRestarts = restart, 1
	return cfg
}

func (s *stage) startNode(cfg Config, node int) *Job {
	s.t.Helper()
	cfg.Node = node
	return s.start(cfg)
}

// Hosts that come in any order make up one job, and all hear how it ended.
func TestSeveralHosts(t *testing.T) {
	s := newStage(t)
	cfg := s.several(RestartNever)
	var jobs []*Job
	for _, node := range []int{1, 0} {
		jobs = append(jobs, s.startNode(cfg, node))
	}
	tasks := s.all(2, 1)
	for i, a := range tasks {
		for name, want := range map[string]string{
			EnvTask: fmt.Sprint(i), EnvTasks: "2", EnvNode: fmt.Sprint(i), EnvNodes: "2", EnvLocalTask: "0", EnvLocalTasks: "1",
			"OMPI_COMM_WORLD_RANK": fmt.Sprint(i), "OMPI_COMM_WORLD_LOCAL_RANK": "0",
		} {
			if got := a.tell("env " + name); got != want {
				t.Errorf("task %d: %s is %q; want %q", i, name, got, want)
			}
		}
	}
	do(tasks, "join")
	do(tasks, "leave")
	tasks[0].begin("exit 0")
	tasks[1].does("print the end of task 1")
	tasks[1].begin("exit 4")
	for _, j := range jobs {
		r := j.Wait()
		if r.First == nil || r.First.Task != 1 || r.ExitCode() != 4 || len(r.First.Last) != 1 {
			t.Errorf("node %d: First = %+v; want task 1 with exit code 4 and its last line", j.cfg.Node, r.First)
		}
	}
}

// A host that is told to end gives its place to the spare, whether its task dies of the signal or saves
// its work and ends with exit code 0.
func TestSpareTakesOver(t *testing.T) {
	for _, c := range []struct {
		name   string
		policy Restart
		saves  bool
	}{
		{"failed", RestartFailed, false},
		{"all", RestartAll, false},
		{"failed, the task saves", RestartFailed, true},
		{"all, the task saves", RestartAll, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			policy := c.policy
			s := newStage(t)
			cfg := s.several(policy)
			first, second, spare := s.startNode(cfg, 0), s.startNode(cfg, 1), s.startNode(cfg, 2)
			tasks := s.all(2, 1)
			do(tasks, "join")
			s.shown("node 2 is here")
			if c.saves {
				tasks[1].tell("await 15")
			}
			second.Signal(syscall.SIGTERM)
			if c.saves {
				if got := tasks[1].end(); got != "terminated" {
					t.Errorf("task 1 got signal %q; want terminated", got)
				}
				tasks[1].begin("exit 0")
				s.shown("rank 1 ended: exit code 0 when its host was told to end by signal 15")
			}
			if r := second.Wait(); r.Interrupted != syscall.SIGTERM || r.ExitCode() != 143 {
				t.Errorf("node 1: Wait() = %+v; want interrupted by SIGTERM", r)
			}
			if policy == RestartAll {
				tasks = s.all(2, 2)
			} else {
				tasks[1] = s.next(1, 1, 2)
			}
			s.shown("the ranks of node 1 go to a spare host")
			do(rejoining(tasks, policy), "join")
			do(tasks, "barrier all are here")
			do(tasks, "leave")
			exit(tasks, 0)
			for _, j := range []*Job{first, spare} {
				if r := j.Wait(); !r.Well() {
					t.Errorf("node %d: Wait() = %+v; want success", j.cfg.Node, r)
				}
			}
		})
	}
}

// rejoining are the tasks that were started anew.
func rejoining(tasks []*actor, policy Restart) []*actor {
	if policy == RestartAll {
		return tasks
	}
	return tasks[1:]
}

// A host that dies without a word is found, and its tasks go to the spare.
func TestHostKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds to give a silent host up")
	}
	clause.Cite(t, "C-LOST-5")
	s := newStage(t)
	cfg := s.several(RestartFailed)
	first, spare := s.startNode(cfg, 0), s.startNode(cfg, 2)
	host := exec.Command(itself[0])
	host.Env = append(os.Environ(), mode+"=launcher", socket+"="+s.path, nodeVariable+"=1", coordinatorVariable+"="+cfg.Coordinator)
	if err := host.Start(); err != nil {
		t.Fatal(err)
	}
	tasks := s.all(2, 1)
	do(tasks, "join")
	s.shown("node 2 is here")
	host.Process.Kill()
	host.Wait()
	tasks[1].gone()
	s.shown("node 1 is gone: ")
	tasks[1] = s.next(1, 1, 2)
	tasks[1].does("join")
	do(tasks, "leave")
	exit(tasks, 0)
	for _, j := range []*Job{first, spare} {
		if r := j.Wait(); !r.Well() || r.Restarts != 1 {
			t.Errorf("node %d: Wait() = %+v; want success with one restart", j.cfg.Node, r)
		}
	}
}

// Without the first launcher the others end, and their tasks with them.
func TestFirstLauncherNeverComes(t *testing.T) {
	s := newStage(t)
	cfg := s.several(RestartNever)
	cfg.Service.Cluster.RegisterTimeout = 50 * time.Millisecond
	r := s.startNode(cfg, 1).Wait()
	if r.Err == nil || !strings.Contains(r.Err.Error(), "no launcher of node 0 at "+cfg.Coordinator) || r.ExitCode() != CodeStart {
		t.Errorf("Wait() = %+v; want that there is no launcher of node 0", r)
	}
}

// A job does not wait for a host for ever.
func TestHostNeverComes(t *testing.T) {
	s := newStage(t)
	cfg := s.several(RestartNever)
	cfg.Service.Cluster.RegisterTimeout = 50 * time.Millisecond
	r := s.startNode(cfg, 0).Wait()
	if r.Err == nil || !strings.Contains(r.Err.Error(), "no host came for node 1") || r.ExitCode() != CodeStart {
		t.Errorf("Wait() = %+v; want that no host came for node 1", r)
	}
}

// A launcher that was started for another shape of the job is not let in, is told why, and ends.
func TestHostOfAnotherShape(t *testing.T) {
	s := newStage(t)
	cfg := s.several(RestartNever)
	first := s.startNode(cfg, 0)
	odd := cfg
	odd.Tasks = 3
	other := s.startNode(odd, 1)
	why := "3 ranks on each of 2 nodes, not 1 on 2"
	s.shown("node 1", "is not let in", why)
	if r := other.Wait(); r.Err == nil || !strings.Contains(r.Err.Error(), why) || r.ExitCode() != 1 {
		t.Errorf("node 1: Wait() = %+v; want it told why", r)
	}
	first.Signal(syscall.SIGINT)
	if r := first.Wait(); r.Interrupted != syscall.SIGINT {
		t.Errorf("Wait() = %+v; want interrupted by SIGINT", r)
	}
}

// An error of the first launcher reaches the others as its text.
func TestErrorReachesFollowers(t *testing.T) {
	s := newStage(t)
	cfg := s.several(RestartNever)
	cfg.Nodes = 3
	first := s.startNode(cfg, 0)
	other := s.startNode(cfg, 1)
	s.shown("node 1 is here")
	s.all(2, 1)
	first.inbox <- opened{err: fmt.Errorf("no port is free")}
	for _, j := range []*Job{first, other} {
		if r := j.Wait(); r.Err == nil || r.Err.Error() != "attempt 1: no port is free" || r.ExitCode() != CodeStart {
			t.Errorf("node %d: Wait() = %+v; want the error of the launcher", j.cfg.Node, r)
		}
	}
}

// DLV-22: a launcher that waits for another says so, with the reason, and again.
func TestWaitingForHostsIsSaid(t *testing.T) {
	clause.Cite(t, "DLV-22")
	for _, c := range []struct {
		name string
		node int
		want string
	}{
		{"for the first launcher", 1, "waiting for node 0 at first:1: no launcher listens there"},
		{"for the others", 0, "waiting for nodes 1 and 2: no launcher has come from there"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSky()
				s.script = until
				notes := &timedNotes{begun: time.Now()}
				cfg := Config{
					Command: itself, Tasks: 1, Nodes: 3, Node: c.node, Coordinator: "first:1", Display: notes, Grace: time.Second,
					Identity: &topo.TaskRecord{}, Devices: []int{}, Service: server.Config{Cluster: coord.Config{RegisterTimeout: time.Hour}},
				}
				j, err := start(cfg, s.host("a"))
				if err != nil {
					t.Fatal(err)
				}
				<-time.After(40 * time.Second)
				j.Signal(syscall.SIGTERM)
				j.Signal(syscall.SIGTERM)
				j.Wait()
				s.done.Wait()
				var at []time.Duration
				for i, text := range notes.said {
					if text == c.want {
						at = append(at, notes.at[i])
					}
				}
				if len(at) != 2 || at[0] > 5*time.Second || at[1]-at[0] < waitAgain || at[1]-at[0] > waitAgain+time.Second {
					t.Errorf("said %q at %v, %v; want %q within 5 s and again 30 s later", notes.said, notes.at, at, c.want)
				}
			})
		})
	}
}

func TestTroubleAtTheDoor(t *testing.T) {
	clause.Cite(t, "DLV-22")
	d := newDoor(nil)
	if got := d.trouble(); got != "no answer yet" {
		t.Errorf("trouble() = %q before a try", got)
	}
	for want, err := range map[string]error{
		"n1 does not resolve":                          &net.OpError{Op: "dial", Err: &net.DNSError{Name: "n1", Err: "no such host"}},
		"no launcher listens there":                    &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED},
		"no route to host":                             syscall.EHOSTUNREACH,
		"it answers, and has not let this host in yet": nil,
	} {
		d.note(err, time.Now())
		if got := d.trouble(); got != want {
			t.Errorf("trouble() after %v = %q; want %q", err, got, want)
		}
	}
}
