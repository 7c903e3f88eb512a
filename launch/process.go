package launch

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A nursery starts processes, all from one thread that lives as long as the nursery: the kernel kills
// a process when the thread that started it ends, which must not happen before we do.
type nursery struct {
	requests chan func()
	closed   chan struct{}
}

func newNursery() *nursery {
	n := &nursery{make(chan func()), make(chan struct{})}
	go func() {
		defer close(n.closed)
		runtime.LockOSThread() // and never unlock: the thread ends with the goroutine
		for f := range n.requests {
			f()
		}
	}()
	return n
}

// close ends the nursery. No process of it may be left.
func (n *nursery) close() {
	close(n.requests)
	<-n.closed
}

// A birth is what a process is started with.
type birth struct {
	path   string
	argv   []string
	dir    string
	env    []string
	stdout *os.File
	stderr *os.File
}

// start runs a process in a group of its own. Its pidfd is returned in the form of a file.
func (n *nursery) start(b birth) (pid int, pidfd *os.File, err error) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return 0, nil, err
	}
	defer null.Close()
	fd := -1
	attr := &syscall.ProcAttr{
		Dir: b.dir, Env: b.env,
		Files: []uintptr{null.Fd(), b.stdout.Fd(), b.stderr.Fd()},
		Sys:   &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL, PidFD: &fd},
	}
	done := make(chan struct{})
	n.requests <- func() {
		pid, err = syscall.ForkExec(b.path, b.argv, attr)
		close(done)
	}
	<-done
	if err != nil {
		return 0, nil, fmt.Errorf("start %s: %w", b.path, err)
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

// A process is one life of a task, with everything in its process group.
type process struct {
	// Set at the start, then constant.
	pid   int
	pidfd *os.File
	out   *output
	pipes pipes
	grace time.Duration
	begun time.Time

	readers sync.WaitGroup
	mu      struct {
		sync.Mutex
		gone  bool        // nothing of the group is left: its number may be somebody else's
		timer *time.Timer // kills the group; nil until it is told to end
		told  bool        // to end, while its first process ran
		ours  bool        // we killed it
	}
}

// await returns how the first process of the group ended, as soon as it has. The number of the group
// stays ours until then.
func (p *process) await() (Cause, error) {
	raw, err := p.pidfd.SyscallConn()
	if err == nil {
		err = raw.Read(func(fd uintptr) bool {
			fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			n, err := unix.Poll(fds, 0)
			return n > 0 || err != nil && err != unix.EINTR
		})
	}
	if err != nil {
		return Cause{}, fmt.Errorf("wait for process %d: %w", p.pid, err)
	}
	p.send(syscall.SIGTERM) // to what it leaves behind; it itself holds the number of the group
	var status syscall.WaitStatus
	if _, err := wait4(p.pid, &status); err != nil {
		return Cause{}, fmt.Errorf("wait for process %d: %w", p.pid, err)
	}
	return causeOf(status), nil
}

// wait4 waits for a child, or with a negative number for any child of a group.
func wait4(pid int, status *syscall.WaitStatus) (int, error) {
	for {
		n, err := syscall.Wait4(pid, status, 0, nil)
		if err != syscall.EINTR {
			return n, err
		}
	}
}

// end asks the group to end by a signal, and kills it after the grace.
func (p *process) end(sig syscall.Signal) {
	p.mu.Lock()
	p.mu.told = true
	p.mu.Unlock()
	p.send(sig)
}

// send sends a signal to the whole group, and kills it after the grace. Later calls only send. Who is
// stopped hears no signal, and is woken up.
func (p *process) send(sig syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.signal(sig)
	p.signal(syscall.SIGCONT)
	if p.mu.timer == nil && !p.mu.gone {
		p.mu.timer = time.AfterFunc(p.grace, p.kill)
	}
}

// pass sends a signal that is not meant to end anything.
func (p *process) pass(sig syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.signal(sig)
}

// kill ends the group at once.
func (p *process) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.ours = true
	p.signal(syscall.SIGKILL)
}

// killed says whether we killed the group.
func (p *process) killed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.ours
}

// obeyed says whether a process ended in this way because we told it to.
func (p *process) obeyed(c Cause) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.ours && c.Signal == syscall.SIGKILL || p.mu.told && (c.Signal == syscall.SIGTERM || c.Signal == syscall.SIGINT || c.Signal == syscall.SIGHUP)
}

// ending says whether the first process of the group is on its way out, or has ended.
func (p *process) ending() bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.pid))
	if err != nil {
		return true
	}
	// After the name, in brackets, come the state and six numbers; the seventh has the flags.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	const state, flags, exiting = 0, 6, 0x4
	if len(fields) <= flags {
		return false
	}
	n, err := strconv.ParseUint(fields[flags], 10, 64)
	return fields[state] == "Z" || fields[state] == "X" || err == nil && n&exiting != 0
}

// signal needs mu. An error means that nobody is left.
func (p *process) signal(sig syscall.Signal) {
	if !p.mu.gone {
		_ = syscall.Kill(-p.pid, sig)
	}
}

// lastWait is how long a killed process may take to disappear. One that takes longer is stuck in the
// kernel, and no signal helps.
const lastWait = 10 * time.Second

// sweep returns when nothing of the group is left, and all that was written has been read. Orphans of
// the group are our own children, because we are a subreaper.
func (p *process) sweep() error {
	swept := make(chan struct{})
	go func() {
		defer close(swept)
		for {
			if _, err := wait4(-p.pid, nil); err != nil {
				return
			}
		}
	}()
	var err error
	select {
	case <-swept:
	case <-time.After(p.grace + lastWait):
		err = fmt.Errorf("processes of group %d cannot be killed", p.pid)
	}
	p.mu.Lock()
	if p.mu.timer != nil {
		p.mu.timer.Stop()
	}
	p.signal(syscall.SIGKILL) // those whose parents left the group
	p.mu.gone = true
	p.mu.Unlock()
	p.pidfd.Close()
	return err
}

// drained waits until all that was written has been read, but not for long: a process that left the
// group may hold the pipes.
func (p *process) drained(patience time.Duration) bool {
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.readers.Wait()
	}()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

// closePipes makes the readers end.
func (p *process) closePipes() error {
	err := closeAll(p.pipes.ours[:])
	p.readers.Wait()
	return err
}
