package mesh

import (
	"slices"

	"github.com/serry-dev/serry"
)

// Axes lists the axes, slowest first.
func (m *Mesh) Axes() []Axis { return slices.Clone(m.axes) }

// Axis finds an axis by name.
func (m *Mesh) Axis(name string) (Axis, bool) {
	if i := m.axisIndex(name); i >= 0 {
		return m.axes[i], true
	}
	return Axis{}, false
}

// AxesOf lists the names of all axes of one type.
func (m *Mesh) AxesOf(t AxisType) []string {
	var out []string
	for _, a := range m.axes {
		if a.Type == t {
			out = append(out, a.Name)
		}
	}
	return out
}

// Size is the number of devices, or of places for them if abstract. It is 0 for
// an empty mesh.
func (m *Mesh) Size() int { return m.size }

// IsAbstract says whether the mesh has places but no devices.
func (m *Mesh) IsAbstract() bool { return m.abstract }

// Hardware is what is known of the devices; empty if nothing.
func (m *Mesh) Hardware() Hardware { return cloneHardware(m.hardware) }

// Devices lists the ids in mesh order; nil if abstract.
func (m *Mesh) Devices() []serry.DeviceID { return slices.Clone(m.ids) }

// Owners lists the task that owns each device, in mesh order; nil if abstract.
func (m *Mesh) Owners() []serry.TaskIndex { return slices.Clone(m.tasks) }

// localDevices lists the ids that task owns, in mesh order.
func (m *Mesh) localDevices(task serry.TaskIndex) []serry.DeviceID {
	var out []serry.DeviceID
	for i, t := range m.tasks {
		if t == task {
			out = append(out, m.ids[i])
		}
	}
	return out
}

// Tasks lists the tasks that own a device, in ascending order.
func (m *Mesh) Tasks() []serry.TaskIndex {
	return slices.Compact(slices.Sorted(slices.Values(m.tasks)))
}

// Equal says whether both meshes have the same axes (names, sizes, types) and
// the same devices at the same places, owned by the same tasks. Abstract meshes
// are equal only if their hardware is too.
func (m *Mesh) Equal(o *Mesh) bool {
	if m == o {
		return true
	}
	if m == nil || o == nil || m.abstract != o.abstract || !slices.Equal(m.axes, o.axes) {
		return false
	}
	if m.abstract {
		return m.hardware.Platform == o.hardware.Platform && m.hardware.Kind == o.hardware.Kind &&
			m.hardware.Cores == o.hardware.Cores
	}
	return slices.Equal(m.ids, o.ids) && slices.Equal(m.tasks, o.tasks)
}

// Transpose is a mesh of the same devices with other axes: each runs along one axis of m. perm says which
// one; nil means the axes of m in their order.
func (m *Mesh) Transpose(perm []int, axes ...Axis) (*Mesh, error) {
	places := counting(m.shape())
	if perm != nil {
		places = places.transpose(perm)
	}
	return m.Pick(places.cells, axes...)
}

// Pick is a mesh of the devices at some places in the mesh order of m.
func (m *Mesh) Pick(places []int, axes ...Axis) (*Mesh, error) {
	ids, tasks := make([]serry.DeviceID, len(places)), make([]serry.TaskIndex, len(places))
	for i, at := range places {
		ids[i], tasks[i] = m.ids[at], m.tasks[at]
	}
	return Of(ids, tasks, &m.hardware, axes...)
}

// Local is the part of the mesh that task owns, with the same axes. The task's
// devices must form one contiguous block, else the error is [ErrNonUniform]; a
// task without devices gets [ErrNoDevices]. Unlike JAX this keeps the axis
// types (C-MESH-8).
func (m *Mesh) Local(task serry.TaskIndex) (*Mesh, error) {
	if m.abstract {
		return nil, errorf(ErrAbstract, "%s: an abstract mesh has no local part", m.brief())
	}
	if m.size == 0 {
		return m, nil
	}
	out := &Mesh{axes: slices.Clone(m.axes), ids: m.localDevices(task), hardware: m.hardware, size: 1}
	if len(out.ids) == 0 {
		return nil, errorf(ErrNoDevices, "%s: task %d has no device in it, only tasks %s", m.brief(), task, taskList(m.Tasks()))
	}
	out.tasks = slices.Repeat([]serry.TaskIndex{task}, len(out.ids))
	hull := m.hull(task)
	for a, r := range hull {
		out.axes[a].Size = r.Len()
		out.size *= r.Len()
	}
	if out.size == len(out.ids) {
		return out, nil
	}
	other := 0
	for m.tasks[other] == task || !m.within(hull, other) {
		other++
	}
	return nil, errorf(ErrNonUniform, "%s: the devices of task %d must form a contiguous subcube, "+
		"device %d of task %d lies between them: reorder the devices", m.brief(), task, m.ids[other], m.tasks[other])
}

// hull is the smallest block that covers the devices of task, which has some.
func (m *Mesh) hull(task serry.TaskIndex) Index {
	var out Index
	for at, t := range m.tasks {
		if t != task {
			continue
		}
		place := m.place(at)
		if out == nil {
			out = slices.Clone(place)
		}
		for a, r := range place {
			out[a] = Range{min(out[a].Start, r.Start), max(out[a].Stop, r.Stop)}
		}
	}
	return out
}

func (m *Mesh) within(block Index, at int) bool {
	_, ok := block.Overlap(m.place(at))
	return ok
}

// place is the block of the one device at a position in mesh order.
func (m *Mesh) place(at int) Index {
	out := make(Index, len(m.axes))
	for a := len(m.axes) - 1; a >= 0; a-- {
		c := at % m.axes[a].Size
		out[a] = Range{c, c + 1}
		at /= m.axes[a].Size
	}
	return out
}

func (m *Mesh) axisIndex(name string) int {
	return slices.IndexFunc(m.axes, func(a Axis) bool { return a.Name == name })
}

func (m *Mesh) shape() []int {
	out := make([]int, len(m.axes))
	for i, a := range m.axes {
		out[i] = a.Size
	}
	return out
}
