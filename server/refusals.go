package server

import (
	"log/slog"
	"net"
	"sync"
	"time"
)

const (
	refusalsKept = 256              // pairs of host and reason that are remembered
	refusalsFor  = 10 * time.Minute // until the same pair is logged again
)

// refusals logs connections that ended in their TLS handshake: where they came from, and why. A client with a
// wrong certificate tries again every second, and a scanner of the network has a thousand addresses; so each
// pair of host and reason is logged once in a while, and no more than so many of them.
type refusals struct {
	log *slog.Logger

	mu struct {
		sync.Mutex
		logged map[refusedPeer]bool
		from   time.Time // when logged was last emptied
	}
}

// A refusedPeer is a host, without the port, and the reason why it was refused.
type refusedPeer struct{ host, reason string }

// newRefusals makes a log of refusals that is empty.
func newRefusals(log *slog.Logger) *refusals { return &refusals{log: log} }

// add takes a handshake that failed. The port of a peer changes with every attempt, so it is left out.
func (r *refusals) add(peer net.Addr, err error) {
	host, _, splitErr := net.SplitHostPort(peer.String())
	if splitErr != nil {
		host = peer.String() // no port to leave out
	}
	if r.first(refusedPeer{host, err.Error()}) {
		r.log.Warn("connection refused", "peer", peer, "err", err)
	}
}

// first says whether to log p, and remembers that it was logged.
func (r *refusals) first(p refusedPeer) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := time.Now(); r.mu.logged == nil || now.Sub(r.mu.from) >= refusalsFor {
		r.mu.logged, r.mu.from = make(map[refusedPeer]bool), now
	}
	if r.mu.logged[p] || len(r.mu.logged) >= refusalsKept {
		return false
	}
	r.mu.logged[p] = true
	return true
}
