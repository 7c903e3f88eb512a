package interop

import (
	"os"
	"strings"
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
	return serveOn(t, "127.0.0.1:0", flags...)
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
