package mesh

import (
	"fmt"
	"testing"

	"github.com/serry-dev/serry/internal/lab"
)

func TestSpecSets(t *testing.T) {
	lab.Clause(t, "TC-SPEC-04", "C-SPEC-5")
	for _, s := range []Spec{
		{Dims: []Dim{{"x"}, {"y"}}, Unreduced: []string{"x"}},
		{Dims: []Dim{{"x"}, nil, {"y"}}, Unreduced: []string{"z", "y"}},
		{Dims: []Dim{{"a", "x"}}, Reduced: []string{"x"}},
		{Unreduced: []string{"x"}, Reduced: []string{"x"}},
		{Unreduced: []string{"x", ""}},
		{Reduced: []string{""}},
		{Kind: Sum},
	} {
		wantError(t, s.String()+".Check()", s.Check(), ErrInvalid)
	}
	if err := (Spec{Unreduced: []string{"x"}, Reduced: []string{"y"}}).Check(); err != nil {
		t.Errorf("Check() of disjoint sets = %v", err)
	}
}

func TestSpecErrorsNamePlaces(t *testing.T) {
	lab.Clause(t, "C-SHD-2", "C-SHD-8")
	m := grid4x2(1)
	for _, c := range []struct {
		spec  Spec
		shape []int
		kind  error
		axis  string
		dim   int
	}{
		{spec("x", "q"), nil, ErrUnknownAxis, "q", 1},
		{spec("", "x", "yx"), nil, ErrDuplicateAxis, "x", 2},
		{spec("", "x"), []int{8, 6}, ErrIndivisible, "x", 1},
		{spec("x", "y"), []int{8}, ErrInvalid, "", 1},
	} {
		s, err := m.Shard(c.spec)
		if err == nil {
			_, err = s.ShardShape(c.shape)
		}
		wantError(t, c.spec.String(), err, c.kind)
		if e := err.(*Error); e.Axis != c.axis || e.Dim != c.dim {
			t.Errorf("%v on %v: error at axis %q, dimension %d; want %q, %d", c.spec, c.shape, e.Axis, e.Dim, c.axis, c.dim)
		}
	}
}

func ExampleP() {
	s := P(Dim{"data"}, nil, Dim{"model", "expert"})
	fmt.Println(s)
	// Output: P('data', None, ('model', 'expert'))
}
