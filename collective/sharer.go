package collective

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/serry-dev/serry/internal/schedule"
)

// How a rank waits for another one. While there is a processor for each rank it spins: to wake a thread costs a hundred times
// as much as a small operation. With more ranks than processors it lets the others run at once.
const (
	mostSpins  = 1 << 14 // about 20 µs
	leastSpins = 1 << 6

	// A rank lets other threads run so often, and not longer than yieldTime: where other programs keep the processors busy, a
	// thread that yields gets its turn long after the rank that it waits for has come, and one that is woken gets it at once.
	// After that it sleeps at once in the next waits.
	yields    = 64
	yieldTime = 50 * time.Microsecond
	busyWaits = 64

	// sleepTime bounds how late a sleeping rank notices that its context has ended. All else wakes it.
	sleepTime = 10 * time.Millisecond
)

// A sharer is what one rank of this process does with shared memory.
//
// All ranks run the same operations in the same order, and count the phases of these alike. A rank says in its share how many
// it has ended; this alone says what of its memory others may read, and what of theirs it does not need any more. No rank
// writes the share of another.
//
// A rank cannot get far ahead of another one. An operation that does not wait for all others writes memory which all of them
// must have read before: one of two cells, or the stage, which the operation before it may have used. So it is at most three
// operations ahead.
type sharer struct {
	comm     *Comm
	reserved uint64 // operations that have their place in the order; guarded by the lock of the communicator

	turn struct {
		next    atomic.Uint64 // the place of the operation that may run
		mu      sync.Mutex
		changed chan struct{} // closed when next changes; nil while no operation waits; guarded by mu
	}

	// busy is held while memory of the program is used, and never while the rank waits.
	busy sync.Mutex

	// Owned by the operation that may run.
	own       share
	shares    []share // by rank
	others    []share
	count     uint32   // phases that this rank has ended
	seen      []uint32 // by rank: how many it has ended, as seen last
	checked   []uint64 // by rank: the operation in which its word was compared last
	number    uint64   // of the operation
	small     uint64   // operations that used a cell
	cellFree  [cells]uint32
	stageFree uint32 // when all ranks have ended so many phases, they have done with stage and results
	spins     int
	hurried   int      // waits to come in which the rank sleeps at once
	inputs    [][]byte // reused
	starts    []int64  // reused
	call      *call    // read by other ranks of this process between two phases
	views     []view   // by rank: memory of an operation that is read in place
	before    func()   // is called before the end of each phase, in tests; or nil
}

// reserve gives an operation its place in the order of those through shared memory, or 0. The lock of the communicator is held.
func (s *sharer) reserve(k *call) uint64 {
	if s.comm.clique.sharing == nil || !k.shares() {
		return 0
	}
	s.reserved++
	return s.reserved
}

// run carries an operation out through shared memory. It returns false where the clique has none.
//
// An operation that fails does not let the next one run: the clique ends, and they all fail.
func (s *sharer) run(ctx context.Context, o *operation) (served bool, err error) {
	if err := s.await(ctx, o.place); err != nil {
		return false, err
	}
	x := s.comm.clique.sharing
	works, err := x.prepare(ctx, o)
	if works {
		s.begin(o)
		err = s.carryOut(ctx, o)
	}
	if err != nil {
		return works, err
	}
	s.pass(o.place)
	return works, nil
}

// await waits until it is the turn of an operation.
func (s *sharer) await(ctx context.Context, place uint64) error {
	for s.turn.next.Load() != place-1 {
		s.turn.mu.Lock()
		if s.turn.changed == nil {
			s.turn.changed = make(chan struct{})
		}
		changed := s.turn.changed
		s.turn.mu.Unlock()
		if s.turn.next.Load() == place-1 {
			return nil
		}
		select {
		case <-changed:
		case <-s.comm.clique.ctx.Done():
			return context.Cause(s.comm.clique.ctx)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// pass lets the operation behind a place run.
func (s *sharer) pass(place uint64) {
	s.turn.next.Store(place)
	s.turn.mu.Lock()
	defer s.turn.mu.Unlock()
	if s.turn.changed != nil {
		close(s.turn.changed)
		s.turn.changed = nil
	}
}

// begin tells which operation this is.
func (s *sharer) begin(o *operation) {
	if s.shares == nil {
		s.shares = s.comm.clique.sharing.shares
		s.seen, s.checked = make([]uint32, len(s.shares)), make([]uint64, len(s.shares))
		s.views = make([]view, len(s.shares))
		s.own, s.spins = s.shares[s.comm.rank], s.mostSpins()
		for rank, other := range s.shares {
			if rank != s.comm.rank {
				s.others = append(s.others, other)
			}
		}
	}
	s.number, s.call = o.place, o.call
	s.own.begin(s.number, o.word)
}

func (s *sharer) carryOut(ctx context.Context, o *operation) error {
	switch {
	case o.call.job.Op == schedule.Barrier:
		s.end()
		return s.hearAll(ctx, o, s.count)
	case o.call.gift() <= cellBytes:
		return s.exchangeCells(ctx, o)
	}
	return s.exchangeTiles(ctx, o)
}

// end ends a phase, and tells the others.
func (s *sharer) end() {
	if s.before != nil {
		s.before()
	}
	s.count++
	s.own.publish(s.count, s.others)
}

// enter begins to use memory of the program. It fails once the clique has.
func (s *sharer) enter() error {
	s.busy.Lock()
	if failed := s.comm.clique.failed.Load(); failed != nil {
		s.busy.Unlock()
		return failed
	}
	return nil
}

func (s *sharer) leave() { s.busy.Unlock() }

// reached says whether a rank has ended so many phases.
func (s *sharer) reached(rank int, count uint32) bool {
	if int32(s.seen[rank]-count) >= 0 {
		return true
	}
	s.seen[rank] = s.shares[rank].count()
	return int32(s.seen[rank]-count) >= 0
}

// reachAll waits until all others have ended so many phases.
func (s *sharer) reachAll(ctx context.Context, o *operation, count uint32) error {
	for rank := range s.shares {
		if rank == s.comm.rank {
			continue
		}
		if err := s.reach(ctx, o, rank, count); err != nil {
			return err
		}
	}
	return nil
}

// hearAll waits until all others have ended so many phases, of this operation.
func (s *sharer) hearAll(ctx context.Context, o *operation, count uint32) error {
	for rank := range s.shares {
		if rank == s.comm.rank {
			continue
		}
		if err := s.hear(ctx, o, rank, count); err != nil {
			return err
		}
	}
	return nil
}

// hear waits until another rank has ended so many phases, of this operation. If the rank runs another operation it is told, as
// by a message that it does not expect: it compares the two and ends the clique (CL-ORD-12).
func (s *sharer) hear(ctx context.Context, o *operation, rank int, count uint32) error {
	if err := s.reach(ctx, o, rank, count); err != nil || s.checked[rank] == s.number {
		return err
	}
	s.checked[rank] = s.number
	if s.shares[rank].word(s.number) == o.word {
		return s.look(o.call, rank)
	}
	s.comm.tellProgress(rank, o.seq, o.call.description, answers)
	o.waitFor(rank)
	select {
	case <-s.comm.clique.ctx.Done():
		return context.Cause(s.comm.clique.ctx)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// reach waits until another rank has ended so many phases: first it spins, then it lets other threads run, then it sleeps.
func (s *sharer) reach(ctx context.Context, o *operation, rank int, count uint32) error {
	failed := &s.comm.clique.failed
	for range s.spins {
		if s.reached(rank, count) {
			return nil
		}
	}
	began := time.Now()
	if s.yield(rank, count, began) {
		s.spins = min(2*s.spins, s.mostSpins())
		return nil
	}
	s.spins = max(s.spins/2, leastSpins)
	o.waitFor(rank)
	for !s.reached(rank, count) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if failed.Load() != nil {
			return failed.Load()
		}
		s.sleep(ctx, rank)
	}
	o.waited(rank)
	o.noteWait(rank, time.Since(began))
	return nil
}

// yield lets other threads run for a while from now on, and says whether a rank has ended so many phases.
func (s *sharer) yield(rank int, count uint32, now time.Time) bool {
	if s.hurried > 0 {
		s.hurried--
		return s.reached(rank, count)
	}
	for range yields {
		if s.reached(rank, count) || s.comm.clique.failed.Load() != nil {
			break
		}
		s.shares[rank].segment.Yield()
		if time.Since(now) > yieldTime {
			s.hurried = busyWaits
			break
		}
	}
	return s.reached(rank, count)
}

// sleep sleeps until a rank ends its next phase, the clique or ctx ends, or sleepTime has passed.
func (s *sharer) sleep(ctx context.Context, rank int) {
	most := sleepTime
	if until, ok := ctx.Deadline(); ok {
		most = min(most, time.Until(until))
	}
	s.own.setAsleep(1)
	at := s.shares[rank]
	at.segment.Sleep(at.at+countAt, s.seen[rank], ctx.Done(), s.comm.clique.ctx.Done(), most)
	s.own.setAsleep(0)
}

// mostSpins is how long the rank may spin: hardly, if there are more ranks than processors.
func (s *sharer) mostSpins() int {
	if len(s.shares) > runtime.GOMAXPROCS(0) {
		return leastSpins
	}
	return mostSpins
}
