package collective

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/lockrank"
	"github.com/serry-dev/serry/internal/processor"
	"github.com/serry-dev/serry/internal/schedule"
	"github.com/serry-dev/serry/link"
)

const (
	remembered = 64   // operations of a rank that are known after they have ended
	maxAhead   = 1024 // operations of other ranks that are known before they begin here
	maxPlans   = 256
)

// A Comm is a clique, seen from one of its ranks. Get it from [Group.Clique].
//
// All methods may be called from any goroutine. Operations are numbered in the order of the calls of [Comm.Do] and
// [Comm.Start], and the program makes sure that this order is the same on all ranks (CL-DES-2).
type Comm struct {
	group  *Group
	clique *clique
	rank   int
	native Communicator // of the backend; nil for the engine of this package
	remote remote       // its one-sided operations, and those on it
	sharer sharer       // its operations through shared memory
	steps  uint64       // that it has begun; guarded by the lock of the clique

	exchanges atomic.Uint64 // of values that it has begun

	progress *link.Progress // with the operations of all ranks
	peers    []talliedPeer  // by rank

	mu struct {
		lockrank.Mutex[commLock]
		seq    uint64          // of the operation of all ranks that began last
		moved  processor.Ticks // when it began
		recent [remembered]started
		pairs  map[pair]uint64       // transfers that began so far
		moving map[slot]description  // transfers under way
		came   map[slot]uint64       // digests of transfers that a peer has begun, and this rank has not
		ahead  map[uint64][]progress // by sequence number: what other ranks have begun, and this one has not
		seen   map[int]progress      // by rank: what it said last
		plans  map[planKey]*plan
		record recorder
	}
}

// A started operation is one that this rank has begun.
type started struct {
	seq  uint64
	what description
}

// A progress is what another rank says it does.
type progress struct {
	rank   int
	seq    uint64
	digest uint64
	what   description
	since  time.Time // when it was first seen there
}

type planKey struct {
	schedule.Job
	schedule.Algorithm
}

// Key names the clique.
func (c *Comm) Key() *Key { return c.clique.key }

// Rank is the place of this rank in the clique.
func (c *Comm) Rank() int { return c.rank }

// Size is how many ranks the clique has.
func (c *Comm) Size() int { return len(c.clique.key.Ranks) }

// Local lists the communicators of all ranks that are in this process, in the order of ranks. [Group.Clique] returns
// the first of them.
func (c *Comm) Local() (all []*Comm) {
	for _, other := range c.clique.comms {
		if other != nil {
			all = append(all, other)
		}
	}
	return all
}

// Err is why the clique has failed, an *Error, or nil. It does not wait for operations under way (CL-HLT-1).
func (c *Comm) Err() error {
	if e := c.clique.failed.Load(); e != nil {
		return e
	}
	return nil
}

// Do runs an operation and waits for its end. It returns nil when Out is final, or an error: then Out is undefined,
// In is unchanged unless the two are the same memory, and neither is used any more (CL-ERR-6).
//
// A call that is refused, with ErrInvalid or ErrUnsupported, leaves the clique as it was, and so does one whose ctx has ended before
// the call: it is withdrawn, and returns the cause of ctx (CL-DES-3). Every other error ends the clique on all members, with the
// same facts everywhere. The deadline of ctx, or else that of the options, is one for
// all members: when it passes on one of them, the operation fails on all.
func (c *Comm) Do(ctx context.Context, o Op) error {
	op, err := c.begin(ctx, o)
	if err != nil {
		return err
	}
	if err := op.run(ctx); err != nil {
		return err
	}
	op.reuse()
	return nil
}

// Start begins an operation and returns at once. It has its place in the order of operations when Start returns.
func (c *Comm) Start(ctx context.Context, o Op) *Future {
	f := &Future{done: make(chan struct{})}
	op, err := c.begin(ctx, o)
	if err != nil {
		f.err = err
		close(f.done)
		return f
	}
	run := func() {
		if f.err = op.run(ctx); f.err == nil {
			op.reuse()
		}
		close(f.done)
	}
	if !c.group.spawn(run) { // the group is closed, and has ended the clique or is about to
		run()
	}
	return f
}

// A Future is an operation that was started.
type Future struct {
	done chan struct{}
	err  error // set before done is closed
}

// Done is closed when the operation has ended.
func (f *Future) Done() <-chan struct{} { return f.done }

// Wait waits until the operation has ended, and returns its error.
func (f *Future) Wait() error {
	<-f.done
	return f.err
}

// begin checks an operation and gives it the next sequence number.
func (c *Comm) begin(ctx context.Context, o Op) (*operation, error) {
	k, err := o.prepare(c)
	if err != nil {
		return nil, err
	}
	if failed := c.clique.failed.Load(); failed != nil {
		return nil, failed
	}
	if ctx.Err() != nil { // nothing has been sent: the call is withdrawn, and the clique stays whole
		return nil, fmt.Errorf("%v: %w", k.description, context.Cause(ctx))
	}
	op := c.newOperation(o, k)
	if _, ok := ctx.Deadline(); !ok && c.group.opt.Timeout > 0 {
		op.limit = c.group.opt.Timeout
	}
	other, differs := c.clique.begin(op)
	if failed := c.clique.failed.Load(); failed != nil {
		c.ended(op, failed)
		return nil, failed
	}
	switch {
	case differs && k.peer >= 0:
		c.clique.revoke(c.mismatchedTransfer(k.peer, op.seq, k.description))
	case differs:
		c.tellProgress(other, op.seq, k.description, answers)
	case k.ofAll():
		c.compareLocal(op)
	case k.peer >= 0:
		c.compareLocalTransfer(op)
	}
	return op, nil
}

// number gives an operation its sequence number. It says whether another rank has begun a different operation under
// the same number.
func (c *Comm) number(op *operation) (rank int, differs bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.mu.record.begin(op) // when it has its number
	switch k := op.call; {
	case k.single != nil:
		if c.native == nil {
			k.single.begin(&c.remote, op)
		}
		return 0, false
	case k.peer >= 0:
		return k.peer, c.numberTransfer(op)
	}
	c.mu.seq++
	c.mu.moved = op.began
	op.seq, op.word = c.mu.seq, word(c.mu.seq, op.call.description)
	op.place = c.sharer.reserve(op.call)
	c.progress.Start(op.seq)
	if w := op.call.offers; w != nil {
		w.number = op.seq
		c.remote.addWindow(w)
	}
	c.mu.recent[op.seq%remembered] = started{op.seq, op.call.description}
	known := c.mu.ahead[op.seq]
	delete(c.mu.ahead, op.seq)
	for _, p := range known {
		if p.digest != op.call.description.digest() {
			return p.rank, true
		}
	}
	return 0, false
}

// expectLater remembers what another rank has begun and this one has not; mu is held. Of those that differ two are
// enough: one of them differs from what this rank will run.
func (c *Comm) expectLater(p progress) {
	known := c.mu.ahead[p.seq]
	if len(known) >= 2 || len(known) == 1 && known[0].digest == p.digest || len(c.mu.ahead) >= maxAhead {
		return
	}
	if c.mu.ahead == nil {
		c.mu.ahead = make(map[uint64][]progress)
	}
	c.mu.ahead[p.seq] = append(known, p)
}

// compareLocal compares an operation with those of the other ranks of this process.
func (c *Comm) compareLocal(op *operation) {
	for _, other := range c.clique.comms {
		if other == nil || other == c {
			continue
		}
		if what, ok := other.what(op.seq); ok && what != op.call.description {
			c.clique.revoke(c.mismatch(other.rank, op.seq, op.call.description, what))
		}
	}
}

// what is the operation with a sequence number, if it has begun and is not long over.
func (c *Comm) what(seq uint64) (description, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.mu.recent[seq%remembered]
	return s.what, s.seq == seq && seq > 0
}

// mismatch is the cause of a clique whose members run different operations (CL-ORD-12).
func (c *Comm) mismatch(other int, seq uint64, mine, theirs description) *Error {
	e := &Error{Origin: c.rank, Seq: seq, Ranks: []int{c.rank, other}, Err: ErrMismatch}
	e.Detail = fmt.Sprintf("rank %d runs %v, rank %d runs %v", c.rank, mine, other, theirs)
	if other < c.rank {
		e.Ranks = []int{other, c.rank}
		e.Detail = fmt.Sprintf("rank %d runs %v, rank %d runs %v", other, theirs, c.rank, mine)
	}
	return e
}

// noticed is told that a rank has sent something of an operation that this rank does not expect, credit if this rank is
// the one that sends. It says whether to keep it: this rank may not have come so far.
func (c *Comm) noticed(rank int, word uint64, sends bool) (keep bool) {
	p := progress{rank: rank, seq: word >> digestBits, digest: word & (1<<digestBits - 1)}
	switch {
	case p.seq&transferBit != 0:
		return c.noticedTransfer(p, sends)
	case p.seq&remoteBit != 0:
		return c.noticedErrand(p, sends)
	}
	c.mu.Lock()
	mine := c.mu.recent[p.seq%remembered]
	switch {
	case p.seq > c.mu.seq:
		c.expectLater(p)
		c.mu.Unlock()
		return true
	case mine.seq != p.seq || mine.what.digest() == p.digest:
		c.mu.Unlock()
		return mine.seq == p.seq // of an operation that has not posted its memory yet, or that is long over
	}
	c.mu.Unlock()
	c.tellProgress(rank, p.seq, mine.what, answers) // the other rank compares the whole, and ends the clique
	return false
}

// The two kinds of words about progress: only one of them wants to be answered.
const (
	asks    = 0
	answers = 1
)

// tellProgress tells another rank which operation this one runs under a number.
func (c *Comm) tellProgress(rank int, seq uint64, what description, kind uint32) {
	if c.clique.comms[rank] != nil {
		return
	}
	l := c.clique.linked(c.clique.key.Ranks[rank].Life)
	if l == nil {
		return
	}
	b := binary.LittleEndian.AppendUint16(nil, uint16(c.rank))
	b = binary.LittleEndian.AppendUint16(b, uint16(rank))
	h := link.Header{Family: link.Collective, Type: link.OpDesc, Class: link.Control, Stream: c.clique.stream,
		Generation: c.clique.key.Generation, Seq: seq, Step: kind}
	if _, err := l.Post(h, what.append(b)); err != nil {
		c.group.log.Debug("operation not told", "peer", l.Peer().Task, "err", err)
	}
}

// heardProgress takes what a rank says that it does.
func (c *clique) heardProgress(from serry.Life, h link.Header, payload []byte) {
	r := reader{rest: payload}
	sender, mine := int(r.uint16()), int(r.uint16())
	what := r.description()
	p := len(c.key.Ranks)
	if r.failed || sender >= p || mine >= p || c.comms[mine] == nil || c.key.Ranks[sender].Life != from {
		return
	}
	c.comms[mine].compare(progress{rank: sender, seq: h.Seq, digest: what.digest(), what: what}, h.Step == asks)
}

// compare compares what another rank runs with what this one runs under the same number.
func (c *Comm) compare(p progress, answer bool) {
	c.mu.Lock()
	if c.mu.seen == nil {
		c.mu.seen = make(map[int]progress)
	}
	p.since = time.Now()
	if last, ok := c.mu.seen[p.rank]; ok && last.seq == p.seq {
		p.since = last.since
	}
	c.mu.seen[p.rank] = p
	latest := c.mu.recent[c.mu.seq%remembered]
	if p.seq > c.mu.seq {
		c.expectLater(p)
	}
	c.mu.Unlock()
	if mine, ok := c.what(p.seq); ok && mine != p.what {
		c.group.background(tellTime, func(context.Context) { c.clique.revoke(c.mismatch(p.rank, p.seq, mine, p.what)) })
		return
	}
	if answer {
		c.tellProgress(p.rank, latest.seq, latest.what, answers)
	}
}

// isBehind says whether a rank is known not to have begun an operation: it said so, or did not answer.
func (c *Comm) isBehind(rank int, seq uint64) bool {
	if other := c.clique.comms[rank]; other != nil {
		other.mu.Lock()
		defer other.mu.Unlock()
		return other.mu.seq < seq
	}
	if c.clique.linked(c.clique.key.Ranks[rank].Life) == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.seen[rank].seq < seq
}

// lastSeen says what is known of the progress of a rank.
func (c *Comm) lastSeen(rank int) string { return c.lastSaid(rank) + c.standing(rank) }

// standing says how long the pings of another process have told that a rank does not move on. It answers them: this
// tells a rank that waits or computes from one whose host is gone.
func (c *Comm) standing(rank int) string {
	l := c.clique.linked(c.clique.key.Ranks[rank].Life)
	if l == nil {
		return ""
	}
	s, told := l.Standing(c.clique.progressOf(rank))
	if !told || s.Since < time.Second || l.Stats().Suspected {
		return ""
	}
	return fmt.Sprintf(", answers pings, and has begun and ended no operation for %v", s.Since.Truncate(time.Second))
}

// lastSaid says what a rank has told of its progress when it was asked.
func (c *Comm) lastSaid(rank int) string {
	if other := c.clique.comms[rank]; other != nil {
		other.mu.Lock()
		defer other.mu.Unlock()
		return fmt.Sprintf("is at operation %d", other.mu.seq)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	p, ok := c.mu.seen[rank]
	switch {
	case !ok:
		return "did not answer"
	case p.seq == 0:
		return "has begun no operation"
	}
	return fmt.Sprintf("was last seen in operation %d, %v", p.seq, p.what)
}

// plan is the schedule of a call.
func (c *Comm) plan(k *call) (*plan, error) {
	if k.rounds != nil {
		return compile(schedule.Schedule{Job: k.job, Rank: c.rank, Blocks: 1, Rounds: k.rounds}), nil
	}
	algorithm, job := k.choice()
	key := planKey{job, algorithm}
	c.mu.Lock()
	p := c.mu.plans[key]
	c.mu.Unlock()
	if p != nil {
		return p, nil
	}
	p, err := newPlan(algorithm, job, c.rank)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.plans == nil || len(c.mu.plans) >= maxPlans {
		c.mu.plans = make(map[planKey]*plan)
	}
	c.mu.plans[key] = p
	return p, nil
}

// Revoke ends the clique on all members: operations under way and all later ones fail with ErrCancelled and the text
// of the cause. Links stay, for the clique that takes its place (CL-ABT-14). When it returns, no operation of this
// process uses memory of the program.
func (c *Comm) Revoke(cause error) {
	text := fmt.Sprintf("rank %d revoked the clique", c.rank)
	if cause != nil {
		text += ": " + cause.Error()
	}
	c.clique.revoke(&Error{Origin: c.rank, Detail: text, Err: ErrCancelled})
}

// Drain waits until no operation of the clique runs in this process.
func (c *Comm) Drain(ctx context.Context) error { return c.clique.drain(ctx) }

// Abort ends the clique like Revoke, and closes it.
func (c *Comm) Abort(cause error) {
	c.Revoke(cause)
	c.group.release(c.clique)
}

// Close waits until no operation of the clique runs in this process, and gives the clique back. The group keeps it for
// the next call of Clique with the same devices.
func (c *Comm) Close(ctx context.Context) error {
	if err := c.Drain(ctx); err != nil {
		return err
	}
	c.group.release(c.clique)
	return nil
}
