package topo

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/wire/topopb"
)

func read(t *testing.T, assign bool, in ...*topopb.LocalTopologyProto) *Topology {
	t.Helper()
	g, err := build(in, assign)
	if err != nil {
		t.Fatalf("build() = %v", err)
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
	clause.Cite(t, "TC-TOP-01", "C-TOP-10")
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
	clause.Cite(t, "C-TOP-9")
	if got := BootID(" 4f1c-22\r\nab \n\n"); got != "4f1c-22ab" {
		t.Errorf("BootID(two lines) = %q; want both without blanks", got)
	}
}

func TestCPUDevice(t *testing.T) {
	clause.Cite(t, "TC-TOP-17", "C-TOP-42", "A-KEY-5")
	tests := []struct {
		task    serry.TaskIndex
		ordinal Ordinal
		want    serry.DeviceID
	}{{2, 3, 4099}, {0, 0, 0}, {1, 0, 2048}, {1<<20 - 1, 2047, 1<<31 - 1}}
	for _, test := range tests {
		got, err := cpuDevice(test.task, test.ordinal)
		if err != nil || got != test.want {
			t.Errorf("cpuDevice(%d, %d) = %d, %v; want %d", test.task, test.ordinal, got, err, test.want)
		}
	}
	for _, bad := range [][2]int32{{0, 2048}, {0, -1}, {-1, 0}, {1 << 20, 0}} {
		if got, err := cpuDevice(serry.TaskIndex(bad[0]), Ordinal(bad[1])); !errors.Is(err, serry.ErrInvalid) {
			t.Errorf("cpuDevice(%d, %d) = %d, %v; want an invalid request", bad[0], bad[1], got, err)
		}
	}
	if _, err := CPULocal(0, "", nil, 2049); !errors.Is(err, serry.ErrInvalid) {
		t.Errorf("CPULocal(2049 devices) = %v; want an invalid request", err)
	}
}

func TestKeys(t *testing.T) {
	clause.Cite(t, "C-TOP-5", "C-TOP-6", "A-KEY-5", "TC-TOP-30")
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
	clause.Cite(t, "TC-TOP-21", "TC-TOP-32", "C-TOP-31")
	// Switches put task 1 before task 0; task 2 has no devices; partitions of
	// tasks 0 and 3 interleave with that of 1.
	top := read(t, true,
		behind(local(0, "x", 0, 1), "s2"), behind(local(1, "y", 1, 0), "s1"),
		behind(local(2, "z"), "s3"), behind(local(3, "x", 0), "s4"))
	if got := fmt.Sprint(top.Tasks()); got != "[0 1 2 3]" {
		t.Errorf("Tasks() = %s; want 0 to 3 in order", got)
	}
	if got := fmt.Sprint(ids(top.Devices())); got != "[0 1 2 3 4]" {
		t.Errorf("Devices() = %s; want them by id", got)
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
}

func TestReadRefuses(t *testing.T) {
	clause.Cite(t, "C-TOP-40", "C-TOP-2")
	for name, in := range map[string]locals{
		"task twice":   {local(4, ""), local(4, "")},
		"device twice": {local(0, "", 0), local(1, "", 0)},
	} {
		if _, err := Read(&topopb.GlobalTopologyProto{Processes: in}); !errors.Is(err, serry.ErrInvalid) {
			t.Errorf("Read(%s) = %v; want an invalid request", name, err)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add(global([]byte{0x08, 1, 0x1a, 0}, []byte{0x1a, 0}))
	f.Fuzz(func(t *testing.T, value []byte) {
		g, err := parseGlobal(value)
		if err != nil {
			return
		}
		_ = validate(g, false)
		if len(g.Processes) > 0 {
			_, _ = build(g.Processes, true)
		}
		top, err := Read(g)
		if err != nil {
			return
		}
		for _, task := range top.Tasks() {
			if _, ok := top.Local(task); !ok {
				t.Errorf("task %d is not in its own topology", task)
			}
		}
	})
}
