package schedule

// Halving is reduce-scatter on a circulant graph. Seen from rank r, block r+i is number i. While there are s
// numbers, a rank sends the upper half of them to the rank that lies as far ahead, adds what it receives to
// the lower half, and forgets the upper one. With ceil(s/2) as the half this is right for any number of ranks
// and takes ceil(log2 p) rounds and (p-1)/p of the vector: there is no fold for numbers that are not a power of
// two. The gather is the same in reverse.

// A halve is one round of it: a rank sends numbers [half, all) to the rank half places ahead.
type halve struct{ half, all int }

// halves are the rounds for p ranks.
func halves(p int) []halve {
	var list []halve
	for s := p; s > 1; s = (s + 1) / 2 {
		list = append(list, halve{(s + 1) / 2, s})
	}
	return list
}

// halvingScatterRounds reduce the vectors of In. keep says where the sum of blocks is kept.
func halvingScatterRounds(p, rank int, keep func(lo, hi int) Part) []Round {
	var rounds []Round
	summed := 0 // so many numbers are sums in keep already; the others are still in In
	for _, h := range halves(p) {
		var r Round
		send := Move{Peer: (rank + h.half) % p}
		for number := h.half; number < h.all; number++ {
			b := (rank + number) % p
			from := span(In, b, b+1)
			if number < summed {
				from = keep(b, b+1)
			}
			send.Parts = joined(send.Parts, from)
		}
		recv := Move{Peer: (rank - h.half + p) % p}
		for number := range h.all - h.half {
			b := (rank + number) % p
			got, sum := shadow(0, b, b+1), span(In, b, b+1)
			if number < summed {
				sum = keep(b, b+1)
			}
			recv.Parts = joined(recv.Parts, got)
			r.Work = append(r.Work, Work{Into: keep(b, b+1), From: []Part{sum, got}})
		}
		r.Sends, r.Recvs = []Move{send}, []Move{recv}
		rounds = append(rounds, r)
		summed = max(summed, h.all-h.half)
	}
	return rounds
}

// halvingGatherRounds are the rounds of the scatter in reverse: what a rank sent then, it receives now. mine is
// where my own block lies at the beginning.
func halvingGatherRounds(p, rank int, mine Part) []Round {
	list := halves(p)
	var rounds []Round
	for k := len(list) - 1; k >= 0; k-- {
		h := list[k]
		send, recv := Move{Peer: (rank - h.half + p) % p}, Move{Peer: (rank + h.half) % p}
		for number := range h.all - h.half {
			b := (rank + number) % p
			from := span(Out, b, b+1)
			if number == 0 {
				from = mine
			}
			send.Parts = joined(send.Parts, from)
		}
		for _, run := range wrap(rank+h.half, h.all-h.half, p) {
			recv.Parts = append(recv.Parts, span(Out, run[0], run[1]))
		}
		rounds = append(rounds, Round{Sends: []Move{send}, Recvs: []Move{recv}})
	}
	return rounds
}

// joined appends a part, as a longer last one where the two follow each other in one buffer.
func joined(list []Part, p Part) []Part {
	if n := len(list); n > 0 {
		last := &list[n-1]
		if last.Buf == p.Buf && last.Slot == p.Slot && last.Base == p.Base && last.Hi == p.Lo {
			last.Hi = p.Hi
			return list
		}
	}
	return append(list, p)
}

func halvingAllReduce(j Job, rank int) plan {
	if j.Ranks == 1 {
		return alone()
	}
	keep := func(lo, hi int) Part { return span(Out, lo, hi) }
	rounds := halvingScatterRounds(j.Ranks, rank, keep)
	return plan{j.Ranks, append(rounds, halvingGatherRounds(j.Ranks, rank, keep(rank, rank+1))...)}
}

func halvingScatter(j Job, rank int) plan {
	if j.Ranks == 1 {
		return alone()
	}
	return plan{j.Ranks, halvingScatterRounds(j.Ranks, rank, func(lo, hi int) Part {
		if lo == rank {
			return span(Out, lo, hi)
		}
		return shadow(1, lo, hi)
	})}
}

// bruckGather is the all-gather of Bruck and others, without its final rotation: blocks are received in place.
func bruckGather(j Job, rank int) plan {
	mine := span(In, rank, rank+1)
	rounds := []Round{{Work: copies(span(Out, rank, rank+1), mine)}}
	return plan{j.Ranks, append(rounds, halvingGatherRounds(j.Ranks, rank, mine)...)}
}

// doubling exchanges whole sums with a partner that is twice as far each round. Ranks beyond a power of two
// first give their vector to a neighbour and get the result from it at the end.
func doubling(j Job, rank int) plan {
	if j.Ranks == 1 {
		return alone()
	}
	core := 1
	for core*2 <= j.Ranks {
		core *= 2
	}
	extra := j.Ranks - core // the odd ones of the first 2*extra ranks fold into the even ones
	in, out, got := span(In, 0, 1), span(Out, 0, 1), scratch(0, 0, 1)
	if rank < 2*extra && rank%2 == 1 {
		return plan{1, []Round{{Sends: one(rank-1, in)}, {Recvs: one(rank-1, out)}}}
	}
	place, sum := rank-extra, in
	var rounds []Round
	if rank < 2*extra {
		rounds = append(rounds, Round{Recvs: one(rank+1, got), Work: []Work{{Into: out, From: []Part{in, got}}}})
		place, sum = rank/2, out
	}
	for far := 1; far < core; far *= 2 {
		partner := place ^ far
		peer := partner + extra
		if partner < extra {
			peer = 2 * partner
		}
		from := []Part{sum, got}
		if partner < place { // both partners reduce in one order, so both get the same bits
			from = []Part{got, sum}
		}
		rounds = append(rounds, Round{Sends: one(peer, sum), Recvs: one(peer, got), Work: []Work{{Into: out, From: from}}})
		sum = out
	}
	if rank < 2*extra {
		rounds = append(rounds, Round{Sends: one(rank+1, out)})
	}
	return plan{1, rounds}
}

// dissemination is the barrier: after round k a rank has heard, directly or not, of the 2^(k+1)-1 ranks before it.
func dissemination(j Job, rank int) plan {
	var rounds []Round
	for far := 1; far < j.Ranks; far *= 2 {
		rounds = append(rounds, Round{
			Sends: []Move{{Peer: (rank + far) % j.Ranks}},
			Recvs: []Move{{Peer: (rank - far + j.Ranks) % j.Ranks}},
		})
	}
	return plan{0, rounds}
}
