package front

import (
	"context"
	"crypto/tls"
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

	"github.com/serry-dev/serry/wire/internal/socket"
	"github.com/serry-dev/serry/wire/rpc"
)

// A conn is one connection. It implements rpc.Conn.
type conn struct {
	// Set in newConn, then constant.
	srv    *Server
	nc     net.Conn
	remote net.Addr
	budget budget // of messages under way on this connection

	uris []string  // in the certificate of the peer; set before the handler knows the connection
	out  transport // see write.go for who may use it

	inWave    atomic.Bool    // the reader handles a wave and will flush
	callbacks sync.WaitGroup // Cancels under way on other goroutines than the reader
	writers   sync.WaitGroup

	in      inbound // owned by the reader
	refused bool    // the same: it ended in the TLS handshake

	mu struct {
		sync.Mutex
		cond sync.Cond // output shrank, or the connection ended

		cause  error // why it ends, set by fail; or nil
		ready  bool  // the handshake is done
		ended  bool  // no more calls and replies
		closed bool  // no writer goroutine may start any more

		open   map[uint32]call  // calls without a reply
		timed  int              // how many of them have a deadline with the scanner
		credit map[uint32]int64 // what the peer added to the windows of open streams
		sender sender
		coder  blockCoder

		out        []byte // encoded, not yet handed to the transport
		flying     int    // bytes with the transport
		flyingAcks int
		writing    bool // somebody is writing; only one may
		acks       int  // acknowledgements in out

		openedAt  time.Duration
		settled   bool // the peer acknowledged our settings, or it was said that it does not
		draining  drainState
		warnedAt  time.Duration
		expired   []uint32 // streams whose unfinished requests the reader shall drop
		late      uint32   // the stream whose deadline passed while the handler took its call, or 0
		watched   bool     // the scanner looks after the connection
		lastCheck progress
		written   uint64 // bytes the socket took, for progress
	}
}

// inbound is the state of the reading side.
type inbound struct {
	source  source
	started bool // preface seen
	other   struct {
		nc   net.Conn
		read []byte
	} // of a connection that does not speak HTTP/2
	opened bool // SETTINGS seen, handler told
	served bool // the handler got calls of this wave
	now    time.Duration

	data      dataFrame // DATA frame under way
	block     headerBlock
	headers   headerReader
	highest   uint32 // stream number
	refusing  bool   // streams above highest are ignored, after the last GOAWAY
	current   *request
	parked    map[uint32]*request
	spare     *request
	deadlines []deadline // of calls that came with this wave
	halted    []uint32   // streams we ended early, the last few
	haltedAt  int

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

func newConn(s *Server, nc net.Conn) *conn {
	c := &conn{srv: s, nc: nc, remote: nc.RemoteAddr()}
	c.budget.limit = maxConnBytes
	c.in.window = connWindow
	c.in.parked = make(map[uint32]*request)
	c.in.headers.decoder = hpack.NewDecoder(headerTable, c.in.headers.field)
	c.mu.cond.L = &c.mu
	c.mu.open = make(map[uint32]call)
	c.mu.credit = make(map[uint32]int64)
	c.mu.sender.init()
	if tcp, ok := nc.(*net.TCPConn); ok {
		// Only to notice hosts that vanished (F-38).
		tcp.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 15 * time.Second, Count: 9})
	}
	return c
}

// RemoteAddr implements rpc.Conn.
func (c *conn) RemoteAddr() net.Addr { return c.remote }

// PeerURIs are the URI names in the certificate that the peer showed.
func (c *conn) PeerURIs() []string { return c.uris }

// serve reads the connection to its end. It returns when all goroutines of the connection have ended.
func (c *conn) serve() {
	c.nc.SetDeadline(time.Now().Add(handshakeTime))
	err := c.secure()
	switch {
	case err == nil && (c.srv.other == nil || c.srv.tls != nil):
		c.greet()
		err = c.read()
	case err == nil: // greeted when it is known to speak HTTP/2
		err = c.read()
	case !errors.Is(err, errOther):
		c.refused = true
	}
	if errors.Is(err, errOther) {
		c.handOver()
	} else {
		c.end(err)
	}
	c.mu.Lock()
	c.mu.closed = true
	c.mu.Unlock()
	c.writers.Wait()
}

// secure sets up the transport, with the TLS handshake where there is TLS.
func (c *conn) secure() error {
	raw := socket.New(c.nc)
	c.out = transport{nc: c.nc, raw: raw}
	c.in.source = newSource(c.nc, raw)
	if c.srv.tls == nil {
		return nil
	}
	sealed := &sealer{Conn: c.nc}
	tc := tls.Server(sealed, c.srv.tls)
	if err := tc.HandshakeContext(context.Background()); err != nil {
		return err
	}
	switch proto := tc.ConnectionState().NegotiatedProtocol; {
	case proto == "":
		return errNoALPN
	case proto != "h2":
		c.in.other.nc = tc
		return errOther
	}
	if shown := tc.ConnectionState().PeerCertificates; len(shown) > 0 {
		for _, u := range shown[0].URIs {
			c.uris = append(c.uris, u.String())
		}
	}
	sealed.hold.Store(true)
	c.out.tls, c.out.sealed = tc, sealed
	c.in.source = newSource(tc, nil)
	return nil
}

// handOver leaves a connection that does not speak HTTP/2 to those who know it.
func (c *conn) handOver() {
	c.nc.SetDeadline(time.Time{})
	c.srv.grown(c)
	c.mu.Lock()
	c.mu.ended = true
	failed := c.mu.cause != nil
	c.mu.Unlock()
	if !failed {
		c.srv.other(c.in.other.nc, c.in.other.read)
	}
	c.nc.Close()
}

// greet sends the settings and widens the window of the connection, in one write (F-21).
func (c *conn) greet() {
	c.mu.Lock()
	c.mu.out = appendSettings(c.mu.out,
		http2.Setting{ID: http2.SettingInitialWindowSize, Val: streamWindow},
		http2.Setting{ID: http2.SettingMaxFrameSize, Val: maxDataFrame},
		http2.Setting{ID: http2.SettingMaxHeaderListSize, Val: maxHeaderList})
	c.mu.out = appendWindowUpdate(c.mu.out, 0, connWindow-initialWindow)
	c.mu.Unlock()
	c.flush()
}

// established runs once the peer's first SETTINGS have come.
func (c *conn) established() {
	c.in.opened = true
	c.nc.SetDeadline(time.Time{})
	c.srv.grown(c)
	c.srv.handler.Open(c)
	c.mu.Lock()
	c.mu.ready, c.mu.openedAt = true, c.srv.now()
	c.watch()
	c.mu.Unlock()
}

// fail ends the connection from any goroutine; the reader does the rest.
func (c *conn) fail(err error) {
	c.mu.Lock()
	if c.mu.cause == nil {
		c.mu.cause = err
	}
	c.mu.cond.Broadcast()
	c.mu.Unlock()
	c.nc.Close()
}

// end closes the connection: calls first, then, where the peer may still listen, GOAWAY.
func (c *conn) end(err error) {
	c.mu.Lock()
	polite := c.mu.cause == nil
	if !polite {
		err = c.mu.cause
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
		c.mu.out = appendGoAway(c.mu.out, c.in.highest, code, reason)
	}
	c.mu.ended = true
	c.srv.scan.forget(c.mu.timed)
	clear(c.mu.open)
	clear(c.mu.credit)
	c.mu.sender.drop()
	c.mu.cond.Broadcast()
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

func (c *conn) logEnd(err error) {
	switch {
	case c.refused && c.srv.refused != nil:
		c.srv.refused(c.remote, err)
	case errors.Is(err, io.EOF), errors.Is(err, ErrServerClosed), errors.Is(err, net.ErrClosed):
		c.srv.log.Debug("connection closed", "peer", c.remote, "err", err)
	default:
		c.srv.log.Info("connection ended", "peer", c.remote, "err", err)
	}
}

// linger writes what is left and waits a little for the peer to close, so that a reset caused by
// bytes still on their way does not take the last frames from it.
func (c *conn) linger() {
	c.nc.SetDeadline(time.Now().Add(lingerTime))
	c.inWave.Store(false)
	c.flush()
	c.mu.Lock()
	for c.mu.writing && c.mu.cause == nil {
		c.mu.cond.Wait()
	}
	failed := c.mu.cause != nil
	c.mu.Unlock()
	if failed {
		return
	}
	c.out.closeWrite()
	io.CopyN(io.Discard, c.nc, pauseOutput)
}

// expire ends a call whose deadline has passed (F-29).
func (c *conn) expire(stream uint32) {
	c.mu.Lock()
	k, ok := c.mu.open[stream]
	if !ok || c.mu.ended {
		c.mu.Unlock()
		return
	}
	c.closeCall(stream, k)
	c.sendStatus(stream, k, rpc.Status{Code: codes.DeadlineExceeded, Message: "deadline exceeded"}, nil)
	if k&callReceiving != 0 {
		c.mu.out = appendReset(c.mu.out, stream, http2.ErrCodeNo)
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
func (c *conn) armed(stream uint32) bool {
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
