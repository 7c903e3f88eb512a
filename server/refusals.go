package server

import (
	"log/slog"
	"net"
	"sync"
	"time"
)

const (
	refusalsKept = 256              // peers with a reason each that are remembered
	refusalsFor  = 10 * time.Minute // until the same is told again
)

// refusals logs connections that ended in their handshake: who came and why it was not let in. A
// client tries again every second, so each pair of both is told once in a while, and no more than so
// many of them.
type refusals struct {
	log *slog.Logger

	mu struct {
		sync.Mutex
		told map[stranger]bool
		from time.Time // when told began to be filled
	}
}

type stranger struct{ host, reason string }

func newRefusals(log *slog.Logger) *refusals { return &refusals{log: log} }

// add takes a handshake that failed.
func (r *refusals) add(peer net.Addr, err error) {
	host, _, splitErr := net.SplitHostPort(peer.String())
	if splitErr != nil {
		host = peer.String() // no port to leave out
	}
	if r.first(stranger{host, err.Error()}) {
		r.log.Warn("connection refused", "peer", peer, "err", err)
	}
}

// first says whether to tell of f, and remembers that it was told.
func (r *refusals) first(f stranger) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := time.Now(); r.mu.told == nil || now.Sub(r.mu.from) >= refusalsFor {
		r.mu.told, r.mu.from = make(map[stranger]bool), now
	}
	if r.mu.told[f] || len(r.mu.told) >= refusalsKept {
		return false
	}
	r.mu.told[f] = true
	return true
}
