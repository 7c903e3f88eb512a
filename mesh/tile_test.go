package mesh

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/serry-dev/serry/internal/lab"
)

func TestTileAxisSizes(t *testing.T) {
	lab.Clause(t, "TC-SHD-11", "C-SHD-18")
	tile := must(NewTile([]int{6, 35}, []int{7, 10, 3}, []int{2, 1, 0}))
	if got, want := tile.String(), "{devices=[6,35]<=[7,10,3]T(2,1,0)}"; got != want {
		t.Errorf("String() = %s; want %s", got, want)
	}
	if got := tile.AxisSizes(); !slices.Equal(got, []int{7, 2, 5, 3}) {
		t.Errorf("AxisSizes() = %v; want 7, 2, 5, 3", got)
	}
}

func TestTileText(t *testing.T) {
	lab.Clause(t, "TC-SHD-12", "C-SHD-14")
	for _, c := range []struct {
		tile Tile
		want string
	}{
		{must(ListedTile([]int{4, 1, 2}, count(8), TileReplicated)), "{devices=[4,1,2]0,1,2,3,4,5,6,7 last_tile_dim_replicate}"},
		{Tile{Type: TileReplicated}, "{replicated}"},
		{Tile{Type: TileMaximal, Devices: []int{3}}, "{maximal device=3}"},
		{Tile{Type: TileManual}, "{manual}"},
		{must(must(grid4x2(1).Shard(spec("x"))).Tile(2)), "{devices=[4,1,2]<=[8] last_tile_dim_replicate}"},
		{must(must(grid4x2(1).Shard(spec("y"))).Tile(2)), "{devices=[2,1,4]<=[4,2]T(1,0) last_tile_dim_replicate}"},
		{must(must(grid4x2(1).Shard(spec("yx"))).Tile(2)), "{devices=[8,1]<=[4,2]T(1,0)}"},
		// What jaxlib makes of groups in any order.
		{must(NewTile([]int{6, 35}, []int{7, 10, 3}, []int{2, 1, 0}, TileReplicated)), "{devices=[6,35]<=[7,2,5,3]T(3,1,0,2) last_tile_dim_replicate}"},
		{must(NewTile([]int{2, 2, 2}, []int{2, 2, 2}, []int{2, 1, 0}, TileReplicated, TileReplicated)), "{devices=[2,4]<=[4,2]T(1,0) last_tile_dim_replicate}"},
		{must(NewTile([]int{2, 3, 4}, []int{4, 3, 2}, []int{2, 1, 0}, TileReplicated, TileManual)), "{devices=[2,4,3]<=[12,2]T(1,0) last_tile_dims={manual, replicated}}"},
		{must(NewTile([]int{2, 6}, []int{4, 3}, []int{1, 0}, TileReplicated)), "{devices=[2,6]0,1,3,4,6,9,2,5,7,8,10,11 last_tile_dim_replicate}"},
		{must(NewTile([]int{4, 3}, []int{4, 3}, []int{1, 0}, TileReplicated)), "{devices=[4,3]0,3,6,1,4,9,2,7,10,5,8,11 last_tile_dim_replicate}"},
		{must(ListedTile([]int{2, 2}, []int{3, 2, 1, 0}, TileReplicated)), "{devices=[2,2]2,3,0,1 last_tile_dim_replicate}"},
		{must(ListedTile([]int{2, 2}, []int{3, 2, 1, 0}, TileManual)), "{devices=[2,2]3,2,1,0 last_tile_dims={manual}}"},
		{must(ListedTile([]int{4, 1}, []int{0, 2, 1, 3}, TileReplicated)), "{devices=[4]0,2,1,3}"},
	} {
		if got := c.tile.String(); got != c.want {
			t.Errorf("String() = %s; want %s", got, c.want)
		}
		if back, err := ParseTile(c.want); err != nil || back.String() != c.want || !back.Equal(c.tile) {
			t.Errorf("ParseTile(%s) = %v, %v; want the same", c.want, back, err)
		}
	}
}

func TestTileEquality(t *testing.T) {
	lab.Clause(t, "TC-SHD-13", "TC-SHD-15")
	plain, listed := must(NewTile([]int{2, 2}, nil, nil)), must(ListedTile([]int{2, 2}, count(4)))
	if !plain.Equal(listed) || !listed.Equal(plain) {
		t.Errorf("%v and %v are taken for different", plain, listed)
	}
	if other := must(NewTile([]int{4, 2}, nil, nil)); plain.Equal(other) || listed.Equal(other) {
		t.Errorf("%v and %v are taken for equal", plain, other)
	}
	a := must(ListedTile([]int{4, 1}, []int{0, 2, 1, 3}, TileReplicated))
	b := must(NewTile([]int{4, 1}, []int{2, 2}, []int{1, 0}, TileReplicated))
	if !a.Equal(b) {
		t.Errorf("%v and %v are taken for different", a, b)
	}
	pair := Tile{Type: TileTuple, Tuple: []Tile{{Type: TileReplicated}, plain}}
	swapped := Tile{Type: TileTuple, Tuple: []Tile{plain, {Type: TileReplicated}}}
	if pair.Equal(swapped) || !pair.Equal(must(ParseTile(pair.String()))) {
		t.Errorf("equality of tuples %v and %v", pair, swapped)
	}
}

func TestTilesThatAreReplicated(t *testing.T) {
	lab.Clause(t, "TC-SHD-14")
	tiles := []Tile{
		must(NewTile([]int{1, 1, 2}, nil, nil, TileReplicated)), {Type: TileReplicated},
		must(NewTile([]int{1, 1, 1, 1}, nil, nil)), must(NewTile([]int{1}, nil, nil)),
		must(NewTile([]int{1, 1, 2, 1}, nil, nil, TileReplicated, TileManual)),
		must(NewTile([]int{1, 1, 1, 2}, nil, nil, TileManual, TileReplicated)),
	}
	for _, a := range tiles {
		for _, b := range tiles {
			if !a.Replicated() || !a.Equal(b) {
				t.Errorf("%v: replicated %v, equal to %v: %v; want both", a, a.Replicated(), b, a.Equal(b))
			}
		}
	}
}

func TestTileErrors(t *testing.T) {
	lab.Clause(t, "TC-SHD-16", "C-SHD-18")
	for name, make := range map[string]func() (Tile, error){
		"no dims":           func() (Tile, error) { return NewTile(nil, nil, nil) },
		"other product":     func() (Tile, error) { return NewTile([]int{2, 2}, []int{2, 4}, []int{0, 1}) },
		"no perm":           func() (Tile, error) { return NewTile([]int{2, 2}, []int{4}, nil) },
		"perm only":         func() (Tile, error) { return NewTile([]int{2, 2}, nil, []int{0, 1}) },
		"not a permutation": func() (Tile, error) { return NewTile([]int{2, 2}, []int{2, 2}, []int{0, 0}) },
		"three types":       func() (Tile, error) { return NewTile([]int{2, 2}, nil, nil, 0, 0, 0) },
		"device twice":      func() (Tile, error) { return ListedTile([]int{2}, []int{1, 1}) },
	} {
		_, err := make()
		wantError(t, name, err, ErrInvalid)
	}
	_, err := NewTile([]int{2, 2}, []int{2, 4}, []int{0, 1})
	wantError(t, "NewTile", err, ErrInvalid, "cannot reshape from")
}

func TestTileGroups(t *testing.T) {
	lab.Clause(t, "TC-SHD-17")
	tile := must(NewTile([]int{3, 3}, nil, nil, TileManual, TileReplicated))
	if tile.Type != Tiled || tile.Replicated() || tile.Size() != 9 || !slices.Equal(tile.List(), count(9)) {
		t.Errorf("NewTile(manual, replicated) = %v; want 9 devices in order", tile)
	}
	if got := must(NewTile([]int{3, 4}, nil, nil, TileReplicated)).String(); !strings.HasSuffix(got, "last_tile_dim_replicate}") {
		t.Errorf("NewTile(replicated) = %s; want its last dimension replicated", got)
	}
}

// TestSpecTileSpec is a property: the spec comes back from its tile.
func TestSpecTileSpec(t *testing.T) {
	lab.Clause(t, "TC-SHD-18", "C-SHD-16")
	m := must(New(Hosts(672, 1), axes("abcde", 2, 3, 4, 7, 4)...))
	rapid.Check(t, func(t *rapid.T) {
		entries := make([]string, 5)
		for _, axis := range rapid.Permutation([]string{"a", "b", "c", "d", "e"}).Draw(t, "axes") {
			if at := rapid.IntRange(-1, 4).Draw(t, "dim"); at >= 0 {
				entries[at] += axis
			}
		}
		checkTileOfSpec(t, m, spec(entries...))
	})
	checkTileOfSpec(t, m, spec())
	s := must(grid4x2(1).Shard(spec("x", "y", "")))
	if got, err := s.Mesh().SpecOfTile(must(s.Tile(3))); err != nil || !got.Equal(spec("x", "y")) {
		t.Errorf("SpecOfTile = %v, %v; want P('x', 'y')", got, err)
	}
	_, err := m.SpecOfTile(must(NewTile([]int{32, 21}, nil, nil)))
	wantError(t, "SpecOfTile(32, 21)", err, ErrIndivisible)
	_, err = m.SpecOfTile(must(NewTile([]int{2, 4, 84}, nil, nil, TileManual, TileReplicated)))
	wantError(t, "SpecOfTile(groups)", err, ErrUnsupported)
	crooked := count(672)
	crooked[0], crooked[1] = 1, 0
	_, err = m.SpecOfTile(must(ListedTile([]int{672}, crooked)))
	wantError(t, "SpecOfTile(no transpose)", err, ErrUnsupported)
}

func checkTileOfSpec(t interface {
	Fatalf(string, ...any)
}, m *Mesh, sp Spec) {
	tile := must(must(m.Shard(sp)).Tile(5))
	got, err := m.SpecOfTile(tile)
	want := sp.Canonical()
	for len(want.Dims) > 0 && want.Dims[len(want.Dims)-1] == nil {
		want.Dims = want.Dims[:len(want.Dims)-1]
	}
	if err != nil || !got.Equal(want) {
		t.Fatalf("SpecOfTile(%v) = %v, %v; want %v", tile, got, err, want)
	}
	if back, err := ParseTile(tile.String()); err != nil || !back.Equal(tile) {
		t.Fatalf("ParseTile(%v) = %v, %v", tile, back, err)
	}
}

func TestTileShardyTile(t *testing.T) {
	lab.Clause(t, "TC-SHD-19", "C-SHD-19")
	for _, c := range []struct {
		sizes []int
		specs [][]string
	}{
		{[]int{4, 2}, [][]string{{"x", "y"}, {"x"}, {"y"}, {"", "y"}, {"", "x"}, {"xy"}, {"", "xy"}, {}}},
		{[]int{2, 1}, [][]string{{"x", ""}}},
		{[]int{2, 2, 2}, [][]string{{"", "", "z"}, {"", "y", ""}, {"x", "y", ""}, {"", "yz"}, {"x", "", "yz"}, {"", "x", "yz"}, {"xy", "z"},
			{"xy", "", "z"}, {"x", "y", "z"}, {"xz", "y"}, {"xz", "", "y"}, {"y", "", "xz"}, {"", "y", "xz"}}},
		{[]int{1, 2, 4}, [][]string{{"", "", "z"}, {"x", "", ""}}},
		{[]int{2, 1, 1}, [][]string{{"x", "", ""}}},
	} {
		m := must(New(Hosts(product(c.sizes), 1), axes("xyz", c.sizes...)...))
		for _, entries := range c.specs {
			tile := must(must(m.Shard(spec(entries...))).Tile(3))
			named := must(m.Shard(must(m.SpecOfTile(tile))))
			text := must(named.Shardy(3, false))
			back, err := ParseShardy(text)
			if err != nil {
				t.Errorf("ParseShardy(%s) = %v", text, err)
				continue
			}
			if got := must(back.Tile(3)); !got.Equal(tile) {
				t.Errorf("%v on %v: tile %v came back from Shardy as %v", entries, c.sizes, tile, got)
			}
		}
	}
}

func TestShardyText(t *testing.T) {
	lab.Clause(t, "C-SHD-19")
	explicit := must(Abstract(nil, axes("xyz", 2, 2, 2)...))
	mixed := must(Abstract(nil, Axis{"x", 2, Auto}, Axis{"y", 2, Explicit}, Axis{"z", 2, Explicit}))
	for _, c := range []struct {
		mesh  *Mesh
		spec  Spec
		adapt bool
		want  string
	}{
		{explicit, spec("x", "", "yz"), true, `[{"x"}, {}, {"y", "z"}]>`},
		{explicit, Spec{Dims: []Dim{{"x"}}, Unreduced: []string{"y"}}, false, `[{"x"}, {}, {}], unreduced={"y"}>`},
		{explicit, Spec{Dims: []Dim{{"x"}}, Unreduced: []string{"y"}, Kind: Max}, false, `[{"x"}, {}, {}], unreduced=max{"y"}>`},
		{mixed, P(Dim{"y"}, Dim{Unconstrained}), false, `[{"y"}, {?}, {}]>`},
		{mixed, P(Dim{"y"}, Dim{Unconstrained}), true, `[{"y", ?}, {?}, {?}], replicated={"z"}>`},
	} {
		got := must(must(c.mesh.Shard(c.spec)).Shardy(3, c.adapt))
		if want := `#sdy.sharding<mesh<["x"=2, "y"=2, "z"=2]>, ` + c.want; got != want {
			t.Errorf("Shardy(%v, %v) = %s; want %s", c.spec, c.adapt, got, want)
		}
		if c.adapt {
			continue
		}
		want := c.spec.Canonical()
		want.Dims = append(want.Dims, make([]Dim, 3-len(want.Dims))...)
		if back, err := ParseShardy(got); err != nil || !back.Spec().Equal(want) {
			t.Errorf("ParseShardy(%s) = %v, %v; want %v", got, back, err, want)
		}
	}
}

func TestTileOfFourAxes(t *testing.T) {
	lab.Clause(t, "TC-SHD-20", "EX-SHD-3", "C-SHD-13")
	m := must(New(Hosts(16, 1), axes("abcd", 2, 2, 2, 2)...))
	tile := must(must(m.Shard(spec("", "db", "c"))).Tile(4))
	want := must(NewTile([]int{1, 4, 2, 1, 2}, []int{2, 2, 2, 2}, []int{3, 1, 2, 0}, TileReplicated))
	if !tile.Equal(want) || !slices.Equal(tile.Dims, []int{1, 4, 2, 1, 2}) || !slices.Equal(tile.Last, []TileType{TileReplicated}) {
		t.Errorf("Tile(4) = %v; want %v", tile, want)
	}
}
