package gauge

import (
	"math"

	"github.com/serry-dev/serry/collective"
	"github.com/serry-dev/serry/memory"
)

// prepare makes the vectors and the operations on them, which are to be repeated in their order. check says whether the vectors have
// what they must after the last one.
//
// The vector of an all-reduce is summed in place. It is 1 on rank 0 and 0 on all others, so that after n sums every
// element is the number of ranks to the power of n-1. In all other operations the elements of rank r are r+1.
func prepare(c *collective.Comm, w Work, m *stock) (ops []collective.Op, check func() error) {
	n, p := w.Bytes/4, int64(c.Size())
	own, total := float32(c.Rank()+1), float32(p*(p+1)/2)
	part := n / p
	one := func(op collective.Op) []collective.Op { return []collective.Op{op} }
	switch w.Op {
	case "allreduce":
		first := float32(0)
		if c.Rank() == 0 {
			first = 1
		}
		r, data := m.filled(n, first)
		want := float32(math.Pow(float64(p), float64(w.Count-1)))
		return one(collective.AllReduce{Out: r, In: r, Count: n, Type: memory.F32, Reduction: collective.Sum}), func() error { return all(data, want) }
	case "broadcast":
		r, data := m.filled(n, own)
		return one(collective.Broadcast{Out: r, In: r, Count: n, Type: memory.F32}), func() error { return all(data, 1) }
	case "reducescatter":
		in, _ := m.filled(part*p, own)
		out, data := m.filled(part, 0)
		return one(collective.ReduceScatter{Out: out, In: in, Count: part, Type: memory.F32, Reduction: collective.Sum}),
			func() error { return all(data, total) }
	case "allgather":
		in, _ := m.filled(part, own)
		out, data := m.filled(part*p, 0)
		return one(collective.AllGather{Out: out, In: in, Count: part, Type: memory.F32}), func() error { return blocks(data, part) }
	case "alltoall":
		in, _ := m.filled(part*p, own)
		out, data := m.filled(part*p, 0)
		return one(collective.AllToAll{Out: out, In: in, Count: part, Type: memory.F32}), func() error { return blocks(data, part) }
	case "reduce":
		in, _ := m.filled(n, own)
		out, data := m.filled(n, 0)
		return one(collective.Reduce{Out: out, In: in, Count: n, Type: memory.F32, Reduction: collective.Sum}), atRoot(c, func() error { return all(data, total) })
	case "gather":
		in, _ := m.filled(part, own)
		out, data := m.filled(part*p, 0)
		return one(collective.Gather{Out: out, In: in, Count: part, Type: memory.F32}), atRoot(c, func() error { return blocks(data, part) })
	case "scatter":
		in, _ := m.filled(part*p, own)
		out, data := m.filled(part, 0)
		return one(collective.Scatter{Out: out, In: in, Count: part, Type: memory.F32}), func() error { return all(data, 1) }
	case "permute":
		return ring(c, n, m)
	case "sendrecv":
		return there(c, n, m)
	case "raggedalltoall":
		return uneven(c, n, m)
	default:
		return one(collective.Barrier{}), func() error { return nil }
	}
}

// atRoot is a check that holds on rank 0 alone.
func atRoot(c *collective.Comm, check func() error) func() error {
	if c.Rank() == 0 {
		return check
	}
	return func() error { return nil }
}

// ring gives the vector of each rank to the next one.
func ring(c *collective.Comm, n int64, m *stock) ([]collective.Op, func() error) {
	p := c.Size()
	var pairs [][2]int
	for r := range p {
		pairs = append(pairs, [2]int{r, (r + 1) % p})
	}
	in, _ := m.filled(n, float32(c.Rank()+1))
	out, data := m.filled(n, 0)
	want := float32((c.Rank()+p-1)%p + 1)
	return []collective.Op{collective.Permute{Out: out, In: in, Count: n, Type: memory.F32, Pairs: pairs}}, func() error { return all(data, want) }
}

// there sends the vector of rank 0 to the last rank, which sends its own back. The ranks between them do nothing.
func there(c *collective.Comm, n int64, m *stock) ([]collective.Op, func() error) {
	last := c.Size() - 1
	in, _ := m.filled(n, float32(c.Rank()+1))
	out, data := m.filled(n, 0)
	switch rank := c.Rank(); {
	case last == 0 || rank > 0 && rank < last:
		return nil, func() error { return nil }
	case rank == 0:
		return []collective.Op{collective.Send{In: in, Count: n, Type: memory.F32, To: last}, collective.Recv{Out: out, Count: n, Type: memory.F32, From: last}},
			func() error { return all(data, float32(last+1)) }
	default:
		return []collective.Op{collective.Recv{Out: out, Count: n, Type: memory.F32, From: 0}, collective.Send{In: in, Count: n, Type: memory.F32, To: 0}},
			func() error { return all(data, 1) }
	}
}

// uneven gives 1 to p rows to the ranks, other ones from each rank. Each rank sends and receives as many rows in all.
func uneven(c *collective.Comm, n int64, m *stock) ([]collective.Op, func() error) {
	p, me := int64(c.Size()), int64(c.Rank())
	rows := p * (p + 1) / 2
	row := max(n/rows, 1)
	in, _ := m.filled(rows*row, float32(me+1))
	out, data := m.filled(rows*row, 0)
	sent := func(from, to int64) int64 { return (from+to)%p + 1 }
	o := collective.RaggedAllToAll{Out: out, In: in, Row: row, Type: memory.F32}
	at, came := int64(0), int64(0)
	ends := []int64{0} // of the rows of each rank in the output
	for peer := range p {
		before := int64(0) // rows that ranks before this one write there
		for r := range me {
			before += sent(r, peer)
		}
		o.InOffsets, o.SendSizes = append(o.InOffsets, at), append(o.SendSizes, sent(me, peer))
		o.OutOffsets, o.RecvSizes = append(o.OutOffsets, before), append(o.RecvSizes, sent(peer, me))
		at, came = at+sent(me, peer), came+sent(peer, me)
		ends = append(ends, came)
	}
	return []collective.Op{o}, func() error {
		for r := range p {
			if err := all(data[ends[r]*row:ends[r+1]*row], float32(r+1)); err != nil {
				return err
			}
		}
		return nil
	}
}
