package form

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/mesh"
	"github.com/serry-dev/serry/mesh/internal/notation"
)

// jsonFormat is the version written, and the newest that is read.
const jsonFormat = 1

type meshJSON struct {
	Format int `json:"format"`
	Axes
	Devices []serry.DeviceID  `json:"device_ids,omitempty"` // absent: abstract
	Tasks   []serry.TaskIndex `json:"tasks,omitempty"`      // absent: all of task 0
	Device  *Hardware         `json:"device,omitempty"`
	// Abstract is written only where the lack of devices does not say it.
	Abstract bool `json:"abstract,omitempty"`
}

// Axes are the axes of a mesh as JSON has them.
type Axes struct {
	Names []string `json:"axis_names"`
	Sizes []int    `json:"axis_sizes"`
	Types []string `json:"axis_types,omitempty"` // absent: the default
}

// List gives the axes. Those without a type have the default one.
func (a Axes) List() ([]mesh.Axis, error) {
	if len(a.Sizes) != len(a.Names) {
		return nil, errorf(mesh.ErrFormat, "%d axis_names but %d axis_sizes", len(a.Names), len(a.Sizes))
	}
	if a.Types != nil && len(a.Types) != len(a.Names) {
		return nil, errorf(mesh.ErrFormat, "%d axis_names but %d axis_types", len(a.Names), len(a.Types))
	}
	axes := make([]mesh.Axis, len(a.Names))
	for i, name := range a.Names {
		axes[i] = mesh.Axis{Name: name, Size: a.Sizes[i]}
		if a.Types == nil {
			continue
		}
		var err error
		if axes[i].Type, err = axisTypeOf(a.Types[i]); err != nil {
			return nil, &mesh.Error{Err: mesh.ErrFormat, Axis: name, Dim: -1, Text: fmt.Sprintf("axis %s: %v", notation.Quote(name), err)}
		}
	}
	return axes, nil
}

// Hardware is a kind of device as JSON has it.
type Hardware struct {
	Platform string   `json:"platform,omitempty"`
	Kind     string   `json:"kind,omitempty"`
	Cores    int      `json:"num_cores,omitempty"`
	Memories []string `json:"memory_kinds,omitempty"`
}

type shardingJSON struct {
	Format    int            `json:"format"`
	Mesh      meshJSON       `json:"mesh"`
	Spec      []Dim          `json:"spec"`
	Unreduced []string       `json:"unreduced,omitempty"`
	Reduced   []string       `json:"reduced,omitempty"`
	Kind      mesh.Reduction `json:"unreduced_kind,omitempty"`
	Memory    string         `json:"memory_kind,omitempty"`
}

// EncodeSharding writes the sharding and its mesh as one JSON object that
// [DecodeSharding] reads back.
func EncodeSharding(s *mesh.Sharding) []byte {
	spec := s.Spec()
	out := shardingJSON{Format: jsonFormat, Mesh: meshForm(s.Mesh()), Spec: []Dim{},
		Unreduced: spec.Unreduced, Reduced: spec.Reduced, Kind: spec.Kind, Memory: s.Memory()}
	for _, d := range spec.Dims {
		out.Spec = append(out.Spec, Dim(d))
	}
	data, err := json.Marshal(out)
	if err != nil {
		panic(fmt.Sprintf("mesh: encode %T: %v", out, err)) // such values can always be encoded
	}
	return data
}

// DecodeMesh reads a mesh. name says where data comes from, usually a file, and
// starts every error. Unknown fields and versions are refused.
func DecodeMesh(name string, data []byte) (*mesh.Mesh, error) {
	return decode(name, data, new(meshJSON))
}

// DecodeSharding is DecodeMesh for a sharding.
func DecodeSharding(name string, data []byte) (*mesh.Sharding, error) {
	return decode(name, data, new(shardingJSON))
}

// decode reads the JSON form in and builds what it describes.
func decode[T any](name string, data []byte, in interface{ build() (*T, error) }) (*T, error) {
	err := decodeJSON(data, in)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	out, err := in.build()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return out, nil
}

func meshForm(m *mesh.Mesh) meshJSON {
	axes, hw := m.Axes(), m.Hardware()
	out := meshJSON{Format: jsonFormat, Axes: Axes{Names: make([]string, len(axes)), Sizes: make([]int, len(axes))},
		Devices: m.Devices(), Tasks: m.Owners(), Abstract: m.IsAbstract() && len(axes) == 0}
	for i, a := range axes {
		out.Names[i], out.Sizes[i] = a.Name, a.Size
		out.Types = append(out.Types, a.Type.String())
	}
	if hw.Platform != "" || hw.Kind != "" || hw.Cores != 0 || hw.Memories != nil {
		out.Device = (*Hardware)(&hw)
	}
	return out
}

func (in meshJSON) build() (*mesh.Mesh, error) {
	if err := checkFormat("mesh", in.Format); err != nil {
		return nil, err
	}
	axes, err := in.List()
	if err != nil {
		return nil, err
	}
	hw := (*mesh.Hardware)(in.Device)
	if in.Abstract || in.Devices == nil && len(axes) > 0 {
		return mesh.Abstract(hw, axes...)
	}
	if in.Tasks != nil && len(in.Tasks) != len(in.Devices) {
		return nil, errorf(mesh.ErrFormat, "%d device_ids but %d tasks", len(in.Devices), len(in.Tasks))
	}
	tasks := in.Tasks
	if tasks == nil {
		tasks = make([]serry.TaskIndex, len(in.Devices))
	}
	return mesh.Of(in.Devices, tasks, hw, axes...)
}

func (in shardingJSON) build() (*mesh.Sharding, error) {
	if err := checkFormat("sharding", in.Format); err != nil {
		return nil, err
	}
	m, err := in.Mesh.build()
	if err != nil {
		return nil, err
	}
	spec := mesh.Spec{Unreduced: in.Unreduced, Reduced: in.Reduced, Kind: in.Kind}
	for _, d := range in.Spec {
		spec.Dims = append(spec.Dims, mesh.Dim(d))
	}
	s, err := m.Shard(spec)
	if err != nil {
		return nil, err
	}
	return s.WithMemory(in.Memory)
}

func checkFormat(what string, format int) error {
	switch {
	case format == jsonFormat:
		return nil
	case format > jsonFormat:
		return errorf(mesh.ErrFormat, "%s has format %d, this version reads up to %d: use a newer serry", what, format, jsonFormat)
	}
	return errorf(mesh.ErrFormat, "%s has format %d, want %d", what, format, jsonFormat)
}

// A Dim is an entry of a spec as JSON has it: null, a name, or a list of names.
type Dim mesh.Dim

// MarshalJSON writes null, a name or a list of names.
func (d Dim) MarshalJSON() ([]byte, error) {
	switch len(d) {
	case 0:
		return []byte("null"), nil
	case 1:
		return json.Marshal(d[0])
	}
	return json.Marshal([]string(d))
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (d *Dim) UnmarshalJSON(data []byte) error {
	*d = nil
	if bytes.Equal(data, []byte("null")) {
		return nil
	}
	var name string
	if json.Unmarshal(data, &name) == nil {
		*d = Dim{name}
		return nil
	}
	var names []string
	if json.Unmarshal(data, &names) != nil {
		return errorf(mesh.ErrFormat, "spec entry %.40s: want null, a name or a list of names", data)
	}
	*d = names
	return nil
}

// decodeJSON reads exactly one object and says where it ends or breaks.
func decodeJSON(data []byte, into any) error {
	if len(data) > maxText {
		return errorf(mesh.ErrFormat, "%d bytes of JSON, at most %d are read", len(data), maxText)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
			return errorf(mesh.ErrFormat, "JSON ends after %d bytes, in the middle: the file is truncated", len(data))
		}
		if own, ok := errors.AsType[*mesh.Error](err); ok {
			return own
		}
		return errorf(mesh.ErrFormat, "byte %d: %v", d.InputOffset(), err)
	}
	if _, err := d.Token(); err != io.EOF {
		return errorf(mesh.ErrFormat, "something follows the JSON object, at byte %d", d.InputOffset())
	}
	return nil
}
