package mesh

import "slices"

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
		return Tile{}, errorf(ErrInvalid, "reshape %s and transpose %s of a tile should have the same length", tuple(reshape), tuple(perm))
	}
	if len(reshape) == 0 {
		reshape, perm = []int{n}, []int{0}
	}
	if have, ok := boundedProduct(reshape, maxDevices); !ok || have != n {
		return Tile{}, errorf(ErrInvalid, "cannot reshape from %s to %s: the products differ", tuple(dims), tuple(reshape))
	}
	if !isPermutation(perm) {
		return Tile{}, errorf(ErrInvalid, "transpose %s of a tile is not a permutation", tuple(perm))
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
		return Tile{}, errorf(ErrInvalid, "tile %s needs each of %d devices once, got %d", tuple(dims), n, len(devices))
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
		return 0, errorf(ErrInvalid, "tile dims %s: want positive sizes for at most %d devices", tuple(dims), maxDevices)
	}
	if len(last) > len(dims) {
		return 0, errorf(ErrInvalid, "%d subgroup types should not have more dimensions than dims %s", len(last), tuple(dims))
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

// AxisSizes cuts the device count into the smallest axes from which both the
// dims and the order can be built; nil where there are none (a listed order, or
// cuts that cross).
func (t Tile) AxisSizes() []int {
	pieces, ok := t.pieces()
	if !ok {
		return nil
	}
	slices.SortFunc(pieces, compareSource)
	out := make([]int, len(pieces))
	for i, p := range pieces {
		out[i] = p.size
	}
	return out
}

// ways splits Dims into shards per dimension and copies of each block. It
// refuses what has no blocks (manual groups).
func (t Tile) ways() (ways []int, copies int, err error) {
	cut := len(t.Dims) - len(t.Last)
	copies = 1
	for i, typ := range t.Last {
		switch typ {
		case TileManual:
			return nil, 0, errorf(ErrUnsupported, "tile %s has manual groups: what they hold is up to the program", t)
		case TileReplicated:
			copies = t.Dims[cut+i]
		}
	}
	return t.Dims[:cut], copies, nil
}

// ShardShape is the shape of the data on each device.
func (t Tile) ShardShape(shape []int) ([]int, error) {
	if err := CheckShape(shape); err != nil {
		return nil, err
	}
	if t.Replicated() || t.Type == TileUnreduced {
		return slices.Clone(shape), nil
	}
	if t.Type != Tiled {
		return nil, errorf(ErrUnsupported, "tile %s has no shard shape", t)
	}
	ways, _, err := t.ways()
	if err != nil {
		return nil, err
	}
	if len(ways) != len(shape) {
		return nil, errorf(ErrInvalid, "tile %s is for values of rank %d, shape %s has %d", t, len(ways), tuple(shape), len(shape))
	}
	out := make([]int, len(shape))
	for d, n := range shape {
		if n%ways[d] != 0 {
			return nil, atDim(d).errorf(ErrIndivisible, "tile %s splits dimension %d %d ways, but its size is %d", t, d, ways[d], n)
		}
		out[d] = n / ways[d]
	}
	return out, nil
}

// Indices gives the block of each of n devices, counted in mesh order.
func (t Tile) Indices(shape []int, n int) ([]Index, error) {
	size, err := t.ShardShape(shape)
	if err != nil {
		return nil, err
	}
	if n < 0 || n > maxDevices || !t.Replicated() && n != t.Size() {
		return nil, errorf(ErrInvalid, "tile %s is for %d devices, asked for %d", t, t.Size(), n)
	}
	if t.Type == TileUnreduced || slices.Contains(t.Last, TileUnreduced) {
		return nil, errorf(ErrUnsupported, "tile %s is unreduced: devices hold partial values, not slices", t)
	}
	out := make([]Index, n)
	ways, copies := slices.Repeat([]int{1}, len(shape)), n
	if !t.Replicated() {
		ways, copies, _ = t.ways()
	}
	list := counting([]int{n}).cells
	if !t.Replicated() {
		list = t.List()
	}
	for at, device := range list {
		index := make(Index, len(shape))
		block := at / copies
		for d := len(shape) - 1; d >= 0; d-- {
			start := block % ways[d] * size[d]
			index[d] = Range{start, start + size[d]}
			block /= ways[d]
		}
		out[device] = index
	}
	return out, nil
}
