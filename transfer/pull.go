package transfer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/link"
	"github.com/serry-dev/serry/memory"
	"github.com/serry-dev/serry/transfer/internal/match"
	"github.com/serry-dev/serry/transfer/offer"
)

// pullNamespace has the keys of pulls. Programs use others.
const pullNamespace = putNamespace + 1

const (
	firstAsk = time.Second // after which a request without an answer is repeated, then after twice as long each time
	lastAsk  = 30 * time.Second
)

// A Want is a buffer of an offer, or a part of one, that a consumer pulls.
type Want struct {
	Index  int            // of the buffer in the offer
	View   View           // of the buffer
	Device serry.DeviceID // of this process, which gets the data

	// Buffer is the memory, whose content the pull defines; nil means that the engine takes memory for Spec. Spec is that of the
	// whole buffer, which the producer has, too. A part is only compared by its size.
	Buffer *Buffer
	Spec   Spec

	Class Class
}

// Pull asks for buffers of an offer of another process. It does not wait: the offer may come later. Each of the wants is a
// transfer of its own, and the group is like one of [Engine.Transfer].
func (e *Engine) Pull(ctx context.Context, h Handle, wants []Want) (*Group, error) {
	if len(wants) == 0 {
		return nil, invalid("a pull of nothing")
	}
	deadline := e.deadline(ctx)
	g := &Group{engine: e}
	for i, w := range wants {
		o, err := e.preparePull(ctx, h, w, deadline)
		if err != nil {
			g.release(err)
			return nil, fmt.Errorf("pull %d of %d: %w", i, len(wants), err)
		}
		g.ops = append(g.ops, o)
	}
	g.start()
	g.watch(ctx)
	return g, nil
}

func (e *Engine) preparePull(ctx context.Context, h Handle, w Want, deadline match.Time) (*operation, error) {
	src, ok := e.deviceOf(h.From.Task)
	if !ok || w.Index < 0 {
		return nil, invalid("buffer %d of %v", w.Index, h.From.Task)
	}
	op := Op{
		Key: Key{Namespace: pullNamespace, Seq: uint64(e.newRef())}, Src: src, Dst: w.Device, Buffer: w.Buffer, Spec: w.Spec, Class: w.Class,
	}
	o := &operation{posted: e.now()}
	err := e.prepare(ctx, o, op, deadline)
	if err != nil {
		return nil, err
	}
	if o.peer.life != h.From {
		err = fmt.Errorf("offer %d: incarnation %d of %v is stale: %w", h.ID, h.From.Incarnation, h.From.Task, ErrStale)
	}
	if !w.View.Whole() && err == nil {
		var bytes int64
		if bytes, err = w.View.measure(math.MaxInt64); err == nil && bytes != o.Shape.Bytes {
			err = invalid("a view of %d bytes for a buffer of %d", bytes, o.Shape.Bytes)
		}
		o.Shape = partShape(o.Shape.Bytes)
	}
	if err != nil {
		o.drop(err)
		return nil, err
	}
	o.request = &request{id: o.ID, offer: h.ID, token: h.Token, index: uint32(w.Index), class: o.Class, view: w.View}
	return o, nil
}

// partShape is that of a part of a buffer: it is only compared by its size.
func partShape(bytes int64) match.Shape {
	return match.Shape{Bytes: bytes, Text: fmt.Sprintf("part of %d bytes", bytes)}
}

// deviceOf is the first device that a task drives.
func (e *Engine) deviceOf(task serry.TaskID) (serry.DeviceID, bool) {
	owners := *e.owners.Load()
	if owners == nil {
		return serry.DeviceID(task.Index), task.Job == e.life.Task.Job
	}
	first, found := serry.DeviceID(0), false
	for d, owner := range owners {
		if owner == task && (!found || d < first) {
			first, found = d, true
		}
	}
	return first, found
}

// asks of a peer are the requests of this process that the producer has not answered by an offer.
type asks struct {
	open   map[match.Ref]*operation
	outbox []request
	timer  *time.Timer // or nil
	wait   time.Duration
}

// ask asks the producer for the data of a receive, until it has answered.
func (p *peer) ask(o *operation) {
	if p.asks.open == nil {
		p.asks.open = make(map[match.Ref]*operation)
	}
	p.asks.open[o.ref] = o
	p.queueAsk(o)
	if len(p.asks.open) == 1 {
		p.asks.wait = firstAsk
		p.setAskTimer()
	}
}

func (p *peer) queueAsk(o *operation) {
	if p.link == nil {
		return // it is asked when there is a link
	}
	q := *o.request
	if o.Deadline < match.Never {
		q.within = max(o.Deadline-p.now(), 1)
	}
	p.asks.outbox = append(p.asks.outbox, q)
}

func (p *peer) setAskTimer() {
	if p.asks.timer == nil {
		p.asks.timer = time.AfterFunc(p.asks.wait, func() { p.do(p.askAgain) })
	} else {
		p.asks.timer.Reset(p.asks.wait)
	}
}

// askAgain repeats the requests that have no answer.
func (p *peer) askAgain() {
	for _, ref := range slices.Sorted(maps.Keys(p.asks.open)) {
		if p.machine.Paired(ref) {
			delete(p.asks.open, ref)
			continue
		}
		p.queueAsk(p.asks.open[ref])
	}
	if len(p.asks.open) > 0 {
		p.asks.wait = min(2*p.asks.wait, lastAsk)
		p.setAskTimer()
	}
}

// unask tells the producer that a receive has ended which it has not answered.
func (p *peer) unask(o *operation) {
	if p.asks.open[o.ref] != o {
		return
	}
	delete(p.asks.open, o.ref)
	if p.link != nil && o.number == 0 {
		p.asks.outbox = append(p.asks.outbox, request{forget: true, id: o.ID})
	}
	if len(p.asks.open) == 0 && p.asks.timer != nil {
		p.asks.timer.Stop()
	}
}

// flushAsks sends the requests that have gathered, as few frames. A frame that the link does not take is repeated.
func (p *peer) flushAsks() {
	const most = link.ControlBytes - 1<<10 // the longest request has less
	for len(p.asks.outbox) > 0 && p.link != nil {
		var payload []byte
		for len(p.asks.outbox) > 0 && len(payload) < most {
			payload = appendRequest(payload, p.asks.outbox[0])
			p.asks.outbox = p.asks.outbox[1:]
		}
		p.link.Post(link.Header{Family: link.Transfer, Type: link.Pull, Class: link.Control}, payload)
	}
	p.asks.outbox = nil
}

// asked takes requests of the peer, each of which may have come before.
func (p *peer) asked(list []request) {
	if p.over {
		return
	}
	for _, q := range list {
		d := p.deliveries[q.id]
		switch {
		case q.forget && d != nil:
			delete(p.deliveries, q.id)
			p.engine.withdrawn(d)
		case q.forget || d != nil || p.machine.Used(q.id):
		case len(p.deliveries) >= maxRequests:
			limit := &serry.LimitError{Limit: "requests of one peer", Max: maxRequests}
			p.machine.Refuse(p.now(), q.id, match.Verdict{Code: match.Exhausted, Text: limit.Error()})
		default:
			d = &delivery{request: q, peer: p, expires: match.Never}
			if q.within > 0 {
				d.expires = p.now() + min(q.within, match.Never-p.now())
			}
			p.deliveries[q.id] = d
			p.engine.requested(d)
		}
	}
}

// refuse answers a request by an error. Locks may be held.
func (d *delivery) refuse(err error) {
	d.peer.do(func() {
		if d.peer.deliveries[d.id] == d {
			delete(d.peer.deliveries, d.id)
			d.peer.machine.Refuse(d.peer.now(), d.id, refusalOf(err))
		}
	})
}

// refusalOf is what a consumer is told of a request that is refused.
func refusalOf(err error) match.Verdict {
	code := codeOf(err)
	_, index := errors.AsType[*offer.IndexError](err)
	switch {
	case index:
		code = match.Invalid
	case errors.Is(err, offer.ErrExpired):
		code = match.Late
	case errors.Is(err, offer.ErrFull):
		code = match.Exhausted
	case errors.Is(err, offer.ErrFetched):
		code = match.Stale
	case errors.Is(err, offer.ErrWithdrawn), errors.Is(err, offer.ErrReset):
		code = match.Cancelled
	}
	text := "the offer: " + err.Error()
	return match.Verdict{Code: code, Text: text[:min(len(text), match.MaxText)]}
}

// deliver answers a request by a send. The offer counts it as a reader.
func (p *peer) deliver(d *delivery, x *Offered) {
	b := x.buffers[d.index]
	bytes, err := d.view.measure(b.memory.Region.Len())
	var staged *stager
	if b.memory.Region.Space() == memory.Device && err == nil {
		if staged, err = p.engine.stagerOf(b.Device()); len(d.view.Counts) > 0 {
			err = fmt.Errorf("parts of memory of a device that do not lie in a row: %w", ErrUnsupported)
		}
	}
	if err == nil && p.deliveries[d.id] != d {
		err = ErrCancelled
	}
	if err != nil {
		d.refuse(err)
		p.engine.delivered(d, x, 0, err)
		x.unread()
		return
	}
	o := &operation{
		op:   Op{Key: Key{d.id.Namespace, d.id.Key}, Src: d.id.Src, Dst: d.id.Dst, Buffer: b, Class: classOf(link.Class(d.class))},
		peer: p, send: true, posted: p.now(), buffer: b, memory: b.memory.Region, offered: x, stager: staged,
	}
	o.Op = match.Op{Send: true, ID: d.id, Class: d.class, Deadline: d.expires, Shape: partShape(bytes)}
	if d.expires == match.Never && p.engine.opt.Timeout > 0 {
		o.Deadline = p.now() + p.engine.opt.Timeout
	}
	if d.view.Whole() {
		o.Shape, _ = shapeOf(b.Spec())
	}
	var read *Event
	o.promise, o.event = p.engine.pool.ownEvent()
	o.reading, read = p.engine.pool.ownEvent()
	read.onEnd(x.unread)
	o.event.onEnd(func() {
		if p.deliveries[d.id] == d {
			delete(p.deliveries, d.id)
		}
		p.engine.delivered(d, x, bytes, o.event.Err())
	})
	p.part(o, d.view, bytes, x)
	p.post(o)
}

// part lets a send have a part of its buffer. One that does not lie in a row is gathered first, when the data are there.
func (p *peer) part(o *operation, v View, bytes int64, x *Offered) {
	if v.Whole() {
		return
	}
	if len(v.Counts) == 0 {
		o.memory = o.memory.Slice(v.Offset, v.Offset+v.Run)
		return
	}
	e, from := p.engine, o.memory
	promise, gathered := e.pool.Event()
	o.op.After = []*Event{gathered}
	o.memory = memory.Region{}
	x.read()
	o.buffer.Definition().After(func(err error) {
		if err != nil {
			x.unread()
			promise.Set(err)
			return
		}
		e.staging.take(p.life, bytes, func() {
			e.pool.run(func() {
				packed := make([]byte, bytes)
				v.gather(packed, from.Bytes())
				x.unread()
				o.event.onEnd(func() { e.staging.give(p.life, bytes) })
				p.do(func() { o.memory = memory.Of(packed) })
				promise.Set(nil)
			})
		})
	})
}

// read notes a reader of the memory of an offer.
func (x *Offered) read() {
	x.engine.offers.Lock()
	defer x.engine.offers.Unlock()
	x.under++
}

// endDeliveries takes the requests of a peer back whose life is over.
func (p *peer) endDeliveries() {
	for _, id := range slices.SortedFunc(maps.Keys(p.deliveries), match.ID.Compare) {
		d := p.deliveries[id]
		delete(p.deliveries, id)
		p.engine.withdrawn(d)
	}
}

// classOf is the class of a transfer by that of the link.
func classOf(c link.Class) Class {
	for _, class := range []Class{Urgent, Bulk} {
		if class.link() == c {
			return class
		}
	}
	return Normal
}

// deadline is when transfers end whose context this is.
func (e *Engine) deadline(ctx context.Context) match.Time {
	at, ok := ctx.Deadline()
	switch {
	case ok:
		return at.Sub(e.began)
	case e.opt.Timeout > 0:
		return e.now() + e.opt.Timeout
	}
	return match.Never
}
