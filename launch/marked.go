package launch

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A mark is what the environment of a process must hold for it to be one of ours: all these
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

// A found process is held by its pidfd, so that no signal of ours can reach another one that has come
// to the same number.
type found struct{ pid, fd int }

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
		all = append(all, found{pid, fd})
	}
	return all, nil
}

// sweepRounds bounds how often we look for processes that others have started while we were ending
// them.
const sweepRounds = 100

// sweep ends all processes with the mark, politely first if there is a grace, and says how many there
// were.
func (m mark) sweep(grace time.Duration) (n int, err error) {
	for range sweepRounds {
		all, err := m.find()
		if err != nil || len(all) == 0 {
			return n, err
		}
		n = max(n, len(all))
		if grace > 0 {
			signalAll(all, unix.SIGTERM)
			awaitAll(all, grace)
			grace = 0
		}
		signalAll(all, unix.SIGKILL)
		awaitAll(all, lastWait)
		for _, p := range all {
			unix.Close(p.fd)
			_, _ = syscall.Wait4(p.pid, nil, syscall.WNOHANG, nil) // if it has become a child of ours
		}
	}
	return n, nil
}

func signalAll(all []found, sig unix.Signal) {
	for _, p := range all {
		_ = unix.PidfdSendSignal(p.fd, sig, nil, 0) // it may have ended
	}
}

// awaitAll returns when all have ended, or it has taken too long.
func awaitAll(all []found, patience time.Duration) {
	deadline := time.Now().Add(patience)
	for _, p := range all {
		fds := []unix.PollFd{{Fd: int32(p.fd), Events: unix.POLLIN}}
		for {
			left := time.Until(deadline)
			if left <= 0 {
				return
			}
			if _, err := unix.Poll(fds, int(left.Milliseconds())+1); err != unix.EINTR {
				break
			}
		}
	}
}
