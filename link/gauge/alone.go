package gauge

import (
	"context"
	"errors"
	"iter"
	"math/rand/v2"
	"strings"
	"sync"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/link"
)

// The two tasks of a pair without a service.
var (
	listener = serry.Life{Task: serry.TaskID{Job: "bench", Index: 0}, Incarnation: 1}
	dialler  = serry.TaskID{Job: "bench", Index: 1}
)

// run is what both processes of a pair call the run of their job.
const run = 1

// A Host answers the gauges of all links that come up, of a process that belongs to no job.
type Host struct {
	// Set in Listen, then constant.
	net       *link.Net
	addresses []string
	ctx       context.Context // of all that it serves
	stop      context.CancelFunc

	mu struct {
		sync.Mutex
		closed bool
	}
	serving sync.WaitGroup
}

// Listen opens the links of a process that belongs to no job, at an address, and answers every gauge that
// comes. Close ends it.
func Listen(ctx context.Context, address string, o link.Options) (*Host, error) {
	o.Listen, o.TCPOnly = []string{address}, true
	m := &loner{life: listener}
	n, err := link.Open(ctx, m, loneKeys{m}, o)
	if err != nil {
		return nil, err
	}
	h := &Host{net: n, addresses: strings.Split(strings.ReplaceAll(m.published, "tcp:", ""), ",")}
	h.ctx, h.stop = context.WithCancel(context.WithoutCancel(ctx))
	if err := n.Handle(link.Collective, h); err != nil {
		return nil, errors.Join(err, h.Close(ctx))
	}
	return h, nil
}

// Addresses are where the process listens.
func (h *Host) Addresses() []string { return h.addresses }

// Close ends all links.
func (h *Host) Close(ctx context.Context) error {
	h.mu.Lock()
	h.mu.closed = true
	h.mu.Unlock()
	h.stop()
	err := h.net.Close(ctx)
	h.serving.Wait()
	return err
}

// Frame drops frames that are not data: a gauge sends none.
func (*Host) Frame(*link.Link, link.Header, []byte) {}

// Unexpected keeps all messages until memory is posted for them.
func (*Host) Unexpected(*link.Link, link.Header) bool { return true }

// Event serves a link that has come up.
func (h *Host) Event(e link.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if e.Kind != link.LinkUp || h.mu.closed {
		return
	}
	h.serving.Go(func() {
		if l, err := h.net.Link(h.ctx, e.Peer); err == nil {
			_ = Serve(h.ctx, l) // the peer ends it, or the end of the link does
		}
	})
}

// Dial opens the links of a process that belongs to no job, and makes one to the process that listens at
// an address.
func Dial(ctx context.Context, address string, o link.Options) (*link.Net, *link.Link, error) {
	o.Listen, o.TCPOnly = []string{"127.0.0.1:0"}, true
	m := &loner{life: serry.Life{Task: dialler, Incarnation: serry.Incarnation(rand.Uint64() | 1)}, peer: address}
	n, err := link.Open(ctx, m, loneKeys{m}, o)
	if err != nil {
		return nil, nil, err
	}
	l, err := n.Link(ctx, listener)
	if err != nil {
		n.Close(ctx)
		return nil, nil, err
	}
	return n, l, nil
}

// A loner is a member without a job.
type loner struct {
	life      serry.Life
	peer      string // address of the other process, or empty
	published string // addresses of this one, as the key-value store would have them
}

func (m *loner) Task() serry.TaskID             { return m.life.Task }
func (m *loner) Incarnation() serry.Incarnation { return m.life.Incarnation }
func (m *loner) Service() serry.Incarnation     { return run }

func (m *loner) Watch(context.Context) iter.Seq2[serry.Snapshot, error] {
	return func(yield func(serry.Snapshot, error) bool) { yield(serry.Snapshot{}, ErrNoService) }
}

func (m *loner) Suspect(context.Context, serry.TaskID, serry.Incarnation, serry.Evidence) error {
	return ErrNoService
}

// loneKeys are the keys of a loner: it publishes to itself, and is asked nothing.
type loneKeys struct{ *loner }

func (k loneKeys) Create(_ context.Context, _ string, value []byte) error {
	k.published = string(value)
	return nil
}

func (loneKeys) Put(context.Context, string, []byte) error { return ErrNoService }

func (loneKeys) Delete(context.Context, string) error { return nil }

func (k loneKeys) Wait(ctx context.Context, _ string) ([]byte, error) {
	if k.peer == "" {
		<-ctx.Done() // the other process dials
		return nil, context.Cause(ctx)
	}
	return []byte("tcp:" + k.peer), nil
}

func (loneKeys) Watch(context.Context, string) iter.Seq2[serry.KeyEvent, error] {
	return func(yield func(serry.KeyEvent, error) bool) { yield(serry.KeyEvent{}, ErrNoService) }
}
