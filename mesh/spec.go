package mesh

import (
	"slices"
	"strings"

	"github.com/serry-dev/serry/mesh/internal/notation"
)

// Unconstrained, alone in a [Dim], leaves the dimension to the compiler.
const Unconstrained = "?"

// A Dim says which mesh axes split one dimension of an array, the major one
// first. Empty means that the dimension is not split.
type Dim []string

// A Reduction says how the partial values of unreduced axes combine.
type Reduction string

// The reductions.
const (
	Sum Reduction = "sum"
	Max Reduction = "max"
	Min Reduction = "min"
)

// A Spec says how the dimensions of an array are split over mesh axes. Missing
// trailing entries mean "not split". Over an unreduced axis every device holds
// a partial value; reduced axes mark values whose transpose is unreduced, and
// place data like replication does.
type Spec struct {
	Dims      []Dim
	Unreduced []string  // a set
	Reduced   []string  // a set
	Kind      Reduction // how unreduced values combine; "" means Sum if there are any
}

// P is the spec with the given entries: P(Dim{"x"}, nil, Dim{"y", "z"}).
func P(dims ...Dim) Spec { return Spec{Dims: dims} }

// Check says what is wrong with the spec by itself, before any mesh is known.
func (s Spec) Check() error {
	if len(s.Dims) > maxRank {
		return errorf(ErrInvalid, "spec has %d entries, at most %d are possible", len(s.Dims), maxRank)
	}
	for i, d := range s.Dims {
		if len(d) > maxAxes {
			return atDim(i).errorf(ErrInvalid, "entry %d of the spec has %d axes, at most %d are possible", i, len(d), maxAxes)
		}
		for _, name := range d {
			if name == Unconstrained && len(d) == 1 {
				continue
			}
			if err := checkName(name); err != nil {
				return location{name, i}.errorf(ErrInvalid, "entry %d of the spec: %v", i, err)
			}
		}
	}
	return s.checkSets()
}

// checkSets is C-SPEC-5.
func (s Spec) checkSets() error {
	for _, set := range [][]string{s.Unreduced, s.Reduced} {
		if len(set) > maxAxes {
			return errorf(ErrInvalid, "spec has a set of %d axes, at most %d are possible", len(set), maxAxes)
		}
		for _, name := range set {
			if err := checkName(name); err != nil {
				return onAxis(name).errorf(ErrInvalid, "unreduced and reduced must name mesh axes: %v", err)
			}
		}
	}
	for _, name := range s.Unreduced {
		if slices.Contains(s.Reduced, name) {
			return onAxis(name).errorf(ErrInvalid, "%s: axis %s is both unreduced and reduced: drop it from one", s, notation.Quote(name))
		}
	}
	switch s.Kind {
	case "", Sum, Max, Min:
	default:
		return errorf(ErrInvalid, "unreduced kind %q: use sum, max or min", string(s.Kind))
	}
	if s.Kind != "" && len(s.Unreduced) == 0 {
		return errorf(ErrInvalid, "unreduced kind %s without an unreduced axis: name one or drop the kind", s.Kind)
	}
	for i, d := range s.Dims {
		for _, name := range d {
			if slices.Contains(s.Unreduced, name) || slices.Contains(s.Reduced, name) {
				return location{name, i}.errorf(ErrInvalid, "%s: entry %d overlaps with the unreduced or reduced axis %s: "+
					"an axis can only do one of these", s, i, notation.Quote(name))
			}
		}
	}
	return nil
}

// Canonical copies the spec with its sets sorted and free of repetitions, empty
// entries nil, and the kind filled in.
func (s Spec) Canonical() Spec {
	out := Spec{Unreduced: sortedSet(s.Unreduced), Reduced: sortedSet(s.Reduced), Kind: s.Kind}
	if len(s.Dims) > 0 {
		out.Dims = make([]Dim, len(s.Dims))
	}
	for i, d := range s.Dims {
		if len(d) > 0 {
			out.Dims[i] = slices.Clone(d)
		}
	}
	if len(out.Unreduced) > 0 && out.Kind == "" {
		out.Kind = Sum
	}
	return out
}

// Equal compares canonical forms, the number of entries included: P('x') is not
// P('x', None), though their shardings are equivalent.
func (s Spec) Equal(o Spec) bool {
	a, b := s.Canonical(), o.Canonical()
	return a.Kind == b.Kind && slices.Equal(a.Unreduced, b.Unreduced) && slices.Equal(a.Reduced, b.Reduced) &&
		slices.EqualFunc(a.Dims, b.Dims, func(x, y Dim) bool { return slices.Equal(x, y) })
}

// maxRank bounds the dimensions of an array.
const maxRank = 64

// CheckRank says what is wrong with the spec for values of some rank, or nil.
func (s Spec) CheckRank(rank int) error {
	if len(s.Dims) <= rank {
		return nil
	}
	hint := ""
	if rank == 0 {
		hint = ": for scalars use P()"
	}
	return atDim(rank).errorf(ErrInvalid, "spec %s is only valid for values of rank at least %d, "+
		"but was applied to a value of rank %d%s", s, len(s.Dims), rank, hint)
}

// axes walks all names that split a dimension.
func (s Spec) axes(yield func(dim int, name string) bool) {
	for i, d := range s.Dims {
		if d.free() {
			continue
		}
		for _, name := range d {
			if !yield(i, name) {
				return
			}
		}
	}
}

func (s Spec) uses(name string) bool {
	for _, used := range s.axes {
		if used == name {
			return true
		}
	}
	return false
}

func (d Dim) free() bool { return len(d) == 1 && d[0] == Unconstrained }

func sortedSet(names []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(names)))
}

// String is the form of JAX, with sets in order: P('x', ('y', 'z'), None).
func (s Spec) String() string {
	c := s.Canonical()
	var parts []string
	for _, d := range c.Dims {
		parts = append(parts, d.String())
	}
	sets := len(c.Unreduced)+len(c.Reduced) > 0
	if len(parts) == 1 && !sets {
		return "P(" + parts[0] + ",)"
	}
	if len(c.Unreduced) > 0 {
		parts = append(parts, "unreduced={"+notation.QuoteAll(c.Unreduced)+"}")
	}
	if len(c.Reduced) > 0 {
		parts = append(parts, "reduced={"+notation.QuoteAll(c.Reduced)+"}")
	}
	if c.Kind != "" {
		parts = append(parts, "unreduced_kind="+string(c.Kind))
	}
	return "P(" + strings.Join(parts, ", ") + ")"
}

// String is None, 'x', ('x', 'y') or UNCONSTRAINED.
func (d Dim) String() string {
	switch {
	case len(d) == 0:
		return "None"
	case d.free():
		return "UNCONSTRAINED"
	case len(d) == 1:
		return notation.Quote(d[0])
	}
	return "(" + notation.QuoteAll(d) + ")"
}
