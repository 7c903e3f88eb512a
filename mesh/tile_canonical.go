package mesh

import (
	"cmp"
	"slices"
)

// canonical merges the groups of each type, drops those of one device, puts
// replicas last and sorts them.
func (t Tile) canonical() Tile {
	if len(t.Last) == 0 {
		return t
	}
	cut := len(t.Dims) - len(t.Last)
	groups := map[TileType][]int{} // tile dimensions by type
	for i, typ := range t.Last {
		if t.Dims[cut+i] > 1 {
			groups[typ] = append(groups[typ], cut+i)
		}
	}
	order := counting([]int{cut}).cells
	dims := slices.Clone(t.Dims[:cut])
	var last []TileType
	for _, typ := range []TileType{TileManual, TileUnreduced, TileReplicated} {
		if group := groups[typ]; len(group) > 0 {
			order, dims, last = append(order, group...), append(dims, productOf(t.Dims, group)), append(last, typ)
		}
	}
	if len(last) == 1 && dims[cut] == product(dims) {
		return Tile{Type: last[0]}
	}
	if len(dims) == 0 { // only groups of one device
		return Tile{Type: TileReplicated}
	}
	t.reorder(order, len(last) > 0 && last[len(last)-1] == TileReplicated, dims)
	t.Dims, t.Last = dims, last
	return t
}

// reorder lays the devices out anew for the tile dimensions in the given order
// and, if asked, sorts those of the last of the new dims.
func (t *Tile) reorder(order []int, sortLast bool, dims []int) {
	if t.Devices == nil && t.reorderCount(order, sortLast, dims) {
		return
	}
	full := slices.Clone(order)
	for d, n := range t.Dims { // dropped dimensions have size one; any place will do
		if n == 1 && !slices.Contains(full, d) {
			full = append(full, d)
		}
	}
	list := grid[int]{shape: t.Dims, cells: t.List()}.transpose(full).cells
	if sortLast {
		for group := range slices.Chunk(list, dims[len(dims)-1]) {
			slices.Sort(group)
		}
	}
	t.Devices, t.Reshape, t.Perm = list, nil, nil
}

// reorderCount is reorder for counted devices, where the cuts allow it.
func (t *Tile) reorderCount(order []int, sortLast bool, dims []int) bool {
	pieces, ok := t.pieces()
	if !ok {
		return false
	}
	var arranged []tilePiece
	for _, d := range order {
		for _, p := range pieces {
			if p.dim == d {
				arranged = append(arranged, p)
			}
		}
	}
	if sortLast {
		tail, n := len(arranged), dims[len(dims)-1]
		for n > 1 {
			tail--
			n /= arranged[tail].size
		}
		slices.SortFunc(arranged[tail:], compareSource)
	}
	source := slices.Clone(arranged)
	slices.SortFunc(source, compareSource)
	reshape, perm := make([]int, len(source)), make([]int, len(arranged))
	for i, p := range source {
		reshape[i] = p.size
	}
	for i, p := range arranged {
		perm[i] = slices.Index(source, p)
	}
	t.Reshape, t.Perm = mergeIota(reshape, perm)
	return true
}

// A tilePiece is a factor that one reshape axis and one tile dimension share.
type tilePiece struct {
	size int
	axis int // of Reshape
	sub  int // position within the axis, major first
	dim  int // of Dims
}

func compareSource(a, b tilePiece) int {
	return cmp.Or(cmp.Compare(a.axis, b.axis), cmp.Compare(a.sub, b.sub))
}

// pieces cuts the transposed count and the dims into common factors, in the
// order of the dims. It says no where the cuts of the two cross.
func (t Tile) pieces() ([]tilePiece, bool) {
	if t.Type != Tiled || t.Devices != nil {
		return nil, false
	}
	var out []tilePiece
	dim, left := -1, 1
	for _, axis := range t.Perm {
		for rest, sub := t.Reshape[axis], 0; rest > 1; sub++ {
			for left == 1 {
				dim++
				left = t.Dims[dim]
			}
			size := min(rest, left)
			if rest%size != 0 || left%size != 0 {
				return nil, false
			}
			out = append(out, tilePiece{size, axis, sub, dim})
			rest, left = rest/size, left/size
		}
	}
	return out, true
}

// mergeIota drops reshape axes of size one and joins those that stay neighbours
// in order.
func mergeIota(reshape, perm []int) (newReshape, newPerm []int) {
	// join[axis] says that axis follows its left neighbour in the transpose too.
	join := make([]bool, len(reshape))
	kept := slices.DeleteFunc(slices.Clone(perm), func(a int) bool { return reshape[a] == 1 })
	for i := 1; i < len(kept); i++ {
		between := kept[i-1] + 1
		for between < kept[i] && reshape[between] == 1 {
			between++
		}
		join[kept[i]] = between == kept[i]
	}
	number := make([]int, len(reshape))
	for a, n := range reshape {
		switch {
		case n == 1:
		case join[a]:
			newReshape[len(newReshape)-1] *= n
		default:
			newReshape = append(newReshape, n)
			number[a] = len(newReshape) - 1
		}
	}
	for _, a := range kept {
		if !join[a] {
			newPerm = append(newPerm, number[a])
		}
	}
	if len(newReshape) == 0 {
		return []int{1}, []int{0}
	}
	return newReshape, newPerm
}
