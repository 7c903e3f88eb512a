package collective

import (
	"context"

	"github.com/serry-dev/serry/internal/kernel"
	"github.com/serry-dev/serry/internal/schedule"
	"github.com/serry-dev/serry/memory"
)

// The operations through shared memory. They have no schedule: each rank reads what it needs straight out of the memory of the
// others. Elements are reduced in the order of ranks, once for each of them, so all ranks get the same bits.

// gift is how many bytes a rank gives to the others at most.
func (k *call) gift() int64 {
	if k.job.Op != schedule.AllGather {
		return k.total
	}
	most := int64(0)
	for _, n := range k.sizes {
		most = max(most, n)
	}
	return most
}

// exchangeCells carries a small operation out in one phase: each rank puts what it gives into a cell, and takes what it needs
// from the cells of the others.
//
// A cell is written again two operations later. By then all others must have begun the operation between, because they
// read the cell in the one before that. The phase that says so has no word of its own: the next phase of theirs implies it.
func (s *sharer) exchangeCells(ctx context.Context, o *operation) error {
	s.small++
	if err := s.reachAll(ctx, o, s.cellFree[s.small%cells]); err != nil {
		return err
	}
	k, gives := o.call, o.call.job.Op != schedule.Broadcast || s.comm.rank == int(o.call.root)
	if gives {
		if err := s.enter(); err != nil {
			return err
		}
		copy(s.own.cell(s.small), k.in)
		s.leave()
	}
	s.end()
	given := s.count
	s.count++
	s.cellFree[s.small%cells] = s.count
	if k.job.Op != schedule.Broadcast {
		if err := s.hearAll(ctx, o, given); err != nil {
			return err
		}
	} else if !gives {
		if err := s.hear(ctx, o, int(k.root), given); err != nil {
			return err
		}
	}
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	return s.combineCells(k)
}

// combineCells makes the result of a small operation.
func (s *sharer) combineCells(k *call) error {
	switch k.job.Op {
	case schedule.Broadcast:
		copy(k.out, s.cellOf(int(k.root), k))
		return nil
	case schedule.AllGather:
		at := int64(0)
		for rank, n := range k.sizes {
			copy(k.out[at:at+n], s.cellOf(rank, k))
			at += n
		}
		return nil
	}
	s.inputs = s.inputs[:0]
	for rank := range s.shares {
		given := s.cellOf(rank, k)
		if k.job.Op == schedule.ReduceScatter {
			given = given[k.outOrigin:]
		}
		s.inputs = append(s.inputs, given[:len(k.out)])
	}
	return kernel.Reduce(k.kernel(), memory.DType(k.dtype), k.out, s.inputs...)
}

// cellOf is what a rank gives in a small operation. What this rank gives lies in its memory, which is not older than its cell.
func (s *sharer) cellOf(rank int, k *call) []byte {
	if rank == s.comm.rank {
		return k.in
	}
	return s.shares[rank].cell(s.small)
}

const (
	leastTile  = 4 << 10
	mostTile   = 64 << 10
	tileAlign  = 64
	tileRounds = 4 // a vector is cut into at least so many rounds, so that ranks work at the same time
	mostDepth  = 4

	// From so many bytes on, results are stored past the caches where nothing is reduced: out was not read before. Where it is in,
	// as in a sum in place, it is in a cache, and such stores are slower.
	pastBytes = 32 << 20
)

// A tiling says how a large operation is cut. In each round, each rank works on one tile of the vector, in up to three phases:
//
//	stage    it gives the tiles of the other ranks to them (operations that reduce)
//	produce  it reduces its tile, or takes it from its input, and gives the result to the others
//	collect  it takes the results of the others (operations that end with all of the vector)
//
// A rank stages a round, produces the one before, and collects the one before that. So it hardly ever waits: what it needs
// the others did a round ago.
type tiling struct {
	tile            int64
	rounds          int64
	depth           int64  // rounds whose tiles have a place of their own in the share
	produces        int64  // how many rounds after they are staged tiles are produced, and collected
	collects        int64  // how many rounds after they are staged tiles are collected; 0 if they are not
	base            uint32 // phases that ended before the operation
	stages, gathers bool
}

// The phases of a round.
const (
	staged = 1 + iota
	produced
	collected
	phases = collected
)

// tilingOf cuts an operation.
func (s *sharer) tilingOf(k *call) tiling {
	p := int64(len(s.shares))
	t := tiling{base: s.count, stages: k.job.Op == schedule.AllReduce || k.job.Op == schedule.ReduceScatter}
	t.gathers = k.job.Op != schedule.ReduceScatter
	span := k.gift() // of the vector that one rank works on
	switch k.job.Op {
	case schedule.AllReduce:
		span = (k.total + p - 1) / p
	case schedule.ReduceScatter:
		span = 0
		for _, n := range k.sizes {
			span = max(span, n)
		}
	}
	t.tile = min(max(span/tileRounds, leastTile), mostTile)
	if t.stages {
		t.tile = min(t.tile, stageBytes/(2*p))
		t.produces = 1
	}
	t.tile = t.tile / tileAlign * tileAlign
	t.collects = t.produces + 1
	t.rounds = (span + t.tile - 1) / t.tile
	t.depth = min(mostDepth, resultBytes/t.tile)
	if t.stages {
		t.depth = min(t.depth, stageBytes/(p*t.tile))
	}
	return t
}

// at is the number of a phase of a round.
func (t *tiling) at(round int64, phase uint32) uint32 {
	switch phase {
	case produced:
		round += t.produces
	case collected:
		round += t.collects
	}
	return t.base + uint32(phases*round) + phase
}

// last is the number of the last phase in which ranks read the memory of others.
func (t *tiling) last() uint32 {
	if t.gathers {
		return t.at(t.rounds-1, collected)
	}
	return t.at(t.rounds-1, produced)
}

// exchangeTiles carries out a large operation.
func (s *sharer) exchangeTiles(ctx context.Context, o *operation) error {
	if err := s.reachAll(ctx, o, s.stageFree); err != nil {
		return err
	}
	t := s.tilingOf(o.call)
	s.starts = s.starts[:0]
	for start, rank := int64(0), 0; rank < len(o.call.sizes); rank++ {
		s.starts = append(s.starts, start)
		start += o.call.sizes[rank]
	}
	s.show(ctx, o.call, &t)
	defer s.lookAway()
	for round := range t.rounds + t.collects {
		if err := s.playRound(ctx, o, &t, round); err != nil {
			return err
		}
	}
	s.stageFree = t.last()
	if s.views[s.comm.rank].in != nil || s.views[s.comm.rank].out != nil { // the others read memory of the program, which is given back now
		if err := s.reachAll(ctx, o, s.stageFree); err != nil {
			return err
		}
	}
	return s.believe(ctx)
}

// playRound does the phases of a round. Phases that no rank has are counted, and not told.
func (s *sharer) playRound(ctx context.Context, o *operation, t *tiling, round int64) error {
	if t.stages && round < t.rounds {
		if err := s.stage(ctx, o, t, round); err != nil {
			return err
		}
		s.count = t.at(round, staged) - 1
		s.end()
	}
	if r := round - t.produces; r >= 0 && r < t.rounds {
		if err := s.produce(ctx, o, t, r); err != nil {
			return err
		}
		s.count = t.at(r, produced) - 1
		s.end()
	}
	if r := round - t.collects; t.gathers && r >= 0 && r < t.rounds {
		if err := s.collect(ctx, o, t, r); err != nil {
			return err
		}
		s.count = t.at(r, collected) - 1
		s.end()
	}
	s.count = t.base + uint32(phases*(round+1))
	return nil
}

// piece is the part of the vector that a rank works on in a round.
func (s *sharer) piece(k *call, t *tiling, rank int, round int64) (from, to int64) {
	switch k.job.Op {
	case schedule.AllReduce:
		from = min((round*int64(len(s.shares))+int64(rank))*t.tile, k.total)
		return from, min(from+t.tile, k.total)
	case schedule.Broadcast:
		if rank != int(k.root) {
			return 0, 0
		}
		from = min(round*t.tile, k.total)
		return from, min(from+t.tile, k.total)
	}
	start, size := s.starts[rank], k.sizes[rank]
	from = min(round*t.tile, size)
	return start + from, start + min(from+t.tile, size)
}

// stage gives the tiles of the other ranks to them.
func (s *sharer) stage(ctx context.Context, o *operation, t *tiling, round int64) error {
	if s.views[s.comm.rank].in != nil {
		return nil // they read the input
	}
	if round >= t.depth {
		if err := s.reachAll(ctx, o, t.at(round-t.depth, produced)); err != nil {
			return err
		}
	}
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	for rank := range s.shares {
		if from, to := s.piece(o.call, t, rank, round); rank != s.comm.rank {
			copy(s.own.staged(t, len(s.shares), rank, round), o.call.in[from-o.call.inOrigin:to-o.call.inOrigin])
		}
	}
	return nil
}

// produce makes the result of the tile of this rank.
func (s *sharer) produce(ctx context.Context, o *operation, t *tiling, round int64) error {
	k, rank := o.call, s.comm.rank
	from, to := s.piece(k, t, rank, round)
	if t.stages {
		if err := s.hearAll(ctx, o, t.at(round, staged)); err != nil {
			return err
		}
	}
	if from == to {
		return nil
	}
	gives := t.gathers && s.views[rank].result(t) == nil
	if gives && round >= t.depth {
		if err := s.reachAll(ctx, o, t.at(round-t.depth, collected)); err != nil {
			return err
		}
	}
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	out := k.out[from-k.outOrigin : to-k.outOrigin]
	if t.stages {
		if err := s.reduce(k, t, out, round); err != nil {
			return err
		}
	} else if !k.aliased {
		copy(out, k.in[from-k.inOrigin:to-k.inOrigin])
	}
	if gives {
		copy(s.own.result(t, round), out)
	}
	return nil
}

// reduce reduces the tile of this rank.
func (s *sharer) reduce(k *call, t *tiling, out []byte, round int64) error {
	from, to := s.piece(k, t, s.comm.rank, round)
	s.inputs = s.inputs[:0]
	for rank, other := range s.shares {
		in := s.views[rank].in
		switch {
		case rank == s.comm.rank:
			s.inputs = append(s.inputs, k.in[from:to])
		case in != nil:
			s.inputs = append(s.inputs, in[from:to])
		default:
			s.inputs = append(s.inputs, other.staged(t, len(s.shares), s.comm.rank, round)[:to-from])
		}
	}
	return kernel.Reduce(k.kernel(), memory.DType(k.dtype), out, s.inputs...)
}

// collect takes the results of the others, beginning with the next rank, so that not all read the same memory at once.
func (s *sharer) collect(ctx context.Context, o *operation, t *tiling, round int64) error {
	k, p := o.call, len(s.shares)
	for i := 1; i < p; i++ {
		rank := (s.comm.rank + i) % p
		from, to := s.piece(k, t, rank, round)
		if from == to {
			continue
		}
		if err := s.hear(ctx, o, rank, t.at(round, produced)); err != nil {
			return err
		}
		if err := s.enter(); err != nil {
			return err
		}
		if result := s.resultOf(rank, t, round, from, to); t.stages || k.total < pastBytes {
			copy(k.out[from:to], result)
		} else {
			kernel.CopyPast(k.out[from:to], result)
		}
		s.leave()
	}
	return nil
}

// resultOf is what another rank has produced.
func (s *sharer) resultOf(rank int, t *tiling, round, from, to int64) []byte {
	if result := s.views[rank].result(t); result != nil {
		origin := s.views[rank].origin
		return result[from-origin : to-origin]
	}
	return s.shares[rank].result(t, round)[:to-from]
}

// staged is where the tile lies that the rank of the share gives to another one.
func (s share) staged(t *tiling, ranks, rank int, round int64) []byte {
	at := (round%t.depth*int64(ranks) + int64(rank)) * t.tile
	return s.bytes(stageAt+int(at), int(t.tile))
}

// result is where the tile lies that the rank of the share has produced.
func (s share) result(t *tiling, round int64) []byte {
	return s.bytes(resultsAt+int(round%t.depth*t.tile), int(t.tile))
}
