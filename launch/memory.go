package launch

import (
	"fmt"
	"math"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
)

// A memoryWatch finds out whether the kernel has killed a process because memory ran out. The kernel counts such kills for each
// control group. The watch compares the count of the group that the process is in, so a kill of another program is not taken for
// one of this process. A rank may be in another group than its launcher: what starts it, a container for one, may give it a limit
// of its own. Where no group has a count, the watch takes that of the whole machine, which proves less.
type memoryWatch struct {
	root string // where /proc and /sys are

	mu struct {
		sync.Mutex
		group  memoryGroup // the last one that the process was seen in
		before int64       // its count when the process was first seen there
		known  bool        // there is a count
	}
}

// newMemoryWatch begins to count in the group of this process, in which its children start.
func newMemoryWatch(root string) *memoryWatch {
	w := &memoryWatch{root: root}
	w.take(findMemoryGroup(root, "self"))
	return w
}

// look takes note of the group that a process is in now. A process that is about to end has left its group already, and says
// nothing any more.
func (w *memoryWatch) look(pid int) {
	g := findMemoryGroup(w.root, strconv.Itoa(pid))
	if s, ok := readStat(pid); ok && !s.exiting && g.name != "" {
		w.take(g) // it was there when it was asked
	}
}

func (w *memoryWatch) take(g memoryGroup) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if g != w.mu.group || !w.mu.known {
		w.mu.group = g
		w.mu.before, w.mu.known = g.kills()
	}
}

// compare says what the kernel has counted since the process was first seen in its group.
func (w *memoryWatch) compare() MemoryCount {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.mu.known {
		return MemoryCount{}
	}
	g := w.mu.group
	after, _ := g.kills() // 0: the group has been removed meanwhile
	return MemoryCount{Group: g.name, Machine: g.name == "", Before: w.mu.before, After: max(after, w.mu.before), Limit: g.limit(), Peak: g.peak()}
}

// A MemoryCount is what the kernel says of the memory of a process that has ended. The zero count: it says nothing.
type MemoryCount struct {
	Group   string `json:"group,omitempty"`   // the control group of the process
	Machine bool   `json:"machine,omitempty"` // there was none, and the counts are those of the whole machine
	Before  int64  `json:"before,omitempty"`  // kills for memory there, when the process was first seen
	After   int64  `json:"after,omitempty"`   // and when it had ended
	Limit   int64  `json:"limit,omitempty"`   // bytes that the group may use; 0: no limit
	Peak    int64  `json:"peak,omitempty"`    // bytes that it has used at most; 0: not known
}

// killed says whether a process was killed while this was counted.
func (c MemoryCount) killed() bool { return c.After > c.Before }

// words say why a process was killed, where one was.
func (c MemoryCount) words() string {
	switch {
	case c.Machine:
		return "probably killed for memory"
	case c.Limit > 0:
		return fmt.Sprintf("killed because its memory limit of %s was reached", bytesText(c.Limit))
	}
	return "killed for memory"
}

// detail says what was counted, or is empty where nothing was.
func (c MemoryCount) detail() string {
	where := "in control group " + c.Group
	if c.Machine {
		where = "on this machine"
	}
	switch {
	case c == MemoryCount{}:
		return ""
	case !c.killed():
		return "no kernel kill " + where
	}
	text := fmt.Sprintf("kernel kills %s: %d before, %d after", where, c.Before, c.After)
	if c.Peak > 0 {
		text += ", peak " + bytesText(c.Peak)
	}
	return text
}

// check limits what comes from another launcher.
func (c *MemoryCount) check() { c.Group = cut(c.Group) }

// bytesText is a number of bytes as people say it.
func bytesText(n int64) string {
	const units = "KMGTPE"
	value, unit := float64(n), -1
	for value >= 1024 && unit < len(units)-1 {
		value, unit = value/1024, unit+1
	}
	switch {
	case unit < 0:
		return fmt.Sprintf("%d B", n)
	case value == math.Trunc(value) || value >= 100:
		return fmt.Sprintf("%.0f %ciB", value, units[unit])
	}
	return fmt.Sprintf("%.1f %ciB", value, units[unit])
}

// A memoryGroup is a control group that counts memory. The zero group has no count.
type memoryGroup struct {
	name  string // its path, as /proc has it; empty: the whole machine
	top   string // the folder of the topmost group that can be seen
	dir   string // its folder
	files *memoryFiles
}

// memoryFiles are the names of the files of a control group, which differ between the two versions of control groups.
type memoryFiles struct{ kills, limit, peak string }

var (
	memoryFiles1 = &memoryFiles{"memory.oom_control", "memory.limit_in_bytes", "memory.max_usage_in_bytes"}
	memoryFiles2 = &memoryFiles{"memory.events", "memory.max", "memory.peak"}
	machineFiles = &memoryFiles{kills: "vmstat"}
)

// findMemoryGroup finds the group of a process, by its number or "self". In a container the path that the kernel tells may be
// one that only the host has; the topmost group is then that of the container.
func findMemoryGroup(root, process string) memoryGroup {
	text, _ := os.ReadFile(filepath.Join(root, "proc", process, "cgroup")) // empty: there are no groups
	for line := range strings.Lines(string(text)) {
		// Such as "0::/job.slice", or before version 2 "8:memory:/job".
		_, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		controllers, name, _ := strings.Cut(rest, ":")
		g := memoryGroup{name: path.Clean("/" + name)}
		switch controllers {
		case "":
			g.top, g.files = filepath.Join(root, "sys/fs/cgroup"), memoryFiles2
		case "memory":
			g.top, g.files = filepath.Join(root, "sys/fs/cgroup/memory"), memoryFiles1
		default:
			continue
		}
		for _, g.dir = range []string{filepath.Join(g.top, g.name), g.top} {
			if _, ok := g.kills(); ok {
				return g
			}
		}
	}
	return memoryGroup{dir: filepath.Join(root, "proc"), files: machineFiles}
}

// kills reads the count. It is no error that there is none.
func (g memoryGroup) kills() (n int64, ok bool) {
	text, err := os.ReadFile(filepath.Join(g.dir, g.files.kills))
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(text)) {
		if number, found := strings.CutPrefix(strings.TrimSpace(line), "oom_kill "); found {
			n, err = strconv.ParseInt(number, 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}

// noLimit is the least number that stands for no limit: version 1 writes the largest that a page counter can hold.
const noLimit = 1 << 60

// limit is the least limit of the group and of those above it; 0: there is none.
func (g memoryGroup) limit() int64 {
	least := int64(noLimit)
	for dir := g.dir; g.files.limit != ""; dir = filepath.Dir(dir) {
		if n, ok := readNumber(filepath.Join(dir, g.files.limit)); ok {
			least = min(least, n)
		}
		if len(dir) <= len(g.top) {
			break
		}
	}
	if least >= noLimit {
		return 0
	}
	return least
}

func (g memoryGroup) peak() int64 {
	if g.files.peak == "" {
		return 0
	}
	n, _ := readNumber(filepath.Join(g.dir, g.files.peak)) // 0: this kernel does not tell
	return n
}

// readNumber reads a file that holds a number, and returns false for any other.
func readNumber(file string) (n int64, ok bool) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, false
	}
	n, err = strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return n, err == nil
}
