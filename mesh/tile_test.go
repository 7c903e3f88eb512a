package mesh

import (
	"slices"
	"strings"
	"testing"

	"github.com/serry-dev/serry/internal/lab"
)

func TestTileOfTransposedCount(t *testing.T) {
	lab.Clause(t, "TC-SHD-11", "C-SHD-18")
	tile := must(NewTile([]int{6, 35}, []int{7, 10, 3}, []int{2, 1, 0}))
	if got, want := tile.String(), "{devices=[6,35]<=[7,10,3]T(2,1,0)}"; got != want {
		t.Errorf("String() = %s; want %s", got, want)
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

func TestTileOfFourAxes(t *testing.T) {
	lab.Clause(t, "TC-SHD-20", "EX-SHD-3", "C-SHD-13")
	m := must(New(Hosts(16, 1), axes("abcd", 2, 2, 2, 2)...))
	tile := must(must(m.Shard(spec("", "db", "c"))).Tile(4))
	want := must(NewTile([]int{1, 4, 2, 1, 2}, []int{2, 2, 2, 2}, []int{3, 1, 2, 0}, TileReplicated))
	if !tile.Equal(want) || !slices.Equal(tile.Dims, []int{1, 4, 2, 1, 2}) || !slices.Equal(tile.Last, []TileType{TileReplicated}) {
		t.Errorf("Tile(4) = %v; want %v", tile, want)
	}
}
