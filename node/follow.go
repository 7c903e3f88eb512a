package node

import (
	"context"
	"errors"
	"io"
	"net"
	"syscall"
	"time"

	"github.com/serry-dev/serry/internal/pause"
	"github.com/serry-dev/serry/store"
	"github.com/serry-dev/serry/wire/back"
	"github.com/serry-dev/serry/wire/stream"
)

const (
	// probePatience is how long a leader may take to answer a connection. More than that is silence,
	// which is left to its lease.
	probePatience = time.Second

	// probePause lies before the second probe of a leader that refused, and silencePause between two
	// looks at one that did not answer, or not as it should. It grows up to longestPause while that goes on.
	probePause   = 20 * time.Millisecond
	silencePause = 250 * time.Millisecond
	longestPause = 8 * time.Second

	// steadyTime is how long a connection, or a leadership, lasts that is more than an attempt.
	steadyTime = time.Second
)

// follow learns who leads, and watches over every leader that is not this node.
func (n *Node) follow() {
	var stop context.CancelFunc = func() {}
	defer func() { stop() }()
	for l := range n.cfg.Store.Watch(n.ctx) {
		stop()
		n.change(func() {
			if n.mu.leader.Term != 0 && n.mu.leader.Term != l.Term {
				n.mu.former = n.mu.leader
			}
			n.mu.leader = l
		})
		if l.Term == 0 || l.Address == n.cfg.Address {
			continue
		}
		n.log.Info("standing by", "peer", l.Address, "term", l.Term)
		ctx, cancel := context.WithCancel(n.ctx)
		stop = cancel
		n.work.Go(func() { n.guard(ctx, l) })
	}
}

// guard keeps a connection to a leader until another leads. When it breaks, or is refused, and a second
// probe is refused, too, the process of the leader is gone: this node deposes it, and the next candidate leads at
// once. Silence alone is no reason: the leader may be slow, or far from here only (C-TERM-3).
//
// Two servers may refuse each other though both are well: a firewall stands between them, or only one of
// them speaks TLS. Each would depose the other, again and again, and no job would get anywhere. So a node
// that has deposed a leader does so a second time only after it has been connected to it meanwhile. Until
// then a refusal of this leader says nothing, and its lease decides.
func (n *Node) guard(ctx context.Context, l store.Leader) {
	for wait := silencePause; ctx.Err() == nil; _ = pause.For(ctx, wait) {
		began := time.Now()
		met, broken := n.broken(ctx, l)
		if met {
			n.deposed.Delete(l.Address)
		}
		if wait = min(2*wait, longestPause); time.Since(began) >= steadyTime {
			wait = silencePause
		}
		if !broken {
			continue
		}
		n.lose(l)
		if pause.For(ctx, probePause) != nil || !n.refused(ctx, l) {
			continue
		}
		if _, unmet := n.deposed.Load(l.Address); unmet {
			n.log.Warn("leader lives and refuses this server: is a firewall between them, or TLS on one side only?", "peer", l.Address, "term", l.Term)
			continue
		}
		n.log.Warn("leader is gone", "peer", l.Address, "term", l.Term, "watched", time.Since(began).Round(time.Millisecond))
		if err := n.cfg.Store.Depose(ctx, l); err == nil {
			n.deposed.Store(l.Address, true)
		} else if ctx.Err() == nil {
			n.log.Warn("leader not deposed", "peer", l.Address, "err", err)
		}
	}
}

// lose takes note that the connection to a leader has broken, or was refused.
func (n *Node) lose(l store.Leader) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.mu.lost != l {
		n.mu.lost, n.mu.lostAt = l, time.Now()
	}
}

// broken connects to a leader and waits for the end of the connection. It says whether there was one, and
// whether the other side ended it, or refused it.
func (n *Node) broken(ctx context.Context, l store.Leader) (met, broken bool) {
	c, err := n.probe(ctx, l)
	if err != nil {
		return false, isRefusal(err)
	}
	defer c.Close()
	select {
	case <-c.Ended():
		return true, isRefusal(c.Err())
	case <-ctx.Done():
		return true, false
	}
}

// refused is the second probe.
func (n *Node) refused(ctx context.Context, l store.Leader) bool {
	c, err := n.probe(ctx, l)
	if err != nil {
		return isRefusal(err)
	}
	c.Close()
	return false
}

// probe connects to a leader, as a client does.
func (n *Node) probe(ctx context.Context, l store.Leader) (*back.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, probePatience)
	defer cancel()
	o := back.Options{Connect: n.cfg.Dial}
	if n.cfg.TLS != nil {
		host, _, err := net.SplitHostPort(l.Address)
		if err != nil {
			host = l.Address
		}
		o.TLS = n.cfg.TLS(host)
	}
	return back.Dial(ctx, l.Address, o)
}

// isRefusal says whether the other machine has answered that no process serves there, which is more than
// the absence of a word.
func isRefusal(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.ErrClosedPipe)
}

// serveStream takes a stream: it is served here if this node leads, and sent to the leader else. Where
// it is not yet clear who leads, or this node has been elected and reads the journal, the stream waits a
// little: that is shorter than to come again.
func (n *Node) serveStream(nc net.Conn) {
	timer := time.NewTimer(leaderPatience)
	defer timer.Stop()
	for {
		n.mu.Lock()
		o, l, changed := n.mu.office, n.mu.leader, n.mu.changed
		n.mu.Unlock()
		switch {
		case o != nil:
			o.server.ServeStream(nc)
			return
		case l.Term != 0 && l.Address != n.cfg.Address:
			stream.Redirect(nc, l.Address)
			return
		}
		select {
		case <-changed:
		case <-timer.C:
			stream.Redirect(nc, "")
			return
		case <-n.ctx.Done():
			nc.Close()
			return
		}
	}
}
