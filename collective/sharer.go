package collective

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/serry-dev/serry/internal/schedule"
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
	patience  patience
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
		s.own, s.patience = s.shares[s.comm.rank], newPatience(len(s.shares), runtime.GOMAXPROCS(0))
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
	s.patience.woke = s.own.publish(s.count, s.others)
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
	if s.spin(rank, count) {
		return nil
	}
	began := time.Now()
	if s.yield(rank, count, began) {
		return nil
	}
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
	wait := time.Since(began)
	s.patience.slept(wait)
	o.noteWait(rank, wait)
	return nil
}

// spin looks at the count of a rank for a while, and says whether it has ended so many phases. A rank that runs on the same processor cannot
// come while this one spins.
func (s *sharer) spin(rank int, count uint32) bool {
	for i := range s.patience.mostLooks() {
		if s.reached(rank, count) {
			s.patience.spun(i)
			return true
		}
		if i == leastSpins && s.shares[rank].sharesProcessor() {
			return false
		}
	}
	return false
}

// yield lets other threads run for a while from now on, and says whether a rank has ended so many phases.
func (s *sharer) yield(rank int, count uint32, now time.Time) bool {
	if !s.patience.mayYield() {
		return false
	}
	began, took := now, time.Duration(0)
	for i := 0; i < yields && took <= slowYield && now.Sub(began) <= yieldTime && s.comm.clique.failed.Load() == nil; i++ {
		s.shares[rank].segment.Yield()
		before := now
		now = time.Now()
		took = now.Sub(before)
		if s.reached(rank, count) {
			s.patience.came(took)
			return true
		}
	}
	return false
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
