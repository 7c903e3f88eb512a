package front

import (
	"sync"
	"time"
)

// strangerFree is how many bytes of a stranger's connection are read without a pause, however much other strangers
// send: enough for any registration, and for the calls of an operator.
const strangerFree = 64 << 10

// A pace bounds how fast all strangers together are read. Without it they could keep a processor busy with requests
// that are refused once they have come.
type pace struct {
	perSecond float64
	burst     float64

	mu   sync.Mutex
	debt float64 // bytes read and not yet allowed for
	at   time.Duration
}

// newPace lets strangers whose budget is that many bytes send twice as many in a second, and four times as many at once.
func newPace(bytes int64) *pace {
	return &pace{perSecond: 2 * float64(bytes), burst: 4 * float64(bytes)}
}

// take counts n bytes that were read, and returns how long their reader must wait before it reads more.
func (p *pace) take(n int, now time.Duration) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.debt = max(0, p.debt-p.perSecond*(now-p.at).Seconds()) + float64(n)
	p.at = now
	return time.Duration(max(0, p.debt-p.burst) / p.perSecond * float64(time.Second))
}

// slow counts the bytes of a chunk, and pauses if the peer is a stranger and strangers send too much.
func (c *connection) slow(n int) {
	if !c.stranger() {
		return
	}
	c.in.strange += int64(n)
	if d := c.srv.pace.take(n, c.in.now); d > 0 && c.in.strange > strangerFree {
		c.mu.Pause(d)
	}
}
