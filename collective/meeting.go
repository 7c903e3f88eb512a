package collective

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/plant"
	"github.com/serry-dev/serry/link"
)

// The processes of a clique meet before they use it. The process of rank 0 hosts the meeting: the others send it a
// JOIN with their key, and when all have come it draws the stream of the clique and sends WELCOME to all. A meeting
// that fails ends for all that have come, by a REVOKE with the name of the meeting.
//
// A meeting is named by the fingerprint of the key, and meetings of one name are numbered: each process counts the
// meetings of a name that it took part in. So a process that comes late to a meeting which has failed learns that,
// and does not begin a new one on its own; the next call of all of them meets under the next number (CL-RDV-10).
//
// The links over which the processes met belong to the clique from the beginning (CL-RDV-15): a link that carried the
// WELCOME may also carry the word that the clique has ended, and when it breaks both sides know that such a word may be
// lost.

const (
	maxEarly    = 4096 // processes that joined a meeting before its host
	maxEarlyOf  = 256  // of these, meetings of one process
	maxHostName = 1024
	maxAttempts = 4096 // names of meetings that are counted

	withdraws = 1 // step of a REVOKE: the process takes its JOIN back, and others may go on to wait

	// verdictTime is how long a process waits for the word of the host after its own deadline. The host knows which
	// ranks are missing.
	verdictTime = time.Second
)

// A meeting is one that this process takes part in.
type meeting struct {
	name       uint64
	attempt    uint32
	bytes      []byte // of the key; nil for a newcomer
	generation uint32 // of the key; apart from it, since headers are made without the lock
	host       serry.Life
	backend    Backend
	lineage    uint64       // name of the lineage
	holders    []serry.Life // after an agreement: those that held the clique before
	me         int          // my lowest rank
	done       chan struct{}

	// Guarded by the lock of the group until done is closed, then constant but for late.
	key     *Key // of a newcomer: one with the same processes, until the host tells it the right one
	ended   bool
	stream  uint64
	err     *Error
	called  bool                      // it ended because the others form the next clique
	late    *Error                    // why the clique ended elsewhere before it was made here, or nil
	arrived map[serry.Life]*link.Link // on the host
	welcome *link.Link                // elsewhere: over which the WELCOME came
	names   map[serry.Life]string     // on the host: of the hosts of those that have come
	hosts   []uint16                  // of each process, in the order of Key.Lives: the number of its host
	until   time.Time                 // on the host: the first deadline of those that have come
	timer   *time.Timer
	warning *time.Timer // or nil
}

// A join is the wish of another process to meet.
type join struct {
	attempt uint32
	until   time.Time
	backend string
	name    string // of its host
	key     []byte
	link    *link.Link
}

// A frame to another process, to be sent when no lock is held.
type frame struct {
	link    *link.Link
	header  link.Header
	payload []byte
}

// newMeeting is the meeting for a key, with the process of rank 0 as host.
func newMeeting(g *Group, key *Key) *meeting {
	return &meeting{name: key.Fingerprint(), key: key, generation: key.Generation, bytes: key.append(nil), host: key.Ranks[0].Life, me: key.RanksOf(g.life)[0], done: make(chan struct{})}
}

// form meets the other processes of a clique and makes it.
func (g *Group) form(ctx context.Context, m *meeting, l *lineage) (*clique, error) {
	if err := m.key.check(); err != nil {
		return nil, err
	}
	backend, err := g.backend(m.key)
	if err != nil {
		return nil, err
	}
	m.lineage, m.backend = l.name(), backend
	if len(m.key.Lives()) == 1 || backend.Alone() {
		m.stream = random()
		return g.create(ctx, m, l)
	}
	g.send(g.enter(ctx, m))
	defer g.leave(m)
	g.watchOver(m)
	if m.host == g.life {
		err = g.hosts(ctx, m)
	} else {
		err = g.visits(ctx, m)
	}
	if err != nil {
		return nil, err
	}
	return g.create(ctx, m, l)
}

// create makes the clique after the meeting.
func (g *Group) create(ctx context.Context, m *meeting, l *lineage) (*clique, error) {
	c := newClique(g, m, l)
	for peer, l := range g.links(m) {
		c.use(peer, l)
	}
	if err := c.equip(ctx); err != nil {
		return nil, c.revoke(&Error{Origin: c.first.rank, Detail: c.backend.Name() + ": " + err.Error(), Err: ErrFault})
	}
	if err := g.register(c); err != nil {
		return nil, err
	}
	g.mu.Lock()
	late := m.late
	g.mu.Unlock()
	if late != nil && c.plausible(late) {
		return nil, c.revoke(late)
	}
	return c, nil
}

// links are those over which the processes met.
func (g *Group) links(m *meeting) map[serry.Life]*link.Link {
	g.mu.Lock()
	defer g.mu.Unlock()
	if m.welcome != nil {
		return map[serry.Life]*link.Link{m.host: m.welcome}
	}
	return maps.Clone(m.arrived)
}

// enter begins to take part in a meeting. Processes that came before their host are admitted, or hear why the meeting
// cannot take place: they would wait for it.
func (g *Group) enter(ctx context.Context, m *meeting) (out []frame) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.count(m)
	g.mu.meetings[m.name] = m
	if e := g.obstacle(m); e != nil {
		out = g.finish(m, e)
	}
	if m.host != g.life {
		return out
	}
	m.arrived, m.names = make(map[serry.Life]*link.Link), map[serry.Life]string{g.life: g.opt.Host}
	if at, ok := ctx.Deadline(); ok && !m.ended {
		m.until = at
		m.timer = time.AfterFunc(time.Until(at), func() { g.expire(m) })
	}
	early := g.mu.early[m.name]
	delete(g.mu.early, m.name)
	for life, j := range early {
		out = append(out, g.admit(m, life, j)...)
	}
	return out
}

// obstacle is why a meeting cannot take place, or nil; mu is held.
func (g *Group) obstacle(m *meeting) *Error {
	for _, l := range m.key.Lives() {
		if err := g.mu.past[l]; err != nil {
			return lossOf(m.key, m.me, l, err)
		}
	}
	if g.isSummoned(m) { // while this process was on its way
		return m.summoned()
	}
	return nil
}

// count numbers a meeting; mu is held.
func (g *Group) count(m *meeting) {
	for name := range g.mu.attempts {
		if len(g.mu.attempts) < maxAttempts {
			break
		}
		if g.mu.meetings[name] == nil {
			delete(g.mu.attempts, name)
			delete(g.mu.verdicts, name)
		}
	}
	g.mu.attempts[m.name]++
	m.attempt = g.mu.attempts[m.name]
}

// leave ends what this process does for a meeting.
func (g *Group) leave(m *meeting) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mu.meetings[m.name] == m {
		delete(g.mu.meetings, m.name)
	}
	for _, t := range []*time.Timer{m.timer, m.warning} {
		if t != nil {
			t.Stop()
		}
	}
}

// send sends frames.
func (g *Group) send(out []frame) {
	for _, f := range out {
		if _, err := f.link.Post(f.header, f.payload); err != nil {
			g.log.Debug("process not told", "peer", f.link.Peer().Task, "err", err)
		}
	}
}

// hosts waits on the host until all have come.
func (g *Group) hosts(ctx context.Context, m *meeting) error {
	select {
	case <-m.done:
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			g.expire(m)
		} else {
			g.end(m, &Error{Origin: m.me, Detail: context.Cause(ctx).Error(), Err: ErrCancelled})
		}
		<-m.done
	case <-g.ctx.Done():
		g.end(m, &Error{Origin: m.me, Detail: "the host has closed its group", Err: ErrClosed})
		<-m.done
	}
	if m.err != nil {
		return m.err
	}
	return nil
}

// visits joins the meeting of another process, and waits for its word.
func (g *Group) visits(ctx context.Context, m *meeting) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(g.ctx, func() { cancel(ErrClosed) })()
	err := g.join(ctx, m)
	for errors.Is(err, errRejoin) {
		err = g.join(ctx, m)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if m.err == nil && err != nil {
		g.finish(m, g.visitError(ctx, m, err))
	}
	if m.err != nil {
		return m.err
	}
	return nil
}

// errRejoin says that the link to the host has ended, and the host may live.
var errRejoin = errors.New("join again")

// join joins the meeting over one link.
func (g *Group) join(ctx context.Context, m *meeting) error {
	l, err := g.search(ctx, m)
	if errors.Is(err, link.ErrClosed) { // the link that was found was just being closed, or the link layer of this process is closed
		l, err = g.search(ctx, m)
	}
	if err != nil {
		return err
	}
	if err := g.sendJoin(ctx, l, m); err != nil && !endsLinkOnly(err) {
		return err
	}
	return g.await(ctx, l, m)
}

// search finds the host. The meeting may end before: the host is lost.
func (g *Group) search(ctx context.Context, m *meeting) (*link.Link, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	g.background(0, func(context.Context) {
		select {
		case <-m.done:
			cancel(ErrPeerFailed)
		case <-ctx.Done():
		}
	})
	return g.net.Link(ctx, m.host)
}

// visitError is why the host could not be met.
func (g *Group) visitError(ctx context.Context, m *meeting, err error) *Error {
	switch {
	case isLoss(err):
		return lossOf(m.key, m.me, m.host, err)
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return &Error{Origin: m.me, Ranks: m.key.RanksOf(m.host), Detail: fmt.Sprintf("no word of %v, which hosts the meeting", m.host.Task), Err: ErrTimeout}
	case ctx.Err() != nil:
		return &Error{Origin: m.me, Detail: context.Cause(ctx).Error(), Err: ErrCancelled}
	}
	return &Error{Origin: m.me, Ranks: m.key.RanksOf(m.host)[:1], Detail: err.Error(), Err: ErrTransport}
}

func (g *Group) sendJoin(ctx context.Context, l *link.Link, m *meeting) error {
	left := uint64(0)
	if at, ok := ctx.Deadline(); ok {
		left = uint64(max(time.Until(at), time.Millisecond))
	}
	payload := appendText(binary.LittleEndian.AppendUint64(nil, left), m.backend.Name())
	payload = appendText(payload, g.opt.Host[:min(len(g.opt.Host), maxHostName)])
	_, err := l.Post(m.header(link.Join), append(payload, m.bytes...))
	return err
}

// header is that of a frame about the meeting.
func (m *meeting) header(t link.Type) link.Header {
	return link.Header{Family: link.Collective, Type: t, Class: link.Control, Stream: m.name, Generation: m.generation, Seq: uint64(m.attempt)}
}

// await waits for the word of the host. If this process gives up, or is called to the next clique, it tells the host, which may have
// welcomed all just then; else it would find the JOIN when it comes to the meeting later.
func (g *Group) await(ctx context.Context, l *link.Link, m *meeting) error {
	select {
	case <-m.done:
		if m.called {
			h := m.header(link.Revoke)
			h.Step = withdraws
			g.send([]frame{{l, h, m.summoned().append(nil)}})
		}
		return nil
	case <-l.Done():
		return g.linkEnded(l, m)
	case <-ctx.Done():
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		timer := time.NewTimer(verdictTime)
		defer timer.Stop()
		select {
		case <-m.done:
			return nil
		case <-timer.C:
		case <-g.ctx.Done():
		}
	}
	e := &Error{Origin: m.me, Detail: fmt.Sprintf("rank %d gave up: %v", m.me, context.Cause(ctx)), Err: ErrCancelled}
	g.send([]frame{{l, m.header(link.Revoke), e.append(nil)}})
	return ctx.Err()
}

// endsLinkOnly says that a link has ended, and its peer may go on. Either side closes a link that no family had use for: a call of
// Clique may begin to use it at that moment. The next search waits for a peer that has closed its link layer until the service
// tells that it is lost.
func endsLinkOnly(err error) bool {
	return errors.Is(err, link.ErrTransport) || errors.Is(err, link.ErrClosed)
}

// linkEnded says what follows from the end of the link to the host. What came before counts.
func (g *Group) linkEnded(l *link.Link, m *meeting) error {
	select {
	case <-m.done:
		return nil
	default:
	}
	if err := l.Err(); !endsLinkOnly(err) {
		return err
	}
	return errRejoin
}

// missing lists the ranks that have not come.
func (m *meeting) missing(me serry.Life) (ranks []int) {
	for rank, p := range m.key.Ranks {
		if p.Life != me && m.arrived[p.Life] == nil {
			ranks = append(ranks, rank)
		}
	}
	return ranks
}

// awaited lists the ranks that this process waits for: on the host those that have not come, elsewhere the host.
func (m *meeting) awaited(me serry.Life) []int {
	if m.host == me {
		return m.missing(me)
	}
	return m.key.RanksOf(m.host)
}

// finish ends a meeting, well or with an error, and returns what the others have to be told; mu is held.
func (g *Group) finish(m *meeting, e *Error) []frame {
	if m.ended {
		return nil
	}
	m.ended, m.err = true, e
	close(m.done)
	if delete(g.mu.verdicts, m.name); e != nil {
		g.mu.verdicts[m.name] = e
	}
	return g.finished(m)
}

// finished is what those that have come are told; mu is held.
func (g *Group) finished(m *meeting) (out []frame) {
	h, payload := m.header(link.Welcome), m.welcoming()
	if m.err != nil {
		h, payload = m.header(link.Revoke), m.err.append(nil)
	}
	for _, life := range m.key.Lives() {
		if l := m.arrived[life]; l != nil {
			out = append(out, frame{l, h, payload})
		}
	}
	return out
}

// end ends a meeting with an error.
func (g *Group) end(m *meeting, e *Error) {
	g.mu.Lock()
	out := g.finish(m, e)
	g.mu.Unlock()
	g.send(out)
}

// welcomed takes the word of a host that all have come.
func (g *Group) welcomed(l *link.Link, h link.Header, payload []byte) {
	r := reader{rest: payload}
	stream := r.uint64()
	hosts := make([]uint16, r.count(2))
	for i := range hosts {
		hosts[i] = r.uint16()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	m := g.mu.meetings[h.Stream]
	if r.failed || m == nil || m.host != l.Peer() || uint64(m.attempt) != h.Seq || m.ended {
		return
	}
	if key, err := parseKey(r.rest); m.bytes == nil {
		if err != nil || !slices.Equal(key.Lives(), m.key.Lives()) || key.Generation != m.key.Generation {
			g.finish(m, &Error{Origin: m.me, Ranks: []int{0}, Detail: "the host has another key", Err: ErrMismatch})
			return
		}
		if !g.opt.Planted.Has(plant.OwnView) {
			m.key = key
		}
	}
	m.stream, m.hosts, m.welcome = stream, hosts, l
	g.finish(m, nil)
}

// meetingRevoked takes the word of another process that a meeting has failed, or that it gave up: then a clique that
// was formed without it ends. Or the clique has ended there, and is still being made here.
func (g *Group) meetingRevoked(l *link.Link, h link.Header, payload []byte) {
	e, err := parseError(payload)
	if err != nil {
		return
	}
	g.mu.Lock()
	m := g.mu.meetings[h.Stream]
	var out []frame
	if m != nil && uint64(m.attempt) == h.Seq && (m.host == l.Peer() || m.arrived[l.Peer()] != nil) && e.within(m.key) {
		g.mu.attempts[m.name] = max(g.mu.attempts[m.name], uint32(h.Offset))
		switch {
		case h.Step == withdraws && !m.ended:
			delete(m.arrived, l.Peer())
		case m.ended && m.err == nil:
			m.late = e
		}
		if h.Step != withdraws {
			out = g.finish(m, e)
		}
	}
	for _, m := range g.mu.meetings {
		if m.ended && m.err == nil && m.stream == h.Stream && m.key.RanksOf(l.Peer()) != nil && e.outranks(m.late) {
			m.late = e
		}
	}
	formed := g.formedIn(h.Stream, uint32(h.Seq), l.Peer())
	if waiting := g.mu.early[h.Stream]; waiting != nil {
		delete(waiting, l.Peer())
	}
	g.mu.Unlock()
	g.send(out)
	if formed != nil && formed.plausible(e) {
		g.background(tellTime, func(context.Context) { formed.revoke(e) })
	}
}

// loseMeetings ends the meetings that cannot succeed without a life, and forgets what came over links that are down. A
// process whose link broke joins again, maybe before it is known here that the link is down.
func (g *Group) loseMeetings(life serry.Life, err error) {
	var out []frame
	over := errors.Is(err, ErrPeerFailed)
	g.mu.Lock()
	for name, waiting := range g.mu.early {
		if j, ok := waiting[life]; ok && (over || j.link.Err() != nil) {
			delete(waiting, life)
		}
		if len(waiting) == 0 {
			delete(g.mu.early, name)
		}
	}
	for _, m := range g.mu.meetings {
		if l := m.arrived[life]; !m.ended && l != nil && l.Err() != nil {
			delete(m.arrived, life)
		}
		if over && slices.Contains(m.key.Lives(), life) {
			out = append(out, g.finish(m, lossOf(m.key, m.me, life, err))...)
		}
	}
	g.mu.Unlock()
	g.send(out)
}
