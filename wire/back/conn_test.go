package back_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/big"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	_ "google.golang.org/grpc/encoding/gzip" // for the server
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/serry-dev/serry/internal/lab"
	"github.com/serry-dev/serry/wire/back"
	"github.com/serry-dev/serry/wire/conn"
	"github.com/serry-dev/serry/wire/rpc"
)

// An echo is a grpc-go server that knows no messages: it answers each call with the bytes it got.
// The last element of the path says how: /echo/fail, /echo/hold, /echo/early, all else at once.
type echo struct {
	release chan struct{} // closing it answers the calls of /echo/hold
}

// raw passes bytes through a gRPC server.
type raw struct{}

func (raw) Name() string                       { return "raw" }
func (raw) Marshal(v any) ([]byte, error)      { return *v.(*[]byte), nil }
func (raw) Unmarshal(data []byte, v any) error { *v.(*[]byte) = bytes.Clone(data); return nil }

func (e *echo) handle(_ any, s grpc.ServerStream) error {
	path, _ := grpc.Method(s.Context())
	if path == "/echo/early" {
		return status.Error(codes.OutOfRange, "heard enough")
	}
	var message []byte
	if err := s.RecvMsg(&message); err != nil {
		return err
	}
	switch {
	case path == "/echo/fail":
		s.SetTrailer(metadata.Pairs("large", strings.Repeat("x", 20_000))) // needs CONTINUATION
		return status.Error(codes.NotFound, "no %such thing: ü")
	case path == "/echo/details":
		s.SetTrailer(metadata.Pairs("grpc-status-details-bin", "\x00\x01\xfe\xff"))
		return status.Error(codes.Aborted, "with details")
	case path == "/echo/hold":
		select {
		case <-e.release:
		case <-s.Context().Done():
			return s.Context().Err()
		}
	}
	return s.SendMsg(&message)
}

func startEcho(t *testing.T, lis net.Listener, opts ...grpc.ServerOption) *echo {
	t.Helper()
	e := &echo{release: make(chan struct{})}
	opts = append(opts, grpc.UnknownServiceHandler(e.handle), grpc.ForceServerCodec(raw{}),
		grpc.MaxRecvMsgSize(64<<20), grpc.MaxHeaderListSize(1<<20))
	srv := grpc.NewServer(opts...)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(lis) }()
	t.Cleanup(func() {
		srv.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return e
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return lis
}

func dial(t *testing.T, lis net.Listener, secure *tls.Config) *back.Conn {
	t.Helper()
	c, err := back.Dial(t.Context(), lis.Addr().String(), back.Options{TLS: secure})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// call makes one call and waits for its end, an error if it was anything but a reply.
func call(c *back.Conn, path string, request []byte) ([]byte, error) {
	reply, st, err := c.Call(context.Background(), path, request)
	return reply, cmp.Or(err, status.Error(st.Code, st.Message))
}

func TestCallsOfAllSizes(t *testing.T) {
	lis := listen(t)
	startEcho(t, lis)
	c := dial(t, lis, nil)
	for _, size := range []int{0, 1, 100, 16_384 - 5, 16_384, 65_535 - 5, 65_535, 200_000, 5 << 20, 40 << 20} {
		request := bytes.Repeat([]byte{byte(size), 1, 2, 3, 4, 5, 6}, size/7+1)[:size]
		reply, err := call(c, "/echo/now", request)
		if err != nil || !bytes.Equal(reply, request) {
			t.Errorf("call with %d bytes: %d bytes back, error %v; want the same bytes", size, len(reply), err)
		}
	}
}

// Many large calls at a time fill the window of the connection, so all must wait for their turn.
func TestCallsShareTheWindows(t *testing.T) {
	lis := listen(t)
	startEcho(t, lis, grpc.InitialWindowSize(1<<16), grpc.InitialConnWindowSize(1<<17))
	c := dial(t, lis, nil)
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Add(1)
		request := bytes.Repeat([]byte{byte(i)}, 70_000+i)
		c.Start("/echo/now", request, func(reply []byte, st rpc.Status, err error) {
			if err != nil || !bytes.Equal(reply, request) {
				t.Errorf("call %d: %d bytes back, %v, error %v; want the same bytes", i, len(reply), st, err)
			}
			wg.Done()
		})
	}
	c.Flush()
	wg.Wait()
}

func TestManyMethods(t *testing.T) {
	for name, opt := range map[string]grpc.ServerOption{
		"usual header table":  grpc.EmptyServerOption{},
		"no header table":     grpc.HeaderTableSize(0),
		"small header table":  grpc.HeaderTableSize(200),
		"larger header table": grpc.HeaderTableSize(1 << 16),
	} {
		t.Run(name, func(t *testing.T) {
			lis := listen(t)
			startEcho(t, lis, opt)
			c := dial(t, lis, nil)
			for i := range 300 { // more paths than the table can hold, each several times
				method := fmt.Sprintf("/echo/%0100d", i/3%60)
				if _, err := call(c, method, []byte(method)); err != nil {
					t.Fatalf("call %d of %s: %v", i, method, err)
				}
			}
		})
	}
}

func TestErrorsCarryTheirStatus(t *testing.T) {
	lis := listen(t)
	startEcho(t, lis)
	c := dial(t, lis, nil)
	_, err := call(c, "/echo/fail", nil)
	if status.Code(err) != codes.NotFound || status.Convert(err).Message() != "no %such thing: ü" {
		t.Errorf("/echo/fail: %v; want NOT_FOUND with its text", err)
	}
	// Answered while most of the request still waits for a window.
	_, err = call(c, "/echo/early", make([]byte, 30<<20))
	if status.Code(err) != codes.OutOfRange {
		t.Errorf("/echo/early: %v; want OUT_OF_RANGE", err)
	}
	if reply, err := call(c, "/echo/now", []byte("still here")); string(reply) != "still here" {
		t.Errorf("/echo/now: %q, %v; want an echo", reply, err)
	}
}

func TestWaitingCalls(t *testing.T) {
	for name, opt := range map[string]grpc.ServerOption{
		"all at once":      grpc.EmptyServerOption{},
		"10 at a time":     grpc.MaxConcurrentStreams(10),
		"one more than 1k": grpc.MaxConcurrentStreams(1001),
	} {
		t.Run(name, func(t *testing.T) {
			lis := listen(t)
			e := startEcho(t, lis, opt)
			c := dial(t, lis, nil)
			var wg sync.WaitGroup
			for i := range 1002 {
				wg.Add(1)
				want := fmt.Sprint(i)
				c.Start("/echo/hold", []byte(want), func(reply []byte, st rpc.Status, err error) {
					if err != nil || string(reply) != want {
						t.Errorf("call %s: %q, %v, %v; want an echo", want, reply, st, err)
					}
					wg.Done()
				})
			}
			c.Flush()
			close(e.release)
			wg.Wait()
		})
	}
}

// Calls made from inside Done need no Flush.
func TestCallsFollowReplies(t *testing.T) {
	lis := listen(t)
	startEcho(t, lis)
	c := dial(t, lis, nil)
	end := make(chan error)
	left := 10_000
	var next back.Done
	next = func(_ []byte, _ rpc.Status, err error) {
		if left--; err != nil || left == 0 {
			end <- err
			return
		}
		c.Start("/echo/now", []byte("again"), next)
	}
	c.Start("/echo/now", nil, next)
	c.Flush()
	if err := <-end; err != nil {
		t.Fatal(err)
	}
}

func TestCloseEndsCalls(t *testing.T) {
	for name, end := range map[string]func(*back.Conn, *grpc.Server){
		"by us":         func(c *back.Conn, _ *grpc.Server) { c.Close() },
		"by the server": func(_ *back.Conn, s *grpc.Server) { s.Stop() },
	} {
		t.Run(name, func(t *testing.T) {
			lis := listen(t)
			e := &echo{release: make(chan struct{})}
			srv := grpc.NewServer(grpc.UnknownServiceHandler(e.handle), grpc.ForceServerCodec(raw{}))
			go srv.Serve(lis)
			defer srv.Stop()
			c := dial(t, lis, nil)
			if _, err := call(c, "/echo/now", nil); err != nil {
				t.Fatal(err)
			}
			errs := make(chan error, 1)
			c.Start("/echo/hold", nil, func(_ []byte, _ rpc.Status, err error) { errs <- err })
			c.Flush()
			if _, err := call(c, "/echo/now", nil); err != nil { // the held one has come before
				t.Fatal(err)
			}
			end(c, srv)
			if err := <-errs; err == nil || errors.Is(err, back.ErrUnsent) {
				t.Errorf("held call: %v; want an error, not %v", err, back.ErrUnsent)
			}
			<-c.Ended()
			if _, err := call(c, "/echo/now", nil); !errors.Is(err, back.ErrUnsent) {
				t.Errorf("call after the end: %v; want %v", err, back.ErrUnsent)
			}
		})
	}
}

// A server that goes away gracefully answers what it has taken and hears nothing new.
func TestGoAway(t *testing.T) {
	lis := listen(t)
	e := &echo{release: make(chan struct{})}
	srv := grpc.NewServer(grpc.UnknownServiceHandler(e.handle), grpc.ForceServerCodec(raw{}))
	go srv.Serve(lis)
	defer srv.Stop()
	c := dial(t, lis, nil)
	held := make(chan error, 1)
	c.Start("/echo/hold", nil, func(_ []byte, _ rpc.Status, err error) { held <- err })
	if _, err := call(c, "/echo/now", nil); err != nil {
		t.Fatal(err)
	}
	stopped := make(chan struct{})
	go func() { srv.GracefulStop(); close(stopped) }()
	for { // the server's word takes its time
		if _, err := call(c, "/echo/now", nil); err != nil {
			if !errors.Is(err, back.ErrUnsent) {
				t.Fatalf("call after GOAWAY: %v; want %v", err, back.ErrUnsent)
			}
			break
		}
	}
	close(e.release)
	if err := <-held; err != nil {
		t.Errorf("call held over GOAWAY: %v; want a reply", err)
	}
	<-stopped
}

func TestSecure(t *testing.T) {
	serving, asking := certificate(t)
	lis := listen(t)
	startEcho(t, lis, grpc.Creds(credentials.NewTLS(serving)))
	c := dial(t, lis, asking)
	request := bytes.Repeat([]byte("secret"), 100_000)
	if reply, err := call(c, "/echo/now", request); err != nil || !bytes.Equal(reply, request) {
		t.Errorf("call over TLS: %d bytes back, error %v; want the same bytes", len(reply), err)
	}
}

// certificate makes what two sides that trust one certificate need.
func certificate(t *testing.T) (serving, asking *tls.Config) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		NotAfter:     time.Now().Add(time.Hour),
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IsCA:         true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	own := []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}
	return &tls.Config{Certificates: own, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert},
		&tls.Config{Certificates: own, RootCAs: pool}
}

func TestCompression(t *testing.T) {
	lis := listen(t)
	startEcho(t, lis)
	c, err := back.Dial(t.Context(), lis.Addr().String(), back.Options{Gzip: true})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, request := range []string{"", "short", strings.Repeat("long ", 100_000)} {
		if reply, err := call(c, "/echo/now", []byte(request)); err != nil || string(reply) != request {
			t.Errorf("call with %d bytes: %d back, error %v; want the same", len(request), len(reply), err)
		}
	}
}

func TestDetailsOfAStatus(t *testing.T) {
	lab.Clause(t, "C-WIRE-14")
	lis := listen(t)
	startEcho(t, lis)
	_, st, err := dial(t, lis, nil).Call(t.Context(), "/echo/details", nil)
	if err != nil || st.Code != codes.Aborted || !bytes.Equal(st.Details, []byte{0, 1, 0xfe, 0xff}) {
		t.Errorf("/echo/details = %+v, %v; want its details", st, err)
	}
}

func TestWithdrawnCalls(t *testing.T) {
	for name, opt := range map[string]grpc.ServerOption{
		"sent":        grpc.EmptyServerOption{},
		"waits to be": grpc.MaxConcurrentStreams(1),
	} {
		t.Run(name, func(t *testing.T) {
			lis := listen(t)
			e := startEcho(t, lis, opt)
			c := dial(t, lis, nil)
			held := make(chan error, 1)
			c.Start("/echo/hold", []byte("first"), func(_ []byte, _ rpc.Status, err error) { held <- err })
			c.Flush()
			why := errors.New("no longer wanted")
			var wg sync.WaitGroup
			for range 100 {
				ctx, cancel := context.WithCancelCause(t.Context())
				wg.Go(func() {
					if _, _, err := c.Call(ctx, "/echo/hold", []byte("other")); err != why {
						t.Errorf("withdrawn call: %v; want %v", err, why)
					}
				})
				wg.Go(func() { cancel(why) })
			}
			wg.Wait()
			close(e.release)
			if err := <-held; err != nil {
				t.Errorf("the call that was not withdrawn: %v; want a reply", err)
			}
			if reply, err := call(c, "/echo/now", []byte("still here")); string(reply) != "still here" {
				t.Errorf("call afterwards: %q, %v; want an echo", reply, err)
			}
		})
	}
}

// A server that does not read must not hold up a caller beyond its context.
func TestServerThatDoesNotRead(t *testing.T) {
	lis := listen(t)
	accepted := make(chan net.Conn, 1)
	go func() {
		nc, err := lis.Accept()
		if err == nil {
			http2.NewFramer(nc, nil).WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30})
			http2.NewFramer(nc, nil).WriteWindowUpdate(0, 1<<30)
		}
		accepted <- nc
	}()
	c := dial(t, lis, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	for range 20 {
		if _, _, err := c.Call(ctx, "/echo/now", make([]byte, 8<<20)); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("Call() = %v; want the end of its context", err)
		}
	}
	lis.Close()
	(<-accepted).Close()
}

func TestTargets(t *testing.T) {
	for _, address := range []string{"", "host", "http://host:1", "unix:", "ipv4:1.2.3.4", "dns://x/host:1", "a b://%"} {
		if err := conn.CheckAddress(address); err == nil {
			t.Errorf("CheckAddress(%q) = nil; want an error", address)
		}
	}
	lis := listen(t)
	startEcho(t, lis)
	closed := listen(t)
	closed.Close()
	path := filepath.Join(t.TempDir(), "socket")
	local, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	startEcho(t, local)
	there := lis.Addr().String()
	for _, address := range []string{
		there, "dns:///" + there, "passthrough:///" + there, "ipv4:" + there, "ipv4:" + closed.Addr().String() + "," + there,
		"unix:" + path, "unix://" + path,
	} {
		c, err := back.Dial(t.Context(), address, back.Options{})
		if err != nil {
			t.Errorf("Dial(%q) = %v", address, err)
			continue
		}
		if reply, err := call(c, "/echo/now", []byte("hello")); string(reply) != "hello" {
			t.Errorf("call of %q: %q, %v; want an echo", address, reply, err)
		}
		c.Close()
	}
}

// Without a file descriptor every write of the reader takes the way of a full socket.
func TestWithoutSocket(t *testing.T) {
	lis := bufconn.Listen(1 << 10)
	startEcho(t, lis)
	nc, err := lis.DialContext(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c := back.New(nc, "pipe", back.Options{})
	defer c.Close()
	request := make([]byte, 1<<20)
	for range 3 {
		if reply, err := call(c, "/echo/now", request); err != nil || len(reply) != len(request) {
			t.Fatalf("call: %d bytes back, error %v; want %d", len(reply), err, len(request))
		}
	}
}

func TestDialNobody(t *testing.T) {
	lis := listen(t)
	lis.Close()
	if c, err := back.Dial(context.Background(), lis.Addr().String(), back.Options{}); err == nil {
		c.Close()
		t.Error("Dial of a closed port succeeded; want an error")
	}
}
