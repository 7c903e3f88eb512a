package collective

import (
	"context"
	"fmt"

	"github.com/serry-dev/serry/internal/processor"
	"github.com/serry-dev/serry/internal/schedule"
	"github.com/serry-dev/serry/memory"
)

// Send gives elements to another rank, which runs Recv. Transfers from one rank to another are matched in the order in
// which each of the two begins them; other operations do not count (CL-OP-18). It ends when In may be used again.
type Send struct {
	In    memory.Region
	Count int64
	Type  memory.DType
	To    int
}

func (o Send) prepare(c *Comm) (*call, error) {
	k := newTransfer(c, o.Type, o.Count, o.To)
	k.sends = true
	k.takes(o.In, k.total)
	k.rounds = []schedule.Round{{Sends: []schedule.Move{{Peer: o.To, Parts: []schedule.Part{whole(schedule.In)}}}}}
	return k.done()
}

// Recv takes elements of another rank, which runs Send with the same count and type.
type Recv struct {
	Out   memory.Region
	Count int64
	Type  memory.DType
	From  int
}

func (o Recv) prepare(c *Comm) (*call, error) {
	k := newTransfer(c, o.Type, o.Count, o.From)
	k.gives(o.Out, k.total)
	k.rounds = []schedule.Round{{Recvs: []schedule.Move{{Peer: o.From, Parts: []schedule.Part{whole(schedule.Out)}}}}}
	return k.done()
}

func newTransfer(c *Comm, t memory.DType, count int64, peer int) *call {
	k := newCall(c, transfer, t, count)
	k.peer = peer
	if peer < 0 || peer >= k.job.Ranks {
		k.fail("rank %d of %d ranks", peer, k.job.Ranks)
		k.peer = 0
	}
	return k
}

// whole is the vector as one block.
func whole(b schedule.Buffer) schedule.Part { return schedule.Part{Buf: b, Hi: 1} }

// Permute gives the vector of each source to its targets. Pairs has source and target of each, the same on all ranks; no
// rank may be the target of two. A rank that is the target of none gets zeros (CL-OP-17, CL-OP-32).
type Permute struct {
	Out, In memory.Region
	Count   int64
	Type    memory.DType
	Pairs   [][2]int
}

func (o Permute) prepare(c *Comm) (*call, error) {
	k := newCall(c, permute, o.Type, o.Count)
	k.takes(o.In, k.total)
	k.gives(o.Out, k.total)
	var r schedule.Round
	source := make(map[int]int)
	for _, pair := range o.Pairs {
		from, to := pair[0], pair[1]
		if min(from, to) < 0 || max(from, to) >= k.job.Ranks {
			k.fail("pair %v of %d ranks", pair, k.job.Ranks)
			break
		}
		if _, twice := source[to]; twice {
			k.fail("rank %d is the target of two", to)
		}
		source[to] = from
		if from == c.rank && to != c.rank {
			r.Sends = append(r.Sends, schedule.Move{Peer: to, Parts: []schedule.Part{whole(schedule.In)}})
		}
		k.counts = (k.counts ^ uint64(from)<<32 ^ uint64(to)) * 1099511628211
	}
	switch from, ok := source[c.rank]; {
	case !ok:
		r.Work = []schedule.Work{{Into: whole(schedule.Out)}}
	case from == c.rank:
		r.Work = []schedule.Work{{Into: whole(schedule.Out), From: []schedule.Part{whole(schedule.In)}}}
	default:
		r.Recvs = []schedule.Move{{Peer: from, Parts: []schedule.Part{whole(schedule.Out)}}}
	}
	k.rounds = []schedule.Round{r}
	return k.done()
}

// transferBit marks the numbers of transfers, which are counted for each ordered pair of ranks.
const transferBit = 1 << 39

// A pair is the transfers between this rank and another one, in one direction.
type pair struct {
	peer  int
	sends bool
}

// A slot is one transfer.
type slot struct {
	pair
	seq uint64
}

// numberTransfer gives a transfer its number; mu is held. It says whether the peer has begun a different one.
func (c *Comm) numberTransfer(op *operation) (differs bool) {
	p := pair{op.call.peer, op.call.sends}
	if c.mu.pairs == nil {
		c.mu.pairs, c.mu.moving, c.mu.came = make(map[pair]uint64), make(map[slot]description), make(map[slot]uint64)
	}
	c.mu.pairs[p]++
	op.seq = c.mu.pairs[p] | transferBit
	op.word = word(op.seq, op.call.description)
	s := slot{p, op.seq}
	c.mu.moving[s] = op.call.description
	digest, known := c.mu.came[s]
	delete(c.mu.came, s)
	return known && digest != op.call.description.digest()
}

// ended notes the end of an operation.
func (c *Comm) ended(op *operation, err error) {
	var now processor.Ticks
	if op.trace.number != 0 {
		now = c.group.meter.Now()
	}
	c.mu.Lock()
	c.mu.record.end(op, now, err)
	if op.call.peer >= 0 {
		delete(c.mu.moving, slot{pair{op.call.peer, op.call.sends}, op.seq})
	}
	c.mu.Unlock()
	if op.call.ofAll() {
		c.progress.End(op.seq)
	}
	c.clique.end(op)
}

// noticedTransfer is noticed for a transfer. A transfer that differs ends the clique: what the peer runs is not known here,
// and it may have ended there.
func (c *Comm) noticedTransfer(p progress, sends bool) (keep bool) {
	s := slot{pair{p.rank, sends}, p.seq}
	c.mu.Lock()
	mine, running := c.mu.moving[s]
	begun := plainNumber(p.seq) <= c.mu.pairs[s.pair]
	if !begun && len(c.mu.came) < maxAhead {
		if c.mu.came == nil {
			c.mu.pairs, c.mu.moving, c.mu.came = make(map[pair]uint64), make(map[slot]description), make(map[slot]uint64)
		}
		c.mu.came[s] = p.digest
	}
	c.mu.Unlock()
	if running && mine.digest() != p.digest {
		c.group.background(tellTime, func(context.Context) { c.clique.revoke(c.mismatchedTransfer(p.rank, p.seq, mine)) })
		return false
	}
	return running || !begun
}

// compareLocalTransfer compares a transfer with the other end, if that is in this process and has begun it: ranks of one process
// do not notice messages that they do not expect. Each end is known before it compares, so one of the two finds the other.
func (c *Comm) compareLocalTransfer(op *operation) {
	other := c.clique.comms[op.call.peer]
	if other == nil {
		return
	}
	other.mu.Lock()
	theirs, running := other.mu.moving[slot{pair{c.rank, !op.call.sends}, op.seq}]
	other.mu.Unlock()
	if running && theirs != op.call.description {
		c.clique.revoke(c.mismatch(other.rank, plainNumber(op.seq), op.call.description, theirs))
	}
}

// mismatchedTransfer is the cause of a clique in which the two ends of a transfer differ.
func (c *Comm) mismatchedTransfer(peer int, seq uint64, mine description) *Error {
	return &Error{
		Origin: c.rank, Ranks: []int{min(c.rank, peer), max(c.rank, peer)}, Seq: plainNumber(seq), Err: ErrMismatch,
		Detail: fmt.Sprintf("rank %d runs %v, rank %d a transfer of another count or type", c.rank, mine, peer),
	}
}
