package launch

import (
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/serry-dev/serry/internal/lab/clause"
)

func TestCause(t *testing.T) {
	clause.Cite(t, "C-LOST-3")
	for _, c := range []struct {
		cause                Cause
		text, name, evidence string
		code                 int
	}{
		{Cause{Code: 3}, "exit code 3", "exit code 3", "code 3", 3},
		{Cause{Signal: 9}, "signal 9", "signal 9 (KILL)", "signal 9", 137},
		{Cause{Signal: 9, Memory: true}, "signal 9, killed for memory", "signal 9, killed for memory", "signal 9, killed for memory", 137},
		{Cause{Signal: 9, Count: MemoryCount{Group: "/job"}}, "signal 9", "signal 9 (KILL)", "signal 9; no kernel kill in control group /job", 137},
		{Cause{Code: 137, Memory: true, Count: MemoryCount{Machine: true, Before: 4, After: 5}}, "exit code 137, probably killed for memory",
			"exit code 137, probably killed for memory", "code 137, probably killed for memory; kernel kills on this machine: 4 before, 5 after", 137},
		{Cause{Text: "no such file"}, "no such file", "no such file", "no such file", 1},
	} {
		if c.cause.Well() || c.cause.String() != c.text || c.cause.name() != c.name || c.cause.evidence(false) != c.evidence || c.cause.ExitCode() != c.code {
			t.Errorf("%+v: %q, %q, %q, %d; want %q, %q, %q, %d", c.cause, c.cause, c.cause.name(), c.cause.evidence(false), c.cause.ExitCode(),
				c.text, c.name, c.evidence, c.code)
		}
	}
	if c := (Cause{}); !c.Well() || c.ExitCode() != 0 {
		t.Errorf("%+v is no good end with exit code 0", c)
	}
}

// Of processes that end together the one that another cannot have pulled along is named first.
func TestFirstOfThoseThatEndTogether(t *testing.T) {
	code, abort, killed := Cause{Code: 1}, Cause{Signal: syscall.SIGABRT}, Cause{Signal: syscall.SIGKILL}
	for _, c := range []struct {
		name   string
		causes []Cause // by task, in the order seen
		also   []int   // seen ending with the first
		want   int
	}{
		{"alone", []Cause{code}, nil, 0},
		{"one after the other", []Cause{code, killed}, nil, 0},
		{"together", []Cause{code, killed}, []int{1}, 1},
		{"together, alike", []Cause{code, code}, []int{1}, 0},
		{"together with an abort", []Cause{abort, code, killed}, []int{1}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			var fs failures
			for task, cause := range c.causes {
				fs.add(&Failure{Task: task, Cause: cause}, c.also)
			}
			first, later := fs.sorted()
			if first.Task != c.want || len(later) != len(c.causes)-1 {
				t.Errorf("first is task %d, %d later; want task %d", first.Task, len(later), c.want)
			}
		})
	}
}

// The ends of processes that went down together may be seen in any order: the first failure is the same.
func TestFirstInEveryOrder(t *testing.T) {
	clause.Cite(t, "D-RC-1", "TD-RC-1")
	causes := []Cause{{Signal: syscall.SIGABRT}, {Code: 1}, {Signal: syscall.SIGABRT}, {Signal: syscall.SIGSEGV}}
	permute(len(causes), func(order []int) {
		var fs failures
		for i, task := range order {
			fs.add(&Failure{Task: task, Cause: causes[task]}, order[i+1:]) // the others are on their way out
		}
		first, later := fs.sorted()
		if first.Task != 3 || len(later) != len(causes)-1 {
			t.Errorf("seen in the order %v: first is rank %d, %d later; want rank 3, which crashed, and the others", order, first.Task, len(later))
		}
	})
}

// Faults that may have happened in either order: the lowest rank is named, with the others beside it. One that was seen later, when the first had
// been seen, is a later one, whatever its rank.
func TestTogether(t *testing.T) {
	clause.Cite(t, "D-RC-2", "D-RC-5", "TD-RC-1")
	crash := Cause{Signal: syscall.SIGSEGV}
	permute(3, func(order []int) {
		var fs failures
		for i, task := range order {
			fs.add(&Failure{Task: task, Cause: crash}, order[i+1:])
		}
		if first, _ := fs.sorted(); first.String() != "rank 0: signal 11 (SEGV), together with ranks 1-2" {
			t.Errorf("seen in the order %v: %v; want rank 0, together with the others", order, first)
		}
	})
	var fs failures
	fs.add(&Failure{Task: 2, Cause: crash}, []int{3})
	fs.add(&Failure{Task: 0, Cause: crash}, nil)
	fs.add(&Failure{Task: 3, Cause: Cause{Code: 1}}, nil)
	if first, _ := fs.sorted(); first.String() != "rank 2: signal 11 (SEGV)" {
		t.Errorf("first is %v; want rank 2 alone", first)
	}
}

// Ranks that end with code 0 are a success, whatever the order; each way to end has its exit code.
func TestEndsInEveryOrder(t *testing.T) {
	clause.Cite(t, "D-RC-8", "D-RC-9", "TD-RC-3")
	permute(3, func(order []int) {
		synctest.Test(t, func(t *testing.T) {
			scripts := make([]func(*actorProcess), len(order))
			for i, task := range order {
				scripts[task] = lasting(time.Duration(i+1) * time.Second)
			}
			if r := new(scene).play(t, Config{}, scripts...); !r.Well() || r.First != nil || r.ExitCode() != 0 {
				t.Errorf("ranks that end in the order %v: %+v; want that all is well", order, r)
			}
		})
	})
	for want, r := range map[int]Report{
		0:         {Tasks: 1, Ended: 1},
		1:         {Tasks: 2, Ended: 1},
		3:         {Tasks: 1, First: &Failure{Cause: Cause{Code: 3}}},
		139:       {Tasks: 1, First: &Failure{Cause: Cause{Signal: syscall.SIGSEGV}}},
		130:       {Tasks: 1, Interrupted: syscall.SIGINT},
		CodeStart: {Tasks: 1, Err: errNonsense, Code: CodeStart},
		CodeLost:  {Tasks: 1, Err: errNonsense, Code: CodeLost},
		CodeStuck: {Tasks: 1, First: &Failure{Cause: Cause{Text: "stuck", Code: CodeStuck}}},
	} {
		if got := r.ExitCode(); got != want {
			t.Errorf("ExitCode() of %+v = %d; want %d", r, got, want)
		}
	}
}

// permute calls f with every order of the numbers below n.
func permute(n int, f func(order []int)) {
	var from func(order []int)
	from = func(order []int) {
		if len(order) == n {
			f(slices.Clone(order))
			return
		}
		for i := range n {
			if !slices.Contains(order, i) {
				from(append(order, i))
			}
		}
	}
	from(make([]int, 0, n))
}
