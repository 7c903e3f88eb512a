package export

import (
	"fmt"
	"slices"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/mesh"
)

// A VariantError says why a program cannot go on with the devices that are left.
type VariantError struct {
	Axis   string
	Alive  int   // rows of the axis whose devices all live
	Needs  int   // devices of one row
	Offers []int // numbers of devices the program was exported for
}

func (e *VariantError) Error() string {
	return fmt.Sprintf("%v: %d whole rows of axis %q are left, %d devices each; the program was exported for %d devices",
		ErrNoVariant, e.Alive, e.Axis, e.Needs, e.Offers)
}

// Unwrap gives [ErrNoVariant].
func (e *VariantError) Unwrap() error { return ErrNoVariant }

// Rebind binds the program again after devices were lost (P-EXP-8). It keeps the rows of an axis whose
// devices all live, as many of them as a variant of the manifest was exported for, and drops the rest;
// names stay, and the size of that axis changes. It never changes the number of devices of a compiled
// program: without such a variant the error is a [*VariantError].
func (b *Bound) Rebind(live []serry.DeviceID, axis string, o Options) (*Bound, error) {
	alive := map[serry.DeviceID]bool{}
	for _, id := range live {
		alive[id] = true
	}
	if len(b.Meshes) == 0 {
		return nil, bindErrorf("the program has no mesh, so no rows of axis %q", axis)
	}
	rows, each, err := liveRows(b.Meshes, axis, alive)
	if err != nil {
		return nil, err
	}
	failure := error(&VariantError{Axis: axis, Alive: len(rows), Needs: each, Offers: b.Manifest.sizes()})
	for n := len(rows); n > 0; n-- {
		program := b.Manifest.programFor(n * each)
		if program == nil {
			continue
		}
		again, err := b.resized(rows[:n], axis, *program, o)
		if err == nil {
			return again, nil
		}
		failure = err
	}
	return nil, failure
}

// liveRows lists the rows of an axis in which every device lives, in every mesh, and says how many
// devices a row has.
func liveRows(meshes []BoundMesh, axis string, alive map[serry.DeviceID]bool) (rows []int, each int, err error) {
	for i, m := range meshes {
		a, ok := m.Mesh.Axis(axis)
		if !ok {
			return nil, 0, bindErrorf("mesh %q has no axis %q: it has %s", m.ID, axis, axesText(m.Mesh.Axes()))
		}
		broken := map[int]bool{}
		for at, id := range m.Mesh.Devices() {
			if !alive[id] {
				broken[rowOf(m.Mesh, axis, at)] = true
			}
		}
		each = m.Mesh.Size() / a.Size
		if i == 0 {
			rows = countFrom(0, a.Size)
		}
		rows = slices.DeleteFunc(rows, func(r int) bool { return r >= a.Size || broken[r] })
	}
	return rows, each, nil
}

// rowOf is the place along an axis of the device at a place in mesh order.
func rowOf(m *mesh.Mesh, axis string, at int) int {
	stride := 1
	for _, a := range slices.Backward(m.Axes()) {
		if a.Name == axis {
			return at / stride % a.Size
		}
		stride *= a.Size
	}
	return 0
}

// resized binds with only some rows of an axis.
func (b *Bound) resized(rows []int, axis string, program Program, o Options) (*Bound, error) {
	m := *b.Manifest
	m.Program = program
	m.Meshes = slices.Clone(m.Meshes)
	m.Aliases, o.Aliases = nil, nil // the meshes have the names of the export by now
	var supplied []Supplied
	for _, bound := range b.Meshes {
		entry := find(m.Meshes, func(e *Mesh) bool { return e.ID == bound.ID })
		entry.Sizes = slices.Clone(entry.Sizes)
		entry.Sizes[slices.Index(entry.Names, axis)] = len(rows)
		smaller, err := keepRows(bound.Mesh, axis, rows)
		if err != nil {
			return nil, err
		}
		supplied = append(supplied, Supplied{bound.ID, smaller})
		m.NumDevices = smaller.Size()
	}
	if m.NumDevices != b.Manifest.NumDevices {
		m.Derivative, m.Devices = nil, nil // they are for the old number of devices; a variant has none
	}
	if o.Symbols == nil {
		o.Symbols = b.Symbols
	}
	return Bind(&m, supplied, o)
}

// keepRows is the part of a mesh with only some rows of an axis.
func keepRows(m *mesh.Mesh, axis string, rows []int) (*mesh.Mesh, error) {
	axes := m.Axes()
	for i := range axes {
		if axes[i].Name == axis {
			axes[i].Size = len(rows)
		}
	}
	kept := map[int]bool{}
	for _, r := range rows {
		kept[r] = true
	}
	var places []int
	for at := range m.Size() {
		if kept[rowOf(m, axis, at)] {
			places = append(places, at)
		}
	}
	return m.Pick(places, axes...)
}

// programFor is the program for a number of devices, or nil.
func (m *Manifest) programFor(devices int) *Program {
	if devices == m.NumDevices {
		return &m.Program
	}
	if v := find(m.Variants, func(v *Variant) bool { return v.NumDevices == devices }); v != nil {
		return &v.Program
	}
	return nil
}

// sizes lists the numbers of devices that the program was exported for.
func (m *Manifest) sizes() []int {
	out := []int{m.NumDevices}
	for _, v := range m.Variants {
		out = append(out, v.NumDevices)
	}
	slices.Sort(out)
	return slices.Compact(out)
}
