package relay

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/wire"
	"github.com/serry-dev/serry/wire/conn"
	"github.com/serry-dev/serry/wire/front"
	"github.com/serry-dev/serry/wire/rpc"
	"github.com/serry-dev/serry/wire/stream"
)

// A Relay is a running relay. See the package comment.
type Relay struct {
	// Set in New, then constant.
	cfg     Config
	host    *stream.Host
	front   *front.Server
	ownConn stream.ConnID // the virtual connection of the relay's own calls: watches
	exits   exits

	dialled atomic.Pointer[string] // the address that the last dial has reached

	stop    sync.Once
	stopped chan struct{} // closed when Shutdown has ended everything

	// Owned by the sink: connections with replies that have not been flushed.
	dirty map[rpc.Conn]struct{}

	// Nothing that is done under this lock blocks or calls a client back: replies are gathered under it and
	// sent after it.
	mu struct {
		sync.Mutex
		clients map[rpc.Conn]*client
		byID    map[stream.ConnID]*client // by their lanes
		lives   lives
		watches watches

		held   int // calls without an answer, of all clients
		outage outage
	}
}

// New makes a relay that starts to look for the service. No client can reach it before [Relay.Serve] is
// called. It runs until [Relay.Shutdown].
func New(cfg Config) (*Relay, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	r := &Relay{cfg: cfg, ownConn: newConnID(), stopped: make(chan struct{}), dirty: make(map[rpc.Conn]struct{})}
	r.mu.clients = make(map[rpc.Conn]*client)
	r.mu.byID = make(map[stream.ConnID]*client)
	r.mu.lives = newLives(cfg.Limits.Lives)
	r.mu.watches = newWatches()
	r.mu.outage = outage{down: true, since: time.Now()}
	if cfg.GiveUp > 0 {
		r.mu.outage.patience = time.AfterFunc(cfg.GiveUp, r.giveUp)
	}
	r.front = front.New(front.Config{Handler: r.Handler(), Methods: r.Methods(), Log: cfg.Log})
	r.mu.Lock() // NewHost may call the sink before r.host is set; the sink waits for the lock
	defer r.mu.Unlock()
	r.host = stream.NewHost(stream.HostConfig{
		Addresses: cfg.Upstream, Kind: stream.Relay, Sink: (*sink)(r), Dial: r.dial, Log: cfg.Log,
		MaxCalls: cfg.Limits.CallsInAll, MaxBytes: cfg.Limits.Bytes, Version: cfg.StreamVersion,
		Planted: cfg.Planted,
	})
	r.host.Open(r.ownConn)
	return r, nil
}

// dial makes a connection to a server, and remembers to which.
func (r *Relay) dial(ctx context.Context, address string) (net.Conn, error) {
	if r.cfg.Loop != nil {
		if c := r.cfg.Loop(address); c != nil {
			r.dialled.Store(&address)
			return c, nil
		}
	}
	o := conn.DialOptions{Connect: r.cfg.Dial}
	if r.cfg.TLS != nil {
		host, _, err := net.SplitHostPort(address)
		if err != nil { // a Unix socket
			host = "localhost"
		}
		o.TLS = r.cfg.TLS(host)
	}
	c, err := conn.Dial(ctx, address, stream.Protocol, o)
	if err == nil {
		r.dialled.Store(&address)
	}
	return c, err
}

// newConnID draws a number for a connection, never zero.
func newConnID() stream.ConnID { return stream.ConnID(rand.Uint64() | 1) }

// Handler is what a transport hands the calls of clients to. The transport ends before the relay does.
func (r *Relay) Handler() rpc.Handler { return (*handler)(r) }

// Methods says which methods a transport takes for [Relay.Handler], and how large requests may be.
func (r *Relay) Methods() rpc.Methods {
	return wire.Methods(cmp.Or(r.cfg.MaxValueBytes, coord.DefaultLimits().ValueBytes))
}

// Serve lets in clients until l fails or the relay is shut down; then it returns nil. It may be called
// for several listeners. It closes l.
func (r *Relay) Serve(l net.Listener) error {
	select {
	case <-r.stopped:
		l.Close()
		return serry.ErrStopped
	default:
	}
	if err := r.front.Serve(l); !errors.Is(err, front.ErrServerClosed) {
		return err
	}
	return nil
}

// Exited tells the service that the process of a task has ended, as its launcher saw: at once, with its code or
// signal ("signal 9"); an empty cause is a good end (A-SIDE-16). It is about the last life of the task that came
// by this relay.
func (r *Relay) Exited(task serry.TaskID, cause string) {
	r.mu.Lock()
	l := r.mu.lives.last(task)
	if l == nil {
		r.mu.Unlock()
		return // it ended before it registered
	}
	who := l.name()
	r.host.Exited(who, cause)
	r.mu.Unlock()
	r.host.Flush()
	r.cfg.Log.Info("process exited", "task", who.Task, "incarnation", uint64(who.Incarnation), "cause", cause)
}

// EndPolls answers the error polls of all clients as a service does that ends. A client that loses its poll
// with its connection dies at once; one whose poll was answered so lives on and connects elsewhere (A-HA-7).
func (r *Relay) EndPolls() {
	var replies []reply
	r.mu.Lock()
	for _, c := range r.mu.clients {
		for call, k := range c.calls {
			if k.kind != coord.KindPollForError {
				continue
			}
			replies = append(replies, reply{conn: c.conn, call: call, status: wire.PollEnded()})
			if k.life != nil {
				k.life.poll = pollKey{} // it has its answer: the end of the connection is not the end of the client
			}
		}
	}
	r.mu.Unlock()
	send(replies)
}

// Retire lets no more clients in and closes the connections of those there are. The relay still tells the service
// how they ended, also after an outage, until [Relay.Shutdown].
func (r *Relay) Retire() {
	// It returns nil.
	_ = r.front.Close()
}

// Shutdown ends the relay: it lets no more clients in, answers every call that waits, closes all
// connections and says goodbye upstream. Clients have until ctx ends to read their last replies. After
// that nothing of the relay runs any more. Later calls wait for the first.
func (r *Relay) Shutdown(ctx context.Context) {
	r.stop.Do(func() {
		defer close(r.stopped)
		r.mu.Lock()
		r.mu.outage.stop()
		r.mu.outage.stopping, r.mu.outage.gaveUp = true, true // from now on every call is answered so at once
		replies := r.release(func(*held) ([]byte, rpc.Status, bool) { return nil, wire.OutOfReach(), true })
		r.mu.Unlock()
		send(replies)
		if r.front.Shutdown(ctx) != nil {
			// ctx has ended: whatever is left is closed, and the error says nothing new.
			_ = r.front.Close()
		}
		r.exits.close()
		// If ctx ends before the goodbye is out, the service finds the silence of the stream.
		_ = r.host.Close(ctx)
	})
	<-r.stopped
}
