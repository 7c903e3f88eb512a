package restore

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/mesh"
	"github.com/serry-dev/serry/topo"
)

// ManifestFile is the name of a [Manifest] in a saved step.
const ManifestFile = "device_manifest.json"

// The version of our own files, and the highest task number in them: rows are
// kept by number, so a number from nowhere must not make a table of that size.
const (
	format   = 1
	maxTasks = 1 << 20
)

// A Mesh is an arrangement of devices as a file keeps it: row-major ids with
// the shape and the names and types of its axes.
type Mesh struct {
	Shape     []int            `json:"shape"`
	AxisNames []string         `json:"axis_names"`
	AxisTypes []string         `json:"axis_types,omitempty"`
	Devices   []serry.DeviceID `json:"device_ids"`
}

// with puts other devices in the place of those of the mesh, which must be as
// many. Unlike what Orbax does, the types of the axes stay.
func (m Mesh) with(devices []serry.DeviceID) (Mesh, error) {
	if n, ok := size(m.Shape); !ok || n != len(devices) {
		return Mesh{}, fmt.Errorf("%d devices for a mesh of shape %v", len(devices), m.Shape)
	}
	m.Devices = slices.Clone(devices)
	return m, nil
}

// coord is the place of the i-th device.
func (m Mesh) coord(i int) []int {
	at := make([]int, len(m.Shape))
	for axis := len(m.Shape) - 1; axis >= 0; axis-- {
		at[axis] = i % m.Shape[axis]
		i /= m.Shape[axis]
	}
	return at
}

// size counts the devices of a mesh of some shape; false if it is no shape.
func size(shape []int) (int, bool) {
	if mesh.CheckShape(shape) != nil {
		return 0, false
	}
	n := 1
	for _, axis := range shape {
		n *= axis
	}
	return n, true
}

// A Manifest says for one saved step what every device was and where it stood
// in the mesh (P-RMP-1).
type Manifest struct {
	Format  int               `json:"format"`
	Job     string            `json:"job"`
	Epoch   int64             `json:"topology_epoch"`
	Created int64             `json:"created_unix_ms"` // milliseconds since 1970
	Mesh    Mesh              `json:"mesh"`
	Tasks   []topo.TaskRecord `json:"processes"`
}

// Encode checks the manifest and gives its text.
func (m *Manifest) Encode() ([]byte, error) {
	m.Format = format
	if err := m.check(ManifestFile); err != nil {
		return nil, err
	}
	return json.MarshalIndent(m, "", "  ")
}

// ParseManifest reads the text of a manifest file and checks that it makes
// sense: every place of the mesh is one device of one task.
func ParseManifest(file string, text []byte) (*Manifest, error) {
	var m struct {
		Manifest
		Tasks []json.RawMessage `json:"processes"`
	}
	if err := topo.DecodeJSON(file, text, &m); err != nil {
		return nil, unembed(err, "Manifest.")
	}
	if m.Format != format {
		return nil, fault(file, "format", "%d; this version reads %d", m.Format, format)
	}
	for i, raw := range m.Tasks {
		r, err := topo.ParseRecord(file, raw)
		if err != nil {
			return nil, within(err, fmt.Sprintf("processes[%d]", i))
		}
		m.Manifest.Tasks = append(m.Manifest.Tasks, *r)
	}
	return &m.Manifest, m.check(file)
}

// fault says what is wrong with a field of a file.
func fault(file, field, reason string, args ...any) error {
	return &topo.FileError{File: file, Field: field, Reason: fmt.Sprintf(reason, args...)}
}

// within puts the field that a part belongs to before the field at fault.
func within(err error, part string) error {
	fe, ok := errors.AsType[*topo.FileError](err)
	if !ok {
		return err
	}
	inner := *fe
	inner.Field = part
	if fe.Field != "" {
		inner.Field += "." + fe.Field
	}
	return &inner
}

// unembed takes the name of an embedded struct out of the field at fault, since
// the text does not have it.
func unembed(err error, name string) error {
	if fe, ok := errors.AsType[*topo.FileError](err); ok && len(fe.Field) > len(name) && fe.Field[:len(name)] == name {
		fe.Field = fe.Field[len(name):]
	}
	return err
}

func (m *Manifest) check(file string) error {
	tasks, owner := map[serry.TaskIndex]bool{}, map[serry.DeviceID]*topo.DeviceRecord{}
	for i, r := range m.Tasks {
		if tasks[r.Task] {
			return fault(file, fmt.Sprintf("processes[%d].process_id", i), "%d is there twice", r.Task)
		}
		if r.Task >= maxTasks {
			return fault(file, fmt.Sprintf("processes[%d].process_id", i), "%d; at most %d are read", r.Task, maxTasks)
		}
		tasks[r.Task] = true
		for j := range r.Devices {
			d := &r.Devices[j]
			if owner[d.ID] != nil {
				return fault(file, fmt.Sprintf("processes[%d].devices[%d].global_id", i, j), "%d is there twice", d.ID)
			}
			owner[d.ID] = d
		}
	}
	n, ok := size(m.Mesh.Shape)
	switch {
	case !ok || n != len(m.Mesh.Devices):
		return fault(file, "mesh.shape", "%v for %d device ids", m.Mesh.Shape, len(m.Mesh.Devices))
	case len(m.Mesh.AxisNames) != len(m.Mesh.Shape):
		return fault(file, "mesh.axis_names", "%d names for %d axes", len(m.Mesh.AxisNames), len(m.Mesh.Shape))
	case m.Mesh.AxisTypes != nil && len(m.Mesh.AxisTypes) != len(m.Mesh.Shape):
		return fault(file, "mesh.axis_types", "%d types for %d axes", len(m.Mesh.AxisTypes), len(m.Mesh.Shape))
	}
	return m.checkPlaces(file, owner)
}

// checkPlaces looks at each place of the mesh: one device, of one task, that
// believes to stand there (P-RMP-7).
func (m *Manifest) checkPlaces(file string, owner map[serry.DeviceID]*topo.DeviceRecord) error {
	seen := map[serry.DeviceID]bool{}
	for i, id := range m.Mesh.Devices {
		field := fmt.Sprintf("mesh.device_ids[%d]", i)
		d := owner[id]
		switch {
		case d == nil:
			return fault(file, field, "device %d belongs to no process", id)
		case seen[id]:
			return fault(file, field, "device %d is in the mesh twice", id)
		case d.MeshPosition != nil && !slices.Equal(d.MeshPosition, m.Mesh.coord(i)):
			return fault(file, field, "device %d stands at %v, but says it is at %v", id, m.Mesh.coord(i), d.MeshPosition)
		}
		seen[id] = true
	}
	return nil
}

// Metadata gives the manifest in the form that Orbax keeps. Tasks that the
// manifest does not have get an empty row.
func (m *Manifest) Metadata() *Metadata {
	md := &Metadata{Mesh: slices.Clone(m.Mesh.Devices)}
	for _, r := range m.Tasks {
		for len(md.Table) <= int(r.Task) {
			md.Table = append(md.Table, nil)
		}
		for _, d := range byOrdinal(r.Devices) {
			md.Table[r.Task] = append(md.Table[r.Task], d.ID)
		}
	}
	return md
}

func byOrdinal(devices []topo.DeviceRecord) []topo.DeviceRecord {
	return slices.SortedStableFunc(slices.Values(devices), func(a, b topo.DeviceRecord) int { return cmp.Compare(a.Ordinal, b.Ordinal) })
}
