package conn_test

import (
	"fmt"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/test/bufconn"

	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/wire/conn"
)

// An addressed connection comes from a TCP address.
type addressed struct {
	net.Conn
	from net.TCPAddr
}

func (c addressed) RemoteAddr() net.Addr { return &c.from }

// A street is a listener whose connections come from the addresses that a test gives it.
type street struct {
	*bufconn.Listener
	from chan string
}

func (s street) Accept() (net.Conn, error) {
	nc, err := s.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return addressed{nc, net.TCPAddr{IP: net.ParseIP(<-s.from), Port: 1}}, nil
}

// come opens a connection from an address, and writes a text first.
func (s street) come(t *testing.T, from, text string) net.Conn {
	t.Helper()
	s.from <- from
	nc, err := s.Dial()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	if text != "" {
		if _, err := io.WriteString(nc, text); err != nil {
			t.Fatal(err)
		}
	}
	return nc
}

// lives is how long the peer of a connection keeps it open.
func lives(nc net.Conn) time.Duration {
	began := time.Now()
	_, _ = io.Copy(io.Discard, nc)
	return time.Since(began)
}

// Silent connections are closed when one address has too many of them, or all have. Those of others stay.
func TestSilentConnections(t *testing.T) {
	clause.Cite(t, "SEC-100")
	v6 := func(i int) string { return fmt.Sprintf("2001:db8::%x", i+1) }         // one /64
	far := func(i int) string { return fmt.Sprintf("10.0.%d.%d", i/250, i%250) } // all apart
	for _, tt := range []struct {
		name   string
		count  int
		from   func(int) string
		text   string
		atMost time.Duration // that the connections live
	}{
		{"64 of one address", 64, func(int) string { return "192.0.2.1" }, "", conn.HandshakeTime},
		{"65 of one address", 65, func(int) string { return "192.0.2.1" }, "", 1500 * time.Millisecond},
		{"65 of a network of IPv6", 65, v6, "", 1500 * time.Millisecond},
		{"65 that stop in the middle", 65, func(int) string { return "192.0.2.1" }, "al", 3500 * time.Millisecond},
		{"999 apart, and one", 999, far, "", conn.HandshakeTime},
		{"1,001 apart", 1001, far, "", 1500 * time.Millisecond},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := street{bufconn.Listen(1 << 10), make(chan string, 1)}
				a := conn.NewAcceptor(conn.AcceptorConfig{MaxConns: 2000, Protocols: []conn.Protocol{named("a", "alpha"), named("b", "alpine")}})
				served := make(chan error, 1)
				go func() { served <- a.Serve(l) }()
				other := l.come(t, "198.51.100.9", "") // of an address with one connection
				var all []net.Conn
				for i := range tt.count {
					all = append(all, l.come(t, tt.from(i), tt.text))
				}
				began := time.Now()
				for _, nc := range all {
					lives(nc)
				}
				took := time.Since(began)
				if took > tt.atMost || tt.atMost == conn.HandshakeTime && took != tt.atMost {
					t.Errorf("the connections lived for %v; want %v", took, tt.atMost)
				}
				if tt.count <= 65 {
					if lives(other); time.Since(began) != conn.HandshakeTime {
						t.Errorf("a silent connection of another address lived for %v; want %v", time.Since(began), conn.HandshakeTime)
					}
				}
				a.Stop()
				a.Wait()
				<-served
			})
		})
	}
}

// Silent connections that the acceptor closes in their TLS handshake are not told as refused: one line of the log has
// told of all of them.
func TestSilentConnectionsAreNotRefused(t *testing.T) {
	clause.Cite(t, "SEC-100", "SEC-103")
	synctest.Test(t, func(t *testing.T) {
		server, _ := certificates(t)
		l := street{bufconn.Listen(1 << 10), make(chan string, 1)}
		refused := make(chan error, 100)
		a := conn.NewAcceptor(conn.AcceptorConfig{
			MaxConns: 100, Protocols: []conn.Protocol{named("a", "alpha")}, TLS: server,
			Refused: func(_ net.Addr, err error) { refused <- err },
		})
		served := make(chan error, 1)
		go func() { served <- a.Serve(l) }()
		var all []net.Conn
		for range 65 {
			all = append(all, l.come(t, "192.0.2.1", ""))
		}
		for _, nc := range all {
			lives(nc)
		}
		a.Stop()
		a.Wait()
		<-served
		if n := len(refused); n > 0 {
			t.Errorf("%d connections that the acceptor closed are told as refused, the first: %v; want none", n, <-refused)
		}
	})
}
