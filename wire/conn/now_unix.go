//go:build unix && !linux

package conn

import "syscall"

// readNow reads what has come, or returns EAGAIN.
func readNow(fd uintptr, p []byte) (int, error) { return syscall.Read(int(fd), p) }

// writeNow writes what there is room for, or returns EAGAIN.
func writeNow(fd uintptr, p []byte) (int, error) { return syscall.Write(int(fd), p) }
