package topo

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/lab/clause"
)

// host makes the record of a task on a machine of that name, with two GPUs that
// are known by uuid and have the ids 2t and 2t+1.
func host(t serry.TaskIndex, name string) TaskRecord {
	r := TaskRecord{Task: t, MachineID: name, Hostname: name}
	for o := range Ordinal(2) {
		r.Devices = append(r.Devices, DeviceRecord{
			ID: serry.DeviceID(2*t) + serry.DeviceID(o), Ordinal: o, Platform: "cuda", Kind: "H200",
			UUID: fmt.Sprintf("GPU-%s-%d", name, o), PCI: fmt.Sprintf("0000:%d:00.0", o),
		})
	}
	return r
}

func hosts(names ...string) []TaskRecord {
	var all []TaskRecord
	for i, name := range names {
		all = append(all, host(serry.TaskIndex(i), name))
	}
	return all
}

// bare takes from records what lies above a level of evidence.
func bare(records []TaskRecord, level Level) []TaskRecord {
	out := slices.Clone(records)
	for i := range out {
		out[i].Devices = slices.Clone(out[i].Devices)
		for j := range out[i].Devices {
			d := &out[i].Devices[j]
			if level > ByDevice {
				d.UUID, d.Serial = "", ""
			}
			if level > BySlot {
				d.PCI = ""
			}
		}
		if level > ByOrdinal {
			out[i].MachineID = ""
		}
	}
	return out
}

func numbers(n int) []serry.DeviceID {
	ids := make([]serry.DeviceID, n)
	for i := range ids {
		ids[i] = serry.DeviceID(i)
	}
	return ids
}

// ids prints the pairs as "0>2 1>3".
func (m *Matching) ids() string {
	var texts []string
	for _, p := range m.Pairs {
		texts = append(texts, fmt.Sprintf("%d>%d", p.Was.Device, p.Now.Device))
	}
	return strings.Join(texts, " ")
}

func TestMatchLevels(t *testing.T) {
	clause.Cite(t, "P-RMP-3", "EX-RMP-5", "TC-RMP-19")
	was, now := hosts("a", "b", "c", "d"), hosts("a", "c", "d", "e") // b replaced by e, ranks moved up
	const right = "0>0 1>1 4>2 5>3 6>4 7>5"
	tests := []struct {
		name    string
		level   Level // strongest evidence there is
		weakest Level
		want    string
	}{
		{"by uuid", ByDevice, ByOrdinal, right},
		{"by slot", BySlot, ByOrdinal, right},
		{"by ordinal", ByOrdinal, ByOrdinal, right},
		{"slots are not asked for", BySlot, ByDevice, ""},
		{"numbers do not overrule machines", ByOrdinal, ByID, right},
		{"numbers alone are not enough", ByTask, ByOrdinal, ""},
		{"numbers alone, believed", ByTask, ByTask, "0>0 1>1 2>2 3>3 4>4 5>5 6>6 7>7"}, // what Orbax does, and wrong
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			m, err := Match(bare(was, test.level), bare(now, test.level), test.weakest)
			if err != nil || m.ids() != test.want {
				t.Fatalf("Match() = %s, %v; want %s", m.ids(), err, test.want)
			}
			for _, p := range m.Pairs {
				if p.Level != test.level {
					t.Errorf("pair %+v by %v; want by %v", p, p.Level, test.level)
				}
			}
			if len(m.Pairs)+len(m.Lost) != 8 || len(m.Pairs)+len(m.New) != 8 {
				t.Errorf("%d pairs, %d lost, %d new of eight each", len(m.Pairs), len(m.Lost), len(m.New))
			}
		})
	}
	m, _ := Match(was, now, ByOrdinal)
	if want := []DeviceRef{{1, 2}, {1, 3}}; !slices.Equal(m.Lost, want) {
		t.Errorf("Lost = %v; want %v", m.Lost, want)
	}
	if want := []DeviceRef{{3, 6}, {3, 7}}; !slices.Equal(m.New, want) {
		t.Errorf("New = %v; want %v", m.New, want)
	}
	if id, ok := m.Now(4); !ok || id != 2 {
		t.Errorf("Now(4) = %d, %v; want 2", id, ok)
	}
	if _, ok := m.Now(2); ok {
		t.Error("Now(2) is true; want false for a lost device")
	}
	if got := m.Evidence(); len(got) != 3 || got[1] != ByDevice {
		t.Errorf("Evidence() = %v; want the same device for tasks 0, 1 and 2", got)
	}
}

func TestMatchByOtherEvidence(t *testing.T) {
	clause.Cite(t, "P-RMP-3")
	one := func(r TaskRecord, d DeviceRecord) []TaskRecord {
		r.Devices = []DeviceRecord{d}
		return []TaskRecord{r}
	}
	core := 1
	tests := []struct {
		name     string
		was, now []TaskRecord
		want     Level
	}{
		{"serial number on another machine", one(TaskRecord{MachineID: "a"}, DeviceRecord{Serial: "7"}),
			one(TaskRecord{MachineID: "b"}, DeviceRecord{Serial: "7", ID: 5}), ByDevice},
		{"coordinates", one(TaskRecord{MachineID: "a"}, DeviceRecord{Coords: []int{1, 2}, Core: &core}),
			one(TaskRecord{MachineID: "a"}, DeviceRecord{Coords: []int{1, 2}, Core: &core, Ordinal: 3}), BySlot},
		{"global id, everything else unknown", one(TaskRecord{Task: 1}, DeviceRecord{ID: 4}),
			one(TaskRecord{Task: 2}, DeviceRecord{ID: 4}), ByID},
		{"an exchanged device in its old slot", one(TaskRecord{MachineID: "a"}, DeviceRecord{UUID: "x", PCI: "1"}),
			one(TaskRecord{MachineID: "a"}, DeviceRecord{UUID: "y", PCI: "1"}), 0},
		{"the same number on another machine", one(TaskRecord{Task: 1, MachineID: "a"}, DeviceRecord{ID: 4}),
			one(TaskRecord{Task: 1, MachineID: "b"}, DeviceRecord{ID: 4}), 0},
		{"two that it could be", one(TaskRecord{Task: 5, MachineID: "a"}, DeviceRecord{ID: 10}),
			append(one(TaskRecord{Task: 0, MachineID: "a"}, DeviceRecord{ID: 0}),
				one(TaskRecord{Task: 1, MachineID: "a"}, DeviceRecord{ID: 1})...), 0},
		{"another platform", one(TaskRecord{}, DeviceRecord{Platform: "cpu"}),
			one(TaskRecord{}, DeviceRecord{Platform: "cuda"}), 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			m, err := Match(test.was, test.now, ByID)
			got := Level(0)
			if err == nil && len(m.Pairs) == 1 {
				got = m.Pairs[0].Level
			}
			if err != nil || got != test.want {
				t.Errorf("Match() = %+v, %v; want a pair by %v", m, err, test.want)
			}
		})
	}
}

func TestMatchRefusesDuplicates(t *testing.T) {
	clause.Cite(t, "P-RMP-11")
	twice := []TaskRecord{host(0, "a"), host(1, "a")}
	_, err := Match(hosts("a"), twice, ByOrdinal)
	if de, ok := errors.AsType[*DuplicateError](err); !ok || de.A != 0 || de.B != 1 || !strings.Contains(de.Evidence, "GPU-a-0") {
		t.Errorf("Match with one device in two tasks = %v; want both tasks and the uuid named", err)
	}
	// Two tasks on one machine, each with an ordinal 0, are common and no claim
	// to one device; what cannot be told apart is left alone.
	m, err := Match(bare(twice, ByOrdinal), bare(twice, ByOrdinal), ByOrdinal)
	if err != nil || len(m.Pairs) != 0 {
		t.Errorf("Match of two tasks on one machine without evidence = %+v, %v; want no pairs", m, err)
	}
}

// Whatever becomes of ranks, a device with a uuid is found again, exactly once.
func TestMatchFindsAll(t *testing.T) {
	clause.Cite(t, "P-RMP-3")
	rapid.Check(t, func(t *rapid.T) {
		names := []string{"a", "b", "c", "d", "e", "f"}
		was := hosts(rapid.Permutation(names).Draw(t, "was")[:4]...)
		now := hosts(rapid.Permutation(names).Draw(t, "now")[:rapid.IntRange(1, 6).Draw(t, "count")]...)
		m, err := Match(was, now, ByID)
		if err != nil {
			t.Fatal(err)
		}
		uuid := func(list []TaskRecord, id serry.DeviceID) string {
			return list[id/2].Devices[id%2].UUID
		}
		for _, p := range m.Pairs {
			if uuid(was, p.Was.Device) != uuid(now, p.Now.Device) {
				t.Fatalf("pair %+v joins %s and %s", p, uuid(was, p.Was.Device), uuid(now, p.Now.Device))
			}
		}
		common := 0
		for _, r := range was {
			if slices.ContainsFunc(now, func(n TaskRecord) bool { return n.MachineID == r.MachineID }) {
				common += 2
			}
		}
		if len(m.Pairs) != common {
			t.Fatalf("%d pairs; want %d", len(m.Pairs), common)
		}
	})
}

func placements(p []Assignment) string {
	var texts []string
	for _, x := range p {
		text := fmt.Sprint(x.Task)
		if x.Former {
			text += "!"
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, " ")
}

func TestAssign(t *testing.T) {
	clause.Cite(t, "P-RMP-8", "P-TOP-5", "EX-RMP-5", "P-RMP-12")
	inPart := func(r TaskRecord, p int) TaskRecord { r.Partition = &p; return r }
	tests := []struct {
		name     string
		was, now []TaskRecord
		seating  AssignOptions
		want     string // former numbers carry a "!"
	}{
		{"a fresh job", nil, hosts("a", "b"), AssignOptions{Tasks: 2}, "0 1"},
		{"shuffled", hosts("a", "b", "c", "d"), hosts("d", "c", "a", "b"), AssignOptions{Tasks: 4}, "3! 2! 0! 1!"},
		{"b replaced by e, b may come", hosts("a", "b", "c", "d"), hosts("a", "c", "d", "e"), AssignOptions{Tasks: 4}, "0! 2! 3! -1"},
		{"b replaced by e, the wait is over", hosts("a", "b", "c", "d"), hosts("a", "c", "d", "e"), AssignOptions{Tasks: 4, Final: true}, "0! 2! 3! 1"},
		{"fewer numbers", hosts("a", "b", "c", "d"), hosts("d", "a", "c"), AssignOptions{Tasks: 3, Final: true}, "1 0! 2!"},
		{"more numbers", hosts("a", "b"), hosts("x", "b", "a", "y"), AssignOptions{Tasks: 4}, "2 1! 0! 3"},
		{"a spare", hosts("a", "b"), hosts("a", "b", "c"), AssignOptions{Tasks: 2}, "0! 1! -1"},
		{"the partition decides", []TaskRecord{inPart(host(0, "a"), 0), inPart(host(1, "b"), 1)},
			[]TaskRecord{inPart(host(0, "x"), 1), inPart(host(1, "y"), 0)}, AssignOptions{Tasks: 2, Final: true}, "1 0"},
		{"a machine with all devices exchanged", hosts("a", "b"),
			[]TaskRecord{{Task: 0, MachineID: "b"}, {Task: 1, MachineID: "a"}}, AssignOptions{Tasks: 2}, "1! 0!"},
		{"nothing known of anybody", bare(hosts("a", "b"), ByTask), bare(hosts("a", "b"), ByTask), AssignOptions{Tasks: 2, Final: true}, "0 1"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := Assign(test.was, test.now, test.seating)
			if err != nil || placements(got) != test.want {
				t.Errorf("Assign() = %s, %v; want %s", placements(got), err, test.want)
			}
			for _, p := range got {
				if p.Reason == "" {
					t.Errorf("placement %+v has no reason", p)
				}
			}
		})
	}
}

// Two tasks on one machine are told apart by their devices.
func TestAssignTwoOnOneMachine(t *testing.T) {
	clause.Cite(t, "P-RMP-8")
	split := func(names ...string) []TaskRecord { // one task for each named device of machine m
		var all []TaskRecord
		for i, name := range names {
			all = append(all, TaskRecord{Task: serry.TaskIndex(i), MachineID: "m", Devices: []DeviceRecord{{ID: serry.DeviceID(i), UUID: name}}})
		}
		return all
	}
	got, err := Assign(split("x", "y", "z"), split("z", "new", "x"), AssignOptions{Tasks: 3})
	if err != nil || placements(got) != "2! 1! 0!" {
		t.Errorf("Assign() = %s, %v; want 2! 1! 0!", placements(got), err)
	}
}

// Data lie with the machine, so a device that was carried over to another one
// does not take the number along.
func TestAssignGoesByMachine(t *testing.T) {
	clause.Cite(t, "P-RMP-8")
	was, now := hosts("a", "b"), hosts("a", "b")
	now[0].Devices, now[1].Devices = now[1].Devices, now[0].Devices
	for i := range now {
		for j := range now[i].Devices {
			now[i].Devices[j].PCI = ""
		}
	}
	got, err := Assign(was, now, AssignOptions{Tasks: 2})
	if err != nil || placements(got) != "0! 1!" {
		t.Errorf("Assign with exchanged devices = %s, %v; want 0! 1!", placements(got), err)
	}
}

func TestAssignRefuses(t *testing.T) {
	clause.Cite(t, "P-RMP-8", "P-RMP-11")
	if _, err := Assign(nil, nil, AssignOptions{}); err == nil {
		t.Error("Assign for no tasks = nil; want an error")
	}
	if _, err := Assign([]TaskRecord{{Task: 1}, {Task: 1}}, nil, AssignOptions{Tasks: 2}); err == nil {
		t.Error("Assign with a former task twice = nil; want an error")
	}
	_, err := Assign(hosts("a"), []TaskRecord{host(0, "a"), host(1, "a")}, AssignOptions{Tasks: 2})
	if _, ok := errors.AsType[*DuplicateError](err); !ok {
		t.Errorf("Assign with one device twice = %v; want a DuplicateError", err)
	}
}

// Nobody gets a number twice, survivors keep theirs, and the order in which
// tasks came does not matter.
func TestAssignProperties(t *testing.T) {
	clause.Cite(t, "P-RMP-8")
	rapid.Check(t, func(t *rapid.T) {
		names := []string{"a", "b", "c", "d", "e", "f"}
		was := hosts(rapid.Permutation(names).Draw(t, "was")[:rapid.IntRange(0, 6).Draw(t, "then")]...)
		now := hosts(rapid.Permutation(names).Draw(t, "now")[:rapid.IntRange(0, 6).Draw(t, "count")]...)
		s := AssignOptions{Tasks: rapid.IntRange(1, 6).Draw(t, "tasks"), Final: rapid.Bool().Draw(t, "final")}
		got, err := Assign(was, now, s)
		if err != nil {
			t.Fatal(err)
		}
		taken := map[serry.TaskIndex]bool{}
		for i, p := range got {
			for _, r := range was {
				if r.MachineID == now[i].MachineID && int(r.Task) < s.Tasks && (!p.Former || p.Task != r.Task) {
					t.Fatalf("machine %s had number %d and got %d", r.MachineID, r.Task, p.Task)
				}
			}
			if p.Task == Unassigned {
				continue
			}
			if taken[p.Task] || int(p.Task) >= s.Tasks {
				t.Fatalf("number %d of %d given twice or from nowhere: %s", p.Task, s.Tasks, placements(got))
			}
			taken[p.Task] = true
		}
		if s.Final && len(taken) != min(len(now), s.Tasks) {
			t.Fatalf("%d of %d numbers given to %d: %s", len(taken), s.Tasks, len(now), placements(got))
		}
		order := rapid.Permutation(numbers(len(now))).Draw(t, "order")
		shuffled := make([]TaskRecord, len(now))
		for i, j := range order {
			shuffled[i] = now[j]
		}
		again, err := Assign(was, shuffled, s)
		if err != nil {
			t.Fatal(err)
		}
		for i, j := range order {
			if again[i] != got[j] {
				t.Fatalf("the order of arrival matters: %s, then %s", placements(got), placements(again))
			}
		}
	})
}

func ExampleAssign() {
	record := func(machine string, launched serry.TaskIndex) TaskRecord {
		return TaskRecord{Task: launched, MachineID: machine}
	}
	before := []TaskRecord{record("a", 0), record("b", 1), record("c", 2)}
	present := []TaskRecord{record("c", 0), record("e", 1), record("a", 2)}
	placed, err := Assign(before, present, AssignOptions{Tasks: 3, Final: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	for i, p := range placed {
		fmt.Printf("%s: %d, %s\n", present[i].MachineID, p.Task, p.Reason)
	}
	// Output:
	// c: 2, keeps its number: machine "c" had it
	// e: 1, takes the place of machine "b"
	// a: 0, keeps its number: machine "a" had it
}
