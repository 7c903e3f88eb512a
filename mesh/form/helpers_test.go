package form

import (
	"errors"
	"strings"
	"testing"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/mesh"
	"pgregory.net/rapid"
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// wantError fails unless err is of the kind and its text has all words.
func wantError(t testing.TB, call string, err, kind error, words ...string) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Fatalf("%s = %v; want an error that is %q", call, err, kind)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%s = %q; want it to contain %q", call, err, w)
		}
	}
}

// axes names sizes x, y, z, w or the letters given.
func axes(names string, sizes ...int) []mesh.Axis {
	out := make([]mesh.Axis, len(sizes))
	for i, n := range sizes {
		out[i] = mesh.Axis{Name: names[i : i+1], Size: n}
	}
	return out
}

// grid4x2 is the mesh of EX-SHD-1 with the devices spread over tasks.
func grid4x2(tasks int) *mesh.Mesh { return must(mesh.New(mesh.Hosts(8, tasks), axes("xy", 4, 2)...)) }

// spec reads P("x", "yz", "") where each letter is an axis and "" is None.
func spec(entries ...string) mesh.Spec {
	s := mesh.Spec{Dims: make([]mesh.Dim, len(entries))}
	for i, e := range entries {
		for _, r := range e {
			s.Dims[i] = append(s.Dims[i], string(r))
		}
	}
	return s
}

// drawMesh makes a random mesh of at most 48 devices: random axes, ids with
// gaps in any order, random owners.
func drawMesh(t *rapid.T, label string) *mesh.Mesh {
	sizes := rapid.SliceOfN(rapid.IntRange(1, 4), 0, 4).Draw(t, label+" sizes")
	for product(sizes) > 48 {
		sizes = sizes[1:]
	}
	n := product(sizes)
	order := rapid.Permutation(count(n+4)).Draw(t, label+" devices")[:n]
	tasks := rapid.IntRange(1, 4).Draw(t, label+" tasks")
	devices := make([]mesh.Device, n)
	for i, id := range order {
		devices[i] = mesh.Device{ID: serry.DeviceID(id), Task: serry.TaskIndex(id % tasks), Slice: mesh.NoSlice}
	}
	list := axes("wxyz", sizes...)
	for i := range list {
		list[i].Type = rapid.SampledFrom([]mesh.AxisType{mesh.Auto, mesh.Explicit}).Draw(t, label+" type")
	}
	return must(mesh.New(devices, list...))
}

// drawSpec splits dimensions over random axes of m, each used at most once.
func drawSpec(t *rapid.T, m *mesh.Mesh, rank int, label string) mesh.Spec {
	s := mesh.Spec{Dims: make([]mesh.Dim, rank)}
	for _, name := range rapid.Permutation(names(m)).Draw(t, label+" axes") {
		if d := rapid.IntRange(-1, rank-1).Draw(t, label+" dim"); d >= 0 {
			s.Dims[d] = append(s.Dims[d], name)
		}
	}
	return s
}

// drawShape makes sizes that both shardings divide, some of them zero.
func drawShape(t *rapid.T, shardings ...*mesh.Sharding) []int {
	rank := len(shardings[0].Spec().Dims)
	shape := make([]int, rank)
	for d := range shape {
		n := 1
		for _, s := range shardings {
			ways := 1
			for _, axis := range s.Spec().Dims[d] {
				a, _ := s.Mesh().Axis(axis)
				ways *= a.Size
			}
			n = lcm(n, ways)
		}
		shape[d] = n * rapid.SampledFrom([]int{1, 1, 1, 2, 3, 0}).Draw(t, "times")
	}
	return shape
}

func lcm(a, b int) int {
	x, y := a, b
	for y != 0 {
		x, y = y, x%y
	}
	return a / x * b
}

func count(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

func product(sizes []int) int {
	n := 1
	for _, s := range sizes {
		n *= s
	}
	return n
}

func names(m *mesh.Mesh) []string {
	var out []string
	for _, a := range m.Axes() {
		out = append(out, a.Name)
	}
	return out
}

type fataler interface{ Fatalf(string, ...any) }
