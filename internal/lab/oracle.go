package lab

import (
	"context"
	"errors"
	"io"
	"math"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/gzip" // C-WIRE-3: jax compresses what it sends
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/server"
	"github.com/serry-dev/serry/wire"
	"github.com/serry-dev/serry/wire/rpc"
)

const (
	streamWindow     = 1 << 20
	connectionWindow = 16 << 20
	maxHeaderBytes   = 64 << 10
)

// An Oracle serves the calls of a server by grpc-go instead of package front. Tests make the same calls
// by both and compare how they end: what grpc-go does with a call is what stock clients are used to.
type Oracle struct {
	handler rpc.Handler
	methods rpc.Methods
	server  *grpc.Server
}

// NewOracle makes an oracle that hands its calls to s, which need not serve anything itself.
func NewOracle(s *server.Server) *Oracle {
	o := &Oracle{handler: s.Handler(), methods: wire.Methods(coord.DefaultLimits().ValueBytes)}
	o.server = grpc.NewServer(
		grpc.UnknownServiceHandler(o.call),
		grpc.ForceServerCodecV2(rawCodec{}),
		grpc.StatsHandler(o),
		grpc.MaxRecvMsgSize(largest(o.methods)), // bounds what gzip may expand to, too
		grpc.MaxSendMsgSize(math.MaxInt),
		grpc.MaxHeaderListSize(maxHeaderBytes),
		grpc.InitialWindowSize(streamWindow),
		grpc.InitialConnWindowSize(connectionWindow),
		// C-WIRE-5: nothing may end a connection that is only quiet, or one that pings (A-CH-7).
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Millisecond, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: math.MaxInt64}),
	)
	return o
}

func largest(m rpc.Methods) int {
	n := int64(0)
	for _, method := range m {
		n = max(n, method.MaxRequestBytes)
	}
	return int(min(n, math.MaxInt))
}

// Serve takes connections until l fails or Shutdown is called; then it returns nil.
func (o *Oracle) Serve(l net.Listener) error {
	if err := o.server.Serve(l); !errors.Is(err, grpc.ErrServerStopped) {
		return err
	}
	return nil
}

// Shutdown lets the calls in progress end until ctx does, and closes everything. The server behind the
// oracle must have stopped before, so that it has answered the calls that wait.
func (o *Oracle) Shutdown(ctx context.Context) {
	release := context.AfterFunc(ctx, o.server.Stop)
	defer release()
	o.server.GracefulStop()
}

// A oracleConn is one connection. It implements [rpc.Conn].
type oracleConn struct {
	remote net.Addr

	mu struct {
		sync.Mutex
		last  rpc.CallID
		calls map[rpc.CallID]chan<- oracleEnd // nil once the connection has ended
	}
}

// An oracleEnd is how a call ends.
type oracleEnd struct {
	body   []byte
	status rpc.Status
}

type connKey struct{}

// TagConn implements [stats.Handler].
func (o *Oracle) TagConn(ctx context.Context, info *stats.ConnTagInfo) context.Context {
	c := &oracleConn{remote: info.RemoteAddr}
	c.mu.calls = make(map[rpc.CallID]chan<- oracleEnd)
	return context.WithValue(ctx, connKey{}, c)
}

// HandleConn implements [stats.Handler].
func (o *Oracle) HandleConn(ctx context.Context, s stats.ConnStats) {
	c := ctx.Value(connKey{}).(*oracleConn)
	switch s.(type) {
	case *stats.ConnBegin:
		o.handler.Open(c)
	case *stats.ConnEnd:
		c.mu.Lock()
		c.mu.calls = nil
		c.mu.Unlock()
		o.handler.Close(c, io.EOF)
	}
}

// TagRPC implements [stats.Handler].
func (o *Oracle) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context {
	return ctx
}

// HandleRPC implements [stats.Handler].
func (o *Oracle) HandleRPC(context.Context, stats.RPCStats) {}

// call serves one call: it waits until the handler answers or the client gives up.
func (o *Oracle) call(_ any, stream grpc.ServerStream) error {
	name, _ := grpc.MethodFromServerStream(stream)
	method, ok := o.methods[name]
	if !ok {
		return status.Error(codes.Unimplemented, "unknown method "+name)
	}
	ctx := stream.Context()
	c := ctx.Value(connKey{}).(*oracleConn)
	answer := make(chan oracleEnd, 1)
	id, ok := c.begin(answer)
	if !ok {
		return status.FromContextError(context.Canceled).Err()
	}
	if err := o.hand(c, id, name, method, stream); err != nil {
		c.forget(id)
		return err
	}
	select {
	case e := <-answer:
		return e.send(stream)
	case <-ctx.Done():
		if c.forget(id) {
			o.handler.Cancel(c, id)
		}
		return status.FromContextError(ctx.Err()).Err()
	}
}

// hand reads the one message of a request and hands it to the handler.
func (o *Oracle) hand(c *oracleConn, id rpc.CallID, name string, m rpc.Method, stream grpc.ServerStream) error {
	var request mem.Buffer
	if err := stream.RecvMsg(&request); errors.Is(err, io.EOF) {
		return status.Error(codes.Internal, "the request has no message")
	} else if err != nil {
		return err
	}
	defer request.Free()
	if int64(request.Len()) > m.MaxRequestBytes {
		err := &serry.LimitError{Limit: "bytes of a request", Max: m.MaxRequestBytes}
		return status.Error(codes.ResourceExhausted, err.Error())
	}
	o.handler.Serve(c, id, name, request.ReadOnlyData())
	o.handler.Served(c)
	return nil
}

// send writes the reply. Errors go without a message, and their payloads as they are: they are no
// google.rpc.Status, which is what grpc-go would make of details (C-WIRE-13).
func (e oracleEnd) send(stream grpc.ServerStream) error {
	if e.status.OK() {
		if err := grpc.SetSendCompressor(stream.Context(), encoding.Identity); err != nil {
			return err
		}
		return stream.SendMsg(e.body)
	}
	if e.status.Details != nil {
		stream.SetTrailer(metadata.Pairs(detailsTrailer, string(e.status.Details)))
	}
	return status.Error(e.status.Code, e.status.Message)
}

func (c *oracleConn) begin(answer chan<- oracleEnd) (rpc.CallID, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.calls == nil {
		return 0, false
	}
	c.mu.last++
	c.mu.calls[c.mu.last] = answer
	return c.mu.last, true
}

// forget says whether the call was still open.
func (c *oracleConn) forget(id rpc.CallID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, open := c.mu.calls[id]
	delete(c.mu.calls, id)
	return open
}

// Reply implements [rpc.Conn].
func (c *oracleConn) Reply(id rpc.CallID, body []byte, st rpc.Status) {
	c.mu.Lock()
	answer := c.mu.calls[id]
	delete(c.mu.calls, id)
	c.mu.Unlock()
	if answer != nil {
		answer <- oracleEnd{body, st} // has room
	}
}

// Flush implements [rpc.Conn]. grpc-go gathers what is ready by itself.
func (c *oracleConn) Flush() {}

// RemoteAddr implements [rpc.Conn].
func (c *oracleConn) RemoteAddr() net.Addr { return c.remote }

// rawCodec passes messages as bytes: requests as one mem.Buffer, replies as []byte.
type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*mem.Buffer) = data.MaterializeToBuffer(mem.DefaultBufferPool())
	return nil
}
