package conn_test

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/serry-dev/serry/wire/conn"
)

// sockets makes both ends of a connection of TCP.
func sockets(t *testing.T) (a, b net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if a, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if b, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

// Poll finds nothing where there is nothing, and then what has come, behind what was left over. Bytes that come after it
// has looked are those of the next call.
func TestPoll(t *testing.T) {
	a, b := sockets(t)
	c := conn.New(b)
	poll := func(want string) {
		t.Helper()
		got, err := c.Poll(time.Minute)
		if err != nil || string(got) != want {
			t.Fatalf("Poll() = %q, %v; want %q", got, err, want)
		}
	}
	if got, err := c.Poll(time.Microsecond); got != nil || err != nil {
		t.Fatalf("Poll() of a silent peer = %q, %v; want nothing", got, err)
	}
	a.Write([]byte("abc"))
	poll("abc")
	c.Keep([]byte("c"))
	a.Write([]byte("de"))
	poll("cde")
	c.Keep([]byte("de"))
	if got, err := c.Poll(time.Microsecond); got != nil || err != nil {
		t.Fatalf("Poll() of a silent peer = %q, %v; want nothing", got, err)
	}
	a.Write([]byte("f"))
	if got, err := c.Next(); err != nil || string(got) != "def" {
		t.Fatalf("Next() = %q, %v; want what was left over, and what came", got, err)
	}
	c.Keep(nil)
	b.SetReadDeadline(time.Unix(1, 0))
	if _, err := c.Poll(time.Minute); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("Poll() past the deadline = %v; want %v", err, os.ErrDeadlineExceeded)
	}
	b.SetReadDeadline(time.Time{})
	a.Close()
	if _, err := c.Poll(time.Minute); err != io.EOF {
		t.Errorf("Poll() of a closed connection = %v; want %v", err, io.EOF)
	}
}

// Poll finds nothing on connections that cannot be asked: their reads would sleep.
func TestPollWithoutSocket(t *testing.T) {
	a, b := conn.Loop("here")
	defer a.Close()
	defer b.Close()
	a.Write([]byte("abc"))
	c := conn.New(b)
	if got, err := c.Poll(time.Minute); got != nil || err != nil {
		t.Errorf("Poll() of a loop = %q, %v; want nothing", got, err)
	}
	if got, err := c.Next(); err != nil || string(got) != "abc" {
		t.Errorf("Next() = %q, %v; want abc", got, err)
	}
}
