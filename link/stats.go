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
	resent := uint64(0)
	for _, a := range l.lanes {
		resent += retransmits(a.out.Conn)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	d := &l.mu.detector
	return Stats{
		Retransmit: resent,
		Peer:       l.peer, Remote: l.remote, Lanes: len(l.lanes), Since: l.mu.since,
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
