package transfer

import (
	"context"
	"encoding/binary"
	"errors"
	"maps"
	"slices"

	"github.com/serry-dev/serry/link"
	"github.com/serry-dev/serry/memory"
	"github.com/serry-dev/serry/transfer/internal/match"
)

// maxArenas is how many arenas two processes lend to each other by one link, in each direction. Memory of others goes through
// the link.
const maxArenas = 64

// A sharing is what this process and one peer of the same host let each other read by their present link. A process lends an
// arena when it first sends from it. The receiver is told where the data lie, and copies them itself: no process ever writes
// to memory of another one (TR-CAN-7).
//
// That a peer is on this host is never concluded from a name: lending works or it does not (TR-G-8). Where it does not, or
// where the receiver cannot read the place that it is told, the bytes go through the link.
type sharing struct {
	lent     map[*memory.Arena]*loan  // to the peer
	borrowed map[uint64]*link.Segment // of the peer, by name
	leaving  []*link.Segment          // that the peer has closed, and that this process may still copy from
}

// A loan is an arena that the peer can read, or soon can.
type loan struct {
	name    uint64
	tried   bool         // it is known whether the peer can read it
	works   bool         // the peer can
	waiting []*operation // that are announced once it is known
}

// locate finds out where the peer can read the data of a send. It is false if that is not known yet: then the operation is
// announced when it is.
func (p *peer) locate(o *operation) (known bool) {
	o.Place = match.Place{}
	arena, offset := o.memory.Arena()
	if !o.send || arena == nil || o.Shape.Bytes == 0 {
		return true
	}
	if p.link == nil {
		return false
	}
	l := p.shared.lent[arena]
	switch {
	case l == nil && len(p.shared.lent) >= maxArenas:
		return true
	case l == nil:
		l = p.lend(arena)
		fallthrough
	case !l.tried:
		l.waiting = append(l.waiting, o)
		return false
	case l.works:
		o.Place = match.Place{Arena: l.name, Offset: offset}
	}
	return true
}

// announce tells the machine that the data of an operation are there, and where, once that is known.
func (p *peer) announce(o *operation) {
	if !p.locate(o) {
		return
	}
	if o.Place.Known() {
		p.machine.Place(p.now(), o.ref, o.Place)
	}
	p.machine.Ready(p.now(), o.ref)
}

// announceAll is for a link that is new: what was lent by the former one has to be lent again.
func (p *peer) announceAll() {
	for _, ref := range slices.Sorted(maps.Keys(p.ops)) {
		if o := p.ops[ref]; o.send && o.defined && o.memory.Space() == memory.Shared {
			p.announce(o)
		}
	}
}

// lend begins to lend an arena.
func (p *peer) lend(a *memory.Arena) *loan {
	x := &loan{name: uint64(p.engine.newRef())}
	if p.shared.lent == nil {
		p.shared.lent = make(map[*memory.Arena]*loan)
	}
	p.shared.lent[a] = x
	l, e := p.link, p.engine
	e.work.Go(func() {
		err := l.LendArena(e.ctx, x.name, a)
		p.do(func() { p.lendingEnded(l, a, x, err) })
		if err != nil {
			return
		}
		select { // the memory of an arena is not free before the peer has let go of it, too
		case <-a.Closed():
			p.do(func() { p.takeBack(l, a, x) })
		case <-l.Done():
		case <-e.ctx.Done():
		}
	})
	return x
}

// lendingEnded announces the operations that waited to know whether the peer can read an arena.
func (p *peer) lendingEnded(l *link.Link, a *memory.Arena, x *loan, err error) {
	if p.link != l || p.shared.lent[a] != x {
		return
	}
	x.tried, x.works = true, err == nil
	if err != nil && !errors.Is(err, link.ErrNoLending) {
		p.engine.log.Info("memory is not shared", "peer", p.life.Task, "err", err)
	}
	for _, o := range x.waiting {
		if p.ops[o.ref] == o {
			p.announce(o)
		}
	}
	x.waiting = nil
}

// takeBack tells the peer that an arena which it can read was closed.
func (p *peer) takeBack(l *link.Link, a *memory.Arena, x *loan) {
	if p.link == l && p.shared.lent[a] == x {
		delete(p.shared.lent, a)
		l.Post(link.Header{Family: link.Transfer, Type: link.Return, Class: link.Control}, binary.LittleEndian.AppendUint64(nil, x.name))
	}
}

// returned lets go of an arena that the peer has closed.
func (p *peer) returned(l *link.Link, name uint64) {
	if l != p.link {
		return
	}
	if s := p.shared.borrowed[name]; s != nil {
		delete(p.shared.borrowed, name)
		p.shared.leaving = append(p.shared.leaving, s)
		p.leave()
		return
	}
	p.freed(l.Decline(name))
}

// leave unmaps the arenas that the peer has closed and that nothing is copied from. The others are as they were: the system
// keeps the memory while a process has it mapped.
func (p *peer) leave() {
	if len(p.shared.leaving) == 0 {
		return
	}
	used := make(map[*link.Segment]bool)
	for _, o := range p.ops {
		if o.copying != nil {
			used[o.copying.segment] = true
		}
	}
	p.shared.leaving = slices.DeleteFunc(p.shared.leaving, func(s *link.Segment) bool {
		if !used[s] {
			p.freed(s.Close())
		}
		return !used[s]
	})
}

// freed notes that memory of a peer could not be unmapped.
func (p *peer) freed(err error) {
	if err != nil {
		p.engine.log.Warn("memory of a peer not freed", "peer", p.life.Task, "err", err)
	}
}

// unshare lets go of all that was lent by a link, which is gone. Nothing is copied any more.
func (p *peer) unshare() {
	for _, s := range p.shared.borrowed {
		p.freed(s.Close())
	}
	for _, s := range p.shared.leaving {
		p.freed(s.Close())
	}
	p.shared = sharing{}
}

// borrowedAt is the memory of the peer at a place, or false if this process cannot read it. The peer may have told anything.
func (p *peer) borrowedAt(at match.Place, size int64) (s *link.Segment, data []byte, ok bool) {
	s = p.shared.borrowed[at.Arena]
	if s == nil {
		s = p.borrow(at.Arena)
	}
	if s == nil || at.Offset < 0 || size > int64(len(s.Bytes())) || at.Offset > int64(len(s.Bytes()))-size {
		return nil, nil, false
	}
	return s, s.Bytes()[at.Offset : at.Offset+size], true
}

// borrow takes an arena that the peer has lent, or returns nil. It does not wait: a peer names an arena when lending has ended.
func (p *peer) borrow(name uint64) *link.Segment {
	if len(p.shared.borrowed) >= maxArenas {
		return nil
	}
	now, cancel := context.WithCancel(context.Background())
	cancel()
	s, err := p.link.Borrow(now, name)
	if err != nil {
		return nil
	}
	if p.shared.borrowed == nil {
		p.shared.borrowed = make(map[uint64]*link.Segment)
	}
	p.shared.borrowed[name] = s
	return s
}
