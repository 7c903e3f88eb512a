package mesh

import (
	"cmp"
	"errors"
	"slices"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/mesh/internal/notation"
)

// A View is where the data of one task stands along one dimension: it is part
// Index of Count equal parts. Tasks with the same Index must load the same
// data.
type View struct{ Index, Count int }

// View says which part of dimension dim a task loads, for arrays of the given
// rank. The tasks must hold equally many slices, and any two of them the same
// or disjoint ones, else the error is [ErrNonUniform]. Parts are numbered by
// their smallest start, so all tasks agree (JAX numbers them by hash order,
// W-TOP-19).
func (s *Sharding) View(task serry.TaskIndex, dim, rank int) (View, error) {
	if dim < 0 || dim >= rank {
		return View{}, atDim(dim).errorf(ErrInvalid, "dimension %d of an array of rank %d", dim, rank)
	}
	if err := cmp.Or(s.needDevices(), s.spec.CheckRank(rank)); err != nil {
		return View{}, err
	}
	if !slices.Contains(s.mesh.tasks, task) {
		return View{}, errorf(ErrNoDevices, "task %d has no device in %s: it loads nothing", task, s.mesh.brief())
	}
	if s.addressable(task) || s.Replicated() {
		return View{0, 1}, nil
	}
	p, err := s.fullPlacement(s.blocks(rank).ways) // one element a block
	if err != nil {
		return View{}, err
	}
	return s.findView(task, dim, &p)
}

func (s *Sharding) findView(task serry.TaskIndex, dim int, p *placement) (View, error) {
	held := s.heldBlocks(dim, p)
	own, _ := slices.BinarySearchFunc(held, task, func(h heldBlocks, t serry.TaskIndex) int { return cmp.Compare(h.task, t) })
	mine := held[own].blocks
	for _, h := range held {
		if len(h.blocks) != len(mine) {
			return View{}, atDim(dim).errorf(ErrNonUniform, "%s is not uniform in dimension %d: task %d holds %d slices, task %d holds %d: "+
				"give the global shape, or reorder the mesh", s.spec, dim, task, len(mine), h.task, len(h.blocks))
		}
	}
	slices.SortStableFunc(held, func(a, b heldBlocks) int { return slices.Compare(a.blocks, b.blocks) })
	distinct := slices.CompactFunc(slices.Clone(held), func(a, b heldBlocks) bool { return slices.Equal(a.blocks, b.blocks) })
	owner := make([]int, p.ways[dim]) // 1 + which distinct set has each block
	for i, h := range distinct {
		for _, b := range h.blocks {
			if owner[b] != 0 {
				return View{}, atDim(dim).errorf(ErrNonUniform, "%s is not uniform in dimension %d: tasks %d and %d hold overlapping slices: "+
					"give the global shape, or reorder the mesh", s.spec, dim, distinct[owner[b]-1].task, h.task)
			}
			owner[b] = i + 1
		}
	}
	return View{owner[mine[0]] - 1, len(distinct)}, nil
}

// heldBlocks are the blocks of one dimension that a task holds, ascending.
type heldBlocks struct {
	task   serry.TaskIndex
	blocks []int
}

// heldBlocks lists them by ascending task.
func (s *Sharding) heldBlocks(dim int, p *placement) []heldBlocks {
	type pair struct {
		task  serry.TaskIndex
		block int
	}
	pairs := make([]pair, s.mesh.size)
	blocks := p.indexMap(s.mesh)
	for at, t := range s.mesh.tasks {
		pairs[at] = pair{t, blocks.block(at, dim)}
	}
	slices.SortFunc(pairs, func(a, b pair) int { return cmp.Or(cmp.Compare(a.task, b.task), cmp.Compare(a.block, b.block)) })
	var out []heldBlocks
	for _, pr := range slices.Compact(pairs) {
		if len(out) == 0 || out[len(out)-1].task != pr.task {
			out = append(out, heldBlocks{task: pr.task})
		}
		h := &out[len(out)-1]
		h.blocks = append(h.blocks, pr.block)
	}
	return out
}

// Unknown stands for a size that does not follow from what one task holds.
const Unknown = -1

// globalShape is the shape of the array of which task has a local part: every
// dimension times the number of parts, or [Unknown] where tasks hold different
// amounts.
func (s *Sharding) globalShape(local []int, task serry.TaskIndex) ([]int, error) {
	if err := CheckShape(local); err != nil {
		return nil, err
	}
	out := make([]int, len(local))
	for d, n := range local {
		v, err := s.View(task, d, len(local))
		switch {
		case errors.Is(err, ErrNonUniform):
			out[d] = Unknown
		case err != nil:
			return nil, err
		default:
			size, ok := boundedProduct([]int{n, v.Count}, maxElements)
			if !ok {
				return nil, atDim(d).errorf(ErrInvalid, "%d parts of %d elements are too large for dimension %d", v.Count, n, d)
			}
			out[d] = size
		}
	}
	return out, nil
}

// LocalShape is how much of an array task holds along each dimension: the shard
// size times the number of distinct slices. A task without devices holds
// nothing.
func (s *Sharding) LocalShape(shape []int, task serry.TaskIndex) ([]int, error) {
	shards, err := s.LocalShards(shape, task)
	if err != nil {
		return nil, err
	}
	out := make([]int, len(shape))
	for d := range shape {
		for _, r := range distinctRanges(shards, d) {
			out[d] += r.Len()
		}
	}
	return out, nil
}

// distinctRanges lists what shards cover of one dimension, in order.
func distinctRanges(shards []Shard, dim int) []Range {
	out := make([]Range, len(shards))
	for i, sh := range shards {
		out[i] = sh.Index[dim]
	}
	slices.SortFunc(out, func(a, b Range) int { return cmp.Compare(a.Start, b.Start) })
	return slices.Compact(out)
}

// inLocal maps a block of the global array into the buffer that holds the local
// part of a task: along each dimension the distinct slices of the task lie end
// to end. Dimensions of the buffer that have the global size are addressed as
// they are.
func (s *Sharding) inLocal(shape, local []int, task serry.TaskIndex) ([]Index, error) {
	shards, err := s.LocalShards(shape, task)
	if err != nil {
		return nil, err
	}
	if err := s.checkLocal(shape, local, task); err != nil {
		return nil, err
	}
	out := make([]Index, len(shards))
	for i, sh := range shards {
		out[i] = slices.Clone(sh.Index)
	}
	for d := range shape {
		if local[d] == shape[d] {
			continue
		}
		ranges := distinctRanges(shards, d)
		for i := range out {
			r := &out[i][d]
			rank, _ := slices.BinarySearchFunc(ranges, *r, func(a, b Range) int { return cmp.Compare(a.Start, b.Start) })
			*r = Range{rank * r.Len(), (rank + 1) * r.Len()}
		}
	}
	return out, nil
}

// checkLocal holds the data of a task against the array: each dimension is
// either whole or the task's part of it (C-DATA-6).
func (s *Sharding) checkLocal(shape, local []int, task serry.TaskIndex) error {
	if len(shape) != len(local) {
		return errorf(ErrInvalid, "local data of shape %s for an array of shape %s: the ranks differ", notation.Tuple(local), notation.Tuple(shape))
	}
	part, err := s.LocalShape(shape, task)
	if err != nil {
		return err
	}
	for d, n := range local {
		if n != shape[d] && n != part[d] {
			return atDim(d).errorf(ErrInvalid, "local data has %d elements in dimension %d: bring the whole dimension, %d, "+
				"or the part of task %d, %d", n, d, shape[d], task, part[d])
		}
	}
	return nil
}
