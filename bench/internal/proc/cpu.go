package proc

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// CPUTime is what a process has used of the processors. It is the sum of what
// /proc/PID/task/*/schedstat says of its threads, to the nanosecond, and of those that have ended.
func CPUTime(pid int) (time.Duration, error) {
	const processClock = 2 // in the low three bits: CPUCLOCK_SCHED, of all threads
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|processClock), &ts); err != nil {
		return 0, fmt.Errorf("processor time of process %d: %w", pid, err)
	}
	return time.Duration(ts.Nano()), nil
}

// Memory is what a process holds, and the most it ever held, in bytes.
func Memory(pid int) (resident, peak int64, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0, err
	}
	if resident, err = statusField(string(text), "VmRSS:"); err != nil {
		return 0, 0, err
	}
	peak, err = statusField(string(text), "VmHWM:")
	return resident, peak, err
}

// statusField reads a line of /proc/PID/status that is in kB.
func statusField(text, name string) (int64, error) {
	for line := range strings.Lines(text) {
		rest, ok := strings.CutPrefix(line, name)
		if !ok {
			continue
		}
		kb, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("process status %s %w", name, err)
		}
		return kb << 10, nil
	}
	return 0, fmt.Errorf("process status has no line %s", name)
}

// CPUs names the processors that servers and load may use.
type CPUs struct {
	set  unix.CPUSet
	List []int
}

// String is their numbers, with commas between them.
func (c CPUs) String() string {
	return strings.ReplaceAll(strings.Trim(fmt.Sprint(c.List), "[]"), " ", ",")
}

// FirstCPUs takes the first n of those this process may use, or all if they are fewer.
func FirstCPUs(n int) (CPUs, error) {
	var allowed unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		return CPUs{}, fmt.Errorf("processors: %w", err)
	}
	var c CPUs
	for i := 0; i < len(allowed)*64 && len(c.List) < n; i++ {
		if allowed.IsSet(i) {
			c.set.Set(i)
			c.List = append(c.List, i)
		}
	}
	return c, nil
}

// SplitCPUs takes all processors that this process may use, and gives the last to one side and the others to
// the other. Where there is only one, both sides get it.
func SplitCPUs() (all, most, last CPUs, err error) {
	if all, err = FirstCPUs(len(all.set) * 64); err != nil {
		return all, most, last, err
	}
	if most, err = FirstCPUs(max(1, len(all.List)-1)); err != nil {
		return all, most, last, err
	}
	n := all.List[len(all.List)-1]
	last.set.Set(n)
	last.List = []int{n}
	return all, most, last, nil
}

// PinSelf keeps all threads of this process on the processors. Threads to come inherit it.
func (c CPUs) PinSelf() error { return c.Pin(os.Getpid()) }

// Pin is PinSelf for any process.
func (c CPUs) Pin(pid int) error {
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return err
	}
	for _, t := range tasks {
		tid, err := strconv.Atoi(t.Name())
		if err != nil {
			return err
		}
		if err := unix.SchedSetaffinity(tid, &c.set); err != nil && err != unix.ESRCH { // it has ended
			return fmt.Errorf("pin to processors %v: %w", c.List, err)
		}
	}
	return nil
}

// RaiseFiles lifts the limit on open files of this process and its children as far as it goes, and
// says whether it suffices.
func RaiseFiles(want uint64) error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("open file limit: %w", err)
	}
	limit.Cur = limit.Max
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("open file limit %d: %w", limit.Max, err)
	}
	if limit.Max < want {
		return fmt.Errorf("%d files may be open, %d are needed: raise the limit (ulimit -Hn) or leave out the largest sizes", limit.Max, want)
	}
	return nil
}
