package mesh

import "slices"

// A grid is a dense row-major block of values.
type grid[T any] struct {
	shape []int
	cells []T
}

// reshape gives the same cells another shape of the same size.
func (g grid[T]) reshape(shape []int) grid[T] {
	return grid[T]{shape: slices.Clone(shape), cells: g.cells}
}

// transpose moves axis perm[i] to position i.
func (g grid[T]) transpose(perm []int) grid[T] {
	from := strides(g.shape)
	shape := make([]int, len(perm))
	step := make([]int, len(perm))
	for i, p := range perm {
		shape[i], step[i] = g.shape[p], from[p]
	}
	out := grid[T]{shape: shape, cells: make([]T, 0, len(g.cells))}
	for _, at := range walkStrides(shape, step) {
		out.cells = append(out.cells, g.cells[at])
	}
	return out
}

// counting lays out 0, 1, 2, … in a shape.
func counting(shape []int) grid[int] {
	g := grid[int]{shape: shape, cells: make([]int, product(shape))}
	for i := range g.cells {
		g.cells[i] = i
	}
	return g
}

// strides gives the row-major step of every dimension.
func strides(shape []int) []int {
	out := make([]int, len(shape))
	step := 1
	for d := len(shape) - 1; d >= 0; d-- {
		out[d] = step
		step *= shape[d]
	}
	return out
}

// walkStrides lists the offsets of a strided block in row-major order.
func walkStrides(sizes, steps []int) []int {
	out := []int{0}
	for i, n := range sizes {
		next := make([]int, 0, len(out)*n)
		for _, base := range out {
			for k := range n {
				next = append(next, base+k*steps[i])
			}
		}
		out = next
	}
	return out
}

// product multiplies the sizes; it is 1 for none.
func product(shape []int) int {
	n := 1
	for _, s := range shape {
		n *= s
	}
	return n
}

// productOf multiplies some of the sizes.
func productOf(shape, axes []int) int {
	n := 1
	for _, a := range axes {
		n *= shape[a]
	}
	return n
}

// boundedProduct is product for sizes that came from outside: it says no where
// a size is negative or the result is over max.
func boundedProduct(shape []int, max int) (int, bool) {
	n, zero := 1, false
	for _, s := range shape {
		switch {
		case s < 0 || s > 0 && n > max/s:
			return 0, false
		case s == 0:
			zero = true
		default:
			n *= s
		}
	}
	if zero {
		return 0, true
	}
	return n, true
}
