package stream_test

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/wire/rpc"
	"github.com/serry-dev/serry/wire/stream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	echo    = "/test/Echo" // answered at once, with the body
	wait    = "/test/Wait" // answered by the test
	service = serry.Incarnation(77)
)

// A network connects hosts and servers in memory. Its lines can be cut and held up.
type network struct {
	t  *testing.T
	mu struct {
		sync.Mutex
		store serry.StoreID // of the desks that are made
		at    map[string]*desk
		lines []*wire
	}
}

// A wire is one connection of the network.
type wire struct {
	net.Conn // the end of the host
	far      net.Conn

	mu   sync.Mutex
	gate chan struct{} // reads wait for it, or nil
	mute bool          // what the host writes is lost
}

func newNetwork(t *testing.T) *network {
	n := &network{t: t}
	n.mu.store = 1
	n.mu.at = make(map[string]*desk)
	return n
}

func (n *network) dial(ctx context.Context, address string) (net.Conn, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	d := n.mu.at[address]
	if d == nil {
		return nil, errors.New("connection refused")
	}
	near, far := net.Pipe()
	w := &wire{Conn: near, far: far}
	n.mu.lines = append(n.mu.lines, w)
	serve := d.serve // a test may change it later
	d.work.Go(func() { serve(far) })
	return w, nil
}

// lines is how many connections have been made.
func (n *network) lines() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.mu.lines)
}

// last is the newest connection.
func (n *network) last() *wire {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.mu.lines[len(n.mu.lines)-1]
}

// A desk is a server with a handler that keeps what it hears.
type desk struct {
	*stream.Server
	serve func(net.Conn)
	work  sync.WaitGroup

	mu struct {
		sync.Mutex
		conns      map[stream.ConnID]*stream.Conn
		calls      []stream.Call
		cancels    []rpc.CallID
		shut       map[stream.ConnID]stream.Ending
		heard      []serry.Life
		follow     []serry.Life
		watermarks map[stream.ConnID]uint64
		exits      []string
		closed     []stream.Closure
		silent     []*stream.Session
		served     int
		byes       int
		at         time.Time // of silent
	}
	onSilent func()
	epochs   func() serry.Incarnation // which epoch is the present one
}

func newDesk(n *network, address string, term uint64) *desk {
	return newDeskOf(n, address, term, stream.Version{})
}

// newDeskOf is newDesk for a server of another build.
func newDeskOf(n *network, address string, term uint64, v stream.Version) *desk {
	n.mu.Lock()
	store := n.mu.store
	n.mu.Unlock()
	d := &desk{epochs: func() serry.Incarnation { return service }}
	d.mu.conns = make(map[stream.ConnID]*stream.Conn)
	d.mu.shut = make(map[stream.ConnID]stream.Ending)
	d.mu.watermarks = make(map[stream.ConnID]uint64)
	d.Server = stream.NewServer(stream.ServerConfig{
		Handler: d,
		Methods: rpc.Methods{echo: {MaxRequestBytes: 4 << 20}, wait: {MaxRequestBytes: 100}},
		Store:   store,
		Term:    term,
		Version: v,
		Service: func() serry.Incarnation { return d.epochs() },
	})
	d.serve = func(nc net.Conn) { d.Server.Serve(nc) }
	n.mu.Lock()
	n.mu.at[address] = d
	n.mu.Unlock()
	n.t.Cleanup(func() {
		n.mu.Lock()
		if n.mu.at[address] == d {
			delete(n.mu.at, address) // no connection is made from now on
		}
		n.mu.Unlock()
		d.close()
	})
	return d
}

// close ends the server and waits for it.
func (d *desk) close() {
	d.Server.Shutdown(context.Background())
	d.work.Wait()
}

// beginAnew gives the servers that are made from now on another store.
func (n *network) beginAnew() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.store++
}

// freeze lets the server take connections, and no more.
func (n *network) freeze(address string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.at[address].serve = func(nc net.Conn) {
		io.Copy(io.Discard, nc) // until the host gives up
	}
}

// crash takes the server off the network as its death would.
func (n *network) crash(address string) {
	n.mu.Lock()
	d := n.mu.at[address]
	delete(n.mu.at, address)
	n.mu.Unlock()
	d.close()
}

func (d *desk) Open(c *stream.Conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.conns[c.ID()] = c
}

func (d *desk) Call(c *stream.Conn, call *stream.Call) {
	k := *call
	k.Body = append([]byte(nil), call.Body...)
	d.mu.Lock()
	d.mu.calls = append(d.mu.calls, k)
	d.mu.Unlock()
	if call.Method == echo {
		c.Reply(call.ID, k.Body, rpc.Status{})
	}
}

func (d *desk) Served(*stream.Session) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.served++
}

func (d *desk) Cancel(_ *stream.Conn, call rpc.CallID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.cancels = append(d.mu.cancels, call)
}

func (d *desk) Shut(c *stream.Conn, how stream.Ending) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.mu.conns, c.ID())
	d.mu.shut[c.ID()] = how
}

func (d *desk) Heard(_ *stream.Session, lives []serry.Life) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.heard = append(d.mu.heard, lives...)
}

func (d *desk) Quiet(*stream.Session, time.Duration) {}

func (d *desk) Follow(_ *stream.Session, lives []serry.Life) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.follow = append(d.mu.follow, lives...)
}

func (d *desk) Delivered(r stream.ConnID, watermark uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.watermarks[r] = watermark
}

func (d *desk) Exited(s *stream.Session, l serry.Life, cause string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.exits = append(d.mu.exits, l.Task.String()+": "+cause)
}

func (d *desk) Closed(_ *stream.Session, c stream.Closure) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.closed = append(d.mu.closed, c)
}

func (d *desk) Online(*stream.Session)  {}
func (d *desk) Offline(*stream.Session) {}

func (d *desk) Bye(*stream.Session) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.byes++
}

func (d *desk) Silent(gone []*stream.Session) {
	d.mu.Lock()
	d.mu.silent = append(d.mu.silent, gone...)
	d.mu.at = time.Now()
	f := d.onSilent
	d.mu.Unlock()
	if f != nil {
		f()
	}
}

// got is the calls that have come.
func (d *desk) got() []stream.Call {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]stream.Call(nil), d.mu.calls...)
}

// answer ends a call.
func (d *desk) answer(conn stream.ConnID, call rpc.CallID, body string) {
	d.mu.Lock()
	c := d.mu.conns[conn]
	d.mu.Unlock()
	c.Reply(call, []byte(body), rpc.Status{})
	c.Flush()
}

// An ear is a Sink that keeps what it hears.
type ear struct {
	mu        sync.Mutex
	replies   []stream.Reply
	standings []stream.Standing
	epochs    []serry.Incarnation
	ups       []uint64
	downs     []error
	flushes   int
}

func (e *ear) Reply(r stream.Reply) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.replies = append(e.replies, r)
}

func (e *ear) Standing(s stream.Standing) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.standings = append(e.standings, s)
}

func (e *ear) Epoch(s serry.Incarnation) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.epochs = append(e.epochs, s)
}

func (e *ear) Up(term uint64, _ serry.Incarnation) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ups = append(e.ups, term)
}

func (e *ear) Down(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.downs = append(e.downs, err)
}

func (e *ear) Flush() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.flushes++
}

// heard is the bodies of the replies so far.
func (e *ear) heard() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	var all []string
	for _, r := range e.replies {
		all = append(all, string(r.Body))
	}
	return all
}

// host starts a host with one connection, number 1.
func host(t *testing.T, n *network, kind stream.Kind, addresses ...string) (*stream.Host, *ear) {
	return hostOf(t, n, stream.Version{}, kind, addresses...)
}

// hostOf is host for a host of another build.
func hostOf(t *testing.T, n *network, v stream.Version, kind stream.Kind, addresses ...string) (*stream.Host, *ear) {
	e := new(ear)
	h := stream.NewHost(stream.HostConfig{Addresses: addresses, Kind: kind, Sink: e, Dial: n.dial, Version: v})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		h.Close(ctx)
	})
	h.Open(1)
	synctest.Wait()
	return h, e
}

// call makes a call of connection 1 and lets everything happen that can.
func call(t *testing.T, h *stream.Host, id rpc.CallID, method, body string) {
	t.Helper()
	if err := h.Call(stream.Call{Conn: 1, ID: id, Number: uint64(id), Method: method, Body: []byte(body)}); err != nil {
		t.Fatalf("Call(%d) = %v", id, err)
	}
	h.Flush()
	synctest.Wait()
}

type rpcID = rpc.CallID

// deafen holds up everything that comes to the host by w; the other way goes on.
func deafen(w *wire) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gate = make(chan struct{})
}

// undeafen lets through what was held up.
func undeafen(w *wire) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.gate != nil {
		close(w.gate)
		w.gate = nil
	}
}

// Read implements net.Conn.
func (w *wire) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	w.mu.Lock()
	gate := w.gate
	w.mu.Unlock()
	if gate != nil {
		<-gate
	}
	return n, err
}

// Close implements net.Conn.
func (w *wire) Close() error {
	undeafen(w)
	return w.Conn.Close()
}

// mute drops everything that the host sends by w.
func mute(w *wire) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mute = true
}

// Write implements net.Conn.
func (w *wire) Write(p []byte) (int, error) {
	w.mu.Lock()
	mute := w.mute
	w.mu.Unlock()
	if mute {
		return len(p), nil
	}
	return w.Conn.Write(p)
}
