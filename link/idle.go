package link

import (
	"errors"
	"time"

	"github.com/serry-dev/serry"
)

// defaultIdle is how long a link that no family has use for may carry nothing until it is closed.
const defaultIdle = 10 * time.Minute

// A Keeper is a Handler that says whether it has use for the link to a peer. A link that no family has use for is closed when it
// was idle for long, or when another link needs its place (TR-COM-4). A Handler that is no Keeper has use for all links.
type Keeper interface {
	Handler

	// Needs is called by goroutines of the link layer, and must not block. A family that begins to use a link right after it said
	// no sees the link go down, and makes it again, as after every other loss.
	Needs(peer serry.Life) bool
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
	switch needed := l.net.needs(l.peer); {
	case needed:
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

// needs says whether a family has use for the link to a peer. Without families the program itself has.
func (n *Net) needs(peer serry.Life) bool {
	families := 0
	for _, f := range []Family{Collective, Transfer} {
		h := n.handler(f)
		if h == nil {
			continue
		}
		families++
		if k, ok := h.(Keeper); !ok || k.Needs(peer) {
			return true
		}
	}
	return families == 0
}

// evict closes the link that was idle for the longest of those that no family has use for, and says whether there is one.
func (n *Net) evict() bool {
	now := n.now()
	var victim *Link
	longest := time.Duration(-1)
	for _, l := range n.up() {
		if idle := l.idle(now); idle > longest && !n.needs(l.peer) {
			victim, longest = l, idle
		}
	}
	if victim == nil {
		return false
	}
	victim.closeIdle()
	return true
}
