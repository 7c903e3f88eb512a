package launch

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/mesh/restore"
	"github.com/serry-dev/serry/topo"
)

func machine(name, boot string) topo.TaskRecord {
	return topo.TaskRecord{MachineID: "m-" + name, BootID: boot, Hostname: "host-" + name}
}

// lastRun is a job of four machines with two tasks each.
func lastRun() []topo.TaskRecord {
	var tasks []topo.TaskRecord
	for task := range 8 {
		r := machine(string(rune('a'+task/2)), "1")
		r.Task = serry.TaskIndex(task)
		tasks = append(tasks, r)
	}
	slices.Reverse(tasks) // their order says nothing
	return tasks
}

// seats plays who comes in which order and returns the nodes that hosts got, with the notes.
func seats(t *testing.T, r *ranks, now time.Time, coming ...topo.TaskRecord) (map[string]int, string) {
	t.Helper()
	got, hostOf := map[string]int{}, slices.Repeat([]int{notYet}, r.nodes)
	var notes []string
	for host, is := range coming {
		r.arrive(host, is, now)
		p := places{hands: map[int]hand{}, hostOf: hostOf}
		for h := range host + 1 {
			p.hands[h] = (*crew)(nil)
		}
		seated, err := r.assign(p.free(), p.idle(), now)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range seated {
			notes = append(notes, s.notes...)
			if s.node >= 0 {
				hostOf[s.node] = s.host
				got[coming[s.host].Hostname] = s.node
			}
		}
	}
	return got, strings.Join(notes, "\n")
}

// Launchers come with shuffled numbers, one machine has been replaced and one has rebooted.
func TestHostsKeepTheirTasks(t *testing.T) {
	clause.Cite(t, "P-RMP-8", "P-TOP-5", "P-TOP-3", "EX-RMP-5")
	r := newRanks(Config{Nodes: 4, Tasks: 2}, lastRun())
	got, notes := seats(t, r, time.Unix(0, 0), machine("d", "1"), machine("e", "1"), machine("a", "2"), machine("c", "1"))
	want := map[string]int{"host-a": 0, "host-e": 1, "host-c": 2, "host-d": 3}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("nodes (-want +got)\n%s", diff)
	}
	for _, line := range []string{
		`host "host-e" waits: 3 numbers are kept for machines that may still come, first 0 for "m-a"`,
		`host "host-d" has ranks 6 to 7: it keeps its number: machine "m-d" had it`,
		`host "host-e" has ranks 2 to 3: it takes the place of machine "m-b"`,
		`node 1 moved: machine_id was "m-b", is "m-e"`,
		`node 0 rebooted: boot_id was "1", is "2"`,
	} {
		if !strings.Contains(notes, line) {
			t.Errorf("notes do not say %q:\n%s", line, notes)
		}
	}
}

// A first run, and one of another size, give numbers in the order of launchers.
func TestFirstRunCounts(t *testing.T) {
	clause.Cite(t, "P-RMP-8")
	for name, last := range map[string][]topo.TaskRecord{"first": nil, "another size": lastRun()[:6]} {
		got, _ := seats(t, newRanks(Config{Nodes: 4, Tasks: 2}, last), time.Unix(0, 0),
			machine("d", "1"), machine("c", "1"), machine("b", "1"), machine("a", "1"))
		want := map[string]int{"host-d": 0, "host-c": 1, "host-b": 2, "host-a": 3}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: nodes (-want +got)\n%s", name, diff)
		}
	}
	r := newRanks(Config{Nodes: 4, Tasks: 2, Spares: 1}, nil)
	for _, host := range []int{4, 2} { // whoever comes first
		r.arrive(host, machine("x", "1"), time.Unix(0, 0))
	}
	s, err := r.assign([]int{0, 1, 2, 3}, []int{2, 4}, time.Unix(0, 0))
	if err != nil || len(s) != 1 || s[0].host != 2 || s[0].node != 2 {
		t.Errorf("seat() of hosts 2 and 4 in a first run = %+v, %v; want host 2 at node 2", s, err)
	}
}

// A spare that comes early does not take the place of a survivor that comes late, unless that is too
// late.
func TestSpareWaitsForSurvivors(t *testing.T) {
	clause.Cite(t, "P-RMP-8")
	begin := time.Unix(0, 0)
	r := newRanks(Config{Nodes: 4, Tasks: 2, Spares: 1}, lastRun())
	got, _ := seats(t, r, begin, machine("a", "1"), machine("x", "1"), machine("c", "1"), machine("d", "1"))
	if n, seated := got["host-x"]; seated {
		t.Fatalf("spare has node %d before anybody is late", n)
	}
	hostOf := []int{0, notYet, 2, 3}
	for _, c := range []struct {
		after time.Duration
		want  int
	}{{hostWait - 1, 0}, {hostWait, 1}} {
		s, err := r.assign([]int{1}, []int{1}, begin.Add(c.after))
		if err != nil || len(s) != c.want {
			t.Fatalf("seat() after %v = %+v, %v; want %d seated", c.after, s, err, c.want)
		}
	}
	r.arrive(4, machine("b", "1"), begin)
	s, err := r.assign([]int{1}, []int{1, 4}, begin)
	if err != nil || len(s) != 1 || s[0].host != 4 {
		t.Errorf("seat() when all are here = %+v, %v; want the survivor in its place", s, err)
	}
	hostOf[1] = 4
	r.settle(hostOf)
	if got := r.records(); len(got) != 8 || got[2].MachineID != "m-b" || got[7].Task != 7 {
		t.Errorf("records() = %+v; want eight by number", got)
	}
}

// Two launchers on one machine keep their order; devices tell them apart where they differ.
func TestOneMachineTwice(t *testing.T) {
	clause.Cite(t, "P-RMP-8")
	last := []topo.TaskRecord{machine("a", "1"), machine("a", "1")}
	last[1].Task = 1
	last[0].Devices = []topo.DeviceRecord{{ID: 0, UUID: "GPU-0"}}
	last[1].Devices = []topo.DeviceRecord{{ID: 1, UUID: "GPU-1"}}
	one, zero := machine("a", "1"), machine("a", "1")
	one.Devices, zero.Devices = []topo.DeviceRecord{{UUID: "GPU-1"}}, []topo.DeviceRecord{{UUID: "GPU-0"}}
	one.Hostname, zero.Hostname = "one", "zero"
	got, _ := seats(t, newRanks(Config{Nodes: 2, Tasks: 1}, last), time.Unix(0, 0), one, zero)
	if diff := cmp.Diff(map[string]int{"zero": 0, "one": 1}, got); diff != "" {
		t.Errorf("nodes (-want +got)\n%s", diff)
	}
}

// Two hosts that claim one device cannot be told apart: then numbers count, and that is said.
func TestHostsThatCannotBeToldApart(t *testing.T) {
	clause.Cite(t, "P-RMP-8", "P-RMP-11")
	stage := newStage(t)
	cfg := Config{Nodes: 2, Tasks: 4, StateDir: t.TempDir(), Display: stage}
	j := &Job{cfg: cfg, feed: newFeed(stage), ranks: newRanks(cfg, lastRun()), places: newPlaces(2, (*crew)(nil)), archive: newArchive(cfg.StateDir, make(chan any, 8))}
	defer j.feed.close(nil)
	defer j.archive.close(nil)
	j.places.assignByIdentity()
	for host, name := range []string{"b", "a"} {
		is := machine(name, "1")
		is.Devices = []topo.DeviceRecord{{UUID: "GPU-x"}}
		j.places.add(host, (*crew)(nil))
		j.ranks.arrive(host, is, time.Unix(0, 0))
	}
	j.sit()
	if !slices.Equal(j.places.hostOf, []int{0, 1}) {
		t.Errorf("hosts of the nodes are %v; want each at its own number", j.places.hostOf)
	}
	stage.shown("hosts cannot be told apart", "GPU-x")
}

func TestState(t *testing.T) {
	clause.Cite(t, "P-RMP-8", "P-RMP-1")
	dir := filepath.Join(t.TempDir(), "deep", "state")
	if got, text, err := readState(dir); got != nil || text != nil || err != nil {
		t.Fatalf("readState() of nothing = %v, %q, %v; want nothing", got, text, err)
	}
	r := newRanks(Config{Nodes: 2, Tasks: 2}, nil)
	for host, name := range []string{"a", "b"} {
		is := machine(name, "1")
		is.Devices = []topo.DeviceRecord{{UUID: "GPU-" + name + "0"}, {UUID: "GPU-" + name + "1"}}
		r.arrive(host, is, time.Unix(0, 0))
	}
	r.settle([]int{1, 0})
	if err := writeState(dir, "run", r.records(), time.Unix(7, 0)); err != nil {
		t.Fatal(err)
	}
	got, _, err := readState(dir)
	if err != nil || len(got) != 4 {
		t.Fatalf("readState() = %v, %v; want four tasks", got, err)
	}
	if d := got[3].Devices; got[3].MachineID != "m-a" || len(d) != 1 || d[0].UUID != "GPU-a1" || d[0].ID != 3 || d[0].Ordinal != 0 {
		t.Errorf("task 3 = %+v; want the second device of machine a, number 3", got[3])
	}
	if files, _ := filepath.Glob(filepath.Join(dir, ".*")); len(files) > 0 {
		t.Errorf("left behind: %v", files)
	}
	name := filepath.Join(dir, restore.ManifestFile)
	if err := os.Truncate(name, 50); err != nil {
		t.Fatal(err)
	}
	if _, err := Start(Config{Command: itself, Tasks: 1, StateDir: dir}); err == nil || !strings.Contains(err.Error(), name) {
		t.Errorf("Start() with a damaged state = %v; want an error that names %s", err, name)
	}
	if text, err := os.ReadFile(name); err != nil || len(text) != 50 {
		t.Errorf("the damaged state has %d bytes, %v; want it untouched", len(text), err)
	}
}

// Two launchers run twice, the second time with their numbers exchanged: every machine has the task
// that it had.
func TestLaunchersExchangeNumbers(t *testing.T) {
	clause.Cite(t, "P-RMP-8", "P-TOP-5")
	dir := t.TempDir()
	for run, names := range [][]string{{"a", "b"}, {"b", "a"}} {
		s := newStage(t)
		coordinator := freeAddress(t)
		jobs := make([]*Job, 2)
		for node, name := range names {
			cfg := s.config(1)
			is := machine(name, "1")
			cfg.Nodes, cfg.Node, cfg.Coordinator, cfg.StateDir, cfg.Identity = 2, node, coordinator, dir, &is
			cfg.Env = append(cfg.Env, "STOOD_ON="+name)
			jobs[node] = s.start(cfg)
		}
		for task, want := range []string{"a", "b"} {
			a := s.next(task, 1, 1)
			if got := variable(t, a.pid, "STOOD_ON"); got != want {
				t.Errorf("run %d: task %d is on machine %s; want %s", run, task, got, want)
			}
			a.begin("exit 0")
		}
		if run == 1 {
			before, err := os.ReadFile(filepath.Join(dir, PreviousManifest))
			if m, bad := restore.ParseManifest(PreviousManifest, before); err != nil || bad != nil || m.Tasks[0].MachineID != "m-a" {
				t.Errorf("state of the run before: %v, %v; want a manifest with machine a first", err, bad)
			}
			s.shown("note", `host "host-b" has rank 1: it keeps its number`)
		}
		for _, j := range jobs {
			if r := j.Wait(); !r.Well() {
				t.Errorf("run %d ended with %+v; want well", run, r)
			}
		}
	}
}

// freeAddress is one that nobody listened on a moment ago.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// variable reads the environment of a process.
func variable(t *testing.T, pid int, name string) string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		t.Fatal(err)
	}
	for v := range strings.SplitSeq(string(text), "\x00") {
		if value, ok := strings.CutPrefix(v, name+"="); ok {
			return value
		}
	}
	return ""
}
