package collective

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/serry-dev/serry"
)

const defaultWarn = 10 * time.Second

// An EventKind says what an Event is about.
type EventKind int

// The kinds of events.
const (
	Waiting EventKind = 1 + iota // an operation, or the forming of a clique, waits for ranks for long
	Stalled                      // a rank that others wait for is alive and makes no progress
)

// String is one word.
func (k EventKind) String() string {
	if k == Waiting {
		return "waiting"
	}
	return "stalled"
}

// An Event tells of a wait that takes long, before its deadline ends it.
type Event struct {
	Kind   EventKind
	Clique *Key
	Rank   int    // that waits
	Op     string // what it runs: "allreduce of 1024 f32 by sum"; "meeting" while the clique is being formed
	Seq    uint64 // the number of the operation, or 0
	Ranks  []int  // that it waits for, or that are stalled
	For    time.Duration
	Detail string // what these ranks were last seen in
}

// A StallPolicy says what a rank does about another one that is alive and makes no progress, beside the event.
type StallPolicy uint8

// The policies.
const (
	StallLog     StallPolicy = iota // nothing
	StallRevoke                     // it ends the clique with ErrTimeout, which names the rank
	StallSuspect                    // it reports the task to the service, as weak evidence
)

// emit tells an event. A program that does not read its events misses them: nothing waits for it.
func (g *Group) emit(e Event) {
	g.log.Warn("clique is held up", "event", e.Kind.String(), "clique", e.Clique.String(), "rank", e.Rank, "op", e.Op, "seq", e.Seq, "ranks",
		ranksText(e.Ranks), "for", e.For, "detail", e.Detail)
	select {
	case g.opt.Events <- e:
	default:
	}
}

// event is an event about the operation.
func (o *operation) event(kind EventKind, ranks []int) Event {
	return Event{Kind: kind, Clique: o.comm.Key(), Rank: o.comm.rank, Op: o.call.description.String(), Seq: plainNumber(o.seq), Ranks: ranks,
		For: time.Since(o.start()).Round(time.Millisecond), Detail: o.comm.lastSeenOf(ranks)}
}

// lastSeenOf says what is known of the progress of the first few of ranks.
func (c *Comm) lastSeenOf(ranks []int) string {
	const most = 4
	var list []string
	for _, rank := range ranks[:min(len(ranks), most)] {
		list = append(list, fmt.Sprintf("rank %d %s", rank, c.lastSeen(rank)))
	}
	return strings.Join(list, "; ")
}

// reportStalls looks for ranks that hold the operation up, are alive, and have made no progress for the time of the
// options. Each is reported once for an operation (CL-TMO-11).
func (o *operation) reportStalls() {
	g := o.comm.group
	if g.opt.Stall <= 0 || !o.call.ofAll() {
		return
	}
	var stalled []int
	for _, rank := range o.blamed() {
		if o.comm.isBehind(rank, o.seq) && time.Since(o.comm.movedAt(rank, o.start())) >= g.opt.Stall && o.notReported(rank) {
			stalled = append(stalled, rank)
		}
	}
	if len(stalled) == 0 {
		return
	}
	g.emit(o.event(Stalled, stalled))
	switch g.opt.OnStall {
	case StallRevoke:
		e := &Error{Origin: o.comm.rank, Seq: o.seq, Ranks: stalled, Err: ErrTimeout,
			Detail: fmt.Sprintf("alive, and no progress for %v; %s", g.opt.Stall, o.comm.lastSeenOf(stalled))}
		g.background(tellTime, func(context.Context) { o.comm.clique.revoke(e) })
	case StallSuspect:
		for _, rank := range stalled {
			g.suspect(o.comm.Key().Ranks[rank].Life, fmt.Sprintf("no progress in %v for %v", o.call.description, g.opt.Stall))
		}
	}
}

// notReported says whether a rank was not reported as stalled before, and notes that it is now.
func (o *operation) notReported(rank int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.mu.reported == nil {
		o.mu.reported = make(map[int]bool)
	}
	was := o.mu.reported[rank]
	o.mu.reported[rank] = true
	return !was
}

// movedAt is when a rank began its last operation, as far as this rank has seen, but not before a time.
func (c *Comm) movedAt(rank int, before time.Time) time.Time {
	var at time.Time
	if other := c.clique.comms[rank]; other != nil {
		other.mu.Lock()
		at = c.group.meter.Time(other.mu.moved)
		other.mu.Unlock()
	} else {
		c.mu.Lock()
		at = c.mu.seen[rank].since
		c.mu.Unlock()
	}
	if at.Before(before) {
		return before
	}
	return at
}

// A suspecter is a member that can tell the service of a task that may be lost; *client.Member is one.
type suspecter interface {
	Suspect(ctx context.Context, peer serry.TaskID, life serry.Incarnation, e serry.Evidence) error
}

// suspect reports a process to the service. Where the service cannot be told, the event is all that there is.
func (g *Group) suspect(l serry.Life, detail string) {
	m, ok := g.member.(suspecter)
	if !ok {
		return
	}
	g.background(tellTime, func(ctx context.Context) {
		if err := m.Suspect(ctx, l.Task, l.Incarnation, serry.Evidence{Detail: detail}); err != nil {
			g.log.Debug("stalled task not reported", "task", l.Task, "err", err)
		}
	})
}

// watchOver tells of a meeting that takes long, until this process leaves it.
func (g *Group) watchOver(m *meeting) {
	if g.opt.Warn < 0 {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	began := time.Now()
	m.warning = time.AfterFunc(g.opt.Warn, func() { g.warn(m, began) })
}

// warn tells of a meeting, and sets the clock to twice the time.
func (g *Group) warn(m *meeting, began time.Time) {
	g.mu.Lock()
	if m.ended {
		g.mu.Unlock()
		return
	}
	waited := time.Since(began)
	m.warning.Reset(waited)
	missing := m.awaited(g.life)
	e := Event{Kind: Waiting, Clique: m.key, Rank: m.me, Op: "meeting", Ranks: missing, For: waited.Round(time.Millisecond),
		Detail: fmt.Sprintf("%d of %d ranks have come", len(m.key.Ranks)-len(missing), len(m.key.Ranks))}
	g.mu.Unlock()
	g.emit(e)
}
