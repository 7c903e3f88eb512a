package launch

import (
	"bytes"
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A mark is what the environment of a process must hold for it to belong to a run: all these
// variables, as "NAME=value".
type mark []string

func (m mark) in(environ []byte) bool {
	for _, v := range m {
		entry := []byte(v + "\x00")
		if !bytes.HasPrefix(environ, entry) && !bytes.Contains(environ, append([]byte{0}, entry...)) {
			return false
		}
	}
	return true
}

// A found process is held by its pidfd, so that no signal of the launcher can reach another one that has come
// to the same number.
type found struct {
	pid  int
	file *os.File
}

// find returns the living processes with the mark, but not us. Those of other users, which we could
// not end anyway, are not seen.
func (m mark) find() ([]found, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var all []found
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		if environ, err := os.ReadFile("/proc/" + e.Name() + "/environ"); err != nil || !m.in(environ) {
			continue // one that has ended has no environment
		}
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			continue // it has ended
		}
		// The number may have changed hands before we held it.
		if environ, err := os.ReadFile("/proc/" + e.Name() + "/environ"); err != nil || !m.in(environ) {
			unix.Close(fd)
			continue
		}
		_ = unix.SetNonblock(fd, true) // so that waiting costs no thread; it cannot fail
		all = append(all, found{pid, os.NewFile(uintptr(fd), "pidfd")})
	}
	return all, nil
}

// sweepRounds bounds how often we look for processes that others have started while we were ending
// them.
const sweepRounds = 100

// sweep ends all processes with the mark, politely first if there is a grace, and says how many there
// were. The grace ends when hurry is closed.
func (m mark) sweep(grace time.Duration, hurry <-chan struct{}) (n int, err error) {
	for range sweepRounds {
		all, err := m.find()
		if err != nil || len(all) == 0 {
			return n, err
		}
		n = max(n, len(all))
		if grace > 0 {
			signalAll(all, unix.SIGTERM)
			awaitAll(all, grace, hurry)
			grace = 0
		}
		signalAll(all, unix.SIGKILL)
		awaitAll(all, lastWait, nil)
		for _, p := range all {
			p.reap()
			p.file.Close()
		}
	}
	return n, nil
}

func signalAll(all []found, sig unix.Signal) {
	for _, p := range all {
		raw, err := p.file.SyscallConn()
		if err == nil {
			_ = raw.Control(func(fd uintptr) { _ = unix.PidfdSendSignal(int(fd), sig, nil, 0) }) // it may have ended
		}
	}
}

// reap asks how a process ended that has become a child of the launcher. By its pidfd, not by its number, which
// may already be that of a task.
func (p found) reap() {
	raw, err := p.file.SyscallConn()
	if err == nil {
		_ = raw.Control(func(fd uintptr) {
			_ = unix.Waitid(unix.P_PIDFD, int(fd), nil, unix.WEXITED|unix.WNOHANG, nil) // it may be no child, or not have ended
		})
	}
}

// awaitAll returns when all have ended, it has taken too long, or hurry is closed.
func awaitAll(all []found, patience time.Duration, hurry <-chan struct{}) {
	wake := func(at time.Time) {
		for _, p := range all {
			_ = p.file.SetReadDeadline(at) // a pidfd has deadlines
		}
	}
	wake(time.Now().Add(patience))
	var watcher sync.WaitGroup
	done := make(chan struct{})
	watcher.Go(func() {
		select {
		case <-hurry:
			wake(time.Now())
		case <-done:
		}
	})
	for _, p := range all {
		_ = awaitPidfd(p.file) // at the deadline it is killed, or given up
	}
	close(done)
	watcher.Wait()
}
