package collective

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/link"
)

// A clique that no caller holds stays formed for the next one. When a process has too many of them, or one was idle for too
// long, it is closed, on all members (CL-CCH-4).
//
// Members cannot decide that each for itself. The calls of Clique come at different moments in different processes: a member
// whose clique is idle would close it while the program of another one has got it and waits in an operation, and that
// operation would fail without a fault. So the members agree. The process of rank 0 decides. It asks all others. Each agrees if no
// caller holds the clique there, and from then on it hands the clique out to no caller until it knows the outcome. If all have
// agreed, then no process holds the clique, and none can get it: the process of rank 0 leaves it like every process that closes a
// clique, and the others follow. If one refuses, or does not answer in time, the clique stays, and counts as used just now. A caller
// that asks for the clique meanwhile waits for the outcome, which is one round trip away.
//
// So at every moment either all processes find the old clique, or all form the next one, and no operation fails because
// of its age. Another process that has too many idle cliques asks that of rank 0 to begin.

// More steps of LEAVE, with the number of the round as Seq.
const (
	proposesClose = 2 // to the process of rank 0: begin a round
	asksClose     = 3 // the process of rank 0: may it be closed?
	agreesClose   = 4
	refusesClose  = 5
	keeps         = 6 // the process of rank 0: it is not closed
)

// roundTime bounds how long the members are waited for. A process that stands still for longer is lost with its link.
const roundTime = 10 * time.Second

// An idleness is what a process knows of a clique that no caller holds.
type idleness struct {
	since    time.Time
	state    idleState
	round    uint64              // which it has agreed to; on the process of rank 0, the last that has begun
	outcome  chan struct{}       // of that round: closed when it is known here; nil before the first
	answers  map[serry.Life]bool // on the process of rank 0, during a round: those that have agreed
	answered chan struct{}       // the same: closed when all have agreed, or one has refused
	refused  bool                // the same: one has
}

type idleState int

const (
	usable   idleState = iota
	proposed           // this process wants it to be closed, and has told that of rank 0; callers get it
	agreed             // this process has agreed: no caller gets it
	closing            // all have agreed
)

// hold notes that a caller has the clique, and says so; not if the clique may be closed at any moment.
func (c *clique) hold() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.idle.state >= agreed {
		return false
	}
	c.mu.idle.state = usable
	c.mu.refs++
	return true
}

// holdOrAwait is hold. If a round is under way it waits for the outcome, and then it is the caller that tries again.
func (c *clique) holdOrAwait(ctx context.Context) (held bool, err error) {
	if c.hold() {
		return true, nil
	}
	again := time.NewTicker(leaveAgain)
	defer again.Stop()
	for {
		c.mu.Lock()
		outcome, round, waits := c.mu.idle.outcome, c.mu.idle.round, c.mu.idle.state == agreed
		c.mu.Unlock()
		if !waits {
			return false, nil
		}
		select {
		case <-outcome:
			return false, nil
		case <-c.ctx.Done():
			return false, nil
		case <-again.C: // the word of the outcome was dropped, if there were too many others before it
			c.remind(round)
		case <-ctx.Done():
			return false, c.group.gaveUp(ctx, c.first.rank, nil, "the members have not agreed yet whether to close the idle clique")
		}
	}
}

// remind has the process of rank 0 tell the outcome of a round again.
func (c *clique) remind(round uint64) {
	if c.decides() {
		return
	}
	if err := c.tellDecider(agreesClose, round); isLoss(err) {
		c.revoke(c.lossOf(c.key.Ranks[0].Life, err))
	}
}

// release notes that a caller has done with the clique, and has those closed that were idle for longest if there are too many.
func (g *Group) release(c *clique) {
	c.mu.Lock()
	c.mu.refs = max(c.mu.refs-1, 0)
	c.mu.idle.since = time.Now()
	c.mu.Unlock()
	g.mu.Lock()
	if c.decides() {
		g.setSweep(g.opt.IdleTime)
	}
	var excess []idler
	if len(g.mu.cached) > g.opt.Idle {
		list := g.idle()
		excess = list[:max(0, len(list)-g.opt.Idle)]
	}
	g.mu.Unlock()
	g.evict(excess)
}

// An idler is a clique that no caller holds.
type idler struct {
	clique *clique
	since  time.Time
}

// idle lists the cliques that no caller holds and about which no round is under way, those that were idle for longest first; mu is
// held.
func (g *Group) idle() (list []idler) {
	for _, c := range g.mu.cached {
		c.mu.Lock()
		if c.isIdle() && c.mu.idle.state == usable {
			list = append(list, idler{c, c.mu.idle.since})
		}
		c.mu.Unlock()
	}
	slices.SortFunc(list, func(a, b idler) int {
		return cmp.Or(a.since.Compare(b.since), a.clique.key.Compare(b.clique.key)) // of equal ones the same on all members
	})
	return list
}

// isIdle says whether no caller holds the clique, and nothing of it is under way; mu is held.
func (c *clique) isIdle() bool {
	return c.mu.refs == 0 && len(c.mu.running) == 0 && !slices.ContainsFunc(c.comms, func(comm *Comm) bool { return comm != nil && comm.remote.isBusy() })
}

// setSweep sets the clock for cliques that are idle for too long, unless it is set; mu is held.
func (g *Group) setSweep(after time.Duration) {
	if g.opt.IdleTime > 0 && g.mu.sweeping == nil && !g.mu.closed {
		g.mu.sweeping = time.AfterFunc(after, g.sweep)
	}
}

// sweep has the cliques closed that were idle for too long, of those that this process decides about.
func (g *Group) sweep() {
	g.mu.Lock()
	list := slices.DeleteFunc(g.idle(), func(i idler) bool { return !i.clique.decides() })
	old, _ := slices.BinarySearchFunc(list, time.Now().Add(-g.opt.IdleTime), func(i idler, at time.Time) int {
		return cmp.Or(i.since.Compare(at), -1) // of equal ones the last
	})
	g.mu.sweeping = nil
	if rest := list[old:]; len(rest) > 0 {
		g.setSweep(time.Until(rest[0].since.Add(g.opt.IdleTime)))
	}
	g.mu.Unlock()
	g.evict(list[:old])
}

// evict has idle cliques closed, if all members agree.
func (g *Group) evict(list []idler) {
	for _, i := range list {
		g.background(0, func(ctx context.Context) { i.clique.dismiss(ctx) })
	}
}

// decides says whether this process decides when the clique is closed.
func (c *clique) decides() bool {
	return c.key.Ranks[0].Life == c.group.life || c.backend.Alone()
}

// dismiss has the clique closed if no process holds it: it begins a round, or has the process of rank 0 begin one. It says whether
// it did.
func (c *clique) dismiss(ctx context.Context) bool {
	if !c.decides() {
		return c.propose()
	}
	answered, begins := c.beginRound()
	if !begins {
		return false
	}
	if c.isAlone() || c.poll(ctx, answered) {
		c.close(ctx)
	} else {
		c.endRound()
	}
	return true
}

// propose tells the process of rank 0 that this one would have the clique closed.
func (c *clique) propose() bool {
	c.mu.Lock()
	proposes := c.isIdle() && c.mu.idle.state == usable
	if proposes {
		c.mu.idle.state = proposed
	}
	c.mu.Unlock()
	return proposes && c.tellDecider(proposesClose, 0) == nil
}

// close closes the clique after all have agreed. The other processes hear of it by LEAVE.
func (c *clique) close(ctx context.Context) {
	c.group.uncache(c)
	c.mu.Lock()
	c.mu.idle.state = closing
	close(c.mu.idle.outcome)
	c.mu.Unlock()
	c.group.tally.evicted.Add(1)
	ctx, cancel := context.WithTimeout(ctx, leaveTime)
	defer cancel()
	if err := c.leave(ctx); err != nil {
		c.group.log.Debug("idle clique closed", "clique", c.key.String(), "err", err)
	}
}

// isAlone says whether no other process has a say.
func (c *clique) isAlone() bool { return len(c.others) == 0 || c.backend.Alone() }

// beginRound notes that this process asks the others whether the clique may be closed, unless it is in use here.
func (c *clique) beginRound() (answered <-chan struct{}, begins bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := &c.mu.idle
	if !c.isIdle() || i.state != usable || c.failed.Load() != nil {
		return nil, false
	}
	i.state, i.outcome, i.refused = agreed, make(chan struct{}), false
	i.answers, i.answered = make(map[serry.Life]bool), make(chan struct{})
	i.round++
	return i.answered, true
}

// poll asks all other processes, and says whether all have agreed.
func (c *clique) poll(ctx context.Context, answered <-chan struct{}) bool {
	ctx, cancel := context.WithTimeout(ctx, roundTime)
	defer cancel()
	for _, peer := range c.others {
		l, err := c.link(ctx, peer)
		if err != nil {
			return false
		}
		c.tellRound(l, asksClose, c.roundNumber())
	}
	select {
	case <-answered:
	case <-ctx.Done():
	case <-c.ctx.Done():
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.mu.idle.answers) == len(c.others) && !c.mu.idle.refused && c.failed.Load() == nil
}

func (c *clique) roundNumber() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.idle.round
}

// endRound keeps the clique, and tells the others so. It counts as used just now: a process holds it.
func (c *clique) endRound() {
	c.mu.Lock()
	i := &c.mu.idle
	i.state, i.since, i.answers = usable, time.Now(), nil
	close(i.outcome)
	round := i.round
	c.mu.Unlock()
	for _, peer := range c.others {
		if l := c.linked(peer); l != nil {
			c.tellRound(l, keeps, round)
		}
	}
	c.group.mu.Lock()
	defer c.group.mu.Unlock()
	c.group.setSweep(c.group.opt.IdleTime)
}

// tellRound tells a process something of a round. It goes with the class of control, as all words of rounds do, so that they come in
// order.
func (c *clique) tellRound(l *link.Link, step uint32, round uint64) error {
	h := link.Header{Family: link.Collective, Type: link.Leave, Class: link.Control, Stream: c.stream, Generation: c.key.Generation, Seq: round, Step: step}
	_, err := l.Post(h)
	if err != nil {
		c.group.log.Debug("member not told", "peer", l.Peer().Task, "err", err)
	}
	return err
}

// tellDecider tells the process of rank 0 something of a round.
func (c *clique) tellDecider(step uint32, round uint64) error {
	l, err := c.link(c.ctx, c.key.Ranks[0].Life)
	if err != nil {
		return err
	}
	return c.tellRound(l, step, round)
}

// heardRound takes a word of a round. Words that come from processes which have no say, or of rounds that are over, change
// nothing.
func (c *clique) heardRound(l *link.Link, h link.Header) {
	from := l.Peer()
	if !c.holds(from) || (h.Step == asksClose || h.Step == keeps) && from != c.key.Ranks[0].Life {
		return
	}
	switch h.Step {
	case proposesClose:
		if c.decides() {
			c.heardProposal(l)
		}
	case asksClose:
		step := uint32(refusesClose)
		if c.use(from, l); c.agree(h.Seq) { // when that link breaks the clique ends, so that no caller waits for the outcome
			step = agreesClose
		}
		c.tellRound(l, step, h.Seq)
	case agreesClose, refusesClose:
		c.heardAnswer(l, h.Seq, h.Step == refusesClose)
	case keeps:
		c.kept(h.Seq)
	}
}

// heardProposal begins a round for another process, or tells it that the clique is in use.
func (c *clique) heardProposal(l *link.Link) {
	c.group.background(0, func(ctx context.Context) {
		if !c.dismiss(ctx) {
			c.tellRound(l, keeps, 0)
		}
	})
}

// agree says whether this process agrees that the clique is closed.
func (c *clique) agree(round uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := &c.mu.idle
	if !c.isIdle() || c.failed.Load() != nil {
		return false
	}
	if i.state != agreed {
		i.outcome = make(chan struct{})
	}
	i.state, i.round = agreed, round
	return true
}

// heardAnswer takes the answer of another process. One that answers to a round which is over has not heard the outcome.
func (c *clique) heardAnswer(l *link.Link, round uint64, refuses bool) {
	c.mu.Lock()
	i := &c.mu.idle
	current := c.decides() && i.state == agreed && i.round == round
	over := c.decides() && i.state < agreed
	if current {
		i.answers[l.Peer()] = true
		if i.refused = i.refused || refuses; i.answered != nil && (i.refused || len(i.answers) == len(c.others)) {
			close(i.answered)
			i.answered = nil
		}
	}
	c.mu.Unlock()
	if over && !refuses {
		c.tellRound(l, keeps, round)
	}
}

// kept takes the word that the clique is not closed: callers get it again.
func (c *clique) kept(round uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := &c.mu.idle
	switch {
	case i.state == agreed && i.round == round:
		close(i.outcome)
		i.state, i.since = usable, time.Now()
	case i.state == proposed:
		i.state, i.since = usable, time.Now()
	}
}

// uncache takes a clique that is about to be closed out of the cache.
func (g *Group) uncache(c *clique) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if name := string(c.key.append(nil)); g.mu.cached[name] == c {
		delete(g.mu.cached, name)
	}
}
