package meshdiff

import (
	"fmt"
	"math/rand/v2"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/mesh"
)

// A question is one case as jaxmesh.py reads it.
type question struct {
	Ask    string   `json:"ask"`
	Mesh   meshCase `json:"mesh"`
	Spec   specCase `json:"spec"`
	Shape  []int    `json:"shape"`
	Memory string   `json:"memory,omitempty"`
	// Other is a second spec over the same mesh, for equivalence.
	Other *specCase `json:"other,omitempty"`
	Tasks []int     `json:"tasks,omitempty"`

	// Only to lay devices out.
	Call       string       `json:"call,omitempty"`
	Devices    []deviceCase `json:"devices,omitempty"`
	Names      []string     `json:"names,omitempty"`
	Outer      []int        `json:"outer,omitempty"`
	Split      bool         `json:"split"`
	Contiguous bool         `json:"contiguous"`
	ByTask     bool         `json:"by_task"`
	AsListed   bool         `json:"as_listed"`
}

type meshCase struct {
	Sizes []int     `json:"sizes"`
	Names []*string `json:"names"` // nil is a missing name
	Types []string  `json:"types"`
	IDs   []int     `json:"ids"`
}

type specCase struct {
	Entries   []any    `json:"entries"` // nil, a name, a list of names
	Unreduced []string `json:"unreduced"`
	Reduced   []string `json:"reduced"`
	Kind      string   `json:"kind,omitempty"`
}

type deviceCase struct {
	ID       int    `json:"id"`
	Task     int    `json:"task"`
	Kind     string `json:"kind"`
	Platform string `json:"platform"`
	Coords   []int  `json:"coords,omitempty"`
	Core     int    `json:"core"`
	Slice    *int   `json:"slice,omitempty"`
}

// hostDevices is how many devices jaxmesh.py forces.
const hostDevices = 64

// A drawer makes random cases.
type drawer struct{ *rand.Rand }

func (d drawer) chance(percent int) bool { return d.IntN(100) < percent }

func pick[T any](d drawer, list ...T) T { return list[d.IntN(len(list))] }

// mesh draws up to four axes over some of the host devices in any order.
func (d drawer) mesh(maxSize int) meshCase {
	var m meshCase
	n := 1
	for _, name := range []string{"x", "y", "z", "w"}[:d.IntN(5)] {
		size := pick(d, 1, 2, 2, 2, 3, 4, 4, 5, 8)
		if n*size > maxSize {
			size = 1
		}
		n *= size
		m.Sizes, m.Names = append(m.Sizes, size), append(m.Names, &name)
		m.Types = append(m.Types, pick(d, "Auto", "Auto", "Auto", "Explicit", "Explicit", "Explicit", "Explicit", "Manual"))
	}
	if d.chance(50) { // one type for all is the usual case
		for i := range m.Types {
			m.Types[i] = m.Types[0]
		}
	}
	if m.Sizes == nil {
		m.Sizes, m.Names, m.Types = []int{}, []*string{}, []string{}
	}
	m.IDs = d.Perm(hostDevices)[:n]
	if d.chance(30) {
		for i := range m.IDs {
			m.IDs[i] = i
		}
	}
	return m
}

// spec draws a spec for rank dimensions that is right for the mesh.
func (d drawer) spec(m meshCase, rank int) specCase {
	s := specCase{Entries: make([]any, rank), Unreduced: []string{}, Reduced: []string{}}
	lists := make([][]string, rank)
	auto := false
	for _, i := range d.Perm(len(m.Names)) {
		name := *m.Names[i]
		auto = auto || m.Types[i] == "Auto"
		switch {
		case rank > 0 && d.chance(60):
			at := d.IntN(rank)
			lists[at] = append(lists[at], name)
		case m.Types[i] == "Explicit" && d.chance(40):
			s.Unreduced = append(s.Unreduced, name)
		case m.Types[i] == "Explicit" && d.chance(30):
			s.Reduced = append(s.Reduced, name)
		}
	}
	for i, l := range lists {
		switch {
		case len(l) == 1 && d.chance(50):
			s.Entries[i] = l[0]
		case len(l) > 0 || d.chance(10):
			s.Entries[i] = append([]string{}, l...)
		case auto && d.chance(20):
			s.Entries[i] = mesh.Unconstrained
		}
	}
	if len(s.Unreduced) > 0 {
		s.Kind = pick(d, "", "sum", "max", "min")
	}
	return s
}

// shape draws sizes that the spec divides.
func (d drawer) shape(m meshCase, s specCase) []int {
	shape := make([]int, len(s.Entries))
	for i, e := range s.Entries {
		shape[i] = ways(m, e) * pick(d, 1, 1, 2, 3)
		if d.chance(3) {
			shape[i] = 0
		}
	}
	for d.chance(20) && len(shape) < 4 {
		shape = append(shape, pick(d, 1, 2, 5))
	}
	return shape
}

func ways(m meshCase, entry any) int {
	names, _ := entry.([]string)
	if name, ok := entry.(string); ok {
		names = []string{name}
	}
	n := 1
	for _, name := range names {
		for i := range m.Names {
			if *m.Names[i] == name {
				n *= m.Sizes[i]
			}
		}
	}
	return n
}

// sharding draws a case, and in half of them breaks one thing.
func (d drawer) sharding() question {
	q := question{Ask: "sharding", Mesh: d.mesh(hostDevices)}
	q.Spec = d.spec(q.Mesh, d.IntN(4))
	q.Shape = d.shape(q.Mesh, q.Spec)
	q.Memory = pick(d, "", "", "", "device", "pinned_host", "unpinned_host")
	if d.chance(50) {
		other := d.spec(q.Mesh, min(len(q.Shape), d.IntN(4)))
		if d.chance(40) {
			other = q.Spec
			for len(other.Entries) < len(q.Shape) {
				other.Entries = append(other.Entries[:len(other.Entries):len(other.Entries)], nil)
			}
		}
		q.Other = &other
	}
	if d.chance(40) {
		d.breakOne(&q)
	}
	return q
}

// breakOne makes one thing wrong where the case offers it.
func (d drawer) breakOne(q *question) {
	q.Other = nil
	switch d.IntN(9) {
	case 0: // an axis that does not exist
		q.Spec.Entries = append(q.Spec.Entries, pick[any](d, "q", []string{"x", "q"}, []string{"q", "r"}))
		q.Shape = append(q.Shape, 4)
	case 1: // an axis twice
		q.Spec.Entries = append(q.Spec.Entries, pick[any](d, "x", []string{"y", "y"}, []string{"x", "y"}), "x")
		q.Shape = append(q.Shape, 8, 8)
	case 2: // a size that does not divide
		for i := range q.Shape {
			if ways(q.Mesh, entryAt(q.Spec, i)) > 1 || d.chance(20) {
				q.Shape[i]++
			}
		}
	case 3: // a longer spec than the array has dimensions
		for range 1 + d.IntN(2) {
			q.Spec.Entries = append(q.Spec.Entries, nil)
		}
		q.Shape = q.Shape[:d.IntN(len(q.Shape)+1)]
	case 4: // sets that overlap, or name what is not there
		q.Spec.Unreduced = append(q.Spec.Unreduced, pick(d, "x", "y", "q"))
		if d.chance(50) {
			q.Spec.Reduced = append(q.Spec.Reduced, pick(d, "x", "y", "q"))
		}
	case 5: // a kind without anything to reduce
		q.Spec.Unreduced, q.Spec.Kind = []string{}, pick(d, "sum", "max")
	case 6: // an unconstrained dimension, right only beside Auto axes
		q.Spec.Entries = append(q.Spec.Entries, mesh.Unconstrained)
		q.Shape = append(q.Shape, 3)
	case 7: // a mesh whose lists do not match, or without a name
		d.breakMesh(&q.Mesh)
	case 8:
		q.Memory = "weird_device"
	}
}

func (d drawer) breakMesh(m *meshCase) {
	extra := "v"
	switch d.IntN(3) {
	case 0:
		m.Names = append(m.Names, &extra)
	case 1:
		m.Types = append(m.Types, "Auto")
	case 2:
		m.Names, m.Types, m.Sizes = append(m.Names, nil), append(m.Types, "Auto"), append(m.Sizes, 1)
	}
}

// view draws a sharding whose devices belong to several tasks.
func (d drawer) view() question {
	q := question{Ask: pick(d, "view", "view", "local"), Mesh: d.mesh(16)}
	for i := range q.Mesh.Types {
		q.Mesh.Types[i] = "Auto"
	}
	q.Spec = d.spec(q.Mesh, 1+d.IntN(3))
	q.Shape = d.shape(q.Mesh, q.Spec)
	for i, n := range q.Shape {
		q.Shape[i] = max(n, ways(q.Mesh, entryAt(q.Spec, i)))
	}
	tasks := pick(d, 1, 2, 2, 3, 4)
	for i, id := range q.Mesh.IDs {
		q.Tasks = append(q.Tasks, pick(d, id*tasks/hostDevices, id%tasks, i*tasks/len(q.Mesh.IDs)))
	}
	if d.chance(60) { // in order, as launchers number them
		for i := range q.Tasks {
			q.Tasks[i] = i * tasks / len(q.Tasks)
		}
	}
	return q
}

func entryAt(s specCase, i int) any {
	if i < len(s.Entries) {
		return s.Entries[i]
	}
	return nil
}

// order draws devices of some hardware and a way to lay them out.
func (d drawer) order() question {
	q := question{Ask: "order", Call: pick(d, "make", "arrange", "arrange", "hybrid")}
	slices := 1
	if q.Call == "hybrid" || d.chance(5) {
		slices = pick(d, 1, 2, 2, 4)
	}
	q.Devices = d.hardware(slices)
	n := len(q.Devices)
	q.Split, q.Contiguous, q.ByTask, q.AsListed = d.chance(50), d.chance(15), d.chance(25), d.chance(25)
	switch d.IntN(10) {
	case 0:
		q.Devices = q.Devices[:max(n-1, 1)]
	case 1:
		q.Devices[n-1].Coords = q.Devices[0].Coords // a hole
	case 2, 3:
		d.Shuffle(n, func(i, j int) { q.Devices[i], q.Devices[j] = q.Devices[j], q.Devices[i] })
	}
	n = len(q.Devices)
	rank := 1 + d.IntN(4)
	if q.Call == "hybrid" {
		q.Shape, q.Outer = d.factors(max(n/slices, 1), rank), d.factors(slices, rank)
	} else {
		q.Shape = d.factors(n, rank)
	}
	if d.chance(8) {
		q.Shape[d.IntN(rank)] *= 2
	}
	for i := range q.Shape {
		q.Names = append(q.Names, fmt.Sprint("a", i))
	}
	return q
}

// factors cuts n into rank sizes.
func (d drawer) factors(n, rank int) []int {
	out := make([]int, rank)
	for i := range out {
		out[i] = 1
	}
	for p := 2; n > 1; p++ {
		for ; n%p == 0; n /= p {
			out[d.IntN(rank)] *= p
		}
	}
	return out
}

// hardware lists devices of a random kind, task by task.
func (d drawer) hardware(slices int) []deviceCase {
	kind := pick(d, "TPU v2", "TPU v3", "TPU v4", "TPU v4", "TPU v4 lite", "TPU v5 lite", "TPU v5e", "TPU v5", "TPU v5p", "TPU v6 lite",
		"TPU7x", "TPU7", "TPU8i", "GPU", "CPU")
	platform, cores := "tpu", 1
	x, y, z := pick(d, 1, 2, 2, 4, 4, 8), pick(d, 1, 2, 2, 4, 4, 8), pick(d, 1, 1, 2, 4, 8)
	switch kind {
	case "TPU v2", "TPU v3":
		z, cores = 1, 2
	case "TPU7x", "TPU7", "TPU8i":
		cores = 2
	case "TPU v5", "TPU v5p":
		cores = pick(d, 1, 1, 2)
	case "GPU":
		platform = "gpu"
	case "CPU":
		platform = "cpu"
	}
	if d.chance(5) {
		cores = 3 - cores
	}
	base := [3]int{pick(d, 0, 0, 0, 4), 0, 0}
	var out []deviceCase
	for slice := range slices {
		for i := range x * y * z * cores {
			dev := deviceCase{ID: len(out), Task: len(out) / 4, Kind: kind, Platform: platform, Slice: &slice}
			c := i / cores
			if platform == "tpu" {
				dev.Coords, dev.Core = []int{base[0] + c%x, base[1] + c/x%y, base[2] + c/x/y}, i%cores
			}
			if platform == "cpu" {
				dev.Slice = nil
			}
			out = append(out, dev)
		}
	}
	return out
}

// devices turns a case into what package mesh takes.
func devices(list []deviceCase) []mesh.Device {
	kinds := map[string]*mesh.Hardware{}
	out := make([]mesh.Device, len(list))
	for i, c := range list {
		if kinds[c.Kind] == nil {
			kinds[c.Kind] = &mesh.Hardware{Platform: c.Platform, Kind: c.Kind}
		}
		out[i] = mesh.Device{ID: serry.DeviceID(c.ID), Task: serry.TaskIndex(c.Task), Slice: mesh.NoSlice, Core: c.Core, Hardware: kinds[c.Kind]}
		if c.Slice != nil {
			out[i].Slice = *c.Slice
		}
		copy(out[i].Coords[:], c.Coords)
	}
	return out
}
