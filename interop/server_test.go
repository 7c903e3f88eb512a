package interop

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
)

// A server is a running `serry serve`.
type server struct {
	*process
	addr string // as a client dials it
}

// serve starts a server on a port of its own and returns when it listens.
func serve(t *testing.T, flags ...string) *server {
	t.Helper()
	return serveOn(t, unusedAddress(t), flags...)
}

// serveOn starts a server on a given address. Its first line says what it
// serves, and last where.
func serveOn(t *testing.T, listen string, flags ...string) *server {
	t.Helper()
	command := append([]string{os.Getenv("SERRY_BINARY"), "serve", "--listen", listen}, flags...)
	p := start(t, "server", environment(), command...)
	line := p.line()
	_, addr, ok := strings.Cut(line, " on ")
	if !ok {
		t.Fatalf("server: first line %q; want \"serving N tasks on ADDRESS\"", line)
	}
	return &server{process: p, addr: addr}
}

// handedOut are the ports that unusedAddress has returned.
var handedOut sync.Map

// unusedAddress is an address of this host on which no process listens. Its port lies below those that a system gives to
// sockets by itself, and no test gets one of another test: so it is not taken before it is used, nor while a killed server is away.
func unusedAddress(t *testing.T) string {
	t.Helper()
	var last error
	for range 1000 {
		port := 20_000 + rand.IntN(12_000)
		if _, had := handedOut.LoadOrStore(port, true); had {
			continue
		}
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			l.Close()
			return l.Addr().String()
		}
		last = err
	}
	t.Fatal(last)
	return ""
}
