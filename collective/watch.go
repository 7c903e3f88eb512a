package collective

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/plant"
	"github.com/serry-dev/serry/link"
)

// watch follows what the service knows of all tasks, until the group or the member ends.
func (g *Group) watch() {
	for s, err := range g.member.Watch(g.ctx) {
		if err != nil {
			g.mu.Lock()
			g.mu.blind = g.mu.tasks == nil
			g.announce()
			g.mu.Unlock()
			g.log.Debug("cliques are not told of tasks", "err", err)
			return
		}
		g.update(s)
	}
}

// announce wakes the goroutines that wait for a change of tasks; mu is held.
func (g *Group) announce() {
	close(g.mu.changed)
	g.mu.changed = make(chan struct{})
}

// update takes a new picture of all tasks. Cliques with lives that are over end, whatever they do (CL-ABT-5,
// CL-ABT-16).
func (g *Group) update(s serry.Snapshot) {
	now := make(map[serry.TaskID]serry.TaskInfo, len(s.Tasks))
	for _, t := range s.Tasks {
		now[t.Task] = t
	}
	g.mu.Lock()
	lost := make(map[serry.Life]error)
	for task, was := range g.mu.tasks {
		if t := now[task]; was.State == serry.Connected && (t.State != serry.Connected || t.Incarnation != was.Incarnation) {
			lost[serry.Life{Task: task, Incarnation: was.Incarnation}] = lossReason(t, was)
		}
	}
	for life, err := range lost {
		g.remember(life, err)
	}
	g.mu.tasks = now
	g.announce()
	g.mu.Unlock()
	for life, err := range lost {
		g.lose(life, err)
	}
}

// remember notes that a life is over; mu is held.
func (g *Group) remember(life serry.Life, err error) {
	for old := range g.mu.past {
		if len(g.mu.past) < maxPast {
			break
		}
		delete(g.mu.past, old)
	}
	g.mu.past[life] = err
}

// DeclareLost treats the present life of a task as lost, for a program that knows it before the service does: all cliques with
// it end on all members, and this process forms none with it any more (CL-ABT-12). The service is not told. Before the
// service has told of any task it does nothing.
func (g *Group) DeclareLost(task serry.TaskID, cause error) error {
	g.mu.Lock()
	t, known := g.mu.tasks[task]
	life := serry.Life{Task: task, Incarnation: t.Incarnation}
	loss := &link.LossError{Peer: life, Source: link.FromService, Reason: cause, Err: ErrPeerFailed}
	switch {
	case g.mu.tasks == nil:
		g.mu.Unlock()
		return nil
	case !known:
		g.mu.Unlock()
		return fmt.Errorf("%v is declared lost: %w", task, serry.ErrUnknownTask)
	}
	g.remember(life, loss)
	g.mu.Unlock()
	g.lose(life, loss)
	return nil
}

// lossReason is why a life that was connected is over.
func lossReason(now, was serry.TaskInfo) error {
	loss := &link.LossError{
		Peer: serry.Life{Task: was.Task, Incarnation: was.Incarnation}, Source: link.FromService, Reason: now.Err, Err: ErrPeerFailed,
	}
	switch {
	case now.Incarnation != was.Incarnation:
		loss.Reason = serry.ErrStale
	case now.State == serry.Disconnected:
		loss.Reason = serry.ErrLeft
	case now.Err == nil:
		loss.Reason = serry.ErrTaskDead
	}
	return loss
}

// lose ends all cliques and meetings that hold a life. All are ended before any of them is waited for: the end of one
// must not wait for an operation of another (CL-ABT-6).
func (g *Group) lose(life serry.Life, err error) {
	for _, c := range g.blamable() {
		if c.holds(life) && !c.hasParted(life) && (errors.Is(err, ErrPeerFailed) || c.isCutOff(life)) {
			g.background(tellTime, func(context.Context) { c.revoke(c.lossOf(life, err)) })
		}
	}
	g.loseMeetings(life, err)
}

// A handler takes what links tell a group. It is the group, with methods that are not for programs.
type handler Group

// Frame implements link.Handler.
func (h *handler) Frame(l *link.Link, head link.Header, payload []byte) {
	g := (*Group)(h)
	switch head.Type {
	case link.Join:
		switch head.Step {
		case summons:
			g.summon(l.Peer(), head.Stream, head.Generation)
		case callsToStep:
			g.calledToStep(l.Peer(), head, payload)
		default:
			g.joined(l, head, payload)
		}
	case link.Welcome:
		g.welcomed(l, head, payload)
	case link.OpDesc:
		if c := g.clique(head); c != nil {
			c.heardProgress(l.Peer(), head, payload)
		}
	case link.OneSided:
		if c := g.clique(head); c != nil {
			c.heardErrand(l, head, payload)
		} else {
			g.keepErrand(l, head, payload)
		}
	case link.TakeBack:
		h.takenBack(l, payload)
	case link.Record:
		g.heardRecord(l, head, payload)
	case link.Leave:
		switch c := g.cliqueOrEnded(head); {
		case c == nil:
			g.tellOver(l, head)
		case head.Step > mayLeave:
			c.heardRound(l, head)
		default:
			c.heardLeave(l, head.Step, payload)
		}
	case link.Revoke:
		if c := g.cliqueOrEnded(head); c != nil {
			payload = append([]byte(nil), payload...)
			g.background(tellTime, func(context.Context) { c.told(l.Peer(), payload) })
			return
		}
		g.meetingRevoked(l, head, payload)
	}
}

// takenBack lets go of an arena that was lent when its clique had ended here.
func (h *handler) takenBack(l *link.Link, payload []byte) {
	if len(payload) != 8 {
		return
	}
	if err := l.Decline(binary.LittleEndian.Uint64(payload)); err != nil {
		h.log.Warn("memory of another process not freed", "task", l.Peer().Task, "err", err)
	}
}

// clique finds the clique of a frame, or nil. Frames of another generation are dropped (CL-KEY-16).
func (g *Group) clique(h link.Header) *clique {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c := g.mu.streams[h.Stream]; c != nil && (c.key.Generation == h.Generation || g.opt.Planted.Has(plant.StaleFrames)) {
		return c
	}
	return nil
}

// cliqueOrEnded finds the clique of a notice: it may be over here already.
func (g *Group) cliqueOrEnded(h link.Header) *clique {
	if c := g.clique(h); c != nil {
		return c
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if e := g.mu.over[h.Stream]; e != nil && e.clique.key.Generation == h.Generation && time.Since(e.at) < tellTime {
		return e.clique
	}
	return nil
}

// Needs implements link.Keeper: while there are cliques, or some are formed, all links are needed.
func (h *handler) Needs(serry.Life) link.Need {
	g := (*Group)(h)
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.mu.streams)+len(g.mu.forming)+len(g.mu.prepared)+len(g.mu.meetings)+len(g.mu.seeking) > 0 {
		return link.Needed
	}
	return link.Unneeded
}

// Unexpected implements link.Handler. Data of a clique that is not known yet are kept; of one that is over they are
// dropped, and the sender is told once (CL-TRN-27).
func (h *handler) Unexpected(l *link.Link, head link.Header) bool {
	g := (*Group)(h)
	if c := g.clique(head); c != nil {
		return c.unexpected(l.Peer(), head)
	}
	g.mu.Lock()
	closed := g.mu.closed
	g.sight(l.Peer(), head)
	over := g.mu.over[head.Stream]
	g.mu.Unlock()
	if over != nil {
		g.tellOver(l, head)
	}
	return over == nil && !closed
}

// tellOver tells a process once that a clique is over.
func (g *Group) tellOver(l *link.Link, h link.Header) {
	g.mu.Lock()
	over := g.mu.over[h.Stream]
	tell := over != nil && !over.told[l.Peer()]
	if tell {
		over.told[l.Peer()] = true
	}
	g.mu.Unlock()
	if tell {
		g.refuse(l, h, over.clique.failed.Load())
	}
}

// refuse tells a process that a clique has ended.
func (g *Group) refuse(l *link.Link, h link.Header, e *Error) {
	notice := link.Header{Family: link.Collective, Type: link.Revoke, Class: link.Control, Stream: h.Stream, Generation: h.Generation}
	if _, err := l.Post(notice, e.append(nil)); err != nil {
		g.log.Debug("member not told", "peer", l.Peer().Task, "err", err)
	}
}

// A sighting is data of a clique that this process does not know yet: another member was faster. When the clique is
// known they are compared with what it runs.
type sighting struct {
	from   serry.Life
	header link.Header
}

const (
	maxStrange   = 256 // streams
	maxSightings = 16  // of a stream
)

// sight remembers data of a stream that is not known; mu is held. Where there are too many, what is forgotten is
// found later, when members ask each other.
func (g *Group) sight(from serry.Life, h link.Header) {
	if g.mu.closed || g.mu.over[h.Stream] != nil || len(g.mu.strange[h.Stream]) >= maxSightings {
		return
	}
	for old := range g.mu.strange {
		if len(g.mu.strange) < maxStrange {
			break
		}
		delete(g.mu.strange, old)
	}
	g.mu.strange[h.Stream] = append(g.mu.strange[h.Stream], sighting{from, h})
}

// unexpected is told of data, or credit, that no operation has asked for yet.
func (c *clique) unexpected(from serry.Life, h link.Header) bool {
	theirs, mine := uint8(h.Step>>8), uint8(h.Step)
	if !h.Data() { // credit: it goes from the receiver of the data to their sender
		theirs, mine = mine, theirs
	}
	other, me := c.rankAt(from, theirs), c.rankAt(c.group.life, mine)
	if other < 0 || me < 0 {
		return false
	}
	return c.comms[me].noticed(other, h.Seq, !h.Data())
}

// rankAt is the rank with a number among those of a process, or -1.
func (c *clique) rankAt(l serry.Life, number uint8) int {
	for rank, p := range c.key.Ranks {
		if p.Life == l && c.local[rank] == number {
			return rank
		}
	}
	return -1
}

// Event implements link.Handler.
func (h *handler) Event(e link.Event) {
	if e.Kind == link.LinkDown {
		(*Group)(h).lose(e.Peer, e.Err)
	}
}
