package schedule

import (
	"fmt"
	"maps"
	"slices"
)

// A sum says how often the block of each rank's input is in a value. All terms are of one block; mixed is the
// block of a sum for which that is not so.
type sum struct {
	block int
	times [mostRanks]uint8 // by rank
}

const mixed = -1

// input is a block as a rank gives it.
func input(rank, block int) sum {
	s := sum{block: block}
	s.times[rank] = 1
	return s
}

// plus adds the terms of another sum.
func (s *sum) plus(other sum) {
	if s.block != other.block {
		s.block = mixed
	}
	for i, n := range other.times {
		s.times[i] += n
	}
}

// A place is where one block lies.
type place struct {
	buf         Buffer
	slot, block int
}

// A symbolic rank plays its schedule with sums in place of bytes.
type symbolic struct {
	Schedule
	inPlace bool
	values  map[place]sum
	bases   map[int]int // of slots of Tmp
	next    int
	sent    []bool // the sends and receives of the round that are done
	got     []bool
}

// A world is all ranks of an algorithm and the links between them, which hold one message each.
type world struct {
	ranks []*symbolic
	links map[[2]int][]sum
	full  map[[2]int]bool
}

func newWorld(a Algorithm, j Job, inPlace bool) (*world, error) {
	w := &world{links: map[[2]int][]sum{}, full: map[[2]int]bool{}}
	for rank := range j.Ranks {
		s, err := New(a, j, rank)
		if err != nil {
			return nil, err
		}
		r := &symbolic{Schedule: s, inPlace: inPlace, values: map[place]sum{}, bases: map[int]int{}}
		for b := range s.Blocks {
			if r.has(b) {
				r.values[r.alias(place{In, 0, b})] = input(rank, b)
			}
		}
		w.ranks = append(w.ranks, r)
	}
	return w, nil
}

// has says whether a block of the input exists on a rank.
func (r *symbolic) has(b int) bool {
	switch r.Op {
	case AllGather, Gather:
		return b == r.Rank
	case Broadcast, Scatter:
		return r.Rank == r.Root
	}
	return true
}

// want is what a block of the result must be, nil if nothing may be written there.
func (r *symbolic) want(b int) *sum {
	all := &sum{block: b}
	for i := range r.Ranks {
		all.times[i] = 1
	}
	only := func(rank, block int) *sum { v := input(rank, block); return &v }
	switch r.Op {
	case AllReduce:
		return all
	case ReduceScatter:
		if b == r.Rank {
			return all
		}
	case Reduce:
		if r.Rank == r.Root {
			return all
		}
	case AllGather:
		return only(b, b)
	case Gather:
		if r.Rank == r.Root {
			return only(b, b)
		}
	case AllToAll:
		return only(b, r.Rank)
	case Broadcast:
		return only(r.Root, b)
	case Scatter:
		if b == r.Rank {
			return only(r.Root, b)
		}
	}
	return nil
}

// alias is the place that a block of the input shares with the result in an operation in place.
func (r *symbolic) alias(p place) place {
	if !r.inPlace || p.buf != In {
		return p
	}
	switch r.Op {
	case AllGather, ReduceScatter:
		if p.block != r.Rank {
			return p
		}
	case Reduce:
		if r.Rank != r.Root {
			return p
		}
	}
	p.buf = Out
	return p
}

func (r *symbolic) places(parts []Part) []place {
	var list []place
	for _, part := range parts {
		for b := part.Lo; b < part.Hi; b++ {
			list = append(list, r.alias(place{part.Buf, part.Slot, b}))
		}
	}
	return list
}

func (r *symbolic) read(parts []Part) ([]sum, error) {
	for _, part := range parts {
		if part.Buf == Tmp && r.bases[part.Slot] != part.Base {
			return nil, fmt.Errorf("rank %d reads slot %d from block %d, it begins with %d", r.Rank, part.Slot, part.Base, r.bases[part.Slot])
		}
	}
	var list []sum
	for _, p := range r.places(parts) {
		v, ok := r.values[p]
		if !ok {
			return nil, fmt.Errorf("rank %d reads %v, which is empty", r.Rank, p)
		}
		list = append(list, v)
	}
	return list, nil
}

func (r *symbolic) write(parts []Part, values []sum) error {
	for _, part := range parts {
		switch {
		case part.Buf == In:
			return fmt.Errorf("rank %d writes its input", r.Rank)
		case part.Buf == Out && r.want(part.Lo) == nil:
			return fmt.Errorf("rank %d writes block %d of a result it does not have", r.Rank, part.Lo)
		case part.Buf == Tmp && r.bases[part.Slot] != part.Base:
			maps.DeleteFunc(r.values, func(p place, _ sum) bool { return p.buf == Tmp && p.slot == part.Slot })
			r.bases[part.Slot] = part.Base
		}
	}
	list := r.places(parts)
	if len(list) != len(values) {
		return fmt.Errorf("rank %d takes %d blocks for %d", r.Rank, len(values), len(list))
	}
	for i, p := range list {
		r.values[p] = values[i]
	}
	return nil
}

// begin checks that no move of a round touches what another one writes.
func (r *symbolic) begin(round Round) error {
	r.sent, r.got = make([]bool, len(round.Sends)), make([]bool, len(round.Recvs))
	written := map[place]bool{}
	for _, m := range round.Recvs {
		for _, p := range r.places(m.Parts) {
			if written[p] {
				return fmt.Errorf("rank %d receives %v twice in one round", r.Rank, p)
			}
			written[p] = true
		}
	}
	for _, m := range round.Sends {
		for _, p := range r.places(m.Parts) {
			if written[p] {
				return fmt.Errorf("rank %d sends and receives %v in one round", r.Rank, p)
			}
		}
	}
	return nil
}

// step does one thing that is possible, and says whether there was one.
func (w *world) step(r *symbolic) (bool, error) {
	if r.next == len(r.Rounds) {
		return false, nil
	}
	round := r.Rounds[r.next]
	if r.sent == nil {
		if err := r.begin(round); err != nil {
			return false, err
		}
	}
	for i, m := range round.Sends {
		pair := [2]int{r.Rank, m.Peer}
		if r.sent[i] || w.full[pair] {
			continue
		}
		values, err := r.read(m.Parts)
		w.links[pair], w.full[pair], r.sent[i] = values, true, true
		return true, err
	}
	for i, m := range round.Recvs {
		pair := [2]int{m.Peer, r.Rank}
		if r.got[i] || !w.full[pair] {
			continue
		}
		err := r.write(m.Parts, w.links[pair])
		w.full[pair], r.got[i] = false, true
		return true, err
	}
	if slices.Contains(r.sent, false) || slices.Contains(r.got, false) {
		return false, nil
	}
	r.next, r.sent = r.next+1, nil
	return true, r.work(round)
}

func (r *symbolic) work(round Round) error {
	for _, work := range round.Work {
		total := make([]sum, work.Into.Hi-work.Into.Lo)
		for k, from := range work.From {
			values, err := r.read([]Part{from})
			if err != nil {
				return err
			}
			for i, v := range values {
				if k == 0 {
					total[i].block = v.block
				}
				total[i].plus(v)
			}
		}
		if err := r.write([]Part{work.Into}, total); err != nil {
			return err
		}
	}
	return nil
}

// play plays all ranks to the end and compares what they have.
func (w *world) play() error {
	for moved := true; moved; {
		moved = false
		for _, r := range w.ranks {
			for {
				did, err := w.step(r)
				if err != nil {
					return fmt.Errorf("round %d: %w", r.next, err)
				}
				if !did {
					break
				}
				moved = true
			}
		}
	}
	for _, r := range w.ranks {
		if r.next < len(r.Rounds) {
			return fmt.Errorf("rank %d waits for ever in round %d of %d", r.Rank, r.next, len(r.Rounds))
		}
		for b := range r.Blocks {
			if want := r.want(b); want != nil && r.values[place{Out, 0, b}] != *want {
				return fmt.Errorf("rank %d has %v in block %d; want %v", r.Rank, r.values[place{Out, 0, b}], b, *want)
			}
		}
	}
	for pair, full := range w.full {
		if full {
			return fmt.Errorf("rank %d never takes a message of rank %d", pair[1], pair[0])
		}
	}
	return nil
}
