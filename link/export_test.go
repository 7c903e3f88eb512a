package link

import (
	"context"
	"encoding/binary"
	"net"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/crc32c"
)

// Inject writes a frame to a lane as a peer would that does not keep to the protocol. Length is what the
// header says, whatever the payload has; flags are those of the header.
func (l *Link) Inject(lane int, h Header, flags uint16, length uint32, payload []byte) {
	h.flags, h.length = flags, length
	b := append(h.append(nil), payload...)
	if flags&flagChecksum != 0 {
		b = binary.LittleEndian.AppendUint32(b, crc32c.Sum(payload))
	}
	a := l.lanes[lane]
	if a.pipe == nil {
		a.out.Write(b)
		return
	}
	a.pipe.Lock()
	a.pipe.Queue(b)
	a.pipe.Unlock()
	a.pipe.Flush()
}

// DialAnew dials the peer as if the link were lost.
func (n *Net) DialAnew(ctx context.Context, l *Link) error {
	addresses, err := n.lookup(ctx, l.peer)
	if err != nil {
		return err
	}
	c, err := n.dialOne(ctx, addresses[0], n.hello(l.peer, controlLane, len(l.lanes), random(), l.set))
	if err == nil {
		c.Close()
	}
	return err
}

// DialAt makes one connection to a peer, at an address.
func (n *Net) DialAt(ctx context.Context, peer serry.Life, address string) error {
	c, err := n.dialOne(ctx, address, n.hello(peer, controlLane, firstBulk+1, random(), 0))
	if err == nil {
		c.Close()
	}
	return err
}

// SetUser makes a Net believe that its process runs as another user.
func (n *Net) SetUser(uid int) { n.user = uid }

// SetMostLanes is how many bulk lanes the links of a Net write to, whatever processors there are.
func (n *Net) SetMostLanes(lanes int) { n.mostLanes = lanes }

// SetTrial is how many bytes are written in a measurement, at least.
func (n *Net) SetTrial(bytes int64) { n.trialBytes = bytes }

// ChangeLanes adds a lane to a link, or retires one that was added, whatever it is worth.
func ChangeLanes(l *Link, add bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch t := &l.mu.tuner; {
	case l.mu.state != up || t.dialling || l.peer == l.net.life:
	case !add:
		l.retire(1)
	case l.bulkLanes() < MaxLanes:
		t.dialling = true
		l.net.work.Go(l.addLane)
	}
}

// StandStill is what the detector does when this process has not run for a while.
func (n *Net) StandStill(d time.Duration) { n.excuse(n.now(), d) }

// Watched is how many small messages are watched.
func Watched(l *Link) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.receiver.watched
}

// Types and flags that a peer may send and programs do not.
const (
	Hello            = typeHello
	Ping             = typePing
	Window           = typeWindow
	CollectiveCredit = collectiveCredit
	Announce         = flagAnnounce
	Sum              = flagChecksum
	WindowBytes      = windowBytes
	MaxFree          = turnGap + rarestScan // that no goroutine reads the small lane
)

// Looks is in how many waits a goroutine looks for its message, if it comes in time as came says.
func Looks(waits int, came func(wait int) bool) (looks int) {
	var p patience
	for wait := range waits {
		if p.looks() {
			looks++
			p.learn(came(wait))
		}
	}
	return looks
}

// A Pollster is a pollster.
type Pollster struct{ pollster }

// NewPollster makes one.
func NewPollster(allowed bool) *Pollster { return &Pollster{pollster{allowed: allowed}} }

// Begin is begin.
func (p *Pollster) Begin() bool { return p.begin() }

// End is end.
func (p *Pollster) End() { p.end() }

// NewReport is newReport.
var NewReport = newReport

// Write writes bytes to a bulk lane.
func (l *Link) Write(lane int, b []byte) { l.lanes[lane].out.Write(b) }

// ReadHello reads the first frame of a handshake.
func ReadHello(c net.Conn) error {
	_, err := readFrame(c, typeHello)
	return err
}

// HelloHeader is the header of a hello that announces so many bytes.
func HelloHeader(length uint32) []byte {
	h := Header{Type: typeHello, length: length}
	return h.append(nil)
}
