package collective

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/lockrank"
	"github.com/serry-dev/serry/internal/plant"
	"github.com/serry-dev/serry/link"
)

// A clique is the part of a clique that lives in this process. Its communicators share it.
type clique struct {
	// Set when it is made, then constant.
	group   *Group
	key     *Key
	meeting uint64 // the meeting in which it was formed, and which attempt of it
	attempt uint32
	stream  uint64 // of its frames
	backend Backend
	comms   []*Comm      // by rank; nil for ranks of other processes
	first   *Comm        // the lowest of this process
	local   []uint8      // by rank: its number among the ranks of its process
	others  []serry.Life // the other processes, sorted
	hosts   []uint16     // of each process, in the order of Key.Lives: the number of its host; or nil
	even    int          // the ranks lie on so many hosts, as many on each, in order; 0 if they do not
	ctx     context.Context
	cancel  context.CancelCauseFunc // ends what waits for links

	failed atomic.Pointer[Error] // why it has ended, or nil
	run    atomic.Uint64         // that has acquired it, or 0
	holder *grant                // of that run, or nil; guarded by the lock of the group's locks
	mail   mailbox
	spares struct{ operations, calls sync.Pool } // that have ended, for the next ones

	sharing *sharing // through which ranks of one host work; nil where they lie on several

	mu struct {
		lockrank.Mutex[cliqueLock]
		refs     int // calls of Clique without a Close
		lineage  *lineage
		next     *forming // of the clique that takes the place of this one, or nil
		idle     idleness
		stepping int                       // ranks of this process that are in a step
		stepped  bool                      // a step has failed, or this process does not know its outcome
		doubt    bool                      // this process does not know the outcome of a step
		links    map[serry.Life]*link.Link // those it has used
		running  map[*operation]bool
		drained  chan struct{}            // closed when none run; nil while no caller waits
		leaving  bool                     // this process wants to
		left     map[serry.Life]departure // processes that want to leave
		parted   map[serry.Life]bool      // processes that may leave, or let this one
		changed  chan struct{}            // closed when parted changes
	}
}

// newClique makes a clique that was formed.
func newClique(g *Group, m *meeting, l *lineage) *clique {
	key := m.key
	c := &clique{group: g, key: key, stream: m.stream, backend: m.backend, meeting: m.name, attempt: m.attempt, hosts: m.hosts}
	c.even = evenHosts(key, m.hosts)
	if sharable(key, m.hosts) {
		c.sharing = &sharing{clique: c, ready: make(chan struct{})}
	}
	c.mu.lineage = l
	c.ctx, c.cancel = context.WithCancelCause(g.ctx)
	c.mu.links = make(map[serry.Life]*link.Link)
	c.mu.running = make(map[*operation]bool)
	c.mu.left = make(map[serry.Life]departure)
	c.mu.parted = make(map[serry.Life]bool)
	c.mu.changed = make(chan struct{})
	c.comms, c.local = make([]*Comm, len(key.Ranks)), make([]uint8, len(key.Ranks))
	seen := make(map[serry.Life]uint8)
	for rank, p := range key.Ranks {
		c.local[rank] = seen[p.Life]
		seen[p.Life]++
		if p.Life != g.life {
			continue
		}
		c.comms[rank] = &Comm{group: g, clique: c, rank: rank, progress: link.NewProgress(c.progressOf(rank)), peers: make([]talliedPeer, len(key.Ranks))}
		c.comms[rank].remote.hasty = g.opt.Planted.Has(plant.EarlySignal)
		c.comms[rank].sharer.comm = c.comms[rank]
		c.comms[rank].mu.record = newRecorder(g.opt.Records)
		if c.first == nil {
			c.first = c.comms[rank]
		}
	}
	for _, l := range key.Lives() {
		if l != g.life {
			c.others = append(c.others, l)
		}
	}
	return c
}

// evenHosts is on how many hosts the ranks of a key lie, if it is several, with several ranks on each, as many on all of them, in
// order; else 0. Algorithms that combine inside hosts first need that.
func evenHosts(key *Key, hosts []uint16) int {
	lives := key.Lives()
	if len(hosts) != len(lives) {
		return 0
	}
	var runs []int // ranks on each host, in order
	seen, last := make(map[uint16]bool), -1
	for _, p := range key.Ranks {
		i, _ := slices.BinarySearchFunc(lives, p.Life, serry.Life.Compare)
		if h := hosts[i]; int(h) != last {
			if seen[h] {
				return 0
			}
			seen[h], last = true, int(h)
			runs = append(runs, 0)
		}
		runs[len(runs)-1]++
	}
	if len(runs) < 2 || runs[0] < 2 || slices.ContainsFunc(runs, func(n int) bool { return n != runs[0] }) {
		return 0
	}
	return len(runs)
}

// equip makes the communicators of the backend.
func (c *clique) equip(ctx context.Context) error {
	local := c.key.RanksOf(c.group.life)
	made, err := c.backend.Create(ctx, c.key, local)
	if err != nil {
		return err
	}
	for i, m := range made {
		c.comms[local[i]].native = m
	}
	return nil
}

// A message names a message of an operation.
type message struct {
	op     *operation
	peer   int // rank
	number uint16
	tile   uint32
}

// header is the name of a message on a link. The step holds the number of the message and which ranks of the two
// processes it is between. The offset only keeps the tiles of a message apart.
func (c *clique) header(m message, receive bool) link.Header {
	from, to := m.op.comm.rank, m.peer
	if receive {
		from, to = to, from
	}
	return link.Header{
		Family: link.Collective, Type: link.CollectiveData, Stream: c.stream, Generation: c.key.Generation,
		Seq: m.op.word, Step: uint32(m.number)<<16 | uint32(c.local[from])<<8 | uint32(c.local[to]), Offset: uint64(m.tile) << 32,
	}
}

// post posts a message, or memory for one. There is no ticket of a message that has been moved when it returns.
func (c *clique) post(ctx context.Context, m message, segs [][]byte, receive bool) (ticket, error) {
	if c.comms[m.peer] != nil {
		name := letterName{word: m.op.word, from: m.op.comm.rank, to: m.peer, number: m.number, tile: m.tile}
		if receive {
			name.from, name.to = name.to, name.from
		}
		l, err := c.mail.post(name, segs, receive)
		switch {
		case err != nil:
			return nil, &moveError{m.peer, err}
		case l == nil:
			return nil, nil
		}
		return l, nil
	}
	l, err := c.link(ctx, c.key.Ranks[m.peer].Life)
	if err != nil {
		return nil, &moveError{m.peer, err}
	}
	var t *link.Ticket
	if h := c.header(m, receive); receive {
		t, err = l.Expect(h, segs...)
	} else {
		t, err = l.Post(h, segs...)
	}
	if err != nil {
		return nil, &moveError{m.peer, err}
	}
	return t, nil
}

// A moveError is what happened to a message to or from a rank.
type moveError struct {
	rank int
	err  error
}

func (e *moveError) Error() string { return fmt.Sprintf("rank %d: %v", e.rank, e.err) }
func (e *moveError) Unwrap() error { return e.err }

// link is the link to a process. It ends when the clique does.
func (c *clique) link(ctx context.Context, peer serry.Life) (*link.Link, error) {
	if l := c.linked(peer); l != nil {
		return l, nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(c.ctx, func() { cancel(context.Cause(c.ctx)) })()
	l, err := c.group.net.Link(ctx, peer)
	if err != nil {
		return nil, err
	}
	return c.use(peer, l), nil
}

// use notes a link that the clique uses from now on, unless it has one.
func (c *clique) use(peer serry.Life, l *link.Link) *link.Link {
	c.mu.Lock()
	known := c.mu.links[peer]
	if known == nil {
		c.mu.links[peer] = l
	}
	c.mu.Unlock()
	if known != nil {
		return known
	}
	c.carry(l)
	return l
}

// carry lets the pings of a link tell the peer how far the ranks of this process are (CL-TMO-11). Without room for
// that the peer knows less of a rank that stands still; nothing else depends on it.
func (c *clique) carry(l *link.Link) {
	for _, comm := range c.first.Local() {
		if err := l.Carry(comm.progress); err != nil {
			c.group.log.Debug("progress not told", "peer", l.Peer().Task, "err", err)
		}
	}
	if c.ctx.Err() != nil { // stop may have been here before
		l.Forget(link.Collective, c.stream, c.key.Generation, context.Cause(c.ctx))
	}
}

// progressOf names the progress of a rank in pings.
func (c *clique) progressOf(rank int) link.Header {
	return link.Header{Family: link.Collective, Stream: c.stream, Generation: c.key.Generation, Step: uint32(rank)}
}

// linked is the link to a process that the clique has used, or nil.
func (c *clique) linked(peer serry.Life) *link.Link {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.links[peer]
}

// isCutOff says whether the link to a process that the clique has used is down.
func (c *clique) isCutOff(peer serry.Life) bool {
	l := c.linked(peer)
	return l != nil && l.Err() != nil
}

// brokenLink is the cause of a clique whose link to a member is down, or nil.
func (c *clique) brokenLink() *Error {
	for _, peer := range c.others {
		if c.isCutOff(peer) {
			return c.lossOf(peer, c.linked(peer).Err())
		}
	}
	return nil
}

// meshed is how many processes a clique may have for all of them to be linked with each other from the beginning.
const meshed = 16

// neighbours are the processes that this one tells of a failure itself: all of a small clique; of a large one those
// 1, 2, 4 and so on places away. Each passes on what it is told, so that all hear of it within log p steps.
func (c *clique) neighbours() []serry.Life {
	if len(c.others) < meshed {
		return c.others
	}
	all := c.key.Lives()
	me, p := slices.Index(all, c.group.life), len(all)
	var list []serry.Life
	for far := 1; far < p; far *= 2 {
		list = append(list, all[(me+far)%p], all[(me-far+p)%p])
	}
	slices.SortFunc(list, serry.Life.Compare)
	return slices.Compact(list)
}

// connect links this process with its neighbours, so that each sees at once when another ends.
func (c *clique) connect() {
	var all sync.WaitGroup
	for _, peer := range c.neighbours() {
		all.Go(func() {
			if _, err := c.link(c.ctx, peer); err != nil && c.ctx.Err() == nil && !c.hasParted(peer) {
				c.revoke(c.lossOf(peer, err))
			}
		})
	}
	all.Wait()
}

// holds says whether a process is a member.
func (c *clique) holds(l serry.Life) bool {
	_, found := slices.BinarySearchFunc(c.others, l, serry.Life.Compare)
	return found
}

// revoke ends the clique for a cause, unless a stronger one has ended it, and tells the other members. It returns the
// cause that holds. When it returns, no message of the clique is under way in this process.
func (c *clique) revoke(e *Error) *Error {
	held := c.failed.Load()
	for {
		if !e.outranks(held) {
			return held
		}
		if c.failed.CompareAndSwap(held, e) {
			break
		}
		held = c.failed.Load()
	}
	c.tell(e)
	if held == nil {
		if !errors.Is(e, ErrClosed) {
			c.group.tally.aborted.Add(1)
		}
		c.group.log.Info("clique revoked", "clique", c.key.String(), "err", e)
		c.group.retire(c)
		c.stop(e)
		c.gather(e)
	}
	return e
}

// stop cancels everything that is under way.
func (c *clique) stop(cause error) {
	c.cancel(cause)
	c.mail.fail(cause)
	if c.sharing != nil {
		c.sharing.stop()
	}
	c.unshare()
	c.mu.Lock()
	links := make([]*link.Link, 0, len(c.mu.links))
	for _, l := range c.mu.links {
		links = append(links, l)
	}
	c.mu.Unlock()
	for _, l := range links {
		l.Forget(link.Collective, c.stream, c.key.Generation, cause)
	}
	if c.first.native != nil {
		c.group.background(0, func(context.Context) { c.free() })
	}
}

// free frees what the backend holds, once no operation runs.
func (c *clique) free() {
	if c.drain(context.Background()) != nil {
		return
	}
	for _, comm := range c.comms {
		if comm != nil && comm.native != nil {
			comm.native.Close()
		}
	}
}

// tellTime bounds how long a member tries to reach another one to tell it of a failure.
const tellTime = 10 * time.Second

// tell tells the other members why the clique has ended: at once over the links that there are, then over new links
// to neighbours. Notices travel with the class of control, which never waits behind data (CL-ABT-15).
func (c *clique) tell(e *Error) {
	skip := serry.Life{}
	if c.group.opt.Planted.Has(plant.MissRevoke) {
		skip = c.key.Ranks[len(c.key.Ranks)-1].Life
	}
	near := c.neighbours()
	if c.backend.Alone() {
		return
	}
	for _, peer := range c.others {
		if peer == skip || errors.Is(e.Err, ErrPeerFailed) && peer == e.Life {
			continue
		}
		if l := c.linked(peer); l != nil {
			c.notify(l, e)
		} else if slices.Contains(near, peer) {
			c.group.background(tellTime, func(ctx context.Context) {
				if l, err := c.group.net.Link(ctx, peer); err == nil {
					c.notify(l, e)
				}
			})
		}
	}
}

// notify sends one notice. A peer that cannot be told loses its link, or has lost it, and hears of that.
func (c *clique) notify(l *link.Link, e *Error) {
	h := link.Header{Family: link.Collective, Type: link.Revoke, Class: link.Control, Stream: c.stream, Generation: c.key.Generation}
	if _, err := l.Post(h, e.append(nil)); err != nil {
		c.group.log.Debug("member not told", "peer", l.Peer().Task, "err", err)
	}
}

// told takes a notice of another member.
func (c *clique) told(from serry.Life, payload []byte) {
	e, err := parseError(payload)
	if err != nil || !c.holds(from) || !c.plausible(e) {
		return
	}
	c.revoke(e)
}

// plausible says whether a notice can be of this clique. A program may look up the ranks that it names, and the lost one.
func (c *clique) plausible(e *Error) bool {
	if errors.Is(e, ErrPeerFailed) && (len(e.Ranks) != 1 || !e.within(c.key) || c.key.Ranks[e.Ranks[0]].Life != e.Life) {
		return false
	}
	return e.within(c.key)
}

// lossOf is the cause of a clique that lost a member, or the link to it.
func (c *clique) lossOf(peer serry.Life, err error) *Error {
	return lossOf(c.key, c.first.rank, peer, err)
}

func lossOf(key *Key, me int, peer serry.Life, err error) *Error {
	ranks := key.RanksOf(peer)
	e := &Error{Origin: me, Detail: err.Error(), Err: ErrTransport}
	loss, ok := errors.AsType[*link.LossError](err)
	if ok {
		e.Detail = loss.Reason.Error()
	}
	switch {
	case ok && errors.Is(loss, link.ErrClosed):
		e.Err = ErrClosed
	case errors.Is(err, ErrPeerFailed):
		e.Err, e.Ranks, e.Life = ErrPeerFailed, ranks[:1], peer
	default:
		e.Ranks = []int{min(me, ranks[0]), max(me, ranks[0])}
	}
	return e
}

// begin numbers an operation and notes that it runs, in one step: a member that leaves must not find it numbered and not
// running. It says whether a rank has begun a different one.
func (c *clique) begin(op *operation) (rank int, differs bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.running[op] = true
	return op.comm.number(op)
}

// end notes an operation that has ended.
func (c *clique) end(op *operation) {
	c.mu.Lock()
	delete(c.mu.running, op)
	if len(c.mu.running) == 0 && c.mu.drained != nil {
		close(c.mu.drained)
		c.mu.drained = nil
	}
	leaving := len(c.mu.left) > 0
	c.mu.Unlock()
	if leaving {
		c.farewell()
	}
	c.unshare()
}

// unshare frees the shared memory of a clique that has ended, once no operation runs. None will begin.
func (c *clique) unshare() {
	if c.sharing == nil || c.failed.Load() == nil {
		return
	}
	c.mu.Lock()
	idle := len(c.mu.running) == 0
	c.mu.Unlock()
	if idle {
		c.sharing.close()
	}
}

// drain waits until no operation runs in this process.
func (c *clique) drain(ctx context.Context) error {
	c.mu.Lock()
	if len(c.mu.running) == 0 {
		c.mu.Unlock()
		return nil
	}
	if c.mu.drained == nil {
		c.mu.drained = make(chan struct{})
	}
	drained := c.mu.drained
	c.mu.Unlock()
	select {
	case <-drained:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
