package launch

import (
	"slices"
	"syscall"
)

// failures are those of one attempt that were not made good, in the order in which they were seen.
// Processes that end together may be seen in either order; failures keep who was still ending when
// another was seen, so that the one that pulled the others along is named first.
type failures struct {
	all   []*Failure
	peers map[int]bool // tasks that were ending when the first failure was seen
}

func (fs *failures) add(f *Failure, also []int) {
	if len(fs.all) == 0 {
		fs.peers = make(map[int]bool)
		for _, task := range also {
			fs.peers[task] = true
		}
	}
	fs.all = append(fs.all, f)
}

// last adds the last lines of a task.
func (fs *failures) last(task int, lines []string) {
	for _, f := range fs.all {
		if f.Task == task && f.Last == nil {
			f.Last = lines
		}
	}
}

// sorted returns the first failure, or nil, and the others.
func (fs *failures) sorted() (first *Failure, later []*Failure) {
	if len(fs.all) == 0 {
		return nil, nil
	}
	at := 0
	for i, f := range fs.all {
		if i > 0 && fs.peers[f.Task] && fs.all[0].Verdict == "" && reaction(f.Cause) < reaction(fs.all[at].Cause) {
			at = i
		}
	}
	return fs.all[at], slices.Delete(slices.Clone(fs.all), at, at+1)
}

// reaction says how likely it is that a process ended in this way because another one did: hardly by
// a signal from outside or a fault, rather by an exit code, most likely by aborting itself.
func reaction(c Cause) int {
	switch {
	case c.Signal == syscall.SIGABRT:
		return 2
	case c.Signal == 0 || c.Signal == syscall.SIGPIPE || c.Signal == syscall.SIGTERM:
		return 1
	}
	return 0
}
