package mesh

import (
	"github.com/serry-dev/serry"
	"pgregory.net/rapid"
)

// drawMesh makes a random mesh of at most 48 devices: random axes, ids with
// gaps in any order, random owners.
func drawMesh(t *rapid.T, label string) *Mesh {
	sizes := rapid.SliceOfN(rapid.IntRange(1, 4), 0, 4).Draw(t, label+" sizes")
	for product(sizes) > 48 {
		sizes = sizes[1:]
	}
	n := product(sizes)
	order := rapid.Permutation(count(n+4)).Draw(t, label+" devices")[:n]
	tasks := rapid.IntRange(1, 4).Draw(t, label+" tasks")
	devices := make([]Device, n)
	for i, id := range order {
		devices[i] = Device{ID: serry.DeviceID(id), Task: serry.TaskIndex(id % tasks), Slice: NoSlice}
	}
	list := axes("wxyz", sizes...)
	for i := range list {
		list[i].Type = rapid.SampledFrom([]AxisType{Auto, Explicit}).Draw(t, label+" type")
	}
	return must(New(devices, list...))
}

// drawSpec splits dimensions over random axes of m, each used at most once.
func drawSpec(t *rapid.T, m *Mesh, rank int, label string) Spec {
	s := Spec{Dims: make([]Dim, rank)}
	for _, name := range rapid.Permutation(m.names()).Draw(t, label+" axes") {
		if d := rapid.IntRange(-1, rank-1).Draw(t, label+" dim"); d >= 0 {
			s.Dims[d] = append(s.Dims[d], name)
		}
	}
	return s
}

// drawShape makes sizes that both shardings divide, some of them zero.
func drawShape(t *rapid.T, shardings ...*Sharding) []int {
	rank := len(shardings[0].spec.Dims)
	shape := make([]int, rank)
	for d := range shape {
		n := 1
		for _, s := range shardings {
			n = lcm(n, s.blocks(rank).ways[d])
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

func (m *Mesh) names() []string {
	out := make([]string, len(m.axes))
	for i, a := range m.axes {
		out[i] = a.Name
	}
	return out
}
