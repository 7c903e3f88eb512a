package mesh

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/serry-dev/serry/mesh/internal/notation"
)

// torusOptions say how mesh axes may use the axes of a torus.
type torusOptions struct {
	split     bool // a physical axis may be cut into several mesh axes
	coreFirst bool // the fourth physical axis is the fastest
}

// assignTorus gives every axis of shape a set of physical axes, or with split a
// part of them, and lays the devices out accordingly. The matrix has a row per
// physical and a column per mesh axis; rows multiply to the physical sizes,
// columns to the mesh sizes (C-MESH-21…27).
func assignTorus[T any](physical grid[T], shape []int, o torusOptions) (grid[T], [][]int, error) {
	sets, err := wholeAxes(physical.shape, shape, o.coreFirst)
	if err != nil {
		if !o.split {
			return grid[T]{}, nil, err
		}
		matrix := splitAxes(physical.shape, shape)
		return layout(physical, shape, matrix), matrix, nil
	}
	matrix := ones(len(physical.shape), len(shape))
	var perm []int
	for l, set := range sets {
		for _, p := range set {
			matrix[p][l] = physical.shape[p]
			perm = append(perm, p)
		}
	}
	return physical.transpose(perm).reshape(shape), matrix, nil
}

// wholeAxes serves the mesh axes from last to first, each with the largest set
// of unused physical axes whose sizes multiply to its own.
func wholeAxes(physical, shape []int, coreFirst bool) ([][]int, error) {
	remain := slices.Clone(physical)
	sets := make([][]int, len(shape))
	for l := len(shape) - 1; l >= 0; l-- {
		set := findSet(remain, shape[l], coreFirst)
		if set == nil && shape[l] > 1 {
			return nil, errorf(ErrUnsupported, "mesh axis %d of size %d is not a product of the physical axes "+
				"that are left, %s: choose other sizes or allow split axes", l, shape[l], notation.Tuple(remain))
		}
		for _, p := range set {
			remain[p] = 0
		}
		sets[l] = set
	}
	return sets, nil
}

func findSet(remain []int, size int, coreFirst bool) []int {
	for k := len(remain); k > 0; k-- {
		sets := combinations(len(remain), k)
		if coreFirst && len(remain) == 4 {
			slices.SortStableFunc(sets, compareByCore)
		}
		for _, set := range sets {
			if productOf(remain, set) == size {
				return set
			}
		}
	}
	return nil
}

// compareByCore ranks sets of the axes x, y, z, core of chips whose cores are
// joined by the fastest link: by the best axis, then by all of them.
func compareByCore(a, b []int) int {
	rank := func(set []int) (best, sum int) {
		best = 4
		for _, p := range set {
			r := (p + 1) % 4
			best, sum = min(best, r), sum+r
		}
		return best, sum
	}
	bestA, sumA := rank(a)
	bestB, sumB := rank(b)
	return cmp.Or(cmp.Compare(bestA, bestB), cmp.Compare(sumA, sumB))
}

// combinations lists the k-element subsets of 0…n-1 in lexicographic order.
func combinations(n, k int) [][]int {
	var out [][]int
	for mask := uint(1)<<n - 1; mask > 0; mask-- { // with 0 as the highest bit, the larger number comes first
		if bits.OnesCount(mask) != k {
			continue
		}
		var set []int
		for i := range n {
			if mask>>(n-1-i)&1 == 1 {
				set = append(set, i)
			}
		}
		out = append(out, set)
	}
	return out
}

// splitAxes fills the matrix column by column from the last mesh axis on, each
// time with the best way to spread it over what the rows have left.
func splitAxes(physical, shape []int) [][]int {
	matrix := ones(len(physical), len(shape))
	used := make([]int, len(physical))
	for p := range used {
		used[p] = 1
	}
	for l := len(shape) - 1; l >= 0; l-- {
		var best []int
		for _, c := range columns(physical, used, shape[l]) {
			if best == nil || prefer(c, best, physical, used) {
				best = c
			}
		}
		for p, n := range best {
			matrix[p][l] = n
			used[p] *= n
		}
	}
	return matrix
}

// columns lists every way to write size as a product with one factor per
// physical axis that divides what this axis has left.
func columns(physical, used []int, size int) [][]int {
	left := make([]int, len(physical))
	start := make([]int, len(physical))
	for p := range physical {
		left[p], start[p] = physical[p]/used[p], 1
	}
	out := [][]int{start}
	for _, prime := range primeFactors(size) {
		var next [][]int
		for _, c := range out {
			for p := range c {
				if left[p]%(c[p]*prime) != 0 {
					continue
				}
				grown := slices.Clone(c)
				grown[p] *= prime
				next = append(next, grown)
			}
		}
		slices.SortFunc(next, slices.Compare)
		out = slices.CompactFunc(next, slices.Equal)
	}
	return out
}

// primeFactors lists the primes of n in ascending order.
func primeFactors(n int) []int {
	var out []int
	for p := 2; p*p <= n; p++ {
		for n%p == 0 {
			out = append(out, p)
			n /= p
		}
	}
	if n > 1 {
		out = append(out, n)
	}
	return out
}

// prefer says whether column x is better than y: it fills more of whole axes,
// then more axes wholly, then, as JAX has it (C-MESH-26), more of axes that are
// in use already, then it is the larger tuple.
func prefer(x, y, physical, used []int) bool {
	whole := func(p, n int) bool { return n == physical[p] }
	crowded := func(p, _ int) bool { return used[p] > 1 }
	productX, countX := tally(x, whole)
	productY, countY := tally(y, whole)
	crowdX, _ := tally(x, crowded)
	crowdY, _ := tally(y, crowded)
	return cmp.Or(cmp.Compare(productX, productY), cmp.Compare(countX, countY), cmp.Compare(crowdX, crowdY), slices.Compare(x, y)) > 0
}

// tally multiplies and counts the factors of a column that keep picks.
func tally(column []int, keep func(p, n int) bool) (product, count int) {
	product = 1
	for p, n := range column {
		if keep(p, n) && n > 1 {
			product *= n
			count++
		}
	}
	return product, count
}

// layout cuts the physical axes by the rows of the matrix and groups the pieces
// by column.
func layout[T any](physical grid[T], shape []int, matrix [][]int) grid[T] {
	var cut, perm []int
	for _, row := range matrix {
		cut = append(cut, row...)
	}
	for l := range shape {
		for p := range matrix {
			perm = append(perm, p*len(shape)+l)
		}
	}
	return physical.reshape(cut).transpose(perm).reshape(shape)
}

func ones(rows, columns int) [][]int {
	out := make([][]int, rows)
	for r := range out {
		out[r] = slices.Repeat([]int{1}, columns)
	}
	return out
}
