package mesh

import (
	"slices"
	"testing"

	"github.com/serry-dev/serry/internal/lab"
)

func TestPhysicalMesh(t *testing.T) {
	lab.Clause(t, "TC-MESH-01", "C-MESH-19")
	for _, s := range [][3]int{{1, 2, 1}, {4, 4, 4}, {8, 8, 16}} {
		devices := tpu("TPU v4", s[0], s[1], s[2], 1, 1)
		for _, list := range [][]Device{devices, reversed(devices)} {
			g, err := physicalMesh(list)
			if err != nil || !slices.Equal(g.shape, s[:]) {
				t.Fatalf("physicalMesh(%v) = %v, %v; want that shape", s, g.shape, err)
			}
			for i, d := range g.cells {
				if want := [3]int{i / (s[1] * s[2]), i / s[2] % s[1], i % s[2]}; d.Coords != want {
					t.Fatalf("physicalMesh(%v) has %v at %v", s, d.Coords, want)
				}
			}
		}
	}
}

func TestPhysicalMeshOfParts(t *testing.T) {
	lab.Clause(t, "TC-MESH-02", "TC-MESH-03", "TC-MESH-04")
	v2 := tpu("TPU v2", 1, 1, 1, 2, 1)
	check := func(name string, devices []Device, shape []int, want ...int) {
		t.Helper()
		g, err := physicalMesh(devices)
		if err != nil || !slices.Equal(g.shape, shape) || !slices.Equal(ids(g.cells), want) {
			t.Errorf("physicalMesh(%s) = %v %v, %v; want %v %v", name, g.shape, ids(g.cells), err, shape, want)
		}
	}
	check("v2", v2, []int{1, 1, 2}, 0, 1)
	check("v2 core 0", v2[:1], []int{1, 1, 1}, 0)
	check("v2 core 1", v2[1:], []int{1, 1, 1}, 1)
	v4 := tpu("TPU v4", 1, 2, 1, 1, 1)
	check("v4 (0,1,0)", v4[1:], []int{1, 1, 1}, int(v4[1].ID))
	v5e := tpu("TPU v5 lite", 4, 4, 1, 1, 1)
	if g, err := physicalMesh(v5e); err != nil || !slices.Equal(g.shape, []int{4, 4, 1}) {
		t.Errorf("physicalMesh(v5e 4×4) = %v, %v; want (4, 4, 1)", g.shape, err)
	}
	for _, low := range []int{0, 2} {
		g, err := physicalMesh(v5eHalf(v5e, low))
		if err != nil || !slices.Equal(g.shape, []int{4, 2, 1}) {
			t.Fatalf("physicalMesh(half from %d) = %v, %v; want (4, 2, 1)", low, g.shape, err)
		}
		for i, d := range g.cells {
			if want := [3]int{i / 2, low + i%2, 0}; d.Coords != want {
				t.Errorf("half from %d has %v at place %d; want %v", low, d.Coords, i, want)
			}
		}
	}
}

func v5eHalf(devices []Device, low int) []Device {
	return slices.DeleteFunc(slices.Clone(devices), func(d Device) bool { return d.Coords[1] < low || d.Coords[1] >= low+2 })
}

func TestPhysicalMeshWithHoles(t *testing.T) {
	lab.Clause(t, "TC-MESH-05")
	half := v5eHalf(tpu("TPU v5 lite", 4, 4, 1, 1, 1), 0)
	_, err := physicalMesh(half[:7])
	wantError(t, "physicalMesh(7 of 8)", err, ErrNotCuboid)
	_, err = physicalMesh(append(slices.Clone(half[:7]), half[0]))
	wantError(t, "physicalMesh(one twice)", err, ErrNotCuboid, "not a contiguous cuboid")
	_, err = physicalMesh(tpu("TPU v4", 2, 2, 1, 2, 1))
	wantError(t, "physicalMesh(v4 with two cores)", err, ErrNotCuboid, "one device per chip")
}

func TestOrderOfKinds(t *testing.T) {
	ring := []int{0, 1, 2, 3, 6, 7, 4, 5}
	rings := func(n int) []int {
		var out []int
		for base := 0; base < n; base += 8 {
			for _, i := range ring {
				out = append(out, base+i)
			}
		}
		return out
	}
	for _, c := range []struct {
		clause, name string
		devices      []Device
		shape        []int
		want         []int
	}{
		{"TC-MESH-15", "v3 2×2", tpu("TPU v3", 2, 2, 1, 2, 1), []int{8}, ring},
		{"TC-MESH-15", "v3 2×2", tpu("TPU v3", 2, 2, 1, 2, 1), []int{2, 4}, ring},
		{"TC-MESH-15", "v3 4×4", tpu("TPU v3", 4, 4, 1, 2, 1), []int{4, 8}, []int{0, 1, 2, 3, 10, 11, 8, 9, 4, 5, 6, 7, 14, 15, 12, 13,
			16, 17, 18, 19, 26, 27, 24, 25, 20, 21, 22, 23, 30, 31, 28, 29}},
		{"TC-MESH-16", "v5e 4×2", tpu("TPU v5 lite", 4, 2, 1, 1, 1), []int{8}, []int{0, 1, 2, 3, 7, 6, 5, 4}},
		{"TC-MESH-16", "v5e 2×2×2", tpu("TPU v5 lite", 2, 2, 2, 1, 1), []int{8}, []int{0, 4, 2, 6, 1, 5, 3, 7}},
		{"TC-MESH-17", "7x 1×1×1", tpu("TPU7x", 1, 1, 1, 2, 1), []int{1, 1, 2}, []int{0, 1}},
		{"TC-MESH-17", "7x 2×2×1", tpu("TPU7x", 2, 2, 1, 2, 1), []int{2, 1, 4}, ring},
		{"TC-MESH-17", "7 2×2×1", tpu("TPU7", 2, 2, 1, 2, 1), []int{4, 1, 2}, ring},
		{"TC-MESH-17", "7x 2×2×2", tpu("TPU7x", 2, 2, 2, 2, 1), []int{4, 2, 2}, rings(16)},
		{"TC-MESH-17", "7x 2×2×2", tpu("TPU7x", 2, 2, 2, 2, 1), []int{2, 8}, rings(16)},
		{"TC-MESH-17", "7x 2×2×4", tpu("TPU7x", 2, 2, 4, 2, 1), []int{4, 4, 2}, rings(32)},
		{"TC-MESH-17", "7x 2×2×4", tpu("TPU7x", 2, 2, 4, 2, 1), []int{4, 2, 4}, rings(32)},
		{"TC-MESH-17", "7x 2×2×4", tpu("TPU7x", 2, 2, 4, 2, 1), []int{8, 4}, rings(32)},
		{"TC-MESH-17", "7x 2×2×4", tpu("TPU7x", 2, 2, 4, 2, 1), []int{4, 8}, rings(32)},
		{"C-MESH-16", "v4 lite", tpu("TPU v4 lite", 2, 2, 1, 1, 1), []int{4}, []int{0, 1, 3, 2}},
		{"C-MESH-16", "v5p 2×2×2", tpu("TPU v5p", 2, 2, 2, 1, 1), []int{8}, []int{0, 1, 3, 2, 6, 7, 5, 4}},
		{"C-MESH-16", "v6 4×4", tpu("TPU v6 lite", 4, 4, 1, 1, 1), []int{16}, []int{0, 1, 2, 3, 7, 6, 5, 9, 10, 11, 15, 14, 13, 12, 8, 4}},
	} {
		lab.Clause(t, c.clause)
		got, err := Arrange(c.devices, c.shape, Order{})
		if err != nil || !slices.Equal(ids(got), c.want) {
			t.Errorf("Arrange(%s, %v) = %v, %v; want %v", c.name, c.shape, ids(got), err, c.want)
		}
	}
}

func TestOrderOfPart7x(t *testing.T) {
	lab.Clause(t, "C-MESH-18", "TC-MESH-18")
	devices := tpu("TPU7x", 2, 4, 4, 2, 1)
	for _, part := range [][]Device{devices[:32], devices[32:]} {
		if _, err := Arrange(part, []int{1, 32}, Order{}); err != nil {
			t.Errorf("Arrange(32 of 64, (1, 32)) = %v; want no error", err)
		}
	}
}

func TestArrangeRefuses(t *testing.T) {
	lab.Clause(t, "TC-MESH-12", "C-MESH-15")
	_, err := Arrange(Hosts(8, 1), []int{4, 4}, Order{})
	wantError(t, "Arrange(8, (4, 4))", err, ErrInvalid, "number of devices 8", "(4, 4)")
	_, err = Arrange(nil, []int{0}, Order{})
	wantError(t, "Arrange(none)", err, ErrInvalid)
}

func TestMakeMesh(t *testing.T) {
	lab.Clause(t, "TC-MESH-20", "C-MESH-12", "C-MESH-13", "C-MESH-14")
	hw := &Hardware{Platform: "tpu", Kind: "TPU v3"}
	v3 := Hosts(16, 2)
	for i := range v3 {
		v3[i].Hardware, v3[i].Slice = hw, 0
	}
	m := must(Make(v3, axes("xy", 2, 8)...))
	if got, want := meshIDs(m), []int{0, 1, 2, 3, 6, 7, 4, 5, 8, 9, 10, 11, 14, 15, 12, 13}; !slices.Equal(got, want) {
		t.Errorf("Make(2, 8) = %v; want %v", got, want)
	}
	if got := meshIDs(must(Make(v3, axes("xy", 4, 4)...))); !slices.Equal(got, count(16)) {
		t.Errorf("Make(4, 4) = %v; want 0…15", got)
	}
	if got := meshIDs(must(Make(v3, axes("xy", 3, 2)...))); !slices.Equal(got, count(6)) {
		t.Errorf("Make(3, 2) = %v; want the first six", got)
	}
	_, err := Make(v3, axes("xy", 4, 8)...)
	wantError(t, "Make(4, 8)", err, ErrInvalid, "number of devices 16", "(4, 8)")
	v3[15].Slice = 1
	_, err = Make(v3, axes("xy", 2, 8)...)
	wantError(t, "Make(two slices)", err, ErrInvalid, "slices", "Hybrid")
}

func TestContiguousSubmeshes(t *testing.T) {
	lab.Clause(t, "TC-MESH-19", "C-MESH-20")
	for _, known := range forTasks {
		p := known.physical
		devices := tpu("TPU v4", p[0], p[1], p[2], 1, 1)
		for _, want := range known.logical {
			for _, shape := range [][]int{want[:], {1, want[0], want[1], 1}} {
				laid, err := Arrange(devices, shape, Order{Contiguous: true})
				if err != nil {
					t.Errorf("Arrange(%v, %v, Contiguous) = %v", p, shape, err)
					continue
				}
				m := must(New(laid, axes("abcd", shape...)...))
				for _, task := range m.Tasks() {
					if _, err := m.Local(task); err != nil {
						t.Errorf("%v as %v: Local(%d) = %v", p, shape, task, err)
					}
				}
			}
		}
	}
	_, err := Arrange(tpu("TPU v4", 4, 4, 8, 1, 1), []int{1, 16, 8}, Order{Contiguous: true})
	wantError(t, "Arrange(4×4×8)", err, ErrInvalid, "physical topology (4, 4, 8)")
	_, err = Arrange(tpu("TPU v4", 4, 8, 8, 1, 1), []int{1, 128, 2}, Order{Contiguous: true})
	wantError(t, "Arrange(4×8×8)", err, ErrInvalid, "[(64, 4), (4, 64)]")
}

func TestHybrid(t *testing.T) {
	lab.Clause(t, "TC-MESH-14", "TC-MESH-26", "C-MESH-28", "C-MESH-29", "C-MESH-30", "W-TOP-16")
	devices := tpu("TPU v4", 4, 4, 4, 1, 2)
	for _, c := range [][2][]int{{{1, 16, 4}, {2, 1, 1}}, {{1, 4, 16}, {1, 2, 1}}} {
		laid := must(Hybrid(devices, c[0], c[1], Order{}))
		back := must(Hybrid(append(slices.Clone(devices[64:]), devices[:64]...), c[0], c[1], Order{}))
		if !slices.Equal(ids(laid), ids(back)) || len(laid) != 128 {
			t.Errorf("Hybrid(%v) depends on the order of slices", c)
		}
	}
	listed := must(Hybrid(append(slices.Clone(devices[64:]), devices[:64]...), []int{1, 16, 4}, []int{2, 1, 1}, Order{AsListed: true}))
	if listed[0].Slice != 1 {
		t.Errorf("Hybrid(AsListed) starts with slice %d; want 1", listed[0].Slice)
	}
	for _, c := range []struct {
		n            int
		inner, outer []int
		want         []int
	}{
		{8, []int{1, 4}, []int{2, 1}, count(8)},
		{8, []int{1, 4}, []int{1, 2}, count(8)},
		{16, []int{2, 2}, []int{2, 2}, []int{0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15}},
	} {
		got, err := Hybrid(Hosts(c.n, c.n/4), c.inner, c.outer, Order{ByTask: true})
		if err != nil || !slices.Equal(ids(got), c.want) {
			t.Errorf("Hybrid(%d, %v, %v) = %v, %v; want %v", c.n, c.inner, c.outer, ids(got), err, c.want)
		}
	}
	_, err := Hybrid(Hosts(8, 2), []int{4}, []int{2}, Order{})
	wantError(t, "Hybrid(no slices)", err, ErrInvalid, "ByTask")
	_, err = Hybrid(Hosts(8, 2), []int{4}, []int{3}, Order{ByTask: true})
	wantError(t, "Hybrid(two granules as three)", err, ErrInvalid, "number of slices 2", "(3,)")
	_, err = Hybrid(Hosts(8, 2), []int{4}, []int{2, 1}, Order{ByTask: true})
	wantError(t, "Hybrid(other rank)", err, ErrInvalid, "rank")
	_, err = Hybrid(Hosts(8, 3), []int{4}, []int{3}, Order{ByTask: true})
	wantError(t, "Hybrid(unequal granules)", err, ErrInvalid, "granule 0")
}
