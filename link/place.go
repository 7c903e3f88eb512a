package link

import (
	"time"

	"github.com/serry-dev/serry"
)

// A queue has the peers that there was no place for when this process or the peer wanted a link. The peer that has waited for the longest gets the
// next place, so all get one in turn. A link needs a place at both ends: both count from when the last link between them went down, or from
// when it was wanted for the first time, so both prefer it at about the same time.
type queue map[serry.Life]*claim

// A claim is since when a peer has waited for a place, and when it was last asked for.
type claim struct {
	since, last time.Duration
}

const (
	keepPlace = 2 * lastRetry // of a peer that waits: a little longer than the longest pause between two dials
	maxQueue  = 4096          // peers; more wait as well, but after all others
)

// find is the claim of a peer. A peer that has not asked for long has none.
func (q queue) find(peer serry.Life, now time.Duration) *claim {
	c := q[peer]
	if c != nil && now-c.last > keepPlace {
		delete(q, peer)
		return nil
	}
	return c
}

// ask notes that there is no place for a peer, which has waited for it since then unless it has a claim.
func (q queue) ask(peer serry.Life, since, now time.Duration) {
	c := q.find(peer, now)
	if c == nil {
		if len(q) >= maxQueue {
			return
		}
		c = &claim{since: since}
		q[peer] = c
	}
	c.last = now
}

// before says whether one peer has waited for longer than another one, which need not have a claim.
func (q queue) before(a, b serry.Life, now time.Duration) bool {
	c, d := q.find(a, now), q.find(b, now)
	switch {
	case c == nil:
		return false
	case d == nil || c.since < d.since:
		return true
	}
	return c.since == d.since && a.Compare(b) < 0
}

// hasPlace says whether there is a place for the link to a peer, besides those for peers that have waited for longer. If not, the peer waits from
// now on. mu is held.
func (n *Net) hasPlace(peer serry.Life) bool {
	q, now := n.mu.queue, n.now()
	free := n.opt.MaxLinks - len(n.mu.links)
	for other := range q {
		if n.mu.links[other] == nil && other != peer && q.before(other, peer, now) {
			free--
		}
	}
	if free <= 0 {
		q.ask(peer, now, now)
		return false
	}
	return true
}

// yields ends the making of a link whose peer has no place for it, for another peer: one that has waited for longer, or any after the
// tenure. It says whether there was one.
func (n *Net) yields(peer serry.Life, tenure time.Duration) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := n.now()
	for _, l := range n.mu.links {
		if l.yield(peer, tenure, now) {
			n.drop(l)
			return true
		}
	}
	return false
}

// yield gives the link up if its peer has no place for it and it is the turn of another one, and says whether it did. mu of the net is
// held.
func (l *Link) yield(to serry.Life, tenure, now time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	q, d := l.net.mu.queue, l.mu.dial
	if d == nil || l.mu.state != forming || !d.full || d.busy {
		return false
	}
	q.ask(l.peer, d.began, now)
	if !q.before(to, l.peer, now) {
		if now-d.began < tenure {
			return false
		}
		delete(q, l.peer)
	}
	d.cancel(errYielded)
	return true
}
