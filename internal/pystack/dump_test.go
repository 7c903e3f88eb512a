package pystack

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/serry-dev/serry/internal/lab/clause"
)

// shimmed are the variables of a process that has the shim, with more folders behind it.
func shimmed(t *testing.T, more ...string) []string {
	t.Helper()
	dir := t.TempDir()
	if err := WriteShim(dir); err != nil {
		t.Fatal(err)
	}
	var env []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "PYTHONPATH=") && !strings.HasPrefix(v, EnvSignal+"=") {
			env = append(env, v)
		}
	}
	return append(env, "PYTHONPATH="+strings.Join(append([]string{dir}, more...), ":"), EnvSignal+"="+strconv.Itoa(DumpSignal))
}

// startWith is start with variables.
func startWith(t *testing.T, env []string, name string, args ...string) *child {
	t.Helper()
	return start(t, "env", append(append([]string{"-i"}, env...), append([]string{name}, args...)...)...)
}

// dumpUntil asks a process for its stacks until its main thread is in a function.
func dumpUntil(t *testing.T, pid int, function string) *Stacks {
	t.Helper()
	for {
		s, err := Dump(t.Context(), pid, DumpSignal)
		if err != nil {
			t.Fatalf("Dump(%d) = %v", pid, err)
		}
		if main := s.Main(); main != nil && slices.ContainsFunc(main.Frames, func(f Frame) bool { return f.Function == function }) {
			return s
		}
	}
}

// Children are armed however they are started; another program is not, and gets no signal.
func TestDump(t *testing.T) {
	clause.Cite(t, "D-ST-8", "D-ST-9", "TD-ST-6")
	eachPython(t, func(t *testing.T, python string) {
		c := startWith(t, shimmed(t), python, filepath.Join("testdata", "armed.py"))
		pids := make(map[string]int)
		for len(pids) < 5 {
			var said struct {
				Kind string
				PID  int
			}
			if err := json.Unmarshal([]byte(c.line(t)), &said); err != nil {
				t.Fatal(err)
			}
			pids[said.Kind] = said.PID
			if said.PID != c.pid() {
				t.Cleanup(func() { syscall.Kill(said.PID, syscall.SIGKILL) })
			}
		}
		s := dumpUntil(t, c.pid(), "parent_waits")
		for s.Main().State != Asleep { // the kernel was asked before the process got there
			s = dumpUntil(t, c.pid(), "parent_waits")
		}
		main := s.Main()
		if last := main.Frames[len(main.Frames)-1]; last.Function != "<module>" || filepath.Base(last.File) != "armed.py" || last.Line == 0 || main.State != Asleep {
			t.Errorf("Main() = %+v; want it asleep below the module", main)
		}
		if !slices.ContainsFunc(s.Threads[1:], func(t Thread) bool {
			return slices.ContainsFunc(t.Frames, func(f Frame) bool { return f.Function == "child_waits" })
		}) {
			t.Errorf("Threads = %+v; want one in child_waits", s.Threads)
		}
		for _, kind := range []string{"fork", "spawn", "forkserver"} {
			dumpUntil(t, pids[kind], "child_waits")
		}
		if _, err := Dump(t.Context(), pids["sleep"], DumpSignal); !errors.Is(err, ErrUnarmed) {
			t.Errorf("Dump() of another program = %v; want ErrUnarmed", err)
		}
		if err := syscall.Kill(pids["sleep"], 0); err != nil {
			t.Errorf("the other program has ended: %v", err)
		}
		if _, err := FirstDump(t.Context(), []int{pids["sleep"], c.pid()}, DumpSignal); err != nil {
			t.Errorf("FirstDump() = %v; want the stacks of the second process", err)
		}
	})
}

// A process that holds the interpreter lock in native code answers, too.
func TestDumpUnderTheLock(t *testing.T) {
	clause.Cite(t, "D-ST-8", "TD-ST-6")
	eachPython(t, func(t *testing.T, python string) {
		c := startWith(t, shimmed(t), python, "-c", "import ctypes\ndef hang():\n  while True: ctypes.PyDLL(None).sleep(1000)\nprint(flush=True)\nhang()")
		c.line(t)
		dumpUntil(t, c.pid(), "hang")
	})
}

// A process that is stopped does not answer; one that ignores the variables, or has closed its files, is not asked.
func TestDumpOfWhatDoesNotAnswer(t *testing.T) {
	clause.Cite(t, "D-ST-9", "D-ST-10", "TD-ST-6")
	eachPython(t, func(t *testing.T, python string) {
		const program = "import os, sys, time\nif len(sys.argv) > 1: os.closerange(3, 1000)\nprint(flush=True)\ntime.sleep(1000)"
		for name, args := range map[string][]string{"it ignores variables": {"-I", "-c", program}, "without site": {"-S", "-c", program}, "its files are closed": {"-c", program, "close"}} {
			c := startWith(t, shimmed(t), python, args...)
			c.line(t)
			if _, err := Dump(t.Context(), c.pid(), DumpSignal); !errors.Is(err, ErrUnarmed) {
				t.Errorf("%s: Dump() = %v; want ErrUnarmed", name, err)
			}
		}
		c := startWith(t, shimmed(t), python, "-c", program)
		c.line(t)
		if err := c.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("enough"))
		if _, err := Dump(ctx, c.pid(), DumpSignal); err == nil || err.Error() != "enough" {
			t.Errorf("Dump() of a stopped process = %v; want the cause of the context", err)
		}
	})
}

// The shim changes nothing of a start: the sitecustomize that it hides runs once and is the module of that name, one that fails is
// reported by Python in its own words, and the path is as it would be.
func TestShimHidesNothing(t *testing.T) {
	clause.Cite(t, "D-ST-10", "TD-ST-6")
	const ask = "import sys; m = sys.modules.get('sitecustomize'); print(sys.path, m and getattr(m, 'mine', None))"
	eachPython(t, func(t *testing.T, python string) {
		run := func(env []string) string {
			cmd := exec.Command(python, "-c", ask)
			cmd.Env = env
			var out bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &out
			if err := cmd.Run(); err != nil {
				t.Fatalf("%v: %s", err, out.String())
			}
			return out.String()
		}
		for name, text := range map[string]string{
			"one that runs":                     "import sys\nmine = 1 + getattr(sys, 'ran', 0)\nsys.ran = mine\nsys.stderr.write('it runs\\n')\n",
			"one that raises":                   "raise RuntimeError('broken')\n",
			"one that imports what is not here": "import no_such_module\n",
			"none":                              "",
		} {
			dir := t.TempDir()
			if text != "" {
				if err := os.WriteFile(filepath.Join(dir, "sitecustomize.py"), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			env := shimmed(t, dir)
			bare := slices.DeleteFunc(slices.Clone(env), func(v string) bool { return strings.HasPrefix(v, "PYTHONPATH=") })
			want, got := run(append(bare, "PYTHONPATH="+dir)), run(env)
			if got != want {
				t.Errorf("%s: with the shim Python says\n%s\nwant\n%s", name, got, want)
			}
			if text != "" && want == run(bare) {
				t.Errorf("%s: it makes no difference", name)
			}
		}
	})
}

// A program that has closed all files, and has opened others, keeps those over a fork.
func TestShimClosesNoFileOfTheProgram(t *testing.T) {
	clause.Cite(t, "D-ST-10", "TD-ST-6")
	const program = "import os\nos.closerange(3, 1000)\nfor i in range(3, 200): os.dup2(1, i)\npid = os.fork()\nif pid == 0:\n  for i in range(3, 200): os.fstat(i)\n  os._exit(0)\n" +
		"raise SystemExit(os.waitpid(pid, 0)[1] != 0)"
	eachPython(t, func(t *testing.T, python string) {
		cmd := exec.Command(python, "-c", program)
		cmd.Env = shimmed(t)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("after a fork = %v, %s; want all files open", err, out)
		}
	})
}

// A program that has taken the signal for itself has it in the processes that it forks, too.
func TestShimLeavesTheSignal(t *testing.T) {
	clause.Cite(t, "D-ST-10", "TD-ST-6")
	const program = "import os, signal\nsignal.signal(44, lambda *_: os._exit(7))\npid = os.fork()\nif pid == 0:\n  os.kill(os.getpid(), 44)\n  while True: pass\nraise SystemExit(os.waitpid(pid, 0)[1] >> 8 != 7)"
	eachPython(t, func(t *testing.T, python string) {
		cmd := exec.CommandContext(t.Context(), "timeout", "20", python, "-c", program)
		cmd.Env = shimmed(t)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("a forked process with a handler of its own = %v, %s; want the handler called", err, out)
		}
	})
}

func FuzzDump(f *testing.F) {
	f.Add([]byte("Thread 0x00007f (most recent call first):\n  File \"a \", line 3 in b.py\", line 10 in wait\n  ...\n\nCurrent thread 0x00007e (most recent call first):\n  File \"x\", line ??? in <module>\n"))
	f.Add([]byte("  File \"\", line  in \n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		threads := parseDump(text)
		if len(threads) > maxThreads {
			t.Errorf("%d threads", len(threads))
		}
		for _, th := range threads {
			if len(th.frames) > maxFrames {
				t.Errorf("%d frames", len(th.frames))
			}
			for _, fr := range th.frames {
				if fr.Line < 0 || len(fr.File) > 3*maxString || strings.ContainsRune(fr.File, '\n') {
					t.Errorf("frame %+v", fr)
				}
			}
		}
	})
}

func TestParseDump(t *testing.T) {
	clause.Cite(t, "D-ST-8", "TD-ST-6")
	got := parseDump([]byte("Thread 0x00007f5e1 (most recent call first):\n  File \"/lib/a \"b\", line 2 in c.py\", line 324 in wait\n  ...\n\nCurrent thread 0x00007f5e2 [main] (most recent call first):\n  <no Python frame>\nExtension modules: numpy\n"))
	if len(got) != 2 || got[0].name != "0x00007f5e1" || got[1].name != "0x00007f5e2 [main]" || !got[0].deeper || len(got[1].frames) != 0 ||
		!slices.Equal(got[0].frames, []Frame{{Function: "wait", File: `/lib/a "b", line 2 in c.py`, Line: 324}}) {
		t.Errorf("parseDump() = %+v", got)
	}
}
