package collective

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/schedule"
	"github.com/serry-dev/serry/link"
	"github.com/serry-dev/serry/memory"
)

// maxArenas is how many arenas of the program a process lends to the others of a clique. Memory of other arenas is staged, as
// private memory is.
const maxArenas = 16

// arenas are those of the program whose memory the processes of a clique read in place: nothing is copied into stages
// (CL-TRN-18).
//
// A process lends an arena to all others when an operation first uses memory of it, and notes its name in a table in the share
// of its first rank. Then it says in each operation where in the arena its memory lies. An arena that the program has closed
// loses its place in the table when the process next uses one, and the others let go of it when they next read one.
type arenas struct {
	clique *clique

	// Set when memory is shared, then constant.
	table   share     // has the table of this process
	lenders []*lender // by rank; nil for those of this process

	mu     sync.Mutex
	closed bool
	lent   [maxArenas]*loan // guarded by mu, as what lenders have lent
}

// A lender is another process.
type lender struct {
	life     serry.Life
	table    share
	borrowed [maxArenas]*borrowed
}

// A loan is an arena of this process that the others can read, or soon can.
type loan struct {
	arena *memory.Arena
	name  uint64
	tried chan struct{} // closed when it is known whether they can
	works bool          // set before tried is closed
}

// A borrowed arena is one of another process.
type borrowed struct {
	name    uint64
	segment *link.Segment // nil before it is used
	users   int           // ranks of this process that read it
	gone    bool          // its process has closed it
}

// A spot says where memory of a rank lies: in which arena of the table, and where in it. The zero spot is memory that others
// cannot read.
type spot uint64

const spotBits = 48 // of the place in the arena

func newSpot(slot int, offset int64) spot { return spot(uint64(slot+1)<<spotBits | uint64(offset)) }

func (s spot) place() (slot int, offset uint64) {
	return int(s>>spotBits) - 1, uint64(s) & (1<<spotBits - 1)
}

// locate is where the others can read memory of this process. The first time they are lent the arena.
func (x *arenas) locate(ctx context.Context, a *memory.Arena, offset int64) spot {
	if a == nil || a.ReadOnly() || a.Len() >= 1<<spotBits {
		return 0
	}
	slot, l, first := x.loanOf(a)
	switch {
	case l == nil:
		return 0
	case first:
		x.lend(ctx, slot, l)
	}
	select {
	case <-l.tried:
	case <-ctx.Done():
	case <-x.clique.ctx.Done():
	}
	select {
	case <-l.tried:
		if l.works {
			return newSpot(slot, offset)
		}
	default: // the operation ends for it
	}
	return 0
}

// loanOf finds the place of an arena in the table, or gives it one. There is none if the table is full.
func (x *arenas) loanOf(a *memory.Arena) (slot int, l *loan, first bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	free := -1
	for i, l := range x.lent {
		if l != nil && l.arena == a {
			return i, l, false
		}
		if l != nil && isClosed(l.arena.Closed()) && isClosed(l.tried) {
			x.lent[i] = nil
			x.table.arena(i).Store(0)
		}
		if x.lent[i] == nil {
			free = i
		}
	}
	if free < 0 {
		return 0, nil, false
	}
	l = &loan{arena: a, name: rand.Uint64() | 1, tried: make(chan struct{})}
	x.lent[free] = l
	return free, l, true
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// lend lends an arena to all other processes. Its name is noted in any case: processes that were lent it let go of it by that.
func (x *arenas) lend(ctx context.Context, slot int, l *loan) {
	c := x.clique
	errs := make([]error, len(c.others))
	var all sync.WaitGroup
	for i, peer := range c.others {
		all.Go(func() {
			with, err := c.link(ctx, peer)
			if err == nil {
				err = with.LendArena(ctx, l.name, l.arena)
			}
			errs[i] = err
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		c.group.log.Debug("memory of an arena is not shared", "clique", c.key.String(), "err", err)
	} else {
		l.works = true
	}
	x.table.arena(slot).Store(l.name)
	close(l.tried)
}

// prepare notes where the tables are: in the shares of the first ranks of processes.
func (x *arenas) prepare(shares []share) {
	c := x.clique
	x.table, x.lenders = shares[c.first.rank], make([]*lender, len(shares))
	for _, life := range c.others {
		ranks := c.key.RanksOf(life)
		l := &lender{life: life, table: shares[ranks[0]]}
		for _, rank := range ranks {
			x.lenders[rank] = l
		}
	}
}

// read is memory of another rank at a spot. The caller releases what it has borrowed, unless it is nil. The rank may have told
// anything.
func (x *arenas) read(rank int, at spot, size int64) (b *borrowed, data []byte, err error) {
	slot, offset := at.place()
	if slot < 0 || slot >= maxArenas {
		return nil, nil, fmt.Errorf("rank %d uses arena %d: %w", rank, slot, ErrFault)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	var all []byte
	if l := x.lenders[rank]; l != nil {
		b, err = x.borrow(l, slot)
		if err == nil {
			all = b.segment.Bytes()
		}
	} else if own := x.lent[slot]; own != nil {
		r, failed := own.arena.Region(0, own.arena.Len())
		all, err = r.Bytes(), failed
	}
	if err != nil {
		return nil, nil, err
	}
	if offset > uint64(len(all)) || uint64(size) > uint64(len(all))-offset {
		return nil, nil, fmt.Errorf("rank %d uses %d bytes at %d of an arena of %d: %w", rank, size, offset, len(all), ErrFault)
	}
	if b != nil {
		b.users++
	}
	return b, all[offset : offset+uint64(size)], nil
}

// borrow is an arena of another process; mu is held.
func (x *arenas) borrow(l *lender, slot int) (*borrowed, error) {
	x.renew(l)
	b := l.borrowed[slot]
	if b == nil {
		return nil, fmt.Errorf("%v lends no arena %d: %w", l.life.Task, slot, ErrFault)
	}
	if b.segment != nil {
		return b, nil
	}
	with := x.clique.linked(l.life)
	if with == nil {
		return nil, fmt.Errorf("%v lends an arena without a link: %w", l.life.Task, ErrFault)
	}
	now, cancel := context.WithCancel(context.Background())
	cancel() // a process names an arena when it has lent it, so there is nothing to wait for
	s, err := with.Borrow(now, b.name)
	if err != nil {
		return nil, fmt.Errorf("%v has not lent arena %d: %w", l.life.Task, slot, ErrFault)
	}
	b.segment = s
	return b, nil
}

// renew compares the table of a process with what was borrowed of it; mu is held.
func (x *arenas) renew(l *lender) {
	for slot := range l.borrowed {
		name, b := l.table.arena(slot).Load(), l.borrowed[slot]
		if b != nil && b.name == name || b == nil && name == 0 {
			continue
		}
		if l.borrowed[slot] = nil; b != nil {
			b.gone = true
			x.free(l, b)
		}
		if name != 0 {
			l.borrowed[slot] = &borrowed{name: name}
		}
	}
}

// release gives back what read has borrowed.
func (x *arenas) release(rank int, b *borrowed) {
	x.mu.Lock()
	defer x.mu.Unlock()
	b.users--
	x.free(x.lenders[rank], b)
}

// free lets go of an arena that is gone and that no rank reads; mu is held.
func (x *arenas) free(l *lender, b *borrowed) {
	if !b.gone || b.users > 0 {
		return
	}
	err := error(nil)
	if b.segment != nil {
		err = b.segment.Close()
	} else if with := x.clique.linked(l.life); with != nil {
		err = with.Decline(b.name)
	}
	if err != nil {
		x.clique.group.log.Warn("memory of another process not freed", "clique", x.clique.key.String(), "task", l.life.Task, "err", err)
	}
}

// close lets go of all arenas. No operation of the clique runs or will run, and the shares are still there. What another process
// has lent this late it takes back itself.
func (x *arenas) close() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed {
		return
	}
	x.closed = true
	for _, life := range x.clique.others {
		x.takeBack(life)
	}
	for _, l := range x.lenders {
		if l == nil {
			continue
		}
		x.renew(l) // those that were never read are declined, too
		for slot, b := range l.borrowed {
			if l.borrowed[slot] = nil; b != nil {
				b.gone = true
				x.free(l, b)
			}
		}
	}
}

// takeBack tells another process that it is lent nothing any more: its part of the clique may have ended before it was lent an
// arena; mu is held.
func (x *arenas) takeBack(life serry.Life) {
	with := x.clique.linked(life)
	if with == nil {
		return
	}
	for _, l := range x.lent {
		if l != nil {
			h := link.Header{Family: link.Collective, Type: link.TakeBack, Class: link.Control, Stream: x.clique.stream, Generation: x.clique.key.Generation}
			with.Post(h, binary.LittleEndian.AppendUint64(nil, l.name)) // fails only if the link is down, which ends all loans
		}
	}
}

// A view is memory of an operation of one rank that the others read in place: its vector, from a place in it on. Memory that they
// do not is nil.
type view struct {
	in, out []byte
	origin  int64
	held    [2]*borrowed
}

// result is where the results of the rank are read.
func (v *view) result(t *tiling) []byte {
	if t.stages {
		return v.out
	}
	return v.in
}

// show says where the others can read the memory of an operation. They have done with the one before.
func (s *sharer) show(ctx context.Context, k *call, t *tiling) {
	v := &s.views[s.comm.rank]
	*v = view{}
	if s.comm.clique.sharing.direct {
		v.in, v.out = k.in, k.out
		return
	}
	var in, out spot
	x := &s.comm.clique.sharing.arenas
	if a := k.arenas.in; k.in != nil {
		if in = x.locate(ctx, a.Arena, a.offset); in != 0 {
			v.in = k.in
		}
	}
	if a := k.arenas.out; t.stages && t.gathers {
		if out = x.locate(ctx, a.Arena, a.offset); out != 0 {
			v.out = k.out
		}
	}
	s.own.setSpots(in, out)
}

// look finds the memory of another rank, which has begun this operation.
func (s *sharer) look(k *call, rank int) (err error) {
	if k.gift() <= cellBytes || k.job.Op == schedule.Barrier {
		return nil
	}
	v := &s.views[rank]
	if k.job.Op == schedule.AllGather {
		v.origin = s.starts[rank]
	}
	if s.comm.clique.sharing.direct {
		other := s.comm.clique.comms[rank].sharer.call
		v.in, v.out = other.in, other.out
		return nil
	}
	x := &s.comm.clique.sharing.arenas
	in, out := s.shares[rank].spots()
	size := k.total
	if k.job.Op == schedule.AllGather {
		size = k.sizes[rank]
	}
	if in != 0 {
		if v.held[0], v.in, err = x.read(rank, in, size); err != nil {
			return &moveError{rank, err}
		}
	}
	if out != 0 {
		if v.held[1], v.out, err = x.read(rank, out, k.total); err != nil {
			return &moveError{rank, err}
		}
	}
	return nil
}

// lookAway gives back the memory of all other ranks.
func (s *sharer) lookAway() {
	for rank := range s.views {
		v := &s.views[rank]
		for _, b := range v.held {
			if b != nil {
				s.comm.clique.sharing.arenas.release(rank, b)
			}
		}
		*v = view{}
	}
}

// believe says whether what this rank has read in place was right. A rank that fails gives the memory back to its program, which
// may write to it while others still read. It says so before, and every rank looks after its last phase, so that an operation
// never succeeds with what was read too late (CL-TRN-31).
//
// The rank has told why, or its link breaks: so the clique ends.
func (s *sharer) believe(ctx context.Context) error {
	for rank := range s.views {
		if v := &s.views[rank]; v.held == [2]*borrowed{} || !s.shares[rank].over() {
			continue
		}
		select {
		case <-s.comm.clique.ctx.Done():
			return context.Cause(s.comm.clique.ctx)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}
