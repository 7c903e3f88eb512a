package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
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

// Dial makes a Transport to a service that need not be there yet. A nil TLS means plain text.
func Dial(address string, tls *tls.Config) (Transport, error) {
	return dial(address, tls)
}

func dial(address string, tls *tls.Config, more ...grpc.DialOption) (*network, error) {
	creds := insecure.NewCredentials()
	if tls != nil {
		creds = credentials.NewTLS(tls)
	}
	options := append([]grpc.DialOption{
		grpc.WithTransportCredentials(creds),
		grpc.WithDefaultCallOptions(
			grpc.ForceCodecV2(rawCodec{}),
			grpc.MaxCallRecvMsgSize(1<<31-1),
			grpc.MaxCallSendMsgSize(1<<31-1),
			grpc.MaxRetryRPCBufferSize(0),
		),
		grpc.WithDisableServiceConfig(),
		grpc.WithDisableRetry(),
		grpc.WithIdleTimeout(0), // a quiet member is still a member
		// A coordinator that comes back should not have to wait for us.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: 5 * time.Second,
		}),
	}, more...)
	conn, err := grpc.NewClient(address, options...)
	if err != nil {
		return nil, fmt.Errorf("address %q: %w", address, err)
	}
	return &network{conn: conn}, nil
}

// network is a Transport over a gRPC connection.
type network struct{ conn *grpc.ClientConn }

// errUnreachable marks calls of which nobody knows whether the service saw them.
var errUnreachable = errors.New("the service cannot be reached")

func (n *network) Call(ctx context.Context, path string, body []byte) ([]byte, rpc.Status, error) {
	var reply []byte
	var trailer metadata.MD
	err := n.conn.Invoke(ctx, path, body, &reply, grpc.Trailer(&trailer), grpc.WaitForReady(true))
	if err == nil {
		return reply, rpc.Status{}, nil
	}
	if ctx.Err() != nil {
		return nil, rpc.Status{}, context.Cause(ctx)
	}
	st := rpc.Status{Code: status.Code(err), Message: status.Convert(err).Message()}
	if details := trailer["grpc-status-details-bin"]; len(details) > 0 {
		st.Details = []byte(details[0])
	}
	if st.Code == codes.Unavailable && st.Details == nil {
		return nil, rpc.Status{}, fmt.Errorf("%w: %s", errUnreachable, st.Message)
	}
	return nil, st, nil
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
