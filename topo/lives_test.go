package topo

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/serry-dev/serry"
)

func worker(i int) serry.TaskID { return serry.TaskID{Job: "worker", Index: i} }

func connected(incs ...serry.Incarnation) []TaskInfo {
	var list []TaskInfo
	for i, inc := range incs {
		list = append(list, TaskInfo{worker(i), serry.Connected, inc})
	}
	return list
}

func update(t *testing.T, l *Lives, list []TaskInfo) []Ended {
	t.Helper()
	ended, err := l.Update(list)
	if err != nil {
		t.Fatalf("Update(%v) = %v", list, err)
	}
	return ended
}

func TestLives(t *testing.T) {
	clause(t, "TC-DINC-01", "TC-DINC-02", "TC-DINC-03", "C-DINC-7")
	var l Lives
	if got := update(t, &l, connected(5, 7, 8)); len(got) != 0 {
		t.Errorf("first list ends %v; want none", got)
	}
	one, _ := NewClique([]serry.DeviceID{0, 1}, map[serry.DeviceID]serry.Incarnation{0: 5, 1: 7})
	two, _ := NewClique([]serry.DeviceID{0, 2}, map[serry.DeviceID]serry.Incarnation{0: 5, 2: 8})

	got := update(t, &l, connected(5, 9, 8))
	want := []Ended{{Task: worker(1), Incarnation: 7, State: serry.Connected, Successor: 9}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("task 1 restarts (-want +got)\n%s", diff)
	}
	if !one.Holds(got[0].Incarnation) || two.Holds(got[0].Incarnation) {
		t.Errorf("incarnation 7 is held by %v: %v, by %v: %v; want the first only", one, one.Holds(7), two, two.Holds(7))
	}

	list := connected(5, 9, 8)
	list[1].State = serry.Disconnected
	slices.Reverse(list) // the order of the list does not matter
	got = update(t, &l, list)
	want = []Ended{{Task: worker(1), Incarnation: 9, State: serry.Disconnected}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("task 1 goes (-want +got)\n%s", diff)
	}
	if got := update(t, &l, connected(5, 10, 8)); len(got) != 0 {
		t.Errorf("task 1 comes back after it had gone: %v ended; want none, it was told", got)
	}
}

func TestLivesRefuseOtherTasks(t *testing.T) {
	clause(t, "TC-DINC-04")
	var l Lives
	if _, err := l.Update([]TaskInfo{{Task: worker(0)}, {Task: worker(0)}}); !errors.Is(err, ErrTaskList) {
		t.Errorf("Update(one task twice) = %v; want %v", err, ErrTaskList)
	}
	update(t, &l, connected(5, 7))
	for name, list := range map[string][]TaskInfo{
		"longer":  connected(5, 9, 8),
		"shorter": connected(5),
		"other":   {{worker(0), serry.Connected, 5}, {worker(3), serry.Connected, 9}},
	} {
		if ended, err := l.Update(list); !errors.Is(err, ErrTaskList) || ended != nil {
			t.Errorf("Update(%s list) = %v, %v; want %v", name, ended, err, ErrTaskList)
		}
	}
	if got := update(t, &l, connected(5, 9)); len(got) != 1 {
		t.Errorf("after refused lists a restart ends %v; want one life", got)
	}
}

func TestLivesFail(t *testing.T) {
	clause(t, "TC-DINC-05", "C-DINC-8", "C-DINC-9")
	var l Lives
	if got, err := l.Fail(worker(5)); got != nil || err != nil {
		t.Errorf("Fail before any list = %v, %v; want nothing", got, err)
	}
	if err := l.Check([]serry.Incarnation{1}); err != nil {
		t.Errorf("Check before any list = %v; want no objection", err)
	}
	update(t, &l, connected(5, 7))
	if _, err := l.Fail(worker(5)); !errors.Is(err, serry.ErrUnknownTask) {
		t.Errorf("Fail(worker/5) = %v; want %v", err, serry.ErrUnknownTask)
	}
	if err := l.Check([]serry.Incarnation{5, 7}); err != nil {
		t.Errorf("Check(5, 7) = %v; want no objection", err)
	}
	got, err := l.Fail(worker(1))
	if err != nil || len(got) != 1 || got[0].Incarnation != 7 || got[0].State != serry.Failed {
		t.Errorf("Fail(worker/1) = %v, %v; want incarnation 7 to end", got, err)
	}
	if err := l.Check([]serry.Incarnation{5, 7}); !errors.Is(err, serry.ErrNotConnected) {
		t.Errorf("Check(5, 7) = %v; want %v", err, serry.ErrNotConnected)
	}
	if got, err := l.Fail(worker(1)); len(got) != 0 || err != nil {
		t.Errorf("second Fail(worker/1) = %v, %v; want nothing more", got, err)
	}
	list := connected(5, 7)
	list[1].State = serry.Failed
	if got := update(t, &l, list); len(got) != 0 {
		t.Errorf("the list that confirms it ends %v; want none", got)
	}
}

func TestClique(t *testing.T) {
	clause(t, "TC-DINC-06", "TC-DINC-07", "C-DINC-4", "C-DINC-5")
	type lives = map[serry.DeviceID]serry.Incarnation
	if _, err := NewClique([]serry.DeviceID{0, 1}, lives{0: 11}); !errors.Is(err, ErrNoIncarnation) || err.Error() != "device 1: incarnation not known" {
		t.Errorf("NewClique with one life missing = %v; want device 1 named", err)
	}
	bare, err := NewClique([]serry.DeviceID{1, 0}, nil)
	if err != nil || bare.String() != "devices=1,0" || bare.Holds(0) {
		t.Errorf("NewClique without lives = %v, %v; want devices only", bare, err)
	}
	c, err := NewClique([]serry.DeviceID{0, 1, 2, 3}, lives{0: 30, 1: 30, 2: 10, 3: 20})
	if want := "devices=0,1,2,3 incarnations=10,20,30"; err != nil || c.String() != want {
		t.Errorf("NewClique() = %v, %v; want %s", c, err, want)
	}
	if !slices.Equal(c.Incarnations(), []serry.Incarnation{10, 20, 30}) || len(c.Devices()) != 4 {
		t.Errorf("Incarnations() = %v, Devices() = %v; want 10, 20, 30 and four devices", c.Incarnations(), c.Devices())
	}
}

func TestDeviceLives(t *testing.T) {
	clause(t, "C-DINC-2", "C-DINC-3")
	top := read(t, true, local(0, "a", 0, 1), local(1, "b", 0), local(2, "c", 0))
	lives, missing := DeviceLives(top, map[Task]serry.Incarnation{0: 11, 2: 13, 9: 1})
	if got := fmt.Sprint(lives, missing); got != "map[0:11 1:11 3:13] [1]" {
		t.Errorf("DeviceLives() = %s; want devices of tasks 0 and 2, task 1 missing", got)
	}
}

// pairs makes the devices 2t and 2t+1 of each task t below n.
func pairs(n int) []Device {
	var devices []Device
	for i := range 2 * n {
		devices = append(devices, Device{ID: serry.DeviceID(i), Task: Task(i / 2), Ordinal: Ordinal(i % 2), Partition: i / 4})
	}
	return devices
}

func alive(incs map[Task]serry.Incarnation) []Alive {
	var out []Alive
	for t := range Task(10) {
		if inc, ok := incs[t]; ok {
			out = append(out, Alive{Task: t, Incarnation: inc})
		}
	}
	return out
}

func memberIDs(members []Member) (all, fresh []serry.DeviceID) {
	for _, m := range members {
		all = append(all, m.ID)
		if m.Fresh {
			fresh = append(fresh, m.ID)
		}
	}
	return all, fresh
}

func TestLiveGroup(t *testing.T) {
	clause(t, "TC-LIVE-10", "TC-LIVE-11", "TC-LIVE-12", "C-LIVE-3", "C-LIVE-4", "P-LIVE-4")
	devices := pairs(4)
	slices.Reverse(devices)
	g, err := NewLiveGroup(devices, 0)
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(g.Tasks()); got != "[0 1 2 3]" {
		t.Errorf("Tasks() = %s; want all four", got)
	}
	if _, ok := g.Members(); ok {
		t.Error("Members() is true before the first round")
	}
	type lives = map[Task]serry.Incarnation
	members, err := g.Admit(alive(lives{0: 1, 1: 2, 2: 3, 3: 4}))
	if all, fresh := memberIDs(members); err != nil || fmt.Sprint(all, fresh) != "[0 1 2 3 4 5 6 7] [0 1 2 3 4 5 6 7]" {
		t.Errorf("Admit() = %v, %v; want all devices by id, all fresh", all, err)
	}
	if err := g.Exit(alive(lives{0: 1, 1: 2, 2: 3, 3: 4}), nil); err != nil {
		t.Errorf("Exit of a round in which all live = %v; want none", err)
	}

	failure, ok := errors.AsType[*LiveError](g.Exit(alive(lives{0: 1, 1: 2, 2: 3}), nil)) // task 3 died
	if !ok || fmt.Sprint(ids(failure.Failed)) != "[6 7]" {
		t.Errorf("Exit without task 3 = %v; want devices 6 and 7", failure)
	}
	members, ok = g.Members()
	if all, fresh := memberIDs(members); !ok || fmt.Sprint(all, fresh) != "[0 1 2 3 4 5] []" {
		t.Errorf("Members() of the next block = %v, fresh %v; want the survivors without a call", all, fresh)
	}

	failure, ok = errors.AsType[*LiveError](g.Exit(alive(lives{0: 1, 1: 2, 2: 33, 3: 44}), nil)) // 2 restarted, 3 is back
	if !ok || fmt.Sprint(ids(failure.Failed)) != "[4 5]" {
		t.Errorf("Exit with task 2 in another life = %v; want devices 4 and 5", failure)
	}
	members, _ = g.Members()
	if all, fresh := memberIDs(members); fmt.Sprint(all, fresh) != "[0 1 2 3 4 5 6 7] [4 5 6 7]" {
		t.Errorf("Members() = %v, fresh %v; want all, of which 4 to 7 are new", all, fresh)
	}
	if members[4].Incarnation != 33 {
		t.Errorf("device 4 is in incarnation %d; want 33", members[4].Incarnation)
	}
}

func TestLiveGroupOutcomes(t *testing.T) {
	clause(t, "TC-LIVE-13", "C-LIVE-5", "P-LIVE-2")
	type lives = map[Task]serry.Incarnation
	start := func() *LiveGroup {
		g, err := NewLiveGroup(pairs(2), 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := g.Admit(alive(lives{0: 1, 1: 2})); err != nil {
			t.Fatal(err)
		}
		return g
	}
	boom := errors.New("out of memory")
	if err := start().Exit(alive(lives{0: 1, 1: 2}), boom); err != boom {
		t.Errorf("Exit(body failed, all alive) = %v; want the body's error itself", err)
	}
	err := start().Exit(alive(lives{0: 1}), boom)
	if _, ok := errors.AsType[*LiveError](err); !ok || !errors.Is(err, boom) || err.Error() != "2 devices failed: 2, 3: out of memory" {
		t.Errorf("Exit(body failed, task 1 dead) = %v; want both", err)
	}
	words := []Alive{{0, 1, ""}, {1, 2, "out of memory"}}
	err = start().Exit(words, nil)
	if le, ok := errors.AsType[*LiveError](err); !ok || len(le.Failed) != 0 || err.Error() != "task 1: out of memory" {
		t.Errorf("Exit(task 1 brings a word) = %v; want it told", err)
	}
	own := []Alive{{0, 1, "mine"}, {1, 2, ""}}
	if err := start().Exit(own, nil); err != nil {
		t.Errorf("Exit(own word, no error) = %v; want none: the caller knows its own", err)
	}
	if err := start().Exit(own, boom); err != boom {
		t.Errorf("Exit(own word) = %v; want the body's error only", err)
	}
}

func TestLiveGroupRefuses(t *testing.T) {
	clause(t, "TC-LIVE-14", "C-LIVE-1")
	twice := append(pairs(1), pairs(1)...)
	for name, test := range map[string]struct {
		devices []Device
		self    Task
	}{"empty": {nil, 0}, "only remote": {pairs(2), 7}, "twice": {twice, 0}} {
		if _, err := NewLiveGroup(test.devices, test.self); !errors.Is(err, serry.ErrInvalid) {
			t.Errorf("NewLiveGroup(%s) = %v; want an invalid request", name, err)
		}
	}
	g, err := NewLiveGroup(pairs(2), 0)
	if err != nil {
		t.Fatal(err)
	}
	for name, answer := range map[string][]Alive{"self missing": {{Task: 1}}, "twice": {{Task: 0}, {Task: 0}}} {
		if _, err := g.Admit(answer); !errors.Is(err, serry.ErrInvalid) {
			t.Errorf("Admit(%s) = %v; want an invalid request", name, err)
		}
		if _, ok := g.Members(); ok {
			t.Errorf("Members() is true after a refused answer")
		}
	}
}

func TestQuorum(t *testing.T) {
	clause(t, "P-LIVE-3")
	g, err := NewLiveGroup(pairs(4), 0) // partitions 0: tasks 0, 1; 1: tasks 2, 3
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		alive []Task
		q     Quorum
		want  string
	}{
		{[]Task{0, 1}, Quorum{Tasks: 3}, "2 tasks are there; 3 are needed"},
		{[]Task{0, 1}, Quorum{Tasks: 2, WholePartitions: true}, ""},
		{[]Task{0, 1, 3}, Quorum{WholePartitions: true}, "partition 1 has 2 of 4 devices"},
		{[]Task{0, 3}, Quorum{}, ""},
	}
	for _, test := range tests {
		var answer []Alive
		for _, task := range test.alive {
			answer = append(answer, Alive{Task: task})
		}
		if _, err := g.Admit(answer); err != nil {
			t.Fatal(err)
		}
		if got := g.Lacking(test.q); got != test.want {
			t.Errorf("Lacking(%+v) of tasks %v = %q; want %q", test.q, test.alive, got, test.want)
		}
	}
}

func ExampleLiveGroup() {
	devices := []Device{{ID: 0, Task: 0}, {ID: 1, Task: 1}}
	group, err := NewLiveGroup(devices, 0)
	if err != nil {
		fmt.Println(err)
		return
	}
	members, _ := group.Admit([]Alive{{Task: 0, Incarnation: 7}, {Task: 1, Incarnation: 8}})
	fmt.Println(len(members), "devices to work with")
	err = group.Exit([]Alive{{Task: 0, Incarnation: 7}}, nil) // task 1 died in the block
	fmt.Println(err)
	// Output:
	// 2 devices to work with
	// 1 devices failed: 1
}

func ExampleNewClique() {
	c, _ := NewClique([]serry.DeviceID{2, 0}, map[serry.DeviceID]serry.Incarnation{0: 70, 2: 50})
	fmt.Println(c)
	// Output: devices=2,0 incarnations=50,70
}
