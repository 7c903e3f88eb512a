package remap

import (
	"encoding/json"
	"fmt"
	"math"
	"math/bits"
	"strings"
)

// A Range is a half open interval of one dimension of an array.
type Range struct {
	Start, Stop int64
}

// MarshalJSON writes the range as [start, stop].
func (r Range) MarshalJSON() ([]byte, error) { return json.Marshal([2]int64{r.Start, r.Stop}) }

// UnmarshalJSON reads what MarshalJSON wrote.
func (r *Range) UnmarshalJSON(text []byte) error {
	var pair []int64
	if err := json.Unmarshal(text, &pair); err != nil {
		return err
	}
	if len(pair) != 2 {
		return fmt.Errorf("an index range of %d numbers; want start and stop", len(pair))
	}
	r.Start, r.Stop = pair[0], pair[1]
	return nil
}

// A Box is a part of an array: one range for each dimension, none for a scalar.
type Box []Range

// String prints the box as "[0:2, 4:6]".
func (b Box) String() string {
	texts := make([]string, len(b))
	for i, r := range b {
		texts[i] = fmt.Sprintf("%d:%d", r.Start, r.Stop)
	}
	return "[" + strings.Join(texts, ", ") + "]"
}

// Elements counts what is in the box.
func (b Box) Elements() int64 {
	n := int64(1)
	for _, r := range b {
		n *= r.Stop - r.Start
	}
	return n
}

// within says whether the box is part of an array of that shape.
func (b Box) within(shape []int64) bool {
	if len(b) != len(shape) {
		return false
	}
	for i, r := range b {
		if r.Start < 0 || r.Stop < r.Start || r.Stop > shape[i] {
			return false
		}
	}
	return true
}

// overlap is what two boxes of one array have in common.
func (b Box) overlap(c Box) (Box, bool) {
	common := make(Box, len(b))
	for i := range b {
		common[i] = Range{max(b[i].Start, c[i].Start), min(b[i].Stop, c[i].Stop)}
		if common[i].Start >= common[i].Stop {
			return nil, false
		}
	}
	return common, true
}

// minus cuts part out of the box, which holds it, and returns what is left: at
// most two boxes for each dimension.
func (b Box) minus(part Box) []Box {
	var rest []Box
	left := append(Box(nil), b...)
	for i, p := range part {
		if left[i].Start < p.Start {
			below := append(Box(nil), left...)
			below[i].Stop = p.Start
			rest = append(rest, below)
		}
		if p.Stop < left[i].Stop {
			above := append(Box(nil), left...)
			above[i].Start = p.Stop
			rest = append(rest, above)
		}
		left[i] = p
	}
	return rest
}

// elements counts the elements of a shape; false if it is none.
func elements(shape []int64) (int64, bool) {
	n := int64(1)
	for _, size := range shape {
		if size < 0 || size > 0 && n > math.MaxInt64/size {
			return 0, false
		}
		n *= size
	}
	return n, true
}

// share is how many of the bytes of a whole fall to a part of it.
func share(bytes, part, whole int64) int64 {
	if whole <= 0 || part >= whole {
		return bytes
	}
	hi, lo := bits.Mul64(uint64(bytes), uint64(part))
	q, _ := bits.Div64(hi, lo, uint64(whole)) // part < whole, so hi < whole
	return int64(q)
}
