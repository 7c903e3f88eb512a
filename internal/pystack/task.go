package pystack

import (
	"bytes"
	"errors"
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
	name      string
	state     State
	processor int // that it is on, was on last, or waits for; -1: not known
}

// Room for files of a thread in /proc/PID/task/TID.
const (
	runsSize   = 128
	statusSize = 8 << 10 // on hosts with many processors
)

// readTask asks the kernel for a thread.
func readTask(pid, tid int) (task, error) {
	var room [statSize]byte
	text, err := readKernelFile(taskFile(pid, tid, "stat"), room[:])
	if err != nil {
		return task{}, err
	}
	return parseTask(text)
}

// processorField is where /proc/PID/task/TID/stat has the processor, counted after the name.
const processorField = 36

// parseTask reads /proc/PID/task/TID/stat: number (name) state ... processor ...
func parseTask(text []byte) (task, error) {
	from, to := bytes.IndexByte(text, '('), bytes.LastIndexByte(text, ')')
	if from < 0 || to < from || to+2 >= len(text) {
		return task{}, errors.New("the kernel does not tell the state of a thread")
	}
	t := task{name: string(text[from+1 : to]), state: states[text[to+2]], processor: -1}
	if t.state == "" {
		return task{}, fmt.Errorf("a thread in the unknown state %q", text[to+2])
	}
	if fields := bytes.Fields(text[to+2:]); len(fields) > processorField {
		if n, err := strconv.Atoi(string(fields[processorField])); err == nil {
			t.processor = n
		}
	}
	return t, nil
}

// runs is the file in which the kernel counts how often a thread was given a processor. A thread that is asleep, and has the same count
// later, has not run in between.
type runs struct {
	counted uint64 // the last time
	room    []byte // for the file; nil: it is not open
	fd      int
}

// count counts. One read is of one moment. Kernels that keep no statistics of their scheduler tell it among many other things.
func (r *runs) count(pid, tid int) (err error) {
	if r.room != nil {
		r.counted, err = r.read()
		return err
	}
	for _, file := range []struct {
		name string
		size int
	}{{"schedstat", runsSize}, {"status", statusSize}} {
		r.fd, err = unix.Open(taskFile(pid, tid, file.name), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			continue // unix.ENOENT is fs.ErrNotExist
		}
		r.room = make([]byte, file.size)
		if r.counted, err = r.read(); err == nil {
			return nil
		}
		r.close()
	}
	return err
}

func (r *runs) read() (uint64, error) {
	n, err := unix.Pread(r.fd, r.room, 0)
	if err == unix.ESRCH {
		err = fs.ErrNotExist
	}
	if err != nil {
		return 0, err
	}
	return parseRuns(r.room[:n])
}

func (r *runs) close() {
	if r.room != nil {
		_ = unix.Close(r.fd)
		r.room = nil
	}
}

// parseRuns reads schedstat, three numbers of which the last is the count, or status, where it is the sum of two.
func parseRuns(text []byte) (runs uint64, err error) {
	if fields := bytes.Fields(text); len(fields) == 3 {
		runs, err = strconv.ParseUint(string(fields[2]), 10, 64)
	} else {
		for line := range bytes.Lines(text) {
			key, value, _ := bytes.Cut(line, []byte(":"))
			if bytes.HasSuffix(key, []byte("voluntary_ctxt_switches")) && err == nil {
				var n uint64
				n, err = strconv.ParseUint(string(bytes.TrimSpace(value)), 10, 64)
				runs += n
			}
		}
	}
	if runs == 0 && err == nil {
		err = errors.New("the kernel does not count how often a thread runs")
	}
	return runs, err
}

// taskFile names a file of a thread.
func taskFile(pid, tid int, name string) string {
	return "/proc/" + strconv.Itoa(pid) + "/task/" + strconv.Itoa(tid) + "/" + name
}

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

// waitOf says what a thread sleeps in: a system call, or else a function of the kernel. Empty: it runs, or the kernel
// does not tell.
func waitOf(pid, tid int) string {
	var room [512]byte
	if text, err := readKernelFile(taskFile(pid, tid, "syscall"), room[:]); err == nil {
		word, _, _ := strings.Cut(strings.TrimSpace(string(text)), " ")
		if n, err := strconv.Atoi(word); err == nil && n >= 0 {
			return callName(n)
		}
	}
	text, err := readKernelFile(taskFile(pid, tid, "wchan"), room[:])
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
