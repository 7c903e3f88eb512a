package conn

import (
	"syscall"
	"unsafe"
)

// Sockets here do not block, so a read or write of one takes microseconds. The usual system calls are
// made for those that may take longer: the scheduler is told before and after, and looks every 20
// microseconds whether the call still runs. On a crowded machine that, and the threads it starts, took
// a fifth of the processor time of a server with 512 clients.

// readNow reads what has come, or returns EAGAIN.
func readNow(fd uintptr, p []byte) (int, error) { return callNow(syscall.SYS_READ, fd, p) }

// writeNow writes what there is room for, or returns EAGAIN.
func writeNow(fd uintptr, p []byte) (int, error) { return callNow(syscall.SYS_WRITE, fd, p) }

func callNow(call, fd uintptr, p []byte) (int, error) {
	n, _, errno := syscall.RawSyscall(call, fd, uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)))
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}
