package mesh

import (
	"errors"
	"slices"
	"testing"

	"github.com/serry-dev/serry/internal/lab"
)

func TestTorusAssignment(t *testing.T) {
	lab.Clause(t, "TC-MESH-06", "C-MESH-21", "C-MESH-22")
	for _, c := range []struct {
		physical, logical []int
		want              [][]int
	}{
		{[]int{2, 2, 1}, []int{1, 1, 4}, [][]int{{}, {}, {0, 1, 2}}},
		{[]int{2, 2, 4}, []int{1, 4, 4}, [][]int{{}, {2}, {0, 1}}},
		{[]int{4, 4, 4}, []int{1, 16, 4}, [][]int{{}, {1, 2}, {0}}},
		{[]int{4, 4, 8}, []int{1, 16, 8}, [][]int{{}, {0, 1}, {2}}},
		{[]int{4, 4, 8}, []int{1, 8, 16}, [][]int{{}, {2}, {0, 1}}},
		{[]int{4, 4, 8}, []int{16, 8, 1}, [][]int{{0, 1}, {2}, {}}},
		{[]int{4, 8, 8}, []int{1, 32, 8}, [][]int{{}, {0, 2}, {1}}},
		{[]int{8, 8, 8}, []int{1, 64, 8}, [][]int{{}, {1, 2}, {0}}},
		{[]int{8, 8, 16}, []int{1, 64, 16}, [][]int{{}, {0, 1}, {2}}},
		{[]int{8, 8, 1}, []int{8, 8}, [][]int{{1}, {0, 2}}},
	} {
		got, err := wholeAxes(c.physical, c.logical, false)
		if err != nil || !slices.EqualFunc(got, c.want, slices.Equal) {
			t.Errorf("wholeAxes(%v, %v) = %v, %v; want %v", c.physical, c.logical, got, err, c.want)
		}
		for _, split := range []bool{false, true} {
			_, matrix, err := assignTorus(counting(c.physical), c.logical, torusOptions{split: split})
			if err != nil {
				t.Errorf("assignTorus(%v, %v, split %v) = %v", c.physical, c.logical, split, err)
			}
			checkMatrix(t, matrix, c.physical, c.logical)
		}
	}
}

// checkMatrix is C-MESH-24.
func checkMatrix(t *testing.T, matrix [][]int, physical, logical []int) {
	t.Helper()
	columns := slices.Repeat([]int{1}, len(logical))
	for p, row := range matrix {
		if product(row) != physical[p] {
			t.Errorf("row %d of %v multiplies to %d; want %d", p, matrix, product(row), physical[p])
		}
		for l, n := range row {
			columns[l] *= n
		}
	}
	if !slices.Equal(columns, logical) {
		t.Errorf("columns of %v multiply to %v; want %v", matrix, columns, logical)
	}
}

func TestTorusSplit(t *testing.T) {
	lab.Clause(t, "TC-MESH-07", "C-MESH-25")
	for _, c := range []struct {
		physical, logical []int
		want              [][]int
	}{
		{[]int{4, 4, 4}, []int{2, 1, 32}, [][]int{{1, 1, 4}, {1, 1, 4}, {2, 1, 2}}},
		{[]int{4, 4, 4}, []int{8, 8, 1}, [][]int{{1, 4, 1}, {2, 2, 1}, {4, 1, 1}}},
		{[]int{4, 4, 8}, []int{2, 2, 8, 4}, [][]int{{1, 1, 1, 4}, {2, 2, 1, 1}, {1, 1, 8, 1}}},
		{[]int{4, 4, 8}, []int{2, 4, 1, 16}, [][]int{{1, 1, 1, 4}, {1, 1, 1, 4}, {2, 4, 1, 1}}},
		{[]int{4, 8, 8}, []int{1, 128, 2}, [][]int{{1, 2, 2}, {1, 8, 1}, {1, 8, 1}}},
		{[]int{8, 8, 1}, []int{2, 1, 32, 1}, [][]int{{1, 1, 8, 1}, {2, 1, 4, 1}, {1, 1, 1, 1}}},
	} {
		got := splitAxes(c.physical, c.logical)
		if !slices.EqualFunc(got, c.want, slices.Equal) {
			t.Errorf("splitAxes(%v, %v) = %v; want %v", c.physical, c.logical, got, c.want)
		}
		checkMatrix(t, got, c.physical, c.logical)
	}
}

func TestTorusColumns(t *testing.T) {
	lab.Clause(t, "TC-MESH-08")
	for _, c := range []struct {
		physical, used []int
		size           int
		want           [][]int
	}{
		{[]int{2, 2, 1}, []int{1, 2, 1}, 4, nil},
		{[]int{12, 4, 4}, []int{2, 2, 1}, 6, [][]int{{3, 1, 2}, {3, 2, 1}, {6, 1, 1}}},
		{[]int{4, 4, 8}, []int{2, 2, 2}, 4, [][]int{{1, 1, 4}, {1, 2, 2}, {2, 1, 2}, {2, 2, 1}}},
	} {
		if got := columns(c.physical, c.used, c.size); !slices.EqualFunc(got, c.want, slices.Equal) {
			t.Errorf("columns(%v, %v, %d) = %v; want %v", c.physical, c.used, c.size, got, c.want)
		}
	}
}

func TestTorusPreference(t *testing.T) {
	lab.Clause(t, "TC-MESH-09", "C-MESH-26", "W-TOP-20")
	for _, c := range []struct{ better, worse, physical, used []int }{
		{[]int{1, 2, 1}, []int{1, 1, 2}, []int{2, 2, 4}, []int{1, 1, 1}},
		{[]int{4, 4, 1}, []int{1, 1, 16}, []int{4, 4, 16}, []int{1, 1, 1}},
		{[]int{2, 1}, []int{1, 2}, []int{2, 4}, []int{1, 2}},
	} {
		if !prefer(c.better, c.worse, c.physical, c.used) || prefer(c.worse, c.better, c.physical, c.used) {
			t.Errorf("on %v used %v: %v is not preferred to %v", c.physical, c.used, c.better, c.worse)
		}
	}
	// On 4×4×4 with 1×2×4 taken the intended choice is the untouched axis, the
	// one made for compatibility is the axis already in use.
	physical, used := []int{4, 4, 4}, []int{1, 2, 4}
	if prefer([]int{2, 1, 1}, []int{1, 2, 1}, physical, used) {
		t.Errorf("the compatible rule prefers the unused axis")
	}
}

func TestPrimeFactors(t *testing.T) {
	lab.Clause(t, "TC-MESH-10")
	for n, want := range map[int][]int{1: nil, 2: {2}, 4: {2, 2}, 8: {2, 2, 2}, 6: {2, 3}, 16: {2, 2, 2, 2}, 12: {2, 2, 3},
		121: {11, 11}, 43: {43}, 10: {2, 5}, 14: {2, 7}, 22: {2, 11}, 26: {2, 13}} {
		if got := primeFactors(n); !slices.Equal(got, want) {
			t.Errorf("primeFactors(%d) = %v; want %v", n, got, want)
		}
	}
}

func TestTorusLayoutIsInvertible(t *testing.T) {
	lab.Clause(t, "C-MESH-24", "TC-MESH-11", "C-MESH-27")
	for _, c := range []struct {
		physical, logical []int
		matrix            [][]int
	}{
		{[]int{2, 2, 1}, []int{1, 2, 2, 1}, [][]int{{1, 2, 1, 1}, {1, 1, 2, 1}, {1, 1, 1, 1}}},
		{[]int{4, 4, 4}, []int{2, 1, 32}, [][]int{{1, 1, 4}, {2, 1, 2}, {1, 1, 4}}},
		{[]int{12, 4, 8}, []int{2, 8, 24}, [][]int{{2, 2, 3}, {1, 2, 4}, {1, 2, 2}}},
	} {
		laid := layout(counting(c.physical), c.logical, c.matrix)
		var cut, perm []int // the transposed matrix, and back
		for l := range c.logical {
			for p := range c.physical {
				cut = append(cut, c.matrix[p][l])
			}
		}
		for p := range c.physical {
			for l := range c.logical {
				perm = append(perm, l*len(c.physical)+p)
			}
		}
		if got := laid.reshape(cut).transpose(perm).cells; !slices.Equal(got, count(product(c.physical))) {
			t.Errorf("layout(%v, %v) cannot be undone: %v", c.physical, c.matrix, got)
		}
	}
}

func TestTorusExamples(t *testing.T) {
	lab.Clause(t, "TC-MESH-26", "EX-SHD-9", "C-MESH-23")
	check := func(physical, logical []int, split bool, want ...int) {
		t.Helper()
		got, _, err := assignTorus(counting(physical), logical, torusOptions{split: split})
		if err != nil || !slices.Equal(got.cells, want) {
			t.Errorf("assignTorus(%v, %v) = %v, %v; want %v", physical, logical, got.cells, err, want)
		}
	}
	check([]int{2, 2, 4}, []int{4, 4}, false, 0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15)
	check([]int{4, 4}, []int{2, 2, 4}, true, 0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15)
	check([]int{2, 2, 2}, []int{2, 4}, false, 0, 2, 4, 6, 1, 3, 5, 7)
	_, _, err := assignTorus(counting([]int{4, 4}), []int{2, 2, 4}, torusOptions{})
	wantError(t, "assignTorus(4×4, 2×2×4)", err, ErrUnsupported, "axis 1", "size 2", "(0, 4)")
}

func TestTorusMeshesAreUniform(t *testing.T) {
	lab.Clause(t, "TC-MESH-13")
	for _, p := range [][4]int{{2, 2, 1, 1}, {2, 2, 4, 1}, {4, 4, 4, 1}, {4, 4, 8, 1}, {4, 8, 8, 1}, {8, 8, 1, 2}} {
		kind := "TPU v4"
		if p[3] == 2 {
			kind = "TPU v3"
		}
		devices := tpu(kind, p[0], p[1], p[2], p[3], 1)
		n := len(devices)
		for a := 1; a <= n; a++ {
			for b := 1; a*b <= n; b++ {
				if n%(a*b) == 0 {
					checkUniform(t, devices, []int{a, b, n / a / b})
				}
			}
		}
	}
}

func checkUniform(t *testing.T, devices []Device, shape []int) {
	t.Helper()
	laid, err := Arrange(devices, shape, Order{Split: true})
	if err != nil {
		t.Fatalf("Arrange(%d, %v) = %v", len(devices), shape, err)
	}
	m := must(New(laid, axes("abc", shape...)...))
	for _, sp := range []Spec{spec("a", "b", "c"), spec("ac", "b")} {
		s := must(m.Shard(sp))
		for dim := range 3 {
			if _, err := s.View(0, dim, 3); errors.Is(err, ErrNonUniform) {
				t.Errorf("%v of %v: View(0, %d) = %v", sp, shape, dim, err)
			}
		}
	}
}
