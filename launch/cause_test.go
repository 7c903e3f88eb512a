package launch

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/secure"
)

func TestCause(t *testing.T) {
	clause.Cite(t, "C-LOST-3")
	for _, c := range []struct {
		cause                Cause
		text, name, evidence string
		code                 int
	}{
		{Cause{Code: 3}, "exit code 3", "exit code 3", "code 3", 3},
		{Cause{Signal: 9}, "signal 9", "signal 9 (KILL)", "signal 9", 137},
		{Cause{Signal: 9, Memory: true}, "signal 9, killed for memory", "signal 9, killed for memory", "signal 9, killed for memory", 137},
		{Cause{Text: "no such file"}, "no such file", "no such file", "no such file", 1},
	} {
		if c.cause.Well() || c.cause.String() != c.text || c.cause.name() != c.name || c.cause.evidence() != c.evidence || c.cause.ExitCode() != c.code {
			t.Errorf("%+v: %q, %q, %q, %d; want %q, %q, %q, %d", c.cause, c.cause, c.cause.name(), c.cause.evidence(), c.cause.ExitCode(),
				c.text, c.name, c.evidence, c.code)
		}
	}
	if c := (Cause{}); !c.Well() || c.ExitCode() != 0 {
		t.Errorf("%+v is no good end with exit code 0", c)
	}
}

// write makes a file below a fake root.
func write(t *testing.T, root, name, text string) {
	t.Helper()
	file := filepath.Join(root, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
}

// The count of our own control group is taken before that of the machine.
func TestMemoryWatch(t *testing.T) {
	const vmstat = "nr_free_pages 1\noom_kill 9\n"
	for _, c := range []struct {
		name  string
		files map[string]string
		want  int64
		none  bool
	}{
		{"version 2", map[string]string{
			"proc/self/cgroup": "0::/job\n", "sys/fs/cgroup/job/memory.events": "low 0\noom 1\noom_kill 2\n", "proc/vmstat": vmstat}, 2, false},
		{"version 2 in a container", map[string]string{
			"proc/self/cgroup": "0::/job\n", "sys/fs/cgroup/memory.events": "oom_kill 3\n", "proc/vmstat": vmstat}, 3, false},
		{"version 1", map[string]string{
			"proc/self/cgroup": "9:cpu:/x\n8:memory:/job\n", "sys/fs/cgroup/memory/job/memory.oom_control": "under_oom 0\noom_kill 4\n", "proc/vmstat": vmstat}, 4, false},
		{"the machine", map[string]string{"proc/self/cgroup": "0::/job\n", "proc/vmstat": vmstat}, 9, false},
		{"nothing known", nil, 0, true},
		{"nonsense", map[string]string{"proc/self/cgroup": "x", "proc/vmstat": "oom_kill many\n"}, 0, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			for name, text := range c.files {
				write(t, root, name, text)
			}
			if got, ok := newMemoryWatch(root).kills(); got != c.want || ok == c.none {
				t.Errorf("kills() = %d, %v; want %d, %v", got, ok, c.want, !c.none)
			}
		})
	}
}

// A process that somebody killed while the count rose was killed for memory; one that we killed was not.
func TestKilledForMemory(t *testing.T) {
	s := newStage(t)
	cfg := s.config(1)
	root := t.TempDir()
	write(t, root, "proc/vmstat", "oom_kill 1\n")
	events := make(chan any, 2)
	cfg = cfg.withDefaults()
	run := newRun()
	k, err := newLocal(cfg, run)
	if err != nil {
		t.Fatal(err)
	}
	k.memory = newMemoryWatch(root)
	f := newFeed(s)
	defer f.close(nil)
	c, err := newCrew(cfg, run, k, f, events)
	if err != nil {
		t.Fatal(err)
	}
	for i, byUs := range []bool{false, true} {
		c.start(seat{Tasks: 1, Locals: 1, Nodes: 1, Attempt: 1, Life: i + 1}, contact{address: "127.0.0.1:1", secret: secure.Draw()})
		task := s.next(0, 1, i+1)
		write(t, root, "proc/vmstat", "oom_kill "+strings.Repeat("1", i+2)+"\n")
		if byUs {
			c.kill()
		} else {
			task.begin("signal 9")
		}
		if d := (<-events).(died); d.Cause != (Cause{Signal: 9, Memory: !byUs}) || d.Ours != byUs {
			t.Errorf("killed by us: %v: %+v; want memory %v", byUs, d, !byUs)
		}
		<-events
	}
	c.close()
}

// Of processes that end together the one that another cannot have pulled along is named first.
func TestFirstOfThoseThatEndTogether(t *testing.T) {
	code, abort, killed := Cause{Code: 1}, Cause{Signal: syscall.SIGABRT}, Cause{Signal: syscall.SIGKILL}
	for _, c := range []struct {
		name   string
		causes []Cause // by task, in the order seen
		also   []int   // seen ending with the first
		want   int
	}{
		{"alone", []Cause{code}, nil, 0},
		{"one after the other", []Cause{code, killed}, nil, 0},
		{"together", []Cause{code, killed}, []int{1}, 1},
		{"together, alike", []Cause{code, code}, []int{1}, 0},
		{"together with an abort", []Cause{abort, code, killed}, []int{1}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			var fs failures
			for task, cause := range c.causes {
				fs.add(&Failure{Task: task, Cause: cause}, c.also)
			}
			first, later := fs.sorted()
			if first.Task != c.want || len(later) != len(c.causes)-1 {
				t.Errorf("first is task %d, %d later; want task %d", first.Task, len(later), c.want)
			}
		})
	}
}
