package link

import (
	"errors"
	"time"

	"github.com/serry-dev/serry"
)

// defaultIdle is how long a link that no family has use for may carry nothing until it is closed.
const defaultIdle = 10 * time.Minute

// waitTenure is how long a link that families only wait by carries nothing until another link can take its place.
const waitTenure = 3 * time.Second

// A Need says what a family needs the link to a peer for.
type Need uint8

// The needs, the least first.
const (
	Unneeded Need = iota // nothing
	Waiting              // it waits for the peer, or the peer for this process: it can wait without the link for a while
	Needed               // work of both sides goes on by it
)

// A Keeper is a Handler that says what it needs the link to a peer for. A link that no family needs is closed when it was idle for
// long, or when another link needs its place. A link that families only wait by gives its place, too, if no other one does, when it
// has carried nothing for 3 s: otherwise peers that wait could keep those out that they wait for (TR-COM-4). A Handler that is no
// Keeper needs all links.
type Keeper interface {
	Handler

	// Needs is called by goroutines of the link layer, and must not block. A family that begins to use a link right after it said
	// that it does not need it sees the link go down, and makes it again, as after every other loss.
	Needs(peer serry.Life) Need
}

var errIdle = errors.New("no family has use for the link")

// An idleness says since when a link has carried nothing. The lock of the link guards it.
type idleness struct {
	bytes   uint64 // of payloads of families that the link had carried then
	since   time.Duration
	retired bool // the link is being closed
}

// idle is for how long the link has carried nothing of a family, as far as it was looked at.
func (l *Link) idle(now time.Duration) time.Duration {
	carried := l.counts.bytesSent.Load() + l.counts.bytesReceived.Load()
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := &l.mu.idleness; i.since == 0 || i.bytes != carried {
		i.bytes, i.since = carried, now
	}
	return now - l.mu.idleness.since
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

// evict closes the link that was idle for the longest of those that no family needs; or, if waiting ones may be closed, and there is
// no other, of those that families only wait by. It says whether there is one.
func (n *Net) evict(waiting bool) bool {
	now := n.now()
	var victims [Needed]*Link
	var longest [Needed]time.Duration
	for _, l := range n.up() {
		need, idle := n.needs(l.peer), l.idle(now)
		if need == Needed || need == Waiting && (!waiting || idle < waitTenure) {
			continue
		}
		if victims[need] == nil || idle > longest[need] {
			victims[need], longest[need] = l, idle
		}
	}
	for _, l := range victims {
		if l != nil {
			l.closeIdle()
			return true
		}
	}
	return false
}
