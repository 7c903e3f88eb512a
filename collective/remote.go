package collective

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/lockrank"
	"github.com/serry-dev/serry/link"
)

const (
	// remoteBit marks the numbers of one-sided operations, which are counted for each ordered pair of ranks.
	remoteBit = 1 << 38

	maxErrands   = 256     // of one rank to another that are under way
	maxCounters  = 4096    // of a rank that are not zero
	maxUnknown   = 1 << 14 // errands for cliques that this process does not know yet
	maxUnknownOf = 1024    // of these, errands of one process
	errandBytes  = 64      // of payload; none has as many
)

// Kinds of ONESIDED frames; the step of the header has them.
const (
	putKind    = 0
	signalKind = 1
	doneKind   = 2 // the target has done all errands up to a number
)

// An errand is a Put or a Signal on its way.
type errand struct {
	kind   uint32
	number uint64 // among those of the origin to the target, from 1 on
	after  uint64 // of a put: it is written when the errands up to this number are done
	window uint64
	offset int64
	count  int64
	id     uint32
}

// append adds the payload of the frame of an errand. Its kind and its number are in the header.
func (e *errand) append(b []byte) []byte {
	le := binary.LittleEndian
	if e.kind == signalKind {
		return le.AppendUint32(b, e.id)
	}
	b = le.AppendUint64(b, e.after)
	b = le.AppendUint64(b, e.window)
	b = le.AppendUint64(b, uint64(e.offset))
	return le.AppendUint64(b, uint64(e.count))
}

func (r *reader) errand(kind uint32, number uint64) errand {
	e := errand{kind: kind, number: number}
	switch kind {
	case putKind:
		e.after, e.window, e.offset, e.count = r.uint64(), r.uint64(), int64(r.uint64()), int64(r.uint64())
	case signalKind:
		e.id = r.uint32()
	}
	return e
}

// word names the message with the bytes of a put.
func (e *errand) word() uint64 {
	return word(e.number|remoteBit, description{op: opNumber(put), count: e.count})
}

// A remote is what a rank knows of one-sided operations: its own, and those of others on it.
type remote struct {
	mu       lockrank.Mutex[remoteLock]
	changed  chan struct{} // closed when anything below changes; nil while no caller waits
	out      map[int]*outgoing
	in       map[int]*incoming
	counters map[counter]uint64 // signals that no WaitSignal has taken
	windows  map[uint64]*Window // of this rank
	hasty    bool               // plant.EarlySignal; set when the clique is made
}

// isBusy says whether a target has not told yet that it has done all that this rank did to it.
func (r *remote) isBusy() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range r.out {
		if o.done < o.issued {
			return true
		}
	}
	return false
}

// A counter counts signals.
type counter struct {
	from int
	id   uint32
}

// An outgoing is what this rank did to another one.
type outgoing struct {
	issued, done uint64 // numbers
	fence        uint64 // later puts come after this number
}

// An incoming is what another rank does to this one.
type incoming struct {
	done    uint64 // all errands up to this number are done
	pending map[uint64]*arrival
}

// An arrival is an errand that is not done yet.
type arrival struct {
	errand
	begun, written bool
}

// wake wakes the goroutines that wait for a change; mu is held.
func (r *remote) wake() {
	if r.changed != nil {
		close(r.changed)
		r.changed = nil
	}
}

// wait is closed at the next change; mu is held.
func (r *remote) wait() <-chan struct{} {
	if r.changed == nil {
		r.changed = make(chan struct{})
	}
	return r.changed
}

// until waits until ready, which is called with mu held, says so, or the clique or ctx ends.
func (r *remote) until(ctx context.Context, c *clique, ready func() bool) error {
	for {
		r.mu.Lock()
		if ready() {
			r.mu.Unlock()
			return nil
		}
		changed := r.wait()
		r.mu.Unlock()
		select {
		case <-changed:
		case <-c.ctx.Done():
			return context.Cause(c.ctx)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// to is what this rank did to another one; mu is held.
func (r *remote) to(rank int) *outgoing {
	if r.out == nil {
		r.out = make(map[int]*outgoing)
	}
	if r.out[rank] == nil {
		r.out[rank] = new(outgoing)
	}
	return r.out[rank]
}

func (r *remote) openWindows() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.windows)
}

// addWindow makes a window known, before any rank can put into it.
func (r *remote) addWindow(w *Window) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.windows == nil {
		r.windows = make(map[uint64]*Window)
	}
	r.windows[w.number] = w
}

func (r *remote) forgetWindow(w *Window) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.windows, w.number)
}

// A putting is a Put or a Signal of this rank.
type putting struct{ errand }

func (p *putting) begin(r *remote, op *operation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := r.to(int(op.call.root))
	o.issued++
	p.number, p.after = o.issued, o.fence
	op.seq = p.number | remoteBit
	op.word = p.word()
}

// carryOut tells the target, and gives it the bytes of a put. At most maxErrands are under way: more wait for the target.
func (p *putting) carryOut(ctx context.Context, op *operation) error {
	c, to := op.comm, int(op.call.root)
	op.waitFor(to) // the ranks that an operation waits for when it fails are named
	err := c.remote.until(ctx, c.clique, func() bool { return c.remote.out[to].done+maxErrands >= p.number })
	if err != nil {
		return err
	}
	if err := c.sendErrand(ctx, to, p.kind, p.number, p.append(nil)); err != nil {
		return &moveError{to, err}
	}
	if p.kind != putKind || p.count == 0 {
		return nil
	}
	return c.clique.exchange(ctx, message{op: op, peer: to}, op.call.in, false)
}

// exchange moves one message to its end.
func (c *clique) exchange(ctx context.Context, m message, b []byte, receive bool) error {
	t, err := c.post(ctx, m, [][]byte{b}, receive)
	if err != nil || t == nil {
		return err
	}
	if failed := c.failed.Load(); failed != nil { // the clique ended before it knew of the message
		t.Cancel(failed)
		return failed
	}
	if err := t.Wait(ctx); err != nil {
		return &moveError{m.peer, err}
	}
	return nil
}

// sendErrand sends a ONESIDED frame to a rank.
func (c *Comm) sendErrand(ctx context.Context, to int, kind uint32, number uint64, payload []byte) error {
	if other := c.clique.comms[to]; other != nil {
		r := reader{rest: payload}
		other.errandFrom(c.rank, r.errand(kind, number))
		return nil
	}
	l, err := c.clique.link(ctx, c.clique.key.Ranks[to].Life)
	if err != nil {
		return err
	}
	b := binary.LittleEndian.AppendUint16(nil, uint16(c.rank))
	b = append(binary.LittleEndian.AppendUint16(b, uint16(to)), payload...)
	_, err = l.Post(link.Header{Family: link.Collective, Type: link.OneSided, Class: link.Control, Stream: c.clique.stream,
		Generation: c.clique.key.Generation, Seq: number, Step: kind}, b)
	return err
}

// heardErrand takes a ONESIDED frame of another process.
func (c *clique) heardErrand(l *link.Link, h link.Header, payload []byte) {
	r := reader{rest: payload}
	from, to := int(r.uint16()), int(r.uint16())
	e := r.errand(h.Step, h.Seq)
	p := len(c.key.Ranks)
	if r.failed || from >= p || to >= p || c.comms[to] == nil || c.key.Ranks[from].Life != l.Peer() {
		return
	}
	c.use(l.Peer(), l)
	c.comms[to].errandFrom(from, e)
}

// errandFrom takes an errand of another rank, or its word that those of this one are done.
func (c *Comm) errandFrom(from int, e errand) {
	r := &c.remote
	if e.kind == doneKind {
		r.mu.Lock()
		defer r.mu.Unlock()
		if o := r.to(from); e.number > o.done && e.number <= o.issued {
			o.done = e.number
			r.wake()
		}
		return
	}
	r.mu.Lock()
	err := r.receive(from, e)
	begin, done, full := r.proceed(from)
	r.mu.Unlock()
	if full && err == nil {
		err = fmt.Errorf("more than %d counters of signals: %w", maxCounters, ErrFault)
	}
	c.react(from, begin, done, err)
}

// receive notes an errand; mu is held.
func (r *remote) receive(from int, e errand) error {
	if r.in == nil {
		r.in, r.counters = make(map[int]*incoming), make(map[counter]uint64)
	}
	in := r.in[from]
	if in == nil {
		in = &incoming{pending: make(map[uint64]*arrival)}
		r.in[from] = in
	}
	switch w := r.windows[e.window]; {
	case e.number <= in.done || e.number > in.done+maxErrands || in.pending[e.number] != nil || e.after >= e.number || e.kind > signalKind:
		return fmt.Errorf("one-sided operation %d of rank %d after %d: %w", e.number, from, in.done, ErrFault)
	case e.kind == putKind && (w == nil || !within(e.offset, e.count, int64(len(w.memory)))):
		return fmt.Errorf("rank %d puts %d bytes at offset %d of a window that is closed or smaller: %w", from, e.count, e.offset, ErrInvalid)
	}
	in.pending[e.number] = &arrival{errand: e}
	return nil
}

// hurry counts the signals that have come, though what was put before them is not written; mu is held.
func (r *remote) hurry(from int) {
	for _, a := range r.in[from].pending {
		if a.kind == signalKind && !a.written {
			a.written = true
			r.counters[counter{from, a.id}]++
			r.wake()
		}
	}
}

// proceed goes on with the errands of a rank as far as their order allows; mu is held. It returns the puts whose bytes can be
// taken now, and the number up to which all is done, or 0 if that has not changed.
func (r *remote) proceed(from int) (begin []errand, done uint64, full bool) {
	in := r.in[from]
	if r.hasty {
		r.hurry(from)
	}
	was := in.done
	for a := in.pending[in.done+1]; a != nil && (a.kind == signalKind || a.written); a = in.pending[in.done+1] {
		if at := (counter{from, a.id}); a.kind == signalKind && !a.written {
			full = full || len(r.counters) >= maxCounters && r.counters[at] == 0
			r.counters[at]++
		}
		in.done++
		delete(in.pending, in.done)
	}
	for n := in.done + 1; n <= in.done+maxErrands && len(in.pending) > 0; n++ {
		if a := in.pending[n]; a != nil && a.kind == putKind && !a.begun && a.after <= in.done {
			a.begun = true
			begin = append(begin, a.errand)
		}
	}
	if in.done == was {
		return begin, 0, full
	}
	r.wake()
	return begin, in.done, full
}

// react does what came out of an errand of another rank: it takes bytes, tells that rank how far it is, or ends the clique.
func (c *Comm) react(from int, begin []errand, done uint64, err error) {
	if c.clique.failed.Load() != nil { // then every errand fails, for the cause of the clique
		return
	}
	if err != nil {
		c.group.background(tellTime, func(context.Context) { c.clique.revoke(c.errandFault(from, err)) })
		return
	}
	for _, e := range begin {
		c.group.background(0, func(context.Context) { c.take(from, e) })
	}
	if done > 0 {
		c.tellDone(from, done)
	}
}

// errandFault is the cause of a clique in which a one-sided operation cannot be carried out.
func (c *Comm) errandFault(from int, err error) *Error {
	if moved, ok := errors.AsType[*moveError](err); ok && isLoss(err) {
		return c.clique.lossOf(c.clique.key.Ranks[from].Life, moved.err)
	}
	e := &Error{Origin: c.rank, Ranks: []int{from}, Detail: err.Error(), Err: ErrFault}
	if errors.Is(err, ErrInvalid) {
		e.Err = ErrInvalid
	}
	return e
}

// take takes the bytes of a put into the window.
func (c *Comm) take(from int, e errand) {
	c.remote.mu.Lock()
	w := c.remote.windows[e.window]
	c.remote.mu.Unlock()
	if w == nil || !w.enter() {
		c.react(from, nil, 0, fmt.Errorf("rank %d puts into a window that was closed: %w", from, ErrInvalid))
		return
	}
	var err error
	if e.count > 0 {
		op := &operation{comm: c, word: e.word()}
		err = c.clique.exchange(c.clique.ctx, message{op: op, peer: from}, w.memory[e.offset:e.offset+e.count], true)
	}
	w.exit()
	if err != nil {
		c.react(from, nil, 0, err)
		return
	}
	c.remote.mu.Lock()
	if a := c.remote.in[from].pending[e.number]; a != nil {
		a.written = true
	}
	begin, done, _ := c.remote.proceed(from)
	c.remote.mu.Unlock()
	c.react(from, begin, done, nil)
}

// tellDone tells a rank how far its one-sided operations are.
func (c *Comm) tellDone(to int, number uint64) {
	if err := c.sendErrand(c.clique.ctx, to, doneKind, number, nil); err != nil {
		c.group.log.Debug("one-sided operations not confirmed", "peer", c.clique.key.Ranks[to].Life.Task, "err", err)
	}
}

// noticedErrand is noticed for the bytes of a put, which may come before the frame that tells of them, and for the credit
// that a put of this rank gets before it has posted them.
func (c *Comm) noticedErrand(p progress, sends bool) (keep bool) {
	number := plainNumber(p.seq)
	c.remote.mu.Lock()
	defer c.remote.mu.Unlock()
	if sends {
		o := c.remote.to(p.rank)
		return number > o.done && number <= o.issued
	}
	in := c.remote.in[p.rank]
	return in == nil || number > in.done && number <= in.done+maxErrands
}

// A signalWait is a WaitSignal.
type signalWait struct{ need map[counter]uint64 }

func (signalWait) begin(*remote, *operation) {}

func (s signalWait) carryOut(ctx context.Context, op *operation) error {
	r := &op.comm.remote
	return r.until(ctx, op.comm.clique, func() bool {
		if s.missing(r, op) {
			return false
		}
		for at, n := range s.need {
			if r.counters[at] -= n; r.counters[at] == 0 {
				delete(r.counters, at)
			}
		}
		return true
	})
}

// missing notes which ranks the operation waits for, and says whether there are any; the lock of r is held.
func (s signalWait) missing(r *remote, op *operation) (any bool) {
	for at := range s.need {
		op.pending[at.from].Store(0)
	}
	for at, n := range s.need {
		if r.counters[at] < n {
			op.pending[at.from].Store(1)
			any = true
		}
	}
	return any
}

// A quieting is a Quiet: it has how much this rank has done to each other one.
type quieting struct{ issued map[int]uint64 }

func (q *quieting) begin(r *remote, _ *operation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	q.issued = make(map[int]uint64)
	for rank, o := range r.out {
		q.issued[rank] = o.issued
	}
}

func (q *quieting) carryOut(ctx context.Context, op *operation) error {
	return q.await(ctx, op.comm, func(rank int, n int32) { op.pending[rank].Add(n) })
}

// await waits for all targets. It tells note which it waits for.
func (q *quieting) await(ctx context.Context, c *Comm, note func(rank int, n int32)) error {
	r := &c.remote
	for rank, n := range q.issued {
		note(rank, 1)
		if err := r.until(ctx, c.clique, func() bool { return r.out[rank].done >= n }); err != nil {
			return err
		}
		note(rank, -1)
	}
	return nil
}

// A fencing is a Fence.
type fencing struct{}

func (fencing) begin(r *remote, _ *operation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range r.out {
		o.fence = o.issued
	}
}

func (fencing) carryOut(context.Context, *operation) error { return nil }

// settleErrands waits until the errands of all ranks of this process are done at their targets, or the clique ends.
func (c *clique) settleErrands(ctx context.Context) error {
	for _, comm := range c.comms {
		if comm == nil {
			continue
		}
		q := new(quieting)
		q.begin(&comm.remote, nil)
		if err := q.await(ctx, comm, func(int, int32) {}); err != nil && c.failed.Load() == nil {
			return err
		}
	}
	return nil
}

// An unknownErrand is a ONESIDED frame for a clique that this process does not know yet: another member was faster.
type unknownErrand struct {
	link    *link.Link
	header  link.Header
	payload []byte
}

// keepErrand keeps a ONESIDED frame until its clique is known. Of too many the oldest are dropped, and their senders
// told that the clique has ended: an errand must not be lost without a word.
func (g *Group) keepErrand(l *link.Link, h link.Header, payload []byte) {
	var dropped []unknownErrand
	g.mu.Lock()
	over := g.mu.closed || g.mu.over[h.Stream] != nil
	if !over && len(payload) <= errandBytes {
		g.mu.errands = append(g.mu.errands, unknownErrand{l, h, append([]byte(nil), payload...)})
		dropped = g.dropErrands(l.Peer())
	}
	g.mu.Unlock()
	if over {
		g.tellOver(l, h)
	}
	for _, e := range dropped {
		g.refuse(e.link, e.header, &Error{Detail: fmt.Sprintf("%v holds too much for cliques that it does not know", g.life.Task), Err: ErrFault})
	}
}

// dropErrands drops the oldest errand of a process that has too many, or of all; mu is held. One process cannot take the room
// of all.
func (g *Group) dropErrands(from serry.Life) (dropped []unknownErrand) {
	isFrom := func(e unknownErrand) bool { return e.link.Peer() == from }
	count := 0
	for _, e := range g.mu.errands {
		if isFrom(e) {
			count++
		}
	}
	at := -1
	switch {
	case count > maxUnknownOf:
		at = slices.IndexFunc(g.mu.errands, isFrom)
	case len(g.mu.errands) > maxUnknown:
		at = 0
	default:
		return nil
	}
	dropped = append(dropped, g.mu.errands[at])
	g.mu.errands = slices.Delete(g.mu.errands, at, at+1)
	return dropped
}

// takeErrands are the errands that came before their clique was known; mu is held.
func (g *Group) takeErrands(stream uint64) (list []unknownErrand) {
	g.mu.errands = slices.DeleteFunc(g.mu.errands, func(e unknownErrand) bool {
		if e.header.Stream != stream {
			return false
		}
		list = append(list, e)
		return true
	})
	return list
}
