package load

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// What a connection holds at most. The load itself stays far below; a server that misbehaves, or a
// program that only ever calls, meets them.
const (
	// MaxMessageBytes bounds a request and a reply.
	MaxMessageBytes = 64 << 20

	// MaxCalls bounds the calls of a connection that have no reply yet.
	MaxCalls = 1 << 20

	maxHeaderBytes = 64 << 10  // of one encoded block
	maxControl     = 10_000    // acknowledgements that wait to be written
	maxStreamID    = 1<<31 - 1 // then a connection is used up
	connWindow     = 16 << 20  // what the server may send before we say more
	streamWindow   = 1<<31 - 1 // replies are bounded by MaxMessageBytes instead
	readBytes      = 8 << 10   // read ahead, per connection
	keepBytes      = 64 << 10  // larger buffers are not kept for the next call
)

// Done takes the end of a call: the reply, which is valid until Done returns, or an error with a
// gRPC status. A connection that ends gives UNAVAILABLE to all its calls.
type Done func(reply []byte, err error)

// A Conn is one HTTP/2 connection to a server.
type Conn struct {
	nc    net.Conn        // constant
	raw   syscall.RawConn // of nc, or nil where a write cannot be tried without waiting
	work  sync.WaitGroup  // reader, and a writer where one is needed
	read  reader          // owned by the reader goroutine
	mu    sending
	ended chan struct{} // closed when the reader has ended
}

// sending is what callers and the reader share.
type sending struct {
	sync.Mutex
	err     error // why no further call is taken, or nil
	headers *headers
	nextID  uint32
	streams map[uint32]*stream
	queue   []queued  // calls beyond the server's limit on streams
	blocked []*stream // requests that wait for a window, in the order of their calls

	window  int64 // what we may send on the connection
	peer    peerSettings
	control int    // acknowledgements in out
	out     []byte // to be written
	spare   []byte // the other buffer, or nil while it is being written
	writing bool
}

type peerSettings struct {
	window  int64 // that a stream begins with
	frame   int
	streams uint32 // none before the server's first word
	known   bool   // that has come
}

type queued struct {
	stream  *stream
	method  string
	request []byte
}

// Dial connects to a TCP address or, written unix:PATH, to a Unix socket. If secure is not nil the
// connection is encrypted as it says.
func Dial(ctx context.Context, addr string, secure *tls.Config) (*Conn, error) {
	network, authority := "tcp", addr
	if path, ok := strings.CutPrefix(addr, "unix:"); ok {
		network, addr, authority = "unix", path, "localhost"
	}
	nc, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	if secure == nil {
		return NewConn(nc, authority), nil
	}
	secure = secure.Clone()
	secure.NextProtos = []string{"h2"}
	if secure.ServerName == "" {
		secure.ServerName, _, _ = net.SplitHostPort(authority)
	}
	tc := tls.Client(nc, secure)
	if err := tc.HandshakeContext(ctx); err != nil {
		nc.Close()
		return nil, fmt.Errorf("dial %s: %w", addr, err)
	}
	return NewConn(tc, authority), nil
}

// NewConn speaks over a connection that is already there, and owns it from now on.
func NewConn(nc net.Conn, authority string) *Conn {
	c := &Conn{nc: nc, ended: make(chan struct{})}
	if sc, ok := nc.(syscall.Conn); ok {
		c.raw, _ = sc.SyscallConn() // without one writes go to a goroutine
	}
	_, secure := nc.(*tls.Conn)
	c.mu.headers = newHeaders(authority, secure)
	c.mu.nextID = 1
	c.mu.streams = make(map[uint32]*stream)
	c.mu.window = initialWindow
	c.mu.peer = peerSettings{window: initialWindow, frame: minFrame}
	c.mu.out = appendPreface(nil)
	c.read.init(bufio.NewReaderSize(flushFirst{c}, readBytes))
	c.work.Go(c.readAll)
	return c
}

// Call begins a call of a method, given as its path, and returns at once; done will be called once.
// The request is copied. Nothing is sent before [Conn.Flush], except from inside a Done of this
// connection.
func (c *Conn) Call(method string, request []byte, done Done) {
	c.mu.Lock()
	err := c.begin(method, request, done)
	c.mu.Unlock()
	if err != nil {
		done(nil, err)
	}
}

func (c *Conn) begin(method string, request []byte, done Done) error {
	m := &c.mu
	switch {
	case m.err != nil:
		return m.err
	case len(request) > MaxMessageBytes:
		return status.Errorf(codes.ResourceExhausted, "request of %d bytes: want at most %d", len(request), MaxMessageBytes)
	case len(m.streams)+len(m.queue) >= MaxCalls:
		return status.Errorf(codes.ResourceExhausted, "more than %d calls", MaxCalls)
	case int64(m.nextID)+2*int64(len(m.queue)) > maxStreamID:
		return status.Error(codes.Unavailable, "connection has no stream numbers left")
	}
	s := newStream(done)
	if len(m.streams) >= int(m.peer.streams) {
		m.queue = append(m.queue, queued{s, method, append([]byte(nil), request...)})
		return nil
	}
	c.open(s, method, request)
	return nil
}

// Close ends the connection and all its calls, and waits until the last Done has returned.
func (c *Conn) Close() {
	c.nc.Close() // ends the reader, which tells the calls
	c.work.Wait()
}

// Ended is closed when the connection is over and all its calls have been told.
func (c *Conn) Ended() <-chan struct{} { return c.ended }

// refuse makes err the answer to all calls from now on.
func (c *Conn) refuse(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.err == nil {
		c.mu.err = err
	}
}

const (
	initialWindow = 1<<16 - 1 // of RFC 9113, before any SETTINGS
	minFrame      = 1 << 14   // likewise
)

// appendPreface is how a client begins: the magic words, its settings, and a wider window.
func appendPreface(b []byte) []byte {
	b = append(b, http2.ClientPreface...)
	b = appendSettings(b,
		http2.Setting{ID: http2.SettingEnablePush, Val: 0},
		http2.Setting{ID: http2.SettingInitialWindowSize, Val: streamWindow})
	return appendWindowUpdate(b, 0, connWindow-initialWindow)
}
