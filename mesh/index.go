package mesh

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/serry-dev/serry/mesh/internal/notation"
)

// A Range is a half-open piece of one dimension.
type Range struct{ Start, Stop int }

// Len is the number of elements.
func (r Range) Len() int { return r.Stop - r.Start }

// String prints the range as 0:2.
func (r Range) String() string { return strconv.Itoa(r.Start) + ":" + strconv.Itoa(r.Stop) }

// MarshalJSON writes the range as [start, stop].
func (r Range) MarshalJSON() ([]byte, error) { return json.Marshal([2]int{r.Start, r.Stop}) }

// UnmarshalJSON reads what MarshalJSON wrote.
func (r *Range) UnmarshalJSON(text []byte) error {
	var pair []int
	if err := json.Unmarshal(text, &pair); err != nil {
		return err
	}
	if len(pair) != 2 {
		return fmt.Errorf("an index range of %d numbers; want start and stop", len(pair))
	}
	r.Start, r.Stop = pair[0], pair[1]
	return nil
}

// An Index is a block of an array: one range per dimension, none for a scalar.
type Index []Range

// Shape is the extent of the block.
func (x Index) Shape() []int {
	out := make([]int, len(x))
	for d, r := range x {
		out[d] = r.Len()
	}
	return out
}

// Elements counts what is in the block.
func (x Index) Elements() int { return product(x.Shape()) }

// String prints the block as [0:2, 4:8].
func (x Index) String() string {
	return "[" + notation.JoinFunc(x, ", ", Range.String) + "]"
}

// offset counts the elements before the block in a dense array of that shape.
func (x Index) offset(shape []int) int {
	n := 0
	for d, step := range strides(shape) {
		n += x[d].Start * step
	}
	return n
}

// Compare orders blocks by where they start, dimension by dimension, and then by
// where they stop.
func (x Index) Compare(y Index) int {
	return slices.CompareFunc(x, y, func(a, b Range) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.Stop, b.Stop))
	})
}

// Within says whether the block is part of an array of that shape.
func (x Index) Within(shape []int) bool {
	if len(x) != len(shape) {
		return false
	}
	for d, r := range x {
		if r.Start < 0 || r.Stop < r.Start || r.Stop > shape[d] {
			return false
		}
	}
	return true
}

// Overlap is what two blocks of one array have in common; false if that is
// nothing.
func (x Index) Overlap(y Index) (Index, bool) {
	common := make(Index, len(x))
	for d := range x {
		common[d] = Range{max(x[d].Start, y[d].Start), min(x[d].Stop, y[d].Stop)}
		if common[d].Start >= common[d].Stop {
			return nil, false
		}
	}
	return common, true
}

// Minus cuts part, which lies within the block, out of it and returns what is
// left: at most two blocks for each dimension.
func (x Index) Minus(part Index) []Index {
	var rest []Index
	left := slices.Clone(x)
	for d, p := range part {
		if left[d].Start < p.Start {
			below := slices.Clone(left)
			below[d].Stop = p.Start
			rest = append(rest, below)
		}
		if p.Stop < left[d].Stop {
			above := slices.Clone(left)
			above[d].Start = p.Stop
			rest = append(rest, above)
		}
		left[d] = p
	}
	return rest
}
