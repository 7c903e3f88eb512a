package schedule

// ownBlock copies the block that a rank sends to itself.
func ownBlock(rank int) []Work { return copies(span(Out, rank, rank+1), span(In, rank, rank+1)) }

// directExchange sends every block at once.
func directExchange(j Job, rank int) plan {
	r := Round{Work: ownBlock(rank)}
	for k := 1; k < j.Ranks; k++ {
		to, from := (rank+k)%j.Ranks, (rank-k+j.Ranks)%j.Ranks
		r.Sends = append(r.Sends, one(to, span(In, to, to+1))...)
		r.Recvs = append(r.Recvs, one(from, span(Out, from, from+1))...)
	}
	return plan{j.Ranks, []Round{r}}
}

// pairwiseExchange sends to one rank and receives from one rank in a round, so that no rank is sent to by many
// at once.
func pairwiseExchange(j Job, rank int) plan {
	rounds := []Round{{Work: ownBlock(rank)}}
	for k := 1; k < j.Ranks; k++ {
		to, from := (rank+k)%j.Ranks, (rank-k+j.Ranks)%j.Ranks
		rounds = append(rounds, Round{Sends: one(to, span(In, to, to+1)), Recvs: one(from, span(Out, from, from+1))})
	}
	return plan{j.Ranks, rounds}
}

// bruckExchange needs log p messages instead of p-1, and blocks of equal size. A block that must go d ranks ahead
// goes 2^k ahead in round k if d has bit k. It travels with all blocks of its distance and reaches Out by its
// highest bit.
func bruckExchange(j Job, rank int) plan {
	p := j.Ranks
	rounds := []Round{{Work: ownBlock(rank)}}
	at := func(d int) Part { b := (rank + d) % p; return span(In, b, b+1) }
	for k := 0; 1<<k < p; k++ {
		send, recv := Move{Peer: (rank + 1<<k) % p}, Move{Peer: ((rank-1<<k)%p + p) % p}
		next := map[int]Part{}
		for d := 1; d < p; d++ {
			if d>>k&1 == 0 {
				continue
			}
			send.Parts = append(send.Parts, at(d))
			next[d] = scratch(k*p+d, d, d+1)
			if d>>(k+1) == 0 { // its last hop: it comes from the rank d behind
				from := (rank - d + p) % p
				next[d] = span(Out, from, from+1)
			}
			recv.Parts = append(recv.Parts, next[d])
		}
		before := at
		at = func(d int) Part {
			if part, moved := next[d]; moved {
				return part
			}
			return before(d)
		}
		rounds = append(rounds, Round{Sends: []Move{send}, Recvs: []Move{recv}})
	}
	return plan{p, rounds}
}
