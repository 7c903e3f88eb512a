package link

import (
	"fmt"
	"time"
)

// Timing says when a silent peer is pinged and given up. A zero field has its default.
type Timing struct {
	Ping    time.Duration // on an idle control connection; default 250 ms, at least 1 ms
	Suspect time.Duration // silence after which a peer is suspected; default 1 s
	Dead    time.Duration // silence after which a link is down; default 3 s, at least 100 ms
	Stall   time.Duration // in which no large message that the peer has memory for moved on: it is reported; default 10 s

	// Redial is how long a peer whose connection broke has to answer or to refuse a new one; default 50 ms. If it
	// does neither, the link is to blame and not the peer.
	Redial time.Duration
}

func (t Timing) withDefaults() Timing {
	orElse := func(d *time.Duration, standard time.Duration) {
		if *d <= 0 {
			*d = standard
		}
	}
	orElse(&t.Ping, 250*time.Millisecond)
	orElse(&t.Suspect, time.Second)
	orElse(&t.Dead, 3*time.Second)
	orElse(&t.Stall, 10*time.Second)
	orElse(&t.Redial, 50*time.Millisecond)
	t.Ping = max(t.Ping, time.Millisecond)
	t.Dead = max(t.Dead, 100*time.Millisecond)
	return t
}

const (
	scansPerPing = 5                     // so that silence is noticed soon after it counts
	rarestScan   = 50 * time.Millisecond // so that the small lane is not free for long: see turn
	idleScans    = 20                    // without memory posted, until bulk lanes have no goroutine
)

// A detector notices that a peer is silent. The lock of the link guards it; times are those of the net.
type detector struct {
	pinged    time.Duration // when the last ping was sent
	number    uint64        // of the last ping
	awaited   bool          // it has no answer yet
	smoothed  time.Duration // round-trip time
	deviation time.Duration // of the round-trip time
	suspected bool
	stalled   bool
}

func (d *detector) start(now time.Duration) { d.pinged = now }

// answer takes the answer to a ping, and keeps mean and deviation of round-trip times as TCP does. An answer comes
// before the next ping leaves: if it took much longer, this process stood still, and the time says nothing.
func (d *detector) answer(now time.Duration, number uint64, every time.Duration) {
	trip := now - d.pinged
	if !d.awaited || number != d.number || trip > 2*every {
		return
	}
	d.awaited = false
	if d.smoothed == 0 {
		d.smoothed, d.deviation = trip, trip/2
		return
	}
	d.deviation += ((trip - d.smoothed).Abs() - d.deviation) / 4
	d.smoothed += (trip - d.smoothed) / 8
}

// slack is how much longer silence may last on a link whose answers vary.
func (d *detector) slack() time.Duration { return d.smoothed + 4*d.deviation }

// answered notes the answer to a ping.
func (l *Link) answered(number uint64) {
	now := l.net.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.detector.answer(now, number, l.net.timing.Ping)
}

// detect runs the detectors of all links, until the net ends. There is one goroutine and no timer for each
// link because a scan of all costs less.
func (n *Net) detect() {
	every := min(n.timing.Ping/scansPerPing, rarestScan)
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	last := n.now()
	for {
		select {
		case <-n.ctx.Done():
			return
		case <-ticker.C:
		}
		now := n.now()
		if late := now - last - every; late > n.timing.Ping {
			n.excuse(now, late) // this process stood still: the silence was its own
		}
		last = now
		for _, l := range n.up() {
			l.scan(now)
		}
	}
}

// excuse takes time in which this process did not run off the silence of all peers. A peer whose bytes were read since
// is not silent: without the limit it could be dead for that much longer before this process notices.
func (n *Net) excuse(now, late time.Duration) {
	for _, l := range n.up() {
		heard := l.heard.Load()
		l.heard.CompareAndSwap(heard, min(heard+int64(late), int64(now))) // else it was heard just now
	}
}

// scan checks one link.
func (l *Link) scan(now time.Duration) {
	silent := now - time.Duration(l.heard.Load())
	l.mu.Lock()
	d := &l.mu.detector
	t := l.net.timing
	ping := now-d.pinged >= t.Ping
	var words []byte
	if ping {
		d.pinged, d.awaited = now, true
		d.number++
		words = l.words()
	}
	number, slack := d.number, d.slack()
	was := d.suspected
	d.suspected = silent >= t.Suspect+slack
	suspected := d.suspected
	waited := now - time.Duration(l.moved.Load())
	stalls := len(l.mu.sender.moving) > 0 && waited >= t.Stall
	begins := stalls && !d.stalled
	d.stalled = stalls
	l.takeBack(now)
	l.mu.Unlock()

	l.restIdle()
	l.watchIdle(now)
	l.tune(now)
	switch {
	case silent >= t.Dead+slack:
		l.broken(fmt.Errorf("%w for %v", errSilence, silent.Round(time.Millisecond)))
		return
	case suspected && !was:
		l.net.emit(Event{Kind: PeerSuspect, Peer: l.peer})
		l.net.suspect(l.peer, false, fmt.Sprintf("silent for %v", silent.Round(time.Millisecond)))
	case was && !suspected:
		l.net.emit(Event{Kind: PeerAlive, Peer: l.peer})
	}
	if begins {
		l.net.emit(Event{Kind: PeerStalled, Peer: l.peer})
		l.net.suspect(l.peer, false, fmt.Sprintf("stalled: it has taken no data for %v", waited.Round(time.Millisecond)))
	}
	if ping {
		l.control(&Header{Type: typePing, Seq: number, length: uint32(len(words))}, words)
	}
}

// restIdle ends goroutines that read bulk lanes on which nothing can come.
func (l *Link) restIdle() {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := &l.mu.receiver
	if !r.idle() {
		return
	}
	if r.idleScans++; r.idleScans != idleScans {
		return
	}
	for _, a := range l.lanes[firstBulk:] {
		if a.reading {
			a.kickReader()
		}
	}
}
