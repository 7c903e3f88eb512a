package lab

import (
	"context"
	"net"
	"os"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"

	"github.com/serry-dev/serry/server"
	"github.com/serry-dev/serry/wire/tfpb"
	"github.com/serry-dev/serry/wire/xlapb"
)

// A Lab is a running server that clients reach through memory, so that it works in a
// testing/synctest bubble, in virtual time.
type Lab struct {
	*server.Server
	listener *bufconn.Listener
}

// pipeBytes is how much a connection holds that its reader has not taken yet.
const pipeBytes = 256 << 10

// Serve starts a server that ends with the test. Where cfg names no transport, the environment
// variable SERRY_TRANSPORT does, so that one suite tests them all.
func Serve(t testing.TB, cfg server.Config) *Lab {
	t.Helper()
	if cfg.Transport == "" {
		cfg.Transport = server.Transport(os.Getenv("SERRY_TRANSPORT"))
	}
	s, err := server.New(cfg)
	if err != nil {
		t.Fatalf("server.New() = %v; want a server", err)
	}
	l := &Lab{Server: s, listener: bufconn.Listen(pipeBytes)}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l.listener) }()
	t.Cleanup(func() {
		s.Shutdown(context.Background())
		if err := <-served; err != nil {
			t.Errorf("Serve() = %v; want nil after Shutdown", err)
		}
	})
	return l
}

// An N is a client of dialect xla.coordination, the one of new jaxlib, on a connection of its own.
type N struct {
	xlapb.CoordinationServiceClient
	*Link
}

// An O is a client of dialect tensorflow, the one of old jaxlib, on a connection of its own.
type O struct {
	tfpb.CoordinationServiceClient
	*Link
}

// N makes a client that ends with the test.
func (l *Lab) N(t testing.TB) *N {
	t.Helper()
	k := l.Dial(t)
	return &N{xlapb.NewCoordinationServiceClient(k.Conn), k}
}

// O makes a client that ends with the test.
func (l *Lab) O(t testing.TB) *O {
	t.Helper()
	k := l.Dial(t)
	return &O{tfpb.NewCoordinationServiceClient(k.Conn), k}
}

// A Link is a connection to a Lab. Clients of both dialects may share one.
type Link struct {
	Conn *grpc.ClientConn

	mu struct {
		sync.Mutex
		conns []net.Conn // all that were dialled
	}
}

// Dial makes a link that ends with the test. It connects at the first call, and again by itself
// when a call finds it cut. Errors of its calls are *Error.
func (l *Lab) Dial(t testing.TB) *Link {
	t.Helper()
	k := &Link{}
	conn, err := grpc.NewClient("passthrough:///lab",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			c, err := l.listener.DialContext(ctx)
			if err == nil {
				k.mu.Lock()
				k.mu.conns = append(k.mu.conns, c)
				k.mu.Unlock()
			}
			return c, err
		}),
		grpc.WithUnaryInterceptor(explain),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1<<31-1)),
		grpc.WithIdleTimeout(0),
	)
	if err != nil {
		t.Fatalf("grpc.NewClient() = %v", err)
	}
	k.Conn = conn
	t.Cleanup(k.Close)
	return k
}

// Cut breaks the transport as a crash of the process would. Calls that wait fail.
func (k *Link) Cut() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, c := range k.mu.conns {
		c.Close()
	}
	k.mu.conns = nil
}

// Close ends the link for good. A second Close does nothing.
func (k *Link) Close() { _ = k.Conn.Close() }

// An Error is how a call failed, with everything the server said.
type Error struct {
	Code     codes.Code
	Message  string
	Details  []byte            // the trailer as it came, nil without
	Payloads map[string][]byte // what the trailer says, by type URL
}

func (e *Error) Error() string { return e.Code.String() + ": " + e.Message }

// GRPCStatus makes status.Code work.
func (e *Error) GRPCStatus() *status.Status { return status.New(e.Code, e.Message) }

// Keys of [Error.Payloads].
const (
	ServicePayload  = "type.googleapis.com/tensorflow.CoordinationServiceError"
	BarrierPayload  = "type.googleapis.com/tensorflow.BarrierError"
	MismatchPayload = "type.googleapis.com/tensorflow.ServiceMismatchError"
)

const detailsTrailer = "grpc-status-details-bin"

// explain turns the error of a call into an *Error.
func explain(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	var trailer metadata.MD
	err := invoke(ctx, method, req, reply, cc, append(opts, grpc.Trailer(&trailer))...)
	if err == nil {
		return nil
	}
	st := status.Convert(err)
	e := &Error{Code: st.Code(), Message: st.Message()}
	if v := trailer.Get(detailsTrailer); len(v) > 0 {
		e.Details = []byte(v[0])
		var c tfpb.GrpcPayloadContainer
		if err := (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(e.Details, &c); err != nil {
			e.Message += " (and details that do not parse: " + err.Error() + ")"
		}
		e.Payloads = c.GetPayloads()
	}
	return e
}

// Failure returns what err says, and fails the test if it is not the error of a call of a Link.
func Failure(t testing.TB, err error) *Error {
	t.Helper()
	e, ok := err.(*Error)
	if !ok {
		t.Fatalf("error %v; want the error of a call", err)
	}
	return e
}
