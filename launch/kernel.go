package launch

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/serry-dev/serry/client"
	"github.com/serry-dev/serry/diagnose"
	"github.com/serry-dev/serry/internal/pystack"
	"github.com/serry-dev/serry/secure"
)

// A kernel is what a crew needs of the operating system of its host. There is one that is real, and the
// tests have another, in virtual time.
type kernel interface {
	// start runs a process in a group of its own.
	start(processSpec) (child, error)

	// sweep ends all processes with a mark, politely first if there is a grace and until hurry is
	// closed, and says how many there were.
	sweep(m mark, grace time.Duration, hurry <-chan struct{}) (n int, err error)

	// orphans says whether there may be processes that have lost their parents and left their group.
	orphans() bool

	// keepSecret writes the secret of an attempt to a file that only this user can read; dropSecret
	// removes it. Should we be killed before that, the guard removes it.
	keepSecret(attempt int, s secure.Secret) (path string, err error)
	dropSecret(path string) error

	// keepShim makes the folder with the program that Python runs at its start (Config.NoShim); dropShim removes it. An empty path:
	// this host has none.
	keepShim() (dir string, err error)
	dropShim(dir string) error

	// keepSteps makes the file to which the process of a life may write its step, for dropSecret to remove; an empty path:
	// there is none.
	keepSteps(lifetime) (path string, err error)

	// probe looks at a process from outside, and lets the watch know which control group it is in.
	probe(pid int, m *memoryWatch) prober

	// pressure says whether the host of a process, or its control group, is short of something. It reads up to seven small files.
	pressure(pid int) diagnose.Pressure

	// stacks reads the stacks of a process, or of the first Python below it. The error says why there are none; they then
	// have what its main thread does, if that is known.
	stacks(pid int) (pystack.Stacks, error)

	// attend answers questions of the service at an address, and stores values there, until stop is called, which may take as
	// long as a network does.
	attend(address string, a client.Attendant, values <-chan storedValue) (stop func())

	// strays lists processes of this run that were started for an attempt before this one, each once. It has one caller at a time.
	strays(attempt int) []stray

	// memory begins to count the processes that the kernel kills because memory ran out, for one that is about to be started.
	memory() *memoryWatch

	// unguarded is closed when no guard would clean up any more, should we be killed; nil: there never
	// was one.
	unguarded() <-chan struct{}

	// close ends what there is beside tasks. No child may be left.
	close()
}

// A child is a process that a kernel has started, with everything in its process group. Its number, which
// is that of the group, stays taken until release, so that no signal can reach another process that has
// come to the same number.
type child interface {
	pid() int
	outputs() [2]pipe         // stdout and stderr
	await() error             // until the process has ended
	cause() (Cause, error)    // how it ended; called after await
	signal(syscall.Signal)    // to the whole group
	ending() bool             // the process is on its way out, or has ended
	emptied() <-chan struct{} // closed when nothing else of the group runs; called once, after await
	release()                 // gives the number back; called last
}

// A pipe is the end of one that a task writes to.
type pipe interface {
	io.ReadCloser
	SetReadDeadline(time.Time) error
}

// A processSpec is what a process is started with.
type processSpec struct {
	path string
	argv []string
	dir  string
	env  []string
}

// A startError says why a command cannot be run, with the exit code that shells have for it.
type startError struct {
	code int
	err  error
}

// Exit codes for commands that cannot be run, as shells have them.
const (
	codeNotExecutable = 126
	codeNotFound      = 127
)

func (e *startError) Error() string { return e.err.Error() }
func (e *startError) Unwrap() error { return e.err }

// StartCode is the exit code that shells have for an error of [Start]: 127 where the command is not
// there, 126 where it cannot be run. Other errors have none.
func StartCode(err error) (code int, ok bool) {
	if e, is := errors.AsType[*startError](err); is {
		return e.code, true
	}
	return 0, false
}

// local is the kernel of the host that we run on. It starts all processes from one thread that lives as long as
// it does: the kernel kills a process when the thread that started it ends, which must not happen
// before we do.
type local struct {
	// Set at the start, then constant.
	run      string
	root     string // where /proc and /sys are
	guard    *guard
	reapAll  bool // reap all children that end, not only those in groups of tasks
	requests chan func()
	closed   chan struct{}
	reaper   *reaper
	names    pystack.Namer
	stray    straySearch

	mu struct {
		sync.Mutex
		first map[int]bool // first processes of groups, until they are reaped
	}
}

// newLocal makes this process the parent of all that its tasks leave behind, and starts the guard.
func newLocal(cfg Config, run string) (*local, error) {
	// Orphans of our tasks become our children, so that we can wait for their end.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("become a subreaper: %w", err)
	}
	g, err := startGuard(cfg.Guard, run)
	if err != nil {
		return nil, err
	}
	m := &local{run: run, root: "/", stray: straySearch{run: run}, guard: g, reapAll: cfg.Reap, requests: make(chan func()), closed: make(chan struct{})}
	m.mu.first = make(map[int]bool)
	go func() {
		defer close(m.closed)
		runtime.LockOSThread() // and never unlock: the thread ends with the goroutine
		for f := range m.requests {
			f()
		}
	}()
	m.reaper = startReaper(m)
	return m, nil
}

func (m *local) close() {
	m.reaper.stop()
	close(m.requests)
	<-m.closed
	m.guard.dismiss()
}

func (m *local) unguarded() <-chan struct{} { return m.guard.gone }

func (m *local) strays(attempt int) []stray { return m.stray.find(attempt) }

func (m *local) memory() *memoryWatch { return newMemoryWatch(m.root) }

func (m *local) sweep(what mark, grace time.Duration, hurry <-chan struct{}) (int, error) {
	return what.sweep(grace, hurry)
}

// keepSecret tells the guard of the file before it is there, so that no kill can leave it behind.
func (m *local) keepSecret(attempt int, s secure.Secret) (path string, err error) {
	path = filepath.Join(os.TempDir(), fmt.Sprintf("serry-%s-%d.secret", m.run, attempt))
	m.guard.keep(path)
	if err := secure.Write(path, s); err != nil {
		m.guard.drop(path)
		return "", err
	}
	return path, nil
}

// keepSteps makes an empty file that only this user can write.
func (m *local) keepSteps(l lifetime) (path string, err error) {
	path = filepath.Join(os.TempDir(), fmt.Sprintf("serry-%s-%d-%d-%d.step", m.run, l.Attempt, l.Task, l.Life))
	m.guard.keep(path)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		m.guard.drop(path)
		return "", err
	}
	return path, f.Close()
}

// keepShim makes a folder that only this user can enter. Python writes what it has compiled beside the program.
func (m *local) keepShim() (dir string, err error) {
	dir = filepath.Join(os.TempDir(), fmt.Sprintf("serry-%s.shim", m.run))
	m.guard.keep(dir)
	if err = os.Mkdir(dir, 0o700); err != nil {
		m.guard.drop(dir) // what is there is not of this run
		return "", err
	}
	if err = pystack.WriteShim(dir); err != nil {
		return "", errors.Join(err, m.dropShim(dir))
	}
	return dir, nil
}

func (m *local) dropShim(dir string) error {
	err := os.RemoveAll(dir)
	m.guard.drop(dir)
	return err
}

func (m *local) dropSecret(path string) error {
	err := os.Remove(path)
	m.guard.drop(path)
	return err
}

// onThread runs f on the thread that starts processes.
func (m *local) onThread(f func()) {
	done := make(chan struct{})
	m.requests <- func() {
		defer close(done)
		f()
	}
	<-done
}

func (m *local) start(b processSpec) (child, error) {
	if b.dir != "" {
		if _, err := os.Stat(b.dir); err != nil {
			return nil, err
		}
	}
	ours, theirs, err := newPipes()
	if err != nil {
		return nil, err
	}
	defer closeAll(theirs[:])
	pid, pidfd, err := m.fork(b, theirs)
	if err != nil {
		closeAll(ours[:])
		return nil, err
	}
	m.guard.watch(pid)
	return &group{machine: m, number: pid, pidfd: pidfd, pipes: ours}, nil
}

// fork starts a process. Its pidfd is returned in the form of a file.
func (m *local) fork(b processSpec, out [2]*os.File) (pid int, pidfd *os.File, err error) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return 0, nil, err
	}
	defer null.Close()
	fd := -1
	attr := &syscall.ProcAttr{
		Dir: b.dir, Env: b.env,
		Files: []uintptr{null.Fd(), out[0].Fd(), out[1].Fd()},
		Sys:   &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL, PidFD: &fd},
	}
	m.onThread(func() {
		if pid, err = syscall.ForkExec(b.path, b.argv, attr); err == nil {
			m.mu.Lock()
			m.mu.first[pid] = true
			m.mu.Unlock()
		}
	})
	if err != nil {
		return 0, nil, cannotStart(b.path, err)
	}
	if fd >= 0 {
		err = unix.SetNonblock(fd, true) // so that waiting costs no thread
	} else {
		err = errors.New("no pidfd: this kernel is too old")
	}
	if err != nil {
		syscall.Kill(-pid, syscall.SIGKILL)
		syscall.Wait4(pid, nil, 0, nil)
		return 0, nil, err
	}
	return pid, os.NewFile(uintptr(fd), "pidfd"), nil
}

// cannotStart says why a command cannot be run.
func cannotStart(path string, err error) error {
	switch {
	case errors.Is(err, syscall.ENOENT):
		return &startError{codeNotFound, fmt.Errorf("start %s: %w", path, err)}
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM), errors.Is(err, syscall.ENOEXEC), errors.Is(err, syscall.EISDIR):
		return &startError{codeNotExecutable, fmt.Errorf("start %s: %w", path, err)}
	}
	return fmt.Errorf("start %s: %w", path, err)
}

// orphans says whether we have children that we did not start. To look for those of one task in the
// environment of every process of the machine takes long, and hardly ever finds one.
func (m *local) orphans() bool {
	pids, ok := children()
	if !ok {
		return true // this kernel does not tell
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.ContainsFunc(pids, func(pid int) bool { return !m.mu.first[pid] && pid != m.guard.pid() })
}

// children lists the children of this process.
func children() (pids []int, ok bool) {
	lists, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil || len(lists) == 0 {
		return nil, false
	}
	for _, list := range lists {
		text, err := os.ReadFile(list)
		if err != nil {
			continue // the thread has ended, and its children have moved to another
		}
		for field := range strings.FieldsSeq(string(text)) {
			if pid, err := strconv.Atoi(field); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids, true
}

// A group is a process of this machine and its group.
type group struct {
	machine *local
	number  int
	pidfd   *os.File
	pipes   [2]*os.File
}

func (g *group) pid() int         { return g.number }
func (g *group) outputs() [2]pipe { return [2]pipe{g.pipes[0], g.pipes[1]} }
func (g *group) await() error     { return awaitPidfd(g.pidfd) }

// awaitPidfd returns when the process has ended, or with an error at the deadline of the file.
func awaitPidfd(f *os.File) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	return raw.Read(func(fd uintptr) bool {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(fds, 0)
		return n > 0 || err != nil && err != unix.EINTR
	})
}

// cause asks how the process ended, and leaves it in the table of processes: it holds the number of its group.
func (g *group) cause() (Cause, error) {
	var info unix.Siginfo
	child := (*struct { // siginfo_t of a child, on machines of 64 bits
		_, _, code, _ int32
		_, _, status  int32
	})(unsafe.Pointer(&info))
	const exited = 1 // CLD_EXITED
	for {
		err := unix.Waitid(unix.P_PID, g.number, &info, unix.WEXITED|unix.WNOWAIT, nil)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return Cause{}, err
		case child.code == exited:
			return Cause{Code: int(child.status)}, nil
		default: // it was killed
			return Cause{Signal: syscall.Signal(child.status)}, nil
		}
	}
}

func (g *group) signal(sig syscall.Signal) { _ = syscall.Kill(-g.number, sig) }

func (g *group) ending() bool {
	s, ok := readStat(g.number)
	return !ok || s.state == 'Z' || s.state == 'X' || s.exiting
}

// emptied is closed when we have no living child in the group. Orphans of the group are our own children,
// because we are a subreaper. The wait is for children that go on after a stop, of which there may be none:
// so it reaps no process, and ends when no child is left that could go on.
func (g *group) emptied() <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			if err := unix.Waitid(unix.P_PGID, g.number, nil, unix.WCONTINUED, nil); err != nil && err != unix.EINTR {
				return
			}
		}
	}()
	return done
}

// release reaps the group. It does so on the thread that starts processes: none of them can get the number
// before it is known to be free.
func (g *group) release() {
	g.pidfd.Close()
	g.machine.guard.forget(g.number)
	g.machine.onThread(func() {
		for {
			if pid, err := syscall.Wait4(-g.number, nil, syscall.WNOHANG, nil); err != syscall.EINTR && pid <= 0 {
				break
			}
		}
		g.machine.mu.Lock()
		delete(g.machine.mu.first, g.number)
		g.machine.mu.Unlock()
	})
}

// newPipes makes the pipes for the output of a process.
func newPipes() (ours, theirs [2]*os.File, err error) {
	for i := range ours {
		if ours[i], theirs[i], err = os.Pipe(); err != nil {
			closeAll(ours[:])
			closeAll(theirs[:])
			return ours, theirs, err
		}
	}
	return ours, theirs, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		if f != nil {
			f.Close()
		}
	}
}
