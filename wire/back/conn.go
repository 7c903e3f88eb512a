package back

import (
	"bufio"
	"errors"
	"fmt"
	"math"
	"net"
	"sync"

	"golang.org/x/net/http2"

	"github.com/serry-dev/serry/wire/conn"
	"github.com/serry-dev/serry/wire/internal/h2"
	"github.com/serry-dev/serry/wire/rpc"
)

// What a connection holds at most. Real clients stay far below; a server that misbehaves, or a
// program that only ever calls, meets them.
const (
	// MaxMessageBytes bounds a request and a reply.
	MaxMessageBytes = math.MaxInt32 - h2.PrefixBytes

	// MaxCalls bounds the calls of a connection that have no reply yet.
	MaxCalls = 1 << 20

	maxHeaderBytes = 64 << 10  // of one encoded block
	maxControl     = 10_000    // acknowledgements that wait to be written
	connWindow     = 16 << 20  // what the server may send before the window is widened
	streamWindow   = 1<<31 - 1 // replies are bounded by MaxMessageBytes instead
	readBytes      = 8 << 10   // read ahead, per connection
)

// ErrUnsent marks calls of which the server has seen nothing, so that they may be made again.
var ErrUnsent = errors.New("the call was not sent")

// A Done takes the end of a call: a reply if the status is OK, which is the caller's from now on, or
// what the server said instead. With an error the call or its answer was lost. It is called once, by
// the goroutine that reads the connection, which it must not hold up.
type Done func(reply []byte, st rpc.Status, err error)

// A Conn is one HTTP/2 connection to a server.
type Conn struct {
	nc      *conn.Conn     // constant
	gzip    bool           // constant
	work    sync.WaitGroup // the reader
	read    reader         // owned by the reader
	mu      sending
	greeted chan struct{} // closed when the server has sent its settings
	ended   chan struct{} // closed when the reader has ended
}

// sending is what callers and the reader share.
type sending struct {
	*conn.Pipe       // its lock guards what follows, too
	err        error // why no further call is taken, or nil
	headers    *headers
	nextID     uint32
	streams    map[uint32]*stream
	idle       []*waiter // for the next calls
	queue      []queued  // calls beyond the server's limit on streams
	blocked    []*stream // requests that wait for a window, in the order of their calls

	window  int64 // what this side may still send on the connection
	peer    peerSettings
	control int // acknowledgements since the socket last took all output
}

type peerSettings struct {
	window  int64 // that a stream begins with
	frame   int
	streams uint32 // how many may be open: none before the first settings
	known   bool   // the first settings have come
}

type queued struct {
	stream  *stream
	path    string
	request message
}

// New speaks over a connection that is already there, and owns it from now on. Of the options it uses
// those that are about calls. Calls wait until the server has sent its settings.
func New(nc net.Conn, authority string, o Options) *Conn {
	c := &Conn{nc: conn.New(nc), gzip: o.Gzip, greeted: make(chan struct{}), ended: make(chan struct{})}
	c.mu.Pipe = conn.NewPipe(c.nc, conn.PipeConfig{Owner: c})
	c.mu.headers = newHeaders(authority, c.nc.Secure(), o.Gzip)
	c.mu.nextID = 1
	c.mu.streams = make(map[uint32]*stream)
	c.mu.window = h2.InitialWindow
	c.mu.peer = peerSettings{window: h2.InitialWindow, frame: h2.MinFrame}
	c.mu.Out = appendPreface(nil)
	c.read.init(bufio.NewReaderSize(flushFirst{c}, readBytes))
	c.work.Go(c.readAll)
	return c
}

// Start begins a call of a method, given as its path, and returns at once; done will be told its end.
// Nothing is sent before [Conn.Flush], except from inside a Done of this connection. The request is
// copied.
func (c *Conn) Start(path string, request []byte, done Done) {
	if err := c.begin(path, request, &stream{done: done}); err != nil {
		done(nil, rpc.Status{}, err)
	}
}

// begin puts a call on its way. An error says why it cannot be, and that nothing was sent.
func (c *Conn) begin(path string, request []byte, s *stream) error {
	if len(request) > MaxMessageBytes {
		return fmt.Errorf("%w: request of %d bytes, want at most %d", ErrTooLarge, len(request), MaxMessageBytes)
	}
	msg := c.pack(request)
	c.mu.Lock()
	defer c.mu.Unlock()
	m := &c.mu
	switch {
	case m.err != nil:
		return fmt.Errorf("%w: %w", ErrUnsent, m.err)
	case len(m.streams)+len(m.queue) >= MaxCalls:
		return fmt.Errorf("%w: %d calls wait already", ErrTooMany, MaxCalls)
	case int64(m.nextID)+2*int64(len(m.queue)) > h2.MaxWindow:
		m.err = errors.New("connection has no stream numbers left")
		return fmt.Errorf("%w: %w", ErrUnsent, m.err)
	}
	if len(m.streams) >= int(m.peer.streams) {
		msg.body = append([]byte(nil), msg.body...)
		m.queue = append(m.queue, queued{s, path, msg})
		return nil
	}
	c.open(s, path, msg)
	return nil
}

// Errors of calls that are refused here.
var (
	ErrTooLarge = h2.ErrTooLarge
	ErrTooMany  = errors.New("too many calls")
)

// Close ends the connection and all its calls, and waits until the last Done has returned. Only a Done
// must not call it.
func (c *Conn) Close() {
	c.refuse(net.ErrClosed)
	c.nc.Close() // ends the reader, which tells the calls
	c.work.Wait()
	c.mu.Wait()
}

// Ended is closed when the connection is over and all its calls have been told.
func (c *Conn) Ended() <-chan struct{} { return c.ended }

// Err says why no further call is taken, or nil.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.err
}

// refuse makes err the answer to all calls from now on.
func (c *Conn) refuse(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.err == nil {
		c.mu.err = err
	}
}

// appendPreface appends what a client sends first: the preface, its settings, and a wider window.
func appendPreface(b []byte) []byte {
	b = append(b, http2.ClientPreface...)
	b = h2.AppendSettings(b,
		http2.Setting{ID: http2.SettingEnablePush, Val: 0},
		http2.Setting{ID: http2.SettingInitialWindowSize, Val: streamWindow})
	return h2.AppendWindowUpdate(b, 0, connWindow-h2.InitialWindow)
}
