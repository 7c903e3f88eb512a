package export

import (
	"fmt"
	"slices"

	"github.com/serry-dev/serry/mesh"
)

// A Supplied mesh is one that a job has. Without an ID it stands for the one mesh of the manifest that
// it matches.
type Supplied struct {
	ID   string
	Mesh *mesh.Mesh
}

// A matcher finds the supplied mesh for each mesh of a manifest.
type matcher struct {
	manifest *Manifest
	options  Options
}

// match gives the devices of given the axes of entry (P-EXP-4, 2): as they are, else renamed by an
// alias, else transposed.
func (m matcher) match(entry *Mesh, given *mesh.Mesh) (*mesh.Mesh, error) {
	want, err := entry.axes()
	if err != nil {
		return nil, err
	}
	if given.IsAbstract() {
		return nil, &MismatchError{Mesh: entry.ID, Want: want, Got: given.Axes(), Reason: "the mesh has no devices"}
	}
	mismatch := m.compare(entry.ID, want, given.Axes())
	if mismatch == nil {
		return given.Transpose(nil, want...)
	}
	for _, alias := range m.aliases(entry.ID) {
		renamed := rename(given.Axes(), alias)
		again := m.compare(entry.ID, want, renamed)
		if again == nil {
			return given.Transpose(nil, want...)
		}
		if perm := order(want, renamed); m.options.AllowReorder && perm != nil {
			return m.reordered(entry.ID, given, want, renamed, perm)
		}
		if !slices.Equal(renamed, given.Axes()) {
			mismatch = again // say what is still wrong with the alias that the caller counts on
		}
	}
	if perm := order(want, given.Axes()); m.options.AllowReorder && perm != nil {
		return m.reordered(entry.ID, given, want, given.Axes(), perm)
	}
	return nil, mismatch
}

// reordered is match for a mesh whose axes stand in another order.
func (m matcher) reordered(id string, given *mesh.Mesh, want, got []mesh.Axis, perm []int) (*mesh.Mesh, error) {
	sorted := make([]mesh.Axis, len(perm))
	for i, at := range perm {
		sorted[i] = got[at]
	}
	if err := m.compare(id, want, sorted); err != nil {
		return nil, err
	}
	return given.Transpose(perm, want...)
}

// aliases lists the ways to rename the axes of a supplied mesh: those of the caller come first.
func (m matcher) aliases(id string) []map[string]string {
	var out []map[string]string
	for _, a := range slices.Concat(m.options.Aliases, m.manifest.Aliases) {
		if a.Mesh == id || a.Mesh == "" {
			out = append(out, a.Axes)
		}
	}
	return out
}

func rename(axes []mesh.Axis, alias map[string]string) []mesh.Axis {
	out := slices.Clone(axes)
	for i, a := range out {
		if name, ok := alias[a.Name]; ok {
			out[i].Name = name
		}
	}
	return out
}

// compare says how axes differ, or nil.
func (m matcher) compare(id string, want, got []mesh.Axis) error {
	fail := func(axis, option, format string, args ...any) error {
		return &MismatchError{Mesh: id, Want: want, Got: got, Axis: axis, Reason: fmt.Sprintf(format, args...), Option: option}
	}
	if len(want) != len(got) {
		return fail("", "", "%d axes, want %d", len(got), len(want))
	}
	for i, w := range want {
		g := got[i]
		switch {
		case w.Name != g.Name && order(want, got) != nil:
			return fail(w.Name, "AllowReorder", "the axes stand in another order; allow to reorder them, or make the mesh in this order")
		case w.Name != g.Name:
			return fail(w.Name, "Aliases", "axis %d is %q, want %q; rename it, or give an alias", i, g.Name, w.Name)
		case w.Size != g.Size:
			return fail(w.Name, "", "axis %q has size %d, want %d", w.Name, g.Size, w.Size)
		case w.Type != g.Type && !m.options.IgnoreAxisTypes:
			return fail(w.Name, "IgnoreAxisTypes", "axis %q is %v, want %v; change its type, or ignore the types", w.Name, g.Type, w.Type)
		}
	}
	return nil
}

// order says where each wanted axis is among got, by name and size; nil if they are not the same set.
func order(want, got []mesh.Axis) []int {
	if len(want) != len(got) {
		return nil
	}
	out := make([]int, len(want))
	for i, w := range want {
		at := slices.IndexFunc(got, func(g mesh.Axis) bool { return g.Name == w.Name && g.Size == w.Size })
		if at < 0 {
			return nil
		}
		out[i] = at
	}
	return out
}

// A matched mesh is a mesh of the manifest on the devices of the job.
type matched struct {
	entry *Mesh
	mesh  *mesh.Mesh
}

// all finds a supplied mesh for each entry that some sharding uses (P-EXP-4, 1).
func (m matcher) all(supplied []Supplied) ([]matched, error) {
	used := m.manifest.UsedMeshes()
	for _, s := range supplied {
		if s.ID != "" && m.manifest.mesh(s.ID) == nil {
			return nil, bindErrorf("there is no mesh %q in the manifest, it has %q", s.ID, meshIDs(m.manifest.Meshes))
		}
	}
	var out []matched
	for i := range m.manifest.Meshes {
		entry := &m.manifest.Meshes[i]
		if !used[entry.ID] || len(entry.Names) == 0 {
			continue // the empty mesh is one device, whichever that is
		}
		over, err := m.find(entry, supplied)
		if err != nil {
			return nil, err
		}
		out = append(out, matched{entry, over})
	}
	return out, nil
}

// find finds the supplied mesh of one entry: by its id, else the one that matches.
func (m matcher) find(entry *Mesh, supplied []Supplied) (*mesh.Mesh, error) {
	if s := find(supplied, func(s *Supplied) bool { return s.ID == entry.ID }); s != nil {
		return m.match(entry, s.Mesh)
	}
	var found []*mesh.Mesh
	var failed error
	for _, s := range supplied {
		if s.ID != "" {
			continue
		}
		over, err := m.match(entry, s.Mesh)
		if err != nil {
			failed = err
			continue
		}
		found = append(found, over)
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return nil, bindErrorf("%d of the meshes match mesh %q: say which one it is", len(found), entry.ID)
	case failed != nil:
		return nil, failed
	}
	want, _ := entry.axes()
	return nil, bindErrorf("mesh %q %s is not supplied", entry.ID, axesText(want))
}

func meshIDs(meshes []Mesh) []string {
	out := make([]string, len(meshes))
	for i, e := range meshes {
		out[i] = e.ID
	}
	return out
}
