package front

import (
	"time"

	"golang.org/x/net/http2"

	"github.com/serry-dev/serry/wire/internal/h2"
)

// A drainState says how far a connection has come on the way to an end without lost calls.
type drainState uint8

const (
	serving  drainState = iota
	warned              // first GOAWAY sent: the peer should open no more calls
	overdue             // the peer has not answered it in time
	refusing            // last GOAWAY sent: new calls are ignored
)

// drainPing asks for the round trip between the two GOAWAYs.
var drainPing = [8]byte{'s', 'e', 'r', 'r', 'y', 'e', 'n', 'd'}

// drain begins to end the connection without losing calls (F-40). The reader takes the further steps.
func (c *connection) drain() {
	c.mu.Lock()
	if !c.mu.ready {
		c.mu.Unlock()
		c.mu.Fail(ErrServerClosed)
		return
	}
	if c.mu.ended || c.mu.draining != serving {
		c.mu.Unlock()
		return
	}
	c.mu.draining, c.mu.warnedAt = warned, c.srv.now()
	c.mu.Out = h2.AppendGoAway(c.mu.Out, h2.MaxWindow, http2.ErrCodeNo, "server stops")
	c.mu.Out = h2.AppendPing(c.mu.Out, 0, drainPing)
	c.watch()
	c.mu.Unlock()
	c.Flush()
}

// refuseNew sends the last GOAWAY. The reader calls it after a round trip, or when that took too long.
func (c *connection) refuseNew() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.draining != warned && c.mu.draining != overdue {
		return
	}
	c.mu.draining = refusing
	c.in.refusing = true
	c.mu.Out = h2.AppendGoAway(c.mu.Out, c.in.highest, http2.ErrCodeNo, "server stops")
}

// drained says whether the last call has been answered. The reader asks after each chunk and when woken.
func (c *connection) drained() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.draining == refusing && c.quiet() && c.in.current == nil && len(c.in.parked) == 0
}

// quiet says whether no served call is open; mu is held.
func (c *connection) quiet() bool { return len(c.mu.open) == 0 && c.mu.sender.empty() }

// wake makes the reader look around: its read ends with a timeout.
func (c *connection) wake() { c.nc.SetReadDeadline(time.Unix(1, 0)) }

// woken says whether a failed read was only a wake-up, and handles it.
func (c *connection) woken(err error) bool {
	if !timeout(err) {
		return false
	}
	c.nc.SetReadDeadline(time.Time{})
	c.mu.Lock()
	late := c.mu.draining == overdue
	expired := c.mu.expired
	c.mu.expired = nil
	c.mu.Unlock()
	for _, stream := range expired {
		c.dropRequest(stream)
		c.noteEndedEarly(stream)
	}
	if late {
		c.refuseNew()
	}
	return true
}
