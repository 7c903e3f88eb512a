package pystack

import (
	"bufio"
	"cmp"
	"debug/elf"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	godiff "github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/serry-dev/serry/internal/lab/clause"
)

// pythons finds interpreters of all known versions on this machine: shared and static builds, by the files that they
// are after all links.
func pythons(t testing.TB) map[string]string {
	t.Helper()
	home, _ := os.UserHomeDir()
	places := []string{filepath.Join(cmp.Or(os.Getenv("PYENV_ROOT"), filepath.Join(home, ".pyenv")), "versions", "*", "bin")}
	places = append(places, filepath.SplitList(os.Getenv("PATH"))...)
	found, seen := make(map[string]string), make(map[string]bool)
	for _, dir := range places {
		for _, minor := range []string{"3.11", "3.12", "3.13"} {
			files, _ := filepath.Glob(filepath.Join(dir, "python"+minor))
			for _, file := range files {
				file, err := filepath.EvalSymlinks(file)
				if err != nil || seen[file] {
					continue
				}
				seen[file] = true
				how, err := build(file)
				if err != nil {
					continue // a script, as pyenv has them
				}
				if version, err := exec.Command(file, "-c", "import platform; print(platform.python_version())").Output(); err == nil {
					found[strings.TrimSpace(string(version))+" "+how] = file
				}
			}
		}
	}
	if len(found) == 0 {
		t.Skip("no Python of a known version on this machine")
	}
	return found
}

// build says whether a Python has its interpreter in a library or in itself.
func build(file string) (string, error) {
	f, err := elf.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if libraries, _ := f.ImportedLibraries(); slices.ContainsFunc(libraries, isPython) {
		return "shared", nil
	}
	return "static", nil
}

// eachPython runs a test with every Python there is.
func eachPython(t *testing.T, f func(t *testing.T, python string)) {
	all := pythons(t)
	for name, file := range all {
		t.Run(name, func(t *testing.T) { f(t, file) })
	}
}

// A child is a program that runs until the test ends.
type child struct {
	*exec.Cmd
	in  io.Writer
	out *bufio.Reader
}

func start(t testing.TB, name string, args ...string) *child {
	t.Helper()
	c := &child{Cmd: exec.Command(name, args...)}
	c.Stderr = os.Stderr
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.in, c.out = in, bufio.NewReader(out)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Process.Kill()
		c.Wait()
	})
	return c
}

func (c *child) pid() int { return c.Process.Pid }

// line reads what the child prints next.
func (c *child) line(t testing.TB) string {
	t.Helper()
	line, err := c.out.ReadString('\n')
	if err != nil {
		t.Fatalf("the child has ended: %v", err)
	}
	return line
}

// ask lets the child of parked.py print its own stacks.
func (c *child) ask(t testing.TB) map[int][]Frame {
	t.Helper()
	fmt.Fprintln(c.in)
	var stacks map[int][]Frame
	if err := json.Unmarshal([]byte(c.line(t)), &stacks); err != nil {
		t.Fatal(err)
	}
	return stacks
}

func TestStacksAreThoseThatPythonHas(t *testing.T) {
	clause.Cite(t, "D-ST-1", "D-ST-3", "TD-ST-1")
	eachPython(t, func(t *testing.T, python string) {
		venv := filepath.Join(t.TempDir(), "venv")
		if out, err := exec.Command(python, "-m", "venv", "--without-pip", venv).CombinedOutput(); err == nil {
			python = filepath.Join(venv, "bin", "python")
		} else {
			t.Logf("no venv, which Debian has in another package: %s", out)
		}
		compareParked(t, start(t, python, filepath.Join("testdata", "parked.py")))
	})
}

// compareParked compares what a child says of its own stacks with what is read of them from outside.
func compareParked(t *testing.T, c *child) {
	t.Helper()
	before := c.ask(t)
	for tries := 0; ; tries++ {
		got := mustRead(t, c.pid())
		after := c.ask(t)
		main := got.Main()
		arrived := len(after) >= 6 && len(after[c.pid()]) == 1 && main != nil && main.State == Asleep
		if diff := godiff.Diff(before, after); diff != "" || !arrived && tries < 10_000 {
			before = after // its threads are on their way to where they sleep
			continue
		}
		read := make(map[int][]Frame)
		for _, thread := range got.Threads {
			if _, asked := before[thread.ID]; asked {
				read[thread.ID] = thread.Frames
			}
			if thread.Unread != "" {
				t.Errorf("thread %d: %s", thread.ID, thread.Unread)
			}
		}
		if diff := godiff.Diff(before, read); diff != "" {
			t.Fatalf("-python +read:\n%s", diff)
		}
		if main == nil || main.State != Asleep || main.Wait != "clock_nanosleep" || main.Name == "" {
			t.Errorf("Main() = %+v; want it asleep in clock_nanosleep", main)
		}
		return
	}
}

func mustRead(t *testing.T, pid int) *Stacks {
	t.Helper()
	s, err := Read(pid)
	if err != nil {
		t.Fatalf("Read(%d) = %v", pid, err)
	}
	return s
}

func TestLinesAreThoseThatPythonHas(t *testing.T) {
	clause.Cite(t, "D-ST-1")
	eachPython(t, func(t *testing.T, python string) {
		out, err := exec.Command(python, filepath.Join("testdata", "lines.py")).Output()
		if err != nil {
			t.Fatal(err)
		}
		instructions := 0
		for line := range strings.Lines(string(out)) {
			var code struct {
				Name, Table string
				First       int
				Lines       []int
			}
			if err := json.Unmarshal([]byte(line), &code); err != nil {
				t.Fatal(err)
			}
			table, _ := hex.DecodeString(code.Table)
			for i, want := range code.Lines {
				instructions++
				if got, err := lineOf(table, code.First, i); err != nil || got != want {
					t.Fatalf("%s: lineOf(%d) = %d, %v; want %d", code.Name, i, got, err, want)
				}
			}
		}
		t.Logf("%d instructions", instructions)
	})
}

// maze is a program of functions that call each other at random, in four threads that never sleep. Each call has
// a line of its own, so that a stack shows whether each function could have called the one above it.
func maze(functions int) (program string, callee map[int]string) {
	var b strings.Builder
	callee = make(map[int]string)
	line := 0
	add := func(text string, args ...any) {
		fmt.Fprintf(&b, text+"\n", args...)
		line++
	}
	add("import random, sys, threading")
	for i := range functions {
		add("def f%d(n):", i)
		add("    if n == 0: return")
		add("    r = random.randrange(%d)", functions)
		for j := range functions {
			add("    if r == %d:", j)
			add("        f%d(n - 1)", j)
			callee[line] = fmt.Sprint("f", j)
		}
	}
	add("def spin():")
	add("    while True:")
	add("        f0(random.randrange(40))")
	callee[line] = "f0"
	add("for _ in range(4):")
	add("    threading.Thread(target=spin, daemon=True).start()")
	add("print(flush=True)")
	add("spin()")
	callee[line] = "spin"
	return b.String(), callee
}

func TestBusyThreadsShowNoFrameThatTheyDoNotHave(t *testing.T) {
	clause.Cite(t, "D-ST-2", "TD-ST-2")
	reads := 1000
	if testing.Short() {
		reads = 100
	}
	program, callee := maze(6)
	file := filepath.Join(t.TempDir(), "maze.py")
	if err := os.WriteFile(file, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	eachPython(t, func(t *testing.T, python string) {
		c := start(t, python, file)
		c.line(t)
		p, err := Open(c.pid())
		if err != nil {
			t.Fatal(err)
		}
		frames, stacks, unread := 0, 0, 0
		for range reads {
			s, err := p.Read()
			if err != nil {
				t.Fatal(err)
			}
			for _, thread := range s.Threads {
				if thread.Unread != "" {
					unread++
					continue
				}
				stacks++
				frames += len(thread.Frames)
				if wrong := wrongFrame(thread.Frames, file, callee); wrong != "" {
					t.Fatalf("%s in %+v", wrong, thread.Frames)
				}
			}
		}
		t.Logf("%d reads: %d stacks of %d frames, %d not readable", reads, stacks, frames, unread)
		if stacks == 0 {
			t.Error("no stack was readable")
		}
	})
}

// TestReadersAtOnce has two readers hold the same busy threads, as a launcher and serry stacks may: no stack is wrong, no thread stays
// held, and the end of the process in the middle is an error like any other.
func TestReadersAtOnce(t *testing.T) {
	clause.Cite(t, "D-ST-2", "D-ST-3")
	program, callee := maze(6)
	file := filepath.Join(t.TempDir(), "maze.py")
	if err := os.WriteFile(file, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	eachPython(t, func(t *testing.T, python string) {
		c := start(t, python, file)
		c.line(t)
		read := func() error {
			s, err := Read(c.pid())
			if err != nil {
				return err
			}
			for _, thread := range s.Threads {
				if wrong := wrongFrame(thread.Frames, file, callee); wrong != "" {
					return fmt.Errorf("%s in %+v", wrong, thread.Frames)
				}
			}
			return nil
		}
		both := func(f func()) {
			var readers sync.WaitGroup
			for range 2 {
				readers.Go(f)
			}
			readers.Wait()
		}
		both(func() {
			for range 200 {
				if err := read(); err != nil {
					t.Error(err)
					return
				}
			}
		})
		for _, thread := range mustRead(t, c.pid()).Threads {
			if state, err := readTask(c.pid(), thread.ID); err != nil || state.state == Traced || state.state == Stopped {
				t.Errorf("thread %d is %s, %v; want it to go on", thread.ID, state.state, err)
			}
		}
		time.AfterFunc(5*time.Millisecond, func() { c.Process.Kill() })
		both(func() {
			var err error
			for err == nil {
				err = read()
			}
			if !errors.Is(err, ErrGone) && !errors.Is(err, ErrNotPython) && !errors.Is(err, errTorn) && !errors.Is(err, errLeft) {
				t.Errorf("Read() while it is killed = %v; want that it has ended", err)
			}
		})
	})
}

// wrongFrame finds a frame that the maze cannot have: one that calls another function than the one above it.
func wrongFrame(frames []Frame, file string, callee map[int]string) string {
	for i, f := range frames {
		inside := f.File == file || strings.HasSuffix(f.File, "random.py") || strings.HasSuffix(f.File, "threading.py")
		switch {
		case !inside:
			return fmt.Sprintf("frame %d is of another file", i)
		case i == 0 || f.File != file || frames[i-1].File != file:
			// The innermost may be anywhere in its function, and functions of other files call what they call.
		case callee[f.Line] != frames[i-1].Function:
			return fmt.Sprintf("frame %d calls %s, not %s", i, callee[f.Line], frames[i-1].Function)
		}
	}
	return ""
}

// TestSleepUnderTheLock reads a thread that sleeps in native code and does not give the interpreter lock back, and makes
// sure that the thread did not notice: it was not switched in once.
func TestSleepUnderTheLock(t *testing.T) {
	clause.Cite(t, "D-ST-1", "D-ST-2", "TD-ST-4")
	eachPython(t, func(t *testing.T, python string) {
		c := start(t, python, "-c", "import ctypes\nprint(flush=True)\nctypes.PyDLL(None).sleep(3600)")
		c.line(t)
		var before task
		for before.state != Asleep || waitOf(c.pid(), c.pid()) != "clock_nanosleep" {
			var err error
			if before, err = readTask(c.pid(), c.pid()); err != nil {
				t.Fatal(err)
			}
		}
		var ran runs
		defer ran.close()
		if err := ran.count(c.pid(), c.pid()); err != nil {
			t.Fatal(err)
		}
		count := ran.counted
		for range 20 {
			main := mustRead(t, c.pid()).Main()
			want := []Frame{{"<module>", "<string>", 3}}
			if diff := godiff.Diff(want, main.Frames); diff != "" || !main.HoldsLock {
				t.Fatalf("Main() = %+v; want it to hold the lock at %v", main, want)
			}
		}
		if err := ran.count(c.pid(), c.pid()); err != nil || ran.counted != count {
			t.Errorf("the thread was given a processor %d times, %v; want %d, as before", ran.counted, err, count)
		}
	})
}

func TestStoppedProcess(t *testing.T) {
	clause.Cite(t, "D-ST-2")
	eachPython(t, func(t *testing.T, python string) {
		c := start(t, python, "-c", "print(flush=True)\nwhile True: pass")
		c.line(t)
		want := []Frame{{"<module>", "<string>", 2}}
		main := mustRead(t, c.pid()).Main()
		for !slices.Equal(main.Frames, want) { // it has not come to its loop yet
			main = mustRead(t, c.pid()).Main()
		}
		c.Process.Signal(syscall.SIGSTOP)
		for main.State != Stopped {
			main = mustRead(t, c.pid()).Main()
		}
		if diff := godiff.Diff(want, main.Frames); diff != "" {
			t.Errorf("Main() = %+v; want %v", main, want)
		}
	})
}

// TestTracedProcess holds a running thread as a debugger would, so that it cannot be stopped once more.
func TestTracedProcess(t *testing.T) {
	clause.Cite(t, "D-ST-2")
	eachPython(t, func(t *testing.T, python string) {
		c := start(t, python, "-c", "print(flush=True)\nwhile True: pass")
		c.line(t)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := unix.PtraceSeize(c.pid()); err != nil {
			t.Skipf("no right to trace: %v", err)
		}
		main := mustRead(t, c.pid()).Main()
		for main.State != Running { // it has not come to its loop yet
			main = mustRead(t, c.pid()).Main()
		}
		if len(main.Frames) != 0 || main.Unread != errRan.Error() {
			t.Errorf("Main() = %+v; want it without frames, because it runs", main)
		}
	})
}

// TestThreadsThatRunTogether reads threads that compute without the lock of the interpreter, more than there may be processors: all are
// held, also those that wait for a processor, and all go on.
func TestThreadsThatRunTogether(t *testing.T) {
	clause.Cite(t, "D-ST-2")
	eachPython(t, func(t *testing.T, python string) {
		c := start(t, python, "-c", `import hashlib, threading
rounds = [0] * 4
def mix(i):
    while True:
        hashlib.pbkdf2_hmac("sha256", b"", b"", 100_000)
        rounds[i] += 1
for i in range(3): threading.Thread(target=mix, args=(i,), daemon=True).start()
threading.Thread(target=mix, args=(3,), daemon=True).start()
print(flush=True)
while True:
    input()
    print(min(rounds), flush=True)`)
		c.line(t)
		mixes := func(t Thread) bool { return len(t.Frames) > 0 && t.Frames[0].Function == "mix" }
		for range 20 {
			s := mustRead(t, c.pid())
			for n := 0; n < 4; s = mustRead(t, c.pid()) { // until all have come there
				n = 0
				for _, thread := range s.Threads {
					if mixes(thread) {
						n++
					}
				}
			}
			for _, thread := range s.Threads {
				if thread.Unread != "" {
					t.Fatalf("thread %d: %s; want its stack", thread.ID, thread.Unread)
				}
			}
		}
		least := func() (n int) {
			io.WriteString(c.in, "\n")
			n, err := strconv.Atoi(strings.TrimSpace(c.line(t)))
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		for before := least(); least() == before; { // a thread that is held for ever would keep this from ending
			mustRead(t, c.pid())
		}
	})
}

// TestSignalsReachThreadsThatAreHeld sends signals to a busy program while it is read.
func TestSignalsReachThreadsThatAreHeld(t *testing.T) {
	clause.Cite(t, "D-ST-2")
	eachPython(t, func(t *testing.T, python string) {
		c := start(t, python, "-c", `import signal
n = 0
def count(*_):
    global n
    n += 1
    print(n, flush=True)
signal.signal(signal.SIGUSR1, count)
print(flush=True)
while True: pass`)
		c.line(t)
		for i := range 50 {
			c.Process.Signal(syscall.SIGUSR1)
			mustRead(t, c.pid())
			if got := strings.TrimSpace(c.line(t)); got != fmt.Sprint(i+1) {
				t.Fatalf("the program has got %s signals; want %d", got, i+1)
			}
		}
	})
}

func TestProcessesWithoutStacks(t *testing.T) {
	clause.Cite(t, "D-ST-1", "D-ST-3")
	sleep := start(t, "sleep", "1000")
	for native := (*Stacks)(nil); native == nil || native.Main() == nil || native.Main().Wait != "clock_nanosleep"; {
		native, _ = Native(sleep.pid())
	}
	if _, err := Read(sleep.pid()); !errors.Is(err, ErrNotPython) {
		t.Errorf("Read(sleep) = %v; want %v", err, ErrNotPython)
	}
	sleep.Process.Kill()
	sleep.Wait()
	if _, err := Read(sleep.pid()); !errors.Is(err, ErrGone) {
		t.Errorf("Read(ended) = %v; want %v", err, ErrGone)
	}
	if _, err := Native(sleep.pid()); !errors.Is(err, ErrGone) {
		t.Errorf("Native(ended) = %v; want %v", err, ErrGone)
	}
	eachPython(t, func(t *testing.T, python string) {
		c := start(t, python, "-c", "print(flush=True); input()")
		c.line(t)
		p, err := Open(c.pid())
		if err != nil {
			t.Fatal(err)
		}
		p.start += "0" // as if another process had got the number
		if _, err := p.Read(); !errors.Is(err, ErrGone) {
			t.Errorf("Read(reused number) = %v; want %v", err, ErrGone)
		}
	})
}

// helperVariable makes the test binary another user's reader.
const helperVariable = "SERRY_PYSTACK_HELPER"

func TestMain(m *testing.M) {
	if python := os.Getenv(helperVariable); python != "" {
		os.Exit(unprivileged(python))
	}
	os.Exit(m.Run())
}

// unprivileged reads a Python of its own, and then its parent, which is another user's.
func unprivileged(python string) int {
	c := exec.Command(python, "-c", "print(flush=True)\nwhile True: pass")
	out, _ := c.StdoutPipe()
	if err := c.Start(); err != nil {
		fmt.Println(err)
		return 1
	}
	defer c.Wait()
	defer c.Process.Kill()
	bufio.NewReader(out).ReadString('\n')
	for {
		s, err := Read(c.Process.Pid)
		if err != nil || s.Main() == nil || s.Main().Unread != "" {
			fmt.Printf("own child: %+v, %v\n", s, err)
			return 1
		}
		if slices.Equal(s.Main().Frames, []Frame{{"<module>", "<string>", 2}}) {
			break
		}
	}
	pid, _ := strconv.Atoi(os.Getenv("SERRY_PYSTACK_FOREIGN"))
	if _, err := Read(pid); !errors.Is(err, ErrPermission) {
		fmt.Printf("the Python of another user: %v; want %v\n", err, ErrPermission)
		return 1
	}
	return 0
}

// The libraries that the dynamic linker lists and the files that are mapped lead to the same interpreter. A process that is none has none.
func TestTwoWaysToAPython(t *testing.T) {
	clause.Cite(t, "D-ST-1")
	eachPython(t, func(t *testing.T, python string) {
		c := start(t, python, "-c", "print(flush=True); input()")
		c.line(t)
		memory := newBudget(remote(c.pid()))
		linked, err := findLinked(memory, executableOf(c.pid()))
		if err != nil {
			t.Errorf("findLinked() = %v", err)
		}
		mapped, err := findMapped(memory, c.pid())
		if err != nil || linked != mapped {
			t.Errorf("findMapped() = %+v, %v; want %+v", mapped, err, linked)
		}
	})
	c := start(t, "cat")
	if p, err := findLinked(newBudget(remote(c.pid())), executableOf(c.pid())); err == nil {
		t.Errorf("findLinked() of cat = %+v", p)
	}
	if _, err := locatePython(c.pid()); !errors.Is(err, ErrNotPython) {
		t.Errorf("locatePython() of cat = %v; want %v", err, ErrNotPython)
	}
}

// TestWithoutRoot reads as a user without rights: its own child, even a busy one, and not the process of another.
func TestWithoutRoot(t *testing.T) {
	clause.Cite(t, "D-ST-3", "TD-ST-1")
	if os.Getuid() != 0 {
		t.Skip("the other tests run without root already")
	}
	dir := t.TempDir()
	binary := filepath.Join(dir, "reader") // the folder of the test binary is closed to others
	if err := errors.Join(os.Chmod(dir, 0o755), os.Chmod(filepath.Dir(dir), 0o755)); err != nil {
		t.Fatal(err)
	}
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(binary, self, 0o755); err != nil {
		t.Fatal(err)
	}
	nobody := &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	eachPython(t, func(t *testing.T, python string) {
		probe := exec.Command(python, "-c", "")
		probe.SysProcAttr, probe.Dir = nobody, "/"
		if err := probe.Run(); err != nil {
			t.Skipf("closed to other users: %v", err)
		}
		foreign := start(t, python, "-c", "print(flush=True); input()")
		foreign.line(t)
		c := exec.Command(binary)
		c.SysProcAttr, c.Dir = nobody, "/"
		c.Env = []string{helperVariable + "=" + python, fmt.Sprintf("SERRY_PYSTACK_FOREIGN=%d", foreign.pid())}
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
}
