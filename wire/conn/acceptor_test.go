package conn_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/test/bufconn"

	"github.com/serry-dev/serry/wire/conn"
	"github.com/serry-dev/serry/wire/mtls"
)

// named is a protocol that answers with its name and what it has read.
func named(name, first string) conn.Protocol {
	return conn.Protocol{Name: name, First: first, Serve: func(c *conn.Conn) {
		c.Greeted()
		p, err := c.Next()
		if err != nil {
			return
		}
		fmt.Fprintf(c, "%s got %q", name, p)
	}}
}

// accept serves connections of a network in memory until the test ends.
func accept(t *testing.T, cfg conn.AcceptorConfig) (*conn.Acceptor, *bufconn.Listener) {
	t.Helper()
	a, l := conn.NewAcceptor(cfg), bufconn.Listen(1<<16)
	served := make(chan error, 1)
	go func() { served <- a.Serve(l) }()
	t.Cleanup(func() {
		for _, c := range a.Stop() {
			c.Close()
		}
		a.Wait()
		if err := <-served; !errors.Is(err, conn.ErrClosed) {
			t.Errorf("Serve() = %v; want %v", err, conn.ErrClosed)
		}
	})
	return a, l
}

// TestFirstBytes sorts protocols that share a port by the first bytes that differ.
func TestFirstBytes(t *testing.T) {
	for _, tt := range []struct {
		name   string
		pieces []string
		want   string
	}{
		{"at once", []string{"alpha and more"}, `a got "alpha and more"`},
		{"by one byte", []string{"x"}, `c got "x"`},
		{"in pieces", []string{"al", "p", "ine"}, `b got "alpi`},
		{"none", []string{"GET / HTTP/1.1"}, ""},
		{"none, late", []string{"al", "so not"}, ""},
		{"nothing", nil, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, l := accept(t, conn.AcceptorConfig{Protocols: []conn.Protocol{
					named("a", "alpha"), named("b", "alpine"), named("c", "x-ray"),
				}})
				nc, err := l.Dial()
				if err != nil {
					t.Fatal(err)
				}
				defer nc.Close()
				began := time.Now()
				for _, p := range tt.pieces {
					nc.Write([]byte(p))
					synctest.Wait()
				}
				got, _ := io.ReadAll(nc)
				if len(got) < len(tt.want) || string(got[:len(tt.want)]) != tt.want || tt.want == "" && len(got) > 0 {
					t.Errorf("answer %q; want %q", got, tt.want)
				}
				if took := time.Since(began); tt.pieces == nil && took != conn.HandshakeTime || tt.pieces != nil && took != 0 {
					t.Errorf("it took %v; want %v for a silent peer, else nothing", took, conn.HandshakeTime)
				}
			})
		})
	}
}

// TestAgreement sorts protocols by what TLS agrees on: the first of the server's that both have.
func TestAgreement(t *testing.T) {
	server, client := certificates(t)
	refused := make(chan error, 1)
	_, l := accept(t, conn.AcceptorConfig{
		Protocols: []conn.Protocol{named("own/1", "\xf5"), named("h2", "PRI")}, TLS: server,
		Refused: func(_ net.Addr, err error) { refused <- err },
	})
	for _, tt := range []struct {
		name   string
		offers []string
		want   string
	}{
		{"both", []string{"h2", "own/1"}, `own/1 got "hello"`},
		{"one", []string{"h2"}, `h2 got "hello"`},
		{"another", []string{"http/1.1"}, ""},
		{"none", nil, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			nc, err := l.Dial()
			if err != nil {
				t.Fatal(err)
			}
			defer nc.Close()
			cfg := client.Clone()
			cfg.NextProtos = tt.offers
			tc := tls.Client(nc, cfg)
			tc.Write([]byte("hello"))
			if got, _ := io.ReadAll(tc); string(got) != tt.want {
				t.Errorf("answer %q; want %q", got, tt.want)
			}
			if tt.want == "" {
				if err := <-refused; err == nil {
					t.Error("refused without a reason")
				}
			}
		})
	}
}

// certificates makes the configurations of both sides.
func certificates(t *testing.T) (server, client *tls.Config) {
	t.Helper()
	dir := t.TempDir()
	ca, err := mtls.NewAuthority(dir, "ca", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if err := ca.Issue(dir, mtls.Subject{Name: "peer", Hosts: []string{"localhost"}, URIs: []string{"spiffe://job/peer"}, Life: time.Hour}); err != nil {
		t.Fatal(err)
	}
	id, err := mtls.Load(mtls.Files{
		Cert: filepath.Join(dir, "peer.pem"), Key: filepath.Join(dir, "peer-key.pem"), CA: filepath.Join(dir, "ca.pem"),
	})
	if err != nil {
		t.Fatal(err)
	}
	return id.Server(), id.Client("localhost")
}
