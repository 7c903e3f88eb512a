package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/serry-dev/serry/wire/rpc"
)

// A Transport makes unary calls to a service. Several members may share one.
type Transport interface {
	// Call sends a request and waits for its end. An error says that the call may not have reached
	// the service, or its answer not us; whatever the service answered is in the status.
	Call(ctx context.Context, path string, body []byte) (reply []byte, st rpc.Status, err error)

	// Close ends the calls that are under way.
	Close() error
}

// DialOptions say how to reach a service. The zero value means plain text over the network.
type DialOptions struct {
	TLS  *tls.Config // nil: plain text
	Gzip bool        // compress requests, and ask for compressed replies

	// Connect makes the connections, in place of the network. The address is the one of Dial.
	Connect func(ctx context.Context, address string) (net.Conn, error)
}

// Dial makes a Transport to a service that need not be there yet.
func Dial(address string, o DialOptions) (Transport, error) {
	creds := insecure.NewCredentials()
	if o.TLS != nil {
		creds = credentials.NewTLS(o.TLS)
	}
	calls := []grpc.CallOption{
		grpc.ForceCodecV2(rawCodec{}),
		grpc.MaxCallRecvMsgSize(1<<31 - 1),
		grpc.MaxCallSendMsgSize(1<<31 - 1),
		grpc.MaxRetryRPCBufferSize(0),
	}
	if o.Gzip {
		calls = append(calls, grpc.UseCompressor(gzip.Name))
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(creds),
		grpc.WithDefaultCallOptions(calls...),
		grpc.WithDisableServiceConfig(),
		grpc.WithDisableRetry(),
		grpc.WithIdleTimeout(0), // a quiet member is still a member
		// A connection on which nothing arrives at the other end is given up (TCP_USER_TIMEOUT). Pings are
		// as good as never sent: stock services do not like them, and heartbeats are more frequent.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: time.Hour, Timeout: unheardTimeout}),
		// A coordinator that comes back should not have to wait for us.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: 5 * time.Second,
		}),
	}
	target := address
	if o.Connect != nil {
		target = "passthrough:///" + address
		options = append(options, grpc.WithContextDialer(o.Connect))
	}
	conn, err := grpc.NewClient(target, options...)
	if err != nil {
		return nil, fmt.Errorf("address %q: %w", address, err)
	}
	return &network{conn: conn}, nil
}

// unheardTimeout is how long the other host may take to acknowledge bytes.
const unheardTimeout = 20 * time.Second

// network is a Transport over a gRPC connection.
type network struct{ conn *grpc.ClientConn }

func (n *network) Call(ctx context.Context, path string, body []byte) ([]byte, rpc.Status, error) {
	var reply []byte
	var trailer metadata.MD
	err := n.conn.Invoke(ctx, path, body, &reply, grpc.Trailer(&trailer), grpc.WaitForReady(true))
	if err == nil {
		return reply, rpc.Status{}, nil
	}
	st := rpc.Status{Code: status.Code(err), Message: status.Convert(err).Message()}
	if details := trailer["grpc-status-details-bin"]; len(details) > 0 {
		st.Details = []byte(details[0])
	}
	if st.Code == codes.DeadlineExceeded && st.Details == nil && ends(ctx) {
		<-ctx.Done() // the other end keeps our deadline, too, and was the first to say so
	}
	if ctx.Err() != nil {
		return nil, rpc.Status{}, whileWaiting(context.Cause(ctx), st.Message)
	}
	if st.Code == codes.Unavailable && st.Details == nil {
		return nil, rpc.Status{}, errors.New(st.Message)
	}
	return nil, st, nil
}

// ends says whether the deadline of ctx is over, but for what clocks and timers differ by.
func ends(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ok && time.Until(deadline) < deadlineSlack
}

const deadlineSlack = 20 * time.Millisecond

// whileWaiting says why there was no connection, if that is what the call waited for.
func whileWaiting(cause error, message string) error {
	if _, why, ok := strings.Cut(message, "latest balancer error: "); ok {
		return fmt.Errorf("%w: %s", cause, why)
	}
	return cause
}

func (n *network) Close() error { return n.conn.Close() }

// rawCodec passes messages through as they are.
type rawCodec struct{}

var _ encoding.CodecV2 = rawCodec{}

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}
