package transfer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/plant"
	"github.com/serry-dev/serry/link"
	"github.com/serry-dev/serry/transfer/internal/match"
)

const (
	maxLive = 1 << 15 // halves of transfers with one peer at a time; more wait for their turn

	maxSpare = 4 // frames whose memory is kept for the next ones

	leastRedial = 50 * time.Millisecond
	mostRedial  = 2 * time.Second
)

// A peer has the transfers with one life of another task. All that happens is queued in an inbox; one goroutine at a time,
// which ends when the inbox is empty, takes it from there, so the machine needs no lock, and a slow peer holds up no other.
type peer struct {
	// Set in newPeer, then constant.
	engine *Engine
	life   serry.Life

	puts uint64 // keys that Put has used; guarded by the lock of the engine's puts

	// Owned by the goroutine that runs the inbox.
	machine    *match.Machine
	ops        map[match.Ref]*operation
	backlog    []*operation                 // that wait for others to end
	lines      map[[2]serry.DeviceID]*Event // by source and destination: that all sends which keep the order have ended
	link       *link.Link                   // or nil
	former     *link.Link                   // the one before, or nil: what still comes from it is late
	over       bool                         // the life is
	outbox     []frame
	spare      [][]byte // memory of frames that were sent
	intake     intake
	shared     sharing
	held       map[match.Ref]*operation // sends that have ended, and whose memory the peer may read
	timer      *time.Timer              // for the machine, or nil
	redial     time.Duration
	draining   map[match.Ref]*operation // that have ended, and whose memory a device uses
	watching   bool                     // a timer looks at what waits
	waiters    []chan struct{}          // to be closed when there are no operations
	asks       asks
	deliveries map[match.ID]*delivery // requests of the peer that wait for their offers, or are answered

	mu struct {
		sync.Mutex
		inbox    []func()
		running  bool
		closed   bool
		dialling bool
		need     link.Need             // what the link is needed for, although nothing is queued
		known    map[match.Number]bool // transfers that data or credit may come for
		stages   map[match.Number]bool // sends from devices: what credit comes for is to be staged
	}
}

func newPeer(e *Engine, life serry.Life) *peer {
	p := &peer{
		engine: e, life: life, ops: make(map[match.Ref]*operation), held: make(map[match.Ref]*operation),
		draining: make(map[match.Ref]*operation), deliveries: make(map[match.ID]*delivery),
		lines: make(map[[2]serry.DeviceID]*Event),
	}
	p.machine = match.New(match.Config{
		Odd: e.life.Compare(life) < 0, Peer: fmt.Sprintf("%v incarnation %d", life.Task, life.Incarnation),
		Detection: e.opt.Detection, Stall: e.opt.Stall, Live: maxLive, Planted: e.opt.Planted,
	})
	p.mu.known, p.mu.stages = make(map[match.Number]bool), make(map[match.Number]bool)
	return p
}

func (p *peer) now() match.Time { return p.engine.now() }

// do queues something for the goroutine of the peer. It never blocks, so goroutines of links may call it.
func (p *peer) do(f func()) { p.try(f) }

// doHere is do by the goroutine of the caller, unless another one is at it: for what is short, and often comes alone. What comes meanwhile is left
// to the goroutine of the peer.
func (p *peer) doHere(f func()) {
	if !p.tryHere(f) {
		p.do(f)
	}
}

// tryHere is doHere, if it is false nothing was done.
func (p *peer) tryHere(f func()) bool {
	p.mu.Lock()
	if p.mu.closed || p.mu.running {
		p.mu.Unlock()
		return false
	}
	p.mu.running = true // the inbox is empty
	p.engine.work.Add(1)
	p.mu.Unlock()
	defer p.engine.work.Done()
	f()
	p.perform()
	if p.step() {
		p.engine.work.Go(p.run)
	}
	return true
}

// try is do. It is false if the peer is closed: then nothing is queued.
func (p *peer) try(f func()) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.closed {
		return false
	}
	p.mu.inbox = append(p.mu.inbox, f)
	if !p.mu.running {
		p.mu.running = true
		p.engine.work.Go(p.run)
	}
	return true
}

// run takes from the inbox until it is empty.
func (p *peer) run() {
	for p.step() {
	}
}

// step does what is in the inbox, and says whether there is more.
func (p *peer) step() bool {
	for _, f := range p.takeInbox() {
		f()
		p.perform()
	}
	p.flush()
	p.flushAsks()
	p.setTimer()
	need := p.need()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.running, p.mu.need = len(p.mu.inbox) > 0, need
	return p.mu.running
}

func (p *peer) takeInbox() []func() {
	p.mu.Lock()
	defer p.mu.Unlock()
	batch := p.mu.inbox
	p.mu.inbox = nil
	return batch
}

// need says what the link is needed for. A transfer whose halves have not met goes on without it when it comes back; so does the
// question how one ended.
func (p *peer) need() link.Need {
	switch {
	case p.machine.Met():
		return link.Needed
	case p.machine.Busy() || p.machine.Awaited() || len(p.backlog)+len(p.held)+len(p.deliveries) > 0:
		return link.Waiting
	}
	return link.Unneeded
}

// needs is need for other goroutines.
func (p *peer) needs() link.Need {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.running {
		return link.Needed
	}
	return p.mu.need
}

// close has nothing more be queued. What is in the inbox is still done.
func (p *peer) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.closed = true
}

// knows says whether data or credit may come for a transfer.
func (p *peer) knows(n match.Number) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.known[n]
}

func (p *peer) setKnown(n match.Number, known bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if known {
		p.mu.known[n] = true
	} else {
		delete(p.mu.known, n)
		delete(p.mu.stages, n)
	}
}

// setTimer has the machine called when it wants to be.
func (p *peer) setTimer() {
	at := p.machine.Deadline()
	switch {
	case at == match.Never && p.timer != nil:
		p.timer.Stop()
	case at == match.Never:
	case p.timer == nil:
		p.timer = time.AfterFunc(at-p.now(), func() { p.do(func() { p.machine.Advance(p.now()) }) })
	default:
		p.timer.Reset(at - p.now())
	}
}

// perform does what the machine wants.
func (p *peer) perform() {
	for list := p.machine.Take(); len(list) > 0; list = p.machine.Take() {
		for _, a := range list {
			switch a := a.(type) {
			case *match.Tell:
				p.tell(a)
			case match.Take:
				p.ops[a.Ref].carried(a.Data)
			case match.Move:
				p.ops[a.Ref].move(p.link, a.Number, a.Ranges)
			case match.Expect:
				p.ops[a.Ref].expect(p.link, a)
			case match.Stop:
				p.ops[a.Ref].stop()
			case match.End:
				p.end(p.ops[a.Ref], a)
			case match.Release:
				p.held[a.Ref].release()
				delete(p.held, a.Ref)
			case match.Correct:
				p.engine.correct(a)
			}
		}
	}
	if len(p.ops)+len(p.backlog)+len(p.draining) == 0 {
		for _, w := range p.waiters {
			close(w)
		}
		p.waiters = nil
	}
}

// A frame is messages of one kind that are about to be sent.
type frame struct {
	kind    match.Kind
	payload []byte
}

// tell adds a message to the frames that are sent next. It is written here and now: the memory of data that it carries may be
// used for something else when the transfer has ended.
func (p *peer) tell(t *match.Tell) {
	const most = link.ControlBytes - 32<<10 // the longest message has 17 KiB
	m := t.Message
	if o := p.ops[t.Ref]; m.Kind == match.Offer && o != nil {
		p.setKnown(m.Number, true) // credit may come before the answer
		o.number = m.Number
		if o.stager != nil {
			p.setStages(m.Number)
		}
		if t.Carry {
			o.path = ByLink
			if o.starts == 0 { // else it is carried once more, because it was asked for
				o.begin()
			}
			m.Data = o.memory.Bytes()
		}
	}
	n := len(p.outbox)
	if n > 0 && len(p.outbox[n-1].payload) >= most {
		p.flush() // the peer can begin with it
		n = 0
	}
	if n == 0 || p.outbox[n-1].kind != m.Kind {
		p.outbox = append(p.outbox, frame{m.Kind, p.emptyPayload()})
		n++
	}
	f := &p.outbox[n-1]
	f.payload = appendMessage(f.payload, m)
}

// emptyPayload is memory for a frame.
func (p *peer) emptyPayload() []byte {
	n := len(p.spare)
	if n == 0 {
		return nil
	}
	b := p.spare[n-1]
	p.spare = p.spare[:n-1]
	return b[:0]
}

// setStages notes that a number is that of a send from a device.
func (p *peer) setStages(n match.Number) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.stages[n] = true
}

// stages says whether a number is that of a send from a device.
func (p *peer) stages(n match.Number) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.stages[n]
}

// flush sends the frames that have gathered. A frame that the link does not take is lost: the sender of the transfer asks
// again.
func (p *peer) flush() {
	for _, f := range p.outbox {
		if p.link != nil {
			p.link.Post(link.Header{Family: link.Transfer, Type: frameTypes[f.kind], Class: link.Control}, f.payload) // which copies it
		}
		if len(p.spare) < maxSpare {
			p.spare = append(p.spare, f.payload)
		}
	}
	clear(p.outbox)
	p.outbox = p.outbox[:0]
}

// post begins an operation.
func (p *peer) post(o *operation) {
	o.ref = p.engine.newRef()
	o.Ref = o.ref
	if o.op.InOrder && o.send {
		p.line(o)
	}
	if o.packing != nil {
		p.startPacking(o)
	}
	p.admit(o)
	p.connect()
	p.watchLater()
}

// line puts a send behind those between its two devices that keep the order. It waits until they have ended, however they ended: both
// sides then see them end one after the other (TR-ORD-8). One that ends early, because it was cancelled, lets no later one pass those
// before it.
func (p *peer) line(o *operation) {
	pair := [2]serry.DeviceID{o.op.Src, o.op.Dst}
	wait := []*Event{o.event}
	if o.before = p.lines[pair]; o.before != nil {
		wait = append(wait, o.before)
	}
	all := p.engine.pool.ended(wait...)
	p.lines[pair] = all
	all.onEnd(func() {
		p.do(func() {
			if p.lines[pair] == all {
				delete(p.lines, pair)
			}
		})
	})
}

// admit gives an operation to the machine, or lets it wait until others have ended.
func (p *peer) admit(o *operation) {
	if o.waiting = len(p.ops) >= maxLive; o.waiting {
		p.backlog = append(p.backlog, o)
		return
	}
	ready := o.ready()
	o.entered, o.admitted = true, p.now()
	o.Carried = o.carries()
	o.defined = ready.State() == Complete
	o.Ready = o.defined && p.locate(o)
	p.ops[o.ref] = o
	if err := p.machine.Post(o.admitted, o.Op); err != nil {
		delete(p.ops, o.ref)
		o.finish(err)
		o.release()
		return
	}
	if o.request != nil {
		p.ask(o)
	}
	if !o.defined {
		if o.send && o.stager != nil {
			ready.onRecorded(func() { p.do(func() { o.recorded(ready) }) })
		}
		ready.onEnd(func() { p.do(func() { o.prepared(ready.Err()) }) })
	}
}

// end tells the program how an operation ended, and lets the next one of the backlog begin.
func (p *peer) end(o *operation, end match.End) {
	v := end.Verdict
	delete(p.ops, o.ref)
	o.unpark()
	p.unask(o)
	p.leave()
	if o.number != 0 {
		p.setKnown(o.number, false)
		if v.Code != match.OK && p.link != nil && !p.engine.opt.Planted.Has(plant.LooseMemory) {
			p.link.Forget(link.Transfer, uint64(o.number), 0, ErrCancelled)
		}
	}
	switch {
	case o.packing != nil && !o.send && v.Code == match.OK:
		p.unpack(o, end)
	case o.copies > 0:
		o.ending = &match.End{Ref: end.Ref, Verdict: v, Held: end.Held}
		p.draining[o.ref] = o
		if o.send && !o.defined { // the device only waits to read it: see park.go
			o.finish(o.error(v))
		}
	default:
		p.conclude(o, end)
	}
	for len(p.backlog) > 0 && len(p.ops) < maxLive {
		next := p.backlog[0]
		p.backlog[0] = nil
		p.backlog = p.backlog[1:]
		if next.waiting { // it was not cancelled meanwhile
			p.admit(next)
		}
	}
}

// conclude tells the program how an operation ended.
func (p *peer) conclude(o *operation, end match.End) {
	o.finish(o.error(end.Verdict))
	if end.Held {
		p.held[o.ref] = o
	} else {
		o.release()
	}
}

// settle tells the program of an end, once the device does not use the memory any more.
func (p *peer) settle(o *operation) {
	if o.ending != nil && o.copies == 0 {
		delete(p.draining, o.ref)
		p.conclude(o, *o.ending)
		p.forgetIfOver()
	}
}

// strand ends the operations whose memory a device has not done with in time. The memory is never given back.
func (p *peer) strand() {
	for _, ref := range slices.Sorted(maps.Keys(p.draining)) {
		o := p.draining[ref]
		delete(p.draining, ref)
		o.ending.Held = false
		o.keep()
		p.conclude(o, *o.ending)
	}
}

// forgetIfOver has the engine forget a peer whose life is over, once no device uses memory of its operations.
func (p *peer) forgetIfOver() {
	e := p.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	if p.over && len(p.draining) == 0 {
		delete(e.mu.leaving, p)
	}
}

// credited hears that the receiver has memory for a piece of a send from a device.
func (p *peer) credited(n match.Number, offset int64) {
	ref, ok := p.machine.Sender(n)
	switch o := p.ops[ref]; {
	case !ok || o == nil:
	case o.staged != nil:
		o.staged.credited(offset)
	default:
		o.keepCredit(offset)
	}
}

// cancel ends an operation for its program.
func (p *peer) cancel(o *operation, v match.Verdict) {
	if o.waiting {
		o.waiting = false
		o.finish(o.error(v))
		o.release()
		return
	}
	p.machine.Cancel(p.now(), o.ref, v)
}

// dropBacklog ends the operations that wait for their turn.
func (p *peer) dropBacklog(err error) {
	for _, o := range p.backlog {
		if o.waiting {
			o.waiting = false
			o.finish(err)
			o.release()
		}
	}
	p.backlog = nil
}

// cancelAll ends all operations because the engine is closed.
func (p *peer) cancelAll() {
	p.dropBacklog(ErrAborted)
	for ref := range p.ops {
		p.machine.Cancel(p.now(), ref, match.Verdict{Code: match.Aborted, Text: "its engine was closed"})
	}
}

// drained is closed when there are no operations.
func (p *peer) drained() <-chan struct{} {
	c := make(chan struct{})
	if !p.try(func() { p.waiters = append(p.waiters, c) }) {
		close(c)
	}
	return c
}

// connect makes sure that there is a link, or that one is being made, while something needs it.
func (p *peer) connect() {
	if p.over || p.link != nil || !p.machine.Busy() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.dialling || p.mu.closed {
		return
	}
	p.mu.dialling = true
	p.engine.work.Go(func() {
		l, err := p.engine.net.Link(p.engine.ctx, p.life)
		p.mu.Lock()
		p.mu.dialling = false
		p.mu.Unlock()
		p.do(func() { p.dialled(l, err) })
	})
}

// dialled takes the outcome of a dial.
func (p *peer) dialled(l *link.Link, err error) {
	switch {
	case err == nil:
		p.adopt(l)
	case errors.Is(err, link.ErrPeerFailed) || errors.Is(err, serry.ErrStale):
		p.lose(err.Error())
	case p.engine.ctx.Err() != nil || errors.Is(err, context.Canceled):
	default:
		p.redial = min(max(2*p.redial, leastRedial), mostRedial)
		time.AfterFunc(p.redial, func() { p.do(p.connect) })
	}
}

// adopt takes a link that is new.
func (p *peer) adopt(l *link.Link) {
	if p.over || l == p.link || l == p.former {
		p.connect()
		return
	}
	if l.Err() != nil {
		p.connect()
		return
	}
	p.detach()
	p.link, p.redial = l, 0
	p.machine.Up(p.now())
	p.announceAll()
	p.asks.wait = firstAsk / 2
	p.askAgain()
}

// detach lets go of the link: nothing is moved by it any more.
func (p *peer) detach() {
	if p.link == nil {
		return
	}
	p.perform() // what the machine wanted while there was contact
	for _, o := range p.ops {
		o.suspend()
	}
	p.intake = intake{}
	p.unshare()
	p.link, p.former = nil, p.link
	p.outbox, p.asks.outbox = nil, nil
	p.machine.Down(p.now())
	p.perform()
}

// disconnected hears that a link is down.
func (p *peer) disconnected(err error) {
	if p.link != nil && p.link.Err() != nil {
		p.detach()
	}
	if errors.Is(err, link.ErrPeerFailed) {
		p.lose(err.Error())
		return
	}
	p.connect()
}

// lose ends everything, because the life of the peer is over.
func (p *peer) lose(why string) { p.finish(why, p.machine.Lose) }

// abandon ends everything, because the engine was closed. The peer may live, and read what it was told to be able to read: that
// memory is never given back.
func (p *peer) abandon() {
	p.finish("the engine was closed", p.machine.Abandon)
	p.perform()
	for _, o := range p.held {
		o.keep()
	}
}

func (p *peer) finish(why string, end func(match.Time, match.Verdict)) {
	if p.over {
		return
	}
	p.detach()
	p.over = true
	p.endDeliveries()
	p.dropBacklog(fmt.Errorf("%w: %s", ErrUnavailable, why))
	end(p.now(), match.Verdict{Code: match.Unavailable, Text: why[:min(len(why), match.MaxText)]})
	p.perform()
	e := p.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.mu.peers[p.life] == p {
		delete(e.mu.peers, p.life)
	}
	if len(p.draining) > 0 {
		e.mu.leaving[p] = true
	}
}

// receive takes messages of the peer. A link that they come by is up.
func (p *peer) receive(l *link.Link, messages []match.Message) {
	if !p.current(l) {
		return
	}
	now := p.now()
	for _, m := range messages {
		p.machine.Receive(now, m)
	}
}

// current says whether a link that something came by is the present one: it is adopted if it is new, and not if it is down.
func (p *peer) current(l *link.Link) bool {
	if l != p.link {
		p.adopt(l)
	}
	return l == p.link
}
