package mesh

import (
	"cmp"
	"slices"
	"strings"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/mesh/internal/notation"
)

// A Sharding places arrays on a mesh by a spec. Shardings are immutable.
type Sharding struct {
	mesh   *Mesh
	spec   Spec   // canonical
	memory string // memory kind, or ""
}

// Shard makes the sharding of spec over m. It refuses axes that m does not have
// or that are used twice, Unconstrained where no axis is Auto, and unreduced or
// reduced axes that are not Explicit, in this order (C-SHD-2).
func (m *Mesh) Shard(spec Spec) (*Sharding, error) {
	if err := spec.Check(); err != nil {
		return nil, err
	}
	spec = spec.Canonical()
	if err := m.checkOnce(spec); err != nil {
		return nil, err
	}
	for dim, name := range spec.axes {
		if m.axisIndex(name) < 0 {
			return nil, location{name, dim}.errorf(ErrUnknownAxis, "axis %s in entry %d of %s is not found in mesh %s",
				notation.Quote(name), dim, spec, m.brief())
		}
	}
	if free := slices.IndexFunc(spec.Dims, Dim.free); free >= 0 && len(m.AxesOf(Auto)) == 0 {
		return nil, atDim(free).errorf(ErrInvalid, "%s leaves dimension %d unconstrained, but mesh %s has no Auto axis: "+
			"say None, or make an axis Auto", spec, free, m.brief())
	}
	if err := cmp.Or(m.checkReducible("unreduced", spec.Unreduced, spec), m.checkReducible("reduced", spec.Reduced, spec)); err != nil {
		return nil, err
	}
	s := &Sharding{mesh: m, spec: spec}
	if !m.abstract && len(m.hardware.Memories) > 0 {
		s.memory = m.hardware.Memories[0]
	}
	return s, nil
}

func (m *Mesh) checkOnce(spec Spec) error {
	var seen, twice []string
	first := location{dim: -1}
	for dim, name := range spec.axes {
		if slices.Contains(seen, name) && !slices.Contains(twice, name) {
			if len(twice) == 0 {
				first = location{name, dim}
			}
			twice = append(twice, name)
		}
		seen = append(seen, name)
	}
	if len(twice) == 0 {
		return nil
	}
	return first.errorf(ErrDuplicateAxis, "%s has duplicate entries for `%s`: an axis can split one dimension only, once",
		spec, strings.Join(twice, "`, `"))
}

func (m *Mesh) checkReducible(what string, names []string, spec Spec) error {
	for _, name := range names {
		axis, ok := m.Axis(name)
		if !ok {
			return onAxis(name).errorf(ErrUnknownAxis, "%s axis %s of %s is not found in mesh %s", what, notation.Quote(name), spec, m.brief())
		}
		if axis.Type != Explicit {
			return onAxis(name).errorf(ErrInvalid, "%s axis %s of %s is %s: only Explicit axes of a mesh can be %s",
				what, notation.Quote(name), spec, axis.Type, what)
		}
	}
	return nil
}

// WithMemory is the same sharding in another kind of memory. On a mesh with
// devices it must be one that they offer, where that is known; on an abstract
// mesh one of device, pinned_host and unpinned_host. "" is the default.
func (s *Sharding) WithMemory(kind string) (*Sharding, error) {
	offered := s.mesh.hardware.Memories
	if s.mesh.abstract {
		offered = []string{"device", "pinned_host", "unpinned_host"}
	}
	if kind == "" && !s.mesh.abstract && len(offered) > 0 {
		kind = offered[0]
	}
	if kind != "" && len(offered) > 0 && !slices.Contains(offered, kind) {
		return nil, errorf(ErrInvalid, "memory kind %q cannot be addressed by the devices of mesh %s: use one of %s",
			kind, s.mesh.brief(), strings.Join(offered, ", "))
	}
	if len(kind) > maxName || strings.ContainsFunc(kind, notWordRune) {
		return nil, errorf(ErrInvalid, "memory kind %q: use letters, digits and underscores", kind)
	}
	return &Sharding{mesh: s.mesh, spec: s.spec, memory: kind}, nil
}

func notWordRune(r rune) bool {
	return r != '_' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
}

// Mesh is the mesh sharded over.
func (s *Sharding) Mesh() *Mesh { return s.mesh }

// Spec is the spec in canonical form.
func (s *Sharding) Spec() Spec { return s.spec.Canonical() }

// Memory is the memory kind, or "" where nothing is known.
func (s *Sharding) Memory() string { return s.memory }

// Equal compares mesh, spec and memory kind. See [Sharding.Equivalent] for
// "places the same".
func (s *Sharding) Equal(o *Sharding) bool {
	if s == nil || o == nil {
		return s == o
	}
	return s.memory == o.memory && s.spec.Equal(o.spec) && s.mesh.Equal(o.mesh)
}

// Replicated says whether every device holds the whole array.
func (s *Sharding) Replicated() bool {
	if s.mesh.size == 1 {
		return true
	}
	if len(s.spec.Unreduced) > 0 {
		return false
	}
	for _, name := range s.spec.axes {
		if s.mesh.axes[s.mesh.axisIndex(name)].Size > 1 {
			return false
		}
	}
	return true
}

// ReplicatedAxes lists, in mesh order, the axes that the spec does not mention.
func (s *Sharding) ReplicatedAxes() []string {
	var out []string
	for _, a := range s.mesh.axes {
		if !s.spec.uses(a.Name) && !slices.Contains(s.spec.Unreduced, a.Name) && !slices.Contains(s.spec.Reduced, a.Name) {
			out = append(out, a.Name)
		}
	}
	return out
}

// addressable says whether task owns all devices. It is false for a task that
// owns none, and for an abstract mesh.
func (s *Sharding) addressable(task serry.TaskIndex) bool {
	for _, t := range s.mesh.tasks {
		if t != task {
			return false
		}
	}
	return len(s.mesh.tasks) > 0
}

func (s *Sharding) needDevices() error {
	if s.mesh.abstract {
		return errorf(ErrAbstract, "%s: an abstract mesh has no devices: shard over a mesh made by New or Make", s.mesh.brief())
	}
	return nil
}

// Equivalent says whether both shardings place arrays of this rank alike: same
// memory kind, same devices in the same order, same tiles, same reduction. The
// device lists are not compared if both meshes are abstract. The same slices reached through
// differently ordered device lists are not equivalent (C-SHD-17); see
// [Sharding.SamePlacement].
func (s *Sharding) Equivalent(o *Sharding, rank int) bool {
	if s.memory != o.memory {
		return false
	}
	if !(s.mesh.abstract && o.mesh.abstract) && !slices.Equal(s.mesh.ids, o.mesh.ids) {
		return false
	}
	a, errA := s.Tile(rank)
	b, errB := o.Tile(rank)
	if errA != nil || errB != nil {
		return false
	}
	return a.Equal(b) && s.reduction() == o.reduction()
}

// reduction is how partial values combine, "" where no device holds one.
func (s *Sharding) reduction() Reduction {
	for _, name := range s.spec.Unreduced {
		if s.mesh.axes[s.mesh.axisIndex(name)].Size > 1 {
			return s.spec.Kind
		}
	}
	return ""
}
