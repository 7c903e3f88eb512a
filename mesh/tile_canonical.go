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
// and, if asked, sorts those of the last of the new dims. Counted devices stay
// counted where that is possible.
func (t *Tile) reorder(order []int, sortLast bool, dims []int) {
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
	if reshape, perm, ok := countOf(list); ok && t.Devices == nil {
		t.Reshape, t.Perm = reshape, perm
		return
	}
	t.Devices, t.Reshape, t.Perm = list, nil, nil
}

// countOf finds how 0, 1, 2, … are reshaped and transposed to give a list; false
// if they never do. Every axis shows as a run of equal steps, the fastest first.
func countOf(list []int) (reshape, perm []int, ok bool) {
	type axis struct{ step, size int }
	var axes []axis
	for n := 1; n < len(list); {
		a := axis{list[n] - list[0], 2}
		for a.size*n < len(list) && list[a.size*n] == list[0]+a.size*a.step {
			a.size++
		}
		axes = append(axes, a)
		n *= a.size
	}
	source := slices.SortedFunc(slices.Values(axes), func(a, b axis) int { return cmp.Compare(b.step, a.step) })
	for _, a := range source {
		reshape = append(reshape, a.size)
	}
	for _, a := range slices.Backward(axes) {
		perm = append(perm, slices.Index(source, a))
	}
	if len(axes) == 0 {
		reshape, perm = []int{1}, []int{0}
	}
	return reshape, perm, isPermutation(perm) && slices.Equal(list, counting(reshape).transpose(perm).cells)
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
