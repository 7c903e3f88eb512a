package mesh

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/lab"
)

// cube is mesh 2×2×2 (a, b, c) over the given number of tasks.
func cube(tasks int) *Mesh { return must(New(Hosts(8, tasks), axes("abc", 2, 2, 2)...)) }

func TestLocalDataOfOneTask(t *testing.T) {
	lab.Clause(t, "TC-DATA-01", "TC-DATA-09", "C-DATA-6")
	s := must(must(New(Hosts(2, 1), axes("xy", 2, 1)...)).Shard(spec("x")))
	data := ramp(float32s, 2, 5)
	for _, shape := range [][]int{nil, {2, 5}} {
		a, err := FromLocal(Layout{Shape: shape, Sharding: s}, data)
		if err != nil || !slices.Equal(a.Layout().Shape, []int{2, 5}) {
			t.Errorf("FromLocal(shape %v) = %v, %v; want shape (2, 5)", shape, a, err)
		}
	}
	for _, shape := range [][]int{{2, 8}, {2, 6}, {4, 5}, {2, 5, 1}} {
		_, err := FromLocal(Layout{Shape: shape, Sharding: s}, data)
		wantError(t, fmt.Sprint("FromLocal(shape ", shape, ")"), err, ErrInvalid)
	}
	big := ramp(float32s, 256, 512)
	a := must(FromLocal(Layout{Sharding: s}, big))
	if got := must(a.Value()); !bytes.Equal(got.Data, big.Data) || a.Layout().Sharding != s {
		t.Errorf("FromLocal(256, 512) does not come back")
	}
}

func TestRowsOfTasks(t *testing.T) {
	lab.Clause(t, "P-ARR-6", "TC-DATA-02", "C-DATA-2", "C-DATA-5")
	hostAxes := map[int]string{1: "", 2: "a", 4: "ab", 8: "abc"}
	for tasks, across := range hostAxes {
		for _, entries := range [][]string{{"abc"}, {"ab", "c"}, {"ab"}, {"a"}, {"b"}, {"c"}, {""}} {
			parts := 1
			for _, axis := range entries[0] {
				if bytes.ContainsRune([]byte(across), axis) {
					parts *= 2
				}
			}
			s := must(cube(tasks).Shard(spec(entries...)))
			var rows []int
			for i := range 8 {
				task := serry.TaskIndex(i * tasks / 8)
				v, err := s.View(task, 0, 2)
				if err != nil || v.Count != parts {
					t.Errorf("%v on %d tasks: View(%d) = %v, %v; want %d parts", entries, tasks, task, v, err, parts)
				}
				rows = append(rows, v.Index)
				if n := must(s.LocalShape([]int{8, 4}, task))[0]; n != 8/parts {
					t.Errorf("%v on %d tasks: task %d holds %d rows; want %d", entries, tasks, task, n, 8/parts)
				}
			}
			slices.Sort(rows)
			for i, part := range rows {
				if want := i * parts / 8; part != want {
					t.Errorf("%v on %d tasks: parts %v; want device %d at %d", entries, tasks, rows, i, want)
				}
			}
		}
	}
}

func TestGlobalShapes(t *testing.T) {
	lab.Clause(t, "TC-DATA-03", "TC-DATA-04")
	local := ramp(float32s, 4, 4)
	for tasks, want := range map[int][]int{1: {4, 4}, 2: {8, 4}, 4: {16, 4}, 8: {16, 8}} {
		l := Layout{Sharding: must(cube(tasks).Shard(spec("ab", "c")))}
		for _, name := range []string{"params", "opt"} { // a tree is one array per leaf
			a, err := FromLocal(l, local)
			if err != nil || !slices.Equal(a.Layout().Shape, want) {
				t.Errorf("%d tasks, %s: FromLocal = %v, %v; want shape %v", tasks, name, a, err, want)
			}
		}
		for _, given := range [][]int{want, {want[0], 4}, {4, want[1]}, {4, 4}} {
			l.Shape = given
			if _, err := FromLocal(l, local); err != nil {
				t.Errorf("%d tasks: FromLocal(shape %v) = %v", tasks, given, err)
			}
		}
		l.Shape = []int{4, Unknown}
		_, err := FromLocal(l, local)
		wantError(t, "FromLocal(4, unknown)", err, ErrInvalid, "supported")
	}
}

func TestViewsOfTasks(t *testing.T) {
	lab.Clause(t, "TC-DATA-05", "EX-SHD-4")
	for _, c := range []struct {
		entries []string
		shape   []int
		views   [2][]View // by dimension, then task
	}{
		{nil, []int{10, 10}, [2][]View{{{0, 1}, {0, 1}, {0, 1}, {0, 1}}, {{0, 1}, {0, 1}, {0, 1}, {0, 1}}}},
		{[]string{"abc"}, []int{40, 10}, [2][]View{{{0, 4}, {1, 4}, {2, 4}, {3, 4}}, {{0, 1}, {0, 1}, {0, 1}, {0, 1}}}},
		{[]string{"ab"}, []int{40, 10}, [2][]View{{{0, 4}, {1, 4}, {2, 4}, {3, 4}}, {{0, 1}, {0, 1}, {0, 1}, {0, 1}}}},
		{[]string{"", "ac"}, []int{10, 20}, [2][]View{{{0, 1}, {0, 1}, {0, 1}, {0, 1}}, {{0, 2}, {0, 2}, {1, 2}, {1, 2}}}},
		{[]string{"ac", "b"}, []int{20, 20}, [2][]View{{{0, 2}, {0, 2}, {1, 2}, {1, 2}}, {{0, 2}, {1, 2}, {0, 2}, {1, 2}}}},
		{[]string{"a", "bc"}, []int{20, 20}, [2][]View{{{0, 2}, {0, 2}, {1, 2}, {1, 2}}, {{0, 2}, {1, 2}, {0, 2}, {1, 2}}}},
	} {
		s := must(cube(4).Shard(spec(c.entries...)))
		for task := range serry.TaskIndex(4) {
			if got := must(s.globalShape([]int{10, 10}, task)); !slices.Equal(got, c.shape) {
				t.Errorf("%v: globalShape on task %d = %v; want %v", c.entries, task, got, c.shape)
			}
			for dim := range 2 {
				if got := must(s.View(task, dim, 2)); got != c.views[dim][task] {
					t.Errorf("%v: View(%d, %d) = %v; want %v", c.entries, task, dim, got, c.views[dim][task])
				}
			}
		}
	}
	mixed := must(New(host(2, 0, 5, 7, 2, 1, 6, 4, 3), axes("abc", 2, 2, 2)...))
	if got := must(must(mixed.Shard(spec("a", "bc"))).globalShape([]int{4, 4}, 0)); !slices.Equal(got, []int{4, Unknown}) {
		t.Errorf("globalShape over a mixed mesh = %v; want (4, unknown)", got)
	}
	if got := must(must(mixed.Shard(spec("abc"))).globalShape([]int{4, 4}, 0)); !slices.Equal(got, []int{16, 4}) {
		t.Errorf("globalShape over a mixed mesh = %v; want (16, 4)", got)
	}
	_, err := FromLocal(Layout{Sharding: must(mixed.Shard(spec("a", "bc")))}, ramp(float32s, 4, 4))
	wantError(t, "FromLocal over a mixed mesh", err, ErrNonUniform, "dimension 1", "give the shape")
}

func TestInterleavedTasks(t *testing.T) {
	lab.Clause(t, "TC-DATA-05", "EX-SHD-5", "EX-SHD-6", "EX-SHD-7")
	m := must(New(host(2, 0, 2, 1, 3, 4, 6, 5, 7), axes("xy", 2, 4)...))
	s := must(m.Shard(spec("x", "y")))
	a := must(FromLocal(Layout{Sharding: s}, ramp(int32s, 2, 2)))
	if got := a.Layout().Shape; !slices.Equal(got, []int{4, 4}) {
		t.Errorf("global shape %v; want (4, 4)", got)
	}
	if got := must(a.Data(1)).Data; !bytes.Equal(got, append(le32(1), le32(3)...)) {
		t.Errorf("device 1 got %v; want the second column", got)
	}
	if sh := a.Shards()[1]; sh.Device != 1 || sh.Index[1] != (Range{2, 3}) {
		t.Errorf("second shard = %v; want device 1 with column 2:3", sh)
	}
	// EX-SHD-6: slices (8, 12) and (24, 28) lie at (0, 4) and (4, 8) of the buffer.
	eight := must(New(host(1, 0, 1, 2, 3, 4, 5, 6, 7), axes("x", 8)...))
	eight.tasks = []serry.TaskIndex{1, 2, 0, 3, 4, 5, 0, 6}
	got := must(must(eight.Shard(spec("x"))).inLocal([]int{32}, []int{8}, 0))
	if !slices.Equal(got[0], Index{{0, 4}}) || !slices.Equal(got[1], Index{{4, 8}}) {
		t.Errorf("inLocal = %v; want [0:4], [4:8]", got)
	}
	// EX-SHD-7: replicas of a model across tasks.
	model := must(must(New(host(2, 0, 2, 1, 3, 4, 6, 5, 7), Axis{Name: "rep", Size: 4}, Axis{Name: "model", Size: 2})).Shard(P(Dim{"rep"})))
	for task, want := range []View{{0, 2}, {0, 2}, {1, 2}, {1, 2}} {
		if v := must(model.View(serry.TaskIndex(task), 0, 2)); v != want {
			t.Errorf("View(%d) = %v; want %v", task, v, want)
		}
		a := must(FromLocal(Layout{Sharding: model, Task: serry.TaskIndex(task)}, ramp(int32s, 4, 3)))
		if got := a.Layout().Shape; !slices.Equal(got, []int{8, 3}) {
			t.Errorf("global shape on task %d = %v; want (8, 3)", task, got)
		}
		for _, sh := range a.Shards() {
			first := must(a.Data(sh.Device)).Data[:4]
			if want := le32(sh.Index[0].Start % 4 * 3); !bytes.Equal(first, want) {
				t.Errorf("device %d starts with %v; want %v", sh.Device, first, want)
			}
		}
	}
}

func le32(v int) []byte { return binary.LittleEndian.AppendUint32(nil, uint32(v)) }

// pattern builds a sharding of rows and columns from a picture: the digit of
// each cell is the task of its device.
func pattern(rows ...string) *Sharding {
	var devices []Device
	for _, row := range rows {
		for _, digit := range row {
			devices = append(devices, Device{ID: serry.DeviceID(len(devices)), Task: serry.TaskIndex(digit - '0'), Slice: NoSlice})
		}
	}
	return must(must(New(devices, axes("xy", len(rows), len(rows[0]))...)).Shard(spec("x", "y")))
}

func TestViewPatterns(t *testing.T) {
	lab.Clause(t, "TC-DATA-06", "C-DATA-3", "W-TOP-19")
	check := func(s *Sharding, dim int, want map[serry.TaskIndex]View) {
		t.Helper()
		for task, w := range want {
			if got, err := s.View(task, dim, 2); err != nil || got != w {
				t.Errorf("View(%d, %d) = %v, %v; want %v", task, dim, got, err, w)
			}
		}
	}
	a := pattern("1234", "2143")
	check(a, 0, map[serry.TaskIndex]View{1: {0, 1}, 2: {0, 1}, 3: {0, 1}, 4: {0, 1}})
	check(a, 1, map[serry.TaskIndex]View{1: {0, 2}, 2: {0, 2}, 3: {1, 2}, 4: {1, 2}})
	b := pattern("1212", "3434")
	check(b, 0, map[serry.TaskIndex]View{1: {0, 2}, 2: {0, 2}, 3: {1, 2}, 4: {1, 2}})
	check(b, 1, map[serry.TaskIndex]View{1: {0, 2}, 3: {0, 2}, 2: {1, 2}, 4: {1, 2}})
	c := pattern("1122", "2121", "1121", "1222")
	check(c, 0, map[serry.TaskIndex]View{1: {0, 1}, 2: {0, 1}})
	for task := range serry.TaskIndex(2) {
		_, err := c.View(task+1, 1, 2)
		wantError(t, "View of uneven columns", err, ErrNonUniform, "dimension 1")
	}
}

func TestAddressableSizes(t *testing.T) {
	lab.Clause(t, "TC-DATA-07")
	s := pattern("1221", "1221", "0000")
	for task, want := range [][]int{{1, 4}, {2, 2}, {2, 2}} {
		if got := must(s.LocalShape([]int{3, 4}, serry.TaskIndex(task))); !slices.Equal(got, want) {
			t.Errorf("LocalShape(task %d) = %v; want %v", task, got, want)
		}
	}
}

func TestOneSplitDimensionCanBeUneven(t *testing.T) {
	lab.Clause(t, "TC-DATA-08", "C-DATA-4", "W-TOP-21")
	m := must(New(host(1, 0, 1, 2, 3, 4, 5), axes("xy", 3, 2)...))
	m.tasks = []serry.TaskIndex{0, 1, 0, 2, 1, 2}
	_, err := must(m.Shard(spec("x"))).View(0, 0, 1)
	wantError(t, "View", err, ErrNonUniform, "overlapping", "dimension 0")
}

func TestTasksWithoutDevicesLoadNothing(t *testing.T) {
	lab.Clause(t, "C-DATA-2", "C-MESH-8")
	s := must(grid4x2(4).Shard(spec("x")))
	_, err := s.View(9, 0, 2)
	wantError(t, "View(9)", err, ErrNoDevices, "task 9")
	_, err = FromLocal(Layout{Sharding: s, Task: 9}, ramp(float32s, 2, 2))
	wantError(t, "FromLocal without a shape", err, ErrNoDevices, "task 9")
	a, err := FromLocal(Layout{Shape: []int{8, 2}, Sharding: s, Task: 9}, Block{Shape: []int{0}, Element: float32s})
	if err != nil || len(a.Shards()) != 0 {
		t.Errorf("FromLocal with a shape = %v, %v; want an array without shards", a, err)
	}
	if got := must(s.LocalShape([]int{8, 2}, 9)); !slices.Equal(got, []int{0, 0}) {
		t.Errorf("LocalShape(9) = %v; want nothing", got)
	}
}

func ExampleFromLocal() {
	// Two tasks with two devices each split the batch; each loads its half.
	m, _ := New(Hosts(4, 2), Axis{Name: "data", Size: 4})
	s, _ := m.Shard(P(Dim{"data"}))
	half := Block{Shape: []int{4, 1}, Element: Element{"uint8", 1}, Data: []byte{4, 5, 6, 7}}
	a, err := FromLocal(Layout{Sharding: s, Task: 1}, half)
	fmt.Println(a, err)
	for _, sh := range a.Shards() {
		b, _ := a.Data(sh.Device)
		fmt.Println(sh.Device, sh.Index, b.Data)
	}
	// Output:
	// Array(shape=(8, 1), dtype=uint8) <nil>
	// 2 [4:6, 0:1] [4 5]
	// 3 [6:8, 0:1] [6 7]
}
