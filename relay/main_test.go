package relay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/wire"
	"github.com/serry-dev/serry/wire/back"
	"github.com/serry-dev/serry/wire/rpc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bench is a relay between clients and a scripted service, all in virtual time.
type bench struct {
	*testing.T
	up    *upstream
	relay *Relay
	local *listener
	again func() // before a real service: starts another relay
}

// play runs f with a relay that has found its service.
func play(t *testing.T, cfg Config, f func(b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bench{T: t, up: newUpstream(t), local: newListener()}
		cfg.Upstream, cfg.Dial = []string{"a:1", "b:1", "c:1"}, b.up.dial
		r, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		b.relay = r
		served := make(chan error, 1)
		go func() { served <- r.Serve(b.local) }()
		synctest.Wait()
		f(b)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		r.Shutdown(ctx)
		if err := <-served; err != nil {
			t.Errorf("Serve() = %v; want nil after Shutdown", err)
		}
		b.up.close()
	})
}

// each runs f in both dialects.
func each(t *testing.T, f func(t *testing.T, d wire.Dialect)) {
	for _, d := range []wire.Dialect{wire.XLA, wire.TF} {
		t.Run(d.String(), func(t *testing.T) { f(t, d) })
	}
}

// A peer is a client: one connection, on which it calls as one life of one task.
type peer struct {
	b       *bench
	conn    *back.Conn
	dialect wire.Dialect
	task    serry.TaskID
	own     serry.Incarnation
	service serry.Incarnation
}

// connect makes a client that has not registered.
func (b *bench) connect(d wire.Dialect, index int, own serry.Incarnation) *peer {
	b.Helper()
	c, err := back.Dial(b.Context(), "relay:1", back.Options{Connect: b.local.dial})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { c.Close() })
	return &peer{b: b, conn: c, dialect: d, task: serry.TaskID{Job: "worker", Index: index}, own: own}
}

// join makes a client that has registered.
func (b *bench) join(d wire.Dialect, index int, own serry.Incarnation) *peer {
	b.Helper()
	p := b.connect(d, index, own)
	p.register()
	return p
}

func (p *peer) register() {
	p.b.Helper()
	e := p.call(coord.RegisterTask{Call: p.who()})
	r, err := p.dialect.Result(coord.RegisterTask{}, e.body)
	if !e.st.OK() || err != nil {
		p.b.Fatalf("RegisterTask(%v) = %+v, %v; want OK", p.task, e.st, err)
	}
	p.service = r.(coord.Registered).Service
}

// who is what the client says of itself.
func (p *peer) who() coord.Call {
	return coord.Call{Task: p.task, Incarnation: p.own, Service: p.service}
}

// An end is how a call ended.
type end struct {
	body []byte
	st   rpc.Status
	err  error
}

// unknown is a field that nobody knows, behind every request.
const unknown = "\xfa\x07\x03new"

// request writes a call, with something in it that no message has a field for.
func (p *peer) request(ev coord.Event) (path string, body []byte) {
	p.b.Helper()
	path, body, err := p.dialect.Request(ev)
	if err != nil {
		p.b.Fatal(err)
	}
	return path, append(body, unknown...)
}

// call makes a call and waits for its end.
func (p *peer) call(ev coord.Event) end {
	p.b.Helper()
	return <-p.start(p.b.Context(), ev)
}

// start begins a call, and returns where its end will lie.
func (p *peer) start(ctx context.Context, ev coord.Event) <-chan end {
	p.b.Helper()
	path, body := p.request(ev)
	return p.raw(ctx, path, body)
}

func (p *peer) raw(ctx context.Context, path string, body []byte) <-chan end {
	done := make(chan end, 1)
	go func() {
		var e end
		e.body, e.st, e.err = p.conn.Call(ctx, path, body)
		done <- e
	}()
	synctest.Wait()
	return done
}

// pending checks that a call waits.
func (b *bench) pending(what string, done <-chan end) {
	b.Helper()
	synctest.Wait()
	select {
	case e := <-done:
		b.Errorf("%s = %+v; want it to wait", what, e)
	default:
	}
}

// ended checks that a call has ended by now, and returns how.
func (b *bench) ended(what string, done <-chan end) end {
	b.Helper()
	synctest.Wait()
	select {
	case e := <-done:
		return e
	default:
		b.Fatalf("%s has not ended", what)
		return end{}
	}
}

// A listener hands out connections in memory.
type listener struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newListener() *listener {
	return &listener{conns: make(chan net.Conn), done: make(chan struct{})}
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

func (l *listener) Addr() net.Addr { return place{} }

func (l *listener) dial(ctx context.Context, _ string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case l.conns <- there:
		return here, nil
	case <-l.done:
		return nil, errors.New("connection refused")
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

type place struct{}

func (place) Network() string { return "memory" }
func (place) String() string  { return "memory" }

// A wire that can be cut: at once, or when it has carried some bytes more.
type cuttable struct {
	net.Conn
	mu    sync.Mutex
	after int           // bytes that may still be written; negative: any number
	stall chan struct{} // nothing is written until it is closed; or nil
}

func (c *cuttable) Write(b []byte) (int, error) {
	c.mu.Lock()
	stall := c.stall
	c.mu.Unlock()
	if stall != nil {
		<-stall
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.after < 0 {
		return c.Conn.Write(b)
	}
	part := b[:min(len(b), c.after)]
	n, err := c.Conn.Write(part)
	c.after -= n
	if err == nil && n < len(b) {
		c.Conn.Close()
		err = io.ErrClosedPipe
	}
	return n, err
}

// stop makes writes hang until the function that it returns is called.
func (c *cuttable) stop() (release func()) {
	stall := make(chan struct{})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stall = stall
	return func() { close(stall) }
}

func (c *cuttable) cutAfter(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.after = n
}

// wantCode checks the status of an end.
func (b *bench) want(what string, e end, want string) {
	b.Helper()
	got := fmt.Sprint(e.st.Code)
	if e.err != nil || got != want {
		b.Errorf("%s = %v %q, %v; want %s", what, e.st.Code, e.st.Message, e.err, want)
	}
}

// hasPayload says whether a status carries what makes a client take it for the service's own word (P0).
func hasPayload(e end) bool { return len(e.st.Details) > 0 }
