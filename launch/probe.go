package launch

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/serry-dev/serry/diagnose"
	"github.com/serry-dev/serry/internal/pystack"
)

// A prober looks at the process of a task from outside.
type prober interface {
	// look takes a sample, whose time the caller sets. A deep look costs about a millisecond, another one a tenth of
	// that; it has the stack of the main thread. ok is false if the process has ended.
	look(deep bool) (s diagnose.Sample, ok bool)

	// waits names what the main thread waits for: a collective, diagnose.ResultWait, or nothing. It costs a few milliseconds, and up to a second
	// for the first process that uses a library.
	waits() string

	// program says what runs there; zero: that is not known yet, or no Python.
	program() diagnose.Program
}

// A procProbe looks at a process of this host by /proc and by its memory.
type procProbe struct {
	pid    int
	at     int // the process that is looked at: the first Python below pid, or pid itself
	below  []int
	python *pystack.Process // or nil
	names  *pystack.Namer   // of the host
	memory *memoryWatch     // of the rank
	missed int              // deep looks since a Python was looked for and not found
}

const (
	// The kernel counts processor time in these, on every machine that it runs on.
	tick = 10 * time.Millisecond

	mostBelow   = 64 // processes below a rank that are counted
	searchAgain = 5  // deep looks until a Python is looked for again
)

func (m *local) probe(pid int, w *memoryWatch) prober {
	return &procProbe{pid: pid, at: pid, names: &m.names, memory: w}
}

func (p *procProbe) look(deep bool) (s diagnose.Sample, ok bool) {
	if deep {
		p.below = descendants(p.pid)
		p.find()
	}
	if s.State, s.CPU, ok = readTimes(p.at); !ok {
		if p.at == p.pid {
			return s, false
		}
		p.at, p.python = p.pid, nil // the Python below it has ended
		return p.look(false)
	}
	s.Bytes = readIO(p.at)
	if s.State == "uninterruptible" {
		s.File = pystack.FileOf(p.at)
	}
	for _, pid := range append([]int{p.pid}, p.below...) {
		if pid != p.at {
			_, cpu, _ := readTimes(pid)
			s.CPU, s.Bytes = s.CPU+cpu, s.Bytes+readIO(pid)
		}
	}
	if deep {
		p.memory.look(p.at)
		s.Traced, s.Waits = readStatus(p.at)
		s.Stack = p.stack() // after the waits: a thread that runs is held for it, and that counts as one
	}
	return s, true
}

// find looks for a Python in the process and in those below it. One that has just started has none yet.
func (p *procProbe) find() {
	if p.python != nil || p.missed > 0 && p.missed < searchAgain {
		p.missed++
		return
	}
	p.missed = 1
	for _, pid := range append([]int{p.pid}, p.below...) {
		if python, err := pystack.Open(pid); err == nil {
			p.at, p.python, p.missed = pid, python, 0
			return
		}
	}
}

// stack is where the main thread is; nil: it is not known.
func (p *procProbe) stack() *diagnose.Stack {
	if p.python == nil {
		return nil
	}
	read, err := p.python.Read()
	if err != nil {
		p.python = nil // another program may run there by now
		return nil
	}
	main := read.Main()
	if main == nil || main.Unread != "" {
		return nil
	}
	s := &diagnose.Stack{Deeper: main.Deeper, Doing: main.Doing()}
	for _, f := range main.Frames {
		s.Frames = append(s.Frames, diagnose.Frame(f))
	}
	return s
}

func (p *procProbe) waits() string {
	collective, result := p.names.Wait(p.at)
	if collective == "" && result {
		return diagnose.ResultWait
	}
	return collective
}

// stateNames are the letters of the kernel for what a thread does, in the words of a sample.
var stateNames = map[string]string{
	"R": "running", "S": "asleep", "I": "asleep", "D": "uninterruptible", "T": "stopped", "t": "traced", "Z": "ended", "X": "ended",
}

// Where /proc/PID/stat has what, counted after the name of the process.
const (
	statState  = 0
	statTime   = 11 // in user mode; that in the kernel follows
	statFields = 13
)

// readTimes reads the state of the main thread of a process, and the processor time of all its threads.
func readTimes(pid int) (state string, cpu time.Duration, ok bool) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", 0, false
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) < statFields {
		return "", 0, false
	}
	for _, field := range fields[statTime:statFields] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return "", 0, false
		}
		cpu += time.Duration(n) * tick
	}
	return stateNames[fields[statState]], cpu, true
}

// readIO is how many bytes a process has read and written. Where the kernel does not tell, there are none.
func readIO(pid int) uint64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
	if err != nil {
		return 0
	}
	var sum uint64
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		if n, err := strconv.ParseUint(value, 10, 64); err == nil && (key == "rchar" || key == "wchar") {
			sum += n
		}
	}
	return sum
}

// readStatus says whether a debugger is attached to a process, and how often its main thread has given up the processor to wait.
func readStatus(pid int) (traced bool, waits uint64) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)) // empty: it has ended
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch value = strings.TrimSpace(value); key {
		case "TracerPid":
			traced = value != "0"
		case "voluntary_ctxt_switches":
			waits, _ = strconv.ParseUint(value, 10, 64) // 0: the kernel does not count
		}
	}
	return traced, waits
}

// descendants are the processes below one, as many as are counted, nearest first.
func descendants(pid int) []int {
	found := []int{pid}
	for i := 0; i < len(found) && len(found) <= mostBelow; i++ {
		files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", found[i])) // the pattern is well formed
		for _, name := range files {
			text, _ := os.ReadFile(name) // empty: the thread has ended
			for word := range strings.FieldsSeq(string(text)) {
				if n, err := strconv.Atoi(word); err == nil && !slices.Contains(found, n) && len(found) <= mostBelow {
					found = append(found, n)
				}
			}
		}
	}
	return found[1:]
}
