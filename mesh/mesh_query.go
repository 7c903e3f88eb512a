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
	out := slices.Clone(m.tasks)
	slices.Sort(out)
	return slices.Compact(out)
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
	low, high, err := m.hull(task)
	if err != nil {
		return nil, err
	}
	out := &Mesh{axes: slices.Clone(m.axes), hardware: m.hardware, size: 1}
	for a := range out.axes {
		out.axes[a].Size = high[a] - low[a]
		out.size *= out.axes[a].Size
	}
	for at := range m.inBlock(low, high) {
		if m.tasks[at] != task {
			return nil, errorf(ErrNonUniform, "%s: the devices of task %d must form a contiguous subcube, "+
				"device %d of task %d lies between them: reorder the devices", m.brief(), task, m.ids[at], m.tasks[at])
		}
		out.ids, out.tasks = append(out.ids, m.ids[at]), append(out.tasks, task)
	}
	return out, nil
}

// hull is the smallest block that covers the devices of task.
func (m *Mesh) hull(task serry.TaskIndex) (low, high []int, err error) {
	low, high = make([]int, len(m.axes)), make([]int, len(m.axes))
	found := false
	for at, t := range m.tasks {
		if t != task {
			continue
		}
		rest := at
		for a := len(m.axes) - 1; a >= 0; a-- {
			c := rest % m.axes[a].Size
			rest /= m.axes[a].Size
			if !found || c < low[a] {
				low[a] = c
			}
			high[a] = max(high[a], c+1)
		}
		found = true
	}
	if !found {
		return nil, nil, errorf(ErrNoDevices, "%s: task %d has no device in it, only tasks %s", m.brief(), task, taskList(m.Tasks()))
	}
	return low, high, nil
}

// inBlock walks the places of a block in mesh order.
func (m *Mesh) inBlock(low, high []int) func(yield func(int) bool) {
	return func(yield func(int) bool) {
		step := strides(m.shape())
		at := slices.Clone(low)
		for {
			position := 0
			for a, c := range at {
				position += c * step[a]
			}
			if !yield(position) {
				return
			}
			a := len(at) - 1
			for ; a >= 0; a-- {
				if at[a]++; at[a] < high[a] {
					break
				}
				at[a] = low[a]
			}
			if a < 0 {
				return
			}
		}
	}
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
