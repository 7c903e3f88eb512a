package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/wire"
	"github.com/serry-dev/serry/wire/conn"
	"github.com/serry-dev/serry/wire/rpc"
	"github.com/serry-dev/serry/wire/serrypb"
	"github.com/serry-dev/serry/wire/stream"
)

// A line is a Transport over serry's own stream. If the first server that answers does not speak it, and
// does speak HTTP/2, everything goes over HTTP/2 instead, for good.
//
// That a server hangs up without a word, however often, does not show what it speaks: so does one that dies,
// and so does a proxy in front of servers that are not there yet. It is only a reason to ask by HTTP/2, and
// to do that not at once: our own servers speak both, and the stream is the better one.
type line struct {
	// Set in newLine, then constant.
	conn    stream.ConnID
	host    *stream.Host
	plain   *network      // used once decided says so
	decided chan struct{} // closed when it is known what the server speaks

	work sync.WaitGroup // ask

	mu struct {
		sync.Mutex
		http2   bool  // with decided: the server speaks HTTP/2, and not the stream
		hungUp  int   // how often a server did, before decided
		asking  bool  // whether the server speaks HTTP/2
		asked   error // why it does not, the last time; or nil
		closed  bool
		up      bool
		why     error       // why it is not up, or nil
		gone    *time.Timer // runs while it is down after it was up, or nil
		last    rpc.CallID
		calls   map[rpc.CallID]*openCall
		numbers stream.Numbers
	}
}

// An openCall is a call that has no reply yet.
type openCall struct {
	end    chan<- ending // has room for one
	number uint64        // or 0
}

// An ending is how a call ended.
type ending struct {
	body   []byte
	status rpc.Status
	err    error
}

func newLine(addresses []string, o DialOptions, plain *network) *line {
	l := &line{conn: stream.ConnID(rand.Uint64()), plain: plain, decided: make(chan struct{})}
	l.mu.calls = make(map[rpc.CallID]*openCall)
	l.mu.Lock() // the sink may be told something before there is a host
	defer l.mu.Unlock()
	l.host = stream.NewHost(stream.HostConfig{
		Addresses: addresses, Kind: stream.Client, Sink: sink{l}, Dial: o.Connect, TLS: o.TLS,
	})
	l.host.Open(l.conn)
	return l
}

// Call implements [Transport]. A call whose connection breaks under it is sent again on the next. If there
// is none soon, the call ends with an error, so that its caller hears of the outage. The exception are
// calls that change something and cannot be repeated by the caller, having no request id inside: they
// get a number here, and wait. So does every call that is made while there is no connection.
func (l *line) Call(ctx context.Context, path string, body []byte) ([]byte, rpc.Status, error) {
	if err := l.decide(ctx); err != nil {
		return nil, rpc.Status{}, err
	}
	if l.overHTTP2() {
		return l.plain.Call(ctx, path, body)
	}
	end := make(chan ending, 1)
	call, err := l.begin(path, body, end)
	if err != nil {
		return nil, rpc.Status{}, err
	}
	id := call.ID
	if err := l.host.Call(call); err != nil {
		l.forget(id)
		return nil, rpc.Status{}, err
	}
	l.host.Flush()
	select {
	case e := <-end:
		return e.body, e.status, e.err
	case <-ctx.Done():
		if l.forget(id) == nil { // the answer came first
			e := <-end
			return e.body, e.status, e.err
		}
		l.host.Cancel(l.conn, id)
		l.host.Flush()
		return nil, rpc.Status{}, l.whyNot(context.Cause(ctx))
	}
}

// decide waits until it is known what the server speaks.
func (l *line) decide(ctx context.Context) error {
	if l.known() {
		return nil
	}
	select {
	case <-l.decided:
		return nil
	case <-ctx.Done():
		return l.whyNot(context.Cause(ctx))
	}
}

func (l *line) overHTTP2() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.http2
}

// begin notes a call.
func (l *line) begin(path string, body []byte, end chan<- ending) (stream.Call, error) {
	numbered := false
	if path != serrypb.CoordinationService_Do_FullMethodName {
		who, _ := wire.Peek(path, body)
		numbered = who.Kind.Row().Once
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.closed {
		return stream.Call{}, net.ErrClosed
	}
	l.mu.last++
	c, k := stream.Call{Conn: l.conn, ID: l.mu.last, Method: path, Body: body}, &openCall{end: end}
	if numbered {
		c.Number, c.Watermark = l.mu.numbers.Next(), l.mu.numbers.Watermark()
		k.number = c.Number
	}
	l.mu.calls[c.ID] = k
	return c, nil
}

// forget ends a call, and returns where its end goes, or nil.
func (l *line) forget(id rpc.CallID) chan<- ending {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.mu.calls[id]
	if k == nil {
		return nil
	}
	delete(l.mu.calls, id)
	l.mu.numbers.Deliver(k.number)
	return k.end
}

// whyNot adds to the end of a wait why there was no connection.
func (l *line) whyNot(cause error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.mu.up || l.mu.why == nil:
		return cause
	case l.mu.asked != nil && errors.Is(l.mu.why, stream.ErrNotSpoken):
		return fmt.Errorf("%w: no connection: %w; %w", cause, l.mu.why, l.mu.asked)
	}
	return fmt.Errorf("%w: no connection: %w", cause, l.mu.why)
}

// closePatience is how long a server may take to answer the goodbye.
const closePatience = time.Second

// Close implements [Transport].
func (l *line) Close() error {
	l.mu.Lock()
	l.mu.closed = true
	if !l.known() {
		close(l.decided)
	}
	if l.mu.gone != nil {
		l.mu.gone.Stop()
	}
	l.mu.Unlock()
	l.fail(net.ErrClosed, true)
	ctx, cancel := context.WithTimeout(context.Background(), closePatience)
	defer cancel()
	// A server that is not there is not told.
	_ = l.host.Close(ctx)
	l.plain.end()
	l.work.Wait()
	return l.plain.Close()
}

// fail ends calls under way: all of them, or those that may be repeated.
func (l *line) fail(err error, all bool) {
	l.mu.Lock()
	var ids []rpc.CallID
	for id, k := range l.mu.calls {
		if all || k.number == 0 {
			ids = append(ids, id)
		}
	}
	l.mu.Unlock()
	for _, id := range ids {
		if end := l.forget(id); end != nil {
			l.host.Cancel(l.conn, id)
			end <- ending{err: err}
		}
	}
}

// ask asks a server that did not speak the stream whether it speaks HTTP/2.
func (l *line) ask() {
	err := l.plain.reach()
	l.mu.Lock()
	l.mu.asking, l.mu.asked = false, err
	decides := err == nil && !l.known()
	if decides {
		l.mu.http2 = true
		close(l.decided)
	}
	l.mu.Unlock()
	if decides {
		_ = l.host.Close(context.Background())
	}
}

// known says whether it is decided what the server speaks.
func (l *line) known() bool {
	select {
	case <-l.decided:
		return true
	default:
		return false
	}
}

// hangUps is how often servers must hang up before they are asked for HTTP/2.
const hangUps = 4

// awayAfter is how long the service may be away before calls under way end.
const awayAfter = 250 * time.Millisecond

// A sink takes what the host of a line hears.
type sink struct{ *line }

// Reply implements [stream.Sink].
func (s sink) Reply(r stream.Reply) {
	if end := s.forget(r.Call); end != nil {
		end <- ending{body: r.Body, status: r.Status}
	}
}

// Standing implements [stream.Sink]. A member hears by its own calls how it stands.
func (s sink) Standing(stream.Standing) {}

// Epoch implements [stream.Sink].
func (s sink) Epoch(serry.Incarnation) {}

// Flush implements [stream.Sink].
func (s sink) Flush() {}

// Up implements [stream.Sink].
func (s sink) Up(uint64, serry.Incarnation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.up, s.mu.why = true, nil
	if s.mu.gone != nil {
		s.mu.gone.Stop()
		s.mu.gone = nil
	}
	if !s.known() {
		close(s.decided)
	}
}

// Down implements [stream.Sink].
func (s sink) Down(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.up && !s.mu.closed {
		s.mu.gone = time.AfterFunc(awayAfter, func() { s.fail(err, false) })
	}
	s.mu.up, s.mu.why = false, err
	if s.known() {
		return
	}
	if errors.Is(err, stream.ErrStandby) { // it speaks the stream
		close(s.decided)
		return
	}
	hungUp := errors.Is(err, stream.ErrHungUp)
	if hungUp {
		s.mu.hungUp++
	}
	if errors.Is(err, stream.ErrNotSpoken) && (!hungUp || s.mu.hungUp >= hangUps) && !s.mu.asking {
		s.mu.asking = true
		s.work.Go(s.ask)
	}
}

// split takes a list of addresses apart. The schemes ipv4 and ipv6 name several servers in one.
func split(address string) []string {
	scheme, rest, _ := strings.Cut(address, ":")
	if scheme != "ipv4" && scheme != "ipv6" {
		return strings.Split(address, ",")
	}
	var all []string
	for _, place := range strings.Split(strings.TrimPrefix(rest, "///"), ",") {
		all = append(all, scheme+":"+place)
	}
	return all
}

// check says whether all addresses can be read.
func check(addresses []string) error {
	for _, a := range addresses {
		if err := conn.CheckAddress(a); err != nil {
			return err
		}
	}
	return nil
}
