package stress

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/serry-dev/serry/wire/back"
)

var lasts = flag.Duration("lasts", time.Second, "how long each transport is stressed")

func TestMain(m *testing.M) {
	flag.Parse()
	goleak.VerifyTestMain(m)
}

const (
	callers     = 48
	connections = 4 // that they share, where a connection is not that of one host
	sendBytes   = 4 << 10
	readBytes   = 128 << 10 // with less, the kernel waits for timers of its own on loopback

	// patience is how long a call may take. Calls take milliseconds; without an answer after so long,
	// the call or its reply is lost.
	patience = time.Minute
)

// A caller makes one call, and returns what the other end says the value is.
type caller func(ctx context.Context, value []byte) ([]byte, error)

// drive lets callers call for as long as the test lasts, and checks every value that comes back.
func drive(t *testing.T, connect func(i int) caller) {
	t.Helper()
	end := time.Now().Add(*lasts)
	var calls atomic.Int64
	var work sync.WaitGroup
	for i := range callers {
		call := connect(i)
		work.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(i), 0))
			for n := 0; time.Now().Before(end) && !t.Failed(); n++ {
				want := value(rnd, i, n)
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				got, err := call(ctx, want)
				cancel()
				if err != nil {
					t.Errorf("call %d of caller %d, %d bytes: %v", n, i, len(want), err)
				} else if !bytes.Equal(got, want) {
					t.Errorf("call %d of caller %d: %d bytes that differ from the %d sent", n, i, len(got), len(want))
				}
				calls.Add(1)
			}
		})
	}
	work.Wait()
	t.Logf("%d calls", calls.Load())
}

// value is what only this call of this caller sends: mostly small, at times larger than the buffers of
// sockets, frames and windows.
func value(rnd *rand.Rand, caller, n int) []byte {
	size := rnd.IntN(2000)
	if rnd.IntN(8) == 0 {
		size = []int{0, 16<<10 - 1, 16 << 10, 70_000, 300_000}[rnd.IntN(5)]
	}
	b := make([]byte, 16, 16+size+8)
	binary.LittleEndian.PutUint64(b, uint64(caller))
	binary.LittleEndian.PutUint64(b[8:], uint64(n))
	for x := rnd.Uint64(); len(b) < 16+size; x = x*6364136223846793005 + 1 {
		b = binary.LittleEndian.AppendUint64(b, x)
	}
	return b[:16+size]
}

// narrow makes the send buffer of a socket small.
func narrow(nc net.Conn) net.Conn {
	if tcp, ok := nc.(*net.TCPConn); ok {
		tcp.SetWriteBuffer(sendBytes)
		tcp.SetReadBuffer(readBytes)
	}
	return nc
}

// A narrowListener accepts sockets with small buffers.
type narrowListener struct{ net.Listener }

func (l narrowListener) Accept() (net.Conn, error) {
	nc, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return narrow(nc), nil
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return narrowListener{l}
}

// dial connects with small buffers.
func dial(ctx context.Context, address string) (net.Conn, error) {
	nc, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return narrow(nc), nil
}

// share makes the connections that callers share. It returns that of a caller.
func share(t *testing.T, address string, secure *tls.Config) func(i int) *back.Conn {
	t.Helper()
	var all []*back.Conn
	for range connections {
		c, err := back.Dial(t.Context(), address, back.Options{Connect: dial, TLS: secure})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		all = append(all, c)
	}
	return func(i int) *back.Conn { return all[i%len(all)] }
}

// certificates are configurations for both ends.
func certificates(t *testing.T) (server, client *tls.Config) {
	s := httptest.NewTLSServer(nil)
	t.Cleanup(s.Close)
	pool := x509.NewCertPool()
	pool.AddCert(s.Certificate())
	return &tls.Config{Certificates: s.TLS.Certificates}, &tls.Config{RootCAs: pool, ServerName: "example.com"}
}

// unary is a caller by package back.
func unary(c *back.Conn, path string) caller {
	return func(ctx context.Context, value []byte) ([]byte, error) {
		got, st, err := c.Call(ctx, path, value)
		if err == nil && !st.OK() {
			err = fmt.Errorf("%v: %s", st.Code, st.Message)
		}
		return got, err
	}
}

var errNoAnswer = errors.New("no answer")
