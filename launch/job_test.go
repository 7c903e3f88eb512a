package launch

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/serry-dev/serry/internal/lab/clause"
)

// All tasks end well: so does the job, whoever leaves first, and whether or not it said goodbye.
func TestFinishedJobIsASuccess(t *testing.T) {
	clause.Cite(t, "A-TF-7", "C-LOST-3")
	s := newStage(t)
	j := s.start(s.config(3))
	tasks := s.all(3, 1)
	do(tasks, "join")
	tasks[0].begin("exit 0") // process 0 first, without a word
	tasks[0].gone()
	do(tasks[1:], "leave") // the shutdown barrier does not wait for it
	exit(tasks[1:], 0)
	r := j.Wait()
	if !r.Well() || r.ExitCode() != 0 || r.Attempts != 1 || r.Ended != 3 {
		t.Errorf("Wait() = %+v; want three tasks ended well in one attempt", r)
	}
}

// The report names who failed first, although the failure made the others fail, too.
func TestReportNamesTheFirst(t *testing.T) {
	clause.Cite(t, "C-LOST-1", "C-LOST-3", "A-SIDE-16")
	for _, c := range []struct {
		name, command string
		want          Cause
		evidence      string
		exitCode      int
	}{
		{"by signal", "signal 9", Cause{Signal: 9}, "process exited: signal 9", 137},
		{"by exit code", "exit 7", Cause{Code: 7}, "process exited: code 7", 7},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStage(t)
			j := s.start(s.config(3))
			tasks := s.all(3, 1)
			do(tasks, "join")
			others := []*actor{tasks[0], tasks[2]}
			for _, a := range others {
				a.does("ignore 15")
				a.begin("fault")
			}
			tasks[1].does("print my last words")
			tasks[1].begin(c.command)
			for _, a := range others {
				if got := a.end(); !strings.Contains(got, c.evidence) {
					t.Errorf("task %d heard %q; want %q in it", a.task, got, c.evidence)
				}
			}
			exit(others, 1)
			r := j.Wait()
			if r.First == nil || r.First.Task != 1 || withoutCount(r.First.Cause) != c.want || r.First.Attempt != 1 {
				t.Fatalf("First = %+v; want task 1: %v", r.First, c.want)
			}
			if !slices.Equal(r.First.Last, []string{"my last words"}) {
				t.Errorf("Last = %q; want its last words", r.First.Last)
			}
			if len(r.Later) != 2 || r.ExitCode() != c.exitCode {
				t.Errorf("%d failed later, exit code %d; want 2, %d", len(r.Later), r.ExitCode(), c.exitCode)
			}
		})
	}
}

// A failed task is started again alone, and joins the others where they are.
func TestRestartFailed(t *testing.T) {
	clause.Cite(t, "T-REAL-15", "A-RES-5")
	s := newStage(t)
	cfg := s.config(3)
	cfg.Restart, cfg.MaxRestarts = RestartFailed, 1
	j := s.start(cfg)
	tasks := s.all(3, 1)
	do(tasks, "join")
	tasks[2].begin("signal 9")
	tasks[2] = s.next(2, 1, 2)
	tasks[2].does("join")
	do(tasks, "barrier all are here")
	do(tasks, "leave")
	exit(tasks, 0)
	if r := j.Wait(); !r.Well() || r.Restarts != 1 || r.Attempts != 1 {
		t.Errorf("Wait() = %+v; want success with one restart in one attempt", r)
	}
}

// After a failure everybody is started again, with another service; what is left of the attempt before
// cannot reach it.
func TestRestartAll(t *testing.T) {
	clause.Cite(t, "C-EPOCH-6", "A-SIDE-19", "T-REAL-15")
	s := newStage(t)
	cfg := s.config(2)
	cfg.Restart, cfg.MaxRestarts = RestartAll, 2
	j := s.start(cfg)
	first := s.all(2, 1)
	do(first, "join")
	address := first[0].tell("env " + EnvAddress)
	first[1].begin("exit 3")
	second := s.all(2, 2)
	for _, a := range first {
		a.gone()
	}
	if again := second[0].tell("env " + EnvAddress); again == address {
		t.Errorf("attempts 1 and 2 both have their service on %s; want another", again)
	}
	do(second, "join")
	do(second, "leave")
	exit(second, 0)
	if r := j.Wait(); !r.Well() || r.Restarts != 1 || r.Attempts != 2 {
		t.Errorf("Wait() = %+v; want success with one restart in two attempts", r)
	}
}

// Restarts have an end, and the last failure is the one that counts.
func TestRestartsEnd(t *testing.T) {
	for _, policy := range []Restart{RestartFailed, RestartAll} {
		t.Run(string(policy), func(t *testing.T) {
			s := newStage(t)
			cfg := s.config(1)
			cfg.Restart, cfg.MaxRestarts = policy, 2
			j := s.start(cfg)
			for i := range 3 {
				attempt, life := 1+i, 1
				if policy == RestartFailed {
					attempt, life = life, attempt
				}
				s.next(0, attempt, life).begin(fmt.Sprintf("exit %d", 10+i))
			}
			if r := j.Wait(); r.First == nil || r.ExitCode() != 12 || r.Restarts != 2 {
				t.Errorf("Wait() = %+v; want exit code 12 after 2 restarts", r)
			}
		})
	}
}

// In a recoverable job the others go on without a task that failed; the failure still counts.
func TestRecoverableJobGoesOn(t *testing.T) {
	clause.Cite(t, "C-LOST-1")
	s := newStage(t)
	cfg := s.config(3)
	cfg.Recoverable = true
	j := s.start(cfg)
	tasks := s.all(3, 1)
	do(tasks, "join")
	tasks[0].begin("exit 5")
	s.shown("rank 0 ended: exit code 5; the others go on")
	do(tasks[1:], "leave")
	exit(tasks[1:], 0)
	if r := j.Wait(); r.First == nil || r.First.Task != 0 || r.Ended != 2 || r.ExitCode() != 5 {
		t.Errorf("Wait() = %+v; want task 0 failed with 5, two ended well", r)
	}
}

// A task that falls silent is named as the first, although those who hear of it end before it does.
func TestSilentTaskIsNamedFirst(t *testing.T) {
	clause.Cite(t, "C-LOST-5")
	s := newStage(t)
	j := s.start(s.config(3))
	tasks := s.all(3, 1)
	do(tasks, "join")
	tasks[1].begin("signal 19") // SIGSTOP
	if got := tasks[0].tell("fault"); !strings.Contains(got, "worker/1") {
		t.Errorf("task 0 heard %q; want worker/1 named", got)
	}
	tasks[0].begin("exit 1")
	r := j.Wait()
	if r.First == nil || r.First.Task != 1 || !strings.HasSuffix(r.First.Verdict, "task is dead: stream not resumed") || r.ExitCode() != 1 {
		t.Errorf("First = %v; want task 1: stream not resumed", r.First)
	}
}

// Nobody waits for a task that has ended without joining.
func TestTaskThatNeverJoins(t *testing.T) {
	s := newStage(t)
	j := s.start(s.config(2))
	tasks := s.all(2, 1)
	tasks[0].begin("join")
	tasks[1].begin("exit 0")
	r := j.Wait()
	if r.First == nil || r.First.Task != 1 || !strings.Contains(r.First.Verdict, "without joining") {
		t.Errorf("First = %v; want task 1, which never joined", r.First)
	}
}

// Signals reach every task; those that mean the end give them the grace to end well.
func TestSignals(t *testing.T) {
	s := newStage(t)
	j := s.start(s.config(2))
	tasks := s.all(2, 1)
	for _, sig := range []syscall.Signal{syscall.SIGUSR1, syscall.SIGTERM} {
		for _, a := range tasks {
			if got := a.tell(fmt.Sprintf("await %d", sig)); got != "waiting" {
				t.Fatalf("await answered %q", got)
			}
		}
		j.Signal(sig)
		for _, a := range tasks {
			if got := a.end(); got != sig.String() {
				t.Errorf("task %d got %q; want %v", a.task, got, sig)
			}
		}
	}
	tasks[0].begin("exit 0")
	tasks[0].gone()
	tasks[1].begin("exit 0")
	if r := j.Wait(); !r.Well() || r.Interrupted != syscall.SIGTERM || r.ExitCode() != 0 {
		t.Errorf("Wait() = %+v; want all ended well after SIGTERM", r)
	}
}

// A task that ignores the signal is killed, after the grace or at the second signal.
func TestTaskThatIgnoresSignals(t *testing.T) {
	for _, c := range []struct {
		name   string
		grace  time.Duration
		second bool
	}{{"grace", time.Millisecond, false}, {"second signal", time.Hour, true}} {
		t.Run(c.name, func(t *testing.T) {
			s := newStage(t)
			cfg := s.config(2)
			cfg.Grace = c.grace
			j := s.start(cfg)
			tasks := s.all(2, 1)
			do(tasks, "ignore 2")
			j.Signal(syscall.SIGINT)
			if c.second {
				j.Signal(syscall.SIGINT)
			}
			r := j.Wait()
			if r.Interrupted != syscall.SIGINT || r.ExitCode() != 130 || r.First != nil {
				t.Errorf("Wait() = %+v; want interrupted by SIGINT", r)
			}
		})
	}
}
