package topo

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/wire/topopb"
)

func read(t *testing.T, assign bool, in ...*topopb.LocalTopologyProto) *Topology {
	t.Helper()
	g, err := Build(in, assign, PolicyXLA)
	if err != nil {
		t.Fatalf("Build() = %v", err)
	}
	top, err := Read(g)
	if err != nil {
		t.Fatalf("Read() = %v", err)
	}
	return top
}

func ids(devices []Device) []serry.DeviceID {
	var out []serry.DeviceID
	for _, d := range devices {
		out = append(out, d.ID)
	}
	return out
}

func TestNetworkNodes(t *testing.T) {
	clause(t, "TC-TOP-01", "C-TOP-10")
	for value, want := range map[string][]string{
		"spine,pod,rack": {"spine", "pod", "rack"},
		"a,, ,b ":        {"a", "b "},
		"":               nil,
		"\t,\v":          nil,
		"\u00a0":         {"\u00a0"}, // only ASCII counts as blank
	} {
		if got := NetworkNodes(value); !slices.Equal(got, want) {
			t.Errorf("NetworkNodes(%q) = %q; want %q", value, got, want)
		}
	}
}

func TestBootID(t *testing.T) {
	clause(t, "C-TOP-9")
	if got := BootID(" 4f1c-22\r\nab \n\n"); got != "4f1c-22ab" {
		t.Errorf("BootID(two lines) = %q; want both without blanks", got)
	}
}

func TestCPUDevice(t *testing.T) {
	clause(t, "TC-TOP-17", "C-TOP-42", "A-KEY-5")
	tests := []struct {
		task    Task
		ordinal Ordinal
		want    serry.DeviceID
	}{{2, 3, 4099}, {0, 0, 0}, {1, 0, 2048}, {1<<20 - 1, 2047, 1<<31 - 1}}
	for _, test := range tests {
		got, err := CPUDevice(test.task, test.ordinal)
		if err != nil || got != test.want {
			t.Errorf("CPUDevice(%d, %d) = %d, %v; want %d", test.task, test.ordinal, got, err, test.want)
		}
		if task, ordinal := SplitCPUDevice(got); task != test.task || ordinal != test.ordinal {
			t.Errorf("SplitCPUDevice(%d) = %d, %d; want %d, %d", got, task, ordinal, test.task, test.ordinal)
		}
	}
	for _, bad := range [][2]int32{{0, 2048}, {0, -1}, {-1, 0}, {1 << 20, 0}} {
		if got, err := CPUDevice(Task(bad[0]), Ordinal(bad[1])); !errors.Is(err, serry.ErrInvalid) {
			t.Errorf("CPUDevice(%d, %d) = %d, %v; want an invalid request", bad[0], bad[1], got, err)
		}
	}
	if _, err := CPULocal(0, "", nil, 2049); !errors.Is(err, serry.ErrInvalid) {
		t.Errorf("CPULocal(2049 devices) = %v; want an invalid request", err)
	}
}

func TestKeys(t *testing.T) {
	clause(t, "C-TOP-5", "C-TOP-6", "A-KEY-5", "TC-TOP-30")
	k := JAXKeys("cuda")
	got := []string{k.Local(3), k.Global(), Keys{Platform: "cpu"}.Local(0)}
	want := []string{"cuda:local_topology/cuda/3", "cuda:global_topology/cuda", "local_topology/cpu/0"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("keys (-want +got)\n%s", diff)
	}
	if Republished(k.Error(), nil, nil) || Republished(k.Identity(0), nil, nil) {
		t.Error("our own keys are matched by the default patterns; want them left alone")
	}
}

func TestTopologyQueries(t *testing.T) {
	clause(t, "TC-TOP-21", "TC-TOP-32", "C-TOP-31", "C-TOP-35", "C-TOP-38", "C-TOP-41")
	// Switches put task 1 before task 0; task 2 has no devices; partitions of
	// tasks 0 and 3 interleave with that of 1.
	top := read(t, true,
		behind(local(0, "x", 0, 1), "s2"), behind(local(1, "y", 1, 0), "s1"),
		behind(local(2, "z"), "s3"), behind(local(3, "x", 0), "s4"))
	if got := fmt.Sprint(top.Tasks()); got != "[0 1 2 3]" {
		t.Errorf("Tasks() = %s; want 0 to 3 in order", got)
	}
	for task, want := range map[Task]int{1: 0, 0: 1, 2: 2, 3: 3} {
		if got, ok := top.Position(task); !ok || got != want {
			t.Errorf("Position(%d) = %d, %v; want %d", task, got, ok, want)
		}
	}
	if got := fmt.Sprint(ids(top.Devices()), ids(top.DevicesByTask())); got != "[0 1 2 3 4] [2 3 0 1 4]" {
		t.Errorf("devices by id and by task = %s; want [0 1 2 3 4] [2 3 0 1 4]", got)
	}
	if d, ok := top.Local(1); !ok || fmt.Sprint(ids(d)) != "[1 0]" {
		t.Errorf("Local(1) = %v, %v; want ids 1 and 0, by ordinal", ids(d), ok)
	}
	if d, ok := top.Local(2); !ok || len(d) != 0 {
		t.Errorf("Local(2) = %v, %v; want a task without devices", d, ok)
	}
	if _, ok := top.Local(9); ok {
		t.Error("Local(9) is true; want false for a task that is not there")
	}
	if d, ok := top.Device(3); !ok || d.Task != 0 || d.Ordinal != 1 || d.BootID != "x" {
		t.Errorf("Device(3) = %+v, %v; want ordinal 1 of task 0", d, ok)
	}
	if _, ok := top.Device(5); ok {
		t.Error("Device(5) is true; want false")
	}
	for task, want := range map[Task]int{0: 0, 3: 1, 1: 0} {
		if got, ok := top.IndexInPartition(task); !ok || got != want {
			t.Errorf("IndexInPartition(%d) = %d, %v; want %d", task, got, ok, want)
		}
	}
	if _, ok := top.IndexInPartition(2); ok {
		t.Error("IndexInPartition of a task without devices is true; want false")
	}
}

func TestReadRefuses(t *testing.T) {
	clause(t, "C-TOP-40", "C-TOP-2")
	for name, in := range map[string]locals{
		"task twice":   {local(4, ""), local(4, "")},
		"device twice": {local(0, "", 0), local(1, "", 0)},
	} {
		if _, err := Read(&topopb.GlobalTopologyProto{Processes: in}); !errors.Is(err, serry.ErrInvalid) {
			t.Errorf("Read(%s) = %v; want an invalid request", name, err)
		}
	}
}

func TestShape(t *testing.T) {
	uneven := Shape{-1, -1, -1}
	tests := []struct {
		clause string
		in     locals
		want   Shape
	}{
		{"TC-TOP-12", locals{local(0, "foo", 0, 1), local(1, "bar", 0, 1)}, Shape{2, 1, 2}},
		{"TC-TOP-13", locals{local(0, "foo", 0), local(1, "foo", 0), local(2, "bar", 0)}, uneven},
		{"TC-TOP-14", locals{local(0, "foo", 0, 1), local(1, "bar", 0)}, uneven},
		{"C-TOP-33", locals{local(0, "foo"), local(1, "bar")}, uneven},
	}
	for _, test := range tests {
		t.Run(test.clause, func(t *testing.T) {
			clause(t, test.clause)
			if got := read(t, true, test.in...).Shape(); got != test.want {
				t.Errorf("Shape() = %v; want %v", got, test.want)
			}
		})
	}
}

func TestMock(t *testing.T) {
	clause(t, "TC-TOP-19", "TC-TOP-20", "C-TOP-37")
	own, err := Mock(Shape{4, 1, 2})
	if want := "0:0/0,0/1 1:1/2,1/3 2:2/4,2/5 3:3/6,3/7"; err != nil || layout(own) != want {
		t.Errorf("Mock(4x1x2) = %s, %v; want %s", layout(own), err, want)
	}
	s, err := ParseShape("2x4x2")
	if err != nil {
		t.Fatalf("ParseShape(2x4x2) = %v", err)
	}
	g, err := Mock(s)
	if err != nil || len(g.Processes) != 8 {
		t.Fatalf("Mock(2x4x2) = %s, %v; want eight tasks", layout(g), err)
	}
	if top, err := Read(g); err != nil || top.Shape() != s || s.String() != "2x4x2" {
		t.Errorf("Read(Mock(%v)) has shape %v, %v; want the same", s, top.Shape(), err)
	}
	for _, bad := range []string{"2x4", "2x4x2x1", "", "axbxc", "0x1x1", "-1x1x1", "99999999x1x1"} {
		if got, err := ParseShape(bad); !errors.Is(err, serry.ErrInvalid) {
			t.Errorf("ParseShape(%q) = %v, %v; want an invalid request", bad, got, err)
		}
	}
	if _, err := Mock(Shape{1 << 20, 1 << 20, 1 << 20}); !errors.Is(err, serry.ErrInvalid) {
		t.Errorf("Mock(too large) = %v; want an invalid request", err)
	}
}

func FuzzRead(f *testing.F) {
	f.Add(global([]byte{0x08, 1, 0x1a, 0}, []byte{0x1a, 0}))
	f.Fuzz(func(t *testing.T, value []byte) {
		g, err := ParseGlobal(value)
		if err != nil {
			return
		}
		_, _ = Check(g, false)
		if len(g.Processes) > 0 {
			_, _ = Build(g.Processes, true, PolicyXLA)
		}
		top, err := Read(g)
		if err != nil {
			return
		}
		top.Shape()
		for _, task := range top.Tasks() {
			if _, ok := top.Position(task); !ok {
				t.Errorf("task %d has no position", task)
			}
			top.IndexInPartition(task)
		}
	})
}

func FuzzParseShape(f *testing.F) {
	f.Add("2x4x8")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseShape(text)
		if err != nil {
			return
		}
		if again, err := ParseShape(s.String()); err != nil || again != s {
			t.Errorf("ParseShape(%v) = %v, %v; want the same", s, again, err)
		}
	})
}
