package mesh

import (
	"fmt"
	"slices"
	"testing"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/lab"
)

func TestMeshChecksAxes(t *testing.T) {
	lab.Clause(t, "TC-MESH-21", "C-MESH-2", "C-MESH-3", "W-TOP-14")
	two := Hosts(2, 1)
	for name, c := range map[string]struct {
		axes  []Axis
		words []string
	}{
		"no name":        {[]Axis{{Size: 2}}, []string{"name"}},
		"same name":      {[]Axis{{Name: "x", Size: 1}, {Name: "x", Size: 2}}, []string{"'x'", "rename"}},
		"size zero":      {[]Axis{{Name: "x"}}, []string{"'x'", "size 0"}},
		"too few places": {[]Axis{{Name: "x", Size: 1}}, []string{"1 devices", "got 2"}},
		"unknown type":   {[]Axis{{Name: "x", Size: 2, Type: 9}}, []string{"'x'", "type"}},
		"overflow":       {[]Axis{{Name: "x", Size: 1 << 40}, {Name: "y", Size: 1 << 40}}, []string{"more than"}},
		"reserved name":  {[]Axis{{Name: "?", Size: 2}}, []string{"unconstrained"}},
		"control":        {[]Axis{{Name: "a\n", Size: 2}}, []string{"plain text"}},
	} {
		_, err := New(two, c.axes...)
		wantError(t, "New("+name+")", err, ErrInvalid, c.words...)
	}
	_, err := New([]Device{{ID: 3}, {ID: 3}}, Axis{Name: "x", Size: 2})
	wantError(t, "New(device twice)", err, ErrInvalid, "device 3", "twice")
}

func TestMeshTypes(t *testing.T) {
	lab.Clause(t, "TC-MESH-22", "C-MESH-3", "C-MESH-4")
	typed := func(types ...AxisType) *Mesh {
		var list []Axis
		for i, typ := range types {
			list = append(list, Axis{Name: string(rune('v' + i)), Size: 1, Type: typ})
		}
		return must(Make(Hosts(1, 1), list...))
	}
	if got := typed(Default, Default).AxesOf(Explicit); !slices.Equal(got, []string{"v", "w"}) {
		t.Errorf("Make(default types).AxesOf(Explicit) = %v; want all", got)
	}
	if got := must(New(Hosts(1, 1), Axis{Name: "v", Size: 1})).AxesOf(Auto); len(got) != 1 {
		t.Errorf("New(default types).AxesOf(Auto) = %v; want all", got)
	}
	m := typed(Explicit, Auto, Manual)
	for typ, want := range map[AxisType]string{Explicit: "v", Auto: "w", Manual: "x"} {
		if got := m.AxesOf(typ); !slices.Equal(got, []string{want}) {
			t.Errorf("AxesOf(%v) = %v; want %s", typ, got, want)
		}
	}
	a, b := typed(Auto, Auto, Auto, Auto, Auto), typed(Auto, Auto, Explicit, Auto, Auto)
	if a.Equal(b) || a.String() == b.String() {
		t.Errorf("meshes %v and %v with one type different are taken for equal", a, b)
	}
	if !a.Equal(typed(Auto, Auto, Auto, Auto, Auto)) {
		t.Errorf("equal meshes are taken for different")
	}
}

func TestMeshWithoutAxes(t *testing.T) {
	lab.Clause(t, "TC-MESH-23", "C-MESH-5", "C-MESH-9")
	empty := must(New(nil))
	if empty.Size() != 0 || empty.String() != "Mesh()" {
		t.Errorf("New() = %v of size %d; want Mesh() of size 0", empty, empty.Size())
	}
	if abstract := must(Abstract(nil)); abstract.Size() != 0 || !abstract.IsAbstract() {
		t.Errorf("Abstract() = %v of size %d; want the empty abstract mesh", abstract, abstract.Size())
	}
	one := must(New(Hosts(1, 1)))
	if one.Size() != 1 {
		t.Errorf("New(one device).Size() = %d; want 1", one.Size())
	}
}

func TestMeshText(t *testing.T) {
	lab.Clause(t, "TC-MESH-24", "C-MESH-6", "C-MESH-7")
	m := must(New(Hosts(8, 1), axes("xyz", 2, 2, 2)...))
	const want = "Mesh('x': 2, 'y': 2, 'z': 2, axis_types=(Auto, Auto, Auto))"
	if m.String() != want {
		t.Errorf("String() = %s; want %s", m, want)
	}
	if again := must(New(Hosts(8, 1), axes("xyz", 2, 2, 2)...)); !m.Equal(again) {
		t.Errorf("two meshes from the same devices and names differ")
	}
	spread := must(New(host(2, 0, 2, 4, 6, 9), axes("x", 5)...))
	if got, want := spread.String(), "Mesh('x': 5, axis_types=(Auto,), devices=(0:8:2, 9), tasks=(0, 1, 2, 3, 4))"; got != want {
		t.Errorf("String() = %s; want %s", got, want)
	}
	if got := spread.Tasks(); !slices.Equal(got, []serry.TaskIndex{0, 1, 2, 3, 4}) {
		t.Errorf("Tasks() = %v; want 0 to 4", got)
	}
}

func TestLocalMesh(t *testing.T) {
	lab.Clause(t, "TC-MESH-25", "C-MESH-8")
	list := []int{0, 2, 3, 1, 4, 6, 7, 5}
	m := must(New(host(4, list...), Axis{Name: "x", Size: 4, Type: Explicit}, Axis{Name: "y", Size: 2, Type: Explicit}))
	for task, want := range [][]int{{0, 2, 3, 1}, {4, 6, 7, 5}} {
		local, err := m.Local(serry.TaskIndex(task))
		if err != nil {
			t.Fatalf("Local(%d) = %v", task, err)
		}
		if got := meshIDs(local); !slices.Equal(got, want) || local.axes[0] != (Axis{"x", 2, Explicit}) {
			t.Errorf("Local(%d) = %v %v; want devices %v", task, local, got, want)
		}
	}
	_, err := must(New(host(2, list...), axes("xy", 4, 2)...)).Local(0)
	wantError(t, "Local(0) of scattered devices", err, ErrNonUniform, "contiguous subcube", "task 0")
	_, err = m.Local(7)
	wantError(t, "Local(7)", err, ErrNoDevices, "task 7", "0, 1")
	_, err = must(Abstract(nil, axes("x", 2)...)).Local(0)
	wantError(t, "Local of an abstract mesh", err, ErrAbstract)
}

func ExampleNew() {
	devices := []Device{{ID: 0}, {ID: 1}, {ID: 2, Task: 1}, {ID: 3, Task: 1}}
	m, err := New(devices, Axis{Name: "data", Size: 2}, Axis{Name: "model", Size: 2})
	fmt.Println(m, err)
	// Output: Mesh('data': 2, 'model': 2, axis_types=(Auto, Auto), tasks=(0*2, 1*2)) <nil>
}

func ExampleAbstract() {
	m, _ := Abstract(&Hardware{Platform: "tpu", Kind: "TPU v4", Cores: 2}, Axis{Name: "x", Size: 4})
	fmt.Println(m)
	// Output: AbstractMesh('x': 4, axis_types=(Explicit,), device_kind='TPU v4', num_cores=2, platform='tpu')
}

func ExampleMake() {
	v3 := &Hardware{Platform: "tpu", Kind: "TPU v3"}
	var devices []Device
	for i := range 8 {
		devices = append(devices, Device{ID: serry.DeviceID(i), Hardware: v3})
	}
	m, _ := Make(devices, Axis{Name: "ring", Size: 8})
	fmt.Println(m.Devices())
	// Output: [0 1 2 3 6 7 4 5]
}
