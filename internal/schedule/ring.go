package schedule

// A team is the ranks that take part in a phase, and the blocks that each of them owns in it. Most phases have
// all ranks, and rank i owns block i; the phases of [TwoLevel] have some.
type team struct {
	ranks []int
	me    int              // my place in ranks
	owns  func(i int) Part // the blocks of place i, in Out
}

// everyone is the team of all ranks, each of which owns the block of its number.
func everyone(p, rank int) team {
	t := team{me: rank, owns: func(i int) Part { return span(Out, i, i+1) }}
	for i := range p {
		t.ranks = append(t.ranks, i)
	}
	return t
}

func (t team) size() int { return len(t.ranks) }

// rank is the rank at a place, counted from mine.
func (t team) rank(offset int) int { return t.ranks[t.place(offset)] }

func (t team) place(offset int) int {
	p := t.size()
	return ((t.me+offset)%p + p) % p
}

// in is the part of place i in another buffer.
func (t team) in(b Buffer, i int) Part {
	p := t.owns(i)
	p.Buf = b
	return p
}

// ringScatterRounds reduce the vectors in from. Block b travels once around the ring and ends on its owner; each
// rank adds its own share. keep says where the sum of a block is kept on a rank: it must not be overwritten
// before the next round has sent it.
func (t team) ringScatterRounds(from Buffer, keep func(i int) Part) []Round {
	var rounds []Round
	for k := range t.size() - 1 {
		out, in := t.place(-k-1), t.place(-k-2)
		sent := t.in(from, out)
		if k > 0 {
			sent = keep(out)
		}
		got := scratch(0, t.owns(in).Lo, t.owns(in).Hi)
		rounds = append(rounds, Round{
			Sends: one(t.rank(1), sent),
			Recvs: one(t.rank(-1), got),
			Work:  []Work{{Into: keep(in), From: []Part{t.in(from, in), got}}},
		})
	}
	return rounds
}

// ringGatherRounds pass every block around the ring. first is where my own block lies at the beginning.
func (t team) ringGatherRounds(first Part) []Round {
	var rounds []Round
	for k := range t.size() - 1 {
		sent := t.owns(t.place(-k))
		if k == 0 {
			sent = first
		}
		rounds = append(rounds, Round{Sends: one(t.rank(1), sent), Recvs: one(t.rank(-1), t.owns(t.place(-k-1)))})
	}
	return rounds
}

func ringAllReduce(j Job, rank int) plan {
	t := everyone(j.Ranks, rank)
	if j.Ranks == 1 {
		return alone()
	}
	rounds := t.ringScatterRounds(In, t.owns)
	return plan{j.Ranks, append(rounds, t.ringGatherRounds(t.owns(rank))...)}
}

func ringScatter(j Job, rank int) plan {
	t := everyone(j.Ranks, rank)
	if j.Ranks == 1 {
		return alone()
	}
	return plan{j.Ranks, t.ringScatterRounds(In, func(i int) Part {
		if i == rank {
			return t.owns(i)
		}
		return scratch(1, i, i+1)
	})}
}

func ringGather(j Job, rank int) plan {
	t := everyone(j.Ranks, rank)
	mine := t.in(In, rank)
	rounds := append([]Round{{Work: copies(t.owns(rank), mine)}}, t.ringGatherRounds(mine)...)
	return plan{j.Ranks, rounds}
}

// alone is the plan of an operation with a single rank: it copies.
func alone() plan {
	return plan{1, []Round{{Work: copies(span(Out, 0, 1), span(In, 0, 1))}}}
}
