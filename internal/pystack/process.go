package pystack

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Reasons why the stacks of a process cannot be read.
var (
	ErrNotPython  = errors.New("no Python runs in it")
	ErrPermission = errors.New("its memory must not be read")
	ErrGone       = errors.New("it has ended")
)

// Stacks are those of a process at about one moment: each thread was read while it stood still, one after the other.
type Stacks struct {
	PID     int      `json:"pid"`
	Python  string   `json:"python,omitempty"` // its version; empty: it is not Python
	Threads []Thread `json:"threads"`          // the main thread first, then by number
	More    bool     `json:"more,omitempty"`   // there are more threads than the limit
}

// Main is the main thread, or nil if it has ended.
func (s *Stacks) Main() *Thread {
	if len(s.Threads) == 0 || s.Threads[0].ID != s.PID {
		return nil
	}
	return &s.Threads[0]
}

// A Thread is one of a process.
type Thread struct {
	ID        int     `json:"id"`              // as the kernel counts threads
	Name      string  `json:"name"`            // as the kernel has it
	State     State   `json:"state"`           //
	Wait      string  `json:"wait,omitempty"`  // the system call that it sleeps in, or the function of the kernel
	HoldsLock bool    `json:"gil,omitempty"`   // it holds the lock of the interpreter
	Frames    []Frame `json:"frames"`          // the innermost first; none: it runs no Python function
	Deeper    bool    `json:"more,omitempty"`  // there are more frames than the limit
	Unread    string  `json:"error,omitempty"` // why the frames are not known
}

// Doing says what the thread does at its innermost frame: "asleep (futex)".
func (t Thread) Doing() string {
	text := string(t.State)
	if t.Wait != "" && t.State != Running {
		text += " (" + t.Wait + ")"
	}
	if t.HoldsLock && t.State != Running {
		text += ", holds the interpreter lock"
	}
	return text
}

// A Process is one in which a Python runs.
type Process struct {
	pid    int
	start  string // when it was started: another process with its number is another one
	python interpreter
}

// Open finds the Python in a process. What it found holds for as long as the process lives.
func Open(pid int) (*Process, error) {
	p := &Process{pid: pid}
	var err error
	if p.start, err = startTime(pid); err != nil {
		return nil, err
	}
	p.python, err = locatePython(pid)
	return p, err
}

// Read opens a process and reads its stacks once.
func Read(pid int) (*Stacks, error) {
	p, err := Open(pid)
	if err != nil {
		return nil, err
	}
	return p.Read()
}

// Version is that of the Python.
func (p *Process) Version() Version { return p.python.version }

// Read reads the stacks of all Python threads.
func (p *Process) Read() (s *Stacks, err error) {
	var by tracer
	by.run(func() { s, err = p.readBy(&by) })
	return s, err
}

func (p *Process) readBy(by *tracer) (*Stacks, error) {
	r := newReader(newBudget(remote(p.pid)), &p.python.layout)
	states, more, err := p.threadStates(r)
	if err != nil {
		return nil, cmp.Or(p.check(), err)
	}
	holders := p.lockHolders(r, states)
	s := &Stacks{PID: p.pid, Python: p.python.version.String(), More: more, Threads: []Thread{}}
	for i, l := range p.looks(by, r, states) {
		if thread, ok := p.thread(l); ok {
			thread.HoldsLock = slices.Contains(holders, states[i].address)
			s.Threads = append(s.Threads, thread)
		}
	}
	for i, still := range p.lockHolders(r, states) {
		if still != holders[i] { // it goes from thread to thread
			s.unlock()
		}
	}
	slices.SortFunc(s.Threads, p.order)
	return s, p.check() // now, so that all of it was of the process that was opened
}

func (s *Stacks) unlock() {
	for i := range s.Threads {
		s.Threads[i].HoldsLock = false
	}
}

// order puts the main thread first.
func (p *Process) order(a, b Thread) int {
	place := func(t Thread) int {
		if t.ID == p.pid {
			return 0
		}
		return t.ID
	}
	return cmp.Compare(place(a), place(b))
}

// attempts is how often something is read that changes meanwhile.
const attempts = 8

// threadStates lists the threads. The list changes when threads come and go, which are brief moments.
func (p *Process) threadStates(r *reader) (states []threadState, more bool, err error) {
	for range attempts {
		if states, more, err = r.threadStates(p.python.runtime); !errors.Is(err, errTorn) {
			break
		}
	}
	return states, more, err
}

// lockHolders finds which thread state holds the lock of each thread's interpreter.
func (p *Process) lockHolders(r *reader, states []threadState) []uint64 {
	holders := make([]uint64, len(states))
	for i, t := range states {
		if i > 0 && states[i-1].interpreter == t.interpreter {
			holders[i] = holders[i-1]
		} else {
			holders[i] = r.lockHolder(p.python.runtime, t.interpreter)
		}
	}
	return holders
}

// A look is one thread as it was read.
type look struct {
	threadState
	task   task // before its stack was read
	runs   runs // likewise
	frames []Frame
	deeper bool
	err    error
}

// looks reads all threads. Only a thread that does not run while it is read has a stack that can be trusted: of those that
// ran, a third of the stacks that looked right, and looked the same twice, were mixtures of two.
//
// Threads that run are asked to stop as soon as they are seen, and are read first. A thread that has run while it was read, or was held
// in the middle of a call or a return, is read again.
func (p *Process) looks(by *tracer, r *reader, states []threadState) []look {
	all := make([]look, len(states))
	left := make([]*look, len(states))
	for i, t := range states {
		all[i].threadState, left[i] = t, &all[i]
	}
	for attempt := 0; attempt < attempts && len(left) > 0; attempt++ {
		running := make([]*look, 0, len(left))
		for _, l := range left {
			if p.see(l); l.err == nil && l.task.state == Running {
				l.err = by.interrupt(l.native)
				running = append(running, l)
			}
		}
		if len(running) > 0 {
			by.hold(p.pid, running, r.stack)
		}
		for _, l := range left {
			if l.err == nil && l.task.state != Running {
				p.asleep(r, l)
			}
		}
		left = slices.DeleteFunc(left, func(l *look) bool { return !errors.Is(l.err, errRan) && !errors.Is(l.err, errTorn) })
	}
	for i := range all {
		all[i].runs.close()
	}
	return all
}

// thread is what a look has seen; ok is false if the thread has ended or left Python.
func (p *Process) thread(l look) (thread Thread, ok bool) {
	thread = Thread{ID: l.native, Name: l.task.name, State: l.task.state, Frames: []Frame{}}
	switch {
	case errors.Is(l.err, errLeft), errors.Is(l.err, fs.ErrNotExist):
		return thread, false
	case l.err != nil:
		thread.Unread = l.err.Error()
	default:
		thread.Frames, thread.Deeper = append(thread.Frames, l.frames...), l.deeper
	}
	if l.task.state != Running {
		thread.Wait = waitOf(p.pid, l.native)
	}
	return thread, true
}

// errRan says that a thread has run while it was read.
var errRan = errors.New("running, stack not readable")

// stack reads that of a thread.
func (r *reader) stack(l *look) { l.frames, l.deeper, l.err = r.frames(l.threadState) }

// see asks the kernel what a thread does. How often it ran comes first: what it does before it is seen asleep is of no matter.
func (p *Process) see(l *look) {
	if l.err = l.runs.count(p.pid, l.native); l.err == nil {
		l.task, l.err = readTask(p.pid, l.native)
	}
}

// asleep walks the stack of a thread that was seen asleep, or fails with errRan.
func (p *Process) asleep(r *reader, l *look) {
	before := l.runs.counted
	r.stack(l)
	if err := l.runs.count(p.pid, l.native); err != nil {
		l.err = err
	} else if l.runs.counted != before {
		l.err = errRan
	}
}

// check makes sure that the process is the one that was opened.
func (p *Process) check() error {
	if start, err := startTime(p.pid); err != nil || start != p.start {
		return ErrGone
	}
	return nil
}

// startField is where /proc/PID/stat has the start time, counted after the name; the file is shorter than statSize.
const (
	startField = 19
	statSize   = 1 << 10
)

// startTime is when a process was started, in ticks since the machine was.
func startTime(pid int) (string, error) {
	var room [statSize]byte
	stat, err := readKernelFile(taskFile(pid, pid, "stat"), room[:]) // that of the process adds up all its threads
	if err != nil {
		return "", ErrGone
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) <= startField || fields[0] == "Z" {
		return "", ErrGone
	}
	return fields[startField], nil
}

// A remote is the memory of the process with this number.
type remote int

// Read implements [Memory].
func (r remote) Read(address uint64, p []byte) error {
	if len(p) == 0 {
		return nil
	}
	to := []unix.Iovec{{Base: &p[0]}}
	to[0].SetLen(len(p))
	n, err := unix.ProcessVMReadv(int(r), to, []unix.RemoteIovec{{Base: uintptr(address), Len: len(p)}}, 0)
	switch {
	case err == unix.EPERM, err == unix.ENOSYS:
		return ErrPermission
	case err == unix.ESRCH:
		return ErrGone
	case err != nil:
		return torn("no memory at %#x", address)
	case n != len(p):
		return torn("%d of %d bytes at %#x", n, len(p), address)
	}
	return nil
}

// readParts implements [bulkReader].
func (r remote) readParts(parts []part, into []*page) (whole int) {
	to, from := make([]unix.Iovec, len(parts)), make([]unix.RemoteIovec, len(parts))
	for i, p := range parts {
		to[i].Base = &into[i].bytes[p.from]
		to[i].SetLen(p.to - p.from)
		from[i] = unix.RemoteIovec{Base: uintptr(p.at) + uintptr(p.from), Len: p.to - p.from}
	}
	n, _ := unix.ProcessVMReadv(int(r), to, from, 0) // those that are not read now are read one by one, which tells why not
	for _, p := range parts {
		if n -= p.to - p.from; n < 0 {
			break
		}
		whole++
	}
	return whole
}

// What is read of the list of mappings, and how much at once.
const (
	maxMaps    = 64 << 20
	mapsBuffer = 64 << 10
	auxSize    = 1 << 10 // of what the kernel tells a process at its start
)

// locatePython finds the Python in a process: in its executable, in a library that this needs, or else in one of the name that they have.
func locatePython(pid int) (interpreter, error) {
	memory := &pages{memory: newBudget(remote(pid))}
	memory.begin() // the executable and libraries stay where they are
	defer memory.end()
	if p, err := findLinked(memory, executableOf(pid)); err == nil {
		return p, nil
	}
	return findMapped(memory, pid)
}

// findMapped looks for an interpreter in all files that a process has mapped: also in a library that it has loaded itself.
func findMapped(memory Memory, pid int) (interpreter, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return interpreter{}, unreadable(err)
	}
	defer f.Close()
	executable, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)) // empty: names have to do
	refused := error(ErrNotPython)
	lines := bufio.NewScanner(io.LimitReader(f, maxMaps))
	lines.Buffer(make([]byte, mapsBuffer), mapsBuffer)
	for lines.Scan() {
		base, file, ok := firstPage(lines.Bytes())
		if !ok || file != executable && !isPython(file) {
			continue
		}
		p, err := findPython(memory, base)
		if err == nil {
			return p, nil
		}
		if _, known := errors.AsType[*VersionError](err); known || errors.Is(err, ErrPermission) || errors.Is(err, ErrGone) {
			refused = err // a library that is no Python says nothing; this one is
		}
	}
	return interpreter{}, refused
}

// executableOf is where the first page of the executable of a process is, as the kernel told the process; 0: not known. The headers that
// the kernel tells of are on this page.
func executableOf(pid int) uint64 {
	const headers = 3 // AT_PHDR
	var room [auxSize]byte
	aux, _ := readKernelFile(fmt.Sprintf("/proc/%d/auxv", pid), room[:]) // nothing: not known
	for ; len(aux) >= 16; aux = aux[16:] {
		if wordAt(aux, 0) == headers {
			return wordAt(aux, 8) &^ (pageSize - 1)
		}
	}
	return 0
}

// unreadable says why a file of a process cannot be opened.
func unreadable(err error) error {
	switch {
	case errors.Is(err, fs.ErrPermission):
		return ErrPermission
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ESRCH):
		return ErrGone
	}
	return err
}

// firstPage reads a line of /proc/PID/maps; ok: it is where a file is mapped from its beginning.
//
//	7f2e00000000-7f2e00400000 r--p 00000000 fe:00 1234   /usr/lib/libpython3.13.so.1.0
func firstPage(line []byte) (base uint64, file string, ok bool) {
	name := bytes.IndexByte(line, '/')
	if name < 0 || !bytes.Contains(line[:name], []byte("p 00000000 ")) {
		return 0, "", false
	}
	start, _, _ := bytes.Cut(line, []byte("-"))
	base, err := strconv.ParseUint(string(start), 16, 64)
	return base, string(line[name:]), err == nil
}

// isPython says whether a file has the name of a Python: python3.12, libpython3.13.so.1.0.
func isPython(file string) bool {
	name := path.Base(file)
	return strings.HasPrefix(name, "libpython3") || strings.HasPrefix(name, "python")
}
