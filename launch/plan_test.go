package launch

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// A plan is told a story, one word an event: "2!" task 2 failed, "2." it ended well, "2-" nothing of it
// is left, "end" the job is told to end. What it wants after each is written as "open", "start 0 1",
// "stop", "over" or nothing.
func TestPlan(t *testing.T) {
	for _, c := range []struct {
		name        string
		restart     Restart
		recoverable bool
		story, want string
	}{
		{"all end well", RestartNever, false, "0. 0- 1. 1-", "; ; ; over"},
		{"one fails", RestartNever, false, "0! 1. 0- 1-", "stop; ; ; over"},
		{"the second failure stops nobody again", RestartNever, false, "0! 1! 1- 0-", "stop; ; ; over"},
		{"recoverable: the others go on", RestartNever, true, "0! 0- 1. 1-", "; ; ; over"},
		{"started again when it is gone", RestartFailed, true, "0! 0- 1. 1- 0. 0-", "; start 0; ; ; ; over"},
		{"no restart left", RestartFailed, true, "0! 0- 0! 0- 1! 0- 1-", "; start 0; ; start 0; stop; ; over"},
		{"a new attempt when all are gone", RestartAll, false, "1! 1- 0! 0- 0. 1. 0- 1-", "stop; ; ; open start 0 1; ; ; ; over"},
		{"one that had ended well is started again, too", RestartAll, false, "0. 0- 1! 1-", "; ; stop; open start 0 1"},
		{"told to end", RestartAll, false, "end 0! 1! 0- 1-", "stop; ; ; ; over"},
		{"told to end between two attempts", RestartAll, false, "0! end 0- 1! 1-", "stop; stop; ; ; over"},
		{"told to end before a restart", RestartFailed, true, "0! end 0- 1! 1-", "; stop; ; ; over"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPlan(2, 2, c.restart, c.recoverable)
			p.begin()
			var got []string
			for event := range strings.FieldsSeq(c.story) {
				task := int(event[0] - '0')
				switch {
				case event == "end":
					got = append(got, p.finish().String())
				case event[1] == '-':
					got = append(got, p.gone(task).String())
				default:
					got = append(got, p.died(task, event[1] == '.').String())
				}
			}
			if said := strings.Join(got, "; "); said != c.want {
				t.Errorf("%s: %s; want %s", c.story, said, c.want)
			}
		})
	}
}

func (s step) String() string {
	var words []string
	if s.open {
		words = append(words, "open")
	}
	if len(s.start) > 0 {
		words = append(words, strings.Trim(fmt.Sprint("start ", s.start), "]"))
	}
	if s.stop {
		words = append(words, "stop")
	}
	if s.over {
		words = append(words, "over")
	}
	return strings.ReplaceAll(strings.Join(words, " "), "[", "")
}

// Whatever happens, a plan comes to an end, starts nobody twice at a time, and keeps to its budget.
func TestPlanEnds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tasks := rapid.IntRange(1, 5).Draw(t, "tasks")
		budget := rapid.IntRange(0, 3).Draw(t, "restarts")
		policy := rapid.SampledFrom([]Restart{RestartNever, RestartFailed, RestartAll}).Draw(t, "policy")
		p := newPlan(tasks, budget, policy, rapid.Bool().Draw(t, "recoverable"))
		state := make([]string, tasks) // "", "runs" or "ended"
		starts, over := 0, false
		do := func(s step) {
			if over = s.over; s.open && starts > 0 {
				for i, st := range state {
					if st != "" {
						t.Fatalf("a new attempt while task %d %s", i, st)
					}
				}
			}
			for _, task := range s.start {
				if state[task] != "" {
					t.Fatalf("task %d is started while it %s", task, state[task])
				}
				state[task], starts = "runs", starts+1
			}
		}
		do(p.begin())
		for steps := 0; !over; steps++ {
			if steps > 1000 {
				t.Fatal("no end")
			}
			task := rapid.IntRange(0, tasks-1).Draw(t, "task")
			switch {
			case state[task] == "runs":
				state[task] = "ended"
				do(p.died(task, rapid.Bool().Draw(t, "well")))
			case state[task] == "ended":
				state[task] = ""
				do(p.gone(task))
			}
		}
		if most := tasks + budget*max(1, tasks); starts > most {
			t.Fatalf("%d starts; want at most %d", starts, most)
		}
	})
}
