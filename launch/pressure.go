package launch

import (
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/serry-dev/serry/diagnose"
)

// pressure is what the kernel says of the host of a process, or of its control group where that is short of more: a container has
// limits of its own. Kernels that do not count it, and control groups of version 1, say nothing.
func (m *local) pressure(pid int) diagnose.Pressure {
	host := readPressure(func(what string) string { return filepath.Join(m.root, "proc/pressure", what) })
	dir := pressureFolder(m.root, strconv.Itoa(pid))
	if dir == "" {
		return host
	}
	group := readPressure(func(what string) string { return filepath.Join(dir, what+".pressure") })
	if group.Worst() <= host.Worst() {
		return host
	}
	group.Group = true
	return group
}

// pressureFolder is the folder of the control group of a process in the tree of version 2, or empty. In a container the path that the
// kernel tells may be one that only the host has; the topmost group is then that of the container.
func pressureFolder(root, process string) string {
	text, _ := os.ReadFile(filepath.Join(root, "proc", process, "cgroup")) // empty: it has ended, or there are no groups
	for line := range strings.Lines(string(text)) {
		name, found := strings.CutPrefix(strings.TrimSpace(line), "0::")
		if !found {
			continue
		}
		for _, top := range []string{"sys/fs/cgroup", "sys/fs/cgroup/unified"} { // the second beside groups of version 1
			for _, dir := range []string{filepath.Join(root, top, filepath.Clean("/"+name)), filepath.Join(root, top)} {
				if _, err := os.Stat(filepath.Join(dir, "memory.pressure")); err == nil {
					return dir
				}
			}
		}
	}
	return ""
}

func readPressure(file func(what string) string) diagnose.Pressure {
	return diagnose.Pressure{Memory: someOf(file("memory")), CPU: someOf(file("cpu")), IO: someOf(file("io"))}
}

// someOf reads how much of the last 10 s some processes have waited, in percent, from a line such as
// "some avg10=83.10 avg60=40.02 avg300=9.00 total=123". 0: the kernel does not say.
func someOf(file string) int {
	text, _ := os.ReadFile(file)
	for line := range strings.Lines(string(text)) {
		rest, some := strings.CutPrefix(line, "some avg10=")
		if !some {
			continue
		}
		number, _, _ := strings.Cut(rest, " ")
		if share, err := strconv.ParseFloat(number, 64); err == nil && share >= 0 && share <= 100 {
			return int(math.Round(share))
		}
	}
	return 0
}
