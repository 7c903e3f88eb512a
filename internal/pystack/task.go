package pystack

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A State is what the kernel says a thread does.
type State string

// The states, in words.
const (
	Running State = "running" // or ready to
	Asleep  State = "asleep"
	Blocked State = "uninterruptible" // it waits for a device, and takes no signal
	Stopped State = "stopped"         // by a signal
	Traced  State = "traced"          // by a debugger
	Ended   State = "ended"
)

// states has the letters of the kernel.
var states = map[byte]State{
	'R': Running, 'S': Asleep, 'D': Blocked, 'I': Asleep, 'T': Stopped, 't': Traced, 'Z': Ended, 'X': Ended,
}

// A task is what the kernel says of a thread.
type task struct {
	name     string
	state    State
	switches uint64 // how often another thread has got its processor
}

// statusSize is enough for /proc/PID/task/TID/status on hosts with many processors.
const statusSize = 8 << 10

// readTask asks the kernel for a thread.
func readTask(pid, tid int) (task, error) {
	w, err := watchTask(pid, tid)
	if err != nil {
		return task{}, err
	}
	defer w.close()
	return w.look()
}

// A taskWatch is the file in which the kernel says what a thread does. To open it costs as much as to read it.
type taskWatch int

func watchTask(pid, tid int) (taskWatch, error) {
	fd, err := unix.Open(fmt.Sprintf("/proc/%d/task/%d/status", pid, tid), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	return taskWatch(fd), err // unix.ENOENT is fs.ErrNotExist
}

// look asks what the thread does now. One read is of one moment.
func (w taskWatch) look() (task, error) {
	var room [statusSize]byte
	n, err := unix.Pread(int(w), room[:], 0)
	if err == unix.ESRCH {
		err = fs.ErrNotExist
	}
	if err != nil {
		return task{}, err
	}
	return parseTask(room[:n])
}

func (w taskWatch) close() { _ = unix.Close(int(w)) }

// readKernelFile reads a small file in one read, so that all of it is of one moment.
func readKernelFile(name string, room []byte) ([]byte, error) {
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	n, err := unix.Read(fd, room)
	if err == unix.ESRCH {
		err = fs.ErrNotExist
	}
	return room[:max(n, 0)], err
}

// parseTask reads a status of a thread.
func parseTask(text []byte) (task, error) {
	var t task
	switched := 0
	for line := range bytes.Lines(text) {
		key, value, _ := bytes.Cut(bytes.TrimSpace(line), []byte(":"))
		value = bytes.TrimSpace(value)
		switch string(key) {
		case "Name":
			t.name = string(value)
		case "State":
			if len(value) > 0 {
				t.state = states[value[0]]
			}
		case "voluntary_ctxt_switches", "nonvoluntary_ctxt_switches":
			n, err := strconv.ParseUint(string(value), 10, 64)
			if err != nil {
				return t, fmt.Errorf("status of a thread: %w", err)
			}
			t.switches += n
			switched++
		}
	}
	if t.state == "" || switched != 2 {
		return t, fmt.Errorf("status of a thread has no state or no switches")
	}
	return t, nil
}

// waitOf says what a thread sleeps in: a system call, or else a function of the kernel. Empty: it runs, or the kernel
// does not tell.
func waitOf(pid, tid int) string {
	var room [512]byte
	dir := fmt.Sprintf("/proc/%d/task/%d/", pid, tid)
	if text, err := readKernelFile(dir+"syscall", room[:]); err == nil {
		word, _, _ := strings.Cut(strings.TrimSpace(string(text)), " ")
		if n, err := strconv.Atoi(word); err == nil && n >= 0 {
			return callName(n)
		}
	}
	text, err := readKernelFile(dir+"wchan", room[:])
	if name := strings.TrimSpace(string(text)); err == nil && name != "0" {
		return name
	}
	return ""
}

func callName(n int) string {
	if name, ok := calls[n]; ok {
		return name
	}
	if name, ok := oldCalls[n]; ok {
		return name
	}
	return fmt.Sprintf("system call %d", n)
}

// Native says what the threads of any process do, without their stacks.
func Native(pid int) (*Stacks, error) {
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return nil, unreadable(err)
	}
	s := &Stacks{PID: pid, Threads: []Thread{}, More: len(entries) > maxThreads}
	for _, e := range entries[:min(len(entries), maxThreads)] {
		tid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		t, err := readTask(pid, tid)
		if err != nil {
			continue // it has ended
		}
		thread := Thread{ID: tid, Name: t.name, State: t.state, Frames: []Frame{}}
		if t.state != Running {
			thread.Wait = waitOf(pid, tid)
		}
		s.Threads = append(s.Threads, thread)
	}
	p := Process{pid: pid}
	slices.SortFunc(s.Threads, p.order)
	return s, nil
}
