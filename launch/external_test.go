package launch

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/wire"
)

// outside starts a service that does not belong to the job, and returns where it is.
func (s *stage) outside(cfg Config) string {
	s.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	srv, err := serve(cfg.Service, l, wire.DefaultJob, cfg.total())
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { srv.close() })
	return srv.at
}

// A job can use a service that others run. Its tasks reach it by a relay, which tells the service how
// they end.
func TestExternalService(t *testing.T) {
	clause.Cite(t, "A-SIDE-16", "C-LOST-3")
	s := newStage(t)
	cfg := s.config(3)
	cfg.Relay.Upstream = []string{s.outside(cfg)}
	j := s.start(cfg)
	tasks := s.all(3, 1)
	if at := tasks[0].tell("env " + EnvAddress); at == cfg.Relay.Upstream[0] {
		t.Errorf("tasks are told the address of the service, %s; want that of a relay", at)
	}
	do(tasks, "join")
	do(tasks, "barrier all are here")
	for _, a := range tasks[1:] {
		a.does("ignore 15")
		a.begin("fault")
	}
	tasks[0].begin("signal 9")
	for _, a := range tasks[1:] {
		if got := a.end(); !strings.Contains(got, "worker/0") || !strings.Contains(got, "process exited: signal 9") {
			t.Errorf("task %d heard %q; want that signal 9 ended worker/0", a.task, got)
		}
	}
	exit(tasks[1:], 1)
	if r := j.Wait(); r.First == nil || r.First.Task != 0 || withoutCount(r.First.Cause) != (Cause{Signal: 9}) {
		t.Errorf("First = %+v; want task 0, signal 9", r.First)
	}
}

// A service that stays away ends the job with a code of its own, whatever the ranks end with.
func TestExternalServiceIsLost(t *testing.T) {
	clause.Cite(t, "D-RC-9", "A-SIDE-10")
	s := newStage(t)
	cfg := s.config(2)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv, err := serve(cfg.Service, l, wire.DefaultJob, cfg.total())
	if err != nil {
		t.Fatal(err)
	}
	cfg.Relay.Upstream, cfg.Relay.GiveUp = []string{srv.at}, 5*time.Second // which also bounds the first connection
	j := s.start(cfg)
	tasks := s.all(2, 1)
	do(tasks, "join")
	srv.Server.Close() // without a word, as one that was killed
	if r := j.Wait(); r.ExitCode() != CodeLost || r.Err == nil || !strings.Contains(r.Err.Error(), "the coordinator is lost since ") || r.First != nil {
		t.Errorf("Wait() = %+v, code %d; want the coordinator lost, code %d", r, r.ExitCode(), CodeLost)
	}
}

// Each attempt has a relay on an address of its own, and what is left of an older one is refused.
func TestExternalAttempts(t *testing.T) {
	clause.Cite(t, "T-RLY-15", "A-SIDE-19", "C-EPOCH-6")
	s := newStage(t)
	cfg := s.config(2)
	cfg.Relay.Upstream = []string{s.outside(cfg)}
	cfg.Restart, cfg.MaxRestarts = RestartAll, 2
	j := s.start(cfg)
	first := s.all(2, 1)
	do(first, "join")
	former := first[0].tell("env " + EnvAddress)
	first[1].begin("exit 3")
	second := s.all(2, 2)
	if present := second[0].tell("env " + EnvAddress); present == former {
		t.Errorf("attempts 1 and 2 both have their relay on %s; want another", present)
	}
	if c, err := net.Dial("tcp", former); err == nil {
		c.Close()
		t.Errorf("Dial(%s), the relay of attempt 1 = a connection; want it refused", former)
	}
	do(second, "join") // in the next epoch of the service
	do(second, "leave")
	exit(second, 0)
	if r := j.Wait(); !r.Well() || r.Restarts != 1 || r.Attempts != 2 {
		t.Errorf("Wait() = %+v; want success with one restart in two attempts", r)
	}
	if line := s.shown("attempt 2"); !strings.Contains(line, "by relays") {
		t.Errorf("shown %q; want the service named as one behind relays", line)
	}
}

// Who waits in vain for a task that never joined is found also behind relays.
func TestExternalNeverJoined(t *testing.T) {
	clause.Cite(t, "A-SIDE-16")
	s := newStage(t)
	cfg := s.config(2)
	cfg.Relay.Upstream = []string{s.outside(cfg)}
	j := s.start(cfg)
	tasks := s.all(2, 1)
	tasks[0].begin("join")
	tasks[1].begin("exit 0")
	if r := j.Wait(); r.First == nil || r.First.Task != 1 || !strings.Contains(r.First.Verdict, "without joining") {
		t.Errorf("First = %+v; want task 1, which never joined", r.First)
	}
}

// A service for more tasks than the job has waits for one that never comes, which is named.
func TestExternalServiceForMoreTasks(t *testing.T) {
	clause.Cite(t, "A-SIDE-16", "D-RC-9")
	s := newStage(t)
	cfg := s.config(3)
	cfg.Relay.Upstream = []string{s.outside(cfg)}
	cfg.Tasks = 2
	j := s.start(cfg)
	tasks := s.all(2, 1)
	tasks[0].begin("join")
	tasks[1].begin("exit 0")
	if r := j.Wait(); r.Err == nil || !strings.Contains(r.Err.Error(), "rank 2") || r.ExitCode() != CodeStart {
		t.Errorf("Wait() = %+v; want that the service waits for rank 2", r)
	}
}

// On several hosts each has a relay of its own.
func TestExternalHosts(t *testing.T) {
	clause.Cite(t, "A-SIDE-19")
	s := newStage(t)
	cfg := s.several(RestartNever)
	cfg.Relay.Upstream = []string{s.outside(cfg)}
	jobs := []*Job{s.startNode(cfg, 0), s.startNode(cfg, 1)}
	tasks := s.all(2, 1)
	if a, b := tasks[0].tell("env "+EnvAddress), tasks[1].tell("env "+EnvAddress); a == b {
		t.Errorf("tasks of two hosts are both told %s; want a relay for each", a)
	}
	do(tasks, "join")
	do(tasks, "leave")
	exit(tasks, 0)
	for _, j := range jobs {
		if r := j.Wait(); !r.Well() {
			t.Errorf("node %d: Wait() = %+v; want success", j.cfg.Node, r)
		}
	}
}
