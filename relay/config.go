package relay

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"time"

	"github.com/serry-dev/serry/internal/plant"
	"github.com/serry-dev/serry/wire/stream"
)

// Config is what a relay is told once. Only Upstream must be given.
type Config struct {
	// Upstream are the addresses of the servers of the service, in any order: a server that does not lead
	// names the leader.
	Upstream []string

	// TLS makes the configuration for the stream to a server, by its name or address without the port
	// (mtls.Identity.Client does); nil: plain. Clients of the relay speak plain HTTP/2, over loopback or a Unix socket.
	TLS func(host string) *tls.Config

	// Dial makes connections to the service in place of the network, below TLS.
	Dial func(ctx context.Context, address string) (net.Conn, error)

	// Loop makes a connection to a server in this very process, in memory. It is asked before the network,
	// and returns nil if the address is that of another process. Nil: all of them are.
	Loop func(address string) net.Conn

	// GiveUp is how long the service may be out of reach before clients are told, which ends them
	// (A-SIDE-10). Zero means DefaultGiveUp, negative never.
	GiveUp time.Duration

	MaxValueBytes int64 // largest value a client may set; 0 means what the service allows by default
	Limits        Limits
	Log           *slog.Logger // nil is silent

	// StreamVersion stands for another build in tests: see [stream.HostConfig].
	StreamVersion stream.Version

	// Operators lets calls of people through, such as those for a hand-over. A relay shows its own certificate
	// upstream, so any process of its host could end the service with it: only a node, which is a server, does so
	// (SEC-43).
	Operators bool

	Planted plant.Faults // none, but in tests of tests
}

// DefaultGiveUp is what a zero in [Config] means.
const DefaultGiveUp = 5 * time.Minute

// Limits bound what clients can make a relay keep. Zero means the default.
type Limits struct {
	Connections int   // open ones; calls on further ones are refused
	Calls       int   // without an answer, on one connection
	CallsInAll  int   // without an answer, on all
	Bytes       int64 // of the requests among them
	Lives       int   // that heartbeats are answered for; those of others go upstream
	Watches     int   // of different jobs
}

// DefaultLimits are limits that real jobs never meet.
func DefaultLimits() Limits {
	return Limits{
		Connections: 1 << 16,
		Calls:       1 << 20,
		CallsInAll:  1 << 22,
		Bytes:       8 << 30,
		Lives:       1 << 17,
		Watches:     1 << 10,
	}
}

// withDefaults fills in what is zero and says what is wrong with the rest.
func (c Config) withDefaults() (Config, error) {
	if len(c.Upstream) == 0 {
		return c, errors.New("no address of the service")
	}
	l, d := &c.Limits, DefaultLimits()
	l.Connections = cmp.Or(l.Connections, d.Connections)
	l.Calls = cmp.Or(l.Calls, d.Calls)
	l.CallsInAll = cmp.Or(l.CallsInAll, d.CallsInAll)
	l.Bytes = cmp.Or(l.Bytes, d.Bytes)
	l.Lives = cmp.Or(l.Lives, d.Lives)
	l.Watches = cmp.Or(l.Watches, d.Watches)
	if min(l.Connections, l.Calls, l.CallsInAll, l.Lives, l.Watches) < 0 || l.Bytes < 0 {
		return c, errors.New("a limit is below 0")
	}
	c.GiveUp = cmp.Or(c.GiveUp, DefaultGiveUp)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c, nil
}
