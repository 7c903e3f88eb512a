package page_test

import (
	"context"
	"net"
	"sync/atomic"

	"github.com/serry-dev/serry/web"
)

// A muteListener is that of a host which can fall silent as one without power does: connections stay open, and nothing comes by them.
type muteListener struct {
	net.Listener
	mute *atomic.Bool
}

// Accept implements [net.Listener].
func (l muteListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &muteConn{Conn: c, mute: l.mute}, nil
}

// A muteConn is a connection of such a host. What was lost once is not sent later: it stays silent.
type muteConn struct {
	net.Conn
	mute *atomic.Bool
	lost atomic.Bool
}

// Write implements [net.Conn].
func (c *muteConn) Write(b []byte) (int, error) {
	if c.lost.Load() || c.mute.Load() {
		c.lost.Store(true)
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// Servers implements [web.Network]: with a fail-over there is a second server, which has a page.
func (j *staged) Servers(context.Context) ([]web.ServerLink, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.mu.evidence.Status.Leader == "" {
		return nil, nil
	}
	return []web.ServerLink{{Name: "c1", Address: "10.0.0.1:8476", State: "stands by", Lag: new(uint64(3)), Page: "http://" + j.address + "/", Here: true}, {Name: "c2", Address: "10.0.0.2:8476", State: "leads", Page: "http://127.0.0.1:1/"}}, nil
}
