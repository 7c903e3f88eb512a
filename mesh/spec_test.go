package mesh

import (
	"fmt"
	"slices"
	"testing"

	"github.com/serry-dev/serry/internal/lab"
)

func TestSpecText(t *testing.T) {
	lab.Clause(t, "TC-SPEC-01", "C-SPEC-8")
	for want, s := range map[string]Spec{
		"P('a', 'b', None, unreduced={'c'}, reduced={'d'}, unreduced_kind=sum)": {
			Dims: []Dim{{"a"}, {"b"}, nil}, Unreduced: []string{"c"}, Reduced: []string{"d"}},
		"P('x', unreduced={'y'}, unreduced_kind=sum)":        {Dims: []Dim{{"x"}}, Unreduced: []string{"y"}},
		"P(None, None, unreduced={'x'}, unreduced_kind=sum)": {Dims: []Dim{nil, {}}, Unreduced: []string{"x"}},
		"P(unreduced={'x'}, unreduced_kind=sum)":             {Unreduced: []string{"x"}},
		"P(unreduced={'x', 'y'}, unreduced_kind=max)":        {Unreduced: []string{"y", "x", "y"}, Kind: Max},
		"P('x', 'y')":                  spec("x", "y"),
		"P('x',)":                      spec("x"),
		"P()":                          {},
		"P(('x', 'y'), UNCONSTRAINED)": P(Dim{"x", "y"}, Dim{Unconstrained}),
	} {
		if got := s.String(); got != want {
			t.Errorf("String() = %s; want %s", got, want)
		}
		back, err := ParseSpec(want)
		if err != nil || !back.Equal(s) {
			t.Errorf("ParseSpec(%s) = %v, %v; want the same spec", want, back, err)
		}
	}
}

func TestSpecEquality(t *testing.T) {
	lab.Clause(t, "TC-SPEC-02", "C-SPEC-3", "C-SPEC-4")
	equal := [][2]string{
		{"P('x')", "P('x',)"}, {"P(())", "P(None)"}, {"P(('x',), None)", "P('x', None)"},
		{"P(unreduced={'a', 'b'})", "P(unreduced={'b', 'a'}, unreduced_kind=sum)"},
	}
	for _, pair := range equal {
		if a, b := must(ParseSpec(pair[0])), must(ParseSpec(pair[1])); !a.Equal(b) {
			t.Errorf("%s and %s are taken for different", a, b)
		}
	}
	for _, pair := range [][2]string{
		{"P('x')", "P('x', None)"}, {"P('x')", "P('y')"}, {"P('x', unreduced={'y'})", "P('x', unreduced={'z'})"},
		{"P(unreduced={'x'})", "P(reduced={'x'})"}, {"P(unreduced={'x'})", "P(unreduced={'x'}, unreduced_kind=min)"},
		{"P(('x', 'y'))", "P(('y', 'x'))"},
	} {
		if a, b := must(ParseSpec(pair[0])), must(ParseSpec(pair[1])); a.Equal(b) {
			t.Errorf("%s and %s are taken for equal", a, b)
		}
	}
}

func TestSpecAppend(t *testing.T) {
	lab.Clause(t, "TC-SPEC-03", "C-SPEC-7")
	got, err := must(ParseSpec("P('x', unreduced={'z'})")).Append(must(ParseSpec("P('a', unreduced={'b'})")))
	if want := must(ParseSpec("P('x', 'a', unreduced={'z', 'b'})")); err != nil || !got.Equal(want) {
		t.Errorf("Append = %v, %v; want %v", got, err, want)
	}
	// What is a tuple in JAX is a spec without sets here; it reduces otherwise.
	plain, reducing := spec("a"), must(ParseSpec("P('x', unreduced={'z'})"))
	_, err = reducing.Append(plain)
	wantError(t, "Append(plain entries)", err, ErrInvalid, "reduce differently")
	_, err = plain.Append(reducing)
	wantError(t, "Append to plain entries", err, ErrInvalid, "reduce differently")
	_, err = spec("x").Append(Spec{Reduced: []string{"x"}})
	wantError(t, "Append(overlap)", err, ErrInvalid, "'x'")
}

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

func TestSpecNestedTuples(t *testing.T) {
	lab.Clause(t, "TC-SPEC-05", "C-SPEC-3")
	for _, text := range []string{"P('x', 'y', ('z', ('a',)))", "P((('a', 'b'), 'c'))"} {
		_, err := ParseSpec(text)
		wantError(t, "ParseSpec("+text+")", err, ErrFormat, "nested tuple")
	}
}

func TestSpecKind(t *testing.T) {
	lab.Clause(t, "TC-SPEC-06", "C-SPEC-5")
	for _, k := range []Reduction{"", Sum, Max, Min} {
		if err := (Spec{Unreduced: []string{"x"}, Kind: k}).Check(); err != nil {
			t.Errorf("Check() with kind %q = %v", k, err)
		}
	}
	for _, text := range []string{"P(unreduced={'x'}, unreduced_kind={'y'})", "P(unreduced={'x'}, unreduced_kind=prod)"} {
		_, err := ParseSpec(text)
		wantError(t, "ParseSpec("+text+")", err, ErrInvalid, "sum, max or min")
	}
}

func TestSpecOfAxes(t *testing.T) {
	lab.Clause(t, "TC-SPEC-07", "C-SPEC-10")
	for want, placed := range map[string][]AxisDim{
		"P('x', 'y', 'z')":         {{"x", 0}, {"y", 1}, {"z", 2}},
		"P(('x', 'y'), 'z')":       {{"x", 0}, {"y", 0}, {"z", 1}},
		"P(('x', 'y'), None, 'z')": {{"x", 0}, {"y", 0}, {"z", 2}},
		"P('x', 'y', None, 'z')":   {{"x", 0}, {"y", 1}, {"z", 3}},
	} {
		if got, err := SpecOf(placed...); err != nil || got.String() != want {
			t.Errorf("SpecOf(%v) = %v, %v; want %s", placed, got, err, want)
		}
	}
	_, err := SpecOf(AxisDim{"x", -1})
	wantError(t, "SpecOf(-1)", err, ErrInvalid, "'x'", "-1")
}

func TestVisibleSpec(t *testing.T) {
	lab.Clause(t, "TC-SPEC-08", "TC-SPEC-09", "C-SHD-20")
	m := must(Abstract(nil, Axis{"a", 2, Explicit}, Axis{"b", 2, Explicit}, Axis{"c", 2, Auto}, Axis{"d", 2, Manual}))
	for text, want := range map[string]string{
		"P(('a', 'b', 'c'), 'd')":                "P(('a', 'b'), None, None, None)",
		"P(('a', 'c'), 'b', 'd')":                "P('a', 'b', None, None)",
		"P(('a', 'b'), 'c', 'd')":                "P(('a', 'b'), None, None, None)",
		"P(('a', 'd'), 'b', 'c')":                "P('a', 'b', None, None)",
		"P(UNCONSTRAINED)":                       "P(None, None, None, None)",
		"P(unreduced={'a', 'b', 'c'})":           "P(None, None, None, None, unreduced={'a', 'b'}, unreduced_kind=sum)",
		"P(reduced={'a', 'b', 'c'})":             "P(None, None, None, None, reduced={'a', 'b'})",
		"P(unreduced={'a', 'b'}, reduced={'c'})": "P(None, None, None, None, unreduced={'a', 'b'}, unreduced_kind=sum)",
		"P(unreduced={'a', 'c'}, reduced={'b'})": "P(None, None, None, None, unreduced={'a'}, reduced={'b'}, unreduced_kind=sum)",
		"P(unreduced={'c'}, reduced={'a', 'b'})": "P(None, None, None, None, reduced={'a', 'b'})",
	} {
		got, err := must(ParseSpec(text)).Visible(m, 4)
		if err != nil || got.String() != want {
			t.Errorf("Visible(%s) = %v, %v; want %s", text, got, err, want)
		}
	}
	_, err := spec("a", "b").Visible(m, 1)
	wantError(t, "Visible(rank 1)", err, ErrInvalid, "rank at least 2")
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

func ExampleSpecOf() {
	s, _ := SpecOf(AxisDim{"x", 0}, AxisDim{"y", 2})
	fmt.Println(s, slices.Equal(s.Dims[0], Dim{"x"}))
	// Output: P('x', None, 'y') true
}
