package launch

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// A Cause is how a process ended.
type Cause struct {
	Code   int            `json:"code"`             // its exit code, where no signal ended it; with Text that of a shell
	Signal syscall.Signal `json:"signal,omitempty"` // that ended it, or 0
	Memory bool           `json:"memory,omitempty"` // the kernel killed it because memory ran out
	Text   string         `json:"text,omitempty"`   // instead of all that: why it never ran, or was given up
}

// Well says whether the process did what it was meant to do.
func (c Cause) Well() bool { return c == Cause{} }

// String says it in a few words.
func (c Cause) String() string {
	switch {
	case c.Text != "":
		return c.Text
	case c.Memory:
		return fmt.Sprintf("signal %d, killed for memory", c.Signal)
	case c.Signal != 0:
		return fmt.Sprintf("signal %d", c.Signal)
	}
	return fmt.Sprintf("exit code %d", c.Code)
}

// evidence is what the service tells the other tasks, which begins "process exited:" (C-LOST-3).
func (c Cause) evidence() string { return strings.TrimPrefix(c.String(), "exit ") }

// name adds what a signal is called, for people.
func (c Cause) name() string {
	if c.Text != "" || c.Memory || c.Signal == 0 {
		return c.String()
	}
	return fmt.Sprintf("%v (%s)", c, strings.TrimPrefix(unix.SignalName(c.Signal), "SIG"))
}

// signalBase is what a shell adds to the number of the signal that ended a command.
const signalBase = 128

// ExitCode is the exit code by which a launcher passes the cause on.
func (c Cause) ExitCode() int {
	switch {
	case c.Text != "":
		return max(1, c.Code)
	case c.Signal != 0:
		return signalBase + int(c.Signal)
	}
	return c.Code
}

// cutShort is the cause of a task that ended with exit code 0 when its host was told to end.
func cutShort(sig syscall.Signal) Cause {
	return Cause{Text: fmt.Sprintf("exit code 0 when its host was told to end by signal %d", sig), Code: signalBase + int(sig)}
}

// A memoryWatch counts the processes that the kernel has killed because memory ran out.
type memoryWatch struct {
	file string // where the count is, or empty
}

// newMemoryWatch looks for the count of the launcher's control group, which no other program raises, and takes
// that of the whole machine where there is none. root is where /proc and /sys are.
func newMemoryWatch(root string) memoryWatch {
	files := []string{}
	groups, err := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	for line := range bytes.Lines(groups) {
		// Such as "0::/job.slice", or before version 2 "8:memory:/job".
		_, rest, _ := strings.Cut(strings.TrimSpace(string(line)), ":")
		controllers, path, _ := strings.Cut(rest, ":")
		switch {
		case err != nil:
		case controllers == "":
			files = append(files, filepath.Join("sys/fs/cgroup", path, "memory.events"), "sys/fs/cgroup/memory.events")
		case controllers == "memory":
			files = append(files, filepath.Join("sys/fs/cgroup/memory", path, "memory.oom_control"), "sys/fs/cgroup/memory/memory.oom_control")
		}
	}
	for _, file := range append(files, "proc/vmstat") {
		w := memoryWatch{filepath.Join(root, file)}
		if _, ok := w.kills(); ok {
			return w
		}
	}
	return memoryWatch{}
}

// kills reads the count. It is no error that there is none.
func (w memoryWatch) kills() (n int64, ok bool) {
	f, err := os.Open(w.file)
	if err != nil {
		return 0, false
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if number, found := strings.CutPrefix(lines.Text(), "oom_kill "); found {
			n, err = strconv.ParseInt(number, 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}
