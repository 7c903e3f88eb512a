package collective

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"time"

	"github.com/serry-dev/serry"
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
	const entry = 16
	mine := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, uint64(color)), uint64(key))
	all := make([]byte, entry*c.Size())
	op, err := c.begin(ctx, splitting{AllGather{In: memory.Of(mine), Out: memory.Of(all), Count: entry, Type: memory.U8}})
	if err != nil {
		return nil, err
	}
	if err := op.run(ctx); err != nil || color < 0 {
		return nil, err
	}
	type part struct{ key, rank int }
	var parts []part
	for rank := range c.Size() {
		if b := all[rank*entry:]; int64(binary.LittleEndian.Uint64(b)) == int64(color) {
			parts = append(parts, part{int(int64(binary.LittleEndian.Uint64(b[8:]))), rank})
		}
	}
	slices.SortFunc(parts, func(a, b part) int { return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.rank, b.rank)) })
	child := &Key{Generation: c.Key().Generation, Traffic: splitTraffic(c.Key(), op.seq, color)}
	var devices []serry.DeviceID
	for _, p := range parts {
		child.Ranks = append(child.Ranks, c.Key().Ranks[p.rank])
		devices = append(devices, c.Key().Ranks[p.rank].Device)
	}
	formed, err := c.formPart(ctx, child, &lineage{devices: devices, traffic: child.Traffic})
	if err != nil {
		return nil, err
	}
	rank, _ := child.Rank(c.Key().Ranks[c.rank].Device)
	return formed.comms[rank], nil
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
