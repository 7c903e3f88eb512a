package mesh

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/mesh/internal/notation"
)

// A Shard is the part of an array that one device holds.
type Shard struct {
	Device  serry.DeviceID
	Task    serry.TaskIndex
	Index   Index
	Replica int // how many devices earlier in mesh order hold the same block
}

// ShardShape is the shape of the data on each device. Every dimension must be a
// multiple of the number of its shards.
func (s *Sharding) ShardShape(shape []int) ([]int, error) {
	p, err := s.placement(shape)
	if err != nil {
		return nil, err
	}
	return p.size, nil
}

// Shards says what each device holds, in mesh order. For exactly one device of
// each distinct block the replica number is 0. Unreduced shardings have no such
// map: their devices hold partial values. [Sharding.IndexMap] says the same in
// less memory, [Sharding.LocalShards] for one task only.
func (s *Sharding) Shards(shape []int) ([]Shard, error) {
	m, err := s.IndexMap(shape)
	if err != nil {
		return nil, err
	}
	rank := len(shape)
	out := make([]Shard, m.Len())
	ranges := make([]Range, len(out)*rank) // one allocation for all blocks
	for at := range out {
		index := Index(ranges[at*rank : (at+1)*rank : (at+1)*rank])
		for d := range index {
			index[d] = m.Range(at, d)
		}
		out[at] = Shard{s.mesh.ids[at], s.mesh.tasks[at], index, m.block(at, rank)}
	}
	return out, nil
}

// An IndexMap says what each device of a mesh holds, as block numbers: a few
// bytes a device, made in microseconds even for the largest meshes. Devices
// are counted in mesh order.
type IndexMap struct {
	mesh   *Mesh
	size   []int     // shard size per dimension
	blocks [][]int32 // by dimension, then device; replica numbers last; nil is all zero
}

// IndexMap works out the block of every device.
func (s *Sharding) IndexMap(shape []int) (*IndexMap, error) {
	p, err := s.fullPlacement(shape)
	if err != nil {
		return nil, err
	}
	return p.indexMap(s.mesh), nil
}

// Len is the number of devices.
func (m *IndexMap) Len() int { return m.mesh.size }

// Range is what device number at holds of one dimension.
func (m *IndexMap) Range(at, dim int) Range {
	start := m.block(at, dim) * m.size[dim]
	return Range{start, start + m.size[dim]}
}

// Device is the id of a device.
func (m *IndexMap) Device(at int) serry.DeviceID { return m.mesh.ids[at] }

func (m *IndexMap) block(at, dim int) int {
	if m.blocks[dim] == nil {
		return 0
	}
	return int(m.blocks[dim][at])
}

// LocalShards is [Sharding.Shards] restricted to the devices of task, without
// working out all others.
func (s *Sharding) LocalShards(shape []int, task serry.TaskIndex) ([]Shard, error) {
	p, err := s.fullPlacement(shape)
	if err != nil {
		return nil, err
	}
	var out []Shard
	block := make([]int, len(shape)+1)
	for at, t := range s.mesh.tasks {
		if t == task {
			p.at(at, block)
			out = append(out, Shard{s.mesh.ids[at], t, p.index(block), block[len(shape)]})
		}
	}
	return out, nil
}

// A placement maps positions in the mesh to blocks of an array. Block numbers
// count along each dimension; the number behind the last dimension is the
// replica.
type placement struct {
	mesh []int // axis sizes
	dim  []int // what each axis numbers: a dimension, or rank for replicas
	step []int // how far one step along the axis moves that number
	ways []int // shards per dimension
	size []int // shard size per dimension
}

// fullPlacement is placement for callers that need a block for every device.
func (s *Sharding) fullPlacement(shape []int) (placement, error) {
	if err := s.needDevices(); err != nil {
		return placement{}, err
	}
	p, err := s.placement(shape)
	if err != nil {
		return placement{}, err
	}
	if s.reduction() != "" {
		return placement{}, onAxis(s.spec.Unreduced[0]).errorf(ErrUnsupported, "%s is unreduced: devices hold partial values, not slices: "+
			"reduce over %s first", s.spec, notation.QuoteAll(s.spec.Unreduced))
	}
	return p, nil
}

// placement checks shape against the sharding and works out the blocks.
func (s *Sharding) placement(shape []int) (placement, error) {
	if err := cmp.Or(CheckShape(shape), s.spec.CheckRank(len(shape)), s.checkManual()); err != nil {
		return placement{}, err
	}
	p := s.blocks(len(shape))
	p.size = make([]int, len(shape))
	for d, n := range shape {
		if n%p.ways[d] != 0 {
			return placement{}, s.indivisible(d, shape, p.ways)
		}
		p.size[d] = n / p.ways[d]
	}
	p.countReplicas(shape)
	return p, nil
}

// blocks works out how axes number the blocks of an array of some rank.
func (s *Sharding) blocks(rank int) placement {
	p := placement{mesh: s.mesh.shape(), ways: slices.Repeat([]int{1}, rank)}
	p.dim = slices.Repeat([]int{rank}, len(p.mesh))
	p.step = make([]int, len(p.mesh))
	for dim, entry := range s.spec.Dims {
		if dim >= rank || entry.free() {
			continue
		}
		for _, name := range slices.Backward(entry) {
			a := s.mesh.axisIndex(name)
			p.dim[a], p.step[a] = dim, p.ways[dim]
			p.ways[dim] *= p.mesh[a]
		}
	}
	return p
}

// countReplicas numbers the copies of each block in mesh order. Blocks of a
// dimension without elements are all the same block.
func (p *placement) countReplicas(shape []int) {
	copies := 1
	for a := len(p.mesh) - 1; a >= 0; a-- {
		if d := p.dim[a]; d < len(shape) && shape[d] > 0 {
			continue
		}
		p.dim[a], p.step[a] = len(shape), copies
		copies *= p.mesh[a]
	}
}

// checkManual refuses what JAX refuses: a Manual axis next to one that splits
// nothing, where slices are the program's affair.
func (s *Sharding) checkManual() error {
	manual, unused := "", false
	for _, a := range s.mesh.axes {
		if a.Size == 1 {
			continue
		}
		if a.Type == Manual {
			manual = a.Name
		}
		unused = unused || !s.spec.uses(a.Name)
	}
	if manual == "" || !unused {
		return nil
	}
	return onAxis(manual).errorf(ErrUnsupported, "%s over mesh %s: what devices hold along the Manual axis %s is up to the program: "+
		"make the axis Auto or Explicit, or let every axis split a dimension", s.spec, s.mesh.brief(), notation.Quote(manual))
}

func (s *Sharding) indivisible(dim int, shape, ways []int) error {
	entry := s.spec.Dims[dim]
	sizes := notation.JoinFunc(entry, ", ", func(name string) string {
		return notation.Quote(name) + ": " + strconv.Itoa(s.mesh.axes[s.mesh.axisIndex(name)].Size)
	})
	return location{entry[0], dim}.errorf(ErrIndivisible, "%s splits dimension %d %d ways (%s), but its size is %d "+
		"(full shape %s, ways %s should evenly divide the shape): pad it to %d, or split it over fewer axes",
		s.spec, dim, ways[dim], sizes, shape[dim], notation.Tuple(shape), notation.Tuple(ways),
		(shape[dim]+ways[dim]-1)/ways[dim]*ways[dim])
}

// maxElements bounds an array so that byte offsets fit into an int.
const maxElements = 1 << 56

// CheckShape says what is wrong with the shape of an array, or nil.
func CheckShape(shape []int) error {
	if len(shape) > maxRank {
		return errorf(ErrInvalid, "array has %d dimensions, at most %d are possible", len(shape), maxRank)
	}
	for d, n := range shape {
		if n < 0 {
			return atDim(d).errorf(ErrInvalid, "dimension %d of shape %s is negative", d, notation.Tuple(shape))
		}
	}
	if _, ok := boundedProduct(shape, maxElements); !ok {
		return errorf(ErrInvalid, "array of shape %s is too large", notation.Tuple(shape))
	}
	return nil
}

// at fills in the block numbers of one position in mesh order.
func (p *placement) at(position int, block []int) {
	clear(block)
	for a := len(p.mesh) - 1; a >= 0; a-- {
		block[p.dim[a]] += position % p.mesh[a] * p.step[a]
		position /= p.mesh[a]
	}
}

// index turns block numbers into ranges.
func (p *placement) index(block []int) Index {
	out := make(Index, len(p.size))
	for d, n := range p.size {
		out[d] = Range{block[d] * n, (block[d] + 1) * n}
	}
	return out
}

// indexMap numbers the blocks of all places.
func (p *placement) indexMap(m *Mesh) *IndexMap {
	out := &IndexMap{mesh: m, size: p.size, blocks: make([][]int32, len(p.ways)+1)}
	for d := range out.blocks {
		out.blocks[d] = p.numbers(d)
	}
	return out
}

// numbers gives the block of dimension dim at each position, nil if that is 0 for
// all. From the last axis on, each step along an axis repeats what there is so
// far, moved on where the axis numbers this dimension.
func (p *placement) numbers(dim int) []int32 {
	if !slices.Contains(p.dim, dim) {
		return nil
	}
	out := make([]int32, product(p.mesh))
	done := 1
	for a := len(p.mesh) - 1; a >= 0; a-- {
		step := 0
		if p.dim[a] == dim {
			step = p.step[a]
		}
		for k := 1; k < p.mesh[a]; k++ {
			fill(out[k*done:(k+1)*done], out[:done], int32(k*step))
		}
		done *= p.mesh[a]
	}
	return out
}

func fill(to, from []int32, add int32) {
	if add == 0 {
		copy(to, from)
		return
	}
	for i, n := range from {
		to[i] = n + add
	}
}
