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
	Format  int               `json:"format"`
	Names   []string          `json:"axis_names"`
	Sizes   []int             `json:"axis_sizes"`
	Types   []string          `json:"axis_types,omitempty"`
	Devices []serry.DeviceID  `json:"device_ids,omitempty"` // absent: abstract
	Tasks   []serry.TaskIndex `json:"tasks,omitempty"`      // absent: all of task 0
	Device  *hardwareJSON     `json:"device,omitempty"`
	// Abstract is written only where the lack of devices does not say it.
	Abstract bool `json:"abstract,omitempty"`
}

type hardwareJSON struct {
	Platform string   `json:"platform,omitempty"`
	Kind     string   `json:"kind,omitempty"`
	Cores    int      `json:"num_cores,omitempty"`
	Memories []string `json:"memory_kinds,omitempty"`
}

type shardingJSON struct {
	Format    int            `json:"format"`
	Mesh      meshJSON       `json:"mesh"`
	Spec      []dimJSON      `json:"spec"`
	Unreduced []string       `json:"unreduced,omitempty"`
	Reduced   []string       `json:"reduced,omitempty"`
	Kind      mesh.Reduction `json:"unreduced_kind,omitempty"`
	Memory    string         `json:"memory_kind,omitempty"`
}

// EncodeSharding writes the sharding and its mesh as one JSON object that
// [DecodeSharding] reads back.
func EncodeSharding(s *mesh.Sharding) []byte {
	spec := s.Spec()
	out := shardingJSON{Format: jsonFormat, Mesh: meshForm(s.Mesh()), Spec: []dimJSON{},
		Unreduced: spec.Unreduced, Reduced: spec.Reduced, Kind: spec.Kind, Memory: s.Memory()}
	for _, d := range spec.Dims {
		out.Spec = append(out.Spec, dimJSON(d))
	}
	return mustJSON(out)
}

// DecodeMesh reads a mesh. name says where data comes from, usually a file, and
// starts every error. Unknown fields and versions are refused.
func DecodeMesh(name string, data []byte) (*mesh.Mesh, error) {
	var in meshJSON
	if err := decodeJSON(data, &in); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	m, err := in.build()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return m, nil
}

// DecodeSharding is DecodeMesh for a sharding.
func DecodeSharding(name string, data []byte) (*mesh.Sharding, error) {
	var in shardingJSON
	if err := decodeJSON(data, &in); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	s, err := in.build()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return s, nil
}

func meshForm(m *mesh.Mesh) meshJSON {
	axes, hw := m.Axes(), m.Hardware()
	out := meshJSON{Format: jsonFormat, Names: make([]string, len(axes)), Sizes: make([]int, len(axes)),
		Devices: m.Devices(), Tasks: m.Owners(), Abstract: m.IsAbstract() && len(axes) == 0}
	for i, a := range axes {
		out.Names[i], out.Sizes[i] = a.Name, a.Size
		out.Types = append(out.Types, a.Type.String())
	}
	if hw.Platform != "" || hw.Kind != "" || hw.Cores != 0 || hw.Memories != nil {
		out.Device = &hardwareJSON{hw.Platform, hw.Kind, hw.Cores, hw.Memories}
	}
	return out
}

func (in meshJSON) build() (*mesh.Mesh, error) {
	if err := checkFormat("mesh", in.Format); err != nil {
		return nil, err
	}
	if len(in.Sizes) != len(in.Names) {
		return nil, errorf(mesh.ErrFormat, "%d axis_names but %d axis_sizes", len(in.Names), len(in.Sizes))
	}
	if in.Types != nil && len(in.Types) != len(in.Names) {
		return nil, errorf(mesh.ErrFormat, "%d axis_names but %d axis_types", len(in.Names), len(in.Types))
	}
	axes := make([]mesh.Axis, len(in.Names))
	for i, name := range in.Names {
		axes[i] = mesh.Axis{Name: name, Size: in.Sizes[i]}
		if in.Types != nil {
			t, err := axisTypeOf(in.Types[i])
			if err != nil {
				return nil, &mesh.Error{Err: mesh.ErrFormat, Axis: name, Dim: -1, Text: fmt.Sprintf("axis %s: %v", notation.Quote(name), err)}
			}
			axes[i].Type = t
		}
	}
	var hw *mesh.Hardware
	if in.Device != nil {
		hw = &mesh.Hardware{Platform: in.Device.Platform, Kind: in.Device.Kind, Cores: in.Device.Cores, Memories: in.Device.Memories}
	}
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

// A dimJSON is null, a name, or a list of names.
type dimJSON mesh.Dim

func (d dimJSON) MarshalJSON() ([]byte, error) {
	switch len(d) {
	case 0:
		return []byte("null"), nil
	case 1:
		return json.Marshal(d[0])
	}
	return json.Marshal([]string(d))
}

func (d *dimJSON) UnmarshalJSON(data []byte) error {
	*d = nil
	if bytes.Equal(data, []byte("null")) {
		return nil
	}
	var name string
	if json.Unmarshal(data, &name) == nil {
		*d = dimJSON{name}
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

// mustJSON encodes values that always can be.
func mustJSON(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("mesh: encode %T: %v", v, err))
	}
	return data
}
