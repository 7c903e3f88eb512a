package transfer

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"math"
	"runtime/trace"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/plant"
	"github.com/serry-dev/serry/link"
	"github.com/serry-dev/serry/memory"
	"github.com/serry-dev/serry/transfer/internal/match"
	"github.com/serry-dev/serry/transfer/offer"
	"github.com/serry-dev/serry/wire"
)

const (
	defaultTimeout = 5 * time.Minute
	maxRecords     = 4096

	blockOps = 16 // operations of a group that share a piece of memory

	// deviceLimit is how long Close waits for devices that copy: a copy takes milliseconds, and a device that hangs never ends it.
	deviceLimit = 10 * time.Second
)

// A Member is what an Engine needs of the job; *client.Member satisfies it.
type Member interface {
	// Watch tells how all tasks are.
	Watch(ctx context.Context) iter.Seq2[serry.Snapshot, error]
}

// An answerer is a member that people can ask about its process; *client.Member is one.
type answerer interface {
	Answer(kind string, answer func(ctx context.Context, argument string, most int) []byte)
}

// Options say how an Engine works. The zero value is right for a job with one device a task.
type Options struct {
	// Owners has the task that drives each device. Nil means that device n is driven by task n of the job.
	Owners map[serry.DeviceID]serry.TaskID

	// Timeout bounds every transfer whose context has no deadline. Zero means 5 minutes; less means no bound.
	Timeout time.Duration

	// Alloc takes memory for receives that bring none. Nil means memory of the Go heap. Memory of a [memory.Arena] can be sent
	// on to processes of this host without a system call for its bytes.
	Alloc func(bytes int64) (Memory, error)

	// Devices drives the devices of this process whose memory is not that of the host, by their numbers. Receives that bring no
	// memory get it from the device that they are for, unless there is an Alloc.
	Devices map[serry.DeviceID]Device

	Detection time.Duration // how long a verdict is waited for after a deadline or a cancellation; 0 means 3s
	Stall     time.Duration // after which a transfer that gets no byte fails; 0 means 20s

	Log *slog.Logger // or nil

	Planted plant.Faults // none, but in tests of tests
}

// An Engine moves buffers between the devices of this process and those of others. Make it with New.
type Engine struct {
	// Set in New, then constant.
	net   *link.Net
	life  serry.Life
	opt   Options
	pool  *Pool
	log   *slog.Logger
	began time.Time
	ctx   context.Context // of everything in the background
	stop  context.CancelCauseFunc

	work    sync.WaitGroup
	copier  copier
	offers  offers
	figures figures
	owners  atomic.Pointer[map[serry.DeviceID]serry.TaskID] // the task that drives each device; nil means that of its number
	shapes  shapes
	lastRef atomic.Uint64

	staging   staging // where parts are gathered that are sent
	unpacking staging // where parts are received that do not lie in a row
	registry  registry
	puts      sync.Mutex // held by Put while it takes keys

	mu struct {
		sync.Mutex
		closed  bool
		tasks   map[serry.TaskID]serry.TaskInfo // as the service told last
		peers   map[serry.Life]*peer
		leaving map[*peer]bool // whose lives are over, while devices use memory of their operations
		records []Record       // the last ones
		oldest  int            // the place of the oldest record, once there are as many as are kept
		stagers map[serry.DeviceID]*stager
	}
}

// A Record is what is kept of a transfer that has ended.
type Record struct {
	Send      bool
	Key       Key
	Src, Dst  serry.DeviceID
	Peer      serry.Life
	Bytes     int64
	Elapsed   time.Duration // which has three parts:
	Queued    time.Duration // until it could be offered, because others had to end first
	Waited    time.Duration // from then until bytes moved: for the other half, for data, memory and contact
	Moved     time.Duration // from then until the end
	Resumed   int           // how often bytes moved again, after contact was lost
	Path      Path
	Err       error // or nil
	Corrected bool  // Err is what the receiver said later; the event of the transfer had another error

	ref match.Ref
}

// A Path says how bytes of a transfer moved.
type Path string

// The paths. That of a transfer which moved no bytes is empty.
const (
	ByLink    Path = "link"
	ByMemory  Path = "shared memory"
	ByStaging Path = "staging" // by the link, from or to memory of a device
)

// New makes the engine of a member over its link layer. It waits until the service has told how the tasks are.
func New(ctx context.Context, m Member, net *link.Net, o Options) (*Engine, error) {
	e := &Engine{net: net, life: net.Life(), opt: o, pool: new(Pool), log: o.Log, began: time.Now()}
	if e.log == nil {
		e.log = slog.New(slog.DiscardHandler)
	}
	e.SetOwners(o.Owners)
	e.opt.Timeout = cmp.Or(e.opt.Timeout, defaultTimeout)
	e.mu.peers, e.mu.leaving = make(map[serry.Life]*peer), make(map[*peer]bool)
	e.mu.stagers = make(map[serry.DeviceID]*stager)
	e.offers.table = offer.NewTable(offer.Limits{})
	e.offers.present, e.offers.tickets = make(map[offer.Serial]*Offered), make(map[offer.Ticket]*delivery)
	e.ctx, e.stop = context.WithCancelCause(context.WithoutCancel(ctx))
	if err := net.Handle(link.Transfer, e); err != nil {
		return nil, err
	}
	if a, ok := m.(answerer); ok {
		a.Answer(wire.TransfersEvidence, e.testify)
	}
	told := make(chan error, 1)
	e.work.Go(func() { e.watch(m, told) })
	select {
	case err := <-told:
		if err != nil {
			e.stop(err)
			return nil, fmt.Errorf("tasks of the job: %w", err)
		}
		return e, nil
	case <-ctx.Done():
		e.stop(context.Cause(ctx))
		return nil, context.Cause(ctx)
	}
}

// alloc takes memory for data that come to a device.
func (e *Engine) alloc(d serry.DeviceID, bytes int64) (m Memory, err error) {
	switch device := e.opt.Devices[d]; {
	case e.opt.Alloc != nil:
		m, err = e.opt.Alloc(bytes)
	case device != nil:
		m.Region, err = device.Alloc(bytes)
	default:
		m.Region = memory.Of(make([]byte, bytes))
	}
	if err == nil && m.Region.Len() != bytes {
		err = fmt.Errorf("%d bytes were asked for, %d given", bytes, m.Region.Len())
	}
	m.Device = d
	return m, err
}

// Pool is that of the events and buffers of the engine.
func (e *Engine) Pool() *Pool { return e.pool }

// watch notes how tasks are, and ends the transfers with lives that are over. told hears of the first picture.
func (e *Engine) watch(m Member, told chan<- error) {
	for s, err := range m.Watch(e.ctx) {
		if err != nil {
			select {
			case told <- err:
			default: // New has returned
			}
			return
		}
		e.mu.Lock()
		e.mu.tasks = make(map[serry.TaskID]serry.TaskInfo, len(s.Tasks))
		for _, t := range s.Tasks {
			e.mu.tasks[t.Task] = t
		}
		var over []*peer
		for life, p := range e.mu.peers {
			if t, ok := e.mu.tasks[life.Task]; ok && (t.Incarnation != life.Incarnation || t.State == serry.Failed) {
				over = append(over, p)
			}
		}
		e.mu.Unlock()
		for _, p := range over {
			p.do(func() { p.lose(fmt.Sprintf("incarnation %d of %v is over", p.life.Incarnation, p.life.Task)) })
		}
		select {
		case told <- nil:
		default:
		}
	}
}

// now is the time of machines.
func (e *Engine) now() match.Time { return time.Since(e.began) }

// owner is the task that drives a device.
func (e *Engine) owner(d serry.DeviceID) (serry.TaskID, bool) {
	if owners := *e.owners.Load(); owners != nil {
		task, ok := owners[d]
		return task, ok
	}
	return serry.TaskID{Job: e.life.Task.Job, Index: int(d)}, d >= 0
}

// SetOwners says which task drives each device from now on, as [Options] did before: a task that was restarted may drive other
// devices than it did. Transfers that have begun are between lives, and go on as they began.
func (e *Engine) SetOwners(owners map[serry.DeviceID]serry.TaskID) {
	owners = maps.Clone(owners)
	e.owners.Store(&owners)
}

// peerOf finds the peer for the present life of a task.
func (e *Engine) peerOf(task serry.TaskID) (*peer, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	t, ok := e.mu.tasks[task]
	switch {
	case e.mu.closed:
		return nil, ErrAborted
	case !ok:
		return nil, invalid("the job has no task %v", task)
	case t.State != serry.Connected:
		return nil, fmt.Errorf("task %v: %w", task, serry.ErrNotConnected)
	}
	return e.peer(serry.Life{Task: task, Incarnation: t.Incarnation}), nil
}

// peer finds or makes the peer for a life; mu is held.
func (e *Engine) peer(life serry.Life) *peer {
	p := e.mu.peers[life]
	if p == nil {
		p = newPeer(e, life)
		e.mu.peers[life] = p
	}
	return p
}

// known finds the peer of a link that the other side made, or makes it if that life is present.
func (e *Engine) known(life serry.Life) *peer {
	e.mu.Lock()
	defer e.mu.Unlock()
	if p := e.mu.peers[life]; p != nil {
		return p
	}
	if t, ok := e.mu.tasks[life.Task]; e.mu.closed || ok && t.Incarnation != life.Incarnation && t.State == serry.Connected {
		return nil
	}
	return e.peer(life)
}

// Transfer begins a group of transfers: sends and receives, with any number of peers. It never waits for a peer. Every
// argument is checked before anything begins: an error means that nothing has happened. The context bounds the transfers,
// also after the call has returned: when it ends they do.
func (e *Engine) Transfer(ctx context.Context, ops []Op) (*Group, error) {
	if len(ops) == 0 {
		return nil, invalid("a group without transfers")
	}
	defer trace.StartRegion(ctx, traceCall).End()
	deadline := e.deadline(ctx)
	g := &Group{engine: e, ops: make([]*operation, 0, len(ops))}
	posted := e.now()
	var p *peer // of the transfer before: that of the next one, mostly
	var block []operation
	for i, op := range ops {
		if len(block) == 0 {
			block = make([]operation, min(len(ops)-i, blockOps))
		}
		o := &block[0]
		block = block[1:]
		o.posted, o.peer = posted, p
		if err := e.prepare(ctx, o, op, deadline); err != nil {
			g.release(err)
			return nil, fmt.Errorf("transfer %d of %d: %w", i, len(ops), err)
		}
		g.ops, p = append(g.ops, o), o.peer
	}
	g.start()
	g.watch(ctx)
	return g, nil
}

// prepare makes an op an operation, which is new, but for when it was posted and its likely peer, or nil. It checks the op, and takes what it
// needs in this process.
func (e *Engine) prepare(ctx context.Context, o *operation, op Op, deadline match.Time) error {
	src, known := e.owner(op.Src)
	dst, alsoKnown := e.owner(op.Dst)
	o.op, o.send = op, src == e.life.Task
	remote := dst
	if !o.send {
		remote = src
	}
	switch {
	case !known || !alsoKnown:
		return invalid("devices %d and %d: one is unknown", op.Src, op.Dst)
	case src == dst && o.send:
		return invalid("devices %d and %d are both of this process", op.Src, op.Dst)
	case !o.send && dst != e.life.Task:
		return invalid("devices %d and %d are both of other processes", op.Src, op.Dst)
	}
	if o.peer == nil || o.peer.life.Task != remote {
		p, err := e.peerOf(remote)
		if err != nil {
			return err
		}
		o.peer = p
	}
	if err := o.take(ctx, e); err != nil {
		return err
	}
	spec := o.buffer.Spec()
	if o.packing != nil {
		spec = op.Spec
	}
	shape, err := e.shapes.of(spec)
	if err != nil {
		o.drop(err)
		return err
	}
	o.Op = match.Op{
		Send: o.send, ID: match.ID{Namespace: op.Key.Namespace, Key: op.Key.Seq, Src: op.Src, Dst: op.Dst},
		Shape: shape, Class: uint8(op.Class.link()), Deadline: deadline,
	}
	return nil
}

// newRef draws the name of an operation.
func (e *Engine) newRef() match.Ref { return match.Ref(e.lastRef.Add(1)) }

// release ends the operations of a group that does not begin.
func (g *Group) release(err error) {
	for _, o := range g.ops {
		o.drop(err)
	}
}

// start lets the operations of a group begin.
func (g *Group) start() {
	g.items = make([]Item, len(g.ops))
	for i, o := range g.ops {
		o.group = g
		g.items[i] = Item{o.buffer, o.event}
	}
	g.open.Store(int64(len(g.ops)))
	traceGroup(g)
	g.done, g.failed = &Event{pool: g.engine.pool}, &Event{pool: g.engine.pool}
	g.each(func(o *operation) { o.peer.post(o) })
}

// Records are the last transfers that have ended, the oldest first.
func (e *Engine) Records() []Record {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Concat(e.mu.records[e.mu.oldest:], e.mu.records[:e.mu.oldest])
}

// record keeps a transfer that has ended.
func (e *Engine) record(r Record) {
	e.figures.count(r)
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.mu.records) < maxRecords {
		e.mu.records = append(e.mu.records, r)
		return
	}
	e.mu.records[e.mu.oldest] = r
	e.mu.oldest = (e.mu.oldest + 1) % maxRecords
}

// correct notes the verdict of a send that had ended unconfirmed.
func (e *Engine) correct(c match.Correct) {
	e.figures.corrected.Add(1)
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range e.mu.records {
		r := &e.mu.records[i]
		if r.ref != c.Ref {
			continue
		}
		r.Err, r.Corrected = nil, true
		if v := c.Verdict; v.Code != match.OK {
			r.Err = &Error{Send: true, Key: r.Key, Src: r.Src, Dst: r.Dst, Peer: r.Peer, Bytes: r.Bytes, Path: r.Path, Elapsed: r.Elapsed,
				Text: v.Text, Err: sentinelOf(v.Code), code: v.Code}
		}
		e.log.Info("transfer confirmed late", "peer", r.Peer.Task, "key", r.Key.String(), "err", r.Err)
	}
}

// Frame implements link.Handler.
func (e *Engine) Frame(l *link.Link, h link.Header, payload []byte) {
	switch h.Type {
	case link.Return:
		e.returned(l, payload)
		return
	case link.Pull:
		e.pulled(l, payload)
		return
	}
	kind := kindOf(h.Type)
	if kind == 0 {
		return // of a newer version
	}
	messages, err := parseMessages(kind, payload)
	p := e.known(l.Peer())
	if err != nil || p == nil {
		e.log.Warn("frame of a transfer refused", "peer", l.Peer().Task, "err", err)
		return
	}
	if p.tryHere(func() { p.receive(l, messages) }) {
		return
	}
	for i := range messages { // the payload belongs to the link
		messages[i].Data = bytes.Clone(messages[i].Data)
	}
	p.do(func() { p.receive(l, messages) })
}

// returned takes a frame that says that the peer has closed an arena.
func (e *Engine) returned(l *link.Link, payload []byte) {
	if p := e.known(l.Peer()); p != nil && len(payload) == 8 {
		name := binary.LittleEndian.Uint64(payload)
		p.do(func() { p.returned(l, name) })
	}
}

// pulled takes a frame with requests for what this process offers.
func (e *Engine) pulled(l *link.Link, payload []byte) {
	list, err := parseRequests(payload)
	p := e.known(l.Peer())
	if err != nil || p == nil {
		e.log.Warn("frame of a pull refused", "peer", l.Peer().Task, "err", err)
		return
	}
	p.do(func() {
		if p.current(l) {
			p.asked(list)
		}
	})
}

// Unexpected implements link.Handler: it says whether data, or credit, are for a transfer that has not ended. Credit for a piece
// of a send from a device is what the piece waits for.
func (e *Engine) Unexpected(l *link.Link, h link.Header) bool {
	e.mu.Lock()
	p := e.mu.peers[l.Peer()]
	e.mu.Unlock()
	n := match.Number(h.Stream)
	if p == nil || !p.knows(n) {
		return false
	}
	if !h.Data() && h.Offset <= math.MaxInt64 && p.stages(n) {
		p.do(func() { p.credited(n, int64(h.Offset)) })
	}
	return true
}

// Needs implements link.Keeper: it says whether transfers with a peer have not ended, and whether both halves of one have met.
func (e *Engine) Needs(life serry.Life) link.Need {
	e.mu.Lock()
	p := e.mu.peers[life]
	e.mu.Unlock()
	if p == nil {
		return link.Unneeded
	}
	return p.needs()
}

// Event implements link.Handler.
func (e *Engine) Event(event link.Event) {
	e.mu.Lock()
	p := e.mu.peers[event.Peer]
	e.mu.Unlock()
	if p == nil {
		return
	}
	switch event.Kind {
	case link.LinkUp:
		p.do(p.connect)
	case link.LinkDown:
		p.do(func() { p.disconnected(event.Err) })
	}
}

// Close ends all transfers, and tells the peers. It waits for their verdicts until ctx ends, and then until devices have done
// with memory that they were told to copy, for at most 10 s: memory that a device has not done with by then is never given back.
// A second call does nothing.
func (e *Engine) Close(ctx context.Context) {
	e.mu.Lock()
	if e.mu.closed {
		e.mu.Unlock()
		return
	}
	e.mu.closed = true
	e.mu.Unlock()
	peers := e.allPeers()
	e.closeOffers()
	for _, p := range peers {
		p.do(p.cancelAll)
	}
	for _, p := range peers {
		select {
		case <-p.drained():
		case <-ctx.Done():
		}
	}
	for _, p := range peers {
		p.do(p.abandon)
	}
	e.leaveDevices(peers)
	e.stop(ErrAborted)
	e.work.Wait()
	e.pool.Flush()
}

// leaveDevices waits until devices do not use memory of operations any more, and gives up on those that go on for too long.
func (e *Engine) leaveDevices(peers []*peer) {
	ctx, cancel := context.WithTimeout(context.Background(), deviceLimit)
	defer cancel()
	e.mu.Lock()
	for p := range e.mu.leaving {
		peers = append(peers, p)
	}
	e.mu.Unlock()
	for _, p := range peers {
		select {
		case <-p.drained():
		case <-ctx.Done():
			p.do(p.strand)
			<-p.drained()
		}
		p.close()
	}
	for _, s := range e.mu.stagers { // no call adds one any more
		if !s.recorder.Flush(ctx) {
			e.log.Warn("device does not end its copies: their memory is not freed", "after", deviceLimit)
			continue
		}
		s.unpin(e.log)
	}
}
