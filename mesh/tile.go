package mesh

import (
	"slices"

	"github.com/serry-dev/serry/mesh/internal/notation"
)

// A TileType is a kind of tile sharding, or of a group of devices within one.
// The numbers are those of the OpSharding message.
type TileType int

// The tile types.
const (
	TileReplicated TileType = 0 // every device holds all
	TileMaximal    TileType = 1 // one device holds all
	TileTuple      TileType = 2 // one tile per member of a tuple
	Tiled          TileType = 3 // cut into blocks
	TileManual     TileType = 4 // up to the program
	TileUnknown    TileType = 5
	TileUnreduced  TileType = 6 // every device holds a partial value
)

// A Tile is a sharding without names, as compilers exchange it: how often each
// dimension is cut, and which device, counted in mesh order, gets which block.
// Blocks are numbered row-major over Dims. Trailing entries of Dims may be
// groups of devices that share a block; Last gives their types.
//
// The devices are either listed, or the numbers 0, 1, 2, … reshaped to Reshape
// and transposed by Perm. Tiles made by [NewTile], [ListedTile] and [ParseTile]
// are canonical: groups of size one are gone, one group per type is left,
// replicas come last and in ascending order.
type Tile struct {
	Type    TileType
	Dims    []int
	Reshape []int // nil where Devices is given
	Perm    []int
	Devices []int // also the one device of a TileMaximal
	Last    []TileType
	Tuple   []Tile // the members of a TileTuple
}

// NewTile cuts into dims over counted devices: 0, 1, 2, … reshaped and
// transposed. No reshape and no perm mean the plain count. The last entries of
// dims are groups of the given types.
func NewTile(dims, reshape, perm []int, last ...TileType) (Tile, error) {
	n, err := checkTile(dims, last)
	if err != nil {
		return Tile{}, err
	}
	if len(reshape) != len(perm) {
		return Tile{}, errorf(ErrInvalid, "reshape %s and transpose %s of a tile should have the same length", notation.Tuple(reshape), notation.Tuple(perm))
	}
	if len(reshape) == 0 {
		reshape, perm = []int{n}, []int{0}
	}
	if have, ok := boundedProduct(reshape, maxDevices); !ok || have != n {
		return Tile{}, errorf(ErrInvalid, "cannot reshape from %s to %s: the products differ", notation.Tuple(dims), notation.Tuple(reshape))
	}
	if !isPermutation(perm) {
		return Tile{}, errorf(ErrInvalid, "transpose %s of a tile is not a permutation", notation.Tuple(perm))
	}
	t := Tile{Type: Tiled, Dims: slices.Clone(dims), Last: slices.Clone(last)}
	t.Reshape, t.Perm = mergeIota(reshape, perm)
	return t.canonical(), nil
}

// ListedTile cuts into dims over devices listed block by block.
func ListedTile(dims, devices []int, last ...TileType) (Tile, error) {
	n, err := checkTile(dims, last)
	if err != nil {
		return Tile{}, err
	}
	if len(devices) != n || !isPermutation(devices) {
		return Tile{}, errorf(ErrInvalid, "tile %s needs each of %d devices once, got %d", notation.Tuple(dims), n, len(devices))
	}
	t := Tile{Type: Tiled, Dims: slices.Clone(dims), Devices: slices.Clone(devices), Last: slices.Clone(last)}
	return t.canonical(), nil
}

func checkTile(dims []int, last []TileType) (int, error) {
	if len(dims) == 0 || len(dims) > maxRank+3 {
		return 0, errorf(ErrInvalid, "tile of %d dimensions: dims should not be empty, and at most %d", len(dims), maxRank+3)
	}
	n, ok := boundedProduct(dims, maxDevices)
	if !ok || n == 0 {
		return 0, errorf(ErrInvalid, "tile dims %s: want positive sizes for at most %d devices", notation.Tuple(dims), maxDevices)
	}
	if len(last) > len(dims) {
		return 0, errorf(ErrInvalid, "%d subgroup types should not have more dimensions than dims %s", len(last), notation.Tuple(dims))
	}
	for _, t := range last {
		if t != TileReplicated && t != TileManual && t != TileUnreduced {
			return 0, errorf(ErrInvalid, "subgroup type %d: want replicated, manual or unreduced", t)
		}
	}
	return n, nil
}

func isPermutation(list []int) bool {
	seen := make([]bool, len(list))
	for _, v := range list {
		if v < 0 || v >= len(list) || seen[v] {
			return false
		}
		seen[v] = true
	}
	return true
}

// Size is the number of devices, 0 where the tile does not say.
func (t Tile) Size() int {
	switch t.Type {
	case Tiled:
		return product(t.Dims)
	case TileMaximal:
		return 1
	}
	return 0
}

// List gives the devices block by block; nil where the tile does not say.
func (t Tile) List() []int {
	if t.Type != Tiled || t.Devices != nil {
		return slices.Clone(t.Devices)
	}
	return counting(t.Reshape).transpose(t.Perm).cells
}

// Replicated says whether every device holds all. One device always does.
func (t Tile) Replicated() bool { return t.Type == TileReplicated || t.Size() == 1 }

// Equal says whether both tiles place alike. All replicated tiles are equal.
func (t Tile) Equal(o Tile) bool {
	if t.Replicated() && o.Replicated() {
		return true
	}
	if t.Type != o.Type || !slices.Equal(t.Dims, o.Dims) || !slices.Equal(t.Last, o.Last) ||
		!slices.EqualFunc(t.Tuple, o.Tuple, Tile.Equal) {
		return false
	}
	if t.Devices == nil && o.Devices == nil { // canonical counts are unique
		return slices.Equal(t.Reshape, o.Reshape) && slices.Equal(t.Perm, o.Perm)
	}
	return slices.Equal(t.List(), o.List())
}
