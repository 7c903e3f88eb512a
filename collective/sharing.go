package collective

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/schedule"
	"github.com/serry-dev/serry/link"
)

// maxSharers is how many ranks share memory. Each of them looks at the words of all others.
const maxSharers = 64

// A sharing is the memory through which the ranks of a clique work that are all on one host.
//
// Each process makes a segment with a share for each of its ranks, and lends it to the other processes. The first operation
// that could use the segments does this, on all ranks; then the processes tell each other whether all of it succeeded. So all
// use shared memory from then on, or none does and the engine carries the operations out over links (CL-ALG-1). A clique never
// uses the segments of another one, and so never what a process left in them that was lost (CL-TRN-20).
//
// The ranks of a clique that lies in one process need no segments: they read the memory of each other's operations.
type sharing struct {
	clique *clique
	ready  chan struct{} // closed when it is known whether memory is shared

	// Set before ready is closed, then constant.
	works  bool
	err    error   // why it could not be found out; the clique ends for it
	shares []share // by rank
	direct bool    // all ranks are in this process, and read the memory of each other's operations
	arenas arenas

	mu struct {
		sync.Mutex
		begun    bool
		closed   bool            // segments are closed
		segments []*link.Segment // of this process, and borrowed
	}
}

// sharable says whether a clique may share memory: all of its ranks are on one host, as far as their processes know.
func sharable(key *Key, hosts []uint16) bool {
	if p := len(key.Ranks); p < 2 || p > maxSharers {
		return false
	}
	for _, h := range hosts {
		if h != hosts[0] {
			return false
		}
	}
	lives := len(key.Lives())
	return lives == 1 || lives == len(hosts)
}

// shares says whether operations of this kind go through shared memory. All ranks say the same of equal operations. One without
// bytes has nothing to do, unless it is a barrier.
func (k *call) shares() bool {
	switch k.job.Op {
	case schedule.AllReduce, schedule.ReduceScatter, schedule.AllGather, schedule.Broadcast:
		return (k.forced == 0 || k.forced == ordered) && k.rounds == nil && k.total > 0
	case schedule.Barrier:
		return k.forced == 0
	}
	return false
}

// prepare makes sure that memory is shared, and says whether it is. The first operation of each rank that calls it is the same
// on all ranks.
func (x *sharing) prepare(ctx context.Context, o *operation) (works bool, err error) {
	select {
	case <-x.ready:
		return x.works, x.err
	default:
	}
	x.mu.Lock()
	first := !x.mu.begun
	x.mu.begun = true
	x.mu.Unlock()
	if first {
		x.works, x.err = x.build(ctx, o)
		close(x.ready)
	}
	select {
	case <-x.ready:
		return x.works, x.err
	case <-x.clique.ctx.Done():
		return false, context.Cause(x.clique.ctx)
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
}

// build lends and borrows segments, and finds out whether all processes have.
func (x *sharing) build(ctx context.Context, o *operation) (works bool, err error) {
	c := x.clique
	x.shares = make([]share, len(c.key.Ranks))
	if len(c.others) == 0 {
		if c.group.opt.LinksOnly {
			return false, nil
		}
		x.direct = true
		return true, x.place(c.group.life, link.OrdinarySegment(int64(len(x.shares))*stageAt), stageAt)
	}
	mine, failed := x.lend(ctx)
	if failed != nil {
		c.group.log.Debug("memory is not shared", "clique", c.key.String(), "err", failed)
	}
	works, err = c.allSay(ctx, o, failed == nil)
	if !works || err != nil {
		x.decline()
		return false, err
	}
	if err := x.place(c.group.life, mine, shareBytes); err != nil {
		return false, err
	}
	for _, peer := range c.others {
		if err := x.borrow(ctx, peer); err != nil {
			return false, err
		}
	}
	x.arenas.clique = c
	x.arenas.prepare(x.shares)
	return true, nil
}

// lend makes the segment of this process and lends it to all others.
func (x *sharing) lend(ctx context.Context) (*link.Segment, error) {
	c := x.clique
	if c.group.opt.LinksOnly {
		return nil, ErrUnsupported
	}
	s, err := c.group.net.NewSegment(int64(len(c.first.Local())) * shareBytes)
	if err != nil {
		return nil, err
	}
	if !x.keep(s) {
		return nil, ErrClosed
	}
	for _, comm := range c.first.Local() {
		s.LongWord(int(c.local[comm.rank])*shareBytes + streamAt).Store(c.stream)
	}
	errs := make([]error, len(c.others))
	var all sync.WaitGroup
	for i, peer := range c.others {
		all.Go(func() {
			l, err := c.link(ctx, peer)
			if err == nil {
				err = l.Lend(ctx, c.stream, s)
			}
			errs[i] = err
		})
	}
	all.Wait()
	return s, errors.Join(errs...)
}

// borrow takes the segment of another process. It was lent before the process said so.
func (x *sharing) borrow(ctx context.Context, peer serry.Life) error {
	rank := x.clique.key.RanksOf(peer)[0]
	l, err := x.clique.link(ctx, peer)
	if err != nil {
		return &moveError{rank, err}
	}
	s, err := l.Borrow(ctx, x.clique.stream)
	if err != nil {
		return &moveError{rank, err}
	}
	if !x.keep(s) {
		return ErrClosed
	}
	return x.place(peer, s, shareBytes)
}

// decline frees what other processes have lent, and the segment of this one: none is used.
func (x *sharing) decline() {
	for _, peer := range x.clique.others {
		if l := x.clique.linked(peer); l != nil {
			if err := l.Decline(x.clique.stream); err != nil {
				x.clique.group.log.Warn("segment not freed", "peer", peer.Task, "err", err)
			}
		}
	}
	x.close()
}

// keep notes a segment, to be closed with the clique. It closes one that comes too late.
func (x *sharing) keep(s *link.Segment) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.mu.closed {
		s.Close()
		return false
	}
	x.mu.segments = append(x.mu.segments, s)
	return true
}

// place finds the shares of the ranks of a process in its segment.
func (x *sharing) place(life serry.Life, s *link.Segment, bytes int) error {
	c := x.clique
	ranks := c.key.RanksOf(life)
	if len(s.Bytes()) < len(ranks)*bytes {
		return fmt.Errorf("%v lends %d bytes for %d ranks: %w", life.Task, len(s.Bytes()), len(ranks), ErrFault)
	}
	for _, rank := range ranks {
		x.shares[rank] = share{s, int(c.local[rank]) * bytes}
		if stream := s.LongWord(x.shares[rank].at + streamAt).Load(); !x.direct && stream != c.stream {
			return fmt.Errorf("%v lends memory of another clique: %w", life.Task, ErrFault)
		}
	}
	return nil
}

// verdictTile tells messages about shared memory from those with data.
const verdictTile = 1 << 16

// allSay tells all other processes whether something succeeded in this one, and says whether it did in all. The messages are
// between the first ranks of processes, and have the name of the operation: a process that runs another one finds out.
func (c *clique) allSay(ctx context.Context, o *operation, mine bool) (bool, error) {
	said := []byte{0}
	if mine {
		said[0] = 1
	}
	heard := make([]byte, len(c.others))
	name := &operation{comm: c.first, word: o.word}
	var tickets []flight
	for i, peer := range c.others {
		rank := c.key.RanksOf(peer)[0]
		for _, receive := range []bool{true, false} {
			b := said
			if receive {
				b = heard[i : i+1]
			}
			t, err := c.post(ctx, message{op: name, peer: rank, tile: verdictTile}, [][]byte{b}, receive)
			if err != nil {
				cancelAll(tickets, err)
				return false, err
			}
			tickets = append(tickets, flight{t, rank, receive})
		}
	}
	if err := c.await(ctx, o, tickets); err != nil {
		return false, err
	}
	for _, b := range heard {
		mine = mine && b == 1
	}
	return mine, nil
}

// await waits for messages of an operation that the engine does not wait for.
func (c *clique) await(ctx context.Context, o *operation, tickets []flight) error {
	err := error(nil)
	if failed := c.failed.Load(); failed != nil { // it ended before it knew of the messages
		err = failed
	}
	for i := 0; i < len(tickets) && err == nil; i++ {
		o.waitFor(tickets[i].rank)
		if failed := tickets[i].ticket.Wait(ctx); failed != nil {
			err = &moveError{tickets[i].rank, failed}
		}
		o.waited(tickets[i].rank)
	}
	if err != nil {
		cancelAll(tickets, err)
	}
	return err
}

func cancelAll(tickets []flight, cause error) {
	for _, t := range tickets {
		t.ticket.Cancel(cause)
	}
}

// stop wakes the ranks of this process that wait for others, and waits until none of them uses memory of the program. The
// clique has failed, so none uses it again.
func (x *sharing) stop() {
	select {
	case <-x.ready:
		for _, s := range x.shares {
			if s.segment != nil {
				s.segment.Wake(s.at + countAt)
			}
		}
		x.quiet()
	default: // no operation has got so far
	}
}

// quiet waits until no rank of this process uses memory of the program, and tells those of others that they must not believe
// what they read of it from now on. The clique has failed.
func (x *sharing) quiet() {
	x.sayOver()
	for _, comm := range x.clique.comms {
		if comm != nil {
			comm.sharer.busy.Lock()
			comm.sharer.busy.Unlock() //nolint:staticcheck // what held it has let go
		}
	}
}

// sayOver tells the other processes that the ranks of this one have failed.
func (x *sharing) sayOver() {
	if !isClosed(x.ready) || !x.works || x.direct {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.mu.closed {
		return
	}
	for _, comm := range x.clique.first.Local() {
		x.shares[comm.rank].setOver()
	}
}

// close frees the segments. No operation of the clique runs or will run.
func (x *sharing) close() {
	if isClosed(x.ready) && x.works && !x.direct {
		x.arenas.close()
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.mu.closed = true
	for _, s := range x.mu.segments {
		if err := s.Close(); err != nil {
			x.clique.group.log.Warn("segment not freed", "clique", x.clique.key.String(), "err", err)
		}
	}
	x.mu.segments = nil
}
