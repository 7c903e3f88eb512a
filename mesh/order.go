package mesh

import (
	"cmp"
	"slices"
	"strings"

	"github.com/serry-dev/serry/mesh/internal/notation"
)

// Order says how [Arrange] and [Hybrid] may lay devices out. The zero value is
// what [Make] uses on all but small TPUs.
type Order struct {
	Contiguous bool // make the devices of every task one block, or fail
	Split      bool // one physical axis may serve several mesh axes
	ByTask     bool // Hybrid: a granule is a task, not a slice
	AsListed   bool // Hybrid: granules in order of appearance, not of their number
}

// Make builds a mesh from the first devices of a list, in the order that suits
// their network best. Axes are given from least to most traffic, and are
// Explicit unless they say otherwise. Devices of several slices are refused;
// use [Hybrid] for those.
func Make(devices []Device, axes ...Axis) (*Mesh, error) {
	own, size, err := checkAxes(axes, Explicit)
	if err != nil {
		return nil, err
	}
	if size > len(devices) {
		return nil, errorf(ErrInvalid, "number of devices %d must be at least the product of mesh shape %s: "+
			"make an axis smaller", len(devices), notation.Tuple(axisSizes(own)))
	}
	devices = devices[:size]
	kind := devices[0].hardware().Kind
	arranged, err := Arrange(devices, axisSizes(own), Order{Split: kind == tpuV5Lite || kind == tpuV5e})
	if err != nil {
		return nil, err
	}
	if first := arranged[0].Slice; first != NoSlice {
		for _, d := range arranged {
			if d.Slice != first {
				return nil, errorf(ErrInvalid, "devices are on several slices (%d and %d): "+
					"use Hybrid, with one shape within and one across slices", first, d.Slice)
			}
		}
	}
	return New(arranged, own...)
}

// Arrange orders devices for a mesh of the given shape so that the axes with
// most traffic, the last ones, lie on the best links. The result is in mesh
// order. It is the order JAX's create_device_mesh gives.
func Arrange(devices []Device, shape []int, o Order) ([]Device, error) {
	if n, ok := boundedProduct(shape, maxDevices); !ok || n != len(devices) || n == 0 {
		return nil, errorf(ErrInvalid, "number of devices %d must equal the product of mesh shape %s",
			len(devices), notation.Tuple(shape))
	}
	last := devices[len(devices)-1] // C-MESH-16: the last device decides
	arranged, err := arrangeKind(last.hardware().Kind, devices, shape)
	if arranged != nil || err != nil {
		return arranged, err
	}
	switch last.hardware().Platform {
	case "tpu":
		return arrangeTorus(devices, shape, o)
	case "gpu":
		sorted := slices.Clone(devices)
		slices.SortStableFunc(sorted, func(a, b Device) int { return cmp.Compare(a.ID, b.ID) })
		return sorted, nil
	}
	return slices.Clone(devices), nil
}

func arrangeTorus(devices []Device, shape []int, o Order) ([]Device, error) {
	physical, err := physicalMesh(devices)
	if err != nil {
		return nil, err
	}
	if o.Contiguous {
		if physical, err = transposeForTasks(physical, shape); err != nil {
			return nil, err
		}
	}
	arranged, _, err := assignTorus(physical, shape, torusOptions{
		split: o.Split, coreFirst: isTPU7(physical.cells[0].hardware().Kind),
	})
	return arranged.cells, err
}

// The kinds of device that have an order of their own.
const (
	tpuV2     = "TPU v2"
	tpuV3     = "TPU v3"
	tpuV4Lite = "TPU v4 lite"
	tpuV5Lite = "TPU v5 lite"
	tpuV5     = "TPU v5"
	tpuV5e    = "TPU v5e"
	tpuV5p    = "TPU v5p"
	tpuV6Lite = "TPU v6 lite"
	tpu7x     = "TPU7x"
	tpu7      = "TPU7"
	tpu8i     = "TPU8i"
)

func isTPU7(kind string) bool { return kind == tpu7x || kind == tpu7 }

// Rings and cubes through the devices of one tray.
var (
	ringOf4     = []int{0, 1, 3, 2}
	ringOf8     = []int{0, 1, 2, 3, 6, 7, 4, 5}
	ringOf4x2   = []int{0, 1, 2, 3, 7, 6, 5, 4}
	ringOf2x2x2 = []int{0, 1, 3, 2, 6, 7, 5, 4}
	ringOf4x4   = []int{0, 1, 2, 3, 7, 6, 5, 9, 10, 11, 15, 14, 13, 12, 8, 4}
	cubeOf8     = []int{0, 4, 2, 6, 1, 5, 3, 7}
)

// arrangeKind applies the order that one kind of device has for small meshes
// (C-MESH-16). It gives nil where the kind has none.
func arrangeKind(kind string, devices []Device, shape []int) ([]Device, error) {
	switch kind {
	case tpuV2, tpuV3:
		if len(devices) == 8 || len(shape) > 0 && shape[len(shape)-1] == 8 {
			return pickBlocks(devices, ringOf8), nil
		}
		return slices.Clone(devices), nil
	case tpuV4Lite, tpu8i:
		if len(devices) == 4 {
			return pickBlocks(devices, ringOf4), nil
		}
	case tpuV5Lite, tpuV5e, tpuV6Lite:
		if order := orderOfV5e(devices, shape); order != nil {
			return pickBlocks(sortedByCoords(devices), order), nil
		}
	case tpuV5p, tpuV5:
		if len(devices) == 8 && coordBounds(devices) == [3]int{2, 2, 2} {
			return pickBlocks(sortedByCoords(devices), ringOf2x2x2), nil
		}
	case tpu7x, tpu7:
		return arrangeTPU7(devices)
	}
	return nil, nil
}

func orderOfV5e(devices []Device, shape []int) []int {
	bounds := coordBounds(devices)
	switch {
	case len(devices) == 4 && bounds == [3]int{2, 2, 1}:
		return ringOf4
	case len(devices) == 8 && bounds == [3]int{2, 2, 2}:
		return cubeOf8
	case len(devices) == 8:
		return ringOf4x2
	case len(devices) == 16 && bounds == [3]int{4, 4, 1} && slices.Contains(shape, 16):
		return ringOf4x4
	}
	return nil
}

func arrangeTPU7(devices []Device) ([]Device, error) {
	if len(devices)%8 != 0 || len(devices) > 32 {
		return nil, nil
	}
	physical, err := physicalMesh(devices)
	if err != nil || physical.shape[0] > 2 || physical.shape[1] > 2 {
		return nil, err
	}
	return pickBlocks(devices, ringOf8), nil
}

// pickBlocks reorders every block of len(order) devices alike.
func pickBlocks(devices []Device, order []int) []Device {
	out := make([]Device, 0, len(devices))
	for base := 0; base < len(devices); base += len(order) {
		for _, i := range order {
			out = append(out, devices[base+i])
		}
	}
	return out
}

// coordBounds is one more than the lexicographically largest coordinates, which
// need not be the largest per axis (C-MESH-17).
func coordBounds(devices []Device) [3]int {
	top := devices[0].Coords
	for _, d := range devices[1:] {
		if slices.Compare(d.Coords[:], top[:]) > 0 {
			top = d.Coords
		}
	}
	return [3]int{top[0] + 1, top[1] + 1, top[2] + 1}
}

// sortedByCoords sorts by z, then y, then x.
func sortedByCoords(devices []Device) []Device {
	out := slices.Clone(devices)
	slices.SortStableFunc(out, func(a, b Device) int {
		return cmp.Or(cmp.Compare(a.Coords[2], b.Coords[2]),
			cmp.Compare(a.Coords[1], b.Coords[1]), cmp.Compare(a.Coords[0], b.Coords[0]))
	})
	return out
}

// physicalMesh puts TPU devices where they stand in their torus: x, y, z and,
// on kinds with several devices a chip, the core (C-MESH-19).
func physicalMesh(devices []Device) (grid[Device], error) {
	low, high := devices[0].Coords, devices[0].Coords
	lowCore, highCore := devices[0].Core, devices[0].Core
	for _, d := range devices {
		for i, c := range d.Coords {
			low[i], high[i] = min(low[i], c), max(high[i], c)
		}
		lowCore, highCore = min(lowCore, d.Core), max(highCore, d.Core)
	}
	cores := highCore - lowCore + 1
	box := []int{high[0] - low[0] + 1, high[1] - low[1] + 1, high[2] - low[2] + 1, cores}
	if n, ok := boundedProduct(box, maxDevices); !ok || n != len(devices) {
		return grid[Device]{}, errorf(ErrNotCuboid, "%d devices span a box of %s chips with %d cores: "+
			"they are not a contiguous cuboid", len(devices), notation.Tuple(box[:3]), cores)
	}
	kind := devices[0].hardware().Kind
	shape := physicalShape(kind, box)
	out := grid[Device]{shape: shape, cells: make([]Device, len(devices))}
	taken := make([]bool, len(devices))
	for _, d := range devices {
		if err := checkPhysical(kind, d, len(shape)); err != nil {
			return grid[Device]{}, err
		}
		at := ((d.Coords[0]-low[0])*box[1]+d.Coords[1]-low[1])*box[2] + d.Coords[2] - low[2]
		at = at*cores + d.Core - lowCore
		if taken[at] {
			return grid[Device]{}, errorf(ErrNotCuboid, "two devices at coordinates %s core %d leave a hole elsewhere: "+
				"they are not a contiguous cuboid", notation.Tuple(d.Coords[:]), d.Core)
		}
		out.cells[at], taken[at] = d, true
	}
	return out, nil
}

func physicalShape(kind string, box []int) []int {
	switch {
	case kind == tpuV2, kind == tpuV3:
		return []int{box[0], box[1], box[3]}
	case isTPU7(kind), kind == tpu8i, (kind == tpuV5p || kind == tpuV5) && box[3] == 2:
		return box
	}
	return box[:3]
}

func checkPhysical(kind string, d Device, dims int) error {
	switch {
	case kind == tpuV2 || kind == tpuV3:
		if d.Coords[2] != 0 {
			return errorf(ErrNotCuboid, "device %d of kind %s is at z = %d, want 0", d.ID, kind, d.Coords[2])
		}
	case dims == 3 && d.Core != 0:
		return errorf(ErrNotCuboid, "device %d of kind %s is core %d: a torus of this kind needs one device per chip",
			d.ID, kind, d.Core)
	}
	return nil
}

// forTasks lists, by physical shape, the mesh shapes (without axes of size one)
// for which turning the torus first makes the devices of each task contiguous
// (C-MESH-20).
var forTasks = []struct {
	physical [3]int
	logical  [][2]int
	perm     []int
}{
	{[3]int{2, 2, 1}, [][2]int{{2, 2}}, []int{0, 1, 2}},
	{[3]int{2, 2, 4}, [][2]int{{4, 4}}, []int{0, 1, 2}},
	{[3]int{4, 4, 4}, [][2]int{{16, 4}}, []int{0, 2, 1}},
	{[3]int{4, 8, 8}, [][2]int{{64, 4}, {4, 64}}, []int{0, 2, 1}},
	{[3]int{8, 8, 8}, [][2]int{{64, 8}}, []int{0, 2, 1}},
	{[3]int{8, 16, 16}, [][2]int{{256, 8}, {8, 256}}, []int{0, 2, 1}},
}

func transposeForTasks(physical grid[Device], shape []int) (grid[Device], error) {
	bare := slices.DeleteFunc(slices.Clone(shape), func(n int) bool { return n == 1 })
	for _, known := range forTasks {
		if !slices.Equal(known.physical[:], physical.shape) {
			continue
		}
		var possible []string
		for _, want := range known.logical {
			if slices.Equal(want[:], bare) {
				return physical.transpose(known.perm), nil
			}
			possible = append(possible, notation.Tuple(want[:]))
		}
		return physical, errorf(ErrInvalid, "no contiguous submeshes of shape %s on physical topology %s: possible are [%s]",
			notation.Tuple(shape), notation.Tuple(physical.shape), strings.Join(possible, ", "))
	}
	return physical, errorf(ErrInvalid, "no contiguous submeshes known for physical topology %s: leave Contiguous off",
		notation.Tuple(physical.shape))
}

func axisSizes(axes []Axis) []int { return (&Mesh{axes: axes}).shape() }
