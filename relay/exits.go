package relay

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/serry-dev/serry"
)

// exits watches processes. The zero value is ready.
type exits struct {
	work sync.WaitGroup // one for each process
	mu   struct {
		sync.Mutex
		files  map[*os.File]struct{} // pidfds
		closed bool
	}
}

// maxWatched bounds the processes that a relay watches.
const maxWatched = 1 << 12

// Watch watches the process that a task runs in, and reports its end as [Relay.Exited] does. It costs a
// goroutine until then. An error means that the process is not watched, most likely because there is
// none of that number.
//
// The parent of a process learns for sure how it ended. Another process, such as this one, learns it if it looks
// before the parent does, or if the kernel remembers; otherwise the service hears that the process exited, and
// not how.
func (r *Relay) Watch(task serry.TaskID, pid int) error {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK) // so that waiting costs no thread
	if err != nil {
		return fmt.Errorf("watch process %d of task %v: %w", pid, task, err)
	}
	file := os.NewFile(uintptr(fd), "pidfd")
	if err := r.exits.add(file); err != nil {
		file.Close()
		return err
	}
	go func() {
		defer r.exits.done(file)
		if cause, ok := awaitExit(file, pid); ok {
			r.Exited(task, cause)
		}
	}()
	return nil
}

func (e *exits) add(f *os.File) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.mu.closed:
		return serry.ErrStopped
	case len(e.mu.files) >= maxWatched:
		return &serry.LimitError{Limit: "processes watched", Max: maxWatched}
	case e.mu.files == nil:
		e.mu.files = make(map[*os.File]struct{})
	}
	e.mu.files[f] = struct{}{}
	e.work.Add(1)
	return nil
}

func (e *exits) done(f *os.File) {
	defer e.work.Done()
	e.mu.Lock()
	delete(e.mu.files, f)
	e.mu.Unlock()
	f.Close()
}

// close ends all watching.
func (e *exits) close() {
	e.mu.Lock()
	e.mu.closed = true
	for f := range e.mu.files {
		f.Close()
	}
	e.mu.Unlock()
	e.work.Wait()
}

// awaitExit returns when the process has ended, or false when the file is closed.
func awaitExit(file *os.File, pid int) (cause string, ok bool) {
	raw, err := file.SyscallConn()
	if err != nil {
		return "", false
	}
	err = raw.Read(func(fd uintptr) bool {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(fds, 0)
		if n <= 0 && (err == nil || errors.Is(err, unix.EINTR)) {
			return false
		}
		cause = exitCause(int(fd), pid)
		return true
	})
	return cause, err == nil
}

// unknownCause is the cause of an end that only the parent of the process has seen.
const unknownCause = "its parent knows how"

// exitCause says how a process has ended: from its entry in /proc, which is there until its parent has waited for
// it, or from what the kernel remembers after that (Linux 6.15 and later).
func exitCause(pidfd, pid int) string {
	if status, ok := zombieStatus(pid); ok {
		return causeOf(status)
	}
	if status, ok := kernelStatus(pidfd); ok {
		return causeOf(status)
	}
	return unknownCause
}

// zombieStatus reads the status of a process that has ended, and that its parent has not waited for, from /proc.
// A reader without permission reads 0 there, which must not be taken for a good end.
func zombieStatus(pid int) (unix.WaitStatus, bool) {
	dir := fmt.Sprintf("/proc/%d", pid)
	stat, err := os.ReadFile(dir + "/stat")
	if err != nil {
		return 0, false
	}
	// After the name, in brackets, the state comes first and the status, as wait gives it, fiftieth.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	const state, status = 0, 49
	if len(fields) <= status || fields[state] != "Z" && fields[state] != "X" {
		return 0, false
	}
	n, err := strconv.ParseUint(fields[status], 10, 32)
	return unix.WaitStatus(n), err == nil && (n != 0 || mayInspect(dir))
}

// mayInspect says whether this process may read the status of another: it is root, or has the same user.
func mayInspect(dir string) bool {
	var st unix.Stat_t
	return os.Geteuid() == 0 || unix.Stat(dir, &st) == nil && int(st.Uid) == os.Geteuid()
}

// kernelStatus asks the kernel for the status of a process that its parent has waited for.
func kernelStatus(pidfd int) (unix.WaitStatus, bool) {
	const (
		getInfo  = 0xc040ff0b // PIDFD_GET_INFO for the first form of the structure, of 64 bytes
		infoExit = 1 << 3     // PIDFD_INFO_EXIT
	)
	info := struct { // struct pidfd_info
		mask, cgroup uint64
		ids          [11]uint32
		status       int32
	}{mask: infoExit}
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(pidfd), getInfo, uintptr(unsafe.Pointer(&info)))
	return unix.WaitStatus(info.status), errno == 0 && info.mask&infoExit != 0
}

// causeOf says in a few words how a process ended, in none if it ended well.
func causeOf(status unix.WaitStatus) string {
	switch {
	case status.Signaled():
		return fmt.Sprintf("signal %d", status.Signal())
	case status.ExitStatus() != 0:
		return fmt.Sprintf("code %d", status.ExitStatus())
	}
	return ""
}
