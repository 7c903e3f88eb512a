package conn_test

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"

	"github.com/serry-dev/serry/wire/conn"
)

// TestPipe queues output of all sizes, copied and whole, from a goroutine that does not wait for the peer,
// and reads it slowly at the other end.
func TestPipe(t *testing.T) {
	for _, secure := range []bool{false, true} {
		name := "plain"
		if secure {
			name = "tls"
		}
		t.Run(name, func(t *testing.T) { testPipe(t, secure) })
	}
}

func testPipe(t *testing.T, secure bool) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var server, client *tls.Config
	if secure {
		server, client = certificates(t)
	}
	want := make([]byte, 8<<20)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range want {
		want[i] = byte(random.Uint32())
	}
	var uris []string
	a := conn.NewAcceptor(conn.AcceptorConfig{TLS: server, Protocols: []conn.Protocol{{Name: "own/1", Serve: func(c *conn.Conn) {
		uris = c.PeerURIs()
		send(c, want, random)
	}}}})
	var serving sync.WaitGroup
	serving.Go(func() { a.Serve(l) })
	c, err := conn.Dial(t.Context(), l.Addr().String(), "own/1", conn.DialOptions{TLS: client})
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(c)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes, error %v; want the %d that were sent", len(got), err, len(want))
	}
	c.Close()
	a.Stop()
	a.Wait()
	serving.Wait()
	if secure != (len(uris) == 1 && uris[0] == "spiffe://job/peer") {
		t.Errorf("PeerURIs() = %v; want those of the certificate", uris)
	}
}

// send queues the bytes in pieces.
func send(c *conn.Conn, all []byte, random *rand.Rand) {
	p := conn.NewPipe(c, conn.PipeConfig{})
	for len(all) > 0 {
		n := min(len(all), 1+random.IntN(300<<10))
		p.Lock()
		if n%2 == 0 {
			p.Queue(all[:n])
		} else {
			n = min(n, 5000)
			p.Room(n)
			p.Out = append(p.Out, all[:n]...)
		}
		p.Unlock()
		all = all[n:]
		p.Flush()
	}
	p.Drain()
	c.CloseWrite()
	p.Fail(net.ErrClosed)
	p.Wait()
}

// TestPipeEnds shows that a pipe which has failed takes no more output and starts nothing.
func TestPipeEnds(t *testing.T) {
	near, far := net.Pipe()
	defer far.Close()
	p := conn.NewPipe(conn.New(near), conn.PipeConfig{})
	p.Lock()
	p.Out = append(p.Out, "a word"...)
	p.Unlock()
	why := errors.New("why")
	p.Flush() // to a peer that does not read
	p.Fail(why)
	p.Fail(io.EOF)
	p.Drain()
	p.HoldBack()
	p.Wait()
	if err := p.Err(); !errors.Is(err, why) {
		t.Errorf("Err() = %v; want the first cause, %v", err, why)
	}
}
