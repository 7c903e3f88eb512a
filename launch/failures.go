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

// sorted returns the first failure, or nil, and the others. Of those that overlap it is the one that another can hardly have pulled along;
// of several such faults the lowest rank, with the others named beside it (D-RC-5).
func (fs *failures) sorted() (first *Failure, later []*Failure) {
	if len(fs.all) == 0 {
		return nil, nil
	}
	at := 0
	for i, f := range fs.all {
		if i > 0 && fs.overlaps(f) && fs.goesBefore(f, fs.all[at]) {
			at = i
		}
	}
	first, later = fs.all[at], slices.Delete(slices.Clone(fs.all), at, at+1)
	if first.Verdict != "" { // how its process then ended is no other failure
		later = slices.DeleteFunc(later, func(f *Failure) bool {
			return f.Task == first.Task && f.Attempt == first.Attempt && f.Life == first.Life
		})
	}
	first.Together = nil
	for _, f := range later {
		if faulty(first) && faulty(f) && fs.overlaps(f) && f.Task != first.Task {
			first.Together = append(first.Together, f.Task)
		}
	}
	slices.Sort(first.Together)
	return first, later
}

// overlaps says whether a failure and the one that was seen first may have happened in either order.
func (fs *failures) overlaps(f *Failure) bool {
	return fs.all[0].Verdict == "" && (f == fs.all[0] || fs.peers[f.Task])
}

// goesBefore says whether f is named first of two that overlap.
func (fs *failures) goesBefore(f, than *Failure) bool {
	if a, b := reaction(f.Cause), reaction(than.Cause); a != b {
		return a < b
	}
	return faulty(f) && faulty(than) && f.Task < than.Task
}

// faulty says whether a fault, or a signal from outside, has ended a process: no other rank has done that.
func faulty(f *Failure) bool { return f.Verdict == "" && f.Cause.Text == "" && reaction(f.Cause) == 0 }

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
