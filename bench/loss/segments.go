package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// segmentName is what the kernel calls a segment of shared memory in maps and among open files. It has no name in a file system.
const segmentName = "memfd:serry segment"

// heldSegments counts the segments that this process maps, or has open, each once.
func heldSegments() (int, error) {
	held := make(map[string]bool) // inodes
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return 0, err
	}
	for lines := bufio.NewScanner(bytes.NewReader(maps)); lines.Scan(); {
		// address, permissions, offset, device, inode, name
		if f := strings.Fields(lines.Text()); len(f) > 5 && strings.Contains(lines.Text(), segmentName) {
			held[f[4]] = true
		}
	}
	files, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		return 0, err
	}
	for _, f := range files { // one may be closed meanwhile
		var st syscall.Stat_t
		if name, err := os.Readlink(f); err == nil && strings.Contains(name, segmentName) && syscall.Stat(f, &st) == nil {
			held[fmt.Sprint(st.Ino)] = true
		}
	}
	return len(held), nil
}

// sharedMemory is how many bytes of memory the processes of the host share, in files without a name or with one.
func sharedMemory() (int64, error) {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		var kib int64
		if _, err := fmt.Sscanf(line, "Shmem: %d kB", &kib); err == nil {
			return kib << 10, nil
		}
	}
	return 0, errors.New("/proc/meminfo has no line Shmem")
}

// mostGrowth is by how much the shared memory of the host may have grown when all jobs have ended. Other programs use some; one leaked
// segment of each of thirty jobs is more.
const mostGrowth = 64 << 20

var errGrown = errors.New("the shared memory of the host has grown")

// showMemory says what became of shared memory. That no survivor holds too many segments was checked after each kill.
func showMemory(w io.Writer, rows []*row, grown int64) error {
	survivors := 0
	for _, r := range rows {
		if r.segments {
			survivors += len(r.failed)
		}
	}
	fmt.Fprintf(w, "\nsegments left at %d survivors of kills: none; shared memory of the host: %+.1f MiB after all jobs\n", survivors, float64(grown)/(1<<20))
	if grown > mostGrowth {
		return errGrown
	}
	return nil
}
