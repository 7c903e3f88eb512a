package pystack

import "errors"

// First reads the first Python among the processes of a rank, which are given nearest first: a rank may be a script that
// starts Python. Without one the error says why, and the stacks have what the main thread of the first process does.
func First(pids []int) (Stacks, error) {
	if len(pids) == 0 {
		return Stacks{Threads: []Thread{}}, ErrGone
	}
	var first error
	for _, pid := range pids {
		s, err := Read(pid)
		if err == nil {
			return *s, nil
		}
		if first == nil || errors.Is(first, ErrNotPython) && !errors.Is(err, ErrNotPython) {
			first = err
		}
	}
	if s, err := Native(pids[0]); err == nil {
		return *s, first
	}
	return Stacks{PID: pids[0], Threads: []Thread{}}, first
}
