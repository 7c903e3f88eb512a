package meshdiff

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/mesh"
	"github.com/serry-dev/serry/mesh/form"
)

// An answer is what jaxmesh.py says about a case, and what Go says in the same
// words.
type answer struct {
	Stage string `json:"stage,omitempty"` // the step that fails
	Error string `json:"error,omitempty"` // the kind of error
	Text  string `json:"text,omitempty"`  // of the error; not compared

	Mesh           string   `json:"mesh,omitempty"`
	Spec           string   `json:"spec,omitempty"`
	Sharding       string   `json:"sharding,omitempty"`
	Memory         string   `json:"memory,omitempty"`
	Replicated     bool     `json:"replicated,omitempty"`
	ReplicatedAxes []string `json:"replicated_axes,omitempty"`
	Shard          []int    `json:"shard,omitempty"`
	Tile           string   `json:"tile,omitempty"`
	Shardy         []string `json:"shardy,omitempty"`
	Equivalent     *bool    `json:"equivalent,omitempty"`
	MapError       string   `json:"map_error,omitempty"`
	Index          []placed `json:"index,omitempty"`
	Replica        [][2]int `json:"replica,omitempty"`

	Order []int  `json:"order,omitempty"`
	Shape []int  `json:"shape,omitempty"`
	Views []any  `json:"views,omitempty"`
	Parts []any  `json:"parts,omitempty"`
	Local []part `json:"local,omitempty"`
}

type part struct {
	Error string `json:"error,omitempty"`
	Shape []int  `json:"shape,omitempty"`
	Order []int  `json:"order,omitempty"`
}

// placed is a device and the ranges it holds.
type placed struct {
	Device int
	Ranges [][2]int
}

func (p *placed) UnmarshalJSON(data []byte) error {
	return json.Unmarshal(data, &[]any{&p.Device, &p.Ranges})
}

// kindOf names an error the way jaxmesh.py does.
func kindOf(err error) string {
	for _, k := range []struct {
		is   error
		name string
	}{
		{mesh.ErrDuplicateAxis, "duplicate"}, {mesh.ErrIndivisible, "indivisible"}, {mesh.ErrNonUniform, "nonuniform"},
		{mesh.ErrUnsupported, "unsupported"}, {mesh.ErrNotCuboid, "unsupported"}, {mesh.ErrInvalid, "invalid"},
	} {
		if errors.Is(err, k.is) {
			return k.name
		}
	}
	return "other: " + err.Error()
}

func failed(stage string, err error) answer {
	return answer{Stage: stage, Error: kindOf(err), Text: err.Error()}
}

// cpu is the hardware of forced host devices.
var cpu = map[string]any{"platform": "cpu", "kind": "cpu", "memory_kinds": []string{"device", "pinned_host", "unpinned_host"}}

// mesh builds the mesh of a case through JSON, where wrong counts can be said.
func (m meshCase) mesh(tasks []int) (*mesh.Mesh, error) {
	jsonForm := map[string]any{"format": 1, "axis_names": m.Names, "axis_sizes": m.Sizes, "axis_types": m.Types, "device_ids": m.IDs, "device": cpu}
	if tasks != nil {
		jsonForm["tasks"] = tasks
	}
	data, err := json.Marshal(jsonForm)
	if err != nil {
		return nil, err
	}
	return form.DecodeMesh("case", data)
}

func (s specCase) spec() mesh.Spec {
	out := mesh.Spec{Unreduced: s.Unreduced, Reduced: s.Reduced, Kind: mesh.Reduction(s.Kind)}
	for _, e := range s.Entries {
		switch e := e.(type) {
		case string:
			out.Dims = append(out.Dims, mesh.Dim{e})
		case []string:
			out.Dims = append(out.Dims, mesh.Dim(e))
		default:
			out.Dims = append(out.Dims, nil)
		}
	}
	return out
}

// sharding answers as jaxmesh.py's function of the same name.
func (q question) sharding() answer {
	m, err := q.Mesh.mesh(nil)
	if err != nil {
		return failed("mesh", err)
	}
	spec := q.Spec.spec()
	if err := spec.Check(); err != nil {
		return failed("spec", err)
	}
	s, err := m.Shard(spec)
	if err == nil {
		s, err = s.WithMemory(q.Memory)
	}
	if err != nil {
		return failed("sharding", err)
	}
	shard, err := s.ShardShape(q.Shape)
	if err != nil {
		return failed("shape", err)
	}
	out := answer{Mesh: m.String(), Spec: spec.String(), Sharding: s.String(), Memory: s.Memory(), Replicated: s.Replicated(),
		ReplicatedAxes: s.ReplicatedAxes(), Shard: shard}
	slices.Sort(out.ReplicatedAxes)
	tile, err := s.Tile(len(q.Shape))
	if err != nil {
		return failed("tile", err)
	}
	out.Tile = tile.String()
	for _, adapt := range []bool{false, true} {
		text, err := form.Shardy(s, len(q.Shape), adapt)
		if err != nil {
			return failed("shardy", err)
		}
		out.Shardy = append(out.Shardy, text)
	}
	if q.Other != nil {
		other, err := m.Shard(q.Other.spec())
		if err != nil {
			return failed("other", err)
		}
		same := s.Equivalent(other, len(q.Shape))
		out.Equivalent = &same
	}
	shards, err := s.Shards(q.Shape)
	if err != nil {
		out.MapError = kindOf(err)
		return out
	}
	for _, sh := range shards {
		p := placed{Device: int(sh.Device), Ranges: [][2]int{}}
		for _, r := range sh.Index {
			p.Ranges = append(p.Ranges, [2]int{r.Start, r.Stop})
		}
		out.Index = append(out.Index, p)
		out.Replica = append(out.Replica, [2]int{int(sh.Device), sh.Replica})
	}
	return out
}

// order answers how devices are laid out.
func (q question) order() answer {
	list := devices(q.Devices)
	o := mesh.Order{Split: q.Split, Contiguous: q.Contiguous, ByTask: q.ByTask, AsListed: q.AsListed}
	var laid []serry.DeviceID
	var err error
	shape := q.Shape
	switch q.Call {
	case "make":
		axes := make([]mesh.Axis, len(q.Shape))
		for i, n := range q.Shape {
			axes[i] = mesh.Axis{Name: q.Names[i], Size: n}
		}
		var m *mesh.Mesh
		if m, err = mesh.Make(list, axes...); err == nil {
			laid = m.Devices()
		}
	case "arrange":
		laid, err = idsOf(mesh.Arrange(list, q.Shape, o))
	case "hybrid":
		laid, err = idsOf(mesh.Hybrid(list, q.Shape, q.Outer, o))
		shape = slices.Clone(shape)
		for i := range shape {
			shape[i] *= q.Outer[i]
		}
	}
	if err != nil {
		return failed("order", err)
	}
	out := answer{Shape: shape}
	for _, id := range laid {
		out.Order = append(out.Order, int(id))
	}
	return out
}

func idsOf(list []mesh.Device, err error) ([]serry.DeviceID, error) {
	out := make([]serry.DeviceID, len(list))
	for i, d := range list {
		out[i] = d.ID
	}
	return out, err
}

// view answers what each task loads, local which part of the mesh it owns.
func (q question) view() answer {
	m, err := q.Mesh.mesh(q.Tasks)
	if err != nil {
		return failed("mesh", err)
	}
	s, err := m.Shard(q.Spec.spec())
	if err != nil {
		return failed("sharding", err)
	}
	var out answer
	for _, task := range m.Tasks() {
		var row, size []any
		part, err := s.LocalShape(q.Shape, task)
		if err != nil {
			return failed("shape", err)
		}
		for dim := range q.Shape {
			v, err := s.View(task, dim, len(q.Shape))
			if err != nil {
				row = append(row, kindOf(err))
			} else {
				row = append(row, []any{float64(v.Index), float64(v.Count)})
			}
			size = append(size, float64(part[dim]))
		}
		out.Views, out.Parts = append(out.Views, row), append(out.Parts, size)
	}
	return out
}

func (q question) local() answer {
	m, err := q.Mesh.mesh(q.Tasks)
	if err != nil {
		return failed("mesh", err)
	}
	var out answer
	for _, task := range m.Tasks() {
		own, err := m.Local(task)
		if err != nil {
			out.Local = append(out.Local, part{Error: strings.Replace(kindOf(err), "nonuniform", "invalid", 1)})
			continue
		}
		p := part{Shape: []int{}}
		for _, a := range own.Axes() {
			p.Shape = append(p.Shape, a.Size)
		}
		for _, id := range own.Devices() {
			p.Order = append(p.Order, int(id))
		}
		out.Local = append(out.Local, p)
	}
	return out
}

func (q question) answer() answer {
	switch q.Ask {
	case "sharding":
		return q.sharding()
	case "order":
		return q.order()
	case "view":
		return q.view()
	}
	return q.local()
}
