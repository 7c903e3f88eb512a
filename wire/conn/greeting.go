package conn

import (
	"net"
	"net/netip"
	"sync/atomic"
	"time"
)

// Limits on connections that have not greeted (SEC-100). What counts against a peer is its silence, not how
// many connections it opens: ten thousand clients of one address that come at once all speak at once.
const (
	silentTime   = time.Second     // that a peer may take for its first byte
	stoppedTime  = 3 * time.Second // between two bytes of its greeting
	silentOfAddr = 64              // silent connections that one address may have
	silentOfAll  = 1000            // and all of them
	sweepEvery   = 250 * time.Millisecond
)

// A greeting is what is known of a connection that has not greeted.
type greeting struct {
	acceptor *Acceptor
	reading  atomic.Int64 // since when its reader waits for bytes, in nanoseconds of the clock; 0: it does not
	spoke    atomic.Bool  // a byte has come
}

// await takes note that the reader waits for bytes. Time that the server itself takes does not count.
func (g *greeting) await() {
	g.reading.Store(time.Now().UnixNano())
	g.acceptor.reading.Add(1)
	g.acceptor.hasRoom()
}

// heard takes note that the wait for bytes has ended.
func (g *greeting) heard() {
	g.spoke.Store(true)
	g.reading.Store(0)
	g.acceptor.reading.Add(-1)
}

// silent says whether the peer has been silent for too long. Bytes that have come, and that the reader has not
// taken because the machine is busy, count as spoken.
func (g *greeting) silent(now time.Time, c *Conn) bool {
	limit := silentTime
	if g.spoke.Load() {
		limit = stoppedTime
	}
	since := g.reading.Load()
	return since != 0 && now.UnixNano()-since >= int64(limit) && !unread(c.Conn)
}

// sweep closes silent connections while there are connections that have not greeted.
func (a *Acceptor) sweep() {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		select {
		case now := <-tick.C:
			silent, more := a.silent(now)
			a.closeSilent(silent)
			if !more {
				return
			}
		case <-a.stop:
			return
		}
	}
}

// silent lists the connections that are silent for too long, by address. more says whether any connection has
// not greeted; without one the sweep ends, and the next connection begins another.
func (a *Acceptor) silent(now time.Time) (by map[netip.Prefix][]*Conn, more bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.mu.greeting) == 0 {
		a.mu.sweeping = false
		return nil, false
	}
	by = make(map[netip.Prefix][]*Conn)
	for c, g := range a.mu.greeting {
		if g.silent(now, c) {
			from := networkOf(c.RemoteAddr())
			by[from] = append(by[from], c)
		}
	}
	return by, true
}

// closeSilent closes all silent connections of each address that has too many, or of all addresses where they
// are too many together.
func (a *Acceptor) closeSilent(by map[netip.Prefix][]*Conn) {
	total := 0
	for _, conns := range by {
		total += len(conns)
	}
	for from, conns := range by {
		if len(conns) <= silentOfAddr && total <= silentOfAll {
			continue
		}
		a.counts.handshakes.Add(uint64(len(conns)))
		a.cfg.Log.Info("silent connections closed", "peer", from, "count", len(conns))
		for _, c := range conns {
			c.Close()
		}
	}
}

// networkOf is what counts as one address: an address of IPv4, or the /64 that one owner has of IPv6.
// Connections of other networks count together.
func networkOf(addr net.Addr) netip.Prefix {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	ip := tcp.AddrPort().Addr().Unmap()
	bits := 32
	if ip.Is6() {
		bits = 64
	}
	p, _ := ip.Prefix(bits) // a number of bits that fits
	return p
}

// waitForHandshakes holds up accepting while the server has too many greetings to answer, so that ten thousand
// clients that come at once are accepted as fast as their handshakes are done. Connections whose peer has to
// speak next do not count: silent peers hold up no other.
func (a *Acceptor) waitForHandshakes() bool {
	patience := time.NewTimer(handshakePatience)
	defer patience.Stop()
	for {
		a.mu.Lock()
		busy := len(a.mu.greeting) - int(a.reading.Load())
		a.mu.Unlock()
		if busy < MaxHandshakes {
			return true
		}
		select {
		case <-a.fewer:
		case <-patience.C:
			return true
		case <-a.stop:
			return false
		}
	}
}

// hasRoom lets accepting look again whether the server has few enough greetings to answer.
func (a *Acceptor) hasRoom() {
	select {
	case a.fewer <- struct{}{}:
	default:
	}
}
