package conn_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"testing"
	"testing/synctest"

	"golang.org/x/net/nettest"

	"github.com/serry-dev/serry/wire/conn"
)

// TestLoopIsAConnection holds both ends of a loop to what every net.Conn must do.
func TestLoopIsAConnection(t *testing.T) {
	nettest.TestConn(t, func() (a, b net.Conn, stop func(), err error) {
		a, b = conn.Loop("here")
		return a, b, func() { a.Close(); b.Close() }, nil
	})
}

// TestLoopTakesParts shows that a full loop takes part of a write, as a full socket does, and that a pipe
// brings everything to the other end all the same.
func TestLoopTakesParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := conn.Loop("here")
		random := rand.New(rand.NewPCG(1, 2))
		want := make([]byte, 4<<20)
		for i := range want {
			want[i] = byte(random.Uint32())
		}
		partial := a.(conn.Partial)
		n, err := partial.Try(want)
		if err != nil || n == 0 || n == len(want) {
			t.Fatalf("Try(%d bytes) = %d, %v; want a part of them", len(want), n, err)
		}
		if n, err := partial.Try(want); n != 0 || err != nil {
			t.Errorf("Try() of a full loop = %d, %v; want nothing", n, err)
		}
		go send(conn.New(a), want[n:], random)
		got, err := io.ReadAll(conn.New(b))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d bytes, error %v; want the %d that were sent", len(got), err, len(want))
		}
		if _, err := b.Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("Write() to a closed loop = %v; want %v", err, io.ErrClosedPipe)
		}
	})
}
