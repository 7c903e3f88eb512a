package launch

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/serry-dev/serry/secure"
)

// What a task leaves behind ends with it, or at the latest with the job: in its group or out of it,
// whatever it does with signals.
func TestNothingIsLeftBehind(t *testing.T) {
	for _, c := range []struct {
		name    string
		command string // that starts the process left behind
		ignores bool   // SIGTERM
		code    string
	}{
		{"fork and exit", "fork", false, "exit 0"},
		{"fork and exit, deaf", "fork", true, "exit 0"},
		{"daemon", "daemon", false, "exit 0"},
		{"daemon, deaf", "daemon", true, "exit 0"},
		{"fork and fail", "fork", false, "exit 1"},
		{"daemon of one that fails", "daemon", true, "signal 9"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStage(t)
			cfg := s.config(1)
			if cfg.Grace = patience; c.ignores {
				cfg.Grace = -1
			}
			j := s.start(cfg)
			task := s.next(0, 1, 1)
			task.does(c.command)
			child := s.next(0, 1, 1)
			if c.ignores {
				child.does("ignore 15")
			}
			task.begin(c.code)
			task.gone()
			child.gone()
			if r := j.Wait(); r.Well() != (c.code == "exit 0") {
				t.Errorf("Wait() = %+v after %q", r, c.code)
			}
		})
	}
}

// A task that is started again finds nothing of its former life, not even what had left its group,
// while the others keep what is theirs.
func TestRestartSweepsTheFormerLife(t *testing.T) {
	s := newStage(t)
	cfg := s.config(2)
	cfg.Restart, cfg.MaxRestarts = RestartFailed, 1
	j := s.start(cfg)
	tasks := s.all(2, 1)
	daemons := make([]*actor, 2)
	for i, a := range tasks {
		a.does("daemon")
		daemons[i] = s.next(i, 1, 1)
	}
	tasks[0].begin("exit 1")
	tasks[0] = s.next(0, 1, 2)
	daemons[0].gone()
	daemons[1].does("print I am still here") // to nobody
	exit(tasks, 0)
	daemons[1].gone()
	if r := j.Wait(); !r.Well() {
		t.Errorf("Wait() = %+v; want success", r)
	}
}

// Processes that tasks left behind are reaped as they end, in the group of the task or out of it, while
// the task goes on.
func TestOrphansAreReaped(t *testing.T) {
	s := newStage(t)
	cfg := s.config(1)
	cfg.Reap = true
	j := s.start(cfg)
	task := s.next(0, 1, 1)
	for range 20 {
		task.does("orphans")
	}
	again := time.NewTicker(reapEvery)
	defer again.Stop()
	deadline := time.After(patience)
	for len(zombies(t)) > 0 {
		select {
		case <-again.C:
		case <-deadline:
			t.Fatalf("processes %v have ended and are not reaped", zombies(t))
		}
	}
	task.begin("exit 7")
	if r := j.Wait(); r.ExitCode() != 7 {
		t.Errorf("Wait() = %+v; want exit code 7", r)
	}
}

// zombies lists our children that have ended.
func zombies(t *testing.T) []int {
	t.Helper()
	pids, ok := children()
	if !ok {
		t.Skip("this kernel does not list children")
	}
	return slices.DeleteFunc(pids, func(pid int) bool {
		s, ok := readStat(pid)
		return !ok || s.state != 'Z'
	})
}

// What a task wrote is read to its end however long that takes; an open pipe is held only where it is
// empty.
func TestPipeIsReadToItsEnd(t *testing.T) {
	for _, held := range []bool{false, true} {
		ours, theirs, err := newPipes()
		if err != nil {
			t.Fatal(err)
		}
		defer closeAll(ours[:])
		defer closeAll(theirs[:])
		text := strings.Repeat("0123456789abcde\n", 1<<10) // all of it fits into the pipe
		if _, err := theirs[0].WriteString(text); err != nil {
			t.Fatal(err)
		}
		if !held {
			theirs[0].Close()
		}
		f := newFeed(noDisplay{})
		o := newOutput(0, f)
		if err := o.openLog(t.TempDir(), 1, 1); err != nil {
			t.Fatal(err)
		}
		name := o.mu.log.Name()
		ours[0].SetReadDeadline(time.Unix(1, 0)) // long past, and much to be read
		if ended := o.copy(Stdout, ours[0]); ended == held {
			t.Errorf("held %v: copy() = %v", held, ended)
		}
		o.close()
		f.close(nil)
		if log, err := os.ReadFile(name); err != nil || string(log) != text {
			t.Errorf("held %v: the log has %d bytes, %v; want %d", held, len(log), err, len(text))
		}
	}
}

// Whatever kills the launcher, no process outlives it.
func TestLauncherKilled(t *testing.T) {
	s := newStage(t)
	cmd := exec.Command(itself[0])
	cmd.Env = append(os.Environ(), mode+"=launcher", socket+"="+s.path)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	tasks := s.all(2, 1)
	var all []*actor
	for i, a := range tasks {
		a.does("ignore 15")
		for _, how := range []string{"fork", "daemon"} {
			a.does(how)
			all = append(all, s.next(i, 1, 1))
		}
	}
	secret := tasks[0].tell("env " + secure.EnvSecretFile)
	if _, err := secure.Read(secret); err != nil {
		t.Error(err)
	}
	syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	if err := cmd.Wait(); err == nil {
		t.Error("the launcher ended well; want signal: killed")
	}
	for _, a := range append(all, tasks...) {
		a.gone()
	}
	if _, err := os.Stat(secret); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the secret outlives the launcher: %v", err)
	}
}

// A guard that is killed is missed, and the job goes on.
func TestGuardKilled(t *testing.T) {
	s := newStage(t)
	j := s.start(s.config(1))
	task := s.next(0, 1, 1)
	syscall.Kill(j.here.kernel.(*local).guard.pid(), syscall.SIGKILL)
	s.shown("the guard of this job was killed")
	task.begin("exit 0")
	if r := j.Wait(); !r.Well() {
		t.Errorf("Wait() = %+v; want success", r)
	}
}

// A guard ends when its launcher says that all is done, and kills nothing.
func TestHearOut(t *testing.T) {
	for _, c := range []struct {
		said string
		done bool
		left []int
		file string
	}{
		{"", false, nil, ""},
		{"+ 12\n+ 13\n- 12\n", false, []int{13}, ""},
		{"+ 12\n- 12\ndone\n", true, nil, ""},
		{"+ 12\ndone\n+ 14\n", true, nil, ""},
		{"f \"/tmp/a\"\nf \"/tmp/b\\nc\"\n+ 13\nd \"/tmp/a\"\n", false, []int{13}, "/tmp/b\nc"},
		{"f /tmp/a\nf\nf \"\nd\nf 12\n", false, nil, ""},
		{"f \"/tmp/a\"\ndone\n", true, nil, ""},
		{"+ 1\n+ -5\n+ 0\n+ x\n+\nnonsense\n+ 14", false, []int{14}, ""},
	} {
		left, done := hearOut(strings.NewReader(c.said))
		groups, files := sortedKeys(left.groups), strings.Join(sortedKeys(left.files), " ")
		if done != c.done || !slices.Equal(groups, c.left) || files != c.file {
			t.Errorf("hearOut(%q) = %v, %q, %v; want %v, %q, %v", c.said, groups, files, done, c.left, c.file, c.done)
		}
	}
}

func TestGuardByHand(t *testing.T) {
	t.Setenv(guardRun, "")
	if err := Guard(); err == nil {
		t.Error("Guard() without a launcher = nil; want an error")
	}
}

func TestMarkIsWholeVariables(t *testing.T) {
	environ := []byte("A=1\x00SERRY_RUN=abc\x00SERRY_TASK=12\x00")
	for _, c := range []struct {
		mark mark
		want bool
	}{
		{mark{"SERRY_RUN=abc"}, true},
		{mark{"A=1"}, true},
		{mark{"SERRY_RUN=abc", "SERRY_TASK=12"}, true},
		{mark{"SERRY_RUN=abc", "SERRY_TASK=1"}, false},
		{mark{"SERRY_RUN=ab"}, false},
		{mark{"RUN=abc"}, false},
	} {
		if got := c.mark.in(environ); got != c.want {
			t.Errorf("%q in the environment = %v; want %v", c.mark, got, c.want)
		}
	}
}

// Every byte of a task is in its log; a line of 10 MB is shown in pieces that are all there.
func TestLongLinesAndLogs(t *testing.T) {
	s := newStage(t)
	cfg := s.config(1)
	cfg.LogDir = filepath.Join(t.TempDir(), "logs")
	j := s.start(cfg)
	task := s.next(0, 1, 1)
	const n = 10 << 20
	task.does("long 10485760")
	task.does("print the end")
	task.begin("exit 0")
	j.Wait()
	log, err := os.ReadFile(filepath.Join(cfg.LogDir, "attempt-1", "rank-0.log"))
	if err != nil {
		t.Fatal(err)
	}
	if want := strings.Repeat("x", n) + "\nthe end\n"; string(log) != want {
		t.Errorf("the log has %d bytes; want the line and the end, %d", len(log), len(want))
	}
	shown, longest := 0, 0
	for _, line := range s.mu.lines {
		if text, ok := strings.CutPrefix(line, "0 1 "); ok {
			shown, longest = shown+len(text), max(longest, len(text))
		}
	}
	if shown != n+len("the end") || longest > lineBytes+readBytes {
		t.Errorf("%d bytes shown, at most %d in a line; want %d, at most %d", shown, longest, n, lineBytes+readBytes)
	}
}

// A full disk under the log is said once, and does not touch the job.
func TestFullDisk(t *testing.T) {
	s := newStage(t)
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs, err := newPipes()
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll(ours[:])
	defer closeAll(theirs[:])
	f := newFeed(s)
	defer f.close(nil)
	o := newOutput(0, f)
	o.mu.log, o.mu.logged = full, true
	if _, err := theirs[0].WriteString("one\ntwo\n"); err != nil {
		t.Fatal(err)
	}
	theirs[0].Close()
	if ended := o.copy(Stdout, ours[0]); !ended {
		t.Error("copy() = false; want the end of the stream")
	}
	s.shown("the log of rank 0 ends here: ", "no space left on device")
	s.shown("0 1 one")
	s.shown("0 1 two")
	if err := o.close(); err != nil {
		t.Errorf("close() = %v after the log was given up; want nil", err)
	}
}

// What cannot be started is said at once, or counts as a failure of the task.
func TestCannotStart(t *testing.T) {
	t.Run("no such command", func(t *testing.T) {
		if _, err := Start(Config{Command: []string{"no-such-command-anywhere"}, Tasks: 1}); err == nil {
			t.Error("Start() = nil; want an error")
		}
	})
	t.Run("log directory is a file", func(t *testing.T) {
		s := newStage(t)
		cfg := s.config(2)
		cfg.LogDir = filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(cfg.LogDir, nil, 0o666); err != nil {
			t.Fatal(err)
		}
		r := s.start(cfg).Wait()
		if r.First == nil || !strings.Contains(r.First.String(), "not a directory") || r.ExitCode() != 1 {
			t.Errorf("First = %v; want that the log is not in a directory", r.First)
		}
	})
	t.Run("not a program", func(t *testing.T) {
		s := newStage(t)
		cfg := s.config(1)
		path := filepath.Join(t.TempDir(), "empty")
		if err := os.WriteFile(path, []byte("\x7fELF"), 0o777); err != nil {
			t.Fatal(err)
		}
		cfg.Command = []string{path}
		if r := s.start(cfg).Wait(); r.First == nil || r.ExitCode() != codeNotExecutable {
			t.Errorf("First = %v, exit code %d; want that it cannot be started, %d", r.First, r.ExitCode(), codeNotExecutable)
		}
	})
	t.Run("no interpreter", func(t *testing.T) {
		s := newStage(t)
		cfg := s.config(1)
		path := filepath.Join(t.TempDir(), "script")
		if err := os.WriteFile(path, []byte("#!/no/such/interpreter\n"), 0o777); err != nil {
			t.Fatal(err)
		}
		cfg.Command = []string{path}
		if r := s.start(cfg).Wait(); r.First == nil || r.ExitCode() != codeNotFound {
			t.Errorf("First = %v, exit code %d; want that it is not there, %d", r.First, r.ExitCode(), codeNotFound)
		}
	})
	t.Run("no directory", func(t *testing.T) {
		s := newStage(t)
		cfg := s.config(1)
		cfg.Dir = filepath.Join(t.TempDir(), "nowhere")
		if r := s.start(cfg).Wait(); r.First == nil || r.ExitCode() != 1 {
			t.Errorf("First = %v, exit code %d; want that there is no such directory, 1", r.First, r.ExitCode())
		}
	})
}
