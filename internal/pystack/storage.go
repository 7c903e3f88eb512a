package pystack

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// fileCalls are system calls whose first argument is an open file that they may wait for.
var fileCalls = []string{
	"read", "write", "pread64", "pwrite64", "readv", "writev", "preadv", "pwritev", "fsync", "fdatasync", "sync_file_range", "syncfs",
	"ftruncate", "fallocate", "getdents64", "fstat", "copy_file_range", "close",
}

// maxPath bounds what is told of a file.
const maxPath = 512

// FileOf says which file the main thread of a process waits for in a system call, and on which mount it is: "/data/checkpoint.bin on /data
// (nfs4, server:/export)". Empty: for none, or the kernel does not tell. It asks the kernel alone: the storage, which may
// not answer, is left alone.
func FileOf(pid int) string {
	var room [512]byte
	text, err := readKernelFile(fmt.Sprintf("/proc/%d/syscall", pid), room[:])
	if err != nil {
		return ""
	}
	fd, ok := fileArgument(string(text))
	if !ok {
		return ""
	}
	path, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", pid, fd))
	if err != nil || !strings.HasPrefix(path, "/") {
		return "" // a socket or a pipe
	}
	mounts, _ := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid)) // empty: it has ended
	said := path[:min(len(path), maxPath)]
	if on := mountOf(string(mounts), path); on != "" {
		said += " on " + on
	}
	return strings.ToValidUTF8(said, "?")
}

// fileArgument reads /proc/PID/syscall: the number of the call, and its arguments in hexadecimal digits.
func fileArgument(text string) (fd uint64, ok bool) {
	fields := strings.Fields(text)
	if len(fields) < 2 {
		return 0, false
	}
	call, err := strconv.Atoi(fields[0])
	if err != nil || !slices.Contains(fileCalls, callName(call)) {
		return 0, false
	}
	fd, err = strconv.ParseUint(strings.TrimPrefix(fields[1], "0x"), 16, 32)
	return fd, err == nil
}

// mountOf finds the mount of a path in the list of a process: the innermost that holds it, of several at one place the last.
func mountOf(list, path string) string {
	longest, found := 0, ""
	for line := range strings.Lines(list) {
		left, right, ok := strings.Cut(line, " - ")
		before, after := strings.Fields(left), strings.Fields(right)
		const point = 4
		if !ok || len(before) <= point || len(after) < 2 {
			continue
		}
		at := unescaped(before[point])
		if inside := at == "/" || path == at || strings.HasPrefix(path, at+"/"); inside && len(at) >= longest {
			longest, found = len(at), fmt.Sprintf("%s (%s, %s)", at, unescaped(after[0]), unescaped(after[1]))
		}
	}
	return found[:min(len(found), maxPath)]
}

// unescaped undoes what the kernel does to spaces and the like: \040.
func unescaped(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
