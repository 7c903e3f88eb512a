package mesh

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/serry-dev/serry"
)

// jsonFormat is the version written, and the newest that is read.
const jsonFormat = 1

// maxJSON bounds what is decoded; the mesh of a million devices fits.
const maxJSON = 1 << 24

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
	Format    int       `json:"format"`
	Mesh      meshJSON  `json:"mesh"`
	Spec      []dimJSON `json:"spec"`
	Unreduced []string  `json:"unreduced,omitempty"`
	Reduced   []string  `json:"reduced,omitempty"`
	Kind      Reduction `json:"unreduced_kind,omitempty"`
	Memory    string    `json:"memory_kind,omitempty"`
}

// EncodeMesh writes the mesh as one JSON object that [DecodeMesh] reads back.
func EncodeMesh(m *Mesh) []byte { return mustJSON(m.json()) }

// EncodeSharding writes the sharding and its mesh as one JSON object that
// [DecodeSharding] reads back.
func EncodeSharding(s *Sharding) []byte {
	out := shardingJSON{Format: jsonFormat, Mesh: s.mesh.json(), Spec: []dimJSON{},
		Unreduced: s.spec.Unreduced, Reduced: s.spec.Reduced, Kind: s.spec.Kind, Memory: s.memory}
	for _, d := range s.spec.Dims {
		out.Spec = append(out.Spec, dimJSON(d))
	}
	return mustJSON(out)
}

// DecodeMesh reads a mesh. name says where data comes from, usually a file, and
// starts every error. Unknown fields and versions are refused.
func DecodeMesh(name string, data []byte) (*Mesh, error) {
	var in meshJSON
	if err := decodeJSON(data, &in); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	m, err := in.mesh()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return m, nil
}

// DecodeSharding is DecodeMesh for a sharding.
func DecodeSharding(name string, data []byte) (*Sharding, error) {
	var in shardingJSON
	if err := decodeJSON(data, &in); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	s, err := in.sharding()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return s, nil
}

func (m *Mesh) json() meshJSON {
	out := meshJSON{Format: jsonFormat, Names: m.names(), Sizes: m.shape()}
	for _, a := range m.axes {
		out.Types = append(out.Types, a.Type.String())
	}
	if !m.abstract {
		out.Devices, out.Tasks = m.ids, m.tasks
	}
	out.Abstract = m.abstract && len(m.axes) == 0
	if hw := m.hardware; hw.Platform != "" || hw.Kind != "" || hw.Cores != 0 || hw.Memories != nil {
		out.Device = &hardwareJSON{hw.Platform, hw.Kind, hw.Cores, hw.Memories}
	}
	return out
}

func (in meshJSON) mesh() (*Mesh, error) {
	if err := checkFormat("mesh", in.Format); err != nil {
		return nil, err
	}
	if len(in.Sizes) != len(in.Names) {
		return nil, errorf(ErrFormat, "%d axis_names but %d axis_sizes", len(in.Names), len(in.Sizes))
	}
	if in.Types != nil && len(in.Types) != len(in.Names) {
		return nil, errorf(ErrFormat, "%d axis_names but %d axis_types", len(in.Names), len(in.Types))
	}
	axes := make([]Axis, len(in.Names))
	for i, name := range in.Names {
		axes[i] = Axis{Name: name, Size: in.Sizes[i]}
		if in.Types != nil {
			t, err := axisTypeOf(in.Types[i])
			if err != nil {
				return nil, onAxis(name).errorf(ErrFormat, "axis %s: %v", quote(name), err)
			}
			axes[i].Type = t
		}
	}
	var hw *Hardware
	if in.Device != nil {
		hw = &Hardware{in.Device.Platform, in.Device.Kind, in.Device.Cores, in.Device.Memories}
	}
	if in.Abstract || in.Devices == nil && len(axes) > 0 {
		return Abstract(hw, axes...)
	}
	if in.Tasks != nil && len(in.Tasks) != len(in.Devices) {
		return nil, errorf(ErrFormat, "%d device_ids but %d tasks", len(in.Devices), len(in.Tasks))
	}
	devices := make([]Device, len(in.Devices))
	for i, id := range in.Devices {
		devices[i] = Device{ID: id, Slice: NoSlice, Hardware: hw}
		if in.Tasks != nil {
			devices[i].Task = in.Tasks[i]
		}
	}
	return New(devices, axes...)
}

func (in shardingJSON) sharding() (*Sharding, error) {
	if err := checkFormat("sharding", in.Format); err != nil {
		return nil, err
	}
	m, err := in.Mesh.mesh()
	if err != nil {
		return nil, err
	}
	spec := Spec{Unreduced: in.Unreduced, Reduced: in.Reduced, Kind: in.Kind}
	for _, d := range in.Spec {
		spec.Dims = append(spec.Dims, Dim(d))
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
		return errorf(ErrFormat, "%s has format %d, this version reads up to %d: use a newer serry", what, format, jsonFormat)
	}
	return errorf(ErrFormat, "%s has format %d, want %d", what, format, jsonFormat)
}

// A dimJSON is null, a name, or a list of names.
type dimJSON Dim

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
		return errorf(ErrFormat, "spec entry %.40s: want null, a name or a list of names", data)
	}
	*d = names
	return nil
}

// decodeJSON reads exactly one object and says where it ends or breaks.
func decodeJSON(data []byte, into any) error {
	if len(data) > maxJSON {
		return errorf(ErrFormat, "%d bytes of JSON, at most %d are read", len(data), maxJSON)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
			return errorf(ErrFormat, "JSON ends after %d bytes, in the middle: the file is truncated", len(data))
		}
		if own := (*Error)(nil); errors.As(err, &own) {
			return own
		}
		return errorf(ErrFormat, "byte %d: %v", d.InputOffset(), err)
	}
	if _, err := d.Token(); err != io.EOF {
		return errorf(ErrFormat, "something follows the JSON object, at byte %d", d.InputOffset())
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
