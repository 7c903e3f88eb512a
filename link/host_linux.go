package link

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// hostSockets says whether processes of one host can use a socket that has a name and no file. A file would stay
// behind when its process is killed, and needs a folder that both processes see.
const hostSockets = true

// userOf is the user of the process at the other end of a socket of this host, as the kernel knows it.
func userOf(c *net.UnixConn) (uid int, err error) {
	cred, err := credentials(c)
	if err != nil {
		return 0, err
	}
	return int(cred.Uid), nil
}

func credentials(c *net.UnixConn) (cred *unix.Ucred, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	failed := raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	return cred, errors.Join(failed, err)
}

// openProcess returns a pidfd of the process at the other end of a socket, unless it is this process.
func openProcess(c *net.UnixConn) (pidfd int, err error) {
	cred, err := credentials(c)
	if err != nil {
		return 0, err
	}
	if int(cred.Pid) == os.Getpid() {
		return 0, fmt.Errorf("process %d is this one", cred.Pid)
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	failed := raw.Control(func(fd uintptr) { pidfd, err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PEERPIDFD) })
	if err != nil && failed == nil { // a kernel before 6.5. The peer has just shaken hands, so the number is still its own.
		pidfd, err = unix.PidfdOpen(int(cred.Pid), 0)
	}
	return pidfd, errors.Join(failed, err)
}

// exits notices that processes of this host end. An epoll instance has the pidfds of all of them, and the poller of
// the runtime has that instance: one goroutine of a Net waits for all of its peers. The zero value is ready.
type exits struct {
	mu struct {
		sync.Mutex
		poll   *os.File        // the epoll instance, or nil before the first process
		links  map[int32]*Link // by numbers that are not used again: those of files are
		last   int32
		closed bool
	}
}

// add watches the process at the other end of a link until remove.
func (x *exits) add(l *Link, c net.Conn) {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return
	}
	fd, err := openProcess(u)
	if err == nil {
		if err = x.watch(l, fd); err != nil {
			unix.Close(fd)
		}
	}
	if err != nil {
		l.net.log.Debug("process of a peer is not watched", "peer", l.peer.Task, "err", err)
	}
}

func (x *exits) watch(l *Link, pidfd int) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.mu.closed {
		return os.ErrClosed
	}
	if err := x.open(l.net); err != nil {
		return err
	}
	x.mu.last++
	event := unix.EpollEvent{Events: unix.EPOLLIN, Fd: x.mu.last}
	if err := x.control(unix.EPOLL_CTL_ADD, pidfd, &event); err != nil {
		return err
	}
	x.mu.links[x.mu.last] = l
	l.process = process{number: x.mu.last, pidfd: pidfd}
	return nil
}

// open makes the epoll instance and starts the goroutine that waits for it. The lock is held.
func (x *exits) open(n *Net) error {
	if x.mu.poll != nil {
		return nil
	}
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return err
	}
	if err := unix.SetNonblock(fd, true); err != nil { // so that the runtime polls it
		unix.Close(fd)
		return err
	}
	x.mu.poll = os.NewFile(uintptr(fd), "epoll")
	x.mu.links = make(map[int32]*Link)
	poll := x.mu.poll
	n.work.Go(func() { x.wait(n, poll) })
	return nil
}

// control changes what the epoll instance watches. The lock is held.
func (x *exits) control(op, pidfd int, event *unix.EpollEvent) error {
	raw, err := x.mu.poll.SyscallConn()
	if err != nil {
		return err
	}
	failed := raw.Control(func(fd uintptr) { err = unix.EpollCtl(int(fd), op, pidfd, event) })
	return errors.Join(failed, err)
}

// wait tells of every process that ends, until the epoll instance is closed.
func (x *exits) wait(n *Net, poll *os.File) {
	raw, err := poll.SyscallConn()
	if err != nil {
		return
	}
	var events [64]unix.EpollEvent
	for {
		count := 0
		err := raw.Read(func(fd uintptr) bool {
			count, _ = unix.EpollWait(int(fd), events[:], 0)
			return count > 0
		})
		if err != nil {
			return
		}
		for _, e := range events[:count] {
			if l := x.take(e.Fd); l != nil {
				n.exited(l)
			}
		}
	}
}

// take returns the link whose process has ended, and watches that process no more. It returns nil if the link was removed
// meanwhile.
func (x *exits) take(number int32) *Link {
	x.mu.Lock()
	defer x.mu.Unlock()
	l := x.mu.links[number]
	if l != nil {
		delete(x.mu.links, number)
		_ = x.control(unix.EPOLL_CTL_DEL, l.process.pidfd, nil)
	}
	return l
}

// remove ends the watch of a link.
func (x *exits) remove(l *Link) {
	x.mu.Lock()
	defer x.mu.Unlock()
	p := l.process
	if p.number == 0 {
		return
	}
	if x.mu.links[p.number] == l {
		delete(x.mu.links, p.number)
		_ = x.control(unix.EPOLL_CTL_DEL, p.pidfd, nil)
	}
	unix.Close(p.pidfd)
	l.process = process{}
}

// close ends the goroutine.
func (x *exits) close() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.mu.closed = true
	if x.mu.poll != nil {
		x.mu.poll.Close()
	}
}
