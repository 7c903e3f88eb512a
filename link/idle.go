package link

import (
	"errors"
	"time"

	"github.com/serry-dev/serry"
)

// defaultIdle is how long a link that no family has use for may carry nothing until it is closed.
const defaultIdle = 10 * time.Minute

// How long families have only waited by a link until another link can take its place: one that this process needs, and one that a peer
// dials. The peer may only wait, too, and many peers shall not take the places of each other all the time. That a link carries
// something is no sign that it is needed: what waits is asked for again and again.
const (
	ownTenure  = 3 * time.Second
	peerTenure = 10 * time.Second
)

// A Need says what a family needs the link to a peer for.
type Need uint8

// The needs, the least first.
const (
	Unneeded Need = iota // nothing
	Waiting              // it waits for the peer, or the peer for this process: it can wait without the link for a while
	Needed               // work of both sides goes on by it
)

// A Keeper is a Handler that says what it needs the link to a peer for. A link that no family needs is closed when it was idle for
// long, or when another link needs its place. A link that families have only waited by for some seconds gives its place, too, if no
// other one does: otherwise peers that wait could keep those out that they wait for (TR-COM-4). A Handler that
// is no Keeper needs all links.
type Keeper interface {
	Handler

	// Needs is called by goroutines of the link layer, and must not block. A family that begins to use a link right after it said
	// that it does not need it sees the link go down, and makes it again, as after every other loss.
	Needs(peer serry.Life) Need
}

var errIdle = errors.New("no family has use for the link")

// An idleness says since when a link has carried nothing. The lock of the link guards it.
type idleness struct {
	bytes   uint64        // of payloads of families that the link had carried then
	since   time.Duration // when it was seen to have carried something, or a family had use for it
	needed  time.Duration // when it was made, or seen to be needed
	retired bool          // the link is being closed
}

// idle is for how long the link has carried nothing of a family, as far as it was looked at.
func (l *Link) idle(now time.Duration) time.Duration {
	carried := l.counts.bytesSent.Load() + l.counts.bytesReceived.Load()
	l.mu.Lock()
	defer l.mu.Unlock()
	i := &l.mu.idleness
	if i.needed == 0 {
		i.needed = now
	}
	if i.since == 0 || i.bytes != carried {
		i.bytes, i.since = carried, now
	}
	return now - i.since
}

// waited is for how long families have only waited by the link, as far as it was looked at.
func (l *Link) waited(now time.Duration) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return now - l.mu.idleness.needed
}

// sawNeed notes that the link is needed now.
func (l *Link) sawNeed(now time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.idleness.needed = now
}

// wanted hears that the peer has use for the link.
func (l *Link) wanted() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.idleness.since = l.net.now()
}

// watchIdle closes the link if it was idle for long and no family has use for it. If one has, the peer is told in time: it may have
// none. The detector calls it.
func (l *Link) watchIdle(now time.Duration) {
	most := l.net.opt.Idle
	idle := l.idle(now)
	if most < 0 || idle < most/2 {
		return
	}
	switch need := l.net.needs(l.peer); {
	case need != Unneeded:
		l.wanted()
		l.control(&Header{Type: typeNeed})
	case idle >= most:
		l.closeIdle()
	}
}

// closeIdle closes the link in the background. The next call of Net.Link makes another.
func (l *Link) closeIdle() {
	l.mu.Lock()
	was := l.mu.idleness.retired
	l.mu.idleness.retired = true
	l.mu.Unlock()
	if !was {
		l.net.remove(l)
		go l.Shutdown(errIdle) // Close waits for the link
	}
}

// needs is the greatest need that a family has for the link to a peer. Without families the program itself needs it.
func (n *Net) needs(peer serry.Life) Need {
	need, families := Unneeded, 0
	for _, f := range []Family{Collective, Transfer} {
		h := n.handler(f)
		if h == nil {
			continue
		}
		families++
		k, ok := h.(Keeper)
		if !ok {
			return Needed
		}
		need = max(need, k.Needs(peer))
	}
	if families == 0 {
		return Needed
	}
	return need
}

// evict makes room for the link to a peer: it closes the one that was idle for the longest of those that no family needs. If there is
// none, a link gives its place that cannot be made, because its peer has no place for it; or the one that families have only waited by
// for the longest, and for as long as tenure says. It says whether there was one. The peer that has waited for the longest takes the place.
func (n *Net) evict(peer serry.Life, tenure time.Duration) bool {
	now := n.now()
	var victims [Needed]*Link
	var longest [Needed]time.Duration
	for _, l := range n.up() {
		need, idle := n.needs(l.peer), l.idle(now)
		switch need {
		case Needed:
			l.sawNeed(now)
			continue
		case Waiting:
			if idle = l.waited(now); idle < tenure {
				continue
			}
		}
		if victims[need] == nil || idle > longest[need] {
			victims[need], longest[need] = l, idle
		}
	}
	switch {
	case victims[Unneeded] != nil:
		victims[Unneeded].closeIdle()
	case n.yields(peer, tenure):
	case victims[Waiting] != nil:
		victims[Waiting].closeIdle()
	default:
		return false
	}
	return true
}
