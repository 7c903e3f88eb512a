package server

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"math"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/gzip" // C-WIRE-3: jax compresses what it sends
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	grpcpeer "google.golang.org/grpc/peer"
	grpcstats "google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/wire/mtls"
	"github.com/serry-dev/serry/wire/rpc"
	"github.com/serry-dev/serry/wire/stream"
)

const (
	detailsTrailer   = "grpc-status-details-bin"
	streamWindow     = 1 << 20
	connectionWindow = 16 << 20
	maxHeaderBytes   = 64 << 10
	streamWorkers    = 32 // E-73: saves the start of a goroutine for short calls
)

// grpcTransport is the transport that grpc-go makes. grpc-go wants a goroutine for every call that
// waits; that is all a waiting call costs beyond the server's own entry.
type grpcTransport struct {
	handler rpc.Handler
	methods rpc.Methods
	server  *grpc.Server
	others  sync.WaitGroup // connections that are not grpc-go's
}

func newGRPC(h rpc.Handler, m rpc.Methods, secure *tls.Config, refused *refusals, streams func(net.Conn, []byte)) *grpcTransport {
	t := &grpcTransport{handler: h, methods: m}
	creds := insecure.NewCredentials()
	if secure != nil {
		creds = strict{credentials.NewTLS(mtls.Offering(secure, stream.Protocol, "h2")), refused}
	}
	creds = sorting{creds, t, streams}
	t.server = grpc.NewServer(
		grpc.Creds(creds),
		grpc.UnknownServiceHandler(t.call),
		grpc.ForceServerCodecV2(rawCodec{}),
		grpc.StatsHandler(t),
		grpc.MaxRecvMsgSize(largest(m)), // bounds what gzip may expand to, too
		grpc.MaxSendMsgSize(math.MaxInt),
		grpc.MaxHeaderListSize(maxHeaderBytes),
		grpc.InitialWindowSize(streamWindow),
		grpc.InitialConnWindowSize(connectionWindow),
		grpc.NumStreamWorkers(streamWorkers),
		grpc.SharedWriteBuffer(true),
		// C-WIRE-5: nothing may end a connection that is only quiet, or one that pings (A-CH-7).
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Millisecond, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: math.MaxInt64}),
	)
	return t
}

func largest(m rpc.Methods) int {
	n := int64(0)
	for _, method := range m {
		n = max(n, method.MaxRequestBytes)
	}
	return int(min(n, math.MaxInt))
}

func (t *grpcTransport) serve(l net.Listener) error {
	if err := t.server.Serve(l); !errors.Is(err, grpc.ErrServerStopped) {
		return err
	}
	return nil
}

func (t *grpcTransport) shutdown(ctx context.Context) {
	release := context.AfterFunc(ctx, t.server.Stop)
	defer release()
	t.server.GracefulStop()
	t.others.Wait()
}

// A grpcConn is one connection. It implements [rpc.Conn].
type grpcConn struct {
	remote  net.Addr
	certify sync.Once
	uris    []string // names of the peer's certificate; set in certify

	mu struct {
		sync.Mutex
		last  rpc.CallID
		calls map[rpc.CallID]chan<- ending // nil once the connection has ended
	}
}

// An ending is how a call ends.
type ending struct {
	body   []byte
	status rpc.Status
}

type connKey struct{}

// TagConn implements [grpcstats.Handler].
func (t *grpcTransport) TagConn(ctx context.Context, info *grpcstats.ConnTagInfo) context.Context {
	c := &grpcConn{remote: info.RemoteAddr}
	c.mu.calls = make(map[rpc.CallID]chan<- ending)
	return context.WithValue(ctx, connKey{}, c)
}

// HandleConn implements [grpcstats.Handler].
func (t *grpcTransport) HandleConn(ctx context.Context, s grpcstats.ConnStats) {
	c := ctx.Value(connKey{}).(*grpcConn)
	switch s.(type) {
	case *grpcstats.ConnBegin:
		t.handler.Open(c)
	case *grpcstats.ConnEnd:
		c.mu.Lock()
		c.mu.calls = nil
		c.mu.Unlock()
		t.handler.Close(c, io.EOF)
	}
}

// TagRPC implements [grpcstats.Handler].
func (t *grpcTransport) TagRPC(ctx context.Context, _ *grpcstats.RPCTagInfo) context.Context {
	return ctx
}

// HandleRPC implements [grpcstats.Handler].
func (t *grpcTransport) HandleRPC(context.Context, grpcstats.RPCStats) {}

// call serves one call: it waits until the handler answers or the client gives up.
func (t *grpcTransport) call(_ any, stream grpc.ServerStream) error {
	name, _ := grpc.MethodFromServerStream(stream)
	method, ok := t.methods[name]
	if !ok {
		return status.Error(codes.Unimplemented, "unknown method "+name)
	}
	ctx := stream.Context()
	c := ctx.Value(connKey{}).(*grpcConn)
	c.certify.Do(func() { c.uris = urisOf(ctx) })
	answer := make(chan ending, 1)
	id, ok := c.begin(answer)
	if !ok {
		return status.FromContextError(context.Canceled).Err()
	}
	if err := t.hand(c, id, name, method, stream); err != nil {
		c.forget(id)
		return err
	}
	select {
	case e := <-answer:
		return e.send(stream)
	case <-ctx.Done():
		if c.forget(id) {
			t.handler.Cancel(c, id)
		}
		return status.FromContextError(ctx.Err()).Err()
	}
}

// hand reads the one message of a request and hands it to the handler.
func (t *grpcTransport) hand(c *grpcConn, id rpc.CallID, name string, m rpc.Method, stream grpc.ServerStream) error {
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
	t.handler.Serve(c, id, name, request.ReadOnlyData())
	t.handler.Served(c)
	return nil
}

// send writes the reply. Errors go without a message, and their payloads as they are: they are no
// google.rpc.Status, which is what grpc-go would make of details (C-WIRE-13).
func (e ending) send(stream grpc.ServerStream) error {
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

func (c *grpcConn) begin(answer chan<- ending) (rpc.CallID, bool) {
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
func (c *grpcConn) forget(id rpc.CallID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, open := c.mu.calls[id]
	delete(c.mu.calls, id)
	return open
}

// Reply implements [rpc.Conn].
func (c *grpcConn) Reply(id rpc.CallID, body []byte, st rpc.Status) {
	c.mu.Lock()
	answer := c.mu.calls[id]
	delete(c.mu.calls, id)
	c.mu.Unlock()
	if answer != nil {
		answer <- ending{body, st} // has room
	}
}

// Flush implements [rpc.Conn]. grpc-go gathers what is ready by itself.
func (c *grpcConn) Flush() {}

// RemoteAddr implements [rpc.Conn].
func (c *grpcConn) RemoteAddr() net.Addr { return c.remote }

// PeerURIs implements [certified].
func (c *grpcConn) PeerURIs() []string { return c.uris }

// urisOf finds the URI names in the certificate that the caller showed.
func urisOf(ctx context.Context) []string {
	p, ok := grpcpeer.FromContext(ctx)
	if !ok {
		return nil
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.PeerCertificates) == 0 {
		return nil
	}
	var uris []string
	for _, u := range info.State.PeerCertificates[0].URIs {
		uris = append(uris, u.String())
	}
	return uris
}

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
