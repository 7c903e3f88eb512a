package front

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"

	"github.com/serry-dev/serry/wire/conn"
	"github.com/serry-dev/serry/wire/internal/h2"
	"github.com/serry-dev/serry/wire/rpc"
)

// A connection speaks HTTP/2 with one peer. It implements rpc.Conn.
type connection struct {
	// Set in newConn, then constant.
	srv    *Server
	nc     *conn.Conn
	remote net.Addr
	uris   []string // in the certificate of the peer

	// Of unfinished requests: that of all strangers, then one of this connection.
	budget atomic.Pointer[conn.Budget]

	inChunk   atomic.Bool    // the reader handles a chunk and will flush
	callbacks sync.WaitGroup // calls of Handler.Cancel by other goroutines than the reader

	in inbound // owned by the reader

	mu struct {
		*conn.Pipe // its lock guards what follows, too

		ready bool // the handshake is done
		ended bool // no more calls and replies

		open   map[uint32]call  // calls without a reply
		timed  int              // how many of them have a deadline with the scanner
		credit map[uint32]int64 // what the peer added to the windows of open streams
		sender sender
		coder  blockCoder

		openedAt  time.Duration
		settled   bool // the peer acknowledged the settings, or a warning says that it did not
		draining  drainState
		warnedAt  time.Duration
		expired   []uint32 // streams whose unfinished requests the reader shall drop
		late      uint32   // the stream whose deadline passed during Handler.Serve, or 0
		watched   bool     // the scanner looks after the connection
		lastCheck progress
		acks      int // acknowledgements since the socket last took all output
	}
}

// inbound is the state of the reading side.
type inbound struct {
	started bool // preface seen
	opened  bool // SETTINGS seen, handler told
	served  bool // the handler got calls of this chunk
	now     time.Duration

	strange      int64     // bytes read while the peer was a stranger
	data         dataFrame // the DATA frame that is being read
	block        headerBlock
	headers      headerReader
	highest      uint32 // stream number
	refusing     bool   // streams above highest are ignored, after the last GOAWAY
	current      *request
	parked       map[uint32]*request
	spare        *request
	deadlines    []deadline // of calls that came with this chunk
	endedEarly   []uint32   // streams that the server ended before the peer did, the last few
	endedEarlyAt int

	used       int64 // of the connection's window, not yet given back
	window     int64
	tiny       int // DATA frames in a row
	resets     bucket
	pings      bucket
	settings   bucket
	idle       bucket
	dataSeen   uint64 // sender.moved when idle was last emptied
	pingedAt   uint64 // sender.moved at the last PING
	young      uint32 // streams up to this one are older than a second or so
	youngNext  uint32
	youngSince time.Duration
}

// A call is what is kept of an open one: the index of its method and three flags.
type call uint32

const (
	callTimed     call = 1 << 16 // has an alarm with the scanner
	callReceiving call = 1 << 17 // the request is not complete, the handler does not know it
	callServing   call = 1 << 18 // timed, and the handler is about to take it: see dispatch
	callMethod    call = 1<<16 - 1
)

func newConnection(s *Server, nc *conn.Conn) *connection {
	c := &connection{srv: s, nc: nc, remote: nc.RemoteAddr(), uris: nc.PeerURIs()}
	if s.strangers != nil {
		c.budget.Store(s.strangers)
	} else {
		c.Known()
	}
	c.in.window = connWindow
	c.in.parked = make(map[uint32]*request)
	c.in.headers.decoder = hpack.NewDecoder(h2.TableBytes, c.in.headers.field)
	c.mu.Pipe = conn.NewPipe(nc, conn.PipeConfig{Owner: c, Totals: &s.count.Totals})
	c.mu.open = make(map[uint32]call)
	c.mu.credit = make(map[uint32]int64)
	c.mu.sender.init()
	return c
}

// RemoteAddr implements rpc.Conn.
func (c *connection) RemoteAddr() net.Addr { return c.remote }

// PeerURIs are the URI names in the certificate that the peer showed.
func (c *connection) PeerURIs() []string { return c.uris }

// Known says that the peer is no stranger: see Config.StrangerBytes. Any goroutine may call it.
func (c *connection) Known() {
	if c.stranger() {
		c.budget.Store(c.srv.budget.Part(maxConnBytes))
	}
}

// stranger says whether the handler does not know the peer.
func (c *connection) stranger() bool { return c.budget.Load() == c.srv.strangers }

// serve reads the connection to its end. It returns when all goroutines of the connection have ended.
func (c *connection) serve() {
	c.greet()
	err := c.read()
	c.end(err)
	c.mu.Fail(err)
	c.mu.Wait()
}

// greet sends the settings and widens the window of the connection, in one write (F-21).
func (c *connection) greet() {
	c.mu.Lock()
	c.mu.Out = h2.AppendSettings(c.mu.Out,
		http2.Setting{ID: http2.SettingInitialWindowSize, Val: streamWindow},
		http2.Setting{ID: http2.SettingMaxFrameSize, Val: maxDataFrame},
		http2.Setting{ID: http2.SettingMaxHeaderListSize, Val: maxHeaderList})
	c.mu.Out = h2.AppendWindowUpdate(c.mu.Out, 0, connWindow-h2.InitialWindow)
	c.mu.Unlock()
	c.flush()
}

// established runs once the peer's first SETTINGS have come.
func (c *connection) established() {
	c.in.opened = true
	c.nc.Greeted()
	c.srv.handler.Open(c)
	c.mu.Lock()
	c.mu.ready, c.mu.openedAt = true, c.srv.now()
	c.watch()
	c.mu.Unlock()
}

// end closes the connection: calls first, then, where the peer may still listen, GOAWAY.
func (c *connection) end(err error) {
	c.mu.Lock()
	polite := c.mu.Cause() == nil
	if !polite {
		err = c.mu.Cause()
	}
	var code http2.ErrCode
	reason := ""
	if ce, ok := errors.AsType[*ConnError](err); ok {
		code, reason = ce.Code, ce.Reason
		c.srv.count.protocol(code)
	} else if errors.Is(err, errDrained) {
		err = ErrServerClosed
	} else {
		polite = false
	}
	if polite && code != http2.ErrCodeNo {
		c.mu.Out = h2.AppendGoAway(c.mu.Out, c.in.highest, code, reason)
	}
	c.mu.ended = true
	c.srv.scan.forget(c.mu.timed)
	clear(c.mu.open)
	clear(c.mu.credit)
	c.mu.sender.drop()
	c.mu.Unlock()
	c.releaseRequests()

	c.callbacks.Wait()
	if c.in.opened {
		c.srv.handler.Close(c, err)
	}
	c.logEnd(err)
	if polite {
		c.linger()
	}
	c.nc.Close()
}

func (c *connection) logEnd(err error) {
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, ErrServerClosed), errors.Is(err, net.ErrClosed):
		c.srv.log.Debug("connection closed", "peer", c.remote, "err", err)
	default:
		c.srv.log.Info("connection ended", "peer", c.remote, "err", err)
	}
}

// linger writes what is left and waits a little for the peer to close, so that a reset caused by
// bytes still on their way does not take the last frames from it.
func (c *connection) linger() {
	c.nc.SetDeadline(time.Now().Add(lingerTime))
	c.mu.Drain()
	if c.mu.Err() != nil {
		return
	}
	c.nc.CloseWrite()
	io.CopyN(io.Discard, c.nc.Conn, conn.PauseOutput)
}

// expire ends a call whose deadline has passed (F-29).
func (c *connection) expire(stream uint32) {
	c.mu.Lock()
	k, ok := c.mu.open[stream]
	if !ok || c.mu.ended {
		c.mu.Unlock()
		return
	}
	c.closeCall(stream, k)
	c.sendStatus(stream, k, rpc.Status{Code: codes.DeadlineExceeded, Message: "deadline exceeded"}, nil)
	if k&callReceiving != 0 {
		c.mu.Out = h2.AppendReset(c.mu.Out, stream, http2.ErrCodeNo)
		c.mu.expired = append(c.mu.expired, stream)
		c.wake()
		c.mu.Unlock()
		return
	}
	if k&callServing != 0 { // the reader tells the handler, when that has taken the call
		c.mu.late = stream
		c.mu.Unlock()
		return
	}
	c.callbacks.Add(1)
	c.mu.Unlock()
	defer c.callbacks.Done()
	c.srv.handler.Cancel(c, rpc.CallID(stream))
}

// armed says whether an alarm still has a meaning.
func (c *connection) armed(stream uint32) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if stream == 0 {
		return true
	}
	_, ok := c.mu.open[stream]
	return ok
}

// timeout says whether err is a deadline of a net.Conn.
func timeout(err error) bool {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return true
	}
	ne, ok := errors.AsType[net.Error](err)
	return ok && ne.Timeout()
}
