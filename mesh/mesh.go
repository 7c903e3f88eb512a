package mesh

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/mesh/internal/notation"
)

// Bounds on what may be built or read. They are far above any real job and keep
// a hostile text from taking the memory of its reader.
const (
	maxAxes    = 32
	maxDevices = 1 << 20
	maxName    = 256
)

// NoSlice is the [Device.Slice] of a device that knows no fast network.
const NoSlice = -1

// A Device is what the builders of meshes need to know about one device. Its ID
// is its identity; a mesh keeps that, the task, and the hardware of its first
// device.
type Device struct {
	ID       serry.DeviceID
	Task     serry.TaskIndex // the task that owns it
	Slice    int             // the fast network it is on, or NoSlice
	Coords   [3]int          // x, y, z on a torus
	Core     int             // core on the chip at Coords
	Hardware *Hardware       // shared by all devices of a kind; nil means a plain host device
}

// Hardware is what devices of one kind have in common.
type Hardware struct {
	Platform string   // "tpu", "gpu", "cpu"
	Kind     string   // such as "TPU v4"
	Cores    int      // per device, or 0 where unknown
	Memories []string // memory kinds, the default first; nil means unknown
}

// hardware is what the device is; empty where nothing is known.
func (d Device) hardware() Hardware {
	if d.Hardware == nil {
		return Hardware{}
	}
	return *d.Hardware
}

// An AxisType says what decides how arrays use an axis.
type AxisType uint8

// The types of an axis. Where a type is Default, [New] takes Auto, [Make] and
// [Abstract] take Explicit.
const (
	Default  AxisType = iota
	Auto              // the compiler
	Explicit          // the program, in the types of its values
	Manual            // the program, device by device
)

// String is the word used in text forms.
func (t AxisType) String() string {
	if t > Manual {
		return "Default"
	}
	return []string{"Default", "Auto", "Explicit", "Manual"}[t]
}

// An Axis is one named dimension of a mesh.
type Axis struct {
	Name string
	Size int
	Type AxisType
}

// A Mesh is a block of distinct devices with a name for each dimension. Without
// devices it is abstract: it can be sharded over and converted, but no
// device holds anything. Meshes are immutable.
type Mesh struct {
	axes     []Axis
	ids      []serry.DeviceID  // in mesh order; nil if abstract
	tasks    []serry.TaskIndex // owner of each device; nil if abstract
	hardware Hardware          // of the first device
	size     int
	abstract bool
}

// New lays out devices, given in mesh order, along axes. No axes and no devices
// make the empty mesh; no axes and one device a mesh of one.
func New(devices []Device, axes ...Axis) (*Mesh, error) {
	ids, tasks := make([]serry.DeviceID, len(devices)), make([]serry.TaskIndex, len(devices))
	for i, d := range devices {
		ids[i], tasks[i] = d.ID, d.Task
	}
	var hw *Hardware
	if len(devices) > 0 {
		hw = devices[0].Hardware
	}
	return Of(ids, tasks, hw, axes...)
}

// Of is [New] for devices of which only the ids and the tasks that own them are
// given, in two lists of one length. hw may be nil. The mesh keeps the lists.
func Of(ids []serry.DeviceID, tasks []serry.TaskIndex, hw *Hardware, axes ...Axis) (*Mesh, error) {
	own, size, err := checkAxes(axes, Auto)
	if err != nil {
		return nil, err
	}
	if len(axes) == 0 && len(ids) == 0 {
		size = 0
	}
	if size != len(ids) || size != len(tasks) {
		return nil, errorf(ErrInvalid, "mesh %s has place for %d devices, got %d", sizesText(own), size, len(ids))
	}
	m := &Mesh{axes: own, size: size, ids: ids, tasks: tasks}
	if size > 0 && hw != nil {
		m.hardware = cloneHardware(*hw)
	}
	if err := m.checkDevices(); err != nil {
		return nil, err
	}
	return m, nil
}

// checkDevices wants each device once.
func (m *Mesh) checkDevices() error {
	for i, id := range m.ids {
		if id < 0 || m.tasks[i] < 0 {
			return errorf(ErrInvalid, "device %d of task %d: numbers cannot be negative", id, m.tasks[i])
		}
	}
	if id, twice := duplicate(m.ids); twice {
		return errorf(ErrInvalid, "device %d is in the mesh twice: list every device once", id)
	}
	return nil
}

// Abstract makes a mesh without devices. hw may be nil. Without axes it is the
// empty abstract mesh.
func Abstract(hw *Hardware, axes ...Axis) (*Mesh, error) {
	own, size, err := checkAxes(axes, Explicit)
	if err != nil {
		return nil, err
	}
	if len(axes) == 0 {
		size = 0
	}
	m := &Mesh{axes: own, size: size, abstract: true}
	if hw != nil && len(axes) > 0 {
		m.hardware = cloneHardware(*hw)
	}
	return m, nil
}

// Hosts makes n plain devices 0…n-1, spread evenly and in order over tasks.
func Hosts(n, tasks int) []Device {
	out := make([]Device, max(n, 0))
	for i := range out {
		out[i] = Device{ID: serry.DeviceID(i), Task: serry.TaskIndex(i * max(tasks, 1) / n), Slice: NoSlice}
	}
	return out
}

// checkAxes copies the axes with their default type filled in.
func checkAxes(axes []Axis, byDefault AxisType) ([]Axis, int, error) {
	if len(axes) > maxAxes {
		return nil, 0, errorf(ErrInvalid, "mesh has %d axes, at most %d are possible", len(axes), maxAxes)
	}
	own := slices.Clone(axes)
	sizes := make([]int, len(own))
	for i := range own {
		a := &own[i]
		if err := checkName(a.Name); err != nil {
			return nil, 0, err
		}
		if a.Size < 1 {
			return nil, 0, onAxis(a.Name).errorf(ErrInvalid, "axis %s has size %d: give it at least 1", notation.Quote(a.Name), a.Size)
		}
		if slices.ContainsFunc(own[:i], func(b Axis) bool { return b.Name == a.Name }) {
			return nil, 0, onAxis(a.Name).errorf(ErrInvalid, "mesh has two axes named %s: rename one", notation.Quote(a.Name))
		}
		if a.Type == Default {
			a.Type = byDefault
		}
		if a.Type > Manual {
			return nil, 0, onAxis(a.Name).errorf(ErrInvalid, "axis %s has unknown type %d", notation.Quote(a.Name), a.Type)
		}
		sizes[i] = a.Size
	}
	size, ok := boundedProduct(sizes, maxDevices)
	if !ok {
		return nil, 0, errorf(ErrInvalid, "mesh %s has more than %d devices", sizesText(own), maxDevices)
	}
	return own, size, nil
}

// checkName admits what every text form can carry.
func checkName(name string) error {
	switch {
	case name == "":
		return errorf(ErrInvalid, "mesh axis without a name: give every axis one")
	case len(name) > maxName:
		return onAxis(name).errorf(ErrInvalid, "axis name of %d bytes, at most %d are possible", len(name), maxName)
	case name == Unconstrained:
		return onAxis(name).errorf(ErrInvalid, "axis name %s means an unconstrained dimension: rename it", notation.Quote(name))
	case !utf8.ValidString(name), strings.ContainsFunc(name, unicode.IsControl):
		return onAxis(name).errorf(ErrInvalid, "axis name %q is not plain text", name)
	}
	return nil
}

// duplicate finds a value that occurs twice.
func duplicate(ids []serry.DeviceID) (serry.DeviceID, bool) {
	sorted := slices.Sorted(slices.Values(ids))
	for i := 1; i < len(sorted); i++ {
		if sorted[i] == sorted[i-1] {
			return sorted[i], true
		}
	}
	return 0, false
}

func cloneHardware(hw Hardware) Hardware {
	hw.Memories = slices.Clone(hw.Memories)
	return hw
}
