package export

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/mesh"
	"github.com/serry-dev/serry/mesh/form"
)

// Options say what a binding may overlook, and give what the manifest leaves open.
type Options struct {
	Aliases         []Alias // other names of axes, besides those of the manifest; an empty Mesh means every mesh
	AllowReorder    bool    // transpose a mesh that has the same axes in another order
	IgnoreAxisTypes bool    // take the types of the manifest
	StrictDevice    bool    // refuse devices of another kind, or with another number of cores
	Symbols         map[string]int
	Shapes          map[string][]int // of inputs, by name; symbols are solved from them
}

// A Bound is a program whose shardings are on real devices.
type Bound struct {
	Manifest *Manifest
	Devices  []serry.DeviceID  // the device assignment: logical device i is Devices[i]
	Tasks    []serry.TaskIndex // that own them, ascending
	Meshes   []BoundMesh       // those that the program uses
	Inputs   []BoundValue
	Outputs  []BoundValue
	Symbols  map[string]int // those with a value
}

// A BoundMesh is a mesh of the manifest on real devices.
type BoundMesh struct {
	ID   string
	Mesh *mesh.Mesh
	// Order lists the places in the device assignment of the devices, in mesh order.
	Order []int
}

// A BoundValue is an argument or result of a bound program.
type BoundValue struct {
	Value
	Extent   []int          // the shape, -1 where a symbol has no value
	Sharding *mesh.Sharding // or nil: left to the compiler
	Shard    []int          // the shape on one device, -1 as in Extent; nil without a sharding
}

// unknownSize stands for the extent of a dimension whose symbol has no value.
const unknownSize = -1

// Bind joins a manifest with the meshes of a job (P-EXP-4). Every mesh that a sharding uses must be
// supplied and match in names, sizes and types; all cover the same devices, as many as the program was
// exported for, unless that is one. Errors are a [*MismatchError] or a [*ValueError], or say what does
// not fit of the whole.
func Bind(m *Manifest, supplied []Supplied, o Options) (*Bound, error) {
	if err := m.Check(); err != nil {
		return nil, err
	}
	match := matcher{m, o}
	meshes, err := match.all(supplied)
	if err != nil {
		return nil, err
	}
	b := &binder{manifest: m, options: o, out: &Bound{Manifest: m}, shardings: m.shardings()}
	for _, step := range []func() error{
		func() error { return b.assign(meshes, supplied) },
		b.devices,
		b.symbols,
		b.values,
	} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return b.out, nil
}

// A binder makes one Bound.
type binder struct {
	manifest *Manifest
	options  Options
	out      *Bound

	shardings map[string]*Sharding  // of the manifest, by id
	meshes    map[string]*BoundMesh // of out, by id
	base      *mesh.Mesh            // the devices: those of the first mesh
	solved    map[string]int
}

// assign finds the device assignment: the flat list of the first mesh that is used. The others must be
// permutations of it (P-EXP-4, 3 and 4).
func (b *binder) assign(meshes []matched, supplied []Supplied) error {
	switch {
	case len(meshes) > 0:
		b.base = meshes[0].mesh
	case len(supplied) == 1 && !supplied[0].Mesh.IsAbstract():
		b.base = supplied[0].Mesh
	case len(supplied) == 0:
		return bindErrorf("no mesh is supplied")
	default:
		return bindErrorf("no sharding of the program names a mesh: supply just one, with devices")
	}
	b.out.Devices, b.out.Tasks = b.base.Devices(), b.base.Tasks()
	if n := len(b.out.Devices); b.manifest.NumDevices != 1 && n != b.manifest.NumDevices {
		return bindErrorf("function %q was exported for %d devices and is bound to %d", b.manifest.Function, b.manifest.NumDevices, n)
	}
	position := make(map[serry.DeviceID]int, len(b.out.Devices))
	for i, id := range b.out.Devices {
		position[id] = i
	}
	for _, m := range meshes {
		bound := BoundMesh{ID: m.entry.ID, Mesh: m.mesh, Order: make([]int, 0, m.mesh.Size())}
		for _, id := range m.mesh.Devices() {
			at, ok := position[id]
			if !ok || m.mesh.Size() != len(position) {
				return bindErrorf("mesh %q and mesh %q do not have the same devices: %d is not in both, or one has more",
					meshes[0].entry.ID, m.entry.ID, id)
			}
			bound.Order = append(bound.Order, at)
		}
		b.out.Meshes = append(b.out.Meshes, bound)
	}
	b.meshes = indexed(b.out.Meshes, func(m *BoundMesh) string { return m.ID })
	return nil
}

// devices checks the platform and, if asked to, kind and cores (P-EXP-4, 5).
func (b *binder) devices() error {
	hw := b.base.Hardware()
	if p := b.manifest.Program.Platforms; hw.Platform != "" && len(p) > 0 && !slices.ContainsFunc(p, func(name string) bool {
		return name == hw.Platform || hw.Platform == "gpu" && (name == "cuda" || name == "rocm")
	}) {
		return bindErrorf("function %q was exported for %q and is bound to devices of platform %q", b.manifest.Function, p, hw.Platform)
	}
	if !b.options.StrictDevice {
		return nil
	}
	for _, m := range b.out.Meshes {
		want := b.manifest.mesh(m.ID).Device
		if want != nil && (want.Kind != hw.Kind || want.Cores != 0 && want.Cores != hw.Cores) {
			return bindErrorf("mesh %q: exported for %s with %d cores, bound to %s with %d",
				m.ID, orNone(want.Kind), want.Cores, orNone(hw.Kind), hw.Cores)
		}
	}
	return nil
}

func orNone(kind string) string {
	if kind == "" {
		return "an unnamed kind of device"
	}
	return fmt.Sprintf("%q", kind)
}

// symbols collects the values of symbols: those that are given, and those that follow from the shapes
// of inputs. It then checks their bounds.
func (b *binder) symbols() error {
	b.solved = maps.Clone(b.options.Symbols)
	if b.solved == nil {
		b.solved = map[string]int{}
	}
	known := b.manifest.symbolNames()
	for _, name := range slices.Sorted(maps.Keys(b.solved)) {
		if !slices.Contains(known, name) {
			return bindErrorf("the program has no symbol %q: it has %q", name, known)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(b.options.Shapes)) {
		v := b.manifest.input(name)
		if v == nil {
			return bindErrorf("there is no input %q whose shape could be %v", name, b.options.Shapes[name])
		}
		if err := b.solve(v, b.options.Shapes[name]); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(b.solved)) {
		bound, n := b.manifest.Symbols[name], b.solved[name]
		switch {
		case n < 0 || n < bound.Min, bound.Max > 0 && n > bound.Max:
			return bindErrorf("symbol %q is %d, want %s", name, n, bound)
		case bound.MultipleOf > 1 && n%bound.MultipleOf != 0:
			return bindErrorf("symbol %q is %d, want a multiple of %d", name, n, bound.MultipleOf)
		}
	}
	b.out.Symbols = b.solved
	return nil
}

// symbolNames lists the symbols of all shapes, in order.
func (m *Manifest) symbolNames() []string {
	found := map[string]bool{}
	for _, v := range slices.Concat(m.Inputs, m.Outputs) {
		for _, size := range v.Shape {
			_, names, _ := size.parse(nil) // Check has seen that it parses
			for _, name := range names {
				found[name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// String says which sizes fit the bounds.
func (s Symbol) String() string {
	if s.Max > 0 {
		return fmt.Sprintf("from %d to %d", s.Min, s.Max)
	}
	return fmt.Sprintf("%d or more", s.Min)
}

// solve takes the values of symbols that stand alone in the shape of v.
func (b *binder) solve(v *Value, shape []int) error {
	if len(shape) != len(v.Shape) {
		return valueError(v.Name, bindErrorf("shape %v has %d dimensions, want %d", shape, len(shape), len(v.Shape)))
	}
	for d, size := range v.Shape {
		name, alone := size.symbol()
		if !alone {
			continue
		}
		if known, ok := b.solved[name]; ok && known != shape[d] {
			return &ValueError{v.Name, d, "", bindErrorf("dimension %d is %d, but symbol %q is %d", d, shape[d], name, known)}
		}
		b.solved[name] = shape[d]
	}
	return nil
}

// values binds each argument and result.
func (b *binder) values() (err error) {
	if b.out.Inputs, err = b.side(b.manifest.Inputs); err != nil {
		return err
	}
	for i := range b.out.Inputs {
		v := &b.out.Inputs[i]
		if given, ok := b.options.Shapes[v.Name]; ok && !slices.Equal(given, v.Extent) {
			return valueError(v.Name, bindErrorf("shape %v is given, want %s, which is %v", given, ShapeText(v.Shape), v.Extent))
		}
	}
	b.out.Outputs, err = b.side(b.manifest.Outputs)
	return err
}

func (b *binder) side(values []Value) ([]BoundValue, error) {
	bound := map[string]*mesh.Sharding{} // by id: values share them
	out := make([]BoundValue, len(values))
	for i, v := range values {
		s, ok := bound[v.Sharding]
		if !ok {
			var err error
			if s, err = b.shard(v); err != nil {
				return nil, valueError(v.Name, err)
			}
			bound[v.Sharding] = s
		}
		var err error
		if out[i], err = b.value(v, s); err != nil {
			return nil, valueError(v.Name, err)
		}
	}
	return out, nil
}

// shard makes the sharding of v on the devices.
func (b *binder) shard(v Value) (*mesh.Sharding, error) {
	s := b.shardings[v.Sharding]
	if s == nil {
		if b.manifest.NumDevices == 1 && v.DType != Token {
			return b.base.Shard(mesh.Spec{}) // C-EXP-12: the same on every device
		}
		return nil, nil
	}
	over, spec := b.base, s.spec()
	switch at := b.meshes[s.Mesh]; {
	case at != nil:
		over = at.Mesh
	case s.Tile != "":
		tile, err := form.ParseTile(s.Tile)
		if err != nil {
			return nil, err
		}
		if spec, err = b.base.SpecOfTile(tile); err != nil {
			return nil, fmt.Errorf("tile %s: %w", s.Tile, err)
		}
	}
	out, err := over.Shard(spec)
	if err != nil || s.Memory == "" {
		return out, err
	}
	return out.WithMemory(s.Memory) // which refuses kinds that the devices do not have (P-EXP-4, 6)
}

// value finds the shapes of v, and makes sure that every split dimension divides (P-EXP-4, 7).
func (b *binder) value(v Value, s *mesh.Sharding) (BoundValue, error) {
	out := BoundValue{Value: v, Sharding: s, Extent: make([]int, len(v.Shape))}
	known := make([]int, len(v.Shape)) // a stand-in where the size is not known
	for d, size := range v.Shape {
		n, err := size.eval(b.solved)
		if _, unset := errors.AsType[*UnsetError](err); unset {
			out.Extent[d], known[d] = unknownSize, b.standIn(size)
			continue
		}
		if err != nil {
			return out, err
		}
		out.Extent[d], known[d] = n, n
	}
	if s == nil || v.DType == Token {
		out.Sharding = nil
		return out, nil
	}
	shard, err := s.ShardShape(known)
	if err != nil {
		return out, b.needsSymbol(v, err)
	}
	for d, n := range out.Extent {
		if n == unknownSize {
			shard[d] = unknownSize
		}
	}
	out.Shard = shard
	return out, nil
}

// standIn is a size that divides by whatever every value of an unset symbol divides by, so that a check
// which passes with it passes with all of them. For a symbol inside an expression that is 1.
func (b *binder) standIn(size Size) int {
	name, _ := size.symbol()
	return max(1, b.manifest.Symbols[name].MultipleOf)
}

// needsSymbol says which symbol would settle whether a dimension divides.
func (b *binder) needsSymbol(v Value, err error) error {
	at, ok := errors.AsType[*mesh.Error](err)
	if !ok || at.Dim < 0 || at.Dim >= len(v.Shape) {
		return err
	}
	_, evalErr := v.Shape[at.Dim].eval(b.solved)
	if unset, ok := errors.AsType[*UnsetError](evalErr); ok {
		return fmt.Errorf("dimension %d of size %q is split, and %w; give it one, or a multiple_of in the manifest: %w",
			at.Dim, v.Shape[at.Dim], unset, err)
	}
	return err
}
