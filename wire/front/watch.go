package front

import (
	"time"

	"github.com/serry-dev/serry/wire/conn"
	"github.com/serry-dev/serry/wire/rpc"
)

// progress is how far the windows of the peer had let replies come at some time.
type progress struct {
	at    time.Duration
	moved uint64
}

// watch has the scanner look after the connection until there is no more need; mu is held.
func (c *connection) watch() {
	if !c.mu.watched {
		c.mu.watched = true
		now := c.srv.now()
		c.mu.lastCheck = progress{now, c.mu.sender.moved}
		c.srv.scan.add(alarm{when: now + watchEvery, conn: c})
	}
}

// check looks after the connection: settings never acknowledged, an orderly end that is late, a
// peer that does not read (F-21, F-35, F-40).
func (c *connection) check() {
	c.srv.scan.forget(1)
	now := c.srv.now()
	c.mu.Lock()
	if c.mu.ended || c.mu.Cause() != nil {
		c.mu.Unlock()
		return
	}
	c.mu.watched = false
	if c.mu.draining == warned && now >= c.mu.warnedAt+lingerTime {
		c.mu.draining = overdue
		c.wake()
	}
	lost := c.stalled(now)
	c.mu.Unlock()
	if lost {
		c.srv.count.refused[refusedNotReading].Add(1)
		c.mu.Fail(rpc.ErrNotReading)
	}
}

// stalled says whether the peer has read nothing for too long. While that may become so, the watch
// goes on. mu is held.
func (c *connection) stalled(now time.Duration) bool {
	window := !c.mu.sender.empty()
	if last := &c.mu.lastCheck; !window || c.mu.sender.moved != last.moved {
		*last = progress{now, c.mu.sender.moved}
	}
	silent := max(c.mu.Stuck(), now-c.mu.lastCheck.at)
	pile := int64(c.mu.Backlog()) + c.mu.sender.bytes
	if silent >= stallTime || pile > maxPile && silent >= pileTime {
		return true
	}
	unsettled := !c.mu.settled && now < c.mu.openedAt+conn.HandshakeTime
	if !c.mu.settled && !unsettled {
		c.mu.settled = true
		c.srv.log.Warn("settings not acknowledged", "peer", c.remote)
	}
	if c.mu.Backlog() > 0 || window || unsettled || c.mu.draining == warned {
		c.mu.watched = true
		c.srv.scan.add(alarm{when: now + watchEvery, conn: c})
	}
	return false
}
