package front

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"io"
	"math/big"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/wire/rpc"
)

// The methods of the test service.
const (
	methodEcho    = "/test.Service/Echo"    // answers with the request
	methodWait    = "/test.Service/Wait"    // waits for a release
	methodRelease = "/test.Service/Release" // answers all waiting calls, each with this request
	methodFail    = "/test.Service/Fail"    // answers with a status: code, then message
	methodSize    = "/test.Service/Size"    // answers with as many bytes as the number says
	methodCount   = "/test.Service/Count"   // answers with the length of the request
)

var testMethods = rpc.Methods{
	methodEcho:    {MaxRequestBytes: 64 << 20},
	methodWait:    {MaxRequestBytes: 1 << 10},
	methodRelease: {MaxRequestBytes: 64 << 20},
	methodFail:    {MaxRequestBytes: 64 << 10},
	methodSize:    {MaxRequestBytes: 8},
	methodCount:   {MaxRequestBytes: 2 << 30},
}

// A waiter is a call that waits.
type waiter struct {
	conn rpc.Conn
	call rpc.CallID
}

// A testHandler is the test service. It checks the promises of a transport as it goes.
type testHandler struct {
	t       testing.TB
	details atomic.Pointer[[]byte] // of methodFail

	mu       sync.Mutex
	open     map[rpc.Conn]bool
	closed   map[rpc.Conn]error
	waiting  map[waiter]struct{}
	canceled int
	serving  map[string]int
	changed  chan struct{} // closed and replaced at every change
}

func newTestHandler(t testing.TB) *testHandler {
	return &testHandler{
		t:       t,
		open:    make(map[rpc.Conn]bool),
		closed:  make(map[rpc.Conn]error),
		waiting: make(map[waiter]struct{}),
		serving: make(map[string]int),
		changed: make(chan struct{}),
	}
}

func (h *testHandler) lock() func() {
	h.mu.Lock()
	return func() {
		close(h.changed)
		h.changed = make(chan struct{})
		h.mu.Unlock()
	}
}

// until waits for a state of the handler.
func (h *testHandler) until(ok func() bool) {
	for {
		h.mu.Lock()
		done, changed := ok(), h.changed
		h.mu.Unlock()
		if done {
			return
		}
		<-changed
	}
}

func (h *testHandler) untilWaiting(n int) { h.until(func() bool { return len(h.waiting) == n }) }

// untilClosed waits for the end of a connection and returns why.
func (h *testHandler) untilClosed() (err error) {
	h.until(func() bool { return len(h.closed) > 0 })
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, err = range h.closed {
	}
	return err
}

func (h *testHandler) Open(c rpc.Conn) {
	defer h.lock()()
	if h.open[c] || h.closed[c] != nil {
		h.t.Errorf("Open of a connection known already")
	}
	h.open[c] = true
}

func (h *testHandler) Close(c rpc.Conn, err error) {
	defer h.lock()()
	if !h.open[c] || h.closed[c] != nil {
		h.t.Errorf("Close(%v) of a connection that is not open", err)
	}
	if err == nil {
		h.t.Errorf("Close(nil)")
		err = errors.New("nil")
	}
	delete(h.open, c)
	h.closed[c] = err
	for w := range h.waiting {
		if w.conn == c {
			delete(h.waiting, w)
		}
	}
}

func (h *testHandler) Served(rpc.Conn) {}

func (h *testHandler) Cancel(c rpc.Conn, call rpc.CallID) {
	defer h.lock()()
	if !h.open[c] {
		h.t.Errorf("Cancel on a connection that is not open")
	}
	delete(h.waiting, waiter{c, call})
	h.canceled++
}

// failDetails are what methodFail answers with.
func (h *testHandler) failDetails() []byte {
	if d := h.details.Load(); d != nil {
		return *d
	}
	return nil
}

func (h *testHandler) Serve(c rpc.Conn, call rpc.CallID, method string, body []byte) {
	unlock := h.lock()
	h.serving[method]++
	if !h.open[c] {
		h.t.Errorf("Serve on a connection that is not open")
	}
	switch method {
	case methodWait:
		h.waiting[waiter{c, call}] = struct{}{}
		unlock()
	case methodRelease:
		released := h.waiting
		h.waiting = make(map[waiter]struct{})
		unlock()
		body = append([]byte(nil), body...)
		conns := make(map[rpc.Conn]struct{})
		for w := range released {
			w.conn.Reply(w.call, body, rpc.Status{})
			conns[w.conn] = struct{}{}
		}
		c.Reply(call, body, rpc.Status{})
		for other := range conns {
			other.Flush()
		}
	case methodFail:
		unlock()
		c.Reply(call, nil, rpc.Status{Code: codes.Code(body[0]), Message: string(body[1:]), Details: h.failDetails()})
	case methodSize:
		unlock()
		c.Reply(call, make([]byte, binary.BigEndian.Uint64(body)), rpc.Status{})
	case methodCount:
		unlock()
		c.Reply(call, binary.BigEndian.AppendUint64(nil, uint64(len(body))), rpc.Status{})
	default:
		unlock()
		c.Reply(call, append([]byte(nil), body...), rpc.Status{})
	}
}

// start serves h on l until the test ends.
func start(t testing.TB, l net.Listener, cfg Config) *Server {
	t.Helper()
	if cfg.Methods == nil {
		cfg.Methods = testMethods
	}
	s := New(cfg)
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Close()
		if err := <-done; !errors.Is(err, ErrServerClosed) {
			t.Errorf("Serve() = %v; want ErrServerClosed", err)
		}
	})
	return s
}

// startTCP serves a new test handler on a port of its own.
func startTCP(t testing.TB) (*testHandler, *Server, string) {
	t.Helper()
	h := newTestHandler(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := start(t, l, Config{Handler: h})
	return h, s, l.Addr().String()
}

// startPipe serves a new test handler on an in-memory listener.
func startPipe(t testing.TB) (*testHandler, *Server, *bufconn.Listener) {
	t.Helper()
	h := newTestHandler(t)
	l := bufconn.Listen(1 << 20)
	return h, start(t, l, Config{Handler: h}), l
}

// raw is the codec of messages that are bytes.
type raw struct{}

func (raw) Marshal(v any) ([]byte, error)   { return *v.(*[]byte), nil }
func (raw) Unmarshal(p []byte, v any) error { *v.(*[]byte) = append([]byte(nil), p...); return nil }
func (raw) Name() string                    { return "proto" }

// dial connects a grpc-go client.
func dial(t testing.TB, target string, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	opts = append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(raw{}), grpc.MaxCallRecvMsgSize(1<<30), grpc.MaxCallSendMsgSize(1<<31-1)),
	}, opts...)
	cc, err := grpc.NewClient(target, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cc.Close() })
	return cc
}

func dialPipe(t testing.TB, l *bufconn.Listener, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	opts = append(opts, grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	return dial(t, "passthrough:pipe", opts...)
}

// call makes one unary call.
func call1(ctx context.Context, cc *grpc.ClientConn, method string, body []byte, opts ...grpc.CallOption) ([]byte, error) {
	var reply []byte
	err := cc.Invoke(ctx, method, &body, &reply, opts...)
	return reply, err
}

func TestEcho(t *testing.T) {
	clause.Cite(t, "F-10", "F-25", "F-26")
	_, s, addr := startTCP(t)
	cc := dial(t, addr)
	for _, size := range []int{0, 1, 100, 16 << 10, 1 << 20, 16 << 20} {
		body := make([]byte, size)
		for i := range body {
			body[i] = byte(i * 7)
		}
		got, err := call1(t.Context(), cc, methodEcho, body)
		if err != nil || string(got) != string(body) {
			t.Fatalf("Echo(%d bytes) = %d bytes, %v; want the same bytes", size, len(got), err)
		}
	}
	st := s.Stats()
	if st.Conns != 1 || st.Waiting != 0 || len(st.Calls) != 1 || st.Calls[0] != (CallCount{methodEcho, codes.OK, 6}) {
		t.Errorf("Stats() = %+v; want six calls on one connection", st)
	}
}

func TestCloseTellsTheHandler(t *testing.T) {
	clause.Cite(t, "F-28")
	h, _, addr := startTCP(t)
	cc := dial(t, addr)
	go call1(t.Context(), cc, methodWait, nil)
	h.untilWaiting(1)
	cc.Close()
	// What the client had not read when it closed turns its end into a reset.
	if err := h.untilClosed(); !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("Close got %v; want the end of the stream", err)
	}
}

// releaseAll answers all waiting calls.
func (h *testHandler) releaseAll(body string) {
	unlock := h.lock()
	released := h.waiting
	h.waiting = make(map[waiter]struct{})
	unlock()
	for w := range released {
		w.conn.Reply(w.call, []byte(body), rpc.Status{})
		w.conn.Flush()
	}
}

// dialEither connects to the first listener that still accepts.
func dialEither(first, second *bufconn.Listener) grpc.DialOption {
	return grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
		if nc, err := first.DialContext(ctx); err == nil {
			return nc, nil
		}
		return second.DialContext(ctx)
	})
}

func newDecoder() *hpack.Decoder { return hpack.NewDecoder(4096, nil) }

func withTLS(cfg *tls.Config) grpc.DialOption {
	return grpc.WithTransportCredentials(credentials.NewTLS(cfg))
}

// An authority issues certificates for 127.0.0.1.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	key, der := sign(t, template, template, nil)
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	a := &authority{cert: cert, key: key, pool: x509.NewCertPool()}
	a.pool.AddCert(cert)
	return a
}

func (a *authority) issue(t testing.TB) tls.Certificate {
	t.Helper()
	key, der := sign(t, &x509.Certificate{
		SerialNumber: big.NewInt(2), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, a.cert, a.key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// sign makes a certificate; a nil parentKey signs with its own.
func sign(t testing.TB, template, parent *x509.Certificate, parentKey *ecdsa.PrivateKey) (*ecdsa.PrivateKey, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if parentKey == nil {
		parentKey = key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), parentKey)
	if err != nil {
		t.Fatal(err)
	}
	return key, der
}
