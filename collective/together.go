package collective

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/serry-dev/serry/memory"
)

// A Call is an operation on a communicator.
type Call struct {
	On *Comm
	Op Op
}

// Run begins several operations, on one communicator or several, and waits for all. None is waited for before all have
// begun, so operations that depend on each other across ranks, such as a Send and a Recv in opposite directions, cannot
// block each other (CL-GRL-5). If one of the calls is refused none is begun; otherwise the result joins the errors of all.
func Run(ctx context.Context, calls ...Call) error {
	for _, k := range calls {
		if _, err := k.Op.prepare(k.On); err != nil {
			return err
		}
	}
	futures := make([]*Future, len(calls))
	for i, k := range calls {
		futures[i] = k.On.Start(ctx, k.Op)
	}
	errs := make([]error, len(calls))
	for i, f := range futures {
		errs[i] = f.Wait()
	}
	return errors.Join(errs...)
}

// Split divides the clique into smaller ones: ranks with the same color form one, in the order of key and then of their
// ranks. All ranks of the clique must call it (CL-SPL-1). A rank whose color is negative gets nil. The parts do not end
// with the clique, nor the clique with them (CL-SPL-9).
func (c *Comm) Split(ctx context.Context, color, key int) (*Comm, error) {
	ctx, cancel := c.group.bounded(ctx)
	defer cancel()
	d, err := c.beginSplit(ctx, color, key)
	if err != nil {
		return nil, err
	}
	return d.part(ctx)
}

// SplitAll is [Comm.Split] for several ranks of this process at once, with the color and the key of each in lists of the same length: a
// process with several ranks needs no goroutine for each of them. It returns their parts in the same order. The ranks belong to one clique; a
// rank without a communicator, or with that of another clique, or twice, is refused before anything is sent (CL-SPL-3). If it
// fails for one rank, all are refused their parts.
func SplitAll(ctx context.Context, comms []*Comm, colors, keys []int) ([]*Comm, error) {
	if err := checkSplit(comms, colors, keys); err != nil {
		return nil, err
	}
	ctx, cancel := comms[0].group.bounded(ctx)
	defer cancel()
	divisions, errs := make([]*division, len(comms)), make([]error, len(comms))
	for i, c := range comms { // in the order of calls, which is that of their numbers
		divisions[i], errs[i] = c.beginSplit(ctx, colors[i], keys[i])
	}
	parts := make([]*Comm, len(comms))
	var all sync.WaitGroup
	for i, d := range divisions {
		if d != nil { // also if another one was refused: the clique has just failed, and so will this
			all.Go(func() { parts[i], errs[i] = d.part(ctx) })
		}
	}
	all.Wait()
	i := slices.IndexFunc(errs, func(err error) bool { return err != nil })
	if i < 0 {
		return parts, nil
	}
	for _, p := range parts {
		if p != nil {
			p.group.release(p.clique)
		}
	}
	return nil, errs[i]
}

// checkSplit refuses lists that describe no split of one clique.
func checkSplit(comms []*Comm, colors, keys []int) error {
	if len(comms) == 0 || len(colors) != len(comms) || len(keys) != len(comms) {
		return invalid("split of %d ranks with %d colors and %d keys", len(comms), len(colors), len(keys))
	}
	for i, c := range comms {
		switch {
		case c == nil:
			return invalid("split: number %d of the ranks has no communicator", i)
		case c.clique != comms[0].clique:
			return invalid("split: number %d of the ranks is not in the clique %v", i, comms[0].Key())
		case slices.Contains(comms[:i], c):
			return invalid("split: rank %d is listed twice", c.rank)
		}
	}
	return nil
}

// A division is a split that a rank has begun: the exchange of colors and keys.
type division struct {
	comm  *Comm
	color int
	op    *operation
	told  []byte // the color and the key of each rank
}

const divisionEntry = 16 // bytes that a rank tells

// beginSplit begins the exchange of colors and keys.
func (c *Comm) beginSplit(ctx context.Context, color, key int) (*division, error) {
	d := &division{comm: c, color: color, told: make([]byte, divisionEntry*c.Size())}
	mine := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, uint64(color)), uint64(key))
	var err error
	d.op, err = c.begin(ctx, splitting{AllGather{In: memory.Of(mine), Out: memory.Of(d.told), Count: divisionEntry, Type: memory.U8}})
	if err != nil {
		return nil, err
	}
	return d, nil
}

// part waits for the colors of all ranks, and forms the part of this one.
func (d *division) part(ctx context.Context) (*Comm, error) {
	c := d.comm
	if err := d.op.run(ctx); err != nil || d.color < 0 {
		return nil, err
	}
	child := &Key{Generation: c.Key().Generation, Traffic: splitTraffic(c.Key(), d.op.seq, d.color), Ranks: d.ranks()}
	formed, err := c.formPart(ctx, child, &lineage{devices: child.Devices(), traffic: child.Traffic})
	if err != nil {
		return nil, err
	}
	rank, _ := child.Rank(c.Key().Ranks[c.rank].Device)
	return formed.comms[rank], nil
}

// ranks are those with the color of this one, in the order of key and rank.
func (d *division) ranks() (list []Place) {
	type member struct{ key, rank int }
	var members []member
	for rank := range d.comm.Size() {
		if b := d.told[rank*divisionEntry:]; int64(binary.LittleEndian.Uint64(b)) == int64(d.color) {
			members = append(members, member{int(int64(binary.LittleEndian.Uint64(b[8:]))), rank})
		}
	}
	slices.SortFunc(members, func(a, b member) int { return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.rank, b.rank)) })
	for _, m := range members {
		list = append(list, d.comm.Key().Ranks[m.rank])
	}
	return list
}

// formPart forms a part of a split. It ends when the clique does: a member of the part may have failed in the exchange of
// colors, and then it does not come.
func (c *Comm) formPart(ctx context.Context, key *Key, l *lineage) (*clique, error) {
	parent := c.clique
	forming, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(parent.ctx, func() { cancel(context.Cause(parent.ctx)) })()
	formed, err := c.group.obtain(forming, key, l)
	if errors.Is(err, ErrCancelled) && ctx.Err() == nil {
		// Another member gave up. If the clique has ended there, the word of that is here or comes next.
		timer := time.NewTimer(noticeTime)
		defer timer.Stop()
		select {
		case <-parent.ctx.Done():
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	if err == nil {
		c.group.tally.splits.Add(1)
		return formed, nil
	}
	if failed := parent.failed.Load(); failed != nil {
		return nil, failed
	}
	if e, ok := errors.AsType[*Error](err); ok { // as every operation that fails on one member, it ends the clique
		return nil, parent.revoke(e.translate(key, c.Key()))
	}
	return nil, err
}

// noticeTime is how long the word that a clique has ended may come behind what followed from it.
const noticeTime = time.Second

// translate is an error of a part that was not formed, with the ranks of the clique that was to be divided.
func (e *Error) translate(part, whole *Key) *Error {
	rankOf := func(inPart int) int {
		if inPart >= len(part.Ranks) {
			return 0
		}
		rank, _ := whole.Rank(part.Ranks[inPart].Device)
		return rank
	}
	translated := *e
	translated.Origin, translated.Ranks = rankOf(e.Origin), nil
	for _, r := range e.Ranks {
		translated.Ranks = append(translated.Ranks, rankOf(r))
	}
	slices.Sort(translated.Ranks)
	return &translated
}

// splitTraffic tells the parts of a split from other cliques of the same devices.
func splitTraffic(k *Key, seq uint64, color int) uint64 {
	h := k.Fingerprint()
	for _, v := range [...]uint64{seq, uint64(color)} {
		h = (h ^ v) * 1099511628211
		h ^= h >> 31
	}
	return h | 1<<63
}

// A splitting is the all-gather of a split, under a name of its own.
type splitting struct{ AllGather }

func (o splitting) prepare(c *Comm) (*call, error) {
	k, err := o.AllGather.prepare(c)
	if err == nil {
		k.op = opNumber(split)
	}
	return k, err
}
