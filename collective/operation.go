package collective

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/serry-dev/serry/internal/lockrank"
	"github.com/serry-dev/serry/internal/plant"
	"github.com/serry-dev/serry/internal/processor"
	"github.com/serry-dev/serry/internal/schedule"
	"github.com/serry-dev/serry/link"
)

// inquireAfter is how long an operation waits for other ranks before it asks them what they do. A rank that runs
// another operation, and sends nothing that would show it, is found this way.
const (
	inquireAfter = 100 * time.Millisecond
	inquireMost  = 10 * time.Second // it asks again after twice the time, but at least so often
)

// An operation is one operation of one rank, under way.
type operation struct {
	comm    *Comm
	op      Op
	call    *call
	seq     uint64
	word    uint64 // of its messages: the sequence number and the digest of the description
	place   uint64 // among those through shared memory, from 1 on; or 0
	began   processor.Ticks
	limit   time.Duration  // how long it may take, if the context does not say so; or 0
	pending []atomic.Int32 // by rank: messages under way
	engine  engine
	trace   trace // for the recorder

	mu struct {
		lockrank.Mutex[operationLock]
		ended    bool
		calm     bool // it has ended, and its clock had nothing to do
		ticked   bool // its clock had something to do
		asked    bool // other ranks were asked what they do
		timer    *time.Timer
		pause    time.Duration // between the last two times that they were asked
		until    time.Time     // its deadline, or zero. This and the next two are set when the clock goes off for the first time
		askAt    time.Time
		warnAt   time.Time // or zero: never
		reported map[int]bool
	}
}

// newOperation is an operation of the rank, in memory of one that has ended if there is some.
func (c *Comm) newOperation(o Op, k *call) *operation {
	op, _ := c.clique.spares.operations.Get().(*operation)
	if op == nil {
		op = &operation{pending: make([]atomic.Int32, c.Size())}
	}
	op.comm, op.op, op.call, op.seq, op.word, op.place, op.began, op.limit = c, o, k, 0, 0, 0, c.group.meter.Now(), 0
	return op
}

// reuse gives the memory of an operation that has succeeded to the next one, so that operations inside a process allocate nothing
// (CL-DES-1). An operation that took long is not reused, because its timer may still read it. Nor is one of a kind that keeps more
// memory than a collective of all ranks.
func (o *operation) reuse() {
	o.mu.Lock()
	calm := o.mu.calm
	o.mu.Unlock()
	if k := o.call; calm && k.single == nil && k.rows == nil && k.offers == nil {
		spares := &o.comm.clique.spares
		o.op, o.call = nil, nil
		spares.calls.Put(k)
		spares.operations.Put(o)
	}
}

// word puts a sequence number and a digest together.
func word(seq uint64, d description) uint64 { return seq<<digestBits | d.digest() }

// plainNumber is a sequence number without the mark of what it counts.
func plainNumber(seq uint64) uint64 { return seq &^ (transferBit | remoteBit) }

// run runs the operation to its end.
func (o *operation) run(ctx context.Context) (err error) {
	defer func() { o.comm.ended(o, err) }()
	o.arm()
	err = o.play(ctx)
	o.disarm()
	switch {
	case err == nil:
		return nil
	case o.comm.native != nil && errors.Is(err, ErrUnsupported): // of the backend, on all ranks alike (CL-ERR-10)
		return fmt.Errorf("%v: %w", o.call.description, err)
	}
	err = o.failure(ctx, err)
	if o.place > 0 {
		o.comm.clique.sharing.quiet() // ranks of this process may have read memory of the operation until then
	}
	return err
}

// play carries the operation out.
func (o *operation) play(ctx context.Context) error {
	if o.comm.native != nil {
		return o.playNative(ctx)
	}
	if o.call.single != nil {
		return o.call.single.carryOut(ctx, o)
	}
	if o.call.rows != nil {
		return o.exchangeRows(ctx)
	}
	if err := o.call.adjustInput(); err != nil {
		return err
	}
	if err := o.exchange(ctx); err != nil {
		return err
	}
	return o.call.adjustOutput()
}

// exchange moves and reduces the vectors of all ranks, through shared memory or over links.
func (o *operation) exchange(ctx context.Context) error {
	if o.place > 0 {
		if served, err := o.comm.sharer.run(ctx, o); served || err != nil {
			return err
		}
	}
	p, err := o.comm.plan(o.call)
	if err != nil {
		return err
	}
	o.trace.algorithm = p.algorithm
	o.engine.prepare(o, p, o.call)
	return o.engine.run(ctx)
}

// playNative has the backend carry the operation out. Libraries are known that call an aborted operation a success: one
// that ended after the clique did is not believed.
func (o *operation) playNative(ctx context.Context) error {
	c := o.comm.clique
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(c.ctx, func() { cancel(context.Cause(c.ctx)) })()
	err := o.comm.native.Run(ctx, o.seq, o.op)
	if failed := c.failed.Load(); failed != nil {
		return failed
	}
	return err
}

// failure is the error of an operation that did not complete. It ends the clique: a collective that ran in part
// cannot be undone (CL-DES-3).
func (o *operation) failure(ctx context.Context, err error) error {
	c := o.comm.clique
	if c.group.opt.Planted.Has(plant.AbortSucceeds) {
		return nil
	}
	if held := c.failed.Load(); held != nil {
		return held
	}
	e := &Error{Origin: o.comm.rank, Err: ErrFault, Detail: err.Error()}
	if errors.Is(err, ErrInvalid) {
		e.Err, e.Ranks = ErrInvalid, []int{o.comm.rank}
	}
	moved, isMove := errors.AsType[*moveError](err)
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		e = o.timeout()
	case ctx.Err() != nil:
		e.Err, e.Detail = ErrCancelled, fmt.Sprintf("rank %d gave %v up: %v", o.comm.rank, o.call.description, context.Cause(ctx))
	case isMove && isLoss(err):
		e = c.lossOf(c.key.Ranks[moved.rank].Life, moved.err)
	}
	e.Seq = plainNumber(o.seq)
	return c.revoke(e)
}

// isLoss says whether a link failed.
func isLoss(err error) bool {
	return errors.Is(err, link.ErrPeerFailed) || errors.Is(err, link.ErrTransport) || errors.Is(err, link.ErrClosed)
}

// blamed lists the ranks that hold the operation up: those that have not begun it. A rank that has begun it waits like
// this one, also where this one waits for it. If no rank is known to be behind, those that it waits for are blamed.
func (o *operation) blamed() (ranks []int) {
	o.mu.Lock()
	asked := o.mu.asked
	o.mu.Unlock()
	for rank := range o.comm.Size() {
		if asked && o.call.ofAll() && rank != o.comm.rank && o.comm.isBehind(rank, o.seq) {
			ranks = append(ranks, rank)
		}
	}
	if ranks == nil {
		return o.waiting()
	}
	return ranks
}

// timeout is the error of an operation whose time is over (CL-TMO-10).
func (o *operation) timeout() *Error {
	e := &Error{Origin: o.comm.rank, Seq: plainNumber(o.seq), Ranks: o.blamed(), Err: ErrTimeout}
	e.Detail = fmt.Sprintf("%v after %v", o.call.description, time.Since(o.start()).Round(time.Millisecond))
	if len(e.Ranks) > 0 {
		e.Detail += "; " + o.comm.lastSeenOf(e.Ranks)
	}
	return e
}

// waitFor notes that a message to or from a rank is under way.
func (o *operation) waitFor(rank int) { o.pending[rank].Add(1) }

// waited notes that it has ended.
func (o *operation) waited(rank int) { o.pending[rank].Add(-1) }

// waiting lists the ranks that the operation waits for.
func (o *operation) waiting() (ranks []int) {
	for rank := range o.pending {
		if o.pending[rank].Load() > 0 {
			ranks = append(ranks, rank)
		}
	}
	return ranks
}

// start is when the operation began.
func (o *operation) start() time.Time { return o.comm.group.meter.Time(o.began) }

// arm sets the clock of the operation. What the clock is to do, and when, is found when it goes off: most operations end before that, and to
// read the time of the system is a good part of what a small one takes.
func (o *operation) arm() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.mu.ended, o.mu.asked, o.mu.ticked = false, false, false
	first := inquireAfter
	for _, d := range [...]time.Duration{o.limit, o.comm.group.opt.Warn} {
		if d > 0 {
			first = min(first, d)
		}
	}
	if o.mu.timer != nil {
		o.mu.timer.Reset(first)
		return
	}
	o.mu.timer = time.AfterFunc(first, o.tick)
}

// setTimes says when the clock has something to do; mu is held.
func (o *operation) setTimes() {
	began, warn := o.start(), o.comm.group.opt.Warn
	o.mu.pause, o.mu.askAt = inquireAfter, began.Add(inquireAfter)
	o.mu.until, o.mu.warnAt = time.Time{}, time.Time{}
	if o.limit > 0 {
		o.mu.until = began.Add(o.limit)
	}
	if warn > 0 {
		o.mu.warnAt = began.Add(warn)
	}
}

// next is the time until the clock has something to do; mu is held.
func (o *operation) next() time.Duration {
	at := o.mu.askAt
	for _, other := range [...]time.Time{o.mu.warnAt, o.mu.until} {
		if !other.IsZero() && other.Before(at) {
			at = other
		}
	}
	return max(time.Until(at), 0)
}

// disarm stops the clock.
func (o *operation) disarm() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.mu.ended = true
	o.mu.calm = o.mu.timer.Stop() && !o.mu.ticked
}

// tick looks after an operation that takes long.
func (o *operation) tick() {
	asks, warns, over := o.due()
	if over {
		o.comm.group.background(tellTime, func(context.Context) { o.comm.clique.revoke(o.timeout()) })
	}
	if asks {
		o.inquire()
		o.reportStalls()
	}
	if warns {
		o.comm.group.emit(o.event(Waiting, o.blamed()))
	}
}

// due says what is to be done now, and sets the clock for the next time. Other ranks are asked after twice the time, a wait is
// told of when it is twice as long (CL-TMO-12).
func (o *operation) due() (asks, warns, over bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	if !o.mu.ticked {
		o.mu.ticked = true
		o.setTimes()
	}
	if o.mu.ended {
		return false, false, false
	}
	if !o.mu.until.IsZero() && !now.Before(o.mu.until) {
		return false, false, true
	}
	if asks = !now.Before(o.mu.askAt); asks {
		o.mu.asked = true
		o.mu.pause = min(2*o.mu.pause, o.comm.group.inquireMost())
		o.mu.askAt = now.Add(o.mu.pause)
	}
	if warns = !o.mu.warnAt.IsZero() && !now.Before(o.mu.warnAt); warns {
		began := o.start()
		o.mu.warnAt = began.Add(2 * o.mu.warnAt.Sub(began))
	}
	o.mu.timer.Reset(o.next())
	return asks, warns, false
}

// inquireMost is the longest time between two questions: short enough to see a stall.
func (g *Group) inquireMost() time.Duration {
	if g.opt.Stall > 0 {
		return min(inquireMost, max(g.opt.Stall/4, inquireAfter))
	}
	return inquireMost
}

// inquire tells the ranks of linked processes what this rank does, and asks what they do: not only those that it waits
// for, since these may wait for another one.
func (o *operation) inquire() {
	if !o.call.ofAll() { // a transfer has only one other end, which compares its name; a one-sided operation has none
		return
	}
	for rank := range o.comm.Size() {
		o.comm.tellProgress(rank, o.seq, o.call.description, asks)
	}
}

// choice is how the call is carried out.
func (k *call) choice() (schedule.Algorithm, schedule.Job) {
	switch k.forced {
	case 0:
		return schedule.Choose(k.job, k.total)
	case ordered:
		return schedule.Ordered(k.job, k.total), k.job
	default:
		a := k.description.algorithm()
		return a, schedule.Pipelined(a, k.job, k.total)
	}
}
