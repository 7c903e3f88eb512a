package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// shedImage gives back the pages of the program itself that only its start has touched: packages that
// this process does not use, the embedded etcd above all, initialise themselves in every one. What is
// needed again comes back from the page cache. It is for processes that live long; where the kernel
// does not say enough, nothing happens.
func shedImage() {
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return
	}
	smaps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		return
	}
	for _, m := range imageMappings(smaps, exe) {
		// If it fails the pages stay, as they were.
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, m.start, m.end-m.start, unix.MADV_DONTNEED)
	}
}

// A mapping is a range of addresses.
type mapping struct{ start, end uintptr }

// imageMappings finds the mappings of a file that are the same bytes as in it: not writable, and without
// a page of their own, as those have which a dynamic loader has worked on.
func imageMappings(smaps []byte, file string) []mapping {
	var found []mapping
	var last mapping
	var candidate bool
	lines := bufio.NewScanner(bytes.NewReader(smaps))
	for lines.Scan() {
		line := lines.Text()
		var m mapping
		var perms string
		if n, _ := fmt.Sscanf(line, "%x-%x %4s", &m.start, &m.end, &perms); n == 3 {
			last, candidate = m, !strings.Contains(perms, "w") && strings.HasSuffix(line, " "+file)
		} else if rest, ok := strings.CutPrefix(line, "Anonymous:"); ok && candidate && strings.TrimSpace(rest) == "0 kB" {
			found = append(found, last)
		}
	}
	return found
}
