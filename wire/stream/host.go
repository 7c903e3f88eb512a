package stream

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/wire/rpc"
)

// A Sink hears what comes to a [Host]. Its methods are called from goroutines of the host, one at a
// time, and must not block; they may call the host.
type Sink interface {
	// Reply ends a call. Each call that was taken gets one, unless it is cancelled, its connection
	// shut, or the host closed. The bytes are the sink's from here on.
	Reply(Reply)

	// Standing says what the service knows of a life that came by this host: whenever it changes,
	// and after each Up for every life heard of.
	Standing(Standing)

	// Epoch says that another epoch of the service has opened (C-EPOCH-5).
	Epoch(service serry.Incarnation)

	// Up says that there is a connection to a leader, which has everything there was to send. After
	// an Up without a Down a connection took the place of another.
	Up(term uint64, service serry.Incarnation)

	// Down says that there is none any more, and why; again for every attempt to make one that fails.
	Down(err error)

	// Flush follows the other calls that came together, so that their effects can leave together.
	Flush()
}

// HostConfig says what a [Host] talks to. Addresses, Kind and Sink must be given.
type HostConfig struct {
	Addresses []string // of the servers, as package back reads them; tried in turn
	Kind      Kind
	Sink      Sink

	// Dial makes connections in place of the network, below TLS.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	TLS  *tls.Config // nil: plain
	Log  *slog.Logger

	// Limits of what is kept for calls without an answer. One call is taken whatever its size; vital
	// ones always are.
	MaxCalls int   // 0 means 1 << 20
	MaxBytes int64 // of their bodies; 0 means 1 GiB
}

// A Host is the end of a session that calls. Its methods may be called from any goroutine. None of
// them blocks, and but for Flush none sends: what is queued leaves together.
type Host struct{}

// NewHost makes a host and starts to connect.
func NewHost(cfg HostConfig) *Host { return &Host{} }

// Open begins a virtual connection. Numbers must be random: see [ConnID].
func (h *Host) Open(conn ConnID) {}

// Call takes a call of an open connection; its body must not be changed any more. The error is a
// [*serry.LimitError], or net.ErrClosed for a connection that is not open or a host that is closed.
func (h *Host) Call(c Call) error { return nil }

// Cancel says that nobody waits for the reply to a call any more.
func (h *Host) Cancel(conn ConnID, call rpc.CallID) {}

// Shut ends a virtual connection, and with it its calls. That is evidence against the lives that it
// carried, by the rules for any connection (C-LOST-4), and the farewell of the requester.
func (h *Host) Shut(conn ConnID, how Ending) {}

// Heard says that a life has sent a heartbeat. The next beat tells the service (A-SIDE-3).
func (h *Host) Heard(l Life) {}

// Delivered raises the watermark of a requester: the results of all its calls up to this number have
// reached their caller (A-SIDE-15). It goes with the next beat if no call carries it before.
func (h *Host) Delivered(requester ConnID, watermark uint64) {}

// Exited says that the process of a life has ended, and how; an empty cause is a good end (A-SIDE-16).
// A life without an incarnation is the one that the task has now. It is said again to later servers
// until a [Standing] shows that it was understood.
func (h *Host) Exited(l Life, cause string) {}

// Flush sends what is queued.
func (h *Host) Flush() {}

// Close says goodbye, which shuts all virtual connections, and waits until nothing of the host runs any
// more. What is queued has until ctx ends to leave.
func (h *Host) Close(ctx context.Context) error { return nil }
