package schedule

// directScatterRounds send each block to its owner at once. The owner reduces what it got in the order of places.
func (t team) directScatterRounds(from Buffer) []Round {
	var r Round
	mine := t.owns(t.me)
	sum := Work{Into: mine}
	for i, rank := range t.ranks {
		if i == t.me {
			sum.From = append(sum.From, t.in(from, i))
			continue
		}
		got := scratch(i, mine.Lo, mine.Hi)
		sum.From = append(sum.From, got)
		r.Sends = append(r.Sends, one(rank, t.in(from, i))...)
		r.Recvs = append(r.Recvs, one(rank, got)...)
	}
	r.Work = []Work{sum}
	return []Round{r}
}

// directGatherRounds send my own block to every rank at once.
func (t team) directGatherRounds(mine Part) []Round {
	var r Round
	for i, rank := range t.ranks {
		if i == t.me {
			continue
		}
		r.Sends = append(r.Sends, one(rank, mine)...)
		r.Recvs = append(r.Recvs, one(rank, t.owns(i))...)
	}
	return []Round{r}
}

func directAllReduce(j Job, rank int) plan {
	t := everyone(j.Ranks, rank)
	return plan{j.Ranks, append(t.directScatterRounds(In), t.directGatherRounds(t.owns(rank))...)}
}

func directScatter(j Job, rank int) plan {
	return plan{j.Ranks, everyone(j.Ranks, rank).directScatterRounds(In)}
}

func directGather(j Job, rank int) plan {
	t := everyone(j.Ranks, rank)
	rounds := t.directGatherRounds(t.in(In, rank))
	rounds[0].Work = copies(t.owns(rank), t.in(In, rank))
	return plan{j.Ranks, rounds}
}

// oneShot has every rank send its whole vector to every rank: one round, but p times the bytes.
func oneShot(j Job, rank int) plan {
	var r Round
	whole := span(In, 0, 1)
	sum := Work{Into: span(Out, 0, 1)}
	for i := range j.Ranks {
		if i == rank {
			sum.From = append(sum.From, whole)
			continue
		}
		got := scratch(i, 0, 1)
		sum.From = append(sum.From, got)
		r.Sends = append(r.Sends, one(i, whole)...)
		r.Recvs = append(r.Recvs, one(i, got)...)
	}
	r.Work = []Work{sum}
	return plan{1, []Round{r}}
}

// pairwiseScatter reduces my block with one rank's share a round. It needs scratch memory for one block only.
func pairwiseScatter(j Job, rank int) plan {
	t := everyone(j.Ranks, rank)
	if j.Ranks == 1 {
		return alone()
	}
	var rounds []Round
	sum := t.in(In, rank)
	for k := 1; k < j.Ranks; k++ {
		got := scratch(0, rank, rank+1)
		rounds = append(rounds, Round{
			Sends: one(t.rank(k), t.in(In, t.place(k))),
			Recvs: one(t.rank(-k), got),
			Work:  []Work{{Into: t.owns(rank), From: []Part{sum, got}}},
		})
		sum = t.owns(rank)
	}
	return plan{j.Ranks, rounds}
}

// twoLevel reduces inside each host, so that every rank of a host owns a share of the sum; reduces that share
// with the ranks of the same place on the other hosts; and gathers the shares inside each host again. Only the
// middle part crosses hosts, with a vector that is smaller by the ranks of a host.
func twoLevel(j Job, rank int) plan {
	local := j.Ranks / j.Hosts
	if j.Ranks == 1 {
		return alone()
	}
	host, place := rank/local, rank%local
	inside := team{me: place, owns: func(i int) Part { return span(Out, i*j.Hosts, (i+1)*j.Hosts) }}
	for i := range local {
		inside.ranks = append(inside.ranks, host*local+i)
	}
	between := team{me: host, owns: func(i int) Part { return span(Out, place*j.Hosts+i, place*j.Hosts+i+1) }}
	for h := range j.Hosts {
		between.ranks = append(between.ranks, h*local+place)
	}
	rounds := inside.directScatterRounds(In)
	rounds = append(rounds, between.ringScatterRounds(Out, between.owns)...)
	rounds = append(rounds, between.ringGatherRounds(between.owns(host))...)
	rounds = append(rounds, inside.directGatherRounds(inside.owns(place))...)
	return plan{j.Ranks, rounds}
}
