package diagnose

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/wire"
)

// asleepAt is a stack that ends in a program's own function.
func asleepAt(task string, line int) Stack {
	return Stack{Task: task, Doing: "asleep (futex)", Frames: []Frame{{"step", "train.py", line}, {"<module>", "train.py", 30}}}
}

func TestFoldStacks(t *testing.T) {
	clause.Cite(t, "D-ST-14", "TD-ST-8")
	busy := asleepAt("worker/10", 20)
	busy.Doing = "running"
	stacks := []Stack{
		asleepAt("worker/0", 20), asleepAt("worker/1", 20), asleepAt("worker/2", 20), busy,
		asleepAt("worker/3", 21),
		{Task: "worker/4", Error: "no Python runs in it", Doing: "asleep (wait4)"},
		{Task: "worker/5", Error: "no Python runs in it", Doing: "asleep (wait4)"},
	}
	want := []StackGroup{
		{Tasks: []string{"worker/3"}, Frames: stacks[4].Frames, Doing: []string{"asleep (futex)"}},
		{Tasks: []string{"worker/4", "worker/5"}, Frames: []Frame{}, Error: "no Python runs in it", Doing: []string{"asleep (wait4)"}},
		{Tasks: []string{"worker/0", "worker/1", "worker/2", "worker/10"}, Frames: busy.Frames, Doing: []string{"asleep (futex)", "running"}},
	}
	for range 20 {
		rand.Shuffle(len(stacks), func(i, j int) { stacks[i], stacks[j] = stacks[j], stacks[i] })
		if diff := cmp.Diff(want, FoldStacks(stacks)); diff != "" {
			t.Fatalf("FoldStacks() -want +got:\n%s", diff)
		}
	}
}

func TestFoldStacksOfTenThousandRanks(t *testing.T) {
	clause.Cite(t, "D-ST-14", "TD-ST-8")
	var stacks []Stack
	for i := range 10_000 {
		stacks = append(stacks, asleepAt(fmt.Sprintf("worker/%d", i), 20+i%3))
	}
	stacks = append(stacks, asleepAt("worker/10000", 99))
	groups := FoldStacks(stacks)
	if len(groups) != 4 || len(groups[0].Tasks) != 1 || groups[0].Frames[0].Line != 99 {
		t.Errorf("FoldStacks() = %d groups, the first %+v; want 4, the odd rank first", len(groups), groups[0])
	}
}

func TestLines(t *testing.T) {
	clause.Cite(t, "D-ST-14")
	const jax = "/venv/lib/python3.12/site-packages/jax/_src/"
	deep := []Frame{{"wait", "/usr/lib/python3.12/threading.py", 355}}
	for i := range 30 {
		deep = append(deep, Frame{fmt.Sprint("f", i), "/code/train.py", i + 1})
	}
	for _, c := range []struct {
		name   string
		frames []Frame
		deeper bool
		want   []StackLine
	}{
		{"libraries are one line", []Frame{
			{"_value", jax + "array.py", 641}, {"__float__", jax + "array.py", 300}, {"wrapper", jax + "api.py", 7},
			{"step", "/code/train.py", 21}, {"launch", "/venv/lib/python3.12/site-packages/maxtext/train.py", 5},
			{"_run_code", "<frozen runpy>", 88}, {"_run_module_as_main", "<frozen runpy>", 198},
		}, false, []StackLine{
			{"_value", "array.py:641"}, {"", "2 frames of jax"}, {"step", "train.py:21"}, {"launch", "train.py:5"},
			{"", "2 frames of the standard library"},
		}},
		{"a single frame of a library is shown", []Frame{{"step", "train.py", 1}, {"run", "/usr/lib/python3.11/threading.py", 982}, {"main", "train.py", 9}}, false,
			[]StackLine{{"step", "train.py:1"}, {"run", "threading.py:982"}, {"main", "train.py:9"}}},
		{"long stacks keep both ends", deep, true, append(append([]StackLine{{"wait", "threading.py:355"}},
			AllLines(shorten(deep[1:10]), false)...), StackLine{Place: "20 lines more"}, StackLine{"f29", "train.py:30"}, StackLine{Place: "more frames, further out"})},
		{"no frames", nil, false, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, Lines(c.frames, c.deeper)); diff != "" {
				t.Errorf("Lines() -want +got:\n%s", diff)
			}
		})
	}
}

func TestJudgeSaysWhereRanksAre(t *testing.T) {
	clause.Cite(t, "D-CLI-1")
	status := wire.Status{Size: 4, Counts: map[string]int{wire.StateConnected: 4}}
	for i := range 4 {
		task := wire.TaskStatus{Task: fmt.Sprintf("worker/%d", i), State: wire.StateConnected, LastCall: "GetKeyValue", CallSeconds: 40}
		status.Tasks = append(status.Tasks, task)
	}
	quiet := Judge(Evidence{Status: status})
	if !quiet.WantsStacks() || quiet.At != nil {
		t.Errorf("Judge() = %+v; want it to ask for stacks", quiet)
	}
	evidence := Evidence{Status: status, Stacks: []Stack{
		asleepAt("worker/2", 20), asleepAt("worker/0", 20), asleepAt("worker/3", 8),
		{Task: "worker/1", Error: "no Python runs in it", Doing: "asleep (wait4)"},
	}}
	want := []At{
		{[]string{"worker/1"}, "rank 1 is at an unknown place (no Python runs in it), asleep (wait4)"},
		{[]string{"worker/3"}, "rank 3 is at step (train.py:8) < <module> (train.py:30), asleep (futex)"},
		{[]string{"worker/0", "worker/2"}, "ranks 0,2 are at step (train.py:20) < <module> (train.py:30), asleep (futex)"},
	}
	if diff := cmp.Diff(want, Judge(evidence).At); diff != "" {
		t.Errorf("Judge() -want +got:\n%s", diff)
	}
	for i := range status.Tasks {
		status.Tasks[i].CallSeconds = 1
	}
	if busy := Judge(Evidence{Status: status}); busy.WantsStacks() {
		t.Errorf("Judge() = %+v; want no stacks of ranks that call the service", busy)
	}
}

// shorten leaves the names of files.
func shorten(frames []Frame) []Frame {
	var short []Frame
	for _, f := range frames {
		f.File = "train.py"
		short = append(short, f)
	}
	return short
}
