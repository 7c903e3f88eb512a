package launch

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/secure"
)

// write makes a file below a fake root.
func write(t *testing.T, root, name, text string) {
	t.Helper()
	file := filepath.Join(root, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
}

// withoutCount leaves out what the kernel of this machine says of memory.
func withoutCount(c Cause) Cause {
	c.Count = MemoryCount{}
	return c
}

// The count of the control group of a process is taken before that of the machine, and the least limit above it counts.
func TestMemoryGroup(t *testing.T) {
	clause.Cite(t, "D-EV-3")
	const vmstat = "nr_free_pages 1\noom_kill 9\n"
	for _, c := range []struct {
		name   string
		files  map[string]string
		kills  int64
		none   bool
		group  string
		limit  int64
		peaked int64
	}{
		{"version 2", map[string]string{
			"proc/self/cgroup": "0::/job/rank\n", "sys/fs/cgroup/job/rank/memory.events": "low 0\noom 1\noom_kill 2\n", "proc/vmstat": vmstat,
			"sys/fs/cgroup/job/rank/memory.max": "max\n", "sys/fs/cgroup/job/memory.max": "4096\n", "sys/fs/cgroup/job/rank/memory.peak": "4000\n",
		}, 2, false, "/job/rank", 4096, 4000},
		{"version 2 in a container", map[string]string{
			"proc/self/cgroup": "0::/job\n", "sys/fs/cgroup/memory.events": "oom_kill 3\n", "proc/vmstat": vmstat, "sys/fs/cgroup/memory.max": "8192",
		}, 3, false, "/job", 8192, 0},
		{"version 1", map[string]string{
			"proc/self/cgroup": "9:cpu:/x\n8:memory:/job\n", "sys/fs/cgroup/memory/job/memory.oom_control": "under_oom 0\noom_kill 4\n", "proc/vmstat": vmstat,
			"sys/fs/cgroup/memory/job/memory.limit_in_bytes": "62914560\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
			"sys/fs/cgroup/memory/job/memory.max_usage_in_bytes": "62914000\n",
		}, 4, false, "/job", 60 << 20, 62914000},
		{"a name that leads out", map[string]string{
			"proc/self/cgroup": "0::/../../etc\n", "sys/fs/cgroup/etc/memory.events": "oom_kill 1\n", "etc/memory.events": "oom_kill 7\n",
		}, 1, false, "/etc", 0, 0},
		{"the machine", map[string]string{"proc/self/cgroup": "0::/job\n", "proc/vmstat": vmstat}, 9, false, "", 0, 0},
		{"nothing known", nil, 0, true, "", 0, 0},
		{"nonsense", map[string]string{"proc/self/cgroup": "x", "proc/vmstat": "oom_kill many\n"}, 0, true, "", 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			for name, text := range c.files {
				write(t, root, name, text)
			}
			g := findMemoryGroup(root, "self")
			if n, ok := g.kills(); n != c.kills || ok == c.none || g.name != c.group || g.limit() != c.limit || g.peak() != c.peaked {
				t.Errorf("findMemoryGroup() = %q with %d kills (%v), limit %d, peak %d; want %q, %d (%v), %d, %d",
					g.name, n, ok, g.limit(), g.peak(), c.group, c.kills, !c.none, c.limit, c.peaked)
			}
		})
	}
}

// A rank that was moved to a group of its own is judged by that group; a kill elsewhere is none of it.
func TestMemoryOfAnotherGroup(t *testing.T) {
	clause.Cite(t, "D-SC-2", "D-SC-3")
	root := t.TempDir()
	me := strconv.Itoa(os.Getpid())
	write(t, root, "proc/self/cgroup", "8:memory:/job\n")
	write(t, root, "proc/"+me+"/cgroup", "8:memory:/job/rank3\n")
	write(t, root, "sys/fs/cgroup/memory/job/memory.oom_control", "oom_kill 1\n")
	write(t, root, "sys/fs/cgroup/memory/job/rank3/memory.oom_control", "oom_kill 0\n")
	write(t, root, "sys/fs/cgroup/memory/job/rank3/memory.limit_in_bytes", "62914560\n")
	w := newMemoryWatch(root)
	w.look(os.Getpid())
	write(t, root, "sys/fs/cgroup/memory/job/memory.oom_control", "oom_kill 2\n")
	if c := w.compare(); c.killed() || c.detail() != "no kernel kill in control group /job/rank3" {
		t.Errorf("compare() = %+v, %q; want no kill", c, c.detail())
	}
	write(t, root, "sys/fs/cgroup/memory/job/rank3/memory.oom_control", "oom_kill 1\n")
	write(t, root, "sys/fs/cgroup/memory/job/rank3/memory.max_usage_in_bytes", "62914560\n")
	w.look(1 << 30) // there is no such process: it has been reaped
	got := Cause{Signal: 9, Memory: true, Count: w.compare()}
	const want = "signal 9, killed because its memory limit of 60 MiB was reached; kernel kills in control group /job/rank3: 0 before, 1 after, peak 60 MiB"
	if !got.Count.killed() || got.evidence(false) != want {
		t.Errorf("evidence(false) = %q; want %q", got.evidence(false), want)
	}
}

// A process that was killed while the count rose was killed for memory; one that the launcher killed was not.
func TestKilledForMemory(t *testing.T) {
	clause.Cite(t, "D-SC-3")
	s := newStage(t)
	cfg := s.config(1)
	root := t.TempDir()
	write(t, root, "proc/vmstat", "oom_kill 1\n")
	events := make(chan any, 2)
	cfg = cfg.withDefaults()
	run := newRun()
	k, err := newLocal(cfg, run)
	if err != nil {
		t.Fatal(err)
	}
	k.root = root
	f := newFeed(s)
	defer f.close(nil)
	c, err := newCrew(cfg, run, k, f, events)
	if err != nil {
		t.Fatal(err)
	}
	for i, byUs := range []bool{false, true} {
		c.start(seat{Tasks: 1, Locals: 1, Nodes: 1, Attempt: 1, Life: i + 1}, contact{address: "127.0.0.1:1", secret: secure.Draw()})
		task := s.next(0, 1, i+1)
		write(t, root, "proc/vmstat", "oom_kill "+strings.Repeat("1", i+2)+"\n")
		want := Cause{Signal: 9}
		if byUs {
			c.kill()
		} else {
			task.begin("signal 9")
			want = Cause{Signal: 9, Memory: true, Count: MemoryCount{Machine: true, Before: 1, After: 11}}
		}
		if d := (<-events).(died); d.Cause != want || d.Ours != byUs {
			t.Errorf("killed by us: %v: %+v; want %+v", byUs, d, want)
		}
		<-events
	}
	c.close()
}
