package launch

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/server"
)

// patience bounds every wait. It is no assertion: only a test that fails anyway waits so long.
const patience = time.Minute

// A stage is where a test plays with puppets.
type stage struct {
	t     *testing.T
	path  string
	found chan *actor
	early []*actor // that came, but nobody has asked for yet

	mu struct {
		sync.Mutex
		lines []string // "task stream text" of all tasks, and "note text"
		more  chan struct{}
	}
}

// An actor is the test's end of a puppet.
type actor struct {
	t                   *testing.T
	conn                net.Conn
	in                  *bufio.Reader
	task, attempt, life int
	pid                 int
}

func newStage(t *testing.T) *stage {
	t.Helper()
	s := &stage{t: t, path: filepath.Join(t.TempDir(), "s"), found: make(chan *actor, 64)}
	s.mu.more = make(chan struct{})
	l, err := net.Listen("unix", s.path)
	if err != nil {
		t.Fatal(err)
	}
	var done sync.WaitGroup
	done.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			a := &actor{t: t, conn: c, in: bufio.NewReader(c)}
			t.Cleanup(func() { c.Close() })
			switch _, err := fmt.Fscanf(a.in, "%d %d %d %d\n", &a.task, &a.attempt, &a.life, &a.pid); {
			case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
				continue // its job has ended it before it could
			case err != nil:
				t.Errorf("a puppet introduced itself badly: %v", err)
			}
			s.found <- a
		}
	})
	t.Cleanup(func() {
		l.Close()
		done.Wait()
	})
	return s
}

// config is that of a job of puppets.
func (s *stage) config(tasks int) Config {
	return Config{
		Command: itself, Tasks: tasks, Display: s, Guard: itself,
		Env: append(os.Environ(), mode+"=task", socket+"="+s.path),
		Service: server.Config{Cluster: coord.Config{
			RegisterBarrier: true, RegisterTimeout: patience, ShutdownTimeout: patience, HeartbeatTimeout: patience,
		}},
	}
}

// start starts a job, which must be over when the test is.
func (s *stage) start(cfg Config) *Job {
	s.t.Helper()
	j, err := Start(cfg)
	if err != nil {
		s.t.Fatalf("Start() = %v; want a job", err)
	}
	s.t.Cleanup(func() {
		if s.t.Failed() {
			j.Signal(9) // only ends a job that hangs
		}
		<-j.Done()
	})
	return j
}

// next returns the puppet of a task in an attempt and life, when it has come.
func (s *stage) next(task, attempt, life int) *actor {
	s.t.Helper()
	deadline := time.After(patience)
	for {
		for i, a := range s.early {
			if a.task == task && a.attempt == attempt && a.life == life {
				s.early = append(s.early[:i], s.early[i+1:]...)
				return a
			}
		}
		select {
		case a := <-s.found:
			s.early = append(s.early, a)
		case <-deadline:
			s.t.Fatalf("task %d of attempt %d, life %d, did not come", task, attempt, life)
		}
	}
}

// all returns the puppets of all tasks of an attempt.
func (s *stage) all(tasks, attempt int) []*actor {
	s.t.Helper()
	actors := make([]*actor, tasks)
	for i := range actors {
		actors[i] = s.next(i, attempt, 1)
	}
	return actors
}

// begin sends a command, end reads the answer, and tell does both.
func (a *actor) begin(command string) {
	a.t.Helper()
	a.conn.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(a.conn, command+"\n"); err != nil {
		a.t.Fatalf("task %d: tell %q: %v", a.task, command, err)
	}
}

func (a *actor) end() string {
	a.t.Helper()
	answer, err := a.in.ReadString('\n')
	if err != nil {
		a.t.Fatalf("task %d: no answer: %v", a.task, err)
	}
	return strings.TrimSuffix(answer, "\n")
}

func (a *actor) tell(command string) string {
	a.t.Helper()
	a.begin(command)
	return a.end()
}

// does is tell for a command that must succeed.
func (a *actor) does(command string) {
	a.t.Helper()
	if got := a.tell(command); got != "ok" {
		a.t.Fatalf("task %d: %q answered %q; want ok", a.task, command, got)
	}
}

// gone returns when the process has ended.
func (a *actor) gone() {
	a.t.Helper()
	a.conn.SetDeadline(time.Now().Add(patience))
	if line, err := a.in.ReadString('\n'); err == nil {
		a.t.Fatalf("task %d said %q; want its end", a.task, line)
	} else if os.IsTimeout(err) {
		a.t.Fatalf("process %d of task %d runs on; want its end", a.pid, a.task)
	}
}

// do has all actors do the same at one time.
func do(actors []*actor, command string) {
	for _, a := range actors {
		a.t.Helper()
		a.begin(command)
	}
	for _, a := range actors {
		if got := a.end(); got != "ok" {
			a.t.Fatalf("task %d: %q answered %q; want ok", a.task, command, got)
		}
	}
}

// exit ends all actors with a code.
func exit(actors []*actor, code int) {
	for _, a := range actors {
		a.begin(fmt.Sprintf("exit %d", code))
	}
}

// Line and Note record what a person would see.
func (s *stage) Line(task int, stream Stream, text []byte) {
	s.record(fmt.Sprintf("%d %d %s", task, stream, text))
}

func (s *stage) Note(n Note) { s.record("note " + n.Text) }

func (s *stage) record(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.lines = append(s.mu.lines, line)
	close(s.mu.more)
	s.mu.more = make(chan struct{})
}

// shown returns the first line that contains all words, when it has been shown.
func (s *stage) shown(words ...string) string {
	s.t.Helper()
	deadline := time.After(patience)
	for {
		s.mu.Lock()
		lines, more := s.mu.lines, s.mu.more
		s.mu.Unlock()
		for _, line := range lines {
			if containsAll(line, words) {
				return line
			}
		}
		select {
		case <-more:
		case <-deadline:
			s.t.Fatalf("nothing shown with all of %q in\n%s", words, strings.Join(lines, "\n"))
		}
	}
}

func containsAll(text string, words []string) bool {
	for _, w := range words {
		if !strings.Contains(text, w) {
			return false
		}
	}
	return true
}
