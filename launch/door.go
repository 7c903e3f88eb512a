package launch

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"
)

// A connector makes connections between launchers.
type connector func(ctx context.Context, address string) (net.Conn, error)

// A door is a follower's way to the first launcher, which listens as long as it lives. A follower tolerates
// an outage of the network between the two. But where the host of the first launcher answers, and refuses
// every connection, the launcher there has ended and no other will take its place: the tasks here belong to
// a job that is over, and must not run until the outage has lasted too long.
type door struct {
	to   connector
	shut chan struct{} // closed when the first launcher has ended

	mu struct {
		sync.Mutex
		open    bool      // a connection was made once
		refused time.Time // since when connections are refused; zero: they are not
		closed  bool      // shut is closed
		tried   bool      // to connect
		last    error     // of the last try, or nil
		other   bool      // the launcher of another job has answered last
	}
}

// doorPatience is how long connections are refused before the first launcher counts as ended. One refusal
// may come from a firewall that is being set up.
const doorPatience = 2 * time.Second

func newDoor(to connector) *door { return &door{to: to, shut: make(chan struct{})} }

func (d *door) connect(ctx context.Context, address string) (net.Conn, error) {
	c, err := d.to(ctx, address)
	d.note(err, time.Now())
	return c, err
}

// note takes the outcome of an attempt to connect. An error of another kind says nothing about the launcher.
func (d *door) note(err error, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.tried, d.mu.last = true, err
	d.mu.other = d.mu.other && err == nil // which job a new connection leads to is not known yet
	switch {
	case err == nil:
		d.mu.open, d.mu.refused = true, time.Time{}
	case !d.mu.open: // the first launcher may come later than we
	case !errors.Is(err, syscall.ECONNREFUSED):
		d.mu.refused = time.Time{}
	case d.mu.refused.IsZero():
		d.mu.refused = now
	case now.Sub(d.mu.refused) >= doorPatience && !d.mu.closed:
		d.mu.closed = true
		close(d.shut)
	}
}

// refuse takes note that the launcher which has answered is of another job. Its end says nothing about the launcher
// that this one waits for.
func (d *door) refuse() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.open, d.mu.refused, d.mu.other = false, time.Time{}, true
}

// A launcher that waits for another host says so after waitFirst, and again every waitAgain (DLV-22).
const (
	waitFirst = 3 * time.Second
	waitAgain = 30 * time.Second
)

// trouble says why the first launcher is not reached, in the words of a person.
func (d *door) trouble() string {
	d.mu.Lock()
	tried, err, other := d.mu.tried, d.mu.last, d.mu.other
	d.mu.Unlock()
	name, unresolved := errors.AsType[*net.DNSError](err)
	switch {
	case !tried:
		return "no answer yet"
	case other:
		return "the launcher there refuses this one: " + ErrOtherJob.Error()
	case err == nil:
		return "it answers, and has not let this host in yet"
	case unresolved:
		return fmt.Sprintf("%s does not resolve", name.Name)
	case errors.Is(err, syscall.ECONNREFUSED):
		return "no launcher listens there"
	}
	return err.Error()
}
