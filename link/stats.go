package link

import (
	"sync/atomic"
	"time"

	"github.com/serry-dev/serry"
)

// counts are the figures of a link.
type counts struct {
	framesSent, framesReceived atomic.Uint64
	bytesSent, bytesReceived   atomic.Uint64 // payloads of families
	strays                     atomic.Uint64 // messages and credit that no stream wanted
	skipped                    atomic.Uint64 // frames of unknown types
	retransmits                atomic.Uint64 // packets sent again, as last asked of the system
}

func (c *counts) sent(h *Header) {
	c.framesSent.Add(1)
	if h.Family != linkFamily {
		c.bytesSent.Add(uint64(h.length))
	}
}

func (c *counts) received(h *Header) {
	c.framesReceived.Add(1)
	if h.Family != linkFamily {
		c.bytesReceived.Add(uint64(h.length))
	}
}

// Stats are the figures of a link.
type Stats struct {
	Peer       serry.Life
	Remote     string // address of the peer
	Lanes      int    // connections: control, small and bulk
	Since      time.Time
	Silent     time.Duration // since the peer was last heard
	RoundTrip  time.Duration // smoothed, of pings; 0 before the first answer
	Suspected  bool
	Checksums  bool // on data of some family
	FramesSent uint64
	FramesRecv uint64
	BytesSent  uint64 // of payloads
	BytesRecv  uint64
	Parked     int    // bytes of small messages without memory
	Unread     uint64 // bytes of small messages that have no memory at the peer, as far as it has said
	Expected   int    // messages that memory is posted for
	Waiting    int    // messages that wait for credit
	Moving     int    // messages with credit
	Retransmit uint64 // packets that were sent again, over all connections; 0 where the system does not tell
	Strays     uint64 // messages that no stream wanted
	Skipped    uint64 // frames of unknown types
}

// Stats returns the present figures.
func (l *Link) Stats() Stats {
	l.countRetransmits()
	l.mu.Lock()
	defer l.mu.Unlock()
	d := &l.mu.detector
	return Stats{
		Retransmit: l.counts.retransmits.Load(),
		Peer:       l.peer, Remote: l.remote, Lanes: len(l.lanes) + len(l.mu.tuner.added) + len(l.mu.guests), Since: l.mu.since,
		Silent:    l.net.now() - time.Duration(l.heard.Load()),
		RoundTrip: d.smoothed, Suspected: d.suspected,
		Checksums:  l.checks[Collective] || l.checks[Transfer],
		FramesSent: l.counts.framesSent.Load(), FramesRecv: l.counts.framesReceived.Load(),
		BytesSent: l.counts.bytesSent.Load(), BytesRecv: l.counts.bytesReceived.Load(),
		Unread: l.mu.sender.sent - l.mu.sender.consumed,
		Parked: l.mu.receiver.bytes, Expected: l.mu.receiver.count,
		Waiting: len(l.mu.sender.waiting), Moving: len(l.mu.sender.moving),
		Strays: l.counts.strays.Load(), Skipped: l.counts.skipped.Load(),
	}
}

// countRetransmits asks the system how many packets were sent again. It does not tell of connections that are closed,
// so that the greatest number stays.
func (l *Link) countRetransmits() {
	var n uint64
	for _, a := range l.connections() {
		if a != nil {
			n += retransmits(a.out.Conn)
		}
	}
	for {
		known := l.counts.retransmits.Load()
		if n <= known || l.counts.retransmits.CompareAndSwap(known, n) {
			return
		}
	}
}

// Traffic is what moved on several links.
type Traffic struct {
	FramesSent, FramesRecv uint64
	BytesSent, BytesRecv   uint64 // of payloads
	Retransmit             uint64 // packets that were sent again; 0 where the system does not tell
	Strays                 uint64 // messages that no stream wanted
	Skipped                uint64 // frames of unknown types
}

func (t *Traffic) add(c *counts) {
	t.FramesSent += c.framesSent.Load()
	t.FramesRecv += c.framesReceived.Load()
	t.BytesSent += c.bytesSent.Load()
	t.BytesRecv += c.bytesReceived.Load()
	t.Retransmit += c.retransmits.Load()
	t.Strays += c.strays.Load()
	t.Skipped += c.skipped.Load()
}

// Totals are the figures of a Net: how its links are now, and what moved on all that it ever had.
type Totals struct {
	Forming   int           // links whose connections are being made
	Up        int           // links that can be used
	Suspected int           // those of them whose peer is silent
	Silent    time.Duration // of all peers the longest since it was last heard

	Losses map[Source]uint64 // links that went down, by who found it
	Traffic
}

// Totals returns the present figures. Those of traffic and losses never fall.
func (n *Net) Totals() Totals {
	t := Totals{Losses: make(map[Source]uint64, sources)}
	for _, s := range n.Links() {
		t.Silent = max(t.Silent, s.Silent)
		if s.Suspected {
			t.Suspected++
		}
		t.Up++
	}
	for source := range n.losses {
		t.Losses[Source(source)] = n.losses[source].Load()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	t.Forming = max(0, len(n.mu.links)-t.Up)
	t.Traffic = n.mu.past
	for _, l := range n.mu.links {
		t.Traffic.add(&l.counts)
	}
	return t
}
