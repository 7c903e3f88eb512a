package mesh

import (
	"slices"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/mesh/internal/notation"
)

// A planner works out the moves of one reshard, source block by source block.
// What one block needs does not depend on the others: every device holds one
// block only, so balancing the holders of each block balances all devices. This
// is what lets a task plan its own part and still agree with all other tasks.
type planner struct {
	Reshard
	from, to side
	cuts     []dimCuts           // per dimension
	source   []int32             // for each position in To: its live position in From, or -1
	patterns map[string]*Pattern // by extent
	plan     *Plan

	// Scratch of one block.
	queue  loadQueue
	meet   []*cut   // the cuts of the present overlap, by dimension
	extent []int    // for which recent was made
	recent *Pattern // or nil
}

// A cut is the overlap of a source and a destination block in one dimension.
type cut struct {
	block      int // of the destination
	fromOffset int // bytes into the source shard
	toOffset   int // bytes into the destination shard
	extent     int // elements
}

// dimCuts lists, for each source block of a dimension, its cuts.
type dimCuts struct {
	first []int32
	cuts  []cut
}

func (c *dimCuts) of(block int) []cut { return c.cuts[c.first[block]:c.first[block+1]] }

func (r Reshard) prepare() (*planner, error) {
	if r.From == nil || r.To == nil {
		return nil, errorf(ErrInvalid, "reshard without a source and a destination sharding")
	}
	if r.ElementBytes < 1 || r.ElementBytes > maxElementBytes {
		return nil, errorf(ErrInvalid, "elements of %d bytes: want 1…%d", r.ElementBytes, maxElementBytes)
	}
	lost := slices.Sorted(slices.Values(r.Lost))
	isLost := func(id serry.DeviceID) bool {
		_, found := slices.BinarySearch(lost, id)
		return found
	}
	from, err := newSide(r.From, r.Shape, isLost)
	if err != nil {
		return nil, err
	}
	to, err := newSide(r.To, r.Shape, func(serry.DeviceID) bool { return false })
	if err != nil {
		return nil, err
	}
	p := &planner{Reshard: r, from: from, to: to, plan: &Plan{from: r.From.mesh, to: r.To.mesh}, patterns: map[string]*Pattern{}}
	if product(r.Shape) == 0 { // nothing to move
		p.from.tiles = 0
		return p, nil
	}
	p.cutAll()
	p.findSources(isLost)
	p.meet, p.extent = make([]*cut, len(r.Shape)), make([]int, len(r.Shape))
	p.plan.first, p.plan.holders = from.first, make([]serry.DeviceID, len(from.holders))
	for i, at := range from.holders {
		p.plan.holders[i] = r.From.mesh.ids[at]
	}
	return p, nil
}

// cutAll intersects the blocks of both sides, dimension by dimension.
func (p *planner) cutAll() {
	fromStep, toStep := strides(p.from.placement.size), strides(p.to.placement.size)
	p.cuts = make([]dimCuts, len(p.Shape))
	for d := range p.Shape {
		a, b := p.from.placement.size[d], p.to.placement.size[d]
		c := &p.cuts[d]
		for i := range p.from.placement.ways[d] {
			c.first = append(c.first, int32(len(c.cuts)))
			for j := i * a / b; j*b < (i+1)*a; j++ {
				low, high := max(i*a, j*b), min((i+1)*a, (j+1)*b)
				c.cuts = append(c.cuts, cut{j, (low - i*a) * fromStep[d] * p.ElementBytes, (low - j*b) * toStep[d] * p.ElementBytes, high - low})
			}
		}
		c.first = append(c.first, int32(len(c.cuts)))
	}
}

// findSources looks up which destination devices are live sources too.
func (p *planner) findSources(lost func(serry.DeviceID) bool) {
	at := make(map[serry.DeviceID]int32, p.From.mesh.size)
	for i, id := range p.From.mesh.ids {
		if !lost(id) {
			at[id] = int32(i)
		}
	}
	p.source = make([]int32, p.To.mesh.size)
	for i, id := range p.To.mesh.ids {
		if position, ok := at[id]; ok {
			p.source[i] = position
		} else {
			p.source[i] = -1
		}
	}
}

// countMoves is exact: the overlaps of the blocks times the holders of each
// destination block, of which all have equally many.
func (p *planner) countMoves() int {
	if p.from.tiles == 0 {
		return 0
	}
	sizes := []int{p.To.mesh.size / p.to.tiles}
	for i := range p.cuts {
		sizes = append(sizes, len(p.cuts[i].cuts))
	}
	n, ok := boundedProduct(sizes, maxElements)
	if !ok {
		return maxElements
	}
	return n
}

// An overlap is where a source and a destination block meet.
type overlap struct {
	tile     int // of the destination
	from, to int // byte offsets into the shards
}

// descend visits the destination blocks that a source block meets, with the cuts
// of each in p.meet. It fixes the cut of one dimension after the other.
func (p *planner) descend(d, tile int, o overlap, visit func(overlap)) {
	if d == len(p.meet) {
		visit(o)
		return
	}
	list := p.cuts[d].of(tile / p.from.stride[d])
	rest, step := tile%p.from.stride[d], p.to.stride[d]
	for i := range list {
		c := &list[i]
		p.meet[d] = c
		p.descend(d+1, rest, overlap{o.tile + c.block*step, o.from + c.fromOffset, o.to + c.toOffset}, visit)
	}
}

// serve assigns a holder to every device that needs a part of the source block, and
// keeps the moves that pass the filter (nil keeps all). The order of requests is
// fixed, so every task that plans this block comes to the same assignment.
func (p *planner) serve(tile int, keep func(from, to int) bool) {
	p.queue.reset(p.from.held(tile), p.From.mesh.tasks)
	p.descend(0, tile, overlap{}, func(o overlap) { p.request(tile, o, keep) })
}

// request serves all devices that need one overlap.
func (p *planner) request(tile int, o overlap, keep func(from, to int) bool) {
	pattern := p.pattern()
	for _, to := range p.to.held(o.tile) {
		from := p.choose(tile, int(to), pattern)
		if keep != nil && !keep(from, int(to)) {
			continue
		}
		if from < 0 {
			p.miss(tile, int(to))
			continue
		}
		p.plan.Moves = append(p.plan.Moves, Move{
			From: p.From.mesh.ids[from], To: p.To.mesh.ids[to],
			FromOffset: o.from, ToOffset: o.to, Pattern: pattern, tile: tile,
		})
	}
}

// serveTask serves the blocks that a task holds or needs and keeps its moves.
// Where a block of others has one holder there is nothing to balance, and only
// the requests of the task are looked at.
func (p *planner) serveTask(task serry.TaskIndex) error {
	if p.from.tiles == 0 {
		return nil
	}
	mine := func(from, to int) bool {
		return p.To.mesh.tasks[to] == task || from >= 0 && p.From.mesh.tasks[from] == task
	}
	held, wanted := p.from.tilesOf(p.From.mesh, task), p.to.tilesOf(p.To.mesh, task)
	tiles := slices.Clone(held)
	for _, dst := range wanted {
		tiles = p.sources(0, 0, dst, tiles)
	}
	slices.Sort(tiles)
	for _, tile := range slices.Compact(tiles) {
		if _, own := slices.BinarySearch(held, tile); own || len(p.from.held(tile)) > 1 {
			p.serve(tile, mine)
		} else {
			p.queue.reset(p.from.held(tile), p.From.mesh.tasks)
			for _, dst := range wanted {
				if o, ok := p.meeting(tile, dst); ok {
					p.request(tile, o, mine)
				}
			}
		}
		if len(p.plan.Moves) > maxMoves {
			return errorf(ErrInvalid, "the plan of task %d has more than %d ranges", task, maxMoves)
		}
	}
	return nil
}

// tilesOf lists the blocks that a task holds, in order.
func (s *side) tilesOf(m *Mesh, task serry.TaskIndex) []int {
	var out []int
	for at, t := range m.tasks {
		if t == task {
			out = append(out, int(s.tileOf[at]))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// sources appends the source blocks that meet a destination block, dimension by
// dimension.
func (p *planner) sources(d, tile, dst int, out []int) []int {
	if d == len(p.meet) {
		return append(out, tile)
	}
	a, b := p.from.placement.size[d], p.to.placement.size[d]
	j := dst / p.to.stride[d]
	for i := j * b / a; i*a < (j+1)*b; i++ {
		out = p.sources(d+1, tile+i*p.from.stride[d], dst%p.to.stride[d], out)
	}
	return out
}

// meeting finds the overlap of two blocks, if there is one, and leaves its cuts
// in p.meet.
func (p *planner) meeting(tile, dst int) (overlap, bool) {
	o := overlap{tile: dst}
	for d := range p.meet {
		list := p.cuts[d].of(tile / p.from.stride[d])
		at := dst/p.to.stride[d] - list[0].block // cuts of a block are neighbours
		if at < 0 || at >= len(list) {
			return overlap{}, false
		}
		c := &list[at]
		p.meet[d] = c
		o.from, o.to = o.from+c.fromOffset, o.to+c.toOffset
		tile, dst = tile%p.from.stride[d], dst%p.to.stride[d]
	}
	return o, true
}

// choose picks the holder that gives the block to a destination, or -1 if there is none.
func (p *planner) choose(tile, to int, pattern *Pattern) int {
	if own := p.source[to]; own >= 0 && int(p.from.tileOf[own]) == tile {
		return int(own)
	}
	if len(p.queue.places) == 0 {
		return -1
	}
	return p.queue.take(p.To.mesh.tasks[to], pattern.Bytes())
}

func (p *planner) miss(tile, to int) {
	index := make(Index, len(p.Shape))
	for d, c := range p.meet {
		block := tile / p.from.stride[d] % p.from.placement.ways[d]
		start := max(block*p.from.placement.size[d], c.block*p.to.placement.size[d])
		index[d] = Range{start, start + c.extent}
	}
	p.plan.Missing = append(p.plan.Missing, Gap{p.To.mesh.ids[to], index})
}

// pattern is the shared pattern of the present overlap. It depends on the
// extent alone, and most neighbours have the same.
func (p *planner) pattern() *Pattern {
	same := p.recent != nil
	for d, c := range p.meet {
		same = same && p.extent[d] == c.extent
		p.extent[d] = c.extent
	}
	if same {
		return p.recent
	}
	key := notation.Tuple(p.extent)
	known, ok := p.patterns[key]
	if !ok {
		known = newPattern(p.extent, p.from.placement.size, p.to.placement.size, p.ElementBytes)
		p.patterns[key] = known
	}
	p.recent = known
	return known
}

func (p *planner) finish() (*Plan, error) {
	if len(p.plan.Missing) > 0 && !p.Partial {
		gap := p.plan.Missing[0]
		return nil, errorf(ErrNoHolder, "slice %v for device %d and %d more: all devices that held it are lost: "+
			"restore them from a checkpoint, or plan with Partial", gap.Index, gap.To, len(p.plan.Missing)-1)
	}
	return p.plan, nil
}
