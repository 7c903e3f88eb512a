package mesh

import (
	"slices"

	"github.com/serry-dev/serry/mesh/internal/notation"
)

// Tile is the sharding without names, for arrays of the given rank
// (C-SHD-13). Axes of size one leave no trace.
func (s *Sharding) Tile(rank int) (Tile, error) {
	if rank < 0 || rank > maxRank {
		return Tile{}, errorf(ErrInvalid, "array of rank %d, want 0…%d", rank, maxRank)
	}
	if err := s.spec.CheckRank(rank); err != nil {
		return Tile{}, err
	}
	number := make(map[string]int) // axes of size > 1, counted in mesh order
	var reshape []int
	for _, a := range s.mesh.axes {
		if a.Size > 1 {
			number[a.Name] = len(reshape)
			reshape = append(reshape, a.Size)
		}
	}
	dims := s.blocks(rank).ways
	var perm []int
	for _, name := range s.spec.axes {
		if n, ok := number[name]; ok {
			perm = append(perm, n)
		}
	}
	if len(perm) == len(reshape) {
		if len(reshape) == 0 {
			return Tile{Type: TileReplicated}, nil
		}
		return NewTile(dims, reshape, perm)
	}
	return s.tileWithGroups(dims, reshape, perm)
}

// tileWithGroups adds the axes that split nothing, one group per type.
func (s *Sharding) tileWithGroups(dims, reshape, perm []int) (Tile, error) {
	groups := map[TileType][]int{}
	n := 0
	for _, a := range s.mesh.axes {
		if a.Size == 1 {
			continue
		}
		typ := TileReplicated
		if slices.Contains(s.spec.Unreduced, a.Name) {
			typ = TileUnreduced
		} else if a.Type == Manual {
			typ = TileManual
		}
		if !s.spec.uses(a.Name) {
			groups[typ] = append(groups[typ], n)
		} else if typ == TileManual {
			return Tile{}, onAxis(a.Name).errorf(ErrUnsupported, "%s splits a dimension over the Manual axis %s while other axes split nothing: "+
				"such a sharding has no tile", s.spec, notation.Quote(a.Name))
		}
		n++
	}
	var last []TileType
	for _, typ := range []TileType{TileReplicated, TileManual, TileUnreduced} {
		if group := groups[typ]; len(group) > 0 {
			dims, perm, last = append(dims, productOf(reshape, group)), append(perm, group...), append(last, typ)
		}
	}
	return NewTile(dims, reshape, perm, last...)
}

// SpecOfTile finds the spec over m whose tile is t (C-SHD-16), without trailing
// empty entries.
func (m *Mesh) SpecOfTile(t Tile) (Spec, error) {
	if t.Type == TileReplicated || t.Type == TileMaximal && m.size == 1 {
		return Spec{}, nil
	}
	if t.Type != Tiled {
		return Spec{}, errorf(ErrUnsupported, "tile %s is no spec over one mesh", t)
	}
	if t.Size() != m.size {
		return Spec{}, errorf(ErrInvalid, "tile %s is for %d devices, mesh %s has %d", t, t.Size(), m.brief(), m.size)
	}
	if len(t.Last) > 1 || len(t.Last) == 1 && t.Last[0] != TileReplicated {
		return Spec{}, errorf(ErrUnsupported, "tile %s has groups that a spec cannot express", t)
	}
	order, err := m.axisOrder(t.List())
	if err != nil {
		return Spec{}, err
	}
	var spec Spec
	for dim, n := range t.Dims[:len(t.Dims)-len(t.Last)] {
		var entry Dim
		for n > 1 {
			a := m.axes[order[0]]
			if n%a.Size != 0 {
				return Spec{}, location{a.Name, dim}.errorf(ErrIndivisible, "dimension %d of tile %s is split %d ways, "+
					"not divisible by axis %s of size %d", dim, t, n, notation.Quote(a.Name), a.Size)
			}
			entry, order = append(entry, a.Name), order[1:]
			n /= a.Size
		}
		spec.Dims = append(spec.Dims, entry)
	}
	for len(spec.Dims) > 0 && len(spec.Dims[len(spec.Dims)-1]) == 0 {
		spec.Dims = spec.Dims[:len(spec.Dims)-1]
	}
	return spec, nil
}

// axisOrder finds in which order the axes of m run through a device list, major
// first. Axes of size one are left out. Every other axis has a stride of its
// own, so the first difference at each level tells which it is.
func (m *Mesh) axisOrder(list []int) ([]int, error) {
	step := strides(m.shape())
	var order, sizes, steps []int
	for n := 1; n < len(list); {
		axis := -1
		for a := range m.axes {
			if m.axes[a].Size > 1 && step[a] == list[n]-list[0] {
				axis = a
			}
		}
		if axis < 0 || slices.Contains(order, axis) {
			break
		}
		order = append([]int{axis}, order...)
		sizes, steps = append([]int{m.axes[axis].Size}, sizes...), append([]int{step[axis]}, steps...)
		n *= m.axes[axis].Size
	}
	if product(sizes) == len(list) && slices.Equal(list, walkStrides(sizes, steps)) {
		return order, nil
	}
	return nil, errorf(ErrUnsupported, "device order of the tile is no transpose of the axes of mesh %s", m.brief())
}
