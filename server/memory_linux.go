package server

import (
	"math"
	"os"
	"runtime/debug"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// memory is how much memory this process may use: the least of what the machine has, its control group allows
// and GOMEMLIMIT says. Default limits are shares of it. A process in a container sees the memory of the whole
// machine and is killed at the limit of its group, so the group counts; what cannot be read does not. The two
// files are those of version 2 and version 1 of control groups; a group without a limit has a word there, or a
// number beyond all memory.
func memory() int64 {
	least := debug.SetMemoryLimit(-1)
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		least = min(least, int64(min(info.Totalram*uint64(info.Unit), math.MaxInt64)))
	}
	for _, file := range []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"} {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // another version of control groups, or none
		}
		if n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && n > 0 {
			least = min(least, n)
		}
	}
	return least
}
