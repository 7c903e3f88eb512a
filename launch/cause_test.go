package launch

import (
	"syscall"
	"testing"

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
		if c.cause.Well() || c.cause.String() != c.text || c.cause.name() != c.name || c.cause.evidence() != c.evidence || c.cause.ExitCode() != c.code {
			t.Errorf("%+v: %q, %q, %q, %d; want %q, %q, %q, %d", c.cause, c.cause, c.cause.name(), c.cause.evidence(), c.cause.ExitCode(),
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
