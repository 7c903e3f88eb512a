package form

import (
	"regexp"
	"testing"

	"github.com/serry-dev/serry/internal/lab"
	"github.com/serry-dev/serry/mesh"
	"pgregory.net/rapid"
)

func TestSpecText(t *testing.T) {
	lab.Clause(t, "TC-SPEC-01", "C-SPEC-8")
	for want, s := range map[string]mesh.Spec{
		"P('a', 'b', None, unreduced={'c'}, reduced={'d'}, unreduced_kind=sum)": {
			Dims: []mesh.Dim{{"a"}, {"b"}, nil}, Unreduced: []string{"c"}, Reduced: []string{"d"}},
		"P('x', unreduced={'y'}, unreduced_kind=sum)":        {Dims: []mesh.Dim{{"x"}}, Unreduced: []string{"y"}},
		"P(None, None, unreduced={'x'}, unreduced_kind=sum)": {Dims: []mesh.Dim{nil, {}}, Unreduced: []string{"x"}},
		"P(unreduced={'x'}, unreduced_kind=sum)":             {Unreduced: []string{"x"}},
		"P(unreduced={'x', 'y'}, unreduced_kind=max)":        {Unreduced: []string{"y", "x", "y"}, Kind: mesh.Max},
		"P('x', 'y')":                  spec("x", "y"),
		"P('x',)":                      spec("x"),
		"P()":                          {},
		"P(('x', 'y'), UNCONSTRAINED)": mesh.P(mesh.Dim{"x", "y"}, mesh.Dim{mesh.Unconstrained}),
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

func TestSpecNestedTuples(t *testing.T) {
	lab.Clause(t, "TC-SPEC-05", "C-SPEC-3")
	for _, text := range []string{"P('x', 'y', ('z', ('a',)))", "P((('a', 'b'), 'c'))"} {
		_, err := ParseSpec(text)
		wantError(t, "ParseSpec("+text+")", err, mesh.ErrFormat, "nested tuple")
	}
}

func TestSpecKind(t *testing.T) {
	lab.Clause(t, "TC-SPEC-06", "C-SPEC-5")
	for _, k := range []mesh.Reduction{"", mesh.Sum, mesh.Max, mesh.Min} {
		if err := (mesh.Spec{Unreduced: []string{"x"}, Kind: k}).Check(); err != nil {
			t.Errorf("Check() with kind %q = %v", k, err)
		}
	}
	for _, text := range []string{"P(unreduced={'x'}, unreduced_kind={'y'})", "P(unreduced={'x'}, unreduced_kind=prod)"} {
		_, err := ParseSpec(text)
		wantError(t, "ParseSpec("+text+")", err, mesh.ErrInvalid, "sum, max or min")
	}
}

func TestTileText(t *testing.T) {
	lab.Clause(t, "TC-SHD-12", "C-SHD-14")
	for _, c := range []struct {
		tile mesh.Tile
		want string
	}{
		{must(mesh.ListedTile([]int{4, 1, 2}, count(8), mesh.TileReplicated)), "{devices=[4,1,2]0,1,2,3,4,5,6,7 last_tile_dim_replicate}"},
		{mesh.Tile{Type: mesh.TileReplicated}, "{replicated}"},
		{mesh.Tile{Type: mesh.TileMaximal, Devices: []int{3}}, "{maximal device=3}"},
		{mesh.Tile{Type: mesh.TileManual}, "{manual}"},
		{must(must(grid4x2(1).Shard(spec("x"))).Tile(2)), "{devices=[4,1,2]<=[8] last_tile_dim_replicate}"},
		{must(must(grid4x2(1).Shard(spec("y"))).Tile(2)), "{devices=[2,1,4]<=[4,2]T(1,0) last_tile_dim_replicate}"},
		{must(must(grid4x2(1).Shard(spec("yx"))).Tile(2)), "{devices=[8,1]<=[4,2]T(1,0)}"},
		// What jaxlib makes of groups in any order.
		{must(mesh.NewTile([]int{6, 35}, []int{7, 10, 3}, []int{2, 1, 0}, mesh.TileReplicated)), "{devices=[6,35]<=[7,2,5,3]T(3,1,0,2) last_tile_dim_replicate}"},
		{must(mesh.NewTile([]int{2, 2, 2}, []int{2, 2, 2}, []int{2, 1, 0}, mesh.TileReplicated, mesh.TileReplicated)), "{devices=[2,4]<=[4,2]T(1,0) last_tile_dim_replicate}"},
		{must(mesh.NewTile([]int{2, 3, 4}, []int{4, 3, 2}, []int{2, 1, 0}, mesh.TileReplicated, mesh.TileManual)), "{devices=[2,4,3]<=[12,2]T(1,0) last_tile_dims={manual, replicated}}"},
		{must(mesh.NewTile([]int{2, 6}, []int{4, 3}, []int{1, 0}, mesh.TileReplicated)), "{devices=[2,6]0,1,3,4,6,9,2,5,7,8,10,11 last_tile_dim_replicate}"},
		{must(mesh.NewTile([]int{4, 3}, []int{4, 3}, []int{1, 0}, mesh.TileReplicated)), "{devices=[4,3]0,3,6,1,4,9,2,7,10,5,8,11 last_tile_dim_replicate}"},
		{must(mesh.ListedTile([]int{2, 2}, []int{3, 2, 1, 0}, mesh.TileReplicated)), "{devices=[2,2]2,3,0,1 last_tile_dim_replicate}"},
		{must(mesh.ListedTile([]int{2, 2}, []int{3, 2, 1, 0}, mesh.TileManual)), "{devices=[2,2]3,2,1,0 last_tile_dims={manual}}"},
		{must(mesh.ListedTile([]int{4, 1}, []int{0, 2, 1, 3}, mesh.TileReplicated)), "{devices=[4]0,2,1,3}"},
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
	plain, listed := must(mesh.NewTile([]int{2, 2}, nil, nil)), must(mesh.ListedTile([]int{2, 2}, count(4)))
	if !plain.Equal(listed) || !listed.Equal(plain) {
		t.Errorf("%v and %v are taken for different", plain, listed)
	}
	if other := must(mesh.NewTile([]int{4, 2}, nil, nil)); plain.Equal(other) || listed.Equal(other) {
		t.Errorf("%v and %v are taken for equal", plain, other)
	}
	a := must(mesh.ListedTile([]int{4, 1}, []int{0, 2, 1, 3}, mesh.TileReplicated))
	b := must(mesh.NewTile([]int{4, 1}, []int{2, 2}, []int{1, 0}, mesh.TileReplicated))
	if !a.Equal(b) {
		t.Errorf("%v and %v are taken for different", a, b)
	}
	pair := mesh.Tile{Type: mesh.TileTuple, Tuple: []mesh.Tile{{Type: mesh.TileReplicated}, plain}}
	swapped := mesh.Tile{Type: mesh.TileTuple, Tuple: []mesh.Tile{plain, {Type: mesh.TileReplicated}}}
	if pair.Equal(swapped) || !pair.Equal(must(ParseTile(pair.String()))) {
		t.Errorf("equality of tuples %v and %v", pair, swapped)
	}
}

// TestSpecTileSpec is a property: the spec comes back from its tile.
func TestSpecTileSpec(t *testing.T) {
	lab.Clause(t, "TC-SHD-18", "C-SHD-16")
	m := must(mesh.New(mesh.Hosts(672, 1), axes("abcde", 2, 3, 4, 7, 4)...))
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
	_, err := m.SpecOfTile(must(mesh.NewTile([]int{32, 21}, nil, nil)))
	wantError(t, "SpecOfTile(32, 21)", err, mesh.ErrIndivisible)
	_, err = m.SpecOfTile(must(mesh.NewTile([]int{2, 4, 84}, nil, nil, mesh.TileManual, mesh.TileReplicated)))
	wantError(t, "SpecOfTile(groups)", err, mesh.ErrUnsupported)
	crooked := count(672)
	crooked[0], crooked[1] = 1, 0
	_, err = m.SpecOfTile(must(mesh.ListedTile([]int{672}, crooked)))
	wantError(t, "SpecOfTile(no transpose)", err, mesh.ErrUnsupported)
}

func checkTileOfSpec(t interface {
	Fatalf(string, ...any)
}, m *mesh.Mesh, sp mesh.Spec) {
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
		m := must(mesh.New(mesh.Hosts(product(c.sizes), 1), axes("xyz", c.sizes...)...))
		for _, entries := range c.specs {
			tile := must(must(m.Shard(spec(entries...))).Tile(3))
			named := must(m.Shard(must(m.SpecOfTile(tile))))
			text := must(Shardy(named, 3, false))
			back := must(m.Shard(readShardy(text)))
			if got := must(back.Tile(3)); !got.Equal(tile) {
				t.Errorf("%v on %v: tile %v came back from Shardy as %v", entries, c.sizes, tile, got)
			}
		}
	}
}

func TestShardyText(t *testing.T) {
	lab.Clause(t, "C-SHD-19")
	explicit := must(mesh.Abstract(nil, axes("xyz", 2, 2, 2)...))
	mixed := must(mesh.Abstract(nil, mesh.Axis{Name: "x", Size: 2, Type: mesh.Auto}, mesh.Axis{Name: "y", Size: 2, Type: mesh.Explicit}, mesh.Axis{Name: "z", Size: 2, Type: mesh.Explicit}))
	for _, c := range []struct {
		mesh  *mesh.Mesh
		spec  mesh.Spec
		adapt bool
		want  string
	}{
		{explicit, spec("x", "", "yz"), true, `[{"x"}, {}, {"y", "z"}]>`},
		{explicit, mesh.Spec{Dims: []mesh.Dim{{"x"}}, Unreduced: []string{"y"}}, false, `[{"x"}, {}, {}], unreduced={"y"}>`},
		{explicit, mesh.Spec{Dims: []mesh.Dim{{"x"}}, Unreduced: []string{"y"}, Kind: mesh.Max}, false, `[{"x"}, {}, {}], unreduced=max{"y"}>`},
		{mixed, mesh.P(mesh.Dim{"y"}, mesh.Dim{mesh.Unconstrained}), false, `[{"y"}, {?}, {}]>`},
		{mixed, mesh.P(mesh.Dim{"y"}, mesh.Dim{mesh.Unconstrained}), true, `[{"y", ?}, {?}, {?}], replicated={"z"}>`},
	} {
		got := must(Shardy(must(c.mesh.Shard(c.spec)), 3, c.adapt))
		if want := `#sdy.sharding<mesh<["x"=2, "y"=2, "z"=2]>, ` + c.want; got != want {
			t.Errorf("Shardy(%v, %v) = %s; want %s", c.spec, c.adapt, got, want)
		}
	}
}

func TestFormChecksAxes(t *testing.T) {
	lab.Clause(t, "TC-MESH-21", "TC-MESH-12", "C-MESH-3")
	_, err := ParseMesh("Mesh('x': 2, axis_types=(Auto, Auto))")
	wantError(t, "ParseMesh(two types for one axis)", err, mesh.ErrFormat, "axis_types")
	_, err = ParseMesh("AbstractMesh('x': 2, axis_types=(Auto, Auto))")
	wantError(t, "ParseMesh(two types for one axis)", err, mesh.ErrFormat, "axis_types")
	_, err = ParseMesh("Mesh('x': 2, axis_types=('Explicit',))")
	wantError(t, "ParseMesh(type in quotes)", err, mesh.ErrFormat, "Auto, Explicit or Manual")
	// Sizes are integers by type; those read from JSON are checked here.
	_, err = DecodeMesh("mesh.json", []byte(`{"format":1,"axis_names":["x","y"],"axis_sizes":[[4],4]}`))
	wantError(t, "DecodeMesh(size is a list)", err, mesh.ErrFormat, "mesh.json", "axis_sizes")
}

var (
	shardyDims = regexp.MustCompile(`>, \[(.*)\]>$`)
	shardyDim  = regexp.MustCompile(`\{[^}]*\}`)
	shardyName = regexp.MustCompile(`"([^"]*)"`)
)

// readShardy reads back the axes that split each dimension.
func readShardy(text string) mesh.Spec {
	var s mesh.Spec
	for _, dim := range shardyDim.FindAllString(shardyDims.FindStringSubmatch(text)[1], -1) {
		var d mesh.Dim
		for _, name := range shardyName.FindAllStringSubmatch(dim, -1) {
			d = append(d, name[1])
		}
		s.Dims = append(s.Dims, d)
	}
	return s
}
