package stream

import (
	"cmp"
	"context"
	"crypto/tls"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/plant"
	"github.com/serry-dev/serry/wire/rpc"
)

// A Sink hears what comes to a [Host]. Its methods are called from goroutines of the host, one at a
// time, and must not block; they may call the host, but for Close.
type Sink interface {
	// Reply ends a call. Each call that was taken gets one, unless it is cancelled, its connection
	// shut, or the host closed. The bytes are the sink's from here on.
	Reply(Reply)

	// Standing says what the service knows of a life that came by this host: whenever it changes,
	// and after each Up for every life that beat or was called connected.
	Standing(Standing)

	// Epoch says that another epoch of the service has opened (C-EPOCH-5).
	Epoch(service serry.Incarnation)

	// Up says that there is a connection to a leader, which is about to get everything there is to
	// send. After an Up without a Down a connection took the place of another.
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

	// Version stands for another build in tests: the version that this end claims. Zero means [Speaks].
	Version Version

	Planted plant.Faults // none, but in tests of tests
}

// A Host is the end of a session that calls. Its methods may be called from any goroutine. None of
// them blocks, but for Close, and only Flush and Close send: what is queued leaves together.
type Host struct {
	// Set in NewHost, then constant.
	cfg     HostConfig
	session uint64
	base    time.Time
	life    context.Context // ends with Close
	stop    context.CancelFunc
	ended   chan *hostConn // connections whose reader has ended
	reached chan attempt   // ends of attempts to connect
	work    sync.WaitGroup

	sinkMu sync.Mutex // held while the sink is called

	mu struct {
		sync.Mutex
		current    *hostConn // the connection for everything new, or nil
		closed     bool
		conns      map[ConnID]map[rpc.CallID]*pending
		calls      int
		bytes      int64
		last       uint64 // of pending.order
		heard      map[serry.Life]bool
		unacked    map[serry.Life]uint64            // heard of, in beats that were not acknowledged: the last of those
		followed   map[serry.Incarnation]serry.Life // at this host: the service is asked to tell of them
		watermarks map[ConnID]uint64
		exits      []exit
		closures   []Closure
		store      serry.StoreID // of the service that was last followed, or 0
		term       uint64        // the highest seen of that store
		seq        uint64        // of beats
	}
}

// pending is a call without an answer.
type pending struct {
	Call
	info  bodyInfo // what a header says of the body
	order uint64   // in which calls came
}

// NewHost makes a host and starts to connect. The sink may be called before it returns.
func NewHost(cfg HostConfig) *Host {
	cfg.MaxCalls = cmp.Or(cfg.MaxCalls, defaultMaxCalls)
	cfg.MaxBytes = cmp.Or(cfg.MaxBytes, defaultMaxBytes)
	cfg.Version = cmp.Or(cfg.Version, Speaks())
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	h := &Host{
		cfg:     cfg,
		session: rand.Uint64(),
		base:    time.Now(),
		ended:   make(chan *hostConn),
		reached: make(chan attempt),
	}
	h.life, h.stop = context.WithCancel(context.Background())
	h.mu.conns = make(map[ConnID]map[rpc.CallID]*pending)
	h.mu.heard = make(map[serry.Life]bool)
	h.mu.unacked = make(map[serry.Life]uint64)
	h.mu.followed = make(map[serry.Incarnation]serry.Life)
	h.mu.watermarks = make(map[ConnID]uint64)
	h.work.Go(h.run)
	return h
}

// Open begins a virtual connection. Numbers must be random: see [ConnID].
func (h *Host) Open(conn ConnID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.closed || h.mu.conns[conn] != nil {
		return
	}
	h.mu.conns[conn] = make(map[rpc.CallID]*pending)
	h.mu.current.out().send(&open{conn})
}

// Call takes a call of an open connection; its body must not be changed any more. The error is a
// [*serry.LimitError], or net.ErrClosed for a connection that is not open or a host that is closed.
func (h *Host) Call(c Call) error {
	info := bodyInfoOf(c.Body) // without the lock: to sum a large body takes a while
	h.mu.Lock()
	defer h.mu.Unlock()
	calls := h.mu.conns[c.Conn]
	size := int64(len(c.Body))
	switch {
	case calls == nil || h.mu.closed:
		return net.ErrClosed
	case !c.Vital && h.mu.calls >= h.cfg.MaxCalls:
		return &serry.LimitError{Limit: "calls without an answer", Max: int64(h.cfg.MaxCalls)}
	case !c.Vital && h.mu.bytes > 0 && h.mu.bytes+size > h.cfg.MaxBytes:
		return &serry.LimitError{Limit: "bytes of calls without an answer", Max: h.cfg.MaxBytes}
	}
	h.forget(c.Conn, c.ID) // if there is one, its number was used twice
	h.mu.last++
	k := &pending{c, info, h.mu.last}
	calls[c.ID] = k
	h.mu.calls++
	h.mu.bytes += size
	if c.Number != 0 && c.Watermark >= h.mu.watermarks[c.Conn] {
		delete(h.mu.watermarks, c.Conn) // the call says it
	}
	k.send(h.mu.current.out())
	return nil
}

func (k *pending) send(p *pipe) {
	size := callFrame + len(k.Method) + len(k.Stamp.Task.Job)
	p.add(size, func(b []byte) []byte { return appendCall(b, &k.Call, k.info) }, k.Body)
}

// Cancel says that the caller does not wait for the reply any more.
func (h *Host) Cancel(conn ConnID, call rpc.CallID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.forget(conn, call) == nil {
		return
	}
	h.mu.current.out().send(&cancelled{conn, call})
}

// forget drops a call and returns it, or nil if there was none; mu is held.
func (h *Host) forget(conn ConnID, call rpc.CallID) *pending {
	k := h.mu.conns[conn][call]
	if k != nil {
		delete(h.mu.conns[conn], call)
		h.mu.calls--
		h.mu.bytes -= int64(len(k.Body))
	}
	return k
}

// Shut ends a virtual connection, and with it its calls. That is evidence against the lives that it
// carried, by the rules for any connection (C-LOST-4), and the farewell of the requester.
func (h *Host) Shut(conn ConnID, how Ending) {
	h.mu.Lock()
	defer h.mu.Unlock()
	calls, ok := h.mu.conns[conn]
	if !ok {
		return
	}
	for id := range calls {
		h.forget(conn, id)
	}
	delete(h.mu.conns, conn)
	delete(h.mu.watermarks, conn)
	h.mu.current.out().send(&shut{conn, how})
}

// Heard says that a life has sent a heartbeat. The next beat tells the service (A-SIDE-3).
func (h *Host) Heard(l serry.Life) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.mu.heard) < maxHeard {
		h.mu.heard[l] = true
	}
	if p := h.mu.current.out(); h.know(l) && p != nil {
		p.send(&follow{[]serry.Life{l}}) // it may have moved here from another host
	}
}

// know notes a life that this host has, and says whether it is new; mu is held. The next leader is asked to tell
// of these lives. Besides the lives that beat, they are those that a leader called connected. A task that has
// registered and not beaten yet is known by nothing else: without it, the next leader would not find that task
// dead when this host dies.
func (h *Host) know(l serry.Life) (added bool) {
	if _, ok := h.mu.followed[l.Incarnation]; ok || len(h.mu.followed) >= maxHeard {
		return false
	}
	h.mu.followed[l.Incarnation] = l
	return true
}

// Unfollow says that a life is not at this host any more: later leaders are not asked for it. It may go on behind
// another host. A leader that heard of it from both would find it dead when this host dies.
func (h *Host) Unfollow(incarnation serry.Incarnation) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.mu.followed, incarnation)
}

// Delivered raises the watermark of a requester: the results of all its calls up to this number have
// reached their caller (A-SIDE-15). It goes with the next beat if no call carries it before.
func (h *Host) Delivered(requester ConnID, watermark uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.mu.watermarks) < maxHeard || h.mu.watermarks[requester] > 0 {
		h.mu.watermarks[requester] = max(watermark, h.mu.watermarks[requester])
	}
}

// Exited says that the process of a life has ended, and how; an empty cause is a good end (A-SIDE-16).
// A life without an incarnation is the one that the task has now. It is said again to later servers
// until a [Standing] shows that it was understood.
func (h *Host) Exited(l serry.Life, cause string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	e := exit{l, cause[:min(len(cause), maxWord)]}
	if len(h.mu.exits) >= maxExits {
		h.mu.exits = slices.Delete(h.mu.exits, 0, 1)
	}
	h.mu.exits = append(h.mu.exits, e)
	delete(h.mu.heard, l)
	h.mu.current.out().send(&e)
}

// Closed says that the last local connection of a life has closed, with its error poll unanswered: evidence
// against it, also for a server that has never heard of the connection (A-SIDE-12). It is said again to
// later servers until a [Standing] shows that the life is not connected, or until Reopened.
func (h *Host) Closed(c Closure) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.mu.closures) >= maxExits {
		h.mu.closures = slices.Delete(h.mu.closures, 0, 1)
	}
	h.mu.closures = append(h.mu.closures, c)
	h.mu.current.out().send(&c)
}

// Reopened takes back what Closed said, for servers to come: the life has spoken again. The present
// server sees that itself.
func (h *Host) Reopened(incarnation serry.Incarnation) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.forgetClosure(incarnation)
}

// forgetClosure needs mu.
func (h *Host) forgetClosure(incarnation serry.Incarnation) {
	h.mu.closures = slices.DeleteFunc(h.mu.closures, func(c Closure) bool { return c.Incarnation == incarnation })
}

// Flush sends what is queued.
func (h *Host) Flush() {
	h.mu.Lock()
	p := h.mu.current.out()
	h.mu.Unlock()
	if p != nil {
		p.Flush()
	}
}

// Close says goodbye, which shuts all virtual connections, and waits until nothing of the host runs any
// more. What is queued has until ctx ends to leave.
func (h *Host) Close(ctx context.Context) error {
	h.mu.Lock()
	l, first := h.mu.current, !h.mu.closed
	h.mu.closed = true
	if p := l.out(); p != nil && first {
		p.send(bare(frameBye))
	}
	h.mu.Unlock()
	var err error
	if p := l.out(); p != nil && first {
		p.Flush()
		select { // the server closes the connection when it has read the last word
		case <-l.over:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	h.stop()
	h.work.Wait()
	return err
}

// About how long frames are.
const (
	smallFrame = headerBytes + 32
	callFrame  = headerBytes + 80
)
