package main

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	godiff "github.com/google/go-cmp/cmp"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/internal/pystack"
	"github.com/serry-dev/serry/wire"
)

// knownPython is a Python whose stacks can be read, or empty if this machine has none.
var knownPython = sync.OnceValue(func() string {
	home, _ := os.UserHomeDir()
	files, _ := filepath.Glob(filepath.Join(cmp.Or(os.Getenv("PYENV_ROOT"), filepath.Join(home, ".pyenv")), "versions", "3.1[123].*", "bin", "python3"))
	for _, name := range append(files, "python3", "python3.11", "python3.12", "python3.13") {
		file, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		out, err := exec.Command(file, "-c", "import sys; print((3, 11) <= sys.version_info[:2] <= (3, 13) and sys.executable)").Output()
		if path := strings.TrimSpace(string(out)); err == nil && path != "False" {
			return path
		}
	}
	return ""
})

func TestChooseRanks(t *testing.T) {
	clause.Cite(t, "D-ST-14")
	status := func(tasks ...string) wire.Status {
		var s wire.Status
		for _, name := range tasks {
			job, _, _ := strings.Cut(name, "/")
			if !slices.ContainsFunc(s.Jobs, func(j wire.JobStatus) bool { return j.Name == job }) {
				s.Jobs = append(s.Jobs, wire.JobStatus{Name: job})
			}
			s.Tasks = append(s.Tasks, wire.TaskStatus{Task: name})
		}
		return s
	}
	one := status("worker/0", "worker/1", "worker/2")
	for _, c := range []struct {
		name      string
		s         wire.Status
		here      []string
		args      []string
		want      []string
		elsewhere []string
		err       string
	}{
		{"all", one, []string{"0", "1", "2"}, nil, []string{"worker/0", "worker/1", "worker/2"}, nil, ""},
		{"some are on another host", one, []string{"2"}, nil, []string{"worker/2"}, []string{"worker/0", "worker/1"}, ""},
		{"one of them", one, []string{"0", "1", "2"}, []string{"1"}, []string{"worker/1"}, nil, ""},
		{"by its whole name", one, []string{"0", "1", "2"}, []string{"worker/1"}, []string{"worker/1"}, nil, ""},
		{"no such rank", one, []string{"0"}, []string{"7"}, nil, nil, "no rank 7"},
		{"one that is on another host", one, []string{"0"}, []string{"1"}, nil, []string{"worker/1"}, ""},
		{"several jobs", status("ps/0", "worker/0"), []string{"0"}, nil, nil, []string{"ps/0", "worker/0"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var here []rankHere
			for _, rank := range c.here {
				here = append(here, rankHere{rank: rank, pids: []int{1}})
			}
			chosen, elsewhere, err := choose(c.s, here, c.args)
			var got []string
			for _, r := range chosen {
				got = append(got, r.task)
			}
			if diff := godiff.Diff([][]string{c.want, c.elsewhere}, [][]string{got, elsewhere}); diff != "" {
				t.Errorf("choose() -want +got:\n%s", diff)
			}
			if (err == nil) != (c.err == "") || err != nil && err.Error() != c.err {
				t.Errorf("choose() = %v; want %q", err, c.err)
			}
		})
	}
}

// What launchers and programs of other hosts say is shown as what is read here. Of two answers about a rank the one with
// frames counts, and nonsense is shown as nonsense of that rank.
func TestFarStacks(t *testing.T) {
	clause.Cite(t, "D-ST-12", "D-ST-15")
	task := func(i int) serry.TaskID { return serry.TaskID{Job: "worker", Index: i} }
	g := wire.Gathered{Missing: 3, Silent: []string{"node-b", "node-c"}, Parts: []wire.GatheredPart{
		{Tasks: []serry.TaskID{task(2), task(3)}, Body: []byte(`[{"frames":[{"function":"wait","file":"/a.py","line":7}],"doing":"asleep (futex)"}]`)},
		{Tasks: []serry.TaskID{task(4)}, Body: []byte(`[{"error":"no Python runs in it","doing":"asleep"}]`)},
		{Tasks: []serry.TaskID{task(4)}, Body: []byte(`[{"frames":[{"function":"main.main","file":"/a.go","line":1}],"doing":"select"}]`)},
		{Tasks: []serry.TaskID{task(5)}, Body: []byte("nonsense")},
	}}
	here := []rankReading{{Task: "worker/0"}, {Task: "worker/4", err: pystack.ErrNotPython, Error: "no Python runs in it"}}
	far := farReadings(g, []serry.TaskID{task(2), task(3), task(4), task(5), task(6)})
	all, unknown := joinFar(here, []string{"worker/2", "worker/3", "worker/5", "worker/6"}, far)
	var got []string
	for _, s := range mainStacks(all) {
		text := s.Task + ":"
		for _, f := range s.Frames {
			text += " " + f.Function
		}
		got = append(got, strings.TrimSpace(text+" "+s.Doing+" "+s.Error))
	}
	want := []string{"worker/0:", "worker/2: wait asleep (futex)", "worker/3: wait asleep (futex)", "worker/4: main.main select", "worker/5:  its stack did not arrive"}
	if diff := godiff.Diff(want, got); diff != "" {
		t.Errorf("far stacks -want +got:\n%s", diff)
	}
	if !slices.Equal(unknown, []string{"worker/6"}) || silentText(g) != "; no answer within 2s from node-b, node-c and 1 more" {
		t.Errorf("unknown %v, silent %q", unknown, silentText(g))
	}
}

func TestStacksVerdict(t *testing.T) {
	clause.Cite(t, "D-ST-3")
	read, foreign, noPython := rankReading{}, rankReading{err: pystack.ErrPermission}, rankReading{err: pystack.ErrNotPython}
	for _, c := range []struct {
		name  string
		ranks []rankReading
		want  error
	}{
		{"one was read", []rankReading{noPython, read, foreign}, nil},
		{"rights matter most", []rankReading{noPython, foreign, noPython}, pystack.ErrPermission},
		{"no Python", []rankReading{noPython}, pystack.ErrNotPython},
	} {
		err := (&stacksPage{Ranks: c.ranks}).verdict()
		_, hint := errors.AsType[hinted](err)
		if !errors.Is(err, c.want) || hint != (c.want == pystack.ErrPermission) {
			t.Errorf("%s: verdict() = %v; want %v", c.name, err, c.want)
		}
	}
}

func TestWithDescendants(t *testing.T) {
	clause.Cite(t, "D-ST-3")
	all := []process{{pid: 5, parent: 4}, {pid: 2, parent: 1}, {pid: 4, parent: 2}, {pid: 3, parent: 2}, {pid: 9, parent: 8}}
	if got := withDescendants(all, 2); !slices.Equal(got, []int{2, 4, 3, 5}) {
		t.Errorf("withDescendants() = %v; want [2 4 3 5]", got)
	}
	for pid := range 500 {
		all = append(all, process{pid: 1000 + pid, parent: 2})
	}
	if got := withDescendants(all, 2); len(got) != maxDescendants {
		t.Errorf("withDescendants() = %d of them; want %d", len(got), maxDescendants)
	}
}

// TestReadRankThatIsGone reads a rank whose process has ended since it was found.
func TestReadRankThatIsGone(t *testing.T) {
	clause.Cite(t, "D-ST-3")
	c := exec.Command("true")
	if err := c.Run(); err != nil {
		t.Skip(err)
	}
	r := readRank(rankHere{rank: "0", task: "worker/0", pids: []int{c.Process.Pid}})
	if !errors.Is(r.err, pystack.ErrGone) || errors.Is(r.err, fs.ErrNotExist) || r.Threads == nil {
		t.Errorf("readRank() = %+v; want %v", r, pystack.ErrGone)
	}
}
