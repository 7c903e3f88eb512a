package pystack

import "golang.org/x/sys/unix"

// oldCalls are those that newer processors do without.
var oldCalls = map[int]string{
	unix.SYS_EPOLL_WAIT: "epoll_wait", unix.SYS_OPEN: "open", unix.SYS_PAUSE: "pause", unix.SYS_POLL: "poll",
	unix.SYS_SELECT: "select", unix.SYS_STAT: "stat",
}
