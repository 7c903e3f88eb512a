package lab

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/server"
	"github.com/serry-dev/serry/wire/tfpb"
	"github.com/serry-dev/serry/wire/xlapb"
)

// A Lab is a running server that clients reach through memory, so that it works in a
// testing/synctest bubble, in virtual time.
type Lab struct {
	*server.Server
	door *door
}

// A door is an address: where connections end up may change.
type door struct {
	mu struct {
		sync.Mutex
		listener *bufconn.Listener
	}
}

func (d *door) open() *bufconn.Listener {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.listener = bufconn.Listen(pipeBytes)
	return d.mu.listener
}

func (d *door) dial(ctx context.Context) (net.Conn, error) {
	d.mu.Lock()
	l := d.mu.listener
	d.mu.Unlock()
	return l.DialContext(ctx)
}

// pipeBytes is how much a connection holds that its reader has not taken yet.
const pipeBytes = 256 << 10

// Serve starts a server that ends with the test.
func Serve(t testing.TB, cfg server.Config) *Lab {
	t.Helper()
	return serve(t, cfg, new(door))
}

// ServeOracle is like Serve, but clients reach the server by an [Oracle]. Streams are not served.
func ServeOracle(t testing.TB, cfg server.Config) *Lab {
	t.Helper()
	s, err := server.New(cfg)
	if err != nil {
		t.Fatalf("server.New() = %v; want a server", err)
	}
	l := &Lab{Server: s, door: new(door)}
	o, listener := NewOracle(s), l.door.open()
	served := make(chan error, 1)
	go func() { served <- o.Serve(listener) }()
	t.Cleanup(func() {
		s.Shutdown(context.Background())
		o.Shutdown(context.Background())
		if err := <-served; err != nil {
			t.Errorf("Serve() = %v; want nil after Shutdown", err)
		}
	})
	return l
}

// Replace stops the server and starts another in its place: who connects from now on reaches that.
func (l *Lab) Replace(t testing.TB, cfg server.Config) *Lab {
	t.Helper()
	l.Shutdown(t.Context())
	return serve(t, cfg, l.door)
}

// Crash ends the server without a word and starts another in its place, when make says how. Between
// the two nobody serves.
func (l *Lab) Crash(t testing.TB, make func() server.Config) *Lab {
	t.Helper()
	l.Close()
	return serve(t, make(), l.door)
}

func serve(t testing.TB, cfg server.Config, d *door) *Lab {
	t.Helper()
	s, err := server.New(cfg)
	if err != nil {
		t.Fatalf("server.New() = %v; want a server", err)
	}
	l := &Lab{Server: s, door: d}
	listener := d.open()
	served := make(chan error, 1)
	go func() { served <- s.Serve(listener) }()
	t.Cleanup(func() {
		s.Shutdown(context.Background())
		if err := <-served; err != nil && !errors.Is(err, serry.ErrStopped) { // stopped before it began to serve
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
	plug
}

// A plug keeps the connections of one client, so that they can be cut.
type plug struct {
	mu struct {
		sync.Mutex
		conns []net.Conn // all that were dialled
	}
}

func (p *plug) keep(c net.Conn, err error) (net.Conn, error) {
	if err == nil {
		p.mu.Lock()
		p.mu.conns = append(p.mu.conns, c)
		p.mu.Unlock()
	}
	return c, err
}

// Dial makes a link that ends with the test. It connects at the first call, and again by itself
// when a call finds it cut. Errors of its calls are *Error.
func (l *Lab) Dial(t testing.TB) *Link {
	t.Helper()
	k := &Link{}
	conn, err := grpc.NewClient("passthrough:///lab",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return k.keep(l.door.dial(ctx))
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
func (p *plug) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.mu.conns {
		c.Close()
	}
	p.mu.conns = nil
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
