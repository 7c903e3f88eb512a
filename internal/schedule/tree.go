package schedule

// Trees number the ranks from their root on: number v is rank root+v.

// number is the number of a rank.
func (j Job) number(rank int) int { return (rank - j.Root + j.Ranks) % j.Ranks }

// at is the rank with a number.
func (j Job) at(number int) int { return (number + j.Root) % j.Ranks }

// whole is the vector as one block.
func whole(b Buffer) Part { return span(b, 0, 1) }

// treeBroadcast doubles the ranks that have the vector in each round.
func treeBroadcast(j Job, rank int) plan {
	v, from := j.number(rank), whole(Out)
	var rounds []Round
	if v == 0 {
		from = whole(In)
		rounds = append(rounds, Round{Work: copies(whole(Out), from)})
	}
	for far := 1; far < j.Ranks; far *= 2 {
		switch {
		case v < far && v+far < j.Ranks:
			rounds = append(rounds, Round{Sends: one(j.at(v+far), from)})
		case v >= far && v < 2*far:
			rounds = append(rounds, Round{Recvs: one(j.at(v-far), whole(Out))})
		}
	}
	return plan{1, rounds}
}

// treeReduce halves the ranks that have a sum in each round. Ranks inside the tree keep their sum in scratch
// memory: only the root's result is written.
func treeReduce(j Job, rank int) plan {
	if j.Ranks == 1 {
		return alone()
	}
	v, sum, got, keep := j.number(rank), whole(In), scratch(0, 0, 1), scratch(1, 0, 1)
	if v == 0 {
		keep = whole(Out)
	}
	var rounds []Round
	for far := 1; far < j.Ranks; far *= 2 {
		if v&far != 0 {
			rounds = append(rounds, Round{Sends: one(j.at(v-far), sum)})
			break
		}
		if v+far < j.Ranks {
			rounds = append(rounds, Round{Recvs: one(j.at(v+far), got), Work: []Work{{Into: keep, From: []Part{sum, got}}}})
			sum = keep
		}
	}
	return plan{1, rounds}
}

// chain passes the pieces of the vector from rank to rank; while a rank receives a piece it sends the one before.
func chain(j Job, rank int) plan {
	v, pieces := j.number(rank), max(1, j.Pieces)
	piece := func(b Buffer, i int) Part { return span(b, i, i+1) }
	var rounds []Round
	if v == 0 {
		rounds = append(rounds, Round{Work: copies(span(Out, 0, pieces), span(In, 0, pieces))})
	}
	for step := range pieces + 1 {
		var r Round
		if v > 0 && step < pieces {
			r.Recvs = one(j.at(v-1), piece(Out, step))
		}
		if v+1 < j.Ranks && step > 0 {
			from := Out
			if v == 0 {
				from = In
			}
			r.Sends = one(j.at(v+1), piece(from, step-1))
		}
		if len(r.Recvs)+len(r.Sends) > 0 {
			rounds = append(rounds, r)
		}
	}
	return plan{pieces, rounds}
}

// A branch is one edge of the tree that scatters and gathers blocks: number head, which has the blocks of numbers
// [head, end), gives those of [part, end) to number part.
type branch struct{ head, part, end int }

// branches are the edges that touch number v, the nearest to the root first.
func branches(v, p int) []branch {
	var list []branch
	for head, end := 0, p; end-head > 1; {
		part := head + (end-head+1)/2
		if v == head || v == part {
			list = append(list, branch{head, part, end})
		}
		if v < part {
			end = part
		} else {
			head = part
		}
	}
	return list
}

// parts are the blocks of numbers [lo, hi), which belong to the ranks with these numbers.
func (j Job) parts(lo, hi int, part func(lo, hi int) Part) []Part {
	var list []Part
	for _, run := range wrap(j.at(lo), hi-lo, j.Ranks) {
		list = append(list, part(run[0], run[1]))
	}
	return list
}

// vector and store are the blocks [lo, hi) in In and in a slot of scratch memory.
func vector(lo, hi int) Part { return span(In, lo, hi) }
func result(lo, hi int) Part { return span(Out, lo, hi) }
func store(lo, hi int) Part  { return shadow(0, lo, hi) }

// scatterRounds scatter the blocks of the root's In over a tree. Ranks inside it keep what they pass on where
// keep says.
func (j Job) scatterRounds(rank int, keep func(lo, hi int) Part) []Round {
	v := j.number(rank)
	from := keep
	if v == 0 {
		from = vector
	}
	var rounds []Round
	for _, b := range branches(v, j.Ranks) {
		if v == b.head {
			rounds = append(rounds, Round{Sends: []Move{{j.at(b.part), j.parts(b.part, b.end, from)}}})
		} else {
			rounds = append(rounds, Round{Recvs: []Move{{j.at(b.head), j.parts(b.part, b.end, keep)}}})
		}
	}
	return rounds
}

func treeScatter(j Job, rank int) plan {
	from := span(In, rank, rank+1)
	if rank != j.Root {
		from = store(rank, rank+1)
	}
	return plan{j.Ranks, append(j.scatterRounds(rank, store), Round{Work: copies(span(Out, rank, rank+1), from)})}
}

func treeGather(j Job, rank int) plan {
	v, keep := j.number(rank), store
	if v == 0 {
		keep = result
	}
	rounds := []Round{{Work: copies(keep(rank, rank+1), span(In, rank, rank+1))}}
	list := branches(v, j.Ranks)
	for i := len(list) - 1; i >= 0; i-- {
		b := list[i]
		if v == b.head {
			rounds = append(rounds, Round{Recvs: []Move{{j.at(b.part), j.parts(b.part, b.end, keep)}}})
		} else {
			rounds = append(rounds, Round{Sends: []Move{{j.at(b.head), j.parts(b.part, b.end, keep)}}})
		}
	}
	return plan{j.Ranks, rounds}
}

// scatterFromRoot and gatherAtRoot move each block by one message.
func scatterFromRoot(j Job, rank int) plan {
	if rank != j.Root {
		return plan{j.Ranks, []Round{{Recvs: one(j.Root, span(Out, rank, rank+1))}}}
	}
	r := Round{Work: ownBlock(rank)}
	for i := range j.Ranks {
		if i != rank {
			r.Sends = append(r.Sends, one(i, span(In, i, i+1))...)
		}
	}
	return plan{j.Ranks, []Round{r}}
}

func gatherAtRoot(j Job, rank int) plan {
	return plan{j.Ranks, j.gatherRounds(rank, span(In, rank, rank+1))}
}

// gatherRounds send the block in mine to the root.
func (j Job) gatherRounds(rank int, mine Part) []Round {
	if rank != j.Root {
		return []Round{{Sends: one(j.Root, mine)}}
	}
	r := Round{}
	if mine.Buf != Out {
		r.Work = copies(span(Out, rank, rank+1), mine)
	}
	for i := range j.Ranks {
		if i != rank {
			r.Recvs = append(r.Recvs, one(i, span(Out, i, i+1))...)
		}
	}
	return []Round{r}
}

// spreadBroadcast scatters the vector and gathers it on all ranks: about twice the bytes of the vector on
// each port instead of log p times.
func spreadBroadcast(j Job, rank int) plan {
	if j.Ranks == 1 {
		return alone()
	}
	rounds := j.scatterRounds(rank, result)
	mine := span(Out, rank, rank+1)
	if rank == j.Root {
		rounds = append(rounds, Round{Work: copies(span(Out, 0, j.Ranks), span(In, 0, j.Ranks))})
	}
	return plan{j.Ranks, append(rounds, everyone(j.Ranks, rank).ringGatherRounds(mine)...)}
}

// spreadReduce reduces each block on its owner and gathers the sums at the root.
func spreadReduce(j Job, rank int) plan {
	if j.Ranks == 1 {
		return alone()
	}
	keep := func(lo, hi int) Part { return shadow(1, lo, hi) }
	if rank == j.Root {
		keep = result
	}
	rounds := halvingScatterRounds(j.Ranks, rank, keep)
	return plan{j.Ranks, append(rounds, j.gatherRounds(rank, keep(rank, rank+1))...)}
}
